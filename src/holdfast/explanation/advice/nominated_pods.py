"""Capacity of a node that a pod has to leave to pods nominated there: a higher priority for the pod, or
the end of the others."""

from collections.abc import Iterator

from holdfast.explanation.advice.evictions import end_of
from holdfast.explanation.facts.admitted_pods import PRIORITY_CLASS
from holdfast.explanation.facts.awaited_terminations import is_same
from holdfast.explanation.facts.preemption_limits import CRITICAL
from holdfast.explanation.phrases import pods_text
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair, spec_changes
from holdfast.explanation.verdicts import Subject
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import delete
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot


def priority_repairs(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """The lowest PriorityClass that is above the pods nominated to a row."""
    nominated = snapshot.cluster.nominated_pods_for(pod, row)
    if not nominated or subject.info is RESERVATION:
        return
    highest = max(each.cls.priority for each in nominated)
    classes = [
        (int(raw.get("value") or 0), raw["metadata"]["name"]) for raw in snapshot.all(PRIORITY_CLASS)
    ]
    above = [each for each in classes if highest < each[0] < CRITICAL]
    if not above:
        return
    value, name = min(above)
    body = {"priorityClassName": name, "priority": value}
    node, others = snapshot.cluster.nodes.name(row), pods_text(nominated)
    text = f"set priorityClassName: {name} ({value}), above {others}, nominated to {node}"
    yield repair(text, "RaisePriority", spec_changes(snapshot, subject, lambda spec: body), RESIZE)


def nominated_evictions(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Iterator[Repair]:
    """Ending the pods that are nominated to a row, or have a preemption hold there, which ends with
    them."""
    known = snapshot.cluster.pods
    held = {
        entry.reservation.name: known[entry.reservation.preemptor]
        for entry in snapshot.cluster.ledger.reservations.on(row)
        if entry.reservation.preemptor in known
    }
    held = {name: each for name, each in held.items() if each.row < 0 and not is_same(each, pod)}
    nominated = [*snapshot.cluster.nominated_pods_for(pod, row), *held.values()]
    if nominated and all(each.reservation is None for each in nominated):
        node = snapshot.cluster.nodes.name(row)
        holds = [delete(RESERVATION, name)._replace(follows=True) for name in held]
        yield end_of(snapshot, nominated, f", nominated to {node}", holds)
