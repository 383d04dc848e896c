"""Strategies of PodGroups and Workloads of `scheduling.k8s.io`.

The features that Kubernetes 1.37 has as alpha and that are not served here are off, as on its own API
server: composite groups, and the preemption policy of a group. Their fields are dropped.
"""

from __future__ import annotations

from holdfast.api.names import POD_GROUP_FINALIZER
from holdfast.api.raw_objects import Raw
from holdfast.machinery.object_request import WriteRequest
from holdfast.machinery.schema import FieldError
from holdfast.machinery.status import forbidden
from holdfast.machinery.strategies.admission import class_priority
from holdfast.machinery.strategies.strategy import (
    Strategy,
    keep_all_but_status,
    keep_status,
)
from holdfast.machinery.validation.pod_groups import check_status, group_changes, workload_changes

_OFF = ("parentCompositePodGroupName", "preemptionPolicy")


def _new_group(request: WriteRequest, raw: Raw) -> Raw:
    spec = _without(raw.get("spec") or {})
    name, given = spec.get("priorityClassName"), spec.get("priority")
    found = class_priority(request, name, restored=given is not None)
    if found is not None:
        name, priority, _ = found
        if given is not None and given != priority:
            raise forbidden(
                request.resource,
                request.name,
                f"priority set in the pod group ({given}) must match the priority computed "
                f"({priority}) based on the priority class set in the spec",
            )
        spec["priority"] = priority
        if name:
            spec["priorityClassName"] = name
    status = raw.get("status") or {} if request.restores else {}
    return {**raw, "metadata": _protected(raw["metadata"]), "spec": spec, "status": status}


def _protected(metadata: Raw) -> Raw:
    """As the admission plugin PodGroupProtection leaves it: a finalizer keeps the group while pods
    belong to it."""
    finalizers = metadata.get("finalizers") or []
    if POD_GROUP_FINALIZER in finalizers:
        return metadata
    return {**metadata, "finalizers": [*finalizers, POD_GROUP_FINALIZER]}


def _changed_group(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    after = keep_status(request, before, after)
    return {**after, "spec": _without(after.get("spec") or {}, before.get("spec") or {})}


def _check_changed_group(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    if request.subresource != "status":
        return group_changes(before, after)
    found: list[FieldError] = []
    check_status(found, after)
    return found


def _new_workload(request: WriteRequest, raw: Raw) -> Raw:
    return {**raw, "spec": _workload_spec(raw.get("spec") or {})}


def _changed_workload(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    return {**after, "spec": _workload_spec(after.get("spec") or {})}


def _check_changed_workload(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    return workload_changes(before, after)


def _workload_spec(spec: Raw) -> Raw:
    spec = {name: value for name, value in spec.items() if name != "compositePodGroupTemplates"}
    templates = spec.get("podGroupTemplates")
    if templates:
        spec["podGroupTemplates"] = [_without(template) for template in templates]
    return spec


def _without(spec: Raw, before: Raw | None = None) -> Raw:
    """The spec without fields of features that are off, unless it had them before."""
    return {name: value for name, value in spec.items() if name not in _OFF or name in (before or ())}


POD_GROUP = Strategy(
    unconditional_update=False,
    new=_new_group,
    changed=_changed_group,
    status_changed=keep_all_but_status,
    check_changed=_check_changed_group,
)
WORKLOAD = Strategy(
    unconditional_update=False,
    new=_new_workload,
    changed=_changed_workload,
    check_changed=_check_changed_workload,
)
