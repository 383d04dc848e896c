"""Explains a CronJob: its next run, runs that were missed, and the pods of its newest Job."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from zoneinfo import available_timezones

from holdfast.api.cron import CronError, CronSchedule, load_zone, never_due_text, parse_cron
from holdfast.api.errors import TimeError
from holdfast.api.kinds import KINDS
from holdfast.api.plurals import number_of
from holdfast.api.similar_names import did_you_mean
from holdfast.api.times import format_time, parse_time
from holdfast.explanation.facts.pod_owners import CRON_JOB, controller_of
from holdfast.explanation.phrases import in_time
from holdfast.explanation.report import Advice, Report, few
from holdfast.explanation.subjects.uncreated_pods import pods_of_template, wanted_pods
from holdfast.explanation.subjects.workloads import explain_workload, explained_new_pods
from holdfast.kube.object_client import Raw
from holdfast.snapshot.cluster_changes import patch
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

JOB = KINDS["batch/v1", "Job"]
_MANY = 100
"""Missed runs are counted up to this number."""
_SHORT = 10
"""A starting deadline of fewer seconds may be missed always: the controller looks every 10 seconds."""


def explain_cron_job(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    """Its Jobs are those that the snapshot has: schedulers do not read them, the caller adds them."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    report = Report(f"CronJob {metadata.get('namespace') or ''}/{metadata['name']}", "Scheduled", "")
    jobs = [each for each in snapshot.all(JOB) if _is_of(each, raw)]
    jobs.sort(key=lambda each: (_created(each), each["metadata"]["name"]), reverse=True)
    active = [each for each in jobs if not finished(each)]
    texts = []
    try:
        schedule = _schedule(spec)
    except CronError as error:
        report.phase = "Invalid"
        texts.append(f"{error} It starts no Jobs.")
        if hint := _zone_hint(spec):
            report.details.append(hint)
    else:
        texts += _runs(snapshot, raw, schedule, active, report)
    texts += _last_run(raw, jobs)
    report.members = [f"Job {each['metadata']['name']} is {_state(each)}" for each in jobs]
    if active:
        _active(snapshot, raw, active, texts, report)
    starts = not active and report.phase != "Invalid" and _starts_next(snapshot, raw, report)
    if report.phase == "Suspended":
        _consider_resuming(snapshot, raw, _schedule(spec), bool(active) or starts, report)
    report.summary = " ".join(texts)
    return report


# The schedule


def _schedule(spec: Raw) -> CronSchedule:
    """Raises CronError with a sentence."""
    text, zone = str(spec.get("schedule") or ""), spec.get("timeZone")
    if zone:
        try:
            load_zone(str(zone))
        except CronError as error:
            raise CronError(f"Its spec.timeZone is invalid: {error}.") from None
    try:
        return parse_cron(text, str(zone) if zone else None)
    except CronError as error:
        raise CronError(f"Its spec.schedule {text!r} is invalid: {error}.") from None


def _zone_hint(spec: Raw) -> str:
    zone = str(spec.get("timeZone") or "")
    near = did_you_mean(zone, sorted(available_timezones())) if zone else ""
    return f"there is no time zone {zone}{near}" if near else ""


class _Missed(NamedTuple):
    first: float
    number: int
    is_in_time: bool
    """Whether the last of them can still be started."""


def _missed(raw: Raw, schedule: CronSchedule, now: float) -> _Missed | None:
    """The runs that were due since the last one, or since the CronJob exists."""
    deadline = (raw.get("spec") or {}).get("startingDeadlineSeconds")
    since = _time((raw.get("status") or {}).get("lastScheduleTime")) or _created(raw)
    first = schedule.next_after(since)
    if first is None or first > now:
        return None
    due, count = first, 1
    while count <= _MANY and (then := schedule.next_after(due)) is not None and then <= now:
        due, count = then, count + 1
    recent = schedule.next_after(max(since, now - deadline)) if deadline is not None else due
    return _Missed(first, count, recent is not None and recent <= now)


def _runs(
    snapshot: ClusterSnapshot, raw: Raw, schedule: CronSchedule, active: list[Raw], report: Report
) -> Iterator[str]:
    spec, now = raw.get("spec") or {}, snapshot.now
    policy, deadline = spec.get("concurrencyPolicy") or "Allow", spec.get("startingDeadlineSeconds")
    following, missed = schedule.next_after(now), _missed(raw, schedule, now)
    zone = f" ({spec['timeZone']})" if spec.get("timeZone") else ""
    at = f"{format_time(following)}, {in_time(following, now)}" if following is not None else ""
    if spec.get("suspend"):
        report.phase = "Suspended"
        yield "It is suspended (spec.suspend), and starts no Jobs until it is resumed."
        return
    if missed is not None:
        runs = number_of(missed.number, "run") if missed.number <= _MANY else f"more than {_MANY} runs"
        since = f"{runs} since {format_time(missed.first)}"
        if policy == "Forbid" and active:
            yield (
                f"{since} {'was' if missed.number == 1 else 'were'} not started: Job "
                f"{active[0]['metadata']['name']} has not ended, and spec.concurrencyPolicy is Forbid."
            )
        elif missed.is_in_time:
            yield (
                f"The run of {format_time(missed.first)} is started next."
                if missed.number == 1
                else (f"{since} are due, of which the last one is started next.")
            )
            report.details.append("if it is not, the controller of CronJobs does not run")
        else:
            report.phase = "Missed"
            yield (
                f"{since} {'was' if missed.number == 1 else 'were'} missed: not started within "
                f"spec.startingDeadlineSeconds, {deadline}."
            )
            report.details.append(f"to start one now: {_by_hand(raw)}")
    if deadline is not None and deadline < _SHORT:
        report.details.append(
            f"spec.startingDeadlineSeconds is {deadline}: the controller looks every {_SHORT} seconds, "
            "so that it may start none"
        )
    if following is None:
        report.phase = "Never due"
        yield f"It never runs: {_never(raw)}."
    else:
        yield f"Its next run is {at}{zone}."
    is_said = policy == "Allow" or (policy == "Forbid" and missed is not None)
    if active and following is not None and not is_said:
        then = "is not started" if policy == "Forbid" else "replaces it"
        report.details.append(
            f"if Job {active[0]['metadata']['name']} still runs by then, that run {then} "
            f"(spec.concurrencyPolicy is {policy})"
        )


def _consider_resuming(
    snapshot: ClusterSnapshot, raw: Raw, schedule: CronSchedule, starts: bool, report: Report
) -> None:
    """Advises to resume it, if the pods of its next Job would then start."""
    metadata, body = raw["metadata"], {"spec": {"suspend": False}}
    merged = json.dumps(body, separators=(",", ":"))
    command = f"kubectl patch cronjob {metadata['name']}{_where(raw)} -p '{merged}'"
    following, missed = schedule.next_after(snapshot.now), _missed(raw, schedule, snapshot.now)
    if missed is not None and missed.is_in_time:
        then = "a run that was missed meanwhile is then started at once"
    elif following is None:
        report.details.append(f"it would not run then either: {_never(raw)}")
        return
    else:
        then = f"its next run is then {format_time(following)}, {in_time(following, snapshot.now)}"
    if not starts:
        report.details.append(f"to resume it: {command}; {then}")
        return
    change = {"actions": ["Resume"], "objects": [patch(CRON_JOB, raw, body).data()]}
    report.advice.insert(0, Advice(f"resume it ({command}); {then}", change, []))


def _never(raw: Raw) -> str:
    return never_due_text(str((raw.get("spec") or {}).get("schedule")))


def _by_hand(raw: Raw) -> str:
    name = raw["metadata"]["name"]
    return f"kubectl create job {name}-by-hand --from=cronjob/{name}{_where(raw)}"


def _where(raw: Raw) -> str:
    namespace = raw["metadata"].get("namespace")
    return f" -n {namespace}" if namespace not in (None, "", "default") else ""


# Its Jobs


def finished(job: Raw) -> str:
    """`Complete` or `Failed`; empty if it has not ended."""
    for each in (job.get("status") or {}).get("conditions") or ():
        if each.get("type") in ("Complete", "Failed") and each.get("status") == "True":
            return str(each["type"])
    return ""


def _state(job: Raw) -> str:
    for each in (job.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Failed" and each.get("status") == "True":
            why = ": ".join(filter(None, (each.get("reason"), each.get("message"))))
            return f"Failed ({why})" if why else "Failed"
    return finished(job) or "active"


def _last_run(raw: Raw, jobs: list[Raw]) -> Iterator[str]:
    """When it last ran, and how that ended."""
    status = raw.get("status") or {}
    ended = [each for each in jobs if finished(each)]
    if last := status.get("lastScheduleTime"):
        newest = jobs[0] if jobs else None
        became = ""
        if newest is not None and newest in ended:
            became = f": Job {newest['metadata']['name']} is {_state(newest)}"
        yield f"Its last run was {last}{became}."
    elif not jobs:
        yield "It has never run."


def _active(
    snapshot: ClusterSnapshot, raw: Raw, active: list[Raw], texts: list[str], report: Report
) -> None:
    """The newest Job that has not ended, by its pods."""
    newest = active[0]
    name = newest["metadata"]["name"]
    with _with_jobs(snapshot, active):
        found = explain_workload(snapshot, newest)
    report.phase = report.phase if report.phase != "Scheduled" else "Active"
    others = f" (also active: {few([each['metadata']['name'] for each in active[1:]], 3)})"
    texts.append(f"Job {name}{others if len(active) > 1 else ''}: {found.summary}")
    report.details += found.details
    report.advice += found.advice
    report.pods, report.nodes, report.holders = found.pods, found.nodes, found.holders
    report.told, report.would_say = found.told, found.would_say
    if any("template of CronJob" in each.text for each in found.advice):
        report.details.append(
            f"a Job keeps its template: once that of the CronJob is changed, delete Job {name} and "
            f"wait for the next run, or start one ({_by_hand(raw)})"
        )


def _starts_next(snapshot: ClusterSnapshot, raw: Raw, report: Report) -> bool:
    """Whether the pods of the next Job would start if it ran now; says why not."""
    metadata, job = raw["metadata"], ((raw.get("spec") or {}).get("jobTemplate") or {})
    name, namespace = f"{metadata['name']}-next", metadata.get("namespace") or ""
    if not (job.get("spec") or {}).get("template"):
        return True
    owner = {"apiVersion": CRON_JOB.api_version, "kind": CRON_JOB.kind, "controller": True}
    made: Raw = {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": name,
            "ownerReferences": [{**owner, "name": metadata["name"], "uid": metadata.get("uid")}],
        },
        "spec": job["spec"],
    }
    pods = pods_of_template(snapshot, made, wanted_pods(made))
    if not pods:
        return True
    with _with_jobs(snapshot, [made]):
        found = explained_new_pods(snapshot, pods)
    report.details += [f"if it ran now, {found.pending}"] if found.pending else []
    report.details += found.details
    if found.report is None:
        return True
    report.advice += found.advice
    report.nodes, report.would_say = found.report.nodes, found.report.would_say
    return False


@contextmanager
def _with_jobs(snapshot: ClusterSnapshot, jobs: list[Raw]) -> Iterator[None]:
    """Has the snapshot know these Jobs, which schedulers do not read, so that advice is about the
    CronJob."""
    known = snapshot.objects.setdefault((JOB.api_version, JOB.kind), {})
    before = dict(known)
    known.update({(j["metadata"].get("namespace") or "", j["metadata"]["name"]): j for j in jobs})
    try:
        yield
    finally:
        known.clear()
        known.update(before)


def _is_of(job: Raw, cron_job: Raw) -> bool:
    owner, metadata = controller_of(job), cron_job["metadata"]
    if job["metadata"].get("namespace") != metadata.get("namespace"):
        return False
    is_named = (owner.get("kind"), owner.get("name")) == (CRON_JOB.kind, metadata["name"])
    return is_named and owner.get("uid") in (metadata.get("uid"), None, "")


def _created(raw: Raw) -> float:
    return _time(raw["metadata"].get("creationTimestamp")) or 0.0


def _time(text: object) -> float | None:
    try:
        return parse_time(str(text)) if text else None
    except TimeError:
        return None
