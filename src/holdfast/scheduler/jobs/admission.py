"""Which jobs may have their pods made.

Who makes the pods of a job may wait for its PodGroup to say that it may (Inqueue). It may if its queue
takes jobs, and if what it needs at least (minResources) is within the capability of the queue, besides
what others there need that were let in before, and within what there is at all. Whether there is room
now does not matter: room can only be made, or held, for pods that are there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.scheduler.jobs.job import Job
from holdfast.scheduler.jobs.queues import Amounts

if TYPE_CHECKING:
    from holdfast.scheduler.cluster.cluster import Cluster


def may_have_pods(cluster: Cluster, job: Job, let_in: Iterable[Job]) -> bool:
    """Whether it may, besides those that were let in."""
    queues = cluster.jobs.queues
    name = queues.name_of(job.queue)
    if queues.why_closed(name):
        return False
    asked = _needs(cluster, job)
    if not asked:
        return True
    nodes = cluster.nodes
    alive = nodes.alive[: nodes.size]
    for slot, amount in asked.items():
        if amount > int(nodes.allocatable[slot, : nodes.size][alive].sum()):
            return False
    path = queues.path(name)
    if not any(record.capability for record in path):
        return True
    queues.refresh()
    besides: dict[str, Counter[int]] = {record.name: Counter() for record in path}
    for other in let_in:
        if other is not job:
            needs = _still_needs(cluster, other)
            for record in queues.path(queues.name_of(other.queue)):
                if record.name in besides:
                    besides[record.name].update(needs)
    return all(
        record.allocated.get(slot, 0) + besides[record.name][slot] + asked.get(slot, 0) <= limit
        for record in path
        for slot, limit in (record.capability or {}).items()
        if asked.get(slot, 0)
    )


def _needs(cluster: Cluster, job: Job) -> Amounts:
    if job.group is None or not job.group.spec.min_resources:
        return {}
    return cluster.jobs.queues.amounts(job.group.spec.min_resources)


def _still_needs(cluster: Cluster, job: Job) -> Amounts:
    """What it needs at least and has not got yet."""
    needs = _needs(cluster, job)
    for member in job.placed():
        for slot, amount in member.cls.amounts.items():
            if slot in needs:
                needs[slot] = max(0, needs[slot] - amount)
    return needs
