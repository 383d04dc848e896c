"""What PodGroups say of their jobs: phase, counts, and why a job waits.

    Pending     members are missing, or it was not tried yet
    Inqueue     its members are there and wait for room
    Running     enough of them have a place
    Unknown     some of them run, but fewer than it needs
    Completed   all have done their work

Those of scheduling.sigs.k8s.io call the second Scheduling and the last Finished; they have no
conditions.
"""

import msgspec

from holdfast.api.jobs import PodGroup, PodGroupCondition, PodGroupStatus
from holdfast.api.timestamps import format_time
from holdfast.core.cluster import Cluster
from holdfast.core.decisions import Decision, Emit, SetPodGroupStatus
from holdfast.core.jobs import Job
from holdfast.core.jobs.job import NOTHING, SCHEDULED
from holdfast.core.jobs.naming import SIGS
from holdfast.core.pods import Phase

UNSCHEDULABLE = "Unschedulable"

_OF_SIGS = {"Inqueue": "Scheduling", "Completed": "Finished"}


class PodGroups:
    def __init__(self, cluster: Cluster) -> None:
        self._jobs = cluster.jobs

    def run(self, now: float) -> list[Decision]:
        """Looks at every job something happened to."""
        if not self._jobs.dirty:
            return []
        dirty, self._jobs.dirty = self._jobs.dirty, {}
        decisions: list[Decision] = []
        for name in dirty:
            job = self._jobs.known.get(name)
            if job is not None:
                self._look_at(job, now)
                decisions += self._write(job, now)
        return decisions

    def next_timer(self) -> float | None:
        return None

    def _look_at(self, job: Job, now: float) -> None:
        if job.is_ready:
            job.seen_ready = True
            job.problem = NOTHING
            job.lost_at = None
        elif job.seen_ready and job.waiting():
            job.seen_ready = False
            job.lost_at = now

    def _write(self, job: Job, now: float) -> list[Decision]:
        group = job.group
        if group is None or not self._jobs.speaks_for(job):
            return []
        status = status_of(job, group, now)
        if status == group.status:
            job.told = None
            return []
        if status == job.told:
            return []
        decisions: list[Decision] = [SetPodGroupStatus(job.ref, group.api_version, status)]
        before = job.told if isinstance(job.told, PodGroupStatus) else group.status
        job.told = status
        if job.problem.reason and (_why(before) != job.problem.message or not _why(before)):
            decisions.append(
                Emit(job.ref, "Warning", UNSCHEDULABLE, job.problem.message[:1024], "Scheduling")
            )
        return decisions


def _why(status: PodGroupStatus) -> str:
    for condition in status.conditions:
        if condition.type == UNSCHEDULABLE and condition.status == "True":
            return condition.message
    return ""


def phase_of(job: Job) -> str:
    if job.done and not job.members:
        return "Completed"
    if job.is_ready:
        return "Running"
    if any(member.phase is Phase.ASSIGNED for member in job.members.values()):
        return "Unknown"
    enough = job.is_known and not job.lacks(job.waiting())
    return "Inqueue" if job.tried and enough and job.members else "Pending"


def status_of(job: Job, group: PodGroup, now: float) -> PodGroupStatus:
    """The whole status. Times of conditions that say what they said before are kept."""
    phase = phase_of(job)
    members = job.members.values()
    status = msgspec.structs.replace(
        group.status,
        phase=phase,
        running=sum(m.phase is Phase.ASSIGNED and m.started is not None for m in members),
        succeeded=len(job.done),
        failed=len(job.failed),
    )
    if group.api_version.startswith(SIGS):
        status.phase = _OF_SIGS.get(phase, phase)
        status.scheduled = sum(m.phase is Phase.ASSIGNED for m in members) + len(job.done)
        if job.tried and status.schedule_start_time is None:
            status.schedule_start_time = format_time(now)
        return status
    conditions = {condition.type: condition for condition in group.status.conditions}

    def say(kind: str, true: bool, reason: str, message: str) -> None:
        known, value = conditions.get(kind), "True" if true else "False"
        said = (known.status, known.reason, known.message) if known is not None else None
        if said == (value, reason, message):
            return
        same = known is not None and known.status == value
        time = known.last_transition_time if known is not None and same else None
        conditions[kind] = PodGroupCondition(
            type=kind,
            status=value,
            reason=reason,
            message=message,
            last_transition_time=time or format_time(now),
        )

    if job.problem.reason:
        say(UNSCHEDULABLE, True, *job.problem)
    elif UNSCHEDULABLE in conditions and phase in ("Running", "Completed"):
        say(UNSCHEDULABLE, False, "", "")
    if phase == "Running":
        say(SCHEDULED, True, "Ready", "")
    elif phase != "Completed" and SCHEDULED in conditions:
        say(SCHEDULED, False, "NotReady", "")
    status.conditions = list(conditions.values())
    return status
