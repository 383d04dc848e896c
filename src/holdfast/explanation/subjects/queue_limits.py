"""Pods that their queue does not admit: which limit, with figures, and what would change it."""

from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast.api.kinds import KINDS
from holdfast.api.name_rules import dns_subdomain
from holdfast.api.names import QUEUE_NAME_ANNOTATION, VOLCANO_API
from holdfast.api.plurals import number_of
from holdfast.api.quantity import format_amount
from holdfast.api.similar_names import nearest
from holdfast.api.times import format_time
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.repair_search import consider_nodes
from holdfast.explanation.advice.smaller_requests import consider_smaller_members, resize
from holdfast.explanation.facts.expected_ends import expected_ends
from holdfast.explanation.facts.other_pods import siblings, uncreated_replicas
from holdfast.explanation.facts.reclaimed_capacity import QUEUE
from holdfast.explanation.phrases import amounts_text, in_time
from holdfast.explanation.repairs.mistaken_units import corrected_units, units_hint
from holdfast.explanation.repairs.repair import RESIZE, WAIT, Repair, metadata_changes, repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject, place
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.gang_failures import member_order
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.jobs.job import CORE
from holdfast.scheduler.jobs.queues import QueueRecord
from holdfast.snapshot.cluster_changes import (
    ClusterChange,
    ObjectChange,
    applied,
    create,
    patch,
    patch_status,
)
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

_GUARANTEED = "guaranteed to other queues"
_ENDS = 40
"""How many expected ends of pods are tried."""


def over_capability(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> tuple[str, bool] | None:
    """Which queue's capability the pods together exceed, and whether they exceed it even in an empty
    queue; None if they fit.
    """
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    queues.refresh()
    asked = _asked(pods)
    found: tuple[str, bool] | None = None
    for record in queues.path(queues.of(pods[0])) if pods else ():
        for slot, limit in (record.capability or {}).items():
            used = record.allocated.get(slot, 0)
            if not asked[slot] or used + asked[slot] <= limit:
                continue
            name = slots.name(slot)
            text = (
                f"queue {record.name} uses {shown(name, used)} of the {shown(name, limit)} {name} of "
                f"its capability, and the request is {shown(name, asked[slot])} {name}"
            )
            never = asked[slot] > limit
            if found is None or (never and not found[1]):
                found = (text, never)
    return found


def _asked(pods: Iterable[PodRecord]) -> Counter[int]:
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
    return "".join(queue_details(snapshot, needed_members(job, own)))


def queue_details(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[str]:
    full = over_capability(snapshot, pods)
    if full is None:
        return _guarantees(snapshot, pods)
    text, never = full
    if not never:
        return [text]
    return [f"{text}: it can never start{units_hint(snapshot, pods[0])}"]


def _guarantees(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[str]:
    """What is guaranteed to other queues and not used by them, if that keeps the pods pending."""
    limits = snapshot.cluster.jobs.queue_limits
    if not pods or not limits.admission_error(pods[0]).endswith(_GUARANTEED):
        return []
    nodes = snapshot.cluster.nodes
    alive = nodes.alive[: nodes.size]
    found = []
    for slot in sorted({slot for pod in pods for slot in pod.cls.amounts}):
        name = nodes.slots.name(slot)
        owed = [
            f"{record.name} is guaranteed {shown(name, record.guarantee[slot])} and uses "
            f"{shown(name, record.allocated.get(slot, 0))}"
            for record in _others(snapshot, pods)
            if record.guarantee.get(slot, 0) > record.allocated.get(slot, 0)
        ]
        if owed:
            column = (nodes.allocatable[slot] - nodes.claimed[slot])[: nodes.size][alive]
            free = int(column.clip(min=0).sum())
            found.append(f"{name}: {shown(name, free)} are free on all nodes; queue {few(owed, 3)}")
    return found


def _others(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[QueueRecord]:
    """The queues that the pods are not in."""
    queues = snapshot.cluster.jobs.queues
    path = {each.name for each in queues.path(queues.of(pods[0]))}
    return [record for record in queues if record.name not in path]


# Advice


def consider_queue(
    snapshot: ClusterSnapshot, subject: Subject, pods: list[PodRecord], advisor: Advisor
) -> None:
    """Proposes requests in another unit, changes of the queue or of the queue's name, smaller requests,
    and waiting for pods of the queue; if none of these is enough, some of them together with what opens
    a node."""
    pod = subject.record(snapshot)
    units = list(corrected_units(snapshot, subject, pod)) if pod is not None else []
    for each in units:
        advisor.propose(each)
    _consider_limits(snapshot, subject, pods, advisor)
    _wait(snapshot, pods, advisor)
    _smaller(snapshot, subject, pods, advisor)
    for before in (*((each,) for each in units), ()):
        if not advisor.advice:
            _consider_after(snapshot, subject, pods, before, advisor)


def _consider_limits(
    snapshot: ClusterSnapshot, subject: Subject, pods: list[PodRecord], advisor: Advisor
) -> None:
    """Changes of the queue for the pods, and for all pods of their workload that wait: for as many of
    these as start if it admits all, so that it is not raised for those that no node has capacity for.
    If the smallest members of a gang do not start with this, changes of the queue for all of them."""
    replicas = _waiting_replicas(snapshot, subject, pods)
    repairs = list(queue_repairs(snapshot, subject, replicas)) if replicas else []
    started = max(map(advisor.replicas_started, repairs), default=0)
    if 0 < started < len(replicas):
        repairs = [*queue_repairs(snapshot, subject, replicas[:started]), *repairs]
    for each in repairs:
        advisor.propose(each)
    job = snapshot.cluster.jobs.of(pods[0])
    for members in (pods, job.waiting()) if job is not None and not job.is_ready else (pods,):
        helpful = [each for each in queue_repairs(snapshot, subject, members) if advisor.propose(each)]
        if helpful:
            return


def _consider_after(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pods: list[PodRecord],
    before: tuple[Repair, ...],
    advisor: Advisor,
) -> None:
    """Changes of the queue, and what opens a node, after some that are not enough by themselves."""
    with applied(snapshot, [change for each in before for change in each.change.objects]):
        records = [Subject.of(each).record(snapshot) for each in pods]
        changed = [each for each in records if each is not None]
        pod = subject.record(snapshot)
        if pod is None or not changed:
            return
        repairs = list(queue_repairs(snapshot, subject, changed))
        placing = place(snapshot.scheduler, pod)
    if before:
        with advisor.about(subject, *before):
            for option in repairs:
                advisor.propose(option)
    options = [(each,) for each in repairs] if repairs else [()]
    for more in options if placing.message else ():
        if not advisor.advice:
            with advisor.about(subject, *before, *more):
                consider_nodes(advisor, placing)


def _waiting_replicas(
    snapshot: ClusterSnapshot, subject: Subject, pods: list[PodRecord]
) -> list[PodRecord]:
    """All pods of the workload that wait, one for each that is yet to be created; empty if there are no
    others."""
    others = siblings(snapshot, subject)
    records = [each.record(snapshot) for each in others]
    waiting = [pod for pod in records if pod is not None and pod.row < 0]
    waiting += pods[:1] * len(uncreated_replicas(snapshot, subject, len(others)))
    return [*pods, *waiting] if waiting else []


def queue_repairs(
    snapshot: ClusterSnapshot, subject: Subject, pods: list[PodRecord]
) -> Iterator[Repair]:
    queues = snapshot.cluster.jobs.queues
    name = queues.of(pods[0])
    if name and snapshot.find(QUEUE, name) is None:
        known = sorted(each.name for each in queues)
        for near in nearest(name, known):
            changes = _in_other_queue(snapshot, subject, pods[0], near)
            yield repair(f"name the queue {near} instead of {name}", "Annotate", changes)
        if not dns_subdomain(name):  # a queue can have this name
            metadata = {"name": name, "uid": f"queue-{name}"}
            new = {"apiVersion": VOLCANO_API, "kind": "Queue", "metadata": metadata, "spec": {}}
            yield repair(f"create the queue {name}", "CreateQueue", [create(QUEUE, new)])
        return
    opened = list(_open(snapshot, name))
    raised = list(_raise_capability(snapshot, pods))
    if opened and raised:
        texts = " and ".join(each.text for each in (*opened, *raised))
        change = sum((each.change for each in (*opened, *raised)), ClusterChange())
        yield Repair(texts, change, raised[0].cost)
    yield from (*opened, *raised)
    yield from _lower_guarantees(snapshot, pods)


def _in_other_queue(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, queue: str
) -> list[ObjectChange]:
    """The pod in another queue; if its PodGroup names the queue, the group."""
    job = snapshot.cluster.jobs.of(pod)
    group = job.group if job is not None else None
    info = KINDS.get((group.api_version, "PodGroup")) if group is not None else None
    annotated: Raw = {"annotations": {QUEUE_NAME_ANNOTATION: queue}}
    by_group = group is not None and bool(group.spec.queue or (job and job.name.family == CORE))
    if info is None or group is None or not by_group:
        return metadata_changes(snapshot, subject, annotated)
    raw = snapshot.find(info, group.metadata.name, group.metadata.namespace)
    body: Raw = {"spec": {"queue": queue}} if group.spec.queue else {"metadata": annotated}
    return [patch(info, raw, body)] if raw is not None else []


def _open(snapshot: ClusterSnapshot, name: str) -> Iterator[Repair]:
    """The queue, and those above it, opened."""
    objects, texts = [], []
    for record in snapshot.cluster.jobs.queues.path(name):
        raw = snapshot.find(QUEUE, record.name)
        if raw is not None and not record.is_open:
            command = f"kubectl patch queue {record.name} --subresource=status --type=merge -p"
            texts.append(
                f'open the queue {record.name} ({command} \'{{"status":{{"state":"Open"}}}}\')'
            )
            objects.append(patch_status(QUEUE, raw, {"state": "Open"}))
    if objects:
        yield repair(" and ".join(texts), "OpenQueue", objects)


def _raise_capability(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> Iterator[Repair]:
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    queues.refresh()
    asked = _asked(pods)
    changes, texts = [], []
    for record in queues.path(queues.of(pods[0])):
        raw = snapshot.find(QUEUE, record.name)
        needed = {
            slots.name(slot): record.allocated.get(slot, 0) + asked[slot]
            for slot, limit in (record.capability or {}).items()
            if asked[slot] and record.allocated.get(slot, 0) + asked[slot] > limit
        }
        if raw is None or not needed:
            continue
        body = {name: format_amount(name, amount) for name, amount in needed.items()}
        changes.append(patch(QUEUE, raw, {"spec": {"capability": body}}))
        figures = ", ".join(f"{shown(key, amount)} {key}" for key, amount in needed.items())
        texts.append(f"raise the capability of queue {record.name} to {figures}")
    if changes:
        yield repair(" and ".join(texts), "RaiseCapability", changes)


def _lower_guarantees(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> Iterator[Repair]:
    """A smaller guarantee of one other queue, where guarantees keep the pods pending."""
    limits = snapshot.cluster.jobs.queue_limits
    if not limits.admission_error(pods[0]).endswith(_GUARANTEED):
        return
    slots, asked = snapshot.cluster.nodes.slots, _asked(pods)
    for record in _others(snapshot, pods):
        raw = snapshot.find(QUEUE, record.name)
        lower = {
            slot: max(record.allocated.get(slot, 0), guaranteed - lacking)
            for slot, guaranteed in record.guarantee.items()
            if (lacking := asked[slot] - _unclaimed(snapshot, pods, slot)) > 0
            and guaranteed > record.allocated.get(slot, 0)
        }
        if raw is None or not lower:
            continue
        body = {slots.name(slot): format_amount(slots.name(slot), n) for slot, n in lower.items()}
        change = patch(QUEUE, raw, {"spec": {"guarantee": {"resource": body}}})
        figures = amounts_text(snapshot, lower)
        text = f"lower the guarantee of queue {record.name} to {figures}"
        yield repair(text, "LowerGuarantee", [change], RESIZE)


# Requests and time


def _smaller(
    snapshot: ClusterSnapshot, subject: Subject, pods: list[PodRecord], advisor: Advisor
) -> None:
    """Requests that the queue has left, and that other queues are not guaranteed."""
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    if len(pods) > 1:
        consider_smaller_members(advisor, pods[0])
        return
    asked = _asked(pods)
    left = dict(asked)
    for record in queues.path(queues.of(pods[0])):
        for slot, limit in (record.capability or {}).items():
            left[slot] = min(left.get(slot, 0), limit - record.allocated.get(slot, 0))
    for slot in left:
        if any(each.guarantee.get(slot, 0) for each in _others(snapshot, pods)):
            left[slot] = min(left[slot], _unclaimed(snapshot, pods, slot))
    lowered = {
        slots.name(slot): (asked[slot], amount)
        for slot, amount in left.items()
        if slot != PODS and amount < asked[slot]
    }
    smaller = resize(snapshot, subject, lowered)
    if smaller is not None:
        advisor.propose(smaller)


def _unclaimed(snapshot: ClusterSnapshot, pods: list[PodRecord], slot: int) -> int:
    """What is free on all nodes and not guaranteed to other queues."""
    limits, queues = snapshot.cluster.jobs.queue_limits, snapshot.cluster.jobs.queues
    return limits.unguaranteed(queues.of(pods[0]), slot)


def _wait(snapshot: ClusterSnapshot, pods: list[PodRecord], advisor: Advisor) -> None:
    """Waiting until pods of the queue have ended, or of those with the same queue above them."""
    queues = snapshot.cluster.jobs.queues
    limited = [each for each in queues.path(queues.of(pods[0])) if each.capability]
    if not limited:
        return
    there = [
        pod
        for pod in snapshot.cluster.pods.values()
        if pod.row >= 0 and limited[0] in queues.path(queues.of(pod))
    ]
    names = {f"pod {pod.namespace}/{pod.name}" for pod in there}
    rows = sorted({pod.row for pod in there})
    ends = sorted(
        end
        for row in rows
        for end in expected_ends(snapshot, pods[0], row)
        if end.name in names and end.time > snapshot.now
    )[:_ENDS]
    for count in range(1, len(ends) + 1):
        objects = tuple(change for each in ends[:count] for change in each.changes)
        until = ends[count - 1].time
        how_long = in_time(until, snapshot.now).removeprefix("in ")
        listed = few([each.name for each in ends[:count]], 3)
        text = f"wait {how_long}, until {format_time(until)}: {listed} should end"
        if advisor.propose(Repair(text, ClusterChange(("Wait",), objects, until), WAIT)):
            return
