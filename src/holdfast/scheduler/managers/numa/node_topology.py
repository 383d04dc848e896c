"""The CPU topology of a node, the CPU and NUMA policies of a pod, and CPU lists as text.

`NodeTopology` is a NodeResourceTopology as the CPU manager uses it. `Want` is what pods of one class
request: the number of CPUs, the bind policy and the NUMA policy, from annotations and the QoS class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from msgspec import field

from holdfast.api import names
from holdfast.api.annotations import CPUTopology, NUMATopologySpec, ResourceSpec
from holdfast.api.decode import decode_json
from holdfast.api.errors import HoldfastError, InvalidObject
from holdfast.api.meta import Struct
from holdfast.api.node import NodeResourceTopology
from holdfast.api.quantity import QuantityError, amount
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import CPU

MOST_CPUS = 1 << 16
"""A CPU number at or above this is invalid: a range up to it must not be expanded."""


def parse_cpus(text: str) -> frozenset[int]:
    """Reads a Linux CPU list, as `0-3,8,10-11`. Raises ValueError if it is invalid."""
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = part.strip().partition("-")
        low = int(first)
        high = int(last) if dash else low
        if low < 0 or high < low or high >= MOST_CPUS:
            raise ValueError(f"{part!r} is not a range of CPUs")
        found.update(range(low, high + 1))
    return frozenset(found)


def format_cpus(cpus: Iterable[int]) -> str:
    """Writes a Linux CPU list."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in ranges)


# The topology of a node


V = TypeVar("V")

FULL_CORES, SPREAD = "FullPCPUs", "SpreadByPCPUs"
BEST_EFFORT, RESTRICTED, SINGLE = "BestEffort", "Restricted", "SingleNUMANode"

MOST_ZONES = 64
"""NUMA nodes with this number or a higher one are ignored."""
MOST_OF_ZONE = 1 << 52
"""Higher amounts of a NUMA node count as this much: sums and products still fit 64 bits."""
MOST_TIMES = 1000.0
"""The highest valid amplification ratio."""

_SOCKET_BITS = 16
_DIGITS = 5

_KUBELET_POLICIES = {
    "BestEffort": BEST_EFFORT,
    "Restricted": RESTRICTED,
    "SingleNUMANodePodLevel": SINGLE,
}


class KubeletPolicy(Struct):
    """The kubelet's CPU manager policy, from the topology's annotation."""

    policy: str = ""
    options: dict[str, str] = field(default_factory=dict)
    reserved_cpus: str = field(default="", name="reservedCPUs")


class NodeReservation(Struct):
    """CPUs reserved on the node, from the topology's annotation."""

    reserved_cpus: str = field(default="", name="reservedCPUs")


class SystemCPUs(Struct):
    """CPUs for system QoS pods, from the topology's annotation."""

    cpuset: str = ""
    cpuset_exclusive: bool | None = None


class PodCPUs(Struct):
    """CPUs that the kubelet has allocated to a pod, from the topology's annotation."""

    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class Cpu(NamedTuple):
    """The core, NUMA node and socket of a CPU."""

    core: int
    numa: int
    socket: int


class NodeTopology:
    """The CPUs, cores and NUMA nodes of one node."""

    def __init__(self, given: NodeResourceTopology) -> None:
        annotations = given.metadata.annotations
        self.cpus: dict[int, Cpu] = {}
        detail = _read(annotations, names.CPU_TOPOLOGY, CPUTopology, CPUTopology())
        for each in detail.detail:
            if 0 <= each.id < MOST_CPUS and each.node < MOST_ZONES:
                # Core numbers can repeat on each socket; socket numbers can be missing.
                socket = max(0, each.socket)
                core = socket << _SOCKET_BITS | each.core
                self.cpus[each.id] = Cpu(core, max(0, each.node), socket)
        self.cores: dict[int, list[int]] = {}
        for number, cpu in sorted(self.cpus.items()):
            self.cores.setdefault(cpu.core, []).append(number)
        counted = len(self.cpus)
        self.per_core = _each(counted, len(self.cores))
        self.per_numa = _each(counted, len({cpu.numa for cpu in self.cpus.values()}))
        self.per_socket = _each(counted, len({cpu.socket for cpu in self.cpus.values()}))
        self.policy = next(
            (_KUBELET_POLICIES[p] for p in given.topology_policies if p in _KUBELET_POLICIES), ""
        )
        """The topology manager policy of the node's kubelet."""
        kubelet = _read(annotations, names.KUBELET_CPU_POLICY, KubeletPolicy, KubeletPolicy())
        full_only = kubelet.options.get("full-pcpus-only") == "true"
        self.full_cores_only = kubelet.policy == "static" and full_only
        self.closed = self._closed(annotations, kubelet)
        """CPUs that are never allocated: reserved ones, and those of the kubelet's static policy."""
        self.open = frozenset(self.cpus) - self.closed
        self.zones: dict[int, dict[str, int]] = _zones(given)
        """Allocatable of NUMA nodes, by resource name."""
        for numa, offered in self.zones.items():
            if offered.get(names.CPU):
                closed = sum(1 for cpu in self.closed if self._numa_of(cpu) == numa)
                offered[names.CPU] = max(0, offered[names.CPU] - 1000 * closed)
        self.width = 1 + max((*self.zones, *(cpu.numa for cpu in self.cpus.values())), default=0)
        """The highest number of a NUMA node, plus one."""
        self._ratios = read_ratios(annotations.get(names.AMPLIFICATION_RATIO)) or {}
        self.cpu_ratio = 1.0
        """The CPU amplification ratio: an exclusive CPU counts as that many."""
        self.amplified: dict[int, dict[str, int]] = {}
        """Amplified allocatable of NUMA nodes."""
        self.amplify({})

    def amplify(self, ratios: Mapping[str, float]) -> None:
        """Sets the amplification ratios of the node. If the topology itself has the annotation, its
        amounts by NUMA node are amplified already."""
        self.cpu_ratio = max(1.0, (self._ratios or ratios).get(names.CPU, 1.0))
        times = {} if self._ratios else ratios
        self.amplified = {
            numa: {name: amplified(value, times.get(name, 1.0)) for name, value in offered.items()}
            for numa, offered in self.zones.items()
        }

    @property
    def valid(self) -> bool:
        """Whether the node reports its CPUs, so that exclusive ones can be allocated."""
        return bool(self.cpus)

    def _numa_of(self, cpu: int) -> int:
        known = self.cpus.get(cpu)
        return known.numa if known is not None else -1

    def _closed(self, annotations: Mapping[str, str], kubelet: KubeletPolicy) -> frozenset[int]:
        """CPUs that are reserved, for system QoS pods only, or allocated by the kubelet."""
        reserved = _read(annotations, names.RESERVATION_INNER, NodeReservation, NodeReservation())
        pods = _read(annotations, names.POD_CPU_ALLOCS, list[PodCPUs], [])
        system = _read(annotations, names.SYSTEM_CPUS, SystemCPUs, SystemCPUs())
        texts = [kubelet.reserved_cpus, reserved.reserved_cpus]
        texts += [system.cpuset] if system.cpuset_exclusive is not False else []
        texts += [pod.cpuset for pod in pods if pod.managed_by_kubelet and pod.uid]
        return frozenset().union(*map(_cpus, texts)) & frozenset(self.cpus)


def read_ratios(text: str | None) -> dict[str, float] | None:
    """The amplification ratios of a node by resource; None if the annotation is invalid."""
    if text is None:
        return {}
    try:
        return {
            name: min(ratio, MOST_TIMES) for name, ratio in decode_json(text, dict[str, float]).items()
        }
    except InvalidObject:
        return None


def amplified(value: int, ratio: float) -> int:
    return math.ceil(value * ratio) if ratio > 1 else value


def _is_zone(number: str) -> bool:
    return number.isdecimal() and len(number) < _DIGITS and int(number) < MOST_ZONES


def _each(cpus: int, parts: int) -> int:
    return cpus // parts if parts else 0


def _cpus(text: str) -> frozenset[int]:
    try:
        return parse_cpus(text)
    except ValueError:
        return frozenset()


def _zones(given: NodeResourceTopology) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for zone in given.zones:
        _, dash, number = zone.name.partition("node-")
        if zone.type != "Node" or not dash or not _is_zone(number):
            continue
        offered: dict[str, int] = {}
        for resource in zone.resources:
            try:
                value = amount(resource.name, resource.allocatable)
                offered[resource.name] = min(max(0, value), MOST_OF_ZONE)
            except QuantityError:
                offered[resource.name] = 0
        found[int(number)] = offered
    return dict(sorted(found.items()))


def _read(annotations: Mapping[str, str], key: str, type_: type[V], otherwise: V) -> V:
    text = annotations.get(key)
    if not text:
        return otherwise
    try:
        return decode_json(text, type_)
    except InvalidObject:
        return otherwise


def cpus_of_numa(topology: NodeTopology, cpus: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for cpu in cpus:
        known = topology.cpus.get(cpu)
        if known is not None:
            found.setdefault(known.numa, []).append(cpu)
    return found


# Requests of pods


NOT_WHOLE = "the requested CPUs must be integer"
BINDING = (FULL_CORES, SPREAD)
POLICIES = ("", BEST_EFFORT, RESTRICTED, SINGLE)
"""The NUMA policies; columns have the index of one."""

EXCLUSIVE_QOS = ("LSE", "LSR")
_PRODUCTION = "koord-prod"
_OTHER_PRIORITIES = ((7000, 7999), (5000, 5999), (3000, 3999))
"""Priorities of Koordinator's classes other than koord-prod."""


class CpuWantError(HoldfastError):
    """The CPU request or policy of a pod is invalid; with `error`, its annotation cannot be decoded."""

    def __init__(self, message: str, error: bool = False) -> None:
        super().__init__(message)
        self.error = error


class Want(NamedTuple):
    """The CPU and NUMA requests of pods of one class."""

    milli: int
    requests: tuple[tuple[int, int], ...]
    """All requests, by slot."""
    bound: bool = False
    """Whether it requests exclusive CPUs."""
    policy: str = FULL_CORES
    required: str = ""
    """The required bind policy; empty if there is none."""
    apart: str = ""
    numa: str = ""
    """Its NUMA policy."""
    exclusive: bool = False
    """Whether pods on one NUMA node and pods on several do not share NUMA nodes."""
    given: ResourceSpec = ResourceSpec()

    @property
    def cpus(self) -> int:
        return self.milli // 1000


def read_want(cls: PodClass, default: str) -> Want:
    """Reads the request of a class; `default` is the bind policy without one. Raises CpuWantError."""
    spec = _read_requests(cls, names.RESOURCE_SPEC, ResourceSpec)
    numa = _read_requests(cls, names.NUMA_TOPOLOGY_SPEC, NUMATopologySpec)
    want = Want(cls.request(CPU), cls.requests, numa=numa.numa_topology_policy, given=spec)
    if want.numa not in POLICIES:
        want = want._replace(numa="")
    exclusive = numa.single_numa_node_exclusive
    want = want._replace(exclusive=exclusive == "Required" or (not exclusive and bool(want.numa)))
    if not has_exclusive_cpus(cls):
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


def has_exclusive_cpus(cls: PodClass) -> bool:
    """Whether pods of the class have a QoS class with exclusive CPUs (LSE, LSR)."""
    if cls.labels.get(names.QOS_CLASS) not in EXCLUSIVE_QOS:
        return False
    label = cls.labels.get(names.KOORD_PRIORITY_CLASS)
    if label is not None and label.startswith("koord-"):
        return label == _PRODUCTION
    return not any(low <= cls.priority <= high for low, high in _OTHER_PRIORITIES)


def _read_requests(cls: PodClass, key: str, type_: type[V]) -> V:
    text = cls.annotations.get(key)
    try:
        return decode_json(text, type_) if text is not None else type_()
    except InvalidObject as error:
        raise CpuWantError(f"metadata.annotations[{key}]: {error.message}", error=True) from error
