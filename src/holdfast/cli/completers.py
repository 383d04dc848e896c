"""Values that a shell completes: names of objects, namespaces, contexts, types and files.

Objects are listed by the API server, which gets little time; an error, or no answer, completes nothing.
A completer takes the parsed part of the command line and the word so far.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from holdfast.api.kinds import KindInfo
    from holdfast.cli.client import ObjectLister

SECONDS = 2.0
"""How long a server may take."""
MOST = 500
"""Names that are listed at most."""
FILES = "\0files"
"""Stands for the files and directories that the shell finds itself."""


def files(incomplete: str) -> list[str]:
    return [incomplete + FILES]


def contexts(ctx: typer.Context, incomplete: str) -> list[str]:
    with suppress(Exception):
        from holdfast.kube.kubeconfig import known_contexts

        return known_contexts(ctx.params.get("kubeconfig"))
    return []


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    from holdfast.api.kinds import KINDS

    return object_names(ctx, KINDS["v1", "Namespace"])


def nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    from holdfast.api.kinds import KINDS

    return object_names(ctx, KINDS["v1", "Node"])


def types(ctx: typer.Context, incomplete: str) -> list[str]:
    """The types of `get`; after a comma another one; after `TYPE/` the names of that type."""
    from holdfast.cli.kinds import find_resource, titles

    title, slash, _ = incomplete.partition("/")
    if slash:
        return [f"{title}/{name}" for name in object_names(ctx, *find_resource(title))]
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{each}" for each in titles()]


def names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the type that was given, without those given already."""
    from holdfast.cli.kinds import find_resource

    title, given = str(ctx.params.get("type") or ""), ctx.params.get("names") or ()
    if "/" in title:
        return types(ctx, incomplete)
    if "," in title or not title:
        return []
    return [name for name in object_names(ctx, *find_resource(title)) if name not in given]


def workloads(ctx: typer.Context, incomplete: str) -> list[str]:
    """`deployment/web`"""
    from holdfast.cli.reservation_builder import WORKLOAD_TITLES, find_workload

    title, slash, name = incomplete.partition("/")
    if not slash:
        return [f"{each}/" for each in WORKLOAD_TITLES]
    info, _ = find_workload(f"{title}/{name or 'any'}")
    return [f"{title}/{each}" for each in object_names(ctx, info)]


def object_names(ctx: Any, info: "KindInfo", selector: str = "", fields: str = "") -> list[str]:
    """Names of a kind in the namespace of the command line."""

    async def work(server: "ObjectLister") -> list[str]:
        everywhere = not info.namespaced or ctx.params.get("all_namespaces")
        namespace = "" if everywhere else server.namespace
        found = await server.some(info, namespace, selector, fields, MOST)
        return sorted(raw["metadata"]["name"] for raw in found)

    return list(asked(ctx, work))


def asked(ctx: Any, work: "Callable[[ObjectLister], Awaitable[Iterable[str]]]") -> Iterable[str]:
    """The answer of the cluster that the command line names; none on any error."""
    with suppress(Exception):
        import asyncio

        from holdfast.cli.client import ask_any
        from holdfast.cli.options import Where

        async def in_time(server: "ObjectLister") -> Iterable[str]:
            return await asyncio.wait_for(work(server), SECONDS)

        given = ctx.params
        files = tuple(given.get("snapshot") or ())
        where = Where(given.get("kubeconfig"), given.get("context"), given.get("namespace"), files)
        return ask_any(where, in_time)
    return ()
