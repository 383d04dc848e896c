"""`holdfast get`"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import completers
from holdfast.cli.options import (
    AllNamespaces,
    Context,
    Failure,
    Kubeconfig,
    Namespace,
    Snapshot,
    Where,
    optional,
)

if TYPE_CHECKING:
    from holdfast.api.kinds import KindInfo
    from holdfast.cli.client import ObjectLister, Raw
    from holdfast.cli.kinds.kind import Found, OutputKind, Query

TYPES = (
    "reservations (rsv), holds, reservationschedules (rsvs, schedules), pods (po), nodes (no), "
    "podgroups (pg), queue, queues (q)"
)


def _complete_format(incomplete: str) -> list[str]:
    from holdfast.cli.output_format import PLAIN, TEMPLATED

    return [*PLAIN, *(f"{name}=" for name in TEMPLATED)]


Type = Annotated[
    str,
    typer.Argument(
        metavar="TYPE",
        help=f"One of {TYPES}. Several are separated by commas. Or TYPE/NAME.",
        autocompletion=completers.types,
        show_default=False,
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="Names of the objects (default: all).",
        autocompletion=completers.names,
        show_default=False,
    ),
]
Selector = Annotated[
    str,
    optional(
        "-l",
        "--selector",
        metavar="LABELS",
        help="Only objects with these labels, such as app=web or 'tier in (a,b)'.",
    ),
]
FieldSelector = Annotated[
    str,
    optional(
        "--field-selector",
        metavar="FIELDS",
        help="Only objects with these fields, such as spec.nodeName=node-1.",
    ),
]


def get(
    type: Type,
    names: Names = None,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FORMAT",
            help="table, wide, json, yaml, name, jsonpath=TEMPLATE, or custom-columns=HEADER:PATH,...",
            autocompletion=_complete_format,
        ),
    ] = "table",
    selector: Selector = "",
    field_selector: FieldSelector = "",
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="After listing, show changes until interrupted.")
    ] = False,
    watch_events: Annotated[
        bool,
        typer.Option(
            "--output-watch-events",
            help="With --watch, also show whether an object was added, modified or deleted.",
        ),
    ] = False,
    sort_by: Annotated[
        str,
        optional(
            "--sort-by",
            metavar="PATH",
            help="Sort by a field, such as .metadata.creationTimestamp (default: by name, finished "
            "reservations last).",
        ),
    ] = "",
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Print no header row.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    snapshot: Snapshot = None,
) -> None:
    """Show reservations, holds, pods, nodes and queues.

    `pods` shows the reservation that each pod uses. `nodes` shows what is held by reservations and
    free on each node, as the scheduler counts it; with `-o wide` also what is requested. `queue`
    lists pending pods and reservations in scheduling order; `queues` lists the Queue objects. For
    reservations that start later, `reservations` shows the state of the plan and when they start.

    Pods, pod groups and pending pods are those of one namespace unless -A is given. Reservations,
    holds, schedules, nodes and queues have no namespace.

    Examples:
      # Reservations with the pods that use them, and when they expire
      holdfast get reservations

      # What is free on each node, followed as it changes
      holdfast get nodes -w

      # Pods of all namespaces with their reservations, and why pending ones are pending
      holdfast get pods -A -o wide

      # The nodes of a cluster as they were when the file was written
      holdfast get nodes --snapshot cluster.json.gz

      # Names of the pods that use a reservation
      holdfast get rsv peak -o jsonpath='{.status.currentOwners[*].name}'
    """
    from holdfast.cli.client import ObjectLister, Server, ask_any
    from holdfast.cli.object_printer import ObjectPrinter, PrintOptions
    from holdfast.cli.output_format import DATA, is_absent, read_format, sort_key

    wanted = read_types(type, names or [])
    if watch and len(wanted) > 1:
        raise Failure(1, ["--watch: expected one type"])
    if watch and snapshot:
        raise Failure(1, ["--watch: a snapshot does not change"])
    check_selector(selector)
    format = read_format(output)
    order = sort_key(sort_by) if sort_by else None

    async def work(server: ObjectLister) -> list[str]:
        queries = [
            (kind, query_of(server, kind, given, all_namespaces, selector, field_selector))
            for kind, given in wanted
        ]
        found = [await kind.find(server, query) for kind, query in queries]
        if order is not None:
            found = [_sorted(each, order) for each in found]
            rows = [row for each in found for row in each.rows]
            if rows and all(is_absent(order(row.object)) for row in rows):
                raise Failure(1, [f"--sort-by: no object has a field {sort_by}"])
        printer = ObjectPrinter(PrintOptions(format, not no_headers, all_namespaces, watch_events))
        single = sum(len(given) for _, given in wanted) == 1
        missing = [line for each in found for line in each.missing]
        if watch:
            from holdfast.cli.watch import follow

            if missing:
                return missing
            assert isinstance(server, Server)
            ((kind, query),) = queries
            await follow(server, kind, query, found[0], printer.watching(kind, found[0]).show)
        printer.print([kind for kind, _ in queries], found, single)
        for note in dict.fromkeys(line for each in found for line in each.wide_notes):
            if format.name == "wide":
                typer.echo(f"note: {note}", err=True)
        if not missing and not any(each.rows for each in found) and format.name not in DATA:
            typer.echo(none_found(queries, found), err=True)
            if namespace:
                await warn_of_namespace(server, namespace)
        return missing

    where = Where(kubeconfig, context, namespace, tuple(snapshot or ()))
    missing = ask_any(where, work)
    if missing:
        raise Failure(1, missing, as_it_is=True)


def read_types(type: str, names: Sequence[str]) -> "list[tuple[OutputKind, tuple[str, ...]]]":
    """`TYPE[,TYPE] [NAME…]`, or `TYPE/NAME…`. Raises Failure."""
    from holdfast.cli.kinds import find_kind

    if "/" not in type:
        kinds = [find_kind(each) for each in filter(None, type.split(","))]
        if not kinds:
            raise Failure(1, [f"TYPE is required: one of {TYPES}"])
        return [(kind, tuple(names)) for kind in kinds]
    found: dict[str, list[str]] = {}
    for each in (type, *names):
        kind_name, slash, name = each.partition("/")
        if not slash:
            raise Failure(1, [f"a name cannot follow TYPE/NAME: {each!r}"])
        if not name:
            raise Failure(1, [f"expected TYPE/NAME, got {each!r}"])
        found.setdefault(kind_name, []).append(name)
    return [(find_kind(kind_name), tuple(named)) for kind_name, named in found.items()]


def query_of(
    server: "ObjectLister",
    kind: "OutputKind",
    names: tuple[str, ...],
    everywhere: bool,
    selector: str = "",
    fields: str = "",
) -> "Query":
    """Raises Failure."""
    from holdfast.cli.kinds.kind import Query

    if names and (selector or fields):
        raise Failure(1, ["NAME: cannot be given together with a selector; keep one of them"])
    where = "" if everywhere else server.namespace
    return Query(names, where if kind.info.namespaced else "", selector, fields)


def check_selector(text: str) -> None:
    from holdfast.api.errors import SelectorError
    from holdfast.api.selectors import parse_label_selector

    try:
        parse_label_selector(text)
    except SelectorError as error:
        raise Failure(1, [f"--selector: {error}"]) from None


def none_found(queries: "Sequence[tuple[OutputKind, Query]]", found: "Sequence[Found]") -> str:
    """kubectl's words; and where there are some in other namespaces, that there are."""
    namespaces = {query.namespace for _, query in queries}
    where = f" in {namespaces.pop()} namespace." if len(namespaces) == 1 and any(namespaces) else ""
    elsewhere = sum(each.elsewhere for each in found)
    others = f" {elsewhere} in other namespaces: use -A." if where and elsewhere else ""
    return f"No resources found{where}{others}"


def _sorted(found: "Found", key: "Callable[[Raw], tuple[bool, bool, float, str]]") -> "Found":
    return found._replace(rows=sorted(found.rows, key=lambda row: key(row.object)))


async def warn_of_namespace(server: "ObjectLister", namespace: str) -> None:
    """A warning if the cluster has no such namespace, with the nearest one. A file without Namespaces
    says nothing of them."""
    from holdfast.api.kinds import KINDS
    from holdfast.kube.errors import KubernetesError

    info = KINDS["v1", "Namespace"]
    with suppress(KubernetesError):
        if not await server.some(info, limit=1):
            return
    hint = await missing_hint(server, info, namespace)
    if hint is not None:
        typer.echo(f'warning: no namespace "{namespace}"{hint}', err=True)


async def missing_hint(server: "ObjectLister", info: "KindInfo", name: str) -> str | None:
    """`; did you mean node-2?` if the cluster has no such object, empty if no name is similar; None if
    it has one, or does not say.
    """
    from holdfast.api.similar_names import did_you_mean
    from holdfast.kube.errors import ApiError, KubernetesError

    try:
        await server.get(info, name)
    except ApiError as error:
        if error.status != 404:
            return None
        with suppress(KubernetesError):
            others = await server.some(info)
            return did_you_mean(name, [str(raw["metadata"]["name"]) for raw in others])
        return ""
    except KubernetesError:
        return None
    return None
