"""Jobs: pods, and reservations, that are scheduled together or not at all.

    job               one job: its members, and what it needs to be ready
    job_index         all jobs, updated with pods and PodGroups
    queues            the tree of queues, and what is allocated to each
    queue_shares      deserved shares by weight; the dominant share
    queue_limits      capability and guarantee of queues; which PodGroups may become Inqueue
    estimates         run-time estimates and expected ends
    capacity_planner  free capacity over time: expected ends, planned reservations

A pod without a group is a job of one, for which nothing is stored here. May import
`reservations`, `managers`, `cluster` and `api`.
"""

from holdfast.scheduler.cluster.records import JobName
from holdfast.scheduler.jobs.job import Job, JobProblem
from holdfast.scheduler.jobs.job_index import Jobs

__all__ = ["Job", "JobName", "JobProblem", "Jobs"]
