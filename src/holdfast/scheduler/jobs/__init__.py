"""Jobs: pods, and reservations, that are scheduled together or not at all.

    job               one job: its members, and what it needs to be ready
    job_index         all jobs, updated with pods and PodGroups
    queues            queues: allocated, deserved, dominant share
    queue_limits      capability and guarantee of queues; shares by weight
    admission         which PodGroups may become Inqueue
    starvation_holds  capacity held for starving jobs
    estimates         run-time estimates and expected ends

A pod without a group is a job of one, for which nothing is stored here. May import `cluster`,
`reservations` and `api`.
"""

from holdfast.scheduler.jobs.job import Job, JobName, JobProblem
from holdfast.scheduler.jobs.job_index import Jobs

__all__ = ["Job", "JobName", "JobProblem", "Jobs"]
