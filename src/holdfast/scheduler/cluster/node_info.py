"""What scheduling reads of nodes and of pod statuses, and how one version differs from the next."""

from collections.abc import Mapping
from dataclasses import replace

from holdfast.api.annotations import ReservationAllocated
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import Object, condition
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.quantity import amount
from holdfast.api.times import TimeError, parse_time
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_table import NodeInfo
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.read_only import ReadOnlyDict, read_only
from holdfast.scheduler.cluster.slots import MOST

_SHARED_KINDS = ("PodGroup", "Job")
_MAX_RESOURCES = 512
_MAX_IMAGES = 500
_MAX_IMAGE_NAMES = 16


def kind_of(obj: Object) -> str:
    """The kind, with its API group if the kind occurs in several groups."""
    if obj.kind not in _SHARED_KINDS:
        return obj.kind
    return f"{obj.kind}.{obj.api_version.partition('/')[0]}"


def allocated_from(text: str | None) -> str:
    """The uid in the annotation of the reservation a pod is allocated from; empty if it is invalid."""
    if text is None:
        return ""
    try:
        return decode_json(text, ReservationAllocated).uid
    except InvalidObject:
        return ""


def is_preempted(pod: Pod) -> bool:
    """Whether the pod's condition says that it is a victim of preemption; it may not be deleted yet."""
    found = condition(pod.status.conditions, "DisruptionTarget")
    return found is not None and found.status == "True" and found.reason == "PreemptionByScheduler"


def bound_at(pod: Pod) -> float | None:
    """When the pod was bound, by its PodScheduled condition."""
    found = condition(pod.status.conditions, "PodScheduled")
    if found is None or found.status != "True" or not found.last_transition_time:
        return None
    try:
        return parse_time(found.last_transition_time)
    except TimeError:
        return None


def is_ready(pod: Pod) -> bool:
    """Whether the pod's condition Ready is True."""
    found = condition(pod.status.conditions, "Ready")
    return found is not None and found.status == "True"


def node_info(node: Node) -> NodeInfo:
    """What scheduling reads of a node; raises InvalidObject if a quantity is invalid or there are too
    many resources. Only the first few hundred images count; a kubelet lists fifty."""
    meta, status = node.metadata, node.status
    field = "allocatable" if status.allocatable else "capacity"
    offered = {}
    listed = status.allocatable or status.capacity
    if len(listed) > _MAX_RESOURCES:
        why = f"{len(listed)} resources exceed the limit of {_MAX_RESOURCES}"
        raise InvalidObject(f"Node/{meta.name}", f"status.{field}", why)
    for name, quantity in listed.items():
        try:
            offered[name] = min(amount(name, quantity), MOST)
        except ValueError as error:
            raise InvalidObject(f"Node/{meta.name}", f"status.{field}[{name}]", str(error)) from error
    return NodeInfo(
        name=meta.name,
        uid=meta.uid,
        labels=ReadOnlyDict(meta.labels),
        annotations=ReadOnlyDict(meta.annotations),
        taints=read_only(node.spec.taints),
        unschedulable=node.spec.unschedulable,
        allocatable=ReadOnlyDict(offered),
        images=ReadOnlyDict(
            (name, image.size_bytes)
            for image in reversed(status.images[:_MAX_IMAGES])
            for name in image.names[:_MAX_IMAGE_NAMES]
        ),
    )


def with_devices(info: NodeInfo, offered: Mapping[str, int]) -> NodeInfo:
    """The node with the resources of its devices, as far as its own allocatable does not have them."""
    if not offered and not info.derived:
        return info
    own = {name: value for name, value in info.allocatable.items() if name not in info.derived}
    more = {name: value for name, value in offered.items() if name not in own}
    return replace(info, allocatable=ReadOnlyDict(own | more), derived=frozenset(more))


def difference(before: NodeInfo, after: NodeInfo) -> int:
    """The kinds of change between two versions of a node, as a `Change`."""
    changes = Change.NONE
    if before.allocatable != after.allocatable:
        changes |= Change.NODE_ALLOCATABLE
    if before.labels != after.labels:
        changes |= Change.NODE_LABELS
    if before.taints != after.taints or before.unschedulable != after.unschedulable:
        changes |= Change.NODE_TAINTS
    if before.annotations != after.annotations or before.images != after.images:
        changes |= Change.NODE_OTHER
    return changes


def releases_capacity(before: PodClass, after: PodClass) -> bool:
    """Whether a pod on a node that changed its class may leave other pods more than before. A pod that
    is being deleted keeps its claim until it is gone."""
    now = dict(after.usage)
    return (
        any(now.get(slot, 0) < amount for slot, amount in before.usage)
        or before.ports != after.ports
        or before.volumes != after.volumes
        or before.annotations != after.annotations
    )
