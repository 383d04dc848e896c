"""Jobs: pods, and reservations, that are placed together or not at all.

    queues      where they wait, and what each queue may have
    shares      room shared by weight
    admission   which may have their pods made
    naming      which job a pod says it belongs to
    holds       room held for starving ones
    making      the reservation that is such a hold
    outlook     when held room is expected to be free
    estimates   how long pods run
    job         one job: its members, and what it needs to start
    jobs        all of them, kept in step with pods and PodGroups

A pod that belongs to none is a job of its own, of which nothing is kept here.
"""

from holdfast.scheduler.jobs.job import Job, JobName, JobProblem
from holdfast.scheduler.jobs.job_index import Jobs

__all__ = ["Job", "JobName", "JobProblem", "Jobs"]
