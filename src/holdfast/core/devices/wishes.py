"""What a pod says about how it wants its devices: the annotations `device-allocate-hint` and
`device-joint-allocate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import field

from holdfast.api import names
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject, SelectorError
from holdfast.api.label_selectors import Selector, compile_selector
from holdfast.api.meta import LabelSelector, Struct
from holdfast.api.quantity import QuantityError
from holdfast.core.devices.partitions import PartitionWish, read_wish
from holdfast.core.devices.requests import FULL, GPU, DeviceRequestError, Request, Share

SWITCH, NUMA, NODE = "PCIe", "NUMANode", "Node"
_SCOPES = {"": "", "Device": SWITCH, SWITCH: SWITCH, NUMA: NUMA, NODE: NODE}
FOR_ALL, AS_COUNT = "ApplyForAll", "RequestsAsCount"


class DeviceHint(Struct):
    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class DeviceJointAllocate(Struct):
    device_types: list[str] = field(default_factory=list)
    required_scope: str = ""


class Wish(NamedTuple):
    """How devices of one type are wanted."""

    selector: Selector | None = None
    """The labels they must have."""
    scope: str = ""
    """What they must all be on together: a switch, a NUMA node; anything if it does not say."""
    alone: bool = False
    """Whether nobody else may have any of the devices on their switches."""
    for_all: bool = False
    """Whether the pod wants its share of every device there is."""
    functions: Selector | None = None
    """The labels of the virtual functions it wants, one of each device."""


class Wishes(NamedTuple):
    by_type: Mapping[str, Wish]
    joint: tuple[str, ...] = ()
    """Types that belong together, the one that leads first."""
    same_switch: bool = False
    """Whether the joint ones must be on the same switches."""
    partition: PartitionWish | None = None
    """Whether GPUs must be one of the sets the node has."""

    def of(self, kind: str) -> Wish:
        return self.by_type.get(kind, _NONE)


_NONE = Wish()
NOTHING = Wishes({})


def read_wishes(annotations: Mapping[str, str], request: Request) -> tuple[Request, Wishes]:
    """The request as the wishes make it, and the wishes; raises DeviceRequestError."""
    hint_text = annotations.get(names.DEVICE_ALLOCATE_HINT)
    joint_text = annotations.get(names.DEVICE_JOINT_ALLOCATE)
    partition_text = annotations.get(names.GPU_PARTITION_SPEC)
    if hint_text is None and joint_text is None and partition_text is None:
        return request, NOTHING
    hints = _hints(hint_text) if hint_text is not None else {}
    joint = _joint(joint_text) if joint_text is not None else DeviceJointAllocate()
    wishes = {kind: _wish(kind, hint) for kind, hint in hints.items()}
    shares = tuple(_counted(share, hints.get(share.type)) for share in request)
    asked = {share.type for share in shares}
    types = tuple(
        kind for kind in joint.device_types if kind in asked and not wishes.get(kind, _NONE).for_all
    )
    same_switch = joint.required_scope == "SamePCIe" and len(types) > 1
    partition = _partition(partition_text) if partition_text is not None else None
    return shares, Wishes(wishes, types, same_switch, partition)


def _hints(text: str) -> dict[str, DeviceHint]:
    try:
        return decode_json(text, dict[str, DeviceHint])
    except InvalidObject as error:
        raise DeviceRequestError(
            f"invalid DeviceAllocateHint annotation, err: {error.message}"
        ) from error


def _joint(text: str) -> DeviceJointAllocate:
    try:
        return decode_json(text, DeviceJointAllocate)
    except InvalidObject as error:
        raise DeviceRequestError(
            f"invalid DeviceJointAllocate annotation, err: {error.message}"
        ) from error


def _partition(text: str) -> PartitionWish:
    try:
        return read_wish(text)
    except (InvalidObject, QuantityError) as error:
        raise DeviceRequestError(f"invalid GPUPartitionSpec annotation, err: {error}") from error


def _selector(what: str, kind: str, given: LabelSelector | None) -> Selector | None:
    if given is None:
        return None
    try:
        return compile_selector(given)
    except SelectorError as error:
        raise DeviceRequestError(
            f"invalid {what} of DeviceHint, deviceType: {kind}, err: {error}"
        ) from error


def _wish(kind: str, hint: DeviceHint) -> Wish:
    return Wish(
        _selector("Selector", kind, hint.selector),
        _SCOPES.get(hint.required_topology_scope, ""),
        hint.exclusive_policy == "PCIeLevel",
        hint.allocate_strategy == FOR_ALL and kind != GPU,
        _selector("VFSelector", kind, hint.vf_selector) if kind != GPU else None,
    )


def _counted(share: Share, hint: DeviceHint | None) -> Share:
    """Cards may be asked for by their number."""
    if hint is None or share.type == GPU or hint.allocate_strategy != AS_COUNT or share.number > 1:
        return share
    each = FULL if hint.exclusive_policy == "DeviceLevel" else 1
    return Share(share.type, share.each[0], (each,), shared=each < FULL)
