"""What pods of one class want of CPUs and NUMA nodes."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from holdfast.api import names
from holdfast.api.annotations import NUMATopologySpec, ResourceSpec
from holdfast.api.decode import decode_json
from holdfast.api.errors import HoldfastError, InvalidObject
from holdfast.core.classes import PodClass
from holdfast.core.cpus.topology import BEST_EFFORT, FULL_CORES, RESTRICTED, SINGLE, SPREAD
from holdfast.core.slots import CPU

V = TypeVar("V")

NOT_WHOLE = "the requested CPUs must be integer"
BINDING = (FULL_CORES, SPREAD)
POLICIES = ("", BEST_EFFORT, RESTRICTED, SINGLE)
"""The NUMA policies; their places are how tables have them."""

_OWN_CPUS = ("LSE", "LSR")
_PRODUCTION = "koord-prod"
_OTHER_PRIORITIES = ((7000, 7999), (5000, 5999), (3000, 3999))
"""Of pods that do not run in production."""


class CpuWantError(HoldfastError):
    """A pod wants CPUs in a way that makes no sense; `error` if that cannot even be read."""

    def __init__(self, message: str, error: bool = False) -> None:
        super().__init__(message)
        self.error = error


class Want(NamedTuple):
    milli: int
    requests: tuple[tuple[int, int], ...]
    """All it asks for, by slot."""
    bound: bool = False
    """Whether it wants CPUs of its own."""
    policy: str = FULL_CORES
    required: str = ""
    """The policy it insists on."""
    apart: str = ""
    numa: str = ""
    """Its NUMA policy."""
    exclusive: bool = False
    """Whether a pod on one NUMA node keeps away from those on several, and the other way round."""
    given: ResourceSpec = ResourceSpec()

    @property
    def cpus(self) -> int:
        return self.milli // 1000


def read_want(cls: PodClass, default: str) -> Want:
    """`default` is the bind policy of pods that do not say. Raises CpuWantError."""
    spec = _read(cls, names.RESOURCE_SPEC, ResourceSpec)
    numa = _read(cls, names.NUMA_TOPOLOGY_SPEC, NUMATopologySpec)
    want = Want(cls.request(CPU), cls.requests, numa=numa.numa_topology_policy, given=spec)
    if want.numa not in POLICIES:
        want = want._replace(numa="")
    exclusive = numa.single_numa_node_exclusive
    want = want._replace(exclusive=exclusive == "Required" or (not exclusive and bool(want.numa)))
    if not has_own_cpus(cls):
        return want
    preferred = spec.preferred_cpu_bind_policy
    policy = default if preferred in ("", "Default") else preferred
    required = default if spec.required_cpu_bind_policy == "Default" else spec.required_cpu_bind_policy
    policy = required or policy
    if policy not in BINDING:
        return want
    if want.milli % 1000:
        raise CpuWantError(NOT_WHOLE)
    if not want.milli:
        return want
    return want._replace(
        bound=True,
        policy=policy,
        required=required,
        apart=spec.preferred_cpu_exclusive_policy,
    )


def has_own_cpus(cls: PodClass) -> bool:
    """Whether pods of the class are of a quality of service that has CPUs of its own."""
    if cls.labels.get(names.QOS_CLASS) not in _OWN_CPUS:
        return False
    said = cls.labels.get(names.KOORD_PRIORITY_CLASS)
    if said is not None and said.startswith("koord-"):
        return said == _PRODUCTION
    return not any(low <= cls.priority <= high for low, high in _OTHER_PRIORITIES)


def _read(cls: PodClass, key: str, type_: type[V]) -> V:
    text = cls.annotations.get(key)
    try:
        return decode_json(text, type_) if text is not None else type_()
    except InvalidObject as error:
        raise CpuWantError(f"metadata.annotations[{key}]: {error.message}", error=True) from error
