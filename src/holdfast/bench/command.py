"""The `holdfast bench` command, also `python -m holdfast.bench`."""

import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from holdfast.api.errors import HoldfastError
from holdfast.bench import report
from holdfast.bench.measure import BenchResult, measure, this_machine
from holdfast.bench.measure import profile as take_profile
from holdfast.bench.packing import PackingFigures, as_mappings, pack, show
from holdfast.bench.plan import BenchPlan, plan_of
from holdfast.bench.trace import PUBLISHED, plan_of_trace
from holdfast.bench.workload import TRACE, BenchError, find, rows


class Mode(StrEnum):
    CORE = "core"
    EMBEDDED = "embedded"
    KUBE = "kube"


class BenchOutput(StrEnum):
    TABLE = "table"
    JSON = "json"


class Options(msgspec.Struct, frozen=True):
    nodes: int | None
    batch: int
    repeat: int
    trace: Path | None
    trace_nodes: str
    trace_pods: str

    def plan(self, name: str) -> BenchPlan:
        if name != TRACE:
            return plan_of(rows()[name], self.nodes)
        if self.trace is None:
            raise BenchError(
                f"{TRACE} needs --trace DIR, a directory with the trace published at {PUBLISHED}"
            )
        return plan_of_trace(self.trace, self.trace_nodes, self.trace_pods)

    def arguments(self) -> list[str]:
        """The options as another process would be given them."""
        given = ["--batch", str(self.batch), "--repeat", str(self.repeat)]
        if self.nodes:
            given += ["--nodes", str(self.nodes)]
        if self.trace:
            given += ["--trace", str(self.trace)]
            given += ["--trace-nodes", self.trace_nodes, "--trace-pods", self.trace_pods]
        return given


def _complete_workload(incomplete: str) -> list[str]:
    return [*rows(), TRACE]


def bench(
    workload: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="Workloads to run (default: all that need no trace).",
            autocompletion=_complete_workload,
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(
            help="core: only the scheduler, no API server. embedded: a local cluster in one process. "
            "kube: the cluster of a kubeconfig."
        ),
    ] = Mode.CORE,
    kubeconfig: Annotated[
        str | None,
        typer.Option(
            metavar="F",
            help="kube: the cluster. Its nodes and pods are created and deleted: use an empty one.",
        ),
    ] = None,
    kube_scheduler: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="kube: a kube-scheduler binary to compare with."),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of nodes, at least 1; the number of pods is scaled with it (default: the "
            "workload's).",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="Pods that arrive before each scheduling round.")
    ] = 100,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of each workload.")] = 3,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of the openb trace.", show_default=False),
    ] = None,
    trace_nodes: Annotated[
        str, typer.Option(metavar="NAME", help="openb: nodes are read from openb_node_list_NAME.csv.")
    ] = "all_node",
    trace_pods: Annotated[
        str, typer.Option(metavar="NAME", help="openb: pods are read from openb_pod_list_NAME.csv.")
    ] = "default",
    seeds: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="openb: runs of each GPU packing strategy; 0 skips them."
        ),
    ] = 10,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="openb: file for a plot of allocated GPUs (SVG)."),
    ] = None,
    output: Annotated[
        BenchOutput, typer.Option("--output", "-o", help="Output format.")
    ] = BenchOutput.TABLE,
    in_process: Annotated[
        bool,
        typer.Option("--in-process", help="Run all workloads in this process, not each in a new one."),
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print the CPU time of each part instead.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the workloads.")] = False,
) -> None:
    """Run scheduling benchmarks.

    Workloads of scheduler_perf, by its names (the prefix "Scheduling" may be omitted): Basic,
    NodeAffinity, Daemonset, WithMixedChurn, Unschedulable; PodAffinity, PodAntiAffinity,
    PodMatchingAntiAffinity, PreferredPodAffinity, PreferredPodAntiAffinity and the same four
    with a namespace selector; TopologySpreading, PreferredTopologySpreading,
    DefaultTopologySpreading; MixedSchedulingBasePod; PreemptionBasic and PreemptionAsync;
    InTreePVs and CSIPVs; WithResourceClaimTemplate, WithResourceClaim, ExtendedResource,
    FirstAvailable, DeviceTaintToleration, Partitionable, PartitionableBacktracking and
    ConsumableCapacity. Workloads of Holdfast: WithResourceClaims, Mixed160, Memory50000Pods, openb;
    ReservationOwners (Aligned, Restricted, Once), ReservationOthers, ReservationPreemption,
    DynamicReservations, LimitAware, PreemptionSpread, GangsOfThree, GangsOfThousand, Queues,
    QueuesPending. --list
    describes them.

    Progress is printed to stderr, one line for each finished workload.

    Examples:
      # The workloads, with what each measures
      holdfast bench --list

      # One workload on 1,000 nodes
      holdfast bench SchedulingBasic --nodes 1000
    """
    console = Console(highlight=False)
    if list_:
        report.print_list(console)
        return
    options = Options(nodes, batch, repeat, trace, trace_nodes, trace_pods)
    try:
        _check_mode(mode, workload, profile, kubeconfig or kube_scheduler)
        if mode is Mode.EMBEDDED:
            from holdfast.bench import local_cluster

            local_cluster.run(nodes or local_cluster.DEFAULT_NODES, repeat, output is BenchOutput.JSON)
            return
        if mode is Mode.KUBE:
            _on_a_server(workload or [], options, kubeconfig, kube_scheduler, output)
            return
        names = [find(name) for name in workload or ()] or [*rows(), *([TRACE] if trace else [])]
        # Errors of --trace and --plot are reported before anything runs.
        if TRACE in names:
            options.plan(TRACE)
        if plot is not None and not plot.parent.is_dir():
            raise BenchError(f"--plot {plot}: no directory {plot.parent}")
        if profile:
            _profile(console, names, options, output)
        else:
            packing = None
            if TRACE in names and seeds:
                assert trace is not None
                packing = partial(pack, trace, trace_nodes, trace_pods, seeds, plot)
            _measure(console, names, options, output, in_process, packing)
    except HoldfastError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def _check_mode(mode: Mode, workload: list[str] | None, profile: bool, server: str | None) -> None:
    """Rejects options that the mode does not use. Raises BenchError."""
    if mode is Mode.EMBEDDED and workload:
        raise BenchError("--mode embedded runs fixed workloads; it takes no workload names")
    if mode is not Mode.CORE and profile:
        raise BenchError("--profile is for --mode core")
    if mode is not Mode.KUBE and server:
        raise BenchError("--kubeconfig and --kube-scheduler are for --mode kube")


def _on_a_server(
    names: list[str],
    options: Options,
    kubeconfig: str | None,
    kube_scheduler: str | None,
    output: BenchOutput,
) -> None:
    from holdfast.bench import kube_measure as kube

    if kubeconfig is None:
        raise BenchError(
            "--mode kube needs --kubeconfig F, of a cluster in which it may create and delete "
            "nodes and pods"
        )
    plans = []
    for name in map(find, names or kube.DEFAULT_ROWS):
        most = rows()[name].workload.nodes if name in rows() else kube.DEFAULT_NODES
        size = options.nodes or min(kube.DEFAULT_NODES, most)
        plans.append(msgspec.structs.replace(options, nodes=size).plan(name))
    kube.run(plans, kubeconfig, kube_scheduler, options.repeat, output is BenchOutput.JSON)


def _measure(
    console: Console,
    names: list[str],
    options: Options,
    output: BenchOutput,
    in_process: bool,
    packing: Callable[[], list[PackingFigures]] | None,
) -> None:
    run: Callable[[str, Options], BenchResult] = _here if in_process else _apart
    errors = Console(stderr=True, highlight=False)
    results = []
    for number, name in enumerate(names, 1):
        with errors.status(f"{name} ({number} of {len(names)})"):
            results.append(run(name, options))
        errors.print(report.progress_line(results[-1]), soft_wrap=True)
    packed = packing() if packing is not None else []
    if output is BenchOutput.JSON:
        print(report.as_json(this_machine(), results, [], as_mappings(packed)))
        return
    report.print_results(console, this_machine(), results)
    if packed:
        show(console, packed)


def _profile(console: Console, names: list[str], options: Options, output: BenchOutput) -> None:
    profiles = [take_profile(options.plan(name), options.batch) for name in names]
    if output is BenchOutput.JSON:
        print(report.as_json(this_machine(), [], profiles))
        return
    for profile in profiles:
        report.print_profile(console, profile)
    console.print(str(this_machine()))


def _here(name: str, options: Options) -> BenchResult:
    return measure(options.plan(name), options.batch, options.repeat)


def _apart(name: str, options: Options) -> BenchResult:
    """Measures in a new process, so that workloads do not add to each other's memory."""
    command = [sys.executable, "-m", "holdfast", "bench", name, "--in-process", "-o", "json"]
    command += ["--seeds", "0"]
    done = subprocess.run(
        command + options.arguments(), capture_output=True, text=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise BenchError(f"{name}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    document = msgspec.json.decode(done.stdout)
    return msgspec.convert(document["rows"][0], BenchResult)
