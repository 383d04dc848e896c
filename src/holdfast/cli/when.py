"""`holdfast when`"""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import completers
from holdfast.cli.options import (
    CLUSTER,
    Config,
    Context,
    Failure,
    Kubeconfig,
    Namespace,
    OutputReport,
    Snapshot,
    Where,
    optional,
)
from holdfast.explanation.explained_kinds import instead_of, unknown_kind

if TYPE_CHECKING:
    from holdfast.sim.forecast.answers import ForecastReport
    from holdfast.sim.forecast.forecast import ForecastProgress
    from holdfast.sim.forecast.run_times import DurationHistory

_KINDS = (
    "pod",
    "podgroup",
    "job",
    "deployment",
    "statefulset",
    "daemonset",
    "replicaset",
    "reservation",
    "reservationschedule",
)
_INSTEAD = {
    "CronJob": "give the job that it has started; `holdfast explain cronjob` has its next run",
    "PodMigrationJob": "give its reservation, or the pod that replaces the one it evicts",
    "PersistentVolumeClaim": "give the pod that uses it",
    "ResourceClaim": "give the pod that uses it",
    "Queue": "give a pod of it, or none for all pending pods: `holdfast when pod`",
    "Node": "give a pod; `holdfast explain node` lists those that would fit",
}
"""What to do instead, for kinds of which users may expect a start."""
_UNKNOWN_STATUS, _NOT_WITHIN_STATUS = 3, 4


def _complete_kind(ctx: typer.Context, incomplete: str) -> list[str]:
    """Kinds; after `KIND/` the names of that kind."""
    kind, slash, _ = incomplete.partition("/")
    if slash:
        return [f"{kind}/{name}" for name in _names(ctx, kind)]
    return [each for each in _KINDS if each.startswith(incomplete)]


def _complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    return _names(ctx, str(ctx.params.get("kind") or ""))


def _names(ctx: typer.Context, title: str) -> list[str]:
    from holdfast.api.kinds import KINDS as API_KINDS
    from holdfast.sim.forecast.targets import ALIASES, KINDS

    kind = ALIASES.get(title.lower())
    if kind is None:
        return []
    name, apis = KINDS[kind]
    infos = [API_KINDS[api, name] for api in apis if (api, name) in API_KINDS]
    return sorted({each for info in infos for each in completers.object_names(ctx, info)})


def when(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"One of {', '.join(_KINDS)}; or KIND/NAME.",
            autocompletion=_complete_kind,
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of the object (default: everything of the kind that is pending).",
            autocompletion=_complete_name,
            show_default=False,
        ),
    ] = None,
    within: Annotated[
        str | None,
        optional(
            "--within",
            metavar="D",
            help="How far to look into the future: a duration, or days as in 7d (default: 7d, but not "
            "beyond 400 reservations and pods that ReservationSchedules and CronJobs create).",
        ),
    ] = None,
    history: Annotated[
        list[str] | None,
        optional(
            "--history",
            metavar="DIR",
            help="A recording of `holdfast record` to learn from how long pods run; may be repeated. "
            "Pods that have ended and still exist count anyway.",
            complete=completers.files,
        ),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            metavar="N",
            min=1,
            max=1000,
            help="How many random futures to play if run times are uncertain.",
        ),
    ] = 30,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random futures.")] = 0,
    output: Annotated[
        OutputReport, typer.Option("-o", "--output", help="Output format.")
    ] = OutputReport.TEXT,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "-A", "--all-namespaces", help="Objects of all namespaces.", rich_help_panel=CLUSTER
        ),
    ] = False,
    snapshot: Snapshot = None,
) -> None:
    """Forecast when a pending pod, workload or reservation starts, and what it waits for.

    Plays the scheduler forward on virtual time from the state of the cluster, with pods that end at
    their run-time estimates: holdfast.io/run-estimate, the Volcano job's runningEstimate,
    activeDeadlineSeconds, and how long earlier pods of the same owner ran. Where these are uncertain it
    plays several futures and prints a range. Writes nothing.

    Exit status, for one object: 0 the start is known; 3 it is not; 4 it is not within --within, or
    never as things stand; 1 invalid input, or an error of the server.

    Examples:
      # When a pod starts
      holdfast when pod train-0

      # When the pending pods of a Deployment start
      holdfast when deployment/web

      # All pending pods of a snapshot
      holdfast when pod -A --snapshot cluster.json.gz

      # The next occurrences of a ReservationSchedule
      holdfast when reservationschedule nightly

      # With run times learned from a recording
      holdfast when job nightly --history recording
    """
    from holdfast.cli.client import cluster_objects, namespace_of
    from holdfast.cli.forecast_text import print_forecast
    from holdfast.cli.options import load_setup, read_horizon, warn_of_plugins
    from holdfast.cli.printing import as_json, as_yaml
    from holdfast.sim.forecast.answers import as_data
    from holdfast.sim.forecast.forecast import Forecaster, ForecastOptions
    from holdfast.sim.forecast.targets import NoSuchTarget, find_targets
    from holdfast.sim.simulated_cluster import InvariantBroken
    from holdfast.snapshot.manifests import InvalidInput
    from holdfast.snapshot.reader import setup_of

    wanted, name = _read(kind, name)
    options = ForecastOptions(samples=samples, seed=seed)
    if within is not None:
        options = ForecastOptions(read_horizon(within), samples, seed, occurrences=math.inf)
    setup = load_setup(config)
    warn_of_plugins([setup])
    learned = _learned(history or ())
    where = Where(kubeconfig, context, namespace, tuple(snapshot or ()))
    place = "" if all_namespaces else namespace_of(where)
    objects = cluster_objects(where)
    setup = setup if config is not None else setup_of(objects.configuration).setup
    try:
        targets = find_targets(objects.objects, wanted, name, place, objects.now, options.horizon)
        progress = _progress()
        forecaster = Forecaster(objects.documents, objects.now, setup, learned, options, progress)
        for note in forecaster.scenario.notes:
            typer.echo(note, err=True)
        report = forecaster.ask(targets)
    except InvalidInput as error:
        raise Failure(1, error.problems) from None
    except NoSuchTarget as error:
        raise Failure(1, [str(error)]) from None
    except InvariantBroken as error:
        raise Failure(2, [f"invariant broken: {each}" for each in error.problems]) from None
    finally:
        _clear_progress()
    match output:
        case OutputReport.JSON:
            typer.echo(as_json(as_data(report)), nl=False)
        case OutputReport.YAML:
            typer.echo(as_yaml(as_data(report)), nl=False)
        case OutputReport.TEXT:
            print_forecast(report, objects.now, single=name is not None)
    if name is not None and (status := _status(report)):
        raise typer.Exit(status)


def _status(report: "ForecastReport") -> int:
    from holdfast.sim.forecast.answers import StartStatus

    found = {each.status for each in report.starts}
    if found & {StartStatus.NEVER, StartStatus.LATER, StartStatus.OVER}:
        return _NOT_WITHIN_STATUS
    return _UNKNOWN_STATUS if StartStatus.UNKNOWN in found else 0


def _read(kind: str, name: str | None) -> tuple[str, str | None]:
    """Of `KIND`, `KIND NAME` or `KIND/NAME`. Raises Failure."""
    from holdfast.sim.forecast.targets import ALIASES

    if name is None and "/" in kind:
        kind, _, name = kind.partition("/")
        if not name:
            raise Failure(1, [f"NAME: which {kind}? Give KIND NAME or KIND/NAME"])
    wanted = ALIASES.get(kind.lower())
    if wanted is None and (instead := instead_of(kind, _INSTEAD)):
        raise Failure(1, [f"KIND: no starts of {kind!r}: {instead}"])
    if wanted is None:
        hint = unknown_kind(kind, ALIASES, list(_KINDS))
        raise Failure(1, [f"KIND: no starts of {kind!r}{hint}"])
    return wanted, name


def _learned(folders: "list[str] | tuple[()]") -> "DurationHistory":
    """The run times in recordings. Raises Failure."""
    from holdfast.recording.segments import Recording, RecordingError
    from holdfast.sim.forecast.run_times import DurationHistory

    found = DurationHistory()
    for folder in folders:
        try:
            recording = Recording(Path(folder))
            found.add_ended(each.raw for each in recording.changes() if each.raw.get("kind") == "Pod")
        except RecordingError as error:
            raise Failure(1, [f"--history: {error}"]) from None
    return found


def _progress() -> "ForecastProgress | None":
    """A progress line on a terminal."""
    if not sys.stderr.isatty():
        return None
    from holdfast.api.times import format_duration

    last = [0.0]

    def show(number: int, of: int, t: float) -> None:
        import time

        now = time.monotonic()
        if now - last[0] > 0.2:
            last[0] = now
            text = f"\rfuture {number} of {of}: {format_duration(round(t))}\x1b[K"
            sys.stderr.write(text)
            sys.stderr.flush()

    return show


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
