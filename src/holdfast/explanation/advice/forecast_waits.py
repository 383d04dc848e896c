"""Waiting for as long as the forecast of `when` says, with the pods that start before.

What is expected to end on one node tells when the capacity is free, but not whether other pending pods
take it. Where there is a forecast, its time counts.
"""

from holdfast.api.kinds import KINDS
from holdfast.api.names import SIGS_PODGROUP_API
from holdfast.api.plurals import number_of, plural
from holdfast.api.times import format_time
from holdfast.explanation.facts.expected_ends import ended_pod
from holdfast.explanation.phrases import in_time
from holdfast.explanation.repairs.repair import RESIZE, WAIT, Repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import GangGoal, Goal
from holdfast.snapshot.cluster_changes import ClusterChange, ObjectChange, awaited, delete
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot, ForecastStart

WAITING = ("Wait",)
TOLERANCE = 60.0
"""Seconds by which times may differ: pods take some time to stop, and are tried again later."""
_LONG = 3600.0
"""Waiting for longer than this many seconds is not the cheapest change."""
_NAMES = 3


def forecast_of(snapshot: ClusterSnapshot, goal: Goal) -> ForecastStart | None:
    """None if there is no forecast."""
    if snapshot.forecast is None:
        return None
    if isinstance(goal, GangGoal):
        group = KINDS[SIGS_PODGROUP_API, "PodGroup"]
        return snapshot.forecast(group, goal.job.name, goal.job.namespace)
    return snapshot.forecast(goal.info, goal.name, goal.namespace)


def agrees(found: ForecastStart, wait: Repair, now: float) -> bool:
    """Whether the forecast has the same start, or is not exact and has an earlier one."""
    until = wait.change.until or now
    if found.time is None:
        return False
    return abs(found.time - until) <= TOLERANCE or (not found.is_exact and found.time < until)


def forecast_wait(snapshot: ClusterSnapshot, found: ForecastStart, time: float) -> Repair:
    names = [_named(*each) for each in found.ended]
    where = f" on {found.node}" if found.node else ""
    what = f": {few(names, _NAMES)} should end{where}" if names else ""
    if found.is_held_for and not names:
        what = f": it is starving by then, and gets a starvation hold{where}"
    others = ""
    if found.pods_before:
        number = number_of(found.pods_before, "other pending pod")
        others = f"; {number} {plural(found.pods_before, 'starts', 'start')} before"
    about = "" if found.is_exact else "about "
    how_long = in_time(time, snapshot.now).removeprefix("in ")
    text = f"wait {about}{how_long}, until {format_time(time)}{what}{others}"
    objects: list[ObjectChange] = []
    for info, name, namespace in found.ended:
        pod = snapshot.cluster.pod(namespace, name) if info is POD else None
        if pod is not None and pod.row >= 0:
            objects += ended_pod(snapshot, pod)
        elif info is RESERVATION and snapshot.find(RESERVATION, name) is not None:
            objects.append(delete(RESERVATION, name))
    cost = WAIT if time - snapshot.now <= _LONG else RESIZE
    return Repair(text, ClusterChange(WAITING, tuple(awaited(objects)), time), cost)


def _named(info: object, name: str, namespace: str) -> str:
    return f"pod {namespace}/{name}" if info is POD else f"reservation {name}"
