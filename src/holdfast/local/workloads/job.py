"""The Job controller: runs pods to completion, including indexed Jobs.

A pod is created with a finalizer and counted in the same step that removes it, so each is counted
exactly once, even if it is deleted right after its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from holdfast.api.selectors import as_integer
from holdfast.api.times import format_time
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
    annotations_of,
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

INDEX = "batch.kubernetes.io/job-completion-index"


def index_of(pod: Raw) -> int | None:
    return as_integer(annotations_of(pod).get(INDEX, ""))


class Indexes:
    """A set of completion indexes, kept as intervals (`0-2,4`): a Job may have two billion."""

    def __init__(self, runs: Iterable[range] = ()) -> None:
        self._runs: list[range] = []
        for run in sorted(filter(len, runs), key=lambda each: each.start):
            last = self._runs[-1] if self._runs else range(0)
            if self._runs and run.start <= last.stop:
                self._runs[-1] = range(last.start, max(last.stop, run.stop))
            else:
                self._runs.append(run)

    @classmethod
    def read(cls, text: str, below: int) -> Indexes:
        """The numbers there may be; what is no number is passed over."""
        runs = []
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            start, end = as_integer(first), as_integer(last or first)
            if start is not None and end is not None:
                runs.append(range(max(start, 0), min(end + 1, below)))
        return cls(runs)

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def __str__(self) -> str:
        return ",".join(f"{r.start}-{r.stop - 1}" if len(r) > 1 else f"{r.start}" for r in self._runs)

    def and_also(self, numbers: Iterable[int]) -> Indexes:
        return Indexes([*self._runs, *(range(number, number + 1) for number in numbers)])

    def others(self, below: int) -> Iterator[int]:
        """The numbers that are not among these, lowest first."""
        start = 0
        for run in self._runs:
            yield from range(start, min(run.start, below))
            start = run.stop
        yield from range(start, below)


def with_index(template: Raw, name: str, index: int) -> tuple[Raw, Raw]:
    """The template with the completion index in its containers' environment, and further fields of
    the pod spec.
    """
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}},
    }
    spec = template.get("spec") or {}

    def with_index_variable(containers: list[Raw]) -> list[Raw]:
        return [{**each, "env": [*(each.get("env") or ()), variable]} for each in containers]

    parts = {
        part: with_index_variable(spec[part])
        for part in ("containers", "initContainers")
        if spec.get(part)
    }
    return {**template, "spec": {**spec, **parts}}, {"hostname": f"{name}-{index}"}


# Reconciliation


SOURCE = "job-controller"
TRACKING = "batch.kubernetes.io/job-tracking"
BACKOFF_LIMIT = 6
_FIRST_WAIT, _LONGEST_WAIT = 10.0, 600.0


@dataclass(slots=True)
class _Pods:
    """A job's pods, counted."""

    running: list[Member]
    going: list[Member]
    succeeded: int
    failed: int
    done: Indexes
    """Numbers that are done, of an Indexed job."""


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
    pods = _count(job, members, outcome)
    if finished(job):
        for member in pods.running:
            outcome.actions.append(DeleteDependent(member[0], member[1]["metadata"]["uid"]))
        _expire(ref, job, now, outcome)
        return outcome
    if is_going(job):
        return outcome
    status = {**(job.get("status") or {})}
    status["conditions"] = [*(status.get("conditions") or ())]
    _suspension(job, status, now, outcome)
    verdict = _verdict(job, pods, status, now)
    if verdict is not None:
        _end(job, pods, status, verdict, now, outcome)
    elif job["spec"].get("suspend"):
        _stop(job, pods.running, outcome)
    else:
        deadline = job["spec"].get("activeDeadlineSeconds")
        if deadline is not None:
            outcome.sync_again((moment(status.get("startTime")) or now) + deadline)
        _manage(view, ref, job, members, pods, now, outcome)
    _write(ref, job, pods, status, outcome)
    return outcome


def _count(job: Raw, members: list[Member], outcome: ActionOutcome) -> _Pods:
    status = job.get("status") or {}
    indexed = _indexed(job)
    pods = _Pods(
        [],
        [],
        int(status.get("succeeded") or 0),
        int(status.get("failed") or 0),
        Indexes.read(status.get("completedIndexes") or "", below=_completions(job)),
    )
    newly_done: list[int] = []
    for ref, pod in members:
        if not ended(pod):
            (pods.going if is_going(pod) else pods.running).append((ref, pod))
            continue
        finalizers = pod["metadata"].get("finalizers") or []
        if TRACKING not in finalizers:
            continue  # counted before
        if phase(pod) == "Failed":
            pods.failed += 1
        elif not indexed:
            pods.succeeded += 1
        elif (index := index_of(pod)) is not None and index < _completions(job):
            newly_done.append(index)
        kept = [each for each in finalizers if each != TRACKING]
        outcome.update(ref, pod, with_metadata(pod, finalizers=kept))
    if indexed:
        pods.done = pods.done.and_also(newly_done)
        pods.succeeded = len(pods.done)
    return pods


def _indexed(job: Raw) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _completions(job: Raw) -> int:
    """How many pods have to succeed; without `completions`, one is enough once no other runs."""
    completions = job["spec"].get("completions")
    return 1 if completions is None else int(completions)


def _parallelism(job: Raw) -> int:
    parallelism = job["spec"].get("parallelism")
    return 1 if parallelism is None else int(parallelism)


def _verdict(job: Raw, pods: _Pods, status: Raw, now: float) -> tuple[str, str, str] | None:
    spec = job["spec"]
    limit = spec.get("backoffLimit")
    if pods.failed > (BACKOFF_LIMIT if limit is None else limit):
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    started, deadline = moment(status.get("startTime")), spec.get("activeDeadlineSeconds")
    if deadline is not None and started is not None and now - started >= deadline:
        return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    if spec.get("completions") is None and not _indexed(job):
        done = pods.succeeded > 0 and not pods.running and not pods.going
    else:
        done = pods.succeeded >= _completions(job)
    if done:
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    return None


def _end(
    job: Raw,
    pods: _Pods,
    status: Raw,
    verdict: tuple[str, str, str],
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
        pods.failed += len(pods.running)
        outcome.actions.append(EmitEvent(job, WARNING, reason, message, SOURCE))
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
    waited_for = pods.going if job["spec"].get("podReplacementPolicy") == "Failed" else []
    missing = wanted - len(pods.running) - len(waited_for)
    if missing <= 0:
        return
    until = _backed_off_until(members) if view.waits else 0.0
    if until > now:
        outcome.sync_again(until)
        return
    missing = min(missing, BURST)
    if not _indexed(job):
        outcome.actions += [CreateDependent(_pod(job, None), ref) for _ in range(missing)]
        return
    taken = {index_of(pod) for _, pod in (*pods.running, *waited_for)}
    free = (index for index in pods.done.others(_completions(job)) if index not in taken)
    outcome.actions += [CreateDependent(_pod(job, index), ref) for index in islice(free, missing)]


def _stop(job: Raw, members: list[Member], outcome: ActionOutcome) -> None:
    for ref, pod in members:
        # It did not fail, it was not wanted: without the finalizer it is not counted.
        kept = [each for each in pod["metadata"].get("finalizers") or () if each != TRACKING]
        outcome.update(ref, pod, with_metadata(pod, finalizers=kept))
        outcome.actions.append(DeleteDependent(ref, pod["metadata"]["uid"]))
        message = f"Deleted pod: {ref.name}"
        outcome.actions.append(EmitEvent(job, NORMAL, "SuccessfulDelete", message, SOURCE))


def _backed_off_until(members: list[Member]) -> float:
    """When the next pod may be created: the delay doubles with each failure until a pod succeeds."""
    ends = sorted((_end_of(pod), phase(pod)) for _, pod in members if ended(pod))
    failures = 0
    for _, how in reversed(ends):
        if how != "Failed":
            break
        failures += 1
    if not failures:
        return 0.0
    return ends[-1][0] + min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(failures - 1, 16))


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


def _pod(job: Raw, index: int | None) -> Raw:
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
    pod = from_template(
        job,
        template,
        labels=labels | marks,
        annotations=marks,
        spec=more,
        finalizers=(TRACKING,),
    )
    return with_metadata(pod, generateName=f"{name[:50]}-{index}-")


def _write(ref: Ref, job: Raw, pods: _Pods, status: Raw, outcome: ActionOutcome) -> None:
    counts = {
        "active": len(pods.running),
        "ready": sum(ready(pod) for _, pod in pods.running),
        "terminating": len(pods.going),
        "succeeded": pods.succeeded,
        "failed": pods.failed,
        "completedIndexes": str(pods.done) if _indexed(job) else "",
    }
    merged = {**status, **counts}
    kept = {key: value for key, value in merged.items() if value or key in ("ready", "terminating")}
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
