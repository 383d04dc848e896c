"""Changes of queues, requests and time with which a queue admits pods."""

from collections.abc import Iterator

from holdfast.api.kinds import KINDS
from holdfast.api.name_rules import dns_subdomain
from holdfast.api.names import QUEUE_NAME_ANNOTATION, VOLCANO_API
from holdfast.api.plurals import plural
from holdfast.api.quantity import format_amount
from holdfast.api.similar_names import nearest
from holdfast.api.times import format_time
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.gang_repairs import first_of_each_class
from holdfast.explanation.advice.largest_requests import consider_largest, consider_smaller_members
from holdfast.explanation.advice.overdue_pods import removal
from holdfast.explanation.advice.planned_reservations import consider_estimate
from holdfast.explanation.advice.repair_search import consider_nodes
from holdfast.explanation.advice.smaller_requests import resize
from holdfast.explanation.facts.capacity import requested
from holdfast.explanation.facts.expected_ends import ExpectedEnd
from holdfast.explanation.facts.other_pods import waiting_replicas
from holdfast.explanation.facts.reclaimed_capacity import QUEUE
from holdfast.explanation.facts.rehearsed_rounds import started_before
from holdfast.explanation.phrases import amounts_text, in_time
from holdfast.explanation.repairs.mistaken_units import corrected_units
from holdfast.explanation.repairs.repair import RESIZE, WAIT, Repair, metadata_changes, repair
from holdfast.explanation.report import few
from holdfast.explanation.subjects.queue_limits import (
    GUARANTEED,
    asked_by,
    ends_in_queue,
    other_queues,
    overdue_in_queue,
)
from holdfast.explanation.verdicts import Subject, at_time, place
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.jobs.job import CORE
from holdfast.snapshot.cluster_changes import (
    ClusterChange,
    ObjectChange,
    applied,
    awaited,
    create,
    patch,
    patch_status,
)
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

_TRIED_BEFORE = 8
"""How often the pods are looked for that are tried before."""


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
    if overdue := overdue_in_queue(snapshot, pods):
        advisor.propose(removal(snapshot, overdue, ""))
    _wait(snapshot, pods, advisor)
    _smaller(snapshot, subject, pods, advisor)
    for before in (*((each,) for each in units), ()):
        if not advisor.advice:
            consider_queue_after(snapshot, subject, pods, before, advisor)


def consider_queue_for(snapshot: ClusterSnapshot, pods: list[PodRecord], advisor: Advisor) -> None:
    """Proposes changes of the queue for pods that are alike."""
    for each in _repairs_for(snapshot, Subject.of(pods[0]), pods, advisor):
        advisor.propose(each)


def _consider_limits(
    snapshot: ClusterSnapshot, subject: Subject, pods: list[PodRecord], advisor: Advisor
) -> None:
    """Changes of the queue for all pods of the workload that wait, and for the pods. If the smallest
    members of a gang do not start with this, changes of the queue for all of them."""
    count = waiting_replicas(snapshot, subject)
    for each in _repairs_for(snapshot, subject, pods[:1] * count, advisor) if count > 1 else ():
        advisor.propose(each)
    if _consider_after_terminations(snapshot, pods, advisor):
        return
    job = snapshot.cluster.jobs.of(pods[0])
    for members in (pods, job.waiting()) if job is not None and not job.is_ready else (pods,):
        helpful = [each for each in queue_repairs(snapshot, subject, members) if advisor.propose(each)]
        if helpful:
            return
    replicas = pods[:1] * count if count > 1 else pods
    _consider_beside_others(snapshot, subject, replicas, advisor)


def _consider_beside_others(
    snapshot: ClusterSnapshot, subject: Subject, pods: list[PodRecord], advisor: Advisor
) -> None:
    """A capability that is enough also for the pods of the queue that are tried before these, and would
    take what a lower one leaves; if need be with a smaller request of a pod."""
    queues, others, found = snapshot.cluster.jobs.queues, list[PodRecord](), list[Repair]()
    path = {each.name for each in queues.path(queues.of(pods[0]))}
    for _ in range(_TRIED_BEFORE):
        repairs = list(_raise_capability(snapshot, [*pods, *others]))
        objects = [change for each in repairs for change in each.change.objects]
        with applied(snapshot, objects), started_before(snapshot, advisor.goal) as started:
            more = [
                each
                for each in started
                if each.reservation is None
                and not any(each is other for other in (*pods, *others))
                and path.intersection(above.name for above in queues.path(queues.of(each)))
            ]
        if others:
            names = few([f"{each.namespace}/{each.name}" for each in others], 3)
            is_are = plural(len(others), "is", "are")
            found = [
                each._replace(text=f"{each.text}, since {names} {is_are} tried before it")
                for each in repairs
            ]
            if any(map(advisor.propose, found)):
                return
        if not repairs or not more:
            break
        others += more
    if found and len(pods) == 1:
        slots = snapshot.cluster.nodes.slots
        asked = {slots.name(slot): n for slot, n in requested(pods[0]).items() if slot != PODS}
        with advisor.about(subject, *found):
            consider_largest(advisor, subject, asked)


def _repairs_for(
    snapshot: ClusterSnapshot, subject: Subject, replicas: list[PodRecord], advisor: Advisor
) -> list[Repair]:
    """Changes of the queue for as many of the replicas as start if it admits all, so that it is not
    raised for those that no node has capacity for; and for all."""
    repairs = list(queue_repairs(snapshot, subject, replicas))
    started = max(map(advisor.replicas_started, repairs), default=0)
    if 0 < started < len(replicas):
        return [*queue_repairs(snapshot, subject, replicas[:started]), *repairs]
    return repairs


def _consider_after_terminations(
    snapshot: ClusterSnapshot, pods: list[PodRecord], advisor: Advisor
) -> bool:
    """A higher capability once pods of the queue have terminated: less is enough then than now."""
    ends = ends_in_queue(snapshot, pods, are_terminating=True)
    if not ends:
        return False
    wait = _wait_for(snapshot, ends)
    with applied(snapshot, wait.change.objects), at_time(snapshot, wait.change.until):
        repairs = list(_raise_capability(snapshot, pods))
    return any(advisor.propose(each, wait) for each in repairs)


def consider_queue_after(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pods: list[PodRecord],
    before: tuple[Repair, ...],
    advisor: Advisor,
) -> None:
    """Changes of the queue, and what opens a node, after some that are not enough by themselves."""
    count = waiting_replicas(snapshot, subject)
    with applied(snapshot, [change for each in before for change in each.change.objects]):
        records = [Subject.of(each).record(snapshot) for each in pods]
        changed = [each for each in records if each is not None]
        pod = subject.record(snapshot)
        if pod is None or not changed:
            return
        repairs = list(queue_repairs(snapshot, subject, changed))
        for_all = list(queue_repairs(snapshot, subject, changed[:1] * count)) if count > 1 else []
        placing = place(snapshot.scheduler, pod)
    if before:
        with advisor.about(subject, *before):
            for option in (*for_all, *repairs):
                advisor.propose(option)
    options = [(each,) for each in repairs] if repairs else [()]
    for more in options if placing.message else ():
        if not advisor.advice:
            with advisor.about(subject, *before, *more):
                consider_estimate(snapshot, subject, pod, placing, advisor)
                consider_nodes(advisor, placing)


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
    name, group = pod.job or pod.group, snapshot.cluster.jobs.group_of(pod)
    info = KINDS.get((group.api_version, "PodGroup")) if group is not None else None
    annotated: Raw = {"annotations": {QUEUE_NAME_ANNOTATION: queue}}
    by_group = group is not None and bool(group.spec.queue or (name and name.family == CORE))
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
    limits, asked = snapshot.cluster.jobs.queue_limits, asked_by(pods)
    changes, texts = [], []
    for record in queues.path(queues.of(pods[0])):
        raw = snapshot.find(QUEUE, record.name)
        held = asked_by(limits.held_pods(record, tuple(pods)))
        needed = {
            slots.name(slot): amount
            for slot, limit in (record.capability or {}).items()
            if asked[slot]
            and (amount := record.allocated.get(slot, 0) + held[slot] + asked[slot]) > limit
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
    if not limits.admission_error(pods[0]).endswith(GUARANTEED):
        return
    slots, asked = snapshot.cluster.nodes.slots, asked_by(pods)
    for record in other_queues(snapshot, pods):
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
        for each in reversed(first_of_each_class(pods)):  # the largest first
            with advisor.about(Subject.of(each), *advisor.before):
                consider_smaller_members(advisor, each)
        return
    asked = asked_by(pods)
    left = dict(asked)
    for record in queues.path(queues.of(pods[0])):
        for slot, limit in (record.capability or {}).items():
            left[slot] = min(left.get(slot, 0), limit - record.allocated.get(slot, 0))
    for slot in left:
        if any(each.guarantee.get(slot, 0) for each in other_queues(snapshot, pods)):
            left[slot] = min(left[slot], _unclaimed(snapshot, pods, slot))
    lowered = {
        slots.name(slot): (asked[slot], amount)
        for slot, amount in left.items()
        if slot != PODS and amount < asked[slot]
    }
    smaller = resize(snapshot, subject, lowered) if not advisor.has_siblings else None
    if smaller is None or not advisor.propose(smaller):
        # All pods of the workload share what it may use, those that run now among them.
        consider_largest(advisor, subject, {name: now for name, (now, _) in lowered.items()})


def _unclaimed(snapshot: ClusterSnapshot, pods: list[PodRecord], slot: int) -> int:
    """What is free on all nodes and not guaranteed to other queues."""
    limits, queues = snapshot.cluster.jobs.queue_limits, snapshot.cluster.jobs.queues
    return limits.unguaranteed(queues.of(pods[0]), slot)


def _wait(snapshot: ClusterSnapshot, pods: list[PodRecord], advisor: Advisor) -> None:
    """Waiting until pods of the queue have ended, or of those with the same queue above them."""
    ends = ends_in_queue(snapshot, pods)
    for count in range(1, len(ends) + 1):
        if advisor.propose(_wait_for(snapshot, ends[:count])):
            return


def _wait_for(snapshot: ClusterSnapshot, ends: list[ExpectedEnd]) -> Repair:
    objects = awaited(change for each in ends for change in each.changes)
    until = ends[-1].time
    how_long = in_time(until, snapshot.now).removeprefix("in ")
    listed = few([each.name for each in ends], 3)
    text = f"wait {how_long}, until {format_time(until)}: {listed} should end"
    return Repair(text, ClusterChange(("Wait",), tuple(objects), until), WAIT)
