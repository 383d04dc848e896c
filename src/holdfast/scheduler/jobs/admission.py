"""Job admission: which PodGroups may become Inqueue, so that a job controller creates their pods.

A job is admitted if its queue is open, and its minResources fit into the queue's capability beside the
jobs admitted before it, and into the cluster's allocatable total. Whether capacity is free now does not
matter: preemption and holds can free or reserve capacity only for pods that exist.
"""

from collections import Counter
from collections.abc import Iterable

from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.jobs.job import Job
from holdfast.scheduler.jobs.queues import Queues


def may_become_inqueue(nodes: NodeTable, queues: Queues, job: Job, admitted: Iterable[Job]) -> bool:
    """Whether a job may become Inqueue, given the jobs that are."""
    name = queues.name_of(job.queue)
    if queues.why_closed(name):
        return False
    asked = _needs(queues, job)
    if not asked:
        return True
    alive = nodes.alive[: nodes.size]
    for slot, amount in asked.items():
        if amount > int(nodes.allocatable[slot, : nodes.size][alive].sum()):
            return False
    path = queues.path(name)
    if not any(record.capability for record in path):
        return True
    queues.refresh()
    besides: dict[str, Counter[int]] = {record.name: Counter() for record in path}
    for other in admitted:
        if other is not job:
            needs = _still_needs(queues, other)
            for record in queues.path(queues.name_of(other.queue)):
                if record.name in besides:
                    besides[record.name].update(needs)
    return all(
        record.allocated.get(slot, 0) + besides[record.name][slot] + asked.get(slot, 0) <= limit
        for record in path
        for slot, limit in (record.capability or {}).items()
        if asked.get(slot, 0)
    )


def _needs(queues: Queues, job: Job) -> Amounts:
    if job.group is None or not job.group.spec.min_resources:
        return {}
    return queues.amounts(job.group.spec.min_resources)


def _still_needs(queues: Queues, job: Job) -> Amounts:
    """The part of a job's minResources that its placed members do not have yet."""
    needs = _needs(queues, job)
    for member in job.placed():
        for slot, amount in member.cls.amounts.items():
            if slot in needs:
                needs[slot] = max(0, needs[slot] - amount)
    return needs
