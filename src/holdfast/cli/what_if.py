"""`holdfast what-if`"""

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.completers import files as complete_files
from holdfast.cli.options import (
    Config,
    Context,
    Failure,
    Kubeconfig,
    Namespace,
    Snapshot,
    Where,
    optional,
)

if TYPE_CHECKING:
    from holdfast.api.documents import Document
    from holdfast.local.setup import SchedulerFactory
    from holdfast.sim.what_if.answer import WhatIfAnswer
    from holdfast.sim.what_if.changes import WhatIfChanges
    from holdfast.snapshot.cluster_objects import ClusterObjects

_CHANGES = "Changes"


class WhatIfOutput(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    HTML = "html"


def _change(*flags: str, metavar: str, help: str) -> Any:
    return typer.Option(
        *flags, metavar=metavar, help=help, show_default=False, rich_help_panel=_CHANGES
    )


def what_if(
    snapshot: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SNAPSHOT...",
            help="Files of objects: of `holdfast snapshot`, or of `kubectl get -o yaml`; - for stdin "
            "(default: the cluster, which is only read).",
            autocompletion=complete_files,
            show_default=False,
        ),
    ] = None,
    manifests: Annotated[
        list[str] | None,
        _change(
            "-f",
            "--filename",
            metavar="F",
            help="Apply the objects of this file; a directory stands for the files in it, - for stdin; "
            "may be repeated.",
        ),
    ] = None,
    scale: Annotated[
        list[str] | None,
        _change(
            "--scale",
            metavar="KIND/NAME=N",
            help="Scale a workload, such as deployment/web=10; may be repeated.",
        ),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        _change(
            "--nodes",
            metavar="+NxSHAPE",
            help="Add nodes like one of the cluster, as in +4xnode-7, or of a size, as in "
            "+2xcpu=8,memory=32Gi,nvidia.com/gpu=4; label:KEY=VALUE and taint:KEY=VALUE:EFFECT add "
            "labels and taints; may be repeated.",
        ),
    ] = None,
    drain: Annotated[
        list[str] | None,
        _change(
            "--drain",
            metavar="NODE",
            help="Drain a node, or all nodes with these labels, as in pool=old; disruption budgets are "
            "respected; may be repeated.",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        _change(
            "--remove",
            metavar="NODE",
            help="Remove a node, or all nodes with these labels, with everything on it; may be "
            "repeated.",
        ),
    ] = None,
    plan: Annotated[
        str | None,
        _change(
            "--plan",
            metavar="SHAPE[,SHAPE]",
            help="Add the smallest number of nodes of these shapes that makes everything fit.",
        ),
    ] = None,
    config: Config = None,
    output: Annotated[
        WhatIfOutput, typer.Option("-o", "--output", help="Output format.")
    ] = WhatIfOutput.TABLE,
    html: Annotated[
        Path | None,
        optional("--html", metavar="FILE", help="Also write the answer to this file, as an HTML page."),
    ] = None,
    snapshot_option: Snapshot = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Show what would happen on a cluster: what is placed where, displaced, preempted, pending.

    The objects of the cluster, or of a snapshot, are changed in memory, and the scheduler decides.
    Pods of workloads are made by the same controllers as in `holdfast up`. Writes nothing.

    Examples:
      # Would this Deployment fit, and where would its pods go?
      holdfast what-if -f deployment.yaml

      # How many nodes of this size would it take?
      holdfast what-if -f deployment.yaml --plan cpu=16,memory=64Gi

      # Can node-7 be drained, at ten replicas?
      holdfast what-if cluster.json.gz --drain node-7 --scale deployment/web=10

      # Replace a pool by nodes of another size, as data
      holdfast what-if --remove pool=old --nodes +3xcpu=32,memory=128Gi -o json
    """
    from holdfast.cli.client import cluster_objects, namespace_of
    from holdfast.cli.options import load_setup, warn_of_plugins
    from holdfast.sim.garbage import seldom_collected
    from holdfast.sim.what_if.changes import WhatIfChanges

    setup = load_setup(config)
    warn_of_plugins([setup])
    files = (*(snapshot or ()), *(snapshot_option or ()))
    where = Where(kubeconfig, context, namespace, files)
    changes = WhatIfChanges(
        manifests=read_manifests(manifests or (), files),
        scales=scale or (),
        nodes=nodes or (),
        drains=drain or (),
        removals=remove or (),
        namespace=namespace_of(where),
    )
    if manifests and not changes.manifests:
        raise Failure(1, [f"-f {', '.join(manifests)}: no documents"])
    if not changes and plan is None and config is None:
        flags = "-f, --scale, --nodes, --drain, --remove, --plan or --config"
        raise Failure(1, [f"nothing to change: give {flags}"])
    objects = cluster_objects(where)
    with seldom_collected():
        answer = answered(setup, config, objects, changes, plan)
        if html is not None:
            _write_page(html, answer)
        _show(answer, output)


def read_manifests(paths: Sequence[str], snapshot: Sequence[str]) -> "list[Document]":
    """Raises Failure."""
    from holdfast.snapshot.manifests import InvalidInput, load_files

    if "-" in paths and "-" in snapshot:
        raise Failure(1, ["-: standard input can be read once, for SNAPSHOT or for -f"])
    try:
        return load_files(paths)
    except InvalidInput as error:
        raise Failure(1, error.problems) from None


def answered(
    setup: "SchedulerFactory",
    config: str | None,
    objects: "ClusterObjects",
    changes: "WhatIfChanges",
    plan: str | None = None,
) -> "WhatIfAnswer":
    """Raises Failure."""
    from holdfast.cli.options import load_setup
    from holdfast.sim.what_if.changes import ChangeError
    from holdfast.sim.what_if.node_shapes import ShapeError, read_shapes
    from holdfast.sim.what_if.question import WhatIfQuestion, as_running
    from holdfast.snapshot.manifests import InvalidInput
    from holdfast.snapshot.played_cluster import NotSettled

    before = setup
    # A configuration is a change if there is no other; else it is what the cluster runs with.
    is_change = config is not None and not changes and plan is None
    if config is None or is_change:
        before = as_running(load_setup(None) if is_change else setup, objects)
    try:
        shapes = read_shapes(plan) if plan is not None else []
        question = WhatIfQuestion.about(before, objects)
        if config is not None and is_change:
            question.configure(setup, config)
        return question.ask_with_plan(changes, shapes) if shapes else question.ask(changes)
    except InvalidInput as error:
        raise Failure(1, error.problems) from None
    except ShapeError as error:
        raise Failure(1, [f"--plan: {error}"]) from None
    except ChangeError as error:
        raise Failure(1, [str(error)]) from None
    except NotSettled as error:
        raise Failure(2, [str(error)]) from None


def _show(answer: "WhatIfAnswer", output: WhatIfOutput) -> None:
    if output is WhatIfOutput.JSON:
        from holdfast.cli.printing import as_json

        typer.echo(as_json(answer.data()), nl=False)
    elif output is WhatIfOutput.HTML:
        from holdfast.sim.what_if.page import answer_page

        typer.echo(answer_page(answer), nl=False)
    else:
        from holdfast.cli.text_table import Screen
        from holdfast.cli.what_if_tables import print_answer

        print_answer(Screen(), answer)


def _write_page(path: Path, answer: "WhatIfAnswer") -> None:
    from holdfast.sim.what_if.page import answer_page

    try:
        path.write_text(answer_page(answer), encoding="utf-8")
    except OSError as error:
        raise Failure(1, [f"--html: {error.filename or path}: {error.strerror or error}"]) from None
