"""`holdfast get` and `holdfast describe`"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Context, Failure, Kubeconfig, NarrowingNamespace, Output, Where

if TYPE_CHECKING:
    from holdfast.cli.client import Raw, Server
    from holdfast.cli.kinds.kind import Found, OutputColumn, OutputKind, PlainKind, Query


TYPES = "reservations (rsv), holds, nodes, queue, queues"


def _complete_type(incomplete: str) -> list[str]:
    from holdfast.cli.kinds import titles

    return [title for title in titles() if title.startswith(incomplete)]


Type = Annotated[
    str,
    typer.Argument(
        metavar="TYPE",
        help=f"One of {TYPES}; several separated by commas, or TYPE/NAME.",
        autocompletion=_complete_type,
        show_default=False,
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...", help="Names of the objects (default: all).", show_default=False
    ),
]
Selector = Annotated[
    str,
    typer.Option(
        "-l", "--selector", metavar="SELECTOR", help="Label selector, such as app=web,tier in (a,b)."
    ),
]


def get(
    type: Type,
    names: Names = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.TABLE,
    selector: Selector = "",
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="After listing, watch for changes until interrupted.")
    ] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Print no header row.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: NarrowingNamespace = None,
) -> None:
    """Show reservations, holds, nodes, and pending pods.

    `nodes` shows what is requested, reserved and free on each node, as the scheduler counts it. `queue`
    lists pending pods and reservations in scheduling order. `queues` lists the Queue objects.
    """
    from holdfast.cli.client import Server, ask
    from holdfast.cli.kinds.kind import Query

    wanted = read_types(type, names or [])
    followed = _watchable(wanted) if watch else None
    check_selector(selector)

    async def work(server: Server) -> list[str]:
        found = []
        for kind, given in wanted:
            query = Query(given, namespace or "", selector)
            found.append(await kind.find(server, query))
        missing = [line for each in found for line in each.missing]
        _show(found, output, not no_headers, single=sum(len(given) for _, given in wanted) == 1)
        if not missing and not any(each.rows for each in found):
            typer.echo("No resources found", err=True)
        if followed is not None:
            await _follow(server, followed, found[0], query, output)
        return missing

    missing = ask(Where(kubeconfig, context, namespace), work)
    if missing:
        raise Failure(1, missing, as_it_is=True)


def read_types(type: str, names: Sequence[str]) -> "list[tuple[OutputKind, tuple[str, ...]]]":
    """`TYPE[,TYPE] [NAME…]`, or `TYPE/NAME…`. Raises Failure."""
    from holdfast.cli.kinds import find_kind

    if "/" not in type:
        return [(find_kind(each), tuple(names)) for each in filter(None, type.split(","))]
    found: dict[str, list[str]] = {}
    for each in (type, *names):
        kind, slash, name = each.partition("/")
        if not slash:
            raise Failure(1, [f"a name cannot follow TYPE/NAME: {each!r}"])
        if not name:
            raise Failure(1, [f"expected TYPE/NAME, got {each!r}"])
        found.setdefault(kind, []).append(name)
    return [(find_kind(kind), tuple(named)) for kind, named in found.items()]


def _watchable(wanted: "Sequence[tuple[OutputKind, tuple[str, ...]]]") -> "PlainKind":
    """Raises Failure."""
    from holdfast.cli.kinds.kind import PlainKind

    kind = wanted[0][0] if len(wanted) == 1 else None
    if not isinstance(kind, PlainKind):
        raise Failure(1, ["--watch: expected one type other than nodes or queue"])
    return kind


def check_selector(text: str) -> None:
    from holdfast.api.errors import SelectorError
    from holdfast.api.selectors import parse_label_selector

    try:
        parse_label_selector(text)
    except SelectorError as error:
        raise Failure(1, [f"--selector: {error}"]) from None


def _show(found: "Sequence[Found]", output: Output, heading: bool, single: bool) -> None:
    from holdfast.cli.printing import as_json, as_list, as_yaml

    rows = [row for each in found for row in each.rows]
    match output:
        case Output.JSON | Output.YAML:
            objects = [row.object for row in rows]
            if single and not objects:
                return
            whole = objects[0] if single else as_list(objects)
            typer.echo(as_json(whole) if output is Output.JSON else as_yaml(whole), nl=False)
        case Output.NAME:
            for row in rows:
                typer.echo(_name(row.object))
        case _:
            tables = [_table(each, output, heading, len(found) > 1) for each in found if each.rows]
            typer.echo("\n".join(tables), nl=False)


def _table(found: "Found", output: Output, heading: bool, prefixed: bool) -> str:
    """The table; with several tables, names include the type."""
    from holdfast.cli.printing import table

    shown = _shown(found.columns, output)
    rows = [[row.cells[i] for i in shown] for row in found.rows]
    if prefixed:
        rows = [[_name(row.object), *cells[1:]] for row, cells in zip(found.rows, rows, strict=True)]
    lines = table([found.columns[i].name for i in shown], rows, heading)
    return "".join(f"{line}\n" for line in lines)


def _shown(columns: "Sequence[OutputColumn]", output: Output) -> list[int]:
    return [i for i, column in enumerate(columns) if output is Output.WIDE or not column.wide]


def _name(raw: "Raw") -> str:
    from holdfast.api.kinds import kind_info
    from holdfast.cli.printing import resource_name

    return resource_name(kind_info(raw["apiVersion"], raw["kind"]), raw["metadata"]["name"])


async def _follow(
    server: "Server", kind: "PlainKind", found: "Found", query: "Query", output: Output
) -> None:
    """Prints a row, or an object, for every change, in the columns of the table above if they are
    wide enough.
    """
    from holdfast.cli.printing import NONE, as_json, as_yaml

    shown = _shown(kind.columns, output)
    names = [kind.columns[i].name for i in shown]
    widths = [
        max(len(name), *(len(row.cells[i] or NONE) for row in found.rows), 0)
        for name, i in zip(names, shown, strict=True)
    ]
    version = found.version
    if not version:
        _, version = await server.listed(kind.info, query.namespace, kind.selected(query))
    changes = server.watch(kind.info, version, query.namespace, kind.selected(query))
    async for _, raw in changes:
        if query.names and raw["metadata"]["name"] not in query.names:
            continue
        match output:
            case Output.JSON:
                typer.echo(as_json(raw), nl=False)
            case Output.YAML:
                typer.echo(f"---\n{as_yaml(raw)}", nl=False)
            case Output.NAME:
                typer.echo(_name(raw))
            case _:
                cells = kind.cells(raw, time.time())
                padded = ((cells[i] or NONE).ljust(w) for i, w in zip(shown, widths, strict=True))
                typer.echo("   ".join(padded).rstrip())


# `holdfast describe`


def describe(
    type: Type,
    names: Names = None,
    selector: Selector = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: NarrowingNamespace = None,
) -> None:
    """Show the details of a reservation, hold, node, or pending pod."""
    from holdfast.cli.client import Server, ask
    from holdfast.cli.kinds.kind import Query

    wanted = read_types(type, names or [])
    check_selector(selector)

    async def work(server: Server) -> list[str]:
        texts: list[str] = []
        missing: list[str] = []
        for kind, given in wanted:
            found = await kind.find(server, Query(given, namespace or "", selector))
            missing += found.missing
            texts += [await kind.describe(server, row.object) for row in found.rows]
        typer.echo("\n\n".join(texts), nl=False)
        if not texts and not missing:
            typer.echo("No resources found", err=True)
        return missing

    missing = ask(Where(kubeconfig, context, namespace), work)
    if missing:
        raise Failure(1, missing, as_it_is=True)
