"""The Job controller: runs pods to completion, including indexed Jobs.

A pod is created with a finalizer and counted in the same step that removes it, so each is counted
exactly once, even if it is deleted right after its end. With `backoffLimitPerIndex` the last failed pod
of an index keeps its finalizer until the next pod of the index has its count of failures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from holdfast.api.times import format_time
from holdfast.local.workloads.job_indexes import INDEX, Indexes, index_of, with_index
from holdfast.local.workloads.job_policies import (
    FAIL_JOB,
    counts_per_index,
    fails_index,
    failure_annotations,
    failures_before,
    match_failure,
    matching_success_rule,
)
from holdfast.local.workloads.lister import (
    BURST,
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
    is_going,
    with_metadata,
)
from holdfast.local.workloads.pods import (
    condition,
    created,
    ended,
    from_template,
    moment,
    phase,
    ready,
    with_condition,
)

SOURCE = "job-controller"
TRACKING = "batch.kubernetes.io/job-tracking"
BACKOFF_LIMIT = 6
_COMPLETIONS_REACHED, _SUCCESS_POLICY = "CompletionsReached", "SuccessPolicy"
_FIRST_WAIT, _LONGEST_WAIT = 10.0, 600.0


@dataclass(slots=True)
class _Pods:
    """A job's pods, counted."""

    running: list[Member] = field(default_factory=list)
    going: list[Member] = field(default_factory=list)
    uncounted: list[Member] = field(default_factory=list)
    """Pods that have ended, and have their finalizer still."""
    succeeded: int = 0
    failed: int = 0
    done: Indexes = field(default_factory=Indexes)
    """Indexes that are done, of an Indexed job."""
    failed_indexes: Indexes = field(default_factory=Indexes)
    """Indexes that are not tried again, with `backoffLimitPerIndex`."""
    kept: dict[int, Member] = field(default_factory=dict)
    """The last failed pod of each index that is to be tried again: it is not counted yet."""


def finished(job: Raw) -> str:
    """The Complete or Failed condition, if it is set."""
    for type in ("Complete", "Failed"):
        found = condition(job, type)
        if found is not None and found.get("status") == "True":
            return type
    return ""


def reconcile(view: Lister, ref: Ref, job: Raw, now: float) -> ActionOutcome:
    outcome = ActionOutcome()
    members = [*view.controlled(job["metadata"]["uid"], "Pod")]
    pods = _count(job, members)
    if finished(job):
        _release(pods, outcome)
        for member in pods.running:
            outcome.actions.append(DeleteDependent(member[0], member[1]["metadata"]["uid"]))
        _expire(ref, job, now, outcome)
        return outcome
    if is_going(job):
        _release(pods, outcome)
        return outcome
    status = {**(job.get("status") or {})}
    status["conditions"] = [*(status.get("conditions") or ())]
    _suspension(job, status, now, outcome)
    verdict = _verdict(job, pods, status, now)
    if verdict is not None:
        pods.kept.clear()
        _end(job, pods, status, verdict, now, outcome)
    elif job["spec"].get("suspend"):
        _stop(job, pods.running, outcome)
    else:
        deadline = job["spec"].get("activeDeadlineSeconds")
        if deadline is not None:
            outcome.sync_again((moment(status.get("startTime")) or now) + deadline)
        _manage(view, ref, job, members, pods, now, outcome)
    _release(pods, outcome)
    _write(ref, job, pods, status, outcome)
    return outcome


def _count(job: Raw, members: list[Member]) -> _Pods:
    status, below = job.get("status") or {}, _completions(job)
    pods = _Pods(
        succeeded=int(status.get("succeeded") or 0),
        failed=int(status.get("failed") or 0),
        done=Indexes.read(status.get("completedIndexes") or "", below),
        failed_indexes=Indexes.read(status.get("failedIndexes") or "", below),
    )
    for ref, pod in members:
        if not ended(pod):
            (pods.going if is_going(pod) else pods.running).append((ref, pod))
        elif TRACKING in (pod["metadata"].get("finalizers") or ()):
            pods.uncounted.append((ref, pod))
    succeeded = [pod for _, pod in pods.uncounted if phase(pod) != "Failed"]
    failed = [(ref, pod) for ref, pod in pods.uncounted if phase(pod) == "Failed"]
    pods.failed += sum(match_failure(job, pod).counts for _, pod in failed)
    if not _indexed(job):
        pods.succeeded += len(succeeded)
        return pods
    numbers = (index_of(pod) for pod in succeeded)
    pods.done = pods.done.and_also(n for n in numbers if n is not None and n < below)
    pods.succeeded = len(pods.done)
    if counts_per_index(job):
        _count_per_index(job, failed, pods, below)
    return pods


def _count_per_index(job: Raw, failed: list[Member], pods: _Pods, below: int) -> None:
    by_index: dict[int, list[Member]] = {}
    for member in failed:
        index = index_of(member[1])
        if index is not None and index < below:
            by_index.setdefault(index, []).append(member)
    pods.failed_indexes = pods.failed_indexes.and_also(
        index
        for index, there in by_index.items()
        if index not in pods.done and any(fails_index(job, pod) for _, pod in there)
    )
    active = {index_of(pod) for _, pod in pods.running}
    pods.kept = {
        index: max(there, key=lambda each: (failures_before(each[1]), _end_of(each[1])))
        for index, there in by_index.items()
        if index not in active and index not in pods.done and index not in pods.failed_indexes
    }


def _release(pods: _Pods, outcome: ActionOutcome) -> None:
    """Removes the finalizer of pods that are counted."""
    kept = {ref for ref, _ in pods.kept.values()}
    for ref, pod in pods.uncounted:
        if ref not in kept:
            finalizers = [each for each in pod["metadata"]["finalizers"] if each != TRACKING]
            outcome.update(ref, pod, with_metadata(pod, finalizers=finalizers))


def _indexed(job: Raw) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _completions(job: Raw) -> int:
    """How many pods have to succeed; without `completions`, one is enough once no other runs."""
    completions = job["spec"].get("completions")
    return 1 if completions is None else int(completions)


def _parallelism(job: Raw) -> int:
    parallelism = job["spec"].get("parallelism")
    return 1 if parallelism is None else int(parallelism)


_Verdict = tuple[str, str, str]
"""Complete or Failed, the reason and the message."""


def _verdict(job: Raw, pods: _Pods, status: Raw, now: float) -> _Verdict | None:
    spec = job["spec"]
    for _, pod in pods.uncounted:
        match = match_failure(job, pod) if phase(pod) == "Failed" else None
        if match is not None and match.action == FAIL_JOB:
            return "Failed", "PodFailurePolicy", match.message
    limit = spec.get("backoffLimit")
    if limit is None:
        limit = BACKOFF_LIMIT if not counts_per_index(job) else pods.failed
    if pods.failed > limit:
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    started, deadline = moment(status.get("startTime")), spec.get("activeDeadlineSeconds")
    if deadline is not None and started is not None and now - started >= deadline:
        return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    if spec.get("completions") is None and not _indexed(job):
        done = pods.succeeded > 0 and not pods.running and not pods.going
    else:
        done = pods.succeeded >= _completions(job)
    found = _index_verdict(job, pods) if _indexed(job) else None
    if found is None and done:
        return "Complete", _COMPLETIONS_REACHED, "Reached expected number of succeeded pods"
    return found


def _index_verdict(job: Raw, pods: _Pods) -> _Verdict | None:
    failed, most = len(pods.failed_indexes), job["spec"].get("maxFailedIndexes")
    if most is not None and failed > most:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return "Failed", "MaxFailedIndexesExceeded", message
    if failed and failed + pods.succeeded >= _completions(job):
        return "Failed", "FailedIndexes", "Job has failed indexes"
    rule = matching_success_rule(job, pods.done, _completions(job))
    return None if rule is None else ("Complete", _SUCCESS_POLICY, f"Matched rules at index {rule}")


def _end(
    job: Raw,
    pods: _Pods,
    status: Raw,
    verdict: _Verdict,
    now: float,
    outcome: ActionOutcome,
) -> None:
    type, reason, message = verdict
    stamp = format_time(now)
    for member in pods.running:
        outcome.actions.append(DeleteDependent(member[0], member[1]["metadata"]["uid"]))
    # The condition that announces the verdict before the last pod is gone.
    first = "SuccessCriteriaMet" if type == "Complete" else "FailureTarget"
    for each in (first, type):
        new = {"type": each, "status": "True", "reason": reason, "message": message}
        status["conditions"] = with_condition(
            status["conditions"], {**new, "lastProbeTime": stamp}, stamp
        )
    if type == "Complete":
        status["completionTime"] = stamp
        outcome.actions.append(EmitEvent(job, NORMAL, "Completed", "Job completed", SOURCE))
    else:
        outcome.actions.append(EmitEvent(job, WARNING, reason, message, SOURCE))
    if reason != _COMPLETIONS_REACHED:
        pods.failed += len(pods.running)
    pods.running.clear()
    outcome.sync_again(_expiry(job, stamp))


def _suspension(job: Raw, status: Raw, now: float, outcome: ActionOutcome) -> None:
    suspended = bool(job["spec"].get("suspend"))
    before = condition({"status": status}, "Suspended")
    stamp = format_time(now)
    was = before is not None and before.get("status") == "True"
    if suspended and not was:
        new = {"reason": "JobSuspended", "message": "Job suspended", "status": "True"}
        status.pop("startTime", None)
        outcome.actions.append(EmitEvent(job, NORMAL, "Suspended", "Job suspended", SOURCE))
    elif was and not suspended:
        new = {"reason": "JobResumed", "message": "Job resumed", "status": "False"}
        outcome.actions.append(EmitEvent(job, NORMAL, "Resumed", "Job resumed", SOURCE))
    else:
        new = {}
    if new:
        placed = {"type": "Suspended", "lastProbeTime": stamp, **new}
        status["conditions"] = with_condition(status["conditions"], placed, stamp)
    if not suspended and not status.get("startTime"):
        status["startTime"] = stamp


def _manage(
    view: Lister,
    ref: Ref,
    job: Raw,
    members: list[Member],
    pods: _Pods,
    now: float,
    outcome: ActionOutcome,
) -> None:
    parallelism = _parallelism(job)
    if job["spec"].get("completions") is None and not _indexed(job):
        # Work of unknown size: once one has succeeded, the others are let run out.
        wanted = len(pods.running) if pods.succeeded else parallelism
    else:
        wanted = min(parallelism, _completions(job) - pods.succeeded)
    surplus = len(pods.running) - wanted
    if surplus > 0:
        youngest = sorted(pods.running, key=lambda each: (ready(each[1]), -created(each[1])))
        _stop(job, youngest[:surplus], outcome)
        return
    # A terminating pod is replaced at once, unless the job waits for it to be gone.
    spec = job["spec"]
    replaces_failed = spec.get("podReplacementPolicy") == "Failed" or spec.get("podFailurePolicy")
    waited_for = pods.going if replaces_failed else []
    missing = wanted - len(pods.running) - len(waited_for)
    if missing <= 0:
        return
    until = _backed_off_until(job, members) if view.waits else 0.0
    if until > now and not counts_per_index(job):
        outcome.sync_again(until)
        return
    missing = min(missing, BURST)
    if not _indexed(job):
        outcome.actions += [CreateDependent(_pod(job, None), ref) for _ in range(missing)]
        return
    taken = {index_of(pod) for _, pod in (*pods.running, *waited_for)}
    over = pods.done.joined(pods.failed_indexes)
    free = (index for index in over.others(_completions(job)) if index not in taken)
    for index in islice(free, missing):
        kept = pods.kept.get(index)
        until = _index_backed_off_until(kept[1]) if kept is not None and view.waits else 0.0
        if until > now:
            outcome.sync_again(until)
            continue
        pod = _pod(job, index, kept[1] if kept is not None else None)
        outcome.actions.append(CreateDependent(pod, ref))


def _stop(job: Raw, members: list[Member], outcome: ActionOutcome) -> None:
    for ref, pod in members:
        # It did not fail, it was not wanted: without the finalizer it is not counted.
        kept = [each for each in pod["metadata"].get("finalizers") or () if each != TRACKING]
        outcome.update(ref, pod, with_metadata(pod, finalizers=kept))
        outcome.actions.append(DeleteDependent(ref, pod["metadata"]["uid"]))
        message = f"Deleted pod: {ref.name}"
        outcome.actions.append(EmitEvent(job, NORMAL, "SuccessfulDelete", message, SOURCE))


def _backed_off_until(job: Raw, members: list[Member]) -> float:
    """When the next pod may be created: the delay doubles with each failure until a pod succeeds.
    Failures that the failure policy ignores do not delay it."""
    ends = sorted(
        (_end_of(pod), phase(pod))
        for _, pod in members
        if ended(pod) and (phase(pod) != "Failed" or match_failure(job, pod).counts)
    )
    failures = 0
    for _, how in reversed(ends):
        if how != "Failed":
            break
        failures += 1
    if not failures:
        return 0.0
    return ends[-1][0] + _delay(failures)


def _index_backed_off_until(last: Raw) -> float:
    return _end_of(last) + _delay(failures_before(last) + 1)


def _delay(failures: int) -> float:
    return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(failures - 1, 16))


def _end_of(pod: Raw) -> float:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [
        moment(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for each in statuses
    ]
    known = [end for end in ends if end is not None]
    if known:
        return max(known)
    found = condition(pod, "Ready")
    return moment((found or {}).get("lastTransitionTime")) or created(pod)


def _pod(job: Raw, index: int | None, replaced: Raw | None = None) -> Raw:
    """A pod of the Job; `replaced` is the failed pod of the index before it."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    template = job["spec"].get("template") or {}
    if index is None:
        return from_template(job, template, labels=labels, finalizers=(TRACKING,))
    template, more = with_index(template, name, index)
    marks = {INDEX: str(index)}
    failures = failure_annotations(job, replaced) if counts_per_index(job) else {}
    pod = from_template(
        job,
        template,
        labels=labels | marks,
        annotations=marks | failures,
        spec=more,
        finalizers=(TRACKING,),
    )
    return with_metadata(pod, generateName=f"{name[:50]}-{index}-")


def _write(ref: Ref, job: Raw, pods: _Pods, status: Raw, outcome: ActionOutcome) -> None:
    not_counted = sum(match_failure(job, pod).counts for _, pod in pods.kept.values())
    counts = {
        "active": len(pods.running),
        "ready": sum(ready(pod) for _, pod in pods.running),
        "terminating": len(pods.going),
        "succeeded": pods.succeeded,
        "failed": pods.failed - not_counted,
        "completedIndexes": str(pods.done) if _indexed(job) else "",
    }
    merged = {**status, **counts}
    kept = {key: value for key, value in merged.items() if value or key in ("ready", "terminating")}
    if counts_per_index(job):
        kept["failedIndexes"] = str(pods.failed_indexes)
    outcome.update(ref, job, {**job, "status": kept})


def _expiry(job: Raw, ended_at: str | None) -> float | None:
    ttl, end = job["spec"].get("ttlSecondsAfterFinished"), moment(ended_at)
    return end + ttl if ttl is not None and end is not None else None


def _expire(ref: Ref, job: Raw, now: float, outcome: ActionOutcome) -> None:
    """Deletes a finished Job after `ttlSecondsAfterFinished`."""
    found = condition(job, finished(job))
    due = _expiry(job, (found or {}).get("lastTransitionTime"))
    if due is None or is_going(job):
        return
    if due <= now:
        outcome.actions.append(DeleteDependent(ref, job["metadata"]["uid"]))
    else:
        outcome.sync_again(due)
