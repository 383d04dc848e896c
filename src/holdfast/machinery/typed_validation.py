"""What an API server would refuse on create, and why.

`validate` finds everything that is wrong with an object, each with the path of its field. For
reservations, whose mistakes upstream are met with silence, unknown fields are errors too; in
the built-in kinds only a known field in a wrong place is.

Deliberately not refused, since scenario files leave it out: a container's image, an owner
reference's uid, the limit of an extended resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.api.decode import convert, decode, object_name
from holdfast.api.errors import InvalidObject
from holdfast.api.jobs import PodGroup, Queue
from holdfast.api.kinds import NO_KINDS, Kinds, kind_info
from holdfast.api.meta import LabelSelector, Object, ResourceList
from holdfast.api.migration import PodMigrationJob
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.raw_objects import RawObject, raw_object
from holdfast.api.reservation import Reservation
from holdfast.api.selectors import matches
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from holdfast.api.times import parse_duration
from holdfast.api.workloads import (
    BatchJob,
    DaemonSet,
    Deployment,
    JobSpec,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    RuntimeClass,
    StatefulSet,
    WorkloadSpec,
    scaled_value,
)
from holdfast.machinery.error_list import ErrorList
from holdfast.machinery.group_validation import (
    Contradiction,
    group_contradictions,
    queue_contradictions,
)
from holdfast.machinery.known_fields import find_unknown, schema_of
from holdfast.machinery.metadata_validation import check_labels, check_metadata
from holdfast.machinery.pod_spec_validation import (
    check_label_selector,
    check_pod_spec,
    check_resource_list,
    check_tolerations,
)
from holdfast.machinery.reservation_validation import check_reservation, check_taints

Check = Callable[[ErrorList, Any, Mapping[str, Any]], None]


def validate(raw: Mapping[str, Any], declared: Kinds = NO_KINDS) -> list[InvalidObject]:
    """Every complaint about the object; an empty list means it is acceptable. Of an object of a kind
    that only plugins read, which they declare, just the metadata is looked at."""
    try:
        obj = _decoded(raw, declared)
    except InvalidObject as error:
        return [error]
    findings = ErrorList(object_name(raw))
    check_metadata(findings, obj.metadata, kind_info(obj.api_version, obj.kind, declared))
    check = _CHECKS.get(type(obj))
    if check is not None:
        check(findings, obj, raw)
    return findings.errors


def _decoded(raw: Mapping[str, Any], declared: Kinds) -> Object:
    if not declared or not isinstance(raw, Mapping):
        return decode(raw)
    api_version, kind = raw.get("apiVersion"), raw.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return decode(raw)
    try:
        info = kind_info(api_version, kind, declared)
    except InvalidObject as error:
        raise error.within(object_name(raw)) from None
    return raw_object(info, raw) if info.type is RawObject else decode(raw)


def _check_pod(findings: ErrorList, pod: Pod, raw: Mapping[str, Any]) -> None:
    find_unknown(findings, raw, schema_of(Pod), misplaced_only=True)
    check_pod_spec(findings, pod.spec)


def _check_node(findings: ErrorList, node: Node, raw: Mapping[str, Any]) -> None:
    check_taints(findings, node.spec.taints, "spec.taints")
    check_resource_list(findings, node.status.allocatable, "status.allocatable")
    check_resource_list(findings, node.status.capacity, "status.capacity")


def _check_pod_group(findings: ErrorList, group: PodGroup, raw: Mapping[str, Any]) -> None:
    findings.within("spec.minMember", group.spec.min_member, 0, 2**31 - 1)
    for task, count in group.spec.min_task_member.items():
        findings.within(f"spec.minTaskMember[{task}]", count, 0, 2**31 - 1)
    check_resource_list(findings, group.spec.min_resources, "spec.minResources")
    timeout = group.spec.schedule_timeout_seconds
    findings.within("spec.scheduleTimeoutSeconds", timeout, 0, 2**31 - 1)
    _contradicts_itself(findings, group_contradictions(raw.get("spec") or {}))


def _check_queue(findings: ErrorList, queue: Queue, raw: Mapping[str, Any]) -> None:
    spec = queue.spec
    findings.within("spec.weight", spec.weight, 1, 65535)
    lists: list[tuple[str, ResourceList]] = [
        ("spec.guarantee.resource", spec.guarantee.resource if spec.guarantee else {}),
        ("spec.deserved", spec.deserved or {}),
        ("spec.capability", spec.capability or {}),
    ]
    for path, given in lists:
        check_resource_list(findings, given, path)
    _contradicts_itself(findings, queue_contradictions(queue.metadata.name, raw.get("spec") or {}))


def _contradicts_itself(findings: ErrorList, found: Iterable[Contradiction]) -> None:
    for each in found:
        *way, last = each.path
        parent = ".".join(way)
        listed = way[-1] in ("deserved", "resource")
        findings.add(f"{parent}[{last}]" if listed else f"{parent}.{last}", each.message)


def _check_budget(findings: ErrorList, budget: PodDisruptionBudget, raw: Mapping[str, Any]) -> None:
    spec = budget.spec
    if spec.min_available is not None and spec.max_unavailable is not None:
        findings.add("spec.maxUnavailable", "cannot be given together with minAvailable")
    for field, value in (
        ("minAvailable", spec.min_available),
        ("maxUnavailable", spec.max_unavailable),
    ):
        if value is not None:
            with findings.at(f"spec.{field}"):
                if scaled_value(value, 100, round_up=True) < 0:
                    findings.add(f"spec.{field}", "must not be negative")
    check_label_selector(findings, spec.selector, "spec.selector")


def _check_priority_class(findings: ErrorList, priority: PriorityClass, raw: Mapping[str, Any]) -> None:
    if not priority.metadata.name.startswith("system-"):
        findings.within("value", priority.value, -(2**31), 10**9)
    if priority.preemption_policy is not None:
        policies = ("PreemptLowerPriority", "Never")
        findings.one_of("preemptionPolicy", priority.preemption_policy, policies)


def _check_runtime_class(findings: ErrorList, runtime: RuntimeClass, raw: Mapping[str, Any]) -> None:
    if runtime.overhead is not None:
        check_resource_list(findings, runtime.overhead.pod_fixed, "overhead.podFixed")
    if runtime.scheduling is not None:
        check_tolerations(findings, runtime.scheduling.tolerations, "scheduling.tolerations")


def _check_claim(findings: ErrorList, claim: PersistentVolumeClaim, raw: Mapping[str, Any]) -> None:
    check_resource_list(findings, claim.spec.resources.requests, "spec.resources.requests")
    check_label_selector(findings, claim.spec.selector, "spec.selector")


def _check_volume(findings: ErrorList, volume: PersistentVolume, raw: Mapping[str, Any]) -> None:
    check_resource_list(findings, volume.spec.capacity, "spec.capacity")


def _check_migration(findings: ErrorList, job: PodMigrationJob, raw: Mapping[str, Any]) -> None:
    reference = job.spec.pod_ref
    if reference is None or not (reference.name or reference.uid):
        findings.add("spec.podRef", "is required: the pod to move")
    modes = ("", "ReservationFirst", "EvictDirectly")
    findings.one_of("spec.mode", job.spec.mode, modes)
    if job.spec.ttl is not None:
        with findings.at("spec.ttl"):
            parse_duration(job.spec.ttl)


def _check_deployment(findings: ErrorList, deployment: Deployment, raw: Mapping[str, Any]) -> None:
    for name in ("selector", "template"):
        if getattr(deployment.spec, name) is None:
            findings.add(f"spec.{name}", "is required")
    _check_template(findings, deployment.spec, deployment.spec.selector)


def _check_workload(
    findings: ErrorList, workload: ReplicaSet | StatefulSet | DaemonSet, raw: Mapping[str, Any]
) -> None:
    """Without a template it makes no pods, and is there for pods to refer to."""
    spec = workload.spec
    if spec.template is not None and spec.selector is None:
        findings.add("spec.selector", "is required")
    _check_template(findings, spec, spec.selector)


def _check_job(findings: ErrorList, job: BatchJob, raw: Mapping[str, Any]) -> None:
    for name in ("parallelism", "completions"):
        findings.within(f"spec.{name}", getattr(job.spec, name), 0, 2**31 - 1)
    if job.spec.template is not None:
        _check_template(findings, job.spec, None)


def _check_template(
    findings: ErrorList, spec: WorkloadSpec | JobSpec, selector: LabelSelector | None
) -> None:
    """The pods that are made; they are to be those the selector selects, where there is one."""
    if isinstance(spec, WorkloadSpec):
        findings.within("spec.replicas", spec.replicas, 0, 2**31 - 1)
    check_label_selector(findings, selector, "spec.selector")
    if findings.errors or spec.template is None:
        return
    with findings.at("spec.template"):
        made = convert(spec.template, Pod)
        check_labels(findings, made.metadata.labels, "spec.template.metadata.labels")
        check_pod_spec(findings, made.spec, "spec.template.spec")
        if selector is not None and not matches(selector, made.metadata.labels):
            problem = "must be what spec.selector selects, or its pods would not be its own"
            findings.add("spec.template.metadata.labels", problem)


_CHECKS: dict[type[Object], Check] = {
    Pod: _check_pod,
    Node: _check_node,
    Reservation: check_reservation,
    PodGroup: _check_pod_group,
    Queue: _check_queue,
    PodDisruptionBudget: _check_budget,
    PriorityClass: _check_priority_class,
    RuntimeClass: _check_runtime_class,
    PersistentVolumeClaim: _check_claim,
    PersistentVolume: _check_volume,
    PodMigrationJob: _check_migration,
    Deployment: _check_deployment,
    ReplicaSet: _check_workload,
    StatefulSet: _check_workload,
    DaemonSet: _check_workload,
    BatchJob: _check_job,
}
