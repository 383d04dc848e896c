"""`holdfast check`"""

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.api.plurals import number_of
from holdfast.cli.completers import files as complete_files
from holdfast.cli.options import (
    Config,
    Context,
    Failure,
    Kubeconfig,
    Namespace,
    Snapshot,
    Where,
)

if TYPE_CHECKING:
    from holdfast.api.documents import Document
    from holdfast.local.setup import SchedulerFactory
    from holdfast.sim.what_if.fit_check import CheckResult
    from holdfast.snapshot.cluster_objects import ClusterObjects

PROBLEM = 2
_STATUSES = {"Fits": 0, "DoesNotFit": 1, "NotChecked": 3}


class CheckOutput(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    SARIF = "sarif"
    JUNIT = "junit"


def check(
    manifests: Annotated[
        list[str],
        typer.Option(
            "-f",
            "--filename",
            metavar="F",
            help="File of objects; a directory stands for all files in it and below, - for stdin; may "
            "be repeated.",
            autocompletion=complete_files,
            show_default=False,
        ),
    ],
    empty: Annotated[
        bool,
        typer.Option(
            "--empty",
            help="Check against the same nodes without any pods but those of DaemonSets.",
        ),
    ] = False,
    config: Config = None,
    output: Annotated[
        CheckOutput, typer.Option("-o", "--output", help="Output format.")
    ] = CheckOutput.TABLE,
    snapshot: Snapshot = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Check whether manifests would fit on a cluster: for CI, before they are applied.

    Workloads are checked as a whole, with all their replicas, and all manifests together. The cluster,
    or a snapshot of it, is only read. Exit status: 0 everything fits; 1 something does not; 2 invalid
    input, or an error of the server; 3 everything that was checked fits, but something was not checked.

    Examples:
      # Would it fit now?
      holdfast check -f deployment.yaml

      # In CI, with a snapshot of the cluster, for code scanning
      holdfast check -f manifests/ --snapshot cluster.json.gz -o sarif

      # Would it fit if the cluster were empty?
      holdfast check -f job.yaml --empty
    """
    from holdfast.cli.client import cluster_objects, namespace_of
    from holdfast.cli.options import load_setup, warn_of_plugins

    try:
        setup = load_setup(config)
        warn_of_plugins([setup])
        documents = read_folders(manifests, snapshot or ())
        where = Where(kubeconfig, context, namespace, tuple(snapshot or ()))
        place = namespace_of(where)
        result = checked(setup, config, cluster_objects(where), documents, place, empty=empty)
    except Failure as failure:
        raise Failure(PROBLEM, failure.lines, failure.as_it_is) from None
    typer.echo(_text(result, output), nl=False)
    if result.status != "Fits":
        raise typer.Exit(_STATUSES[result.status])


def read_folders(paths: Sequence[str], snapshot: Sequence[str]) -> "list[Document]":
    """The documents of files, of directories and of directories in these. Raises Failure."""
    from holdfast.cli.what_if import read_manifests
    from holdfast.snapshot.manifests import SUFFIXES

    files: list[str] = []
    for path in paths:
        if path != "-" and Path(path).is_dir():
            found = sorted(
                str(each)
                for each in Path(path).rglob("*")
                if each.is_file() and each.suffix in SUFFIXES
            )
            if not found:
                raise Failure(PROBLEM, [f"{path}: no {', '.join(SUFFIXES)} file in this directory"])
            files += found
        else:
            files.append(path)
    return read_manifests(files, snapshot)


def checked(
    setup: "SchedulerFactory",
    config: str | None,
    objects: "ClusterObjects",
    documents: "list[Document]",
    namespace: str,
    *,
    empty: bool = False,
) -> "CheckResult":
    """Raises Failure."""
    from holdfast.sim.garbage import seldom_collected
    from holdfast.sim.what_if.fit_check import check_fit
    from holdfast.sim.what_if.fit_formats import find_lines
    from holdfast.sim.what_if.question import as_running
    from holdfast.snapshot.manifests import InvalidInput
    from holdfast.snapshot.played_cluster import NotSettled

    if not documents:
        raise Failure(PROBLEM, ["-f: no documents"])
    if config is None:
        setup = as_running(setup, objects)
    try:
        with seldom_collected():
            result = check_fit(setup, objects, documents, namespace, empty=empty)
    except InvalidInput as error:
        raise Failure(PROBLEM, error.problems) from None
    except NotSettled as error:
        raise Failure(PROBLEM, [str(error)]) from None
    find_lines(result.objects)
    return result


def _text(result: "CheckResult", output: CheckOutput) -> str:
    from holdfast.cli.printing import as_json

    match output:
        case CheckOutput.JSON:
            return as_json(result.data())
        case CheckOutput.SARIF:
            from holdfast.sim.what_if.fit_formats import sarif

            return as_json(sarif(result))
        case CheckOutput.JUNIT:
            from holdfast.sim.what_if.fit_formats import junit

            return junit(result)
    _print_table(result)
    return ""


def _print_table(result: "CheckResult") -> None:
    from holdfast.cli.text_table import Column, Screen, TextTable
    from holdfast.sim.what_if.fit_check import short_reasons
    from holdfast.sim.what_if.fit_formats import evicted_by

    screen = Screen()
    table = TextTable(
        "Check",
        [
            Column("object"),
            Column("where"),
            Column("pods", right=True),
            Column("nodes", right=True),
            Column("queue"),
            Column("fits", wraps=False),
            Column("reason"),
        ],
    )
    shown = {"Fits": ("yes", "green"), "DoesNotFit": ("no", "red"), "NotChecked": ("?", "yellow")}
    for each in result.objects:
        fits, style = shown[each.status]
        reason = "" if each.fits else short_reasons(each)
        if each.not_checked:
            reason = f"not checked: {reason}"
        if each.fits:
            reason = " and ".join(
                f"{verb} {number_of(len(pods), 'pod')}" for verb, pods in evicted_by(each) if pods
            )
        table.add(
            each.object,
            f"{each.document.file}:{each.field_line or each.line}",
            f"{each.placed}/{each.pods}",
            "" if each.manifest.kind == "PodGroup" else f"{each.nodes} of {each.all_nodes}",
            each.queue,
            fits,
            reason,
            styled=5,
            style=style,
        )
    if result.objects:
        screen.show(table)
    for each in result.objects:
        if each.details:
            screen.note("\n".join([f"{each.object}:", *(f"  {line}" for line in each.details)]))
    for note in result.notes:
        screen.note(f"note: {note}")
