"""Explains a queue: whether it admits pods, its limits, what it uses of them, and what waits in it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from holdfast.api.plurals import number_of
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.pod_owners import controller_of
from holdfast.explanation.report import Advice, QueueCapacity, Report, few
from holdfast.explanation.subjects.queue_changes import consider_queue_for
from holdfast.explanation.subjects.workloads import explained_groups
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.jobs.queue_shares import Vector
from holdfast.scheduler.jobs.queues import QueueRecord
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

_MOST_EXPLAINED = 10
"""Of how many kinds of waiting pods it is said why they wait."""


def explain_queue(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    name = raw["metadata"]["name"]
    queues = snapshot.cluster.jobs.queues
    queues.refresh()
    record = queues.known.get(name)
    if record is None:
        return Report(f"Queue {name}", "Unknown", "It is invalid for the scheduler.")
    report = Report(f"Queue {name}", record.object.status.state or "Open", "")
    pods = [pod for pod in snapshot.cluster.pods.values() if record in queues.path(queues.of(pod))]
    placed = [pod for pod in pods if pod.row >= 0 and pod.reservation is None]
    waiting = [pod for pod in pods if _is_waiting(pod)]
    everywhere = filter(_is_waiting, snapshot.cluster.pods.values())
    deserved = queues.shares(everywhere)[name].deserved
    report.queue_capacity = list(_capacity(snapshot, record, waiting, deserved))
    report.details = list(_details(snapshot, record))
    groups = explained_groups(snapshot, waiting, _MOST_EXPLAINED)
    report.pods = [each for each, _ in groups]
    if groups:
        first, found = groups[0]
        more = [each for each in found.details if each not in report.details]
        report.details += [f"{first.pods[0]}: {each}" for each in more]
        report.advice = list(_advice(snapshot, first.pods, found))
    report.summary = f"{_admits(snapshot, record)} {_counts(placed, waiting)}"
    if groups:
        report.summary += f" {first.pods[0]}: {first.reason}"
    return report


def _advice(snapshot: ClusterSnapshot, names: list[str], found: Report) -> Iterator[Advice]:
    """Advice for all pods that wait for the same, and then for the first of them, which it names. What
    helps one pod of a workload was tried for all of them."""
    pods = [pod for name in names if (pod := snapshot.cluster.pod(*name.split("/"))) is not None]
    first, *others = map(Subject.of, pods)
    if controller_of(first.raw(snapshot)) or pods[0].job is not None:
        yield from found.advice
        return
    advisor = Advisor(snapshot, first, alike=others)
    if others:
        consider_queue_for(snapshot, pods, advisor)
    yield from advisor.advice
    known = {tuple(each.change["actions"]) for each in advisor.advice}
    for each in found.advice:
        if tuple(each.change["actions"]) not in known:
            yield replace(each, text=f"{names[0]}: {each.text}")


def _is_waiting(pod: PodRecord) -> bool:
    return pod.phase is Phase.PENDING and pod.row < 0 and not pod.deletion_pending


def _admits(snapshot: ClusterSnapshot, record: QueueRecord) -> str:
    if closed := snapshot.cluster.jobs.queues.why_closed(record.name):
        return f"It admits no pods: {closed}."
    slots = snapshot.cluster.nodes.slots
    full = [
        slots.name(slot)
        for slot, limit in (record.capability or {}).items()
        if record.allocated.get(slot, 0) >= limit
    ]
    if full:
        return f"It admits no more pods that request {few(full)}: its capability is used up."
    return "It admits pods."


def _counts(placed: list[PodRecord], waiting: list[PodRecord]) -> str:
    has = f"{number_of(len(placed), 'pod of it has', 'pods of it have')} a node"
    wait = number_of(len(waiting), "waits", "wait")
    return f"{has}, {wait}."


# Amounts


def _capacity(
    snapshot: ClusterSnapshot, record: QueueRecord, waiting: list[PodRecord], deserved: Vector
) -> Iterator[QueueCapacity]:
    slots = snapshot.cluster.nodes.slots
    asked: Counter[int] = Counter()
    for pod in waiting:
        asked.update(pod.cls.amounts)
    capability = record.capability or {}
    known = {*record.allocated, *asked, *record.guarantee, *capability, *(record.deserved or {})}
    used = {slot for slot in known if slot != PODS and slots.name(slot)}
    for slot in sorted(used):
        name = slots.name(slot)
        share = int(deserved[slot]) if slot < len(deserved) else 0
        yield QueueCapacity(
            name,
            shown(name, record.allocated.get(slot, 0)),
            shown(name, asked[slot]),
            shown(name, share),
            shown(name, record.guarantee[slot]) if slot in record.guarantee else "",
            shown(name, capability[slot]) if slot in capability else "",
        )


def _details(snapshot: ClusterSnapshot, record: QueueRecord) -> Iterator[str]:
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    priority = f", priority {record.priority}" if record.priority else ""
    kept = "" if record.reclaimable else ", and nothing is reclaimed from it"
    yield f"its weight is {record.weight}{priority}{kept}"
    yield from queues.missing_parents(record.name)
    above = queues.path(record.name)[1:]
    if above:
        yield f"its parent is {above[0].name}"
    for each in above:
        full = [
            f"{shown(name, each.allocated.get(slot, 0))} of {shown(name, limit)} {name}"
            for slot, limit in (each.capability or {}).items()
            for name in [slots.name(slot)]
        ]
        if full:
            yield f"queue {each.name} above it uses {', '.join(full)} of its capability"
    if below := sorted(each.name for each in queues.below().get(record.name, ())):
        yield f"queues below it: {few(below)}; what they use and request is counted here as well"
