"""`holdfast explain`"""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.options import Config, Context, Failure, Kubeconfig, Namespace, OutputReport, Where

if TYPE_CHECKING:
    from holdfast.kube.object_client import Raw

_EXPLAINED = {
    "pod": ("pod", "pods", "po"),
    "reservation": ("reservation", "reservations", "rsv"),
    "podgroup": ("podgroup", "podgroups", "pg"),
    "deployment": ("deployment", "deployments", "deploy"),
    "statefulset": ("statefulset", "statefulsets", "sts"),
    "daemonset": ("daemonset", "daemonsets", "ds"),
    "replicaset": ("replicaset", "replicasets", "rs"),
    "job": ("job", "jobs"),
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
    """Explain why a pod, reservation, pod group or workload is pending or placed.

    Reads the same objects as the scheduler and evaluates the same plugins on them. Writes nothing.

    Examples:
      # Why a pod is pending, and what would help
      holdfast explain pod web-0

      # A reservation, as data
      holdfast explain reservation/peak -o json
    """
    from holdfast.cli.client import Server, ask
    from holdfast.cli.explanation_text import text
    from holdfast.cli.options import load_setup
    from holdfast.cli.printing import as_json, as_yaml
    from holdfast.cli.snapshot import warned_snapshot
    from holdfast.explanation.explainer import EXPLAINED, find
    from holdfast.explanation.explainer import explain as explain_object
    from holdfast.kube.errors import ApiError

    if name is None:
        kind, _, name = kind.partition("/")
    if not name:
        raise Failure(1, [f"NAME: which {kind}? Give KIND NAME or KIND/NAME"])
    wanted = next((each for each, aliases in _EXPLAINED.items() if kind.lower() in aliases), None)
    if wanted is None:
        raise Failure(1, [f"KIND: cannot explain {kind!r}; known: {', '.join(_EXPLAINED)}"])
    setup = load_setup(config)

    async def read(server: Server) -> "Raw":
        refused: ApiError | None = None
        for info in EXPLAINED[wanted]:
            try:
                return await server.get(info, name, server.namespace if info.namespaced else "")
            except ApiError as error:
                if error.status != 404:
                    raise
                refused = refused or error
        assert refused is not None
        raise refused

    async def work(server: Server) -> str:
        snapshot = await warned_snapshot(server, setup)
        raw = find(snapshot, wanted, name, server.namespace) or await read(server)
        report = explain_object(snapshot, raw)
        report.events = await server.events(raw)
        match output:
            case OutputReport.JSON:
                return as_json(report.data())
            case OutputReport.YAML:
                return as_yaml(report.data())
        return text(report, time.time())

    typer.echo(ask(Where(kubeconfig, context, namespace), work), nl=False)
