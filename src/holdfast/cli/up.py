"""`holdfast up`: a cluster in this process, until it is stopped; with `--detach`, in another one.

What serves a cluster is imported by the process that serves it.
"""

import asyncio
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.api.documents import Document
from holdfast.api.errors import HoldfastError
from holdfast.api.names import SIM_COUNT, SIM_RUNS_FOR
from holdfast.api.plurals import number_of
from holdfast.api.times import format_duration
from holdfast.cli.completers import files
from holdfast.cli.dashboards import serve_local
from holdfast.cli.detached_process import announce, detach, words_of
from holdfast.cli.options import (
    DEFAULT_OPEN_PATHS,
    Failure,
    OpenPaths,
    load_setup,
    log_to_stderr,
    optional,
    read_jobs_run_for,
    read_open_paths,
)
from holdfast.cli.process_file import ClusterRuns, ProcessFile, process_file
from holdfast.local.node_objects import DEFAULT_SHAPE, MOST_GPUS, NodeShape
from holdfast.snapshot.manifests import InvalidInput, load_files

if TYPE_CHECKING:
    from holdfast.local.up import Up, UpSettings

KUBECONFIG = "holdfast.kubeconfig"
"""The kubeconfig of a cluster without a data directory."""


def kubeconfig_in(data_dir: Path) -> Path:
    return data_dir / "kubeconfig"


def up(
    context: typer.Context,
    config: Annotated[
        str | None,
        optional(
            metavar="F",
            help="Scheduler configuration file (KubeSchedulerConfiguration).",
            complete=files,
        ),
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Simulated nodes node-1 … node-N (110 pods each)."),
    ] = 0,
    node_cpu: Annotated[
        str, typer.Option(metavar="Q", help="CPUs of each node of --nodes.")
    ] = DEFAULT_SHAPE.cpu,
    node_memory: Annotated[
        str, typer.Option(metavar="Q", help="Memory of each node of --nodes.")
    ] = DEFAULT_SHAPE.memory,
    node_gpus: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_GPUS,
            metavar="N",
            help="GPUs of each node of --nodes: nvidia.com/gpu, a Device for shares of them, and a "
            "ResourceSlice for claims.",
        ),
    ] = 0,
    node_file: Annotated[
        list[str] | None,
        optional(
            metavar="F",
            help=f"A file of Node manifests; the annotation {SIM_COUNT} makes several of one. "
            "May be repeated.",
            complete=files,
        ),
    ] = None,
    jobs_run_for: Annotated[
        str,
        typer.Option(
            metavar="D",
            help="How long pods of Jobs run before they succeed; `unlimited`: until they are deleted. "
            f"The annotation {SIM_RUNS_FOR} of a pod takes precedence.",
        ),
    ] = "10s",
    apply: Annotated[
        list[str] | None,
        optional(
            metavar="F",
            help="A file of manifests to apply at the start; may be repeated.",
            complete=files,
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Port to listen on; 0 chooses a free port."
        ),
    ] = 0,
    data_dir: Annotated[
        Path | None,
        optional(
            metavar="D",
            help="Directory that keeps the cluster's state across restarts.",
            complete=files,
        ),
    ] = None,
    in_memory: Annotated[
        bool, typer.Option("--in-memory", help="Keep the state in memory only (default).")
    ] = False,
    kubeconfig_out: Annotated[
        Path | None,
        optional(
            metavar="F",
            help=f"Where to write the kubeconfig (default: {KUBECONFIG}, or kubeconfig in --data-dir).",
            complete=files,
        ),
    ] = None,
    detached: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="Run the cluster in the background and return when it is ready. Its log is a file in "
            "--data-dir, or else beside the kubeconfig.",
        ),
    ] = False,
    dashboard_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Port of the dashboard on 127.0.0.1 (default: a free port).",
            show_default=False,
        ),
    ] = None,
    no_dashboard: Annotated[
        bool,
        typer.Option("--no-dashboard", help="Serve no dashboard."),
    ] = False,
    open_paths: OpenPaths = DEFAULT_OPEN_PATHS,
) -> None:
    """Run a local cluster: API server, scheduler, simulated nodes.

    All parts run in one process. The cluster is ready when the kubeconfig is written, and stops on
    Ctrl-C, SIGTERM or `holdfast down`.

    Examples:
      # Three nodes; then use kubectl --kubeconfig holdfast.kubeconfig
      holdfast up --nodes 3

      # The same in the background, until `holdfast down`
      holdfast up --nodes 3 --detach

      # Keep the state across restarts, and begin with some objects
      holdfast up --nodes 3 --data-dir cluster --apply app.yaml
    """
    if in_memory and data_dir is not None:
        raise Failure(1, ["--data-dir and --in-memory cannot be given together"])
    if no_dashboard and dashboard_port is not None:
        raise Failure(1, ["--dashboard-port and --no-dashboard cannot be given together"])
    shape = NodeShape(node_cpu, node_memory, node_gpus)
    if problems := shape.problems():
        raise Failure(1, problems)
    if shape != DEFAULT_SHAPE and not nodes:
        raise Failure(1, ["--node-cpu, --node-memory and --node-gpus are for the nodes of --nodes N"])
    run_for = read_jobs_run_for(jobs_run_for)
    kubeconfig = kubeconfig_out or (kubeconfig_in(data_dir) if data_dir else Path(KUBECONFIG))
    if detached:
        reads_stdin = "-" in (config, *(apply or ()), *(node_file or ()))
        _detach(words_of(context, without="detached"), kubeconfig.absolute(), data_dir, reads_stdin)
        return
    log_to_stderr()
    setup = load_setup(config)
    cautions = [f"{config}: {caution}" for caution in setup.configuration.cautions]
    warnings = [f"warning: {each}" for each in (*setup.registry.warnings, *cautions)]
    for warning in warnings:
        typer.echo(warning, err=True)
    from holdfast.local.up import NotApplied, UpSettings

    try:
        documents = _load("--apply", apply or ())
        if data_dir is not None:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings = UpSettings(
            setup,
            kubeconfig.absolute(),
            nodes,
            documents,
            host,
            port,
            data_dir,
            read_open_paths(open_paths),
            node_shape=shape,
            node_documents=_load("--node-file", node_file or ()),
            jobs_run_for=run_for,
        )
        with _process_files(settings):
            port_of_dashboard = None if no_dashboard else dashboard_port or 0
            asyncio.run(_serve(settings, port_of_dashboard, config, warnings))
    except (InvalidInput, NotApplied) as error:
        raise Failure(1, error.problems) from None
    except OSError as error:
        raise Failure(1, [str(error)]) from None
    except HoldfastError as error:
        raise Failure(1, str(error).splitlines()) from None


def _detach(options: list[str], kubeconfig: Path, data_dir: Path | None, reads_stdin: bool) -> None:
    """Raises Failure."""
    log = kubeconfig.with_name(f"{kubeconfig.name}.log")
    is_new = False
    if data_dir is not None:
        log, is_new = data_dir.absolute() / "holdfast.log", not data_dir.exists()
        with suppress(OSError):  # the other process reports it
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        detach(["up", *options], log, _stops(kubeconfig, data_dir), reads_stdin)
    except Failure:
        if data_dir is not None and is_new:
            with suppress(OSError):
                data_dir.rmdir()
        raise


def _stops(kubeconfig: Path, data_dir: Path | None) -> str:
    """The command that ends the cluster, as typed in this directory."""
    if kubeconfig == Path(KUBECONFIG).absolute():
        return "holdfast down"
    if data_dir is not None:
        return f"holdfast down --data-dir {shlex.quote(str(data_dir))}"
    return f"holdfast down --kubeconfig {shlex.quote(str(kubeconfig))}"


@contextmanager
def _process_files(settings: "UpSettings") -> Iterator[None]:
    """The files by which `holdfast down` finds this process. Raises Failure if another process runs a
    cluster with this kubeconfig or data directory."""
    kubeconfig, folder = settings.kubeconfig, settings.folder
    files: dict[Path, tuple[str, str, str]] = {}
    """What each file is of, the command that stops its process, and the option that avoids it."""
    if folder is not None:  # first: with another kubeconfig, a used data directory is still used
        own = kubeconfig_in(folder.absolute())
        what = f"{folder}: is the data directory"
        files[process_file(own)] = (what, _stops(own, folder), "--data-dir")
    what = f"{kubeconfig}: is the kubeconfig"
    files.setdefault(process_file(kubeconfig), (what, _stops(kubeconfig, None), "--kubeconfig-out"))
    with ExitStack() as ends:
        for file, (what, command, other) in files.items():
            try:
                ends.enter_context(ProcessFile(file))
            except ClusterRuns as error:
                raise Failure(
                    1,
                    [
                        f"{what} of a cluster that runs as process {error.process}; stop that one "
                        f"with `{command}`, or name another with {other}"
                    ],
                ) from None
        yield


def _load(flag: str, files: Sequence[str]) -> list[Document]:
    """Raises Failure, InvalidInput."""
    found: list[Document] = []
    for file in files:
        documents = load_files([file])
        if not documents:
            raise Failure(1, [f"{flag}: {file}: no documents"])
        found += documents
    return found


async def _serve(
    settings: "UpSettings", dashboard_port: int | None, config: str | None, warnings: Sequence[str]
) -> None:
    """Serves the cluster, and its dashboard unless the port is None. The warnings were printed."""
    from holdfast.local.up import serve

    async with AsyncExitStack() as ends:

        async def started(running: "Up") -> None:
            address = ""
            if dashboard_port is not None:
                dashboard = await serve_local(running, dashboard_port, settings.kubeconfig, config)
                ends.push_async_callback(dashboard.close)
                address = dashboard.address
            banner = "".join(f"{line}\n" for line in _banner(running, settings, address))
            typer.echo(banner, nl=False)
            announce(banner, warnings)

        await serve(settings, started)


def _banner(running: "Up", settings: "UpSettings", dashboard: str) -> Iterator[str]:
    count = running.store.count("", "Node")
    kept = f"state in {settings.folder}" if settings.folder else "state in memory"
    yield f"Holdfast is up: {number_of(count, 'node')}, {kept}"
    if running.kept_nodes:
        existed = f"{running.kept_nodes} of them existed already"
        yield f"  {existed}, unchanged; --node-… options apply to new nodes only"
    yield f"  API server  {running.address}"
    yield f"  kubeconfig  {settings.kubeconfig}"
    yield f"  process     {os.getpid()}"
    if dashboard:
        yield f"  dashboard   {dashboard}"
    if settings.jobs_run_for is not None:
        after = format_duration(settings.jobs_run_for)
        yield f"  Jobs        pods succeed after {after} (--jobs-run-for)"
    yield f"Try: kubectl --kubeconfig {settings.kubeconfig} get nodes"
