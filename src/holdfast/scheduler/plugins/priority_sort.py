"""PrioritySort: orders the queue by priority, then by the time since when pods are queued. Of those
that were seen at one moment, the oldest comes first.

The rest of a job whose start was interrupted comes before all other pods: some of its members are bound
already.
"""

import math
from typing import Any

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.interface import ClusterPlugin


class PrioritySort(ClusterPlugin):
    name = "PrioritySort"
    wakes_on = Change.NONE

    def sort_key(self, pod: PodRecord) -> tuple[Any, ...]:
        if pod.job is not None:
            job = self.cluster.jobs.known[pod.job]
            since = math.inf if job.has_enough else job.queued_since
            created = "" if job.has_enough else job.first_created
            priority = math.inf if job.interrupted else job.priority
            return (-priority, since, created, job.name.namespace, job.name.name)
        return (-pod.cls.priority, pod.queued_since, pod.created or "", pod.namespace, pod.name)
