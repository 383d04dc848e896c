"""The rules of a Job: podFailurePolicy, backoffLimitPerIndex and successPolicy."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.api.selectors import as_integer
from holdfast.local.workloads.job_indexes import Indexes
from holdfast.local.workloads.lister import Raw, annotations_of

FAIL_JOB, FAIL_INDEX, IGNORE = "FailJob", "FailIndex", "Ignore"


# Pod failure policy


class FailureMatch(NamedTuple):
    """The first rule of the policy that a failed pod matches; without one the pod counts as failed."""

    action: str = ""
    message: str = ""
    """What pod matches which rule, for the conditions of the Job."""

    @property
    def counts(self) -> bool:
        """Whether the pod counts as failed."""
        return self.action != IGNORE


def match_failure(job: Raw, pod: Raw) -> FailureMatch:
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    name = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
    status = pod.get("status") or {}
    for number, rule in enumerate(rules):
        action = rule.get("action", "")
        place = f"matching {action} rule at index {number}"
        if rule.get("onExitCodes"):
            found = _matching_container(status, rule["onExitCodes"])
            if found is not None:
                code = found["state"]["terminated"]["exitCode"]
                message = (
                    f"Container {found['name']} for pod {name} failed with exit code {code} {place}"
                )
                return FailureMatch(action, message)
        else:
            type = _matching_condition(status, rule.get("onPodConditions") or ())
            if type:
                return FailureMatch(action, f"Pod {name} has condition {type} {place}")
    return FailureMatch()


def _matching_container(status: Raw, wanted: Raw) -> Raw | None:
    """The container whose exit code, other than 0, is In or NotIn the values."""
    name, values = wanted.get("containerName"), wanted.get("values") or ()
    for each in (
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    ):
        terminated = (each.get("state") or {}).get("terminated")
        if terminated is None or name not in (None, each["name"]):
            continue
        code = terminated.get("exitCode", 0)
        if code != 0 and (code in values) == (wanted.get("operator") == "In"):
            found: Raw = each
            return found
    return None


def _matching_condition(status: Raw, patterns: list[Raw] | tuple[()]) -> str:
    for pattern in patterns:
        wanted = pattern.get("type"), pattern.get("status") or "True"
        for each in status.get("conditions") or ():
            if (each.get("type"), each.get("status")) == wanted:
                return str(each["type"])
    return ""


# Failures of an index


_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def counts_per_index(job: Raw) -> bool:
    return job["spec"].get("backoffLimitPerIndex") is not None


def failures_before(pod: Raw) -> int:
    """Failures of the index, ignored ones included, before this pod."""
    return _number(pod, _FAILURES) + _number(pod, _IGNORED)


def fails_index(job: Raw, pod: Raw) -> bool:
    """Whether the index is not tried again after this failed pod."""
    match = match_failure(job, pod)
    if match.action == FAIL_INDEX:
        return True
    return match.counts and _number(pod, _FAILURES) >= int(job["spec"]["backoffLimitPerIndex"])


def failure_annotations(job: Raw, replaced: Raw | None) -> dict[str, str]:
    """The annotations of the next pod of an index, which replaces this one."""
    if replaced is None:
        return {_FAILURES: "0"}
    counts = match_failure(job, replaced).counts
    failures, ignored = _number(replaced, _FAILURES), _number(replaced, _IGNORED)
    failures, ignored = (failures + 1, ignored) if counts else (failures, ignored + 1)
    return {_FAILURES: str(failures), **({_IGNORED: str(ignored)} if ignored else {})}


def _number(pod: Raw, annotation: str) -> int:
    return max(0, as_integer(annotations_of(pod).get(annotation, "0")) or 0)


# Success policy


def matching_success_rule(job: Raw, done: Indexes, completions: int) -> int | None:
    """The first rule of the success policy that the indexes that are done match."""
    rules = (job["spec"].get("successPolicy") or {}).get("rules") or ()
    if not len(done):
        return None
    for number, rule in enumerate(rules):
        enough, among = rule.get("succeededCount"), rule.get("succeededIndexes")
        if among is None:
            if enough is not None and len(done) >= int(enough):
                return number
            continue
        wanted = Indexes.read(among, below=completions)
        if done.common(wanted) >= (len(wanted) if enough is None else int(enough)):
            return number
    return None
