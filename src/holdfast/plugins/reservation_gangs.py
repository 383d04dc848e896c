"""Which reservations make room together: those of one job.

All members have to be there: how many that are is the gang's total, or its minimum, which are taken to
be the same.
"""

from holdfast.core.pods import PodRecord
from holdfast.core.promises.promise import Promise


def members_of(promise: Promise) -> tuple[list[PodRecord], str]:
    """The reserve pods that need room together with this one's, itself among them, the most important
    first; and what is missing, if not all members are there."""
    assert promise.pod is not None
    job = promise.pod.job
    if job is None:
        return [promise.pod], ""
    name = job.name.name
    if not job.is_known:
        return [], f"nobody says how many reservations gang {name} has"
    wanted = max(job.min_member, job.declared.total if job.declared is not None else 0)
    there = len(job.members) + len(job.done)
    if there < wanted:
        return [], f"gang {name} has {there} of {wanted} reservations"
    waiting = [member for member in job.waiting() if member.promise is not None]
    waiting.sort(key=lambda pod: (-pod.cls.priority, pod.started or 0.0, pod.name))
    return waiting, ""
