"""PodGroups whose minResources are more than is free, or more than their queue may have: figures, and
what would change it.

Pods that exist are not started until the minResources of their group are free on the nodes together. A
group without pods becomes Inqueue, so that a controller creates its pods, only if its minResources fit
the nodes when empty, and its queue beside the groups admitted before.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.quantity import format_amount
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.gang_repairs import consider_steps
from holdfast.explanation.advice.waits import consider_gang_wait
from holdfast.explanation.facts.reclaimed_capacity import QUEUE
from holdfast.explanation.repairs.repair import Repair, repair
from holdfast.explanation.report import Advice
from holdfast.explanation.subjects.queue_limits import needed_members
from holdfast.scheduler.controllers.pod_groups import phase_of
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.jobs.queue_limits import may_become_inqueue, unmet_min_resources
from holdfast.snapshot.cluster_changes import applied, patch
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown


class LackingResource(NamedTuple):
    """One of the minResources of a group that it cannot have now."""

    resource: str
    needed: int
    free: int
    """On all nodes, or in the queue; what members of the group have included."""
    total: int
    queue: str = ""
    """The queue that has too little; empty for the nodes."""

    @property
    def text(self) -> str:
        never = ": it can never start" if self.needed > self.total else ""
        where = f"in queue {self.queue}" if self.queue else "on all nodes"
        return (
            f"minResources: {shown(self.resource, self.needed)} {self.resource} are needed, and "
            f"{shown(self.resource, self.free)} of {shown(self.resource, self.total)} are free "
            f"{where}{never}"
        )


def lacking_min_resources(snapshot: ClusterSnapshot, job: Job) -> list[LackingResource]:
    """The minResources that keep the group from starting."""
    if job.group is None or not job.group.spec.min_resources:
        return []
    found = list(_lacking_on_nodes(snapshot, job))
    return found if job.members else [*found, *_lacking_in_queues(snapshot, job)]


def _lacking_on_nodes(snapshot: ClusterSnapshot, job: Job) -> Iterator[LackingResource]:
    nodes, jobs = snapshot.cluster.nodes, snapshot.cluster.jobs
    assert job.group is not None
    alive = nodes.alive[: nodes.size]
    for slot, needed in sorted(jobs.queues.amounts(job.group.spec.min_resources).items()):
        own = sum(pod.cls.request(slot) for pod in job.placed()) + jobs.held_for(job, slot)
        unused = (nodes.allocatable[slot] - nodes.claimed[slot])[: nodes.size][alive]
        free = own + int(unused.clip(min=0).sum())
        total = int(nodes.allocatable[slot, : nodes.size][alive].sum())
        if needed > (free if job.members else total):
            yield LackingResource(nodes.slots.name(slot), needed, free, total)


def _lacking_in_queues(snapshot: ClusterSnapshot, job: Job) -> Iterator[LackingResource]:
    queues, slots = snapshot.cluster.jobs.queues, snapshot.cluster.nodes.slots
    assert job.group is not None
    queues.refresh()
    needs = queues.amounts(job.group.spec.min_resources)
    for record in queues.path(queues.name_of(job.queue)):
        taken = Counter(record.allocated)
        for other in _admitted(snapshot, job):
            if record in queues.path(queues.name_of(other.queue)):
                taken.update(unmet_min_resources(queues, other))
        for slot, limit in (record.capability or {}).items():
            if needs.get(slot, 0) > limit - taken[slot]:
                free = max(0, limit - taken[slot])
                yield LackingResource(slots.name(slot), needs[slot], free, limit, record.name)


def _admitted(snapshot: ClusterSnapshot, job: Job) -> list[Job]:
    known = snapshot.cluster.jobs.known.values()
    return [each for each in known if each.name != job.name and phase_of(each) == "Inqueue"]


# Advice


def consider_min_resources(snapshot: ClusterSnapshot, job: Job, advisor: Advisor) -> None:
    """For a group with pods: lower minResources, together with what lets its members start, or waiting
    until enough is free."""
    repairs = min_resources_repairs(snapshot, job)
    for each in repairs:
        advisor.propose(each)
    members = job.waiting()
    if members:
        consider_gang_wait(advisor, members[0])
    for each in repairs:
        if not advisor.advice:
            consider_steps(snapshot, job, advisor, [each])


def admission_advice(snapshot: ClusterSnapshot, job: Job) -> list[Advice]:
    """For a group without pods: changes after which it becomes Inqueue."""
    found = []
    for each in min_resources_repairs(snapshot, job):
        with applied(snapshot, each.change.objects):
            after = snapshot.cluster.jobs.known.get(job.name)
            nodes, queues = snapshot.cluster.nodes, snapshot.cluster.jobs.queues
            helps = after is not None and may_become_inqueue(
                nodes, queues, after, _admitted(snapshot, after)
            )
        if helps:
            text = f"{each.text}; then it becomes Inqueue and its pods can be created"
            found.append(Advice(text, each.change.data(), []))
    return found


def min_resources_repairs(snapshot: ClusterSnapshot, job: Job) -> list[Repair]:
    """Lower minResources: what the members that must start request, or what is free; and a larger
    capability of the queue."""
    lacking, group = lacking_min_resources(snapshot, job), job.group
    if not lacking or group is None:
        return []
    info = KINDS[group.api_version, "PodGroup"]
    raw = snapshot.find(info, job.name.name, job.name.namespace)
    assert raw is not None
    asked: Counter[str] = Counter()
    for pod in (*needed_members(job), *job.placed()):
        for slot, amount in pod.cls.amounts.items():
            asked[snapshot.cluster.nodes.slots.name(slot)] += amount
    lowered: dict[str, int] = {}
    for each in lacking:
        most = each.free if job.members or each.queue else each.total
        bound = min(most, asked[each.resource] or most)
        lowered[each.resource] = min(bound, lowered.get(each.resource, bound))
    body = {name: format_amount(name, amount) for name, amount in lowered.items()}
    amounts = ", ".join(f"{shown(name, amount)} {name}" for name, amount in lowered.items())
    text = f"lower minResources of PodGroup {job.name.namespace}/{job.name.name} to {amounts}"
    change = patch(info, raw, {"spec": {"minResources": body}})
    found = [repair(text, "LowerMinResources", [change])] if all(lowered.values()) else []
    return [*found, *_larger_queues(snapshot, lacking)]


def _larger_queues(snapshot: ClusterSnapshot, lacking: list[LackingResource]) -> list[Repair]:
    changes, texts = [], []
    for each in lacking:
        raw = snapshot.find(QUEUE, each.queue) if each.queue else None
        if raw is not None:
            limit = each.total + each.needed - each.free
            spec = {"capability": {each.resource: format_amount(each.resource, limit)}}
            changes.append(patch(QUEUE, raw, {"spec": spec}))
            amount = f"{shown(each.resource, limit)} {each.resource}"
            texts.append(f"raise the capability of queue {each.queue} to {amount}")
    return [repair(" and ".join(texts), "RaiseCapability", changes)] if changes else []
