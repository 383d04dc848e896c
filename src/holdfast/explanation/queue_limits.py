"""Pods that their queue does not admit: which limit, with figures, and what would change it."""

from collections import Counter

from holdfast.api.kinds import KINDS
from holdfast.api.name_rules import dns_subdomain
from holdfast.api.names import QUEUE_NAME_ANNOTATION, VOLCANO_API
from holdfast.api.quantity import format_amount
from holdfast.api.similar_names import nearest
from holdfast.explanation.advice import Advisor
from holdfast.explanation.repairs import metadata_changes, repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_changes import create, patch, patch_status
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

QUEUE = KINDS[VOLCANO_API, "Queue"]


def over_capability(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> tuple[str, bool] | None:
    """Which queue's capability the pods together exceed, and whether they exceed it even in an empty
    queue; None if they fit.
    """
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    queues.refresh()
    asked: Counter[int] = Counter()
    for pod in pods:
        asked.update(pod.cls.amounts)
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


def needed_members(job: Job) -> list[PodRecord]:
    """The first waiting members, as many as the job needs to start."""
    return job.waiting()[: max(1, job.still_needs - job.ready_members)]


def too_large(snapshot: ClusterSnapshot, job: Job) -> str:
    """Says so if the members that the job still needs request more than all nodes together have."""
    table = snapshot.cluster.nodes
    asked: Counter[int] = Counter()
    needed = needed_members(job)
    for pod in needed:
        asked.update(pod.cls.amounts)
    for slot, amount in sorted(asked.items()):
        has = int(table.allocatable[slot, : table.size][table.alive[: table.size]].sum())
        name = table.slots.name(slot)
        if amount > has:
            return (
                f"it can never start on these nodes: {len(needed)} members request "
                f"{shown(name, amount)} {name}, and all nodes together have {shown(name, has)}"
            )
    return ""


def job_over_capability(snapshot: ClusterSnapshot, job: Job) -> str:
    """Why the queue does not admit as many members as the job needs; empty if it does."""
    if job.is_ready or not job.waiting():
        return ""
    return "".join(queue_details(snapshot, needed_members(job)))


def queue_details(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[str]:
    full = over_capability(snapshot, pods)
    if full is None:
        return _guarantees(snapshot, pods)
    text, never = full
    return [f"{text}: it can never start" if never else text]


def _guarantees(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> list[str]:
    """What is guaranteed to other queues and not used by them, if that keeps the pods pending."""
    limits, queues = snapshot.cluster.jobs.queue_limits, snapshot.cluster.jobs.queues
    if not pods or not limits.admission_error(pods[0]).endswith("guaranteed to other queues"):
        return []
    nodes, path = snapshot.cluster.nodes, {each.name for each in queues.path(queues.of(pods[0]))}
    alive = nodes.alive[: nodes.size]
    found = []
    for slot in sorted({slot for pod in pods for slot in pod.cls.amounts}):
        name = nodes.slots.name(slot)
        owed = [
            f"{record.name} is guaranteed {shown(name, record.guarantee[slot])} and uses "
            f"{shown(name, record.allocated.get(slot, 0))}"
            for record in queues
            if record.name not in path and record.guarantee.get(slot, 0) > record.allocated.get(slot, 0)
        ]
        if owed:
            column = (nodes.allocatable[slot] - nodes.claimed[slot])[: nodes.size][alive]
            free = int(column.clip(min=0).sum())
            found.append(f"{name}: {shown(name, free)} are free on all nodes; queue {few(owed, 3)}")
    return found


def consider_queue(
    snapshot: ClusterSnapshot, subject: Subject, pods: list[PodRecord], advisor: Advisor
) -> None:
    """Proposes changes of the queue, or of the queue's name."""
    queues = snapshot.cluster.jobs.queues
    name = queues.of(pods[0])
    raw = snapshot.find(QUEUE, name)
    if name and raw is None:
        known = sorted(each.name for each in queues)
        for near in nearest(name, known):
            body = {"annotations": {QUEUE_NAME_ANNOTATION: near}}
            changes = metadata_changes(snapshot, subject, body)
            advisor.propose(repair(f"name the queue {near} instead of {name}", "Annotate", changes))
        if dns_subdomain(name):
            return  # no queue can have this name
        new = {
            "apiVersion": VOLCANO_API,
            "kind": "Queue",
            "metadata": {"name": name, "uid": f"queue-{name}"},
            "spec": {},
        }
        advisor.propose(repair(f"create the queue {name}", "CreateQueue", [create(QUEUE, new)]))
        return
    for record in queues.path(name):
        raw = snapshot.find(QUEUE, record.name)
        if raw is not None and not record.is_open:
            command = f"kubectl patch queue {record.name} --subresource=status --type=merge -p"
            text = f'open the queue {record.name} ({command} \'{{"status":{{"state":"Open"}}}}\')'
            objects = [patch_status(QUEUE, raw, {"state": "Open"})]
            advisor.propose(repair(text, "OpenQueue", objects))
    _raise_capability(snapshot, pods, advisor)


def _raise_capability(snapshot: ClusterSnapshot, pods: list[PodRecord], advisor: Advisor) -> None:
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    asked: Counter[int] = Counter()
    for pod in pods:
        asked.update(pod.cls.amounts)
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
        advisor.propose(repair(" and ".join(texts), "RaiseCapability", changes))
