"""Runs the CLI's queries against a cluster; errors in kubectl's words."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.api.kinds import KINDS
from holdfast.api.names import RESERVATION_API
from holdfast.cli.options import Failure, Where
from holdfast.kube.client import Client
from holdfast.kube.client_settings import Access
from holdfast.kube.errors import ApiError, KubernetesError, Unreachable
from holdfast.kube.kubeconfig import find_access
from holdfast.kube.object_client import Raw, Server

__all__ = ["NODE", "POD", "RESERVATION", "Raw", "Server", "ask", "failure", "refusal"]

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
