"""The device requests of a pod and its allocation hints.

    nvidia.com/gpu, amd.com/gpu, dcu.com/gpu    a number of whole GPUs
    koordinator.sh/gpu                          percent of a GPU; above 100 multiples of 100
    koordinator.sh/gpu-core, -memory, -ratio    parts of a GPU; above 100 percent multiples of 100
    koordinator.sh/gpu.shared with such parts   the parts divided evenly among that many GPUs
    koordinator.sh/rdma, koordinator.sh/fpga    percent of a card

Each of these is converted to a number of devices and a request per device (`Share`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import field

from holdfast.api import names
from holdfast.api import names as n
from holdfast.api.decode import decode_json
from holdfast.api.errors import HoldfastError, InvalidObject, SelectorError
from holdfast.api.meta import LabelSelector, Struct
from holdfast.api.quantity import QuantityError
from holdfast.api.selectors import Selector, compile_selector
from holdfast.scheduler.managers.devices.partitions import PartitionRequest, read_partition_request

GPU, RDMA, FPGA = "gpu", "rdma", "fpga"

CORE, MEMORY, RATIO = 0, 1, 2
"""Indices of a GPU's resources: percent of its cores, bytes of its memory, percent of its memory."""

DEVICE_RESOURCES: Mapping[str, tuple[str, ...]] = {
    GPU: (n.GPU_CORE, n.GPU_MEMORY, n.GPU_MEMORY_RATIO),
    RDMA: (n.RDMA,),
    FPGA: (n.FPGA,),
}
"""The resources of each type of device."""

WHOLE = (n.NVIDIA_GPU, n.AMD_GPU, n.DCU_GPU)
REQUEST_NAMES: Mapping[str, tuple[str, ...]] = {
    GPU: (*WHOLE, n.GPU_PERCENT, n.GPU_SHARED, *DEVICE_RESOURCES[GPU]),
    RDMA: (n.RDMA,),
    FPGA: (n.FPGA,),
}
"""The resource names by which each type of device can be requested."""

TYPE_OF: Mapping[str, str] = {name: kind for kind, every in REQUEST_NAMES.items() for name in every}

FULL = 100
"""Percent of one device."""


class DeviceRequestError(HoldfastError):
    """The device request of a pod is invalid."""


class Share(NamedTuple):
    """A request for devices of one type."""

    type: str
    number: int
    """How many devices."""
    each: tuple[int, ...]
    """The request per device, by resource; 0 if it is not requested."""
    shared: bool
    """Whether the devices can be shared with other pods: the request is for less than a whole
    device."""


Request = tuple[Share, ...]
"""All device requests of a pod; empty if it requests no devices."""


def device_request(amounts: Mapping[str, int]) -> Request:
    """Converts requests by resource name. Raises DeviceRequestError if they are invalid."""
    asked: dict[str, dict[str, int]] = {}
    for name, amount in amounts.items():
        kind = TYPE_OF.get(name)
        if kind is not None and amount > 0:
            asked.setdefault(kind, {})[name] = amount
    if not asked:
        return ()
    return tuple(_share(kind, asked[kind]) for kind in REQUEST_NAMES if kind in asked)


def _share(kind: str, asked: Mapping[str, int]) -> Share:
    for name in (n.GPU_PERCENT, n.RDMA, n.FPGA):
        if name in asked and not is_percentage(asked[name]):
            raise DeviceRequestError(f"invalid resource unit {name}: {asked[name]}")
    if kind != GPU:
        return _of_cards(kind, asked[DEVICE_RESOURCES[kind][0]])
    form = GPU_FORMS.get(frozenset(asked))
    share = form(asked) if form is not None else None
    if share is None:
        listed = " ".join(name for name in REQUEST_NAMES[GPU] if name in asked)
        raise DeviceRequestError(f"invalid resource device requests: [{listed}]")
    return share


def is_percentage(amount: int) -> bool:
    """A share of one device, or whole devices."""
    return amount <= FULL or amount % FULL == 0


def _of_cards(kind: str, percent: int) -> Share:
    if percent > FULL:
        return Share(kind, percent // FULL, (FULL,), shared=False)
    return Share(kind, 1, (percent,), shared=percent < FULL)


def _whole(asked: Mapping[str, int]) -> Share:
    (count,) = asked.values()
    return Share(GPU, count, (FULL, 0, FULL), shared=False)


def _percent(asked: Mapping[str, int]) -> Share:
    (percent,) = asked.values()
    return _spread(percent, 0, percent, 0)


def _parts(asked: Mapping[str, int]) -> Share | None:
    core, ratio = asked.get(n.GPU_CORE, 0), asked.get(n.GPU_MEMORY_RATIO, 0)
    if not (is_percentage(core) and is_percentage(ratio)):
        return None
    return _spread(core, asked.get(n.GPU_MEMORY, 0), ratio, 0)


def _shared(asked: Mapping[str, int]) -> Share | None:
    count = asked[n.GPU_SHARED]
    core, ratio = asked.get(n.GPU_CORE, 0), asked.get(n.GPU_MEMORY_RATIO, 0)
    if any(part % count or part // count > FULL for part in (core, ratio)):
        return None
    return _spread(core, asked.get(n.GPU_MEMORY, 0), ratio, count)


def _spread(core: int, memory: int, ratio: int, count: int) -> Share:
    """Divides a request among `count` GPUs; without a count, among as many as the memory fills."""
    if not count:
        count = ratio // FULL if ratio > FULL else 1
    each = (core // count, memory // count, ratio // count)
    return Share(GPU, count, each, shared=each[RATIO] < FULL)


Form = Callable[[Mapping[str, int]], Share | None]

GPU_FORMS: Mapping[frozenset[str], Form] = {
    **{frozenset((name,)): _whole for name in WHOLE},
    frozenset((n.GPU_PERCENT,)): _percent,
    frozenset((n.GPU_MEMORY,)): _parts,
    frozenset((n.GPU_MEMORY_RATIO,)): _parts,
    frozenset((n.GPU_CORE, n.GPU_MEMORY)): _parts,
    frozenset((n.GPU_CORE, n.GPU_MEMORY_RATIO)): _parts,
    frozenset((n.GPU_SHARED, n.GPU_MEMORY)): _shared,
    frozenset((n.GPU_SHARED, n.GPU_MEMORY_RATIO)): _shared,
    frozenset((n.GPU_SHARED, n.GPU_CORE, n.GPU_MEMORY)): _shared,
    frozenset((n.GPU_SHARED, n.GPU_CORE, n.GPU_MEMORY_RATIO)): _shared,
}
"""The combinations of resources by which GPUs can be requested."""


# Hints: the annotations `device-allocate-hint` and `device-joint-allocate`


SWITCH, NUMA, NODE = "PCIe", "NUMANode", "Node"
SCOPES = {"": "", "Device": SWITCH, SWITCH: SWITCH, NUMA: NUMA, NODE: NODE}
FOR_ALL, AS_COUNT = "ApplyForAll", "RequestsAsCount"


class DeviceHint(Struct):
    """The hint for one type, in the annotation `device-allocate-hint`."""

    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    allocate_strategy: str = ""
    required_topology_scope: str = ""
    exclusive_policy: str = ""


class DeviceJointAllocate(Struct):
    """The annotation `device-joint-allocate`."""

    device_types: list[str] = field(default_factory=list)
    required_scope: str = ""


class TypeHints(NamedTuple):
    """The hints for devices of one type."""

    selector: Selector | None = None
    """The labels they must have."""
    scope: str = ""
    """The topology scope that all devices must share: a PCIe switch or a NUMA node; empty for any."""
    exclusive: bool = False
    """Whether no other pod can have devices on their PCIe switches."""
    for_all: bool = False
    """Whether the request applies to every device of the node."""
    functions: Selector | None = None
    """Selects the virtual functions to allocate, one per device."""


class DeviceHints(NamedTuple):
    """All hints of a pod."""

    by_type: Mapping[str, TypeHints]
    joint: tuple[str, ...] = ()
    """The types of a joint allocation, the primary one first."""
    same_switch: bool = False
    """Whether devices of a joint allocation must be on the same PCIe switches."""
    partition: PartitionRequest | None = None
    """What the GPU partition must satisfy; None if no partition is required."""

    def of(self, kind: str) -> TypeHints:
        return self.by_type.get(kind, _NONE)


_NONE = TypeHints()
NOTHING = DeviceHints({})


def read_hints(annotations: Mapping[str, str], request: Request) -> tuple[Request, DeviceHints]:
    """Reads the hints. Returns the request as changed by them, and the hints. Raises
    DeviceRequestError."""
    hint_text = annotations.get(names.DEVICE_ALLOCATE_HINT)
    joint_text = annotations.get(names.DEVICE_JOINT_ALLOCATE)
    partition_text = annotations.get(names.GPU_PARTITION_SPEC)
    if hint_text is None and joint_text is None and partition_text is None:
        return request, NOTHING
    hints = _hints(hint_text) if hint_text is not None else {}
    joint = _joint(joint_text) if joint_text is not None else DeviceJointAllocate()
    by_type = {kind: _type_hints(kind, hint) for kind, hint in hints.items()}
    shares = tuple(_counted(share, hints.get(share.type)) for share in request)
    asked = {share.type for share in shares}
    types = tuple(
        kind for kind in joint.device_types if kind in asked and not by_type.get(kind, _NONE).for_all
    )
    same_switch = joint.required_scope == "SamePCIe" and len(types) > 1
    partition = _partition(partition_text) if partition_text is not None else None
    return shares, DeviceHints(by_type, types, same_switch, partition)


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


def _partition(text: str) -> PartitionRequest:
    try:
        return read_partition_request(text)
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


def _type_hints(kind: str, hint: DeviceHint) -> TypeHints:
    return TypeHints(
        _selector("Selector", kind, hint.selector),
        SCOPES.get(hint.required_topology_scope, ""),
        hint.exclusive_policy == "PCIeLevel",
        hint.allocate_strategy == FOR_ALL and kind != GPU,
        _selector("VFSelector", kind, hint.vf_selector) if kind != GPU else None,
    )


def _counted(share: Share, hint: DeviceHint | None) -> Share:
    """The share for a number of whole cards, if the hint says that the request is a number of cards."""
    if hint is None or share.type == GPU or hint.allocate_strategy != AS_COUNT or share.number > 1:
        return share
    each = FULL if hint.exclusive_policy == "DeviceLevel" else 1
    return Share(share.type, share.each[0], (each,), shared=each < FULL)
