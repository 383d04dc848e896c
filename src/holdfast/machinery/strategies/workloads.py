"""Strategies of workload kinds: selectors, pod templates, replica counts, disruption budgets."""

from __future__ import annotations

from typing import Any

from holdfast.api.decode import convert
from holdfast.api.errors import SelectorError
from holdfast.api.meta import LabelSelector
from holdfast.api.raw_objects import Raw
from holdfast.api.selectors import compile_selector, selector_from_map
from holdfast.machinery.object_request import WriteRequest
from holdfast.machinery.schema import FieldError
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.strategies.strategy import (
    Strategy,
    keep_spec_and_labels,
    keep_status,
    spec_and_annotations,
    spec_of,
    status_of,
    without_status,
)

_IMMUTABLE = "field is immutable"
_JOB_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_JOB_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")
_STRATEGIES = ("Recreate", "RollingUpdate")
_NO_MATCH = "`selector` does not match template `labels`"


def _check_new(kind: str) -> Any:
    def check(request: WriteRequest, raw: Raw) -> list[FieldError]:
        found = [*_check_counts(raw), *_check_selector(kind, raw), *_check_template(raw)]
        return found + (_check_strategy(raw) if kind == "deployment" else [])

    return check


def _check_counts(raw: Raw) -> list[FieldError]:
    spec = raw.get("spec") or {}
    return [
        fields.invalid(f"spec.{name}", spec[name], "must be greater than or equal to 0")
        for name in (
            "replicas",
            "minReadySeconds",
            "revisionHistoryLimit",
            "parallelism",
            "completions",
        )
        if isinstance(spec.get(name), int) and spec[name] < 0
    ]


def _check_selector(kind: str, raw: Raw) -> list[FieldError]:
    spec = raw.get("spec") or {}
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if kind == "replication controller":
        if not selector:
            return [fields.required("spec.selector")]
        if not selector_from_map(selector).matches(labels):
            return [fields.invalid("spec.template.metadata.labels", labels, _NO_MATCH)]
        return []
    if selector is None:
        return [
            fields.required("spec.selector"),
            fields.invalid("spec.template.metadata.labels", labels or None, _NO_MATCH),
        ]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return [fields.invalid("spec.selector", selector, f"empty selector is invalid for {kind}")]
    try:
        if not compile_selector(convert(selector, LabelSelector)).matches(labels):
            return [fields.invalid("spec.template.metadata.labels", labels, _NO_MATCH)]
    except SelectorError as error:
        return [fields.invalid("spec.selector", selector, str(error))]
    return []


def _check_template(raw: Raw) -> list[FieldError]:
    pod = ((raw.get("spec") or {}).get("template") or {}).get("spec") or {}
    found = []
    if not pod.get("containers"):
        found.append(fields.required("spec.template.spec.containers"))
    policy = pod.get("restartPolicy", "Always")
    if policy != "Always":
        found.append(fields.not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    return found


def _check_strategy(raw: Raw) -> list[FieldError]:
    strategy = (raw.get("spec") or {}).get("strategy") or {}
    if strategy.get("type", _STRATEGIES[1]) in _STRATEGIES:
        return []
    return [fields.not_supported("spec.strategy", strategy, _STRATEGIES)]


def _check_changed(kind: str, *immutable: str) -> Any:
    def check(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
        was, now = before.get("spec") or {}, after.get("spec") or {}
        found = [
            fields.invalid(f"spec.{name}", now.get(name), _IMMUTABLE)
            for name in immutable
            if was.get(name) != now.get(name)
        ]
        return [*_check_new(kind)(request, after), *found]

    return check


def _controller(kind: str, *immutable: str, generation_of: Any = spec_of, **zeros: int) -> Strategy:
    return Strategy(
        generation_of=generation_of,
        new=status_of(**zeros),
        changed=keep_status,
        status_changed=keep_spec_and_labels,
        check_new=_check_new(kind),
        check_changed=_check_changed(kind, *immutable),
    )


DEPLOYMENT = _controller("deployment", "selector", generation_of=spec_and_annotations)
REPLICA_SET = _controller("replicaset", "selector", replicas=0)
STATEFUL_SET = _controller(
    "statefulset", "selector", "serviceName", "podManagementPolicy", replicas=0, availableReplicas=0
)
DAEMON_SET = _controller(
    "daemonset",
    "selector",
    currentNumberScheduled=0,
    numberMisscheduled=0,
    desiredNumberScheduled=0,
    numberReady=0,
)
REPLICATION_CONTROLLER = _controller("replication controller", replicas=0)


def _new_job(request: WriteRequest, raw: Raw) -> Raw:
    """A job selects its pods by its UID unless it has a manual selector."""
    spec = {"manualSelector": False, **(raw.get("spec") or {})}
    labels = raw["metadata"].get("labels")
    if not spec.get("manualSelector"):
        uid, name = raw["metadata"]["uid"], raw["metadata"].get("name") or ""
        own = {
            **dict.fromkeys(_JOB_LABELS, uid),
            **dict.fromkeys(_JOB_NAME_LABELS, name[:63]),
        }
        template = dict(spec.get("template") or {})
        metadata = dict(template.get("metadata") or {})
        metadata["labels"] = {**(metadata.get("labels") or {}), **own}
        spec["template"] = {**template, "metadata": metadata}
        spec["selector"] = {"matchLabels": {_JOB_LABELS[0]: uid}}
        # A job without labels of its own takes those of its template.
        labels = labels or metadata["labels"]
    own_metadata = {**raw["metadata"], "labels": labels} if labels else raw["metadata"]
    return {**raw, "metadata": own_metadata, "spec": spec, "status": {}}


def _check_new_job(request: WriteRequest, raw: Raw) -> list[FieldError]:
    found = _check_counts(raw)
    pod = ((raw.get("spec") or {}).get("template") or {}).get("spec") or {}
    if not pod.get("containers"):
        found.append(fields.required("spec.template.spec.containers"))
    if pod.get("restartPolicy") in (None, "", "Always"):
        why = 'valid values: "OnFailure", "Never"'
        found.append(fields.required("spec.template.spec.restartPolicy", why))
    return found


def _check_changed_job(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    was, now = before.get("spec") or {}, after.get("spec") or {}
    # While a job is suspended and has not begun, what decides where its pods go may still change.
    free = bool(was.get("suspend")) and not (before.get("status") or {}).get("startTime")
    names = (
        ("selector", "completions", "completionMode")
        if free
        else ("selector", "completions", "completionMode", "template")
    )
    indexed = was.get("completionMode") == "Indexed"
    found = []
    for name in names:
        if was.get(name) != now.get(name):
            if name == "completions" and indexed and now.get("parallelism") == now.get("completions"):
                continue
            found.append(fields.invalid(f"spec.{name}", now.get(name), _IMMUTABLE))
    return found


JOB = Strategy(
    generation_of=spec_of,
    orphans=True,
    new=_new_job,
    changed=keep_status,
    status_changed=keep_spec_and_labels,
    check_new=_check_new_job,
    check_changed=_check_changed_job,
)
CRON_JOB = Strategy(generation_of=spec_of, new=without_status, changed=keep_status)
BUDGET = Strategy(
    generation_of=spec_of,
    unconditional_update=False,
    new=status_of(disruptionsAllowed=0, currentHealthy=0, desiredHealthy=0, expectedPods=0),
    changed=keep_status,
)
