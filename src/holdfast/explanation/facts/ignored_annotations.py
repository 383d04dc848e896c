"""Labels and annotations of a pod that the scheduler ignores in whole or in part, because a field or a
value is misspelt. Koordinator ignores them too: the pod is placed as if it had no policy or hint."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.api import names
from holdfast.api.annotations import NUMATopologySpec, ResourceSpec
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import Struct
from holdfast.api.similar_names import did_you_mean
from holdfast.machinery.schema.decoding import find_unknown
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.managers.devices.requests import (
    AS_COUNT,
    DEVICE_RESOURCES,
    FOR_ALL,
    SCOPES,
    DeviceHint,
    DeviceJointAllocate,
)
from holdfast.scheduler.managers.numa.node_topology import BINDING, POLICIES

_QOS_CLASSES = ("LSE", "LSR", "LS", "BE", "SYSTEM")
NUMA_POLICIES = POLICIES[1:]
_CPU_POLICIES = (*BINDING, "Default")
_Values = Mapping[str, Sequence[str]]
"""By field, its known values."""
_HINT_VALUES: _Values = {
    "allocateStrategy": (FOR_ALL, AS_COUNT),
    "requiredTopologyScope": [each for each in SCOPES if each],
    "exclusivePolicy": ("PCIeLevel", "DeviceLevel"),
}
_ANNOTATIONS: dict[str, tuple[type[Struct], _Values]] = {
    names.NUMA_TOPOLOGY_SPEC: (
        NUMATopologySpec,
        {
            "numaTopologyPolicy": NUMA_POLICIES,
            "singleNUMANodeExclusive": ("Required", "Preferred"),
        },
    ),
    names.RESOURCE_SPEC: (
        ResourceSpec,
        {
            "requiredCPUBindPolicy": _CPU_POLICIES,
            "preferredCPUBindPolicy": _CPU_POLICIES,
            "preferredCPUExclusivePolicy": ("PCPULevel", "NUMANodeLevel", "None"),
        },
    ),
    names.DEVICE_JOINT_ALLOCATE: (DeviceJointAllocate, {"requiredScope": ("SamePCIe",)}),
}
"""By annotation of a pod, its type and the known values of its fields."""


def ignored_annotations(cls: PodClass) -> Iterator[str]:
    """Misspelt fields and unknown values of a pod's policies for NUMA nodes, CPUs and devices."""
    qos = cls.labels.get(names.QOS_CLASS)
    if qos and qos not in _QOS_CLASSES:
        yield f"its label {names.QOS_CLASS}={qos} is ignored{known_values(qos, _QOS_CLASSES)}"
    for annotation, (type_, values) in _ANNOTATIONS.items():
        if (raw := _read(cls, annotation, type_)) is not None:
            yield from _ignored(raw, annotation, type_, values)
    for device, hint in (_read(cls, names.DEVICE_ALLOCATE_HINT, dict[str, DeviceHint]) or {}).items():
        if device not in DEVICE_RESOURCES:
            near = known_values(device, list(DEVICE_RESOURCES))
            yield f"its {names.DEVICE_ALLOCATE_HINT} for devices of type {device} is ignored{near}"
        else:
            yield from _ignored(hint, names.DEVICE_ALLOCATE_HINT, DeviceHint, _HINT_VALUES, device)


def _read(cls: PodClass, annotation: str, type_: type) -> dict[str, object] | None:
    """The JSON value of an annotation; None if it is missing, or invalid, which is an error."""
    text = cls.annotations.get(annotation)
    try:
        if not text:
            return None
        decode_json(text, type_)
    except InvalidObject:
        return None
    found: dict[str, object] = msgspec.json.decode(text)
    return found


def _ignored(
    raw: object, annotation: str, type_: type[Struct], values: _Values, within: str = ""
) -> Iterator[str]:
    for error in find_unknown(raw, type_, mistakes_only=True):
        field = ".".join(filter(None, (within, error.field)))
        yield f"its annotation {annotation} is ignored in part: {field}: {error.message}"
    for field, known in values.items():
        value = raw.get(field) if isinstance(raw, dict) else None
        if value and value not in known:
            yield f"its {field} {value} ({annotation}) is ignored{known_values(str(value), known)}"


def known_values(value: str, known: Sequence[str]) -> str:
    return did_you_mean(value, known) or f"; known: {', '.join(known)}"
