"""`holdfast describe`"""

import typer

from holdfast.cli.asking.options import Context, Kubeconfig, NarrowingNamespace, Where
from holdfast.cli.failing import Failure
from holdfast.cli.get import Names, Selector, Type, check_selector, read_types


def describe(
    type: Type,
    names: Names = None,
    selector: Selector = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: NarrowingNamespace = None,
) -> None:
    """Tell all about a reservation, hold, node, or what waits."""
    from holdfast.cli.asking.server import Server, ask
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
