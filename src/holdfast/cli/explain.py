"""`holdfast explain`"""

import time
from typing import Annotated

import typer

from holdfast.cli.options import Config, Context, Failure, Kubeconfig, Namespace, OutputReport, Where

_EXPLAINED = {
    "pod": ("pod", "pods", "po"),
    "reservation": ("reservation", "reservations", "rsv"),
    "podgroup": ("podgroup", "podgroups", "pg"),
}


def _complete_kind(incomplete: str) -> list[str]:
    return [kind for kind in _EXPLAINED if kind.startswith(incomplete)]


def explain(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"One of {', '.join(_EXPLAINED)}; or KIND/NAME.",
            autocompletion=_complete_kind,
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the object.", show_default=False)
    ] = None,
    output: Annotated[
        OutputReport, typer.Option("-o", "--output", help="Output format.")
    ] = OutputReport.TEXT,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Explain why a pod, reservation or pod group is pending or placed.

    Reads the same objects as the scheduler and evaluates the same plugins on them. Writes nothing.
    """
    from holdfast.cli.client import Server, ask
    from holdfast.cli.explanation.pods import explain_group, explain_pod
    from holdfast.cli.explanation.reservations import explain_reservation
    from holdfast.cli.options import load_setup
    from holdfast.cli.printing import as_json, as_yaml
    from holdfast.cli.snapshot import take_snapshot

    if name is None:
        kind, _, name = kind.partition("/")
    if not name:
        raise Failure(1, [f"NAME: which {kind}? Give KIND NAME or KIND/NAME"])
    wanted = next((each for each, aliases in _EXPLAINED.items() if kind.lower() in aliases), None)
    if wanted is None:
        raise Failure(1, [f"KIND: cannot explain {kind!r}; known: {', '.join(_EXPLAINED)}"])
    explain_one = {
        "pod": explain_pod,
        "reservation": explain_reservation,
        "podgroup": explain_group,
    }[wanted]
    setup = load_setup(config)

    async def work(server: Server) -> str:
        snapshot = await take_snapshot(server, setup)
        report = await explain_one(server, snapshot, name, server.namespace)
        match output:
            case OutputReport.JSON:
                return as_json(report.data())
            case OutputReport.YAML:
                return as_yaml(report.data())
        return report.text(time.time())

    typer.echo(ask(Where(kubeconfig, context, namespace), work), nl=False)
