"""What a node says of its CPUs and NUMA nodes: its NodeResourceTopology, read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from msgspec import field

from holdfast.api import names
from holdfast.api.annotations import CPUTopology
from holdfast.api.decode import decode_json
from holdfast.api.devices import NodeResourceTopology
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import Struct
from holdfast.api.quantity import QuantityError, amount
from holdfast.core.cpus.cpuset import MOST_CPUS, parse_cpus

V = TypeVar("V")

FULL_CORES, SPREAD = "FullPCPUs", "SpreadByPCPUs"
BEST_EFFORT, RESTRICTED, SINGLE = "BestEffort", "Restricted", "SingleNUMANode"

MOST_ZONES = 64
"""NUMA nodes beyond are nobody's, and what claims to have them is not believed."""
MOST_OF_ZONE = 1 << 52
"""Of anything; sums and products of such still fit their columns."""
MOST_TIMES = 1000.0
"""No node is believed to have more times what it has."""

_SOCKET_BITS = 16
_DIGITS = 5

_KUBELET_POLICIES = {
    "BestEffort": BEST_EFFORT,
    "Restricted": RESTRICTED,
    "SingleNUMANodePodLevel": SINGLE,
}


class KubeletPolicy(Struct):
    policy: str = ""
    options: dict[str, str] = field(default_factory=dict)
    reserved_cpus: str = field(default="", name="reservedCPUs")


class NodeReservation(Struct):
    reserved_cpus: str = field(default="", name="reservedCPUs")


class SystemCPUs(Struct):
    """CPUs of the system's own daemons."""

    cpuset: str = ""
    cpuset_exclusive: bool | None = None


class PodCPUs(Struct):
    uid: str = ""
    cpuset: str = ""
    managed_by_kubelet: bool = False


class Cpu(NamedTuple):
    core: int
    numa: int
    socket: int


class Topology:
    """Of one node."""

    def __init__(self, given: NodeResourceTopology) -> None:
        annotations = given.metadata.annotations
        self.cpus: dict[int, Cpu] = {}
        detail = _read(annotations, names.CPU_TOPOLOGY, CPUTopology, CPUTopology())
        for each in detail.detail:
            if 0 <= each.id < MOST_CPUS and each.node < MOST_ZONES:
                # Some nodes number the cores of each socket anew, and some do not know their sockets.
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
        """The NUMA policy of the node's kubelet."""
        kubelet = _read(annotations, names.KUBELET_CPU_POLICY, KubeletPolicy, KubeletPolicy())
        full_only = kubelet.options.get("full-pcpus-only") == "true"
        self.full_cores_only = kubelet.policy == "static" and full_only
        self.closed = self._closed(annotations, kubelet)
        """CPUs nobody is given."""
        self.open = frozenset(self.cpus) - self.closed
        self.zones: dict[int, dict[str, int]] = _zones(given)
        """What NUMA nodes offer, by resource name."""
        for numa, offered in self.zones.items():
            if offered.get(names.CPU):
                closed = sum(1 for cpu in self.closed if self._numa_of(cpu) == numa)
                offered[names.CPU] = max(0, offered[names.CPU] - 1000 * closed)
        self.width = 1 + max((*self.zones, *(cpu.numa for cpu in self.cpus.values())), default=0)
        """One more than the highest number of a NUMA node."""
        self._ratios = read_ratios(annotations.get(names.AMPLIFICATION_RATIO)) or {}
        self.cpu_ratio = 1.0
        """How many times as much as it is a CPU of one's own counts."""
        self.amplified: dict[int, dict[str, int]] = {}
        """What NUMA nodes claim to offer."""
        self.amplify({})

    def amplify(self, ratios: Mapping[str, float]) -> None:
        """How many times what it has of a resource the node claims to have. Where the topology says so
        itself, what it says of NUMA nodes is what they claim."""
        self.cpu_ratio = max(1.0, (self._ratios or ratios).get(names.CPU, 1.0))
        times = {} if self._ratios else ratios
        self.amplified = {
            numa: {name: amplified(value, times.get(name, 1.0)) for name, value in offered.items()}
            for numa, offered in self.zones.items()
        }

    @property
    def valid(self) -> bool:
        """Whether CPUs can be told apart."""
        return bool(self.cpus)

    def _numa_of(self, cpu: int) -> int:
        known = self.cpus.get(cpu)
        return known.numa if known is not None else -1

    def _closed(self, annotations: Mapping[str, str], kubelet: KubeletPolicy) -> frozenset[int]:
        reserved = _read(annotations, names.RESERVATION_INNER, NodeReservation, NodeReservation())
        pods = _read(annotations, names.POD_CPU_ALLOCS, list[PodCPUs], [])
        system = _read(annotations, names.SYSTEM_CPUS, SystemCPUs, SystemCPUs())
        texts = [kubelet.reserved_cpus, reserved.reserved_cpus]
        texts += [system.cpuset] if system.cpuset_exclusive is not False else []
        texts += [pod.cpuset for pod in pods if pod.managed_by_kubelet and pod.uid]
        return frozenset().union(*map(_cpus, texts)) & frozenset(self.cpus)


def read_ratios(text: str | None) -> dict[str, float] | None:
    """How many times what it has a node claims to have; None where what it says makes no sense."""
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


def cpus_of_numa(topology: Topology, cpus: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for cpu in cpus:
        known = topology.cpus.get(cpu)
        if known is not None:
            found.setdefault(known.numa, []).append(cpu)
    return found
