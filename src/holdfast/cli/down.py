"""`holdfast down`: ends a cluster of `holdfast up`."""

import os
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from holdfast.api.errors import DurationError
from holdfast.api.times import format_duration, parse_duration
from holdfast.cli.completers import files
from holdfast.cli.options import Failure, optional
from holdfast.cli.process_file import ClusterProcess, process_file
from holdfast.cli.up import KUBECONFIG, kubeconfig_in


def down(
    kubeconfig: Annotated[
        Path | None,
        optional(
            "--kubeconfig",
            metavar="F",
            help=f"Kubeconfig that `holdfast up` wrote (default: {KUBECONFIG}, or KUBECONFIG).",
            complete=files,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        optional(metavar="D", help="The --data-dir of the cluster. Its state stays.", complete=files),
    ] = None,
    timeout: Annotated[
        str, typer.Option(metavar="D", help="How long to wait until the cluster has ended.")
    ] = "30s",
) -> None:
    """Stop a cluster of `holdfast up`, and wait until it has ended.

    The kubeconfig, the log and the state in --data-dir stay; state in memory is lost.

    Exit status: 0 if the cluster has ended; 1 if none runs, or it has not ended in time.

    Examples:
      # The cluster that was started in this directory
      holdfast up --nodes 3 --detach
      holdfast down

      # Clusters that were started with --kubeconfig-out or --data-dir
      holdfast down --kubeconfig second.kubeconfig
      holdfast down --data-dir cluster
    """
    if kubeconfig is not None and data_dir is not None:
        raise Failure(1, ["--kubeconfig and --data-dir cannot be given together"])
    try:
        within = parse_duration(timeout)
    except DurationError as error:
        raise Failure(1, [f"--timeout: {error}"]) from None
    if data_dir is not None:
        candidates = [kubeconfig_in(data_dir)]
        if not process_file(candidates[0]).exists():
            raise Failure(1, [f"no cluster of `holdfast up --data-dir {data_dir}` runs"])
    elif kubeconfig is not None:
        candidates = [kubeconfig]
    else:
        given = os.environ.get("KUBECONFIG", "").split(os.pathsep)
        candidates = [Path(KUBECONFIG), *map(Path, filter(None, given))]
    _stop(_running(list(dict.fromkeys(each.absolute() for each in candidates))), within)


def _running(kubeconfigs: list[Path]) -> Path:
    """The kubeconfig whose cluster runs. Raises Failure."""
    running = [each for each in kubeconfigs if not _why_not(each)]
    if len(running) > 1:
        listed = " and ".join(str(each) for each in running)
        raise Failure(1, [f"the clusters of {listed} run; name one with --kubeconfig"])
    if running:
        return running[0]
    known = [each for each in kubeconfigs if each.exists() or process_file(each).exists()]
    if not known:
        missing = ", ".join(str(each) for each in kubeconfigs)
        hint = "name the kubeconfig of a cluster with --kubeconfig, or its directory with --data-dir"
        raise Failure(1, [f"no cluster runs: there is no {missing}; {hint}"])
    raise Failure(1, [_why_not(each) for each in known])


def _why_not(kubeconfig: Path) -> str:
    """Why no process of its cluster can be stopped; empty if there is one."""
    try:
        process = ClusterProcess(process_file(kubeconfig))
    except FileNotFoundError:
        return _without_process(kubeconfig)
    except OSError as error:
        return f"{process_file(kubeconfig)}: cannot be read: {error.strerror}"
    with closing(process):
        if not process.number:
            return f"{process_file(kubeconfig)}: has no process id"
        if process.runs:
            return ""
        why = f"no cluster runs: process {process.number} of {kubeconfig} has ended"
        other = "; the process that has this id now is another program and is not stopped"
        return why + (other if _exists(process.number) else "")


def _without_process(kubeconfig: Path) -> str:
    from holdfast.local.apiserver.credentials import answering_server

    try:
        address = answering_server(kubeconfig.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        address = ""
    if address:
        where = f"{process_file(kubeconfig)} is missing"
        return f"the process of the cluster at {address} is not known ({where}): stop it by its id"
    return f"no cluster of `holdfast up` with the kubeconfig {kubeconfig} runs"


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # of another user
    return True


def _stop(kubeconfig: Path, within: float) -> None:
    """Raises Failure."""
    with closing(ClusterProcess(process_file(kubeconfig))) as process:
        what = f"process {process.number}, which runs the cluster of {kubeconfig},"
        try:
            has_ended = process.stop(within)
        except PermissionError:
            raise Failure(1, [f"{what} belongs to another user and is not stopped"]) from None
        except ProcessLookupError:
            hint = "it may run in a container, or on another machine"
            raise Failure(1, [f"{what} is not visible from here: {hint}"]) from None
        if not has_ended:
            limit = format_duration(within)
            hint = f"it may still end; `kill -9 {process.number}` ends it at once"
            raise Failure(1, [f"{what} has not ended within {limit}: {hint}"])
        typer.echo(f"Stopped the cluster of {kubeconfig} (process {process.number})")
