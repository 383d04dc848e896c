"""The CronJob controller: starts a Job at each scheduled time, and deletes old ones.

A Job is created in one step and recorded in the status in the next, from the scheduled time in its
annotation. So a creation that is refused is tried again, and a restart in between starts nothing twice.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from holdfast.api.cron import CronError, CronSchedule, load_zone, parse_cron
from holdfast.api.times import format_time
from holdfast.local.workloads.job import finished
from holdfast.local.workloads.lister import (
    NORMAL,
    WARNING,
    ActionOutcome,
    CreateDependent,
    DeleteDependent,
    EmitEvent,
    Lister,
    Member,
    Raw,
    Ref,
    annotations_of,
    controller_uid,
    is_going,
    reference_to,
)
from holdfast.local.workloads.pods import created, moment

SOURCE = "cronjob-controller"
SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MANY_MISSED = 100
_TOO_MANY = (
    "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
)
_FORBIDDEN = "Not starting job because prior execution is running and concurrency policy is Forbid"


def reconcile(view: Lister, ref: Ref, cron_job: Raw, now: float) -> ActionOutcome:
    outcome = ActionOutcome()
    jobs = [*view.controlled(cron_job["metadata"]["uid"], "Job")]
    status = _status(cron_job, jobs, outcome)
    if not is_going(cron_job):
        current = {**cron_job, "status": status}
        if not cron_job["spec"].get("suspend"):
            status = _schedule(view, ref, current, jobs, now, outcome)
        _delete_old(cron_job, jobs, outcome)
    outcome.update(ref, cron_job, {**cron_job, "status": status})
    return outcome


# Status


def _status(cron_job: Raw, jobs: list[Member], outcome: ActionOutcome) -> Raw:
    """The status after what became of the Jobs."""
    status = {**(cron_job.get("status") or {})}
    by_uid = {raw["metadata"]["uid"]: raw for _, raw in jobs}
    active: list[Raw] = []
    for reference in status.get("active") or ():
        job = by_uid.get(reference.get("uid", ""))
        name = reference.get("name", "")
        if job is None:
            _emit(outcome, cron_job, NORMAL, "MissingJob", f"Active job went missing: {name}")
        elif end := finished(job):
            message = f"Saw completed job: {name}, condition: {end}"
            _emit(outcome, cron_job, NORMAL, "SawCompletedJob", message)
        else:
            active.append(reference)
    known = {reference.get("uid") for reference in active}
    last, succeeded = _last_schedule(status), moment(status.get("lastSuccessfulTime"))
    for _, job in jobs:
        scheduled_at = moment(annotations_of(job).get(SCHEDULED_AT))
        if not finished(job) and job["metadata"]["uid"] not in known:
            if scheduled_at is None:
                name = job["metadata"]["name"]
                message = f"Saw a job that the controller did not create or forgot: {name}"
                _emit(outcome, cron_job, WARNING, "UnexpectedJob", message)
            else:
                active.append(_reference(job))
        if scheduled_at is not None and (last is None or scheduled_at > last):
            last = scheduled_at
        if finished(job) == "Complete":
            end_time = moment((job.get("status") or {}).get("completionTime"))
            if end_time is not None and (succeeded is None or end_time > succeeded):
                succeeded = end_time
    status["active"] = active
    status["lastScheduleTime"] = format_time(last) if last is not None else None
    status["lastSuccessfulTime"] = format_time(succeeded) if succeeded is not None else None
    return {name: value for name, value in status.items() if value}


def _last_schedule(status: Raw) -> float | None:
    return moment(status.get("lastScheduleTime"))


def _reference(job: Raw) -> Raw:
    metadata = job["metadata"]
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "resourceVersion": metadata["resourceVersion"],
        "uid": metadata["uid"],
    }


# Scheduling


class _Due(NamedTuple):
    time: float | None
    """The most recent scheduled time that has not been served."""
    missed: int


def _schedule(
    view: Lister, ref: Ref, cron_job: Raw, jobs: list[Member], now: float, outcome: ActionOutcome
) -> Raw:
    """Starts the Job that is due, and returns the status."""
    spec: Raw = cron_job["spec"]
    status: Raw = cron_job["status"]
    schedule = _parsed(cron_job, outcome)
    if schedule is None:
        return status
    outcome.sync_again(schedule.next_after(now))
    due, missed = _most_recent(cron_job, schedule, now)
    if due is None:
        return status
    if missed > MANY_MISSED:
        _emit(outcome, cron_job, WARNING, "TooManyMissedTimes", _TOO_MANY)
    deadline = spec.get("startingDeadlineSeconds")
    if deadline is not None and due + deadline < now:
        text = datetime.fromtimestamp(due, UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
        message = f"Missed scheduled time to start a job: {text}"
        _emit(outcome, cron_job, WARNING, "MissSchedule", message)
        return status
    running = [member for member in jobs if not finished(member[1])]
    active = {reference.get("uid") for reference in status.get("active") or ()}
    policy = spec.get("concurrencyPolicy")
    if policy == "Forbid" and active:
        _emit(outcome, cron_job, NORMAL, "JobAlreadyActive", _FORBIDDEN)
        return status
    name = f"{ref.name}-{int(due) // 60}"
    taken = view.get(Ref("batch", "Job", ref.namespace, name))
    if taken is not None and controller_uid(taken) == cron_job["metadata"]["uid"]:
        return {**status, "lastScheduleTime": format_time(due)}
    if policy == "Replace":
        replaced = [member for member in running if member[1]["metadata"]["uid"] in active]
        _delete(cron_job, replaced, outcome)
        gone = {job["metadata"]["uid"] for _, job in replaced}
        left = [each for each in status.get("active") or () if each.get("uid") not in gone]
        status = {**status, "active": left} if left else _without(status, "active")
    outcome.actions.append(CreateDependent(_job(cron_job, name, due), ref))
    return status


def _parsed(cron_job: Raw, outcome: ActionOutcome) -> CronSchedule | None:
    text, zone = cron_job["spec"].get("schedule") or "", cron_job["spec"].get("timeZone")
    try:
        if zone:
            load_zone(zone)
    except CronError as error:
        message = f'invalid timeZone: "{zone}": {error}'
        _emit(outcome, cron_job, WARNING, "UnknownTimeZone", message)
        return None
    try:
        return parse_cron(text, zone)
    except CronError as error:
        message = f'unparseable schedule: "{text}" : {error}'
        _emit(outcome, cron_job, WARNING, "UnparseableSchedule", message)
        return None


def _most_recent(cron_job: Raw, schedule: CronSchedule, now: float) -> _Due:
    """Like the controller of kube-controller-manager: the number of missed times is estimated from the
    first two, so that a long pause costs no more than a short one."""
    earliest = _last_schedule(cron_job["status"]) or created(cron_job)
    deadline = cron_job["spec"].get("startingDeadlineSeconds")
    if deadline is not None:
        earliest = max(earliest, now - deadline)
    first = schedule.next_after(earliest)
    if first is None or first > now:
        return _Due(None, 0)
    second = schedule.next_after(first)
    if second is None or second > now:
        return _Due(first, 0)
    period = max(1.0, second - first)
    missed = int((now - first) / period) + 1
    recent, following = first, schedule.next_after(first + max(0, missed - 2) * period)
    if following is None or following > now:  # the interval varies
        following = second
    while following is not None and following <= now:
        recent, following = following, schedule.next_after(following)
    return _Due(recent, missed)


def _job(cron_job: Raw, name: str, due: float) -> Raw:
    template = cron_job["spec"].get("jobTemplate") or {}
    given = template.get("metadata") or {}
    zone = cron_job["spec"].get("timeZone")
    local = datetime.fromtimestamp(due, load_zone(zone) if zone else UTC)
    stamp = local.isoformat().replace("+00:00", "Z")
    annotations = {**(given.get("annotations") or {}), SCHEDULED_AT: stamp}
    metadata: Raw = {
        "name": name,
        "namespace": cron_job["metadata"]["namespace"],
        "annotations": annotations,
        "ownerReferences": [reference_to(cron_job)],
    }
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": template.get("spec") or {},
    }


# Old Jobs


def _delete_old(cron_job: Raw, jobs: list[Member], outcome: ActionOutcome) -> None:
    """Keeps as many finished Jobs as the history limits permit, the latest ones."""
    for end, field in (
        ("Complete", "successfulJobsHistoryLimit"),
        ("Failed", "failedJobsHistoryLimit"),
    ):
        limit = cron_job["spec"].get(field)
        if limit is None:
            continue
        over = [member for member in jobs if finished(member[1]) == end]
        over.sort(key=lambda member: (_started(member[1]), member[0].name))
        _delete(cron_job, over[: max(0, len(over) - limit)], outcome)


def _started(job: Raw) -> float:
    return moment((job.get("status") or {}).get("startTime")) or created(job)


def _delete(cron_job: Raw, jobs: list[Member], outcome: ActionOutcome) -> None:
    for ref, job in jobs:
        if not is_going(job):
            outcome.actions.append(DeleteDependent(ref, job["metadata"]["uid"]))
            _emit(outcome, cron_job, NORMAL, "SuccessfulDelete", f"Deleted job {ref.name}")


def _without(raw: Raw, name: str) -> Raw:
    return {key: value for key, value in raw.items() if key != name}


def _emit(outcome: ActionOutcome, cron_job: Raw, type: str, reason: str, message: str) -> None:
    outcome.actions.append(EmitEvent(cron_job, type, reason, message, SOURCE))
