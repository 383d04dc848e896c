"""Runs the CLI's queries against a cluster; errors in kubectl's words."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from holdfast.api.kinds import KINDS
from holdfast.api.names import DEFAULT_NAMESPACE, RESERVATION_API
from holdfast.cli.options import Failure, Where
from holdfast.kube.client import Client
from holdfast.kube.client_settings import Access
from holdfast.kube.errors import ApiError, KubernetesError, Unreachable
from holdfast.kube.kubeconfig import find_access
from holdfast.kube.object_client import ObjectLister, Raw, Server

if TYPE_CHECKING:
    from holdfast.snapshot.cluster_objects import ClusterObjects
    from holdfast.snapshot.reader import Progress

__all__ = [
    "NODE",
    "POD",
    "RESERVATION",
    "ObjectLister",
    "Raw",
    "Server",
    "ask",
    "ask_any",
    "cluster_objects",
    "failure",
    "namespace_of",
    "refusal",
]

T = TypeVar("T")

NODE = KINDS["v1", "Node"]
POD = KINDS["v1", "Pod"]
RESERVATION = KINDS[RESERVATION_API, "Reservation"]


def ask(where: Where, work: Callable[[Server], Awaitable[T]]) -> T:
    """Runs a query against the cluster. Raises Failure."""

    async def connected(access: Access) -> T:
        async with Client(access, connections=8) as client:
            return await work(Server(client, where.namespace or access.namespace or "default"))

    server = ""
    try:
        access = find_access(where.kubeconfig, where.context or "")
        server = access.server
        return asyncio.run(connected(access))
    except KubernetesError as error:
        raise failure(error, server) from None
    except KeyboardInterrupt:
        raise Failure(130, []) from None


def ask_any(where: Where, work: Callable[[ObjectLister], Awaitable[T]]) -> T:
    """Like `ask`, for queries that only read: also from files. Raises Failure."""
    if not where.snapshot:
        return ask(where, work)
    objects = cluster_objects(where)
    try:
        return asyncio.run(_awaited(work(objects.lister(where.namespace or ""))))
    except KubernetesError as error:
        raise failure(error) from None
    except KeyboardInterrupt:
        raise Failure(130, []) from None


async def _awaited(found: Awaitable[T]) -> T:
    return await found


def cluster_objects(where: Where, progress: "Progress | None" = None) -> "ClusterObjects":
    """All objects that scheduling depends on, of the files or of the cluster, with warnings on stderr
    about what could not be read. Raises Failure."""
    from holdfast.snapshot.cluster_objects import read_files
    from holdfast.snapshot.manifests import InvalidInput
    from holdfast.snapshot.reader import read_cluster

    try:
        if where.snapshot:
            objects = read_files(where.snapshot)
        else:
            objects = ask(where, lambda server: read_cluster(server, progress))
    except InvalidInput as error:
        raise Failure(1, error.problems) from None
    for warning in objects.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return objects


def namespace_of(where: Where) -> str:
    """The namespace that is given, or that of the context; of files, `default`."""
    if where.namespace or where.snapshot:
        return where.namespace or DEFAULT_NAMESPACE
    try:
        return find_access(where.kubeconfig, where.context or "").namespace or DEFAULT_NAMESPACE
    except KubernetesError as error:
        raise failure(error) from None


def failure(error: KubernetesError, server: str = "") -> Failure:
    """The Failure for an API error, in kubectl's words."""
    if isinstance(error, ApiError):
        return Failure(1, [refusal(error)], as_it_is=error.status != 401)
    if isinstance(error, Unreachable):
        where = f" {server}" if server else ""
        return Failure(1, [f"Unable to connect to the server{where}: {error}"], as_it_is=True)
    return Failure(1, str(error).splitlines())


def refusal(error: ApiError) -> str:
    if error.status == 401:
        return "You must be logged in to the server (Unauthorized)"
    reason = error.reason or f"status {error.status}"
    if error.reason == "Invalid":
        kind, space, rest = error.message.partition(" ")
        return f"The {kind.partition('.')[0]}{space}{rest}"
    return f"Error from server ({reason}): {error.message}"
