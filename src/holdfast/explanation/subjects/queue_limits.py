"""Pods that their queue does not admit: which limit, with figures."""

from collections import Counter
from collections.abc import Iterable

from holdfast.api.plurals import number_of
from holdfast.explanation.advice.overdue_pods import is_overdue, overdue_text
from holdfast.explanation.facts.expected_ends import ExpectedEnd, expected_ends
from holdfast.explanation.phrases import in_time, pods_text
from holdfast.explanation.repairs.mistaken_units import units_hint
from holdfast.explanation.report import few
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.gang_failures import member_order
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.jobs.queues import QueueRecord
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

GUARANTEED = "guaranteed to other queues"
_ENDS = 40
"""How many expected ends of pods are tried."""
_TERMINATING = 3


def not_admitted(snapshot: ClusterSnapshot, pod: PodRecord, refusal: str) -> str:
    """`Its queue does not admit it: …`; of a pod that is in none, `It is not admitted: it is in no
    queue, and the free cpu is guaranteed to other queues.`"""
    if snapshot.cluster.jobs.queues.of(pod):
        return f"Its queue does not admit it: {refusal}."
    return f"It is not admitted: it is in no queue, and {refusal}."


def over_capability(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> tuple[str, bool] | None:
    """Which queue's capability the pods together exceed, and whether they exceed it even in an empty
    queue; None if they fit.
    """
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    queues.refresh()
    asked = asked_by(pods)
    found: tuple[str, bool] | None = None
    for record in queues.path(queues.of(pods[0])) if pods else ():
        waiting = snapshot.cluster.jobs.queue_limits.held_pods(record, tuple(pods))
        held = asked_by(waiting)
        for slot, limit in (record.capability or {}).items():
            used = record.allocated.get(slot, 0)
            if not asked[slot] or used + held[slot] + asked[slot] <= limit:
                continue
            name = slots.name(slot)
            kept = f", {shown(name, held[slot])} more are kept for {pods_text(waiting)}"
            size = asked[slot]
            request = number_of(size, "pod") if slot == PODS else f"{shown(name, size)} {name}"
            text = (
                f"queue {record.name} uses {shown(name, used)} of the {shown(name, limit)} {name} of "
                f"its capability{kept if held[slot] else ''}, and the request is {request}"
            )
            never = asked[slot] > limit
            if found is None or (never and not found[1]):
                found = (text, never)
    return found


def asked_by(pods: Iterable[PodRecord]) -> Counter[int]:
    """What the pods request together."""
    found: Counter[int] = Counter()
    for pod in pods:
        found.update(pod.cls.amounts)
    return found


def needed_members(job: Job, own: PodRecord | None = None) -> list[PodRecord]:
    """The smallest waiting members, as many as the job needs, one of which may be given; of equal ones,
    those that are tried first."""
    waiting = job.waiting()
    most = Counter[int]()
    for pod in waiting:
        most |= Counter(pod.cls.amounts)

    def size(pod: PodRecord) -> float:
        return sum(amount / most[slot] for slot, amount in pod.cls.amounts.items() if amount > 0)

    ordered = sorted(
        waiting, key=lambda pod: (pod is not own, bool(pod.gates), size(pod), member_order(pod))
    )
    return ordered[: max(1, job.still_needs - job.ready_members)]


def too_large(snapshot: ClusterSnapshot, job: Job) -> str:
    """Says so if the members that the job still needs request more than all nodes together have."""
    table = snapshot.cluster.nodes
    waiting, needed = job.waiting(), max(1, job.still_needs - job.ready_members)
    for slot in sorted({slot for pod in waiting for slot in pod.cls.amounts}):
        amount = sum(sorted(pod.cls.amounts.get(slot, 0) for pod in waiting)[:needed])
        has = int(table.allocatable[slot, : table.size][table.alive[: table.size]].sum())
        name = table.slots.name(slot)
        if amount > has:
            return (
                "it can never start on these nodes: "
                f"{number_of(needed, 'member requests', 'members request')} {shown(name, amount)} "
                f"{name}, and all nodes together have {shown(name, has)}"
            )
    return ""


def job_over_capability(snapshot: ClusterSnapshot, job: Job, own: PodRecord | None = None) -> str:
    """Why the queue does not admit as many members as the job needs, one of which may be given; empty
    if it does."""
    if job.is_ready or not job.waiting():
        return ""
    return "; ".join(queue_details(snapshot, needed_members(job, own)))


def queue_details(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[str]:
    full = over_capability(snapshot, pods)
    if full is None:
        return _guarantees(snapshot, pods)
    text, never = full
    if never:
        return [f"{text}: it can never start{units_hint(snapshot, pods[0])}"]
    ends = ends_in_queue(snapshot, pods, are_terminating=True)
    overdue = overdue_in_queue(snapshot, pods)
    return [
        text,
        *(
            f"{each.name} of it is terminating (grace period ends {in_time(each.time, snapshot.now)})"
            for each in ends[:_TERMINATING]
        ),
        *(
            f"{each.namespace}/{each.name} of it {overdue_text(snapshot, each)}"
            for each in overdue[:_TERMINATING]
        ),
    ]


def _guarantees(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[str]:
    """What is guaranteed to other queues and not used by them, if that keeps the pods pending."""
    limits = snapshot.cluster.jobs.queue_limits
    if not pods or not limits.admission_error(pods[0]).endswith(GUARANTEED):
        return []
    nodes = snapshot.cluster.nodes
    alive = nodes.alive[: nodes.size]
    found = []
    for slot in sorted({slot for pod in pods for slot in pod.cls.amounts}):
        name = nodes.slots.name(slot)
        owed = [
            f"{record.name} is guaranteed {shown(name, record.guarantee[slot])} and uses "
            f"{shown(name, record.allocated.get(slot, 0))}"
            for record in other_queues(snapshot, pods)
            if record.guarantee.get(slot, 0) > record.allocated.get(slot, 0)
        ]
        if owed:
            column = (nodes.allocatable[slot] - nodes.claimed[slot])[: nodes.size][alive]
            free = int(column.clip(min=0).sum())
            found.append(f"{name}: {shown(name, free)} are free on all nodes; queue {few(owed, 3)}")
    return found


def other_queues(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[QueueRecord]:
    """The queues that the pods are not in."""
    queues = snapshot.cluster.jobs.queues
    path = {each.name for each in queues.path(queues.of(pods[0]))}
    return [record for record in queues if record.name not in path]


def ends_in_queue(
    snapshot: ClusterSnapshot, pods: list[PodRecord], are_terminating: bool = False
) -> list[ExpectedEnd]:
    """When pods of the queue end, or of those with the same queue above them, the first ones first; all
    of these, or those that are terminating."""
    there = _pods_in_queue(snapshot, pods)
    names = {
        f"pod {pod.namespace}/{pod.name}" for pod in there if pod.cls.terminating or not are_terminating
    }
    rows = sorted({pod.row for pod in there})
    return sorted(
        end
        for row in rows
        for end in expected_ends(snapshot, pods[0], row)
        if end.name in names and end.time > snapshot.now
    )[:_ENDS]


def overdue_in_queue(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[PodRecord]:
    """The pods there that are being deleted for longer than their grace period."""
    found = [pod for pod in _pods_in_queue(snapshot, pods) if is_overdue(snapshot, pod)]
    return sorted(found, key=lambda pod: (pod.namespace, pod.name))


def _pods_in_queue(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[PodRecord]:
    """The placed pods that count against the capability that limits the pods."""
    queues = snapshot.cluster.jobs.queues
    limited = [each for each in queues.path(queues.of(pods[0])) if each.capability]
    return [
        pod
        for pod in snapshot.cluster.pods.values()
        if pod.row >= 0 and limited and limited[0] in queues.path(queues.of(pod))
    ]
