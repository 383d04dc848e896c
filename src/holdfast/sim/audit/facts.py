"""Facts of raw objects that capacity depends on, parsed independently of the scheduler."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

# Quantities and CPU lists


Amounts = dict[str, int]
"""Milli for cpu, whole units for everything else."""

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@lru_cache(maxsize=65536)
def milli(text: str) -> int:
    """In thousandths, rounded up. Raises ValueError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, exponent, suffix = found.groups()
    value = Fraction(Decimal(number))
    if exponent is not None:
        value *= Fraction(10) ** int(exponent)
    elif suffix in _BINARY:
        value *= 2 ** _BINARY[suffix]
    else:
        value *= Fraction(10) ** _DECIMAL[suffix or ""]
    value *= 1000
    return -(-value.numerator // value.denominator)


def millis(resources: Mapping[str, Any] | None) -> Amounts:
    """A resource list in thousandths; invalid quantities are left out."""
    result = {}
    for name, value in (resources or {}).items():
        try:
            result[name] = milli(str(value))
        except ValueError:
            continue
    return result


def counted(thousandths: Mapping[str, int]) -> Amounts:
    """In the units that are compared with a node's allocatable."""
    return {name: value if name == "cpu" else -(-value // 1000) for name, value in thousandths.items()}


def amounts(resources: Mapping[str, Any] | None) -> Amounts:
    return counted(millis(resources))


def add(into: Amounts, other: Mapping[str, int], sign: int = 1) -> None:
    for name, value in other.items():
        into[name] = into.get(name, 0) + sign * value


def raise_to(into: Amounts, other: Mapping[str, int]) -> None:
    for name, value in other.items():
        into[name] = max(into.get(name, 0), value)


@lru_cache(maxsize=4096)
def cpu_list(text: str) -> frozenset[int]:
    """`0-3,8` as a set."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def cpu_text(cpus: Iterable[int]) -> str:
    return ",".join(str(cpu) for cpu in sorted(cpus))


# Facts


Raw = dict[str, Any]

ENDED = ("Succeeded", "Failed")
_KOORDINATOR = "scheduling.koordinator.sh/"
_PREEMPTOR_LABEL = "holdfast.io/preemptor-uid"
_HOLD_LABEL = "holdfast.io/hold"
_GANG = "gang.scheduling.koordinator.sh/"
_PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
_DEVICE_RESOURCES = (
    "nvidia.com/gpu",
    "amd.com/gpu",
    "dcu.com/gpu",
    "koordinator.sh/gpu",
    "koordinator.sh/rdma",
    "koordinator.sh/fpga",
)


class Port(NamedTuple):
    ip: str
    protocol: str
    number: int

    def conflicts(self, other: "Port") -> bool:
        if (self.protocol, self.number) != (other.protocol, other.number):
            return False
        return self.ip == other.ip or "0.0.0.0" in (self.ip, other.ip)

    def __str__(self) -> str:
        return f"{self.ip}:{self.number}/{self.protocol}"


class AuditDeviceShare(NamedTuple):
    """The allocated share of one device."""

    type: str
    minor: int
    resources: Amounts
    functions: tuple[tuple[int, str], ...]
    """Virtual functions, by minor and bus."""

    @property
    def is_whole(self) -> bool:
        """Of a GPU: whether it is exclusive."""
        shares = ("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
        return all(self.resources.get(name, 100) >= 100 for name in shares)


class NumaShare(NamedTuple):
    node: int
    resources: Amounts


@dataclass(slots=True)
class Usage:
    """What a pod uses, or a reservation holds, of a node."""

    requests: Amounts
    limits: Amounts
    ports: tuple[Port, ...]
    devices: tuple[AuditDeviceShare, ...]
    cpus: frozenset[int]
    numa: tuple[NumaShare, ...]
    claims: tuple[tuple[str, str], ...]
    """Namespace and name."""

    @property
    def is_special(self) -> bool:
        return bool(self.ports or self.devices or self.cpus or self.numa or self.claims)


@dataclass(slots=True)
class PodFacts:
    namespace: str
    name: str
    uid: str
    node: str
    scheduler: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner_references: list[Raw]
    usage: Usage
    reservation: str
    """The uid of the reservation it was bound through."""
    reservation_name: str
    deleting: bool
    has_deadline: bool
    groups: tuple[tuple[str, str], ...] = ()
    """API group and name of each PodGroup it may belong to."""

    def __str__(self) -> str:
        return f"Pod/{self.namespace}/{self.name}"

    @property
    def is_daemon(self) -> bool:
        return any(
            each.get("kind") == "DaemonSet" and each.get("controller") for each in self.owner_references
        )

    @property
    def wants_partition(self) -> bool:
        """Whether its GPUs are to be one of the sets its node lists, even where others need not be."""
        return _KOORDINATOR + "gpu-partition-spec" in self.annotations

    @property
    def has_run_estimate(self) -> bool:
        metadata = {**self.labels, **self.annotations}
        return (
            self.has_deadline
            or "holdfast.io/run-estimate" in metadata
            or "volcano.sh/job-name" in metadata
        )


@dataclass(slots=True)
class ReservationFacts:
    name: str
    uid: str
    phase: str
    node: str
    scheduler: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    usage: Usage
    """`requests` is what it holds by its status."""
    is_as_asked: bool
    """Whether it holds what its template requests; not if there was no capacity to resize it."""
    slots: int
    owners: list[Raw]
    once: bool
    policy: str
    namespace: str
    expires: float | None
    status: Raw
    created: str
    pod_spec: Raw
    """Of its template."""

    def __str__(self) -> str:
        return f"Reservation/{self.name}"

    @property
    def is_preemption_hold(self) -> bool:
        return _PREEMPTOR_LABEL in self.labels

    @property
    def is_starvation_hold(self) -> bool:
        return _HOLD_LABEL in self.labels

    @property
    def is_live(self) -> bool:
        return self.phase in ("Available", "Waiting")


@dataclass(slots=True)
class DeviceFacts:
    """The devices of a node: resources by type and minor, and which are unhealthy."""

    totals: dict[tuple[str, int], Amounts] = field(default_factory=dict)
    unhealthy: set[tuple[str, int]] = field(default_factory=set)
    partitions: set[frozenset[int]] = field(default_factory=set)
    """The sets of GPUs that may be given together, by their minors."""
    keeps_partitions: bool = False
    """Whether pods without the annotation get only such sets, too."""


@dataclass(slots=True)
class TopologyFacts:
    cpus: frozenset[int] = frozenset()
    numa: dict[int, Amounts] = field(default_factory=dict)


def pod_facts(raw: Raw) -> PodFacts:
    metadata, spec = raw["metadata"], raw["spec"]
    annotations = metadata.get("annotations") or {}
    allocated = _json(annotations.get(_KOORDINATOR + "reservation-allocated"))
    namespace = metadata.get("namespace", "")
    return PodFacts(
        namespace=namespace,
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec.get("nodeName") or "",
        scheduler=spec.get("schedulerName") or "",
        labels=metadata.get("labels") or {},
        annotations=annotations,
        owner_references=metadata.get("ownerReferences") or [],
        usage=_usage(raw, annotations, namespace, metadata["name"]),
        reservation=str(allocated.get("uid") or ""),
        reservation_name=str(allocated.get("name") or ""),
        deleting="deletionTimestamp" in metadata,
        has_deadline=spec.get("activeDeadlineSeconds") is not None,
        groups=_groups(raw),
    )


def reservation_facts(raw: Raw) -> ReservationFacts:
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    status = raw.get("status") or {}
    template = spec.get("template") or {}
    pod_spec = template.get("spec") or {}
    namespace = (template.get("metadata") or {}).get("namespace") or "default"
    # Volumes made for one pod only are not the reservation's to count.
    made = {"metadata": template.get("metadata") or {}, "spec": pod_spec}
    usage = _usage(made, annotations, namespace, "")
    asked = usage.requests
    if status.get("allocatable"):
        usage.requests = amounts(status["allocatable"])
    return ReservationFacts(
        name=metadata["name"],
        uid=metadata["uid"],
        phase=status.get("phase") or "Pending",
        node=status.get("nodeName") or "",
        scheduler=pod_spec.get("schedulerName") or "default-scheduler",
        labels=metadata.get("labels") or {},
        annotations=annotations,
        usage=usage,
        is_as_asked=_is_granted(asked, usage.requests, status),
        slots=max(1, usage.requests.get("pods", 0)),
        owners=spec.get("owners") or [],
        once=spec.get("allocateOnce") is not False,
        policy=spec.get("allocatePolicy") or "",
        namespace=namespace,
        expires=_expiry(metadata, spec, status),
        status=status,
        created=metadata.get("creationTimestamp") or "",
        pod_spec=pod_spec,
    )


def _is_granted(asked: Amounts, held: Amounts, status: Raw) -> bool:
    if any(
        each.get("type") == "Resized" and each.get("status") == "False"
        for each in status.get("conditions") or ()
    ):
        return False
    names = {name for name in {*asked, *held} if name != "pods" and not is_device_resource(name)}
    return all(asked.get(name, 0) == held.get(name, 0) for name in names)


def device_facts(raw: Raw) -> DeviceFacts:
    facts = DeviceFacts()
    for info in (raw.get("spec") or {}).get("devices") or ():
        key = (info.get("type", ""), int(info.get("minor") or 0))
        facts.totals[key] = amounts(info.get("resources"))
        if not info.get("health"):
            facts.unhealthy.add(key)
    metadata = raw["metadata"]
    table = _json((metadata.get("annotations") or {}).get(_KOORDINATOR + "gpu-partitions"))
    for number, listed in table.items():
        for each in listed:
            if len(each.get("minors") or ()) == int(number):
                facts.partitions.add(frozenset(each["minors"]))
    facts.keeps_partitions = (metadata.get("labels") or {}).get(_PARTITION_POLICY) == "Honor"
    return facts


def topology_facts(raw: Raw) -> TopologyFacts:
    annotations = raw["metadata"].get("annotations") or {}
    detail = _json(annotations.get("node.koordinator.sh/cpu-topology")).get("detail") or ()
    numa = {}
    for zone in raw.get("zones") or ():
        name = str(zone.get("name", ""))
        if zone.get("type") == "Node" and name.startswith("node-") and name[5:].isdigit():
            listed = {each.get("name"): each.get("allocatable") for each in zone.get("resources") or ()}
            numa[int(name[5:])] = amounts({str(k): v for k, v in listed.items() if v is not None})
    return TopologyFacts(frozenset(int(each.get("id", 0)) for each in detail), numa)


def limit_ratios(raw: Raw) -> dict[str, int]:
    """By resource, the percentage of allocatable that limits may add up to; empty for a malformed
    annotation.
    """
    text = (raw["metadata"].get("annotations") or {}).get("node.koordinator.sh/limit-to-allocatable")
    ratios = {}
    for name, value in _json(text).items():
        shown = str(value).removesuffix("%")
        if shown.isdigit():
            ratios[name] = int(shown)
    return ratios


def is_device_resource(name: str) -> bool:
    return name in _DEVICE_RESOURCES or name.startswith("koordinator.sh/gpu")


CORE_GROUPS = "scheduling.k8s.io"


def core_gang(namespace: str, name: str) -> tuple[str, str]:
    """The key of a PodGroup of `scheduling.k8s.io`, which may have the name of another one."""
    return namespace, f"{CORE_GROUPS}/{name}"


def _core_name(raw: Raw) -> str:
    return ((raw.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName") or ""


def _groups(raw: Raw) -> tuple[tuple[str, str], ...]:
    if name := _core_name(raw):
        return ((CORE_GROUPS, name),)
    gang = gang_of(raw)
    families = ("scheduling.volcano.sh", "scheduling.sigs.k8s.io")
    return () if gang is None else tuple((family, gang[1]) for family in families)


def gang_of(raw: Raw) -> tuple[str, str, int | None] | None:
    """The gang of a pod: namespace, name, and minimum size if the pod states it; None without a gang
    or if the gang need not be complete.
    """
    metadata = raw["metadata"]
    if core := _core_name(raw):
        return *core_gang(metadata.get("namespace", ""), core), None
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    namespace = metadata.get("namespace", "")
    for name in (
        labels.get("pod-group.scheduling.sigs.k8s.io"),
        annotations.get("scheduling.volcano.sh/group-name"),
        annotations.get("scheduling.k8s.io/group-name"),
    ):
        if name:
            return namespace, name, None
    name, needs = annotations.get(_GANG + "name"), annotations.get(_GANG + "min-available", "")
    if name and annotations.get(_GANG + "mode") != "NonStrict":
        return namespace, name, int(needs) if needs.isdigit() else None
    return None


@lru_cache(maxsize=4096)
def parse_time(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def _json(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _usage(raw: Raw, annotations: Mapping[str, str], namespace: str, name: str) -> Usage:
    spec = raw["spec"]
    status = _json(annotations.get(_KOORDINATOR + "resource-status"))
    return Usage(
        requests=pod_requests(raw),
        limits=_pod_limits(raw),
        ports=_ports(spec),
        devices=_devices(annotations.get(_KOORDINATOR + "device-allocated")),
        cpus=cpu_list(status.get("cpuset") or ""),
        numa=tuple(
            NumaShare(int(each.get("node") or 0), amounts(each.get("resources")))
            for each in status.get("numaNodeResources") or ()
        ),
        claims=_claims(spec, namespace, name),
    )


def pod_requests(raw: Raw) -> Amounts:
    """Containers and sidecars together, or an init container with the sidecars before it if that is
    more; pod-level requests replace them; plus overhead. A resize counts until it is found
    infeasible.
    """
    status = raw.get("status") or {}
    infeasible = any(
        each.get("type") == "PodResizePending" and each.get("reason") == "Infeasible"
        for each in status.get("conditions") or ()
    )
    running = {
        each.get("name"): each
        for field_name in ("containerStatuses", "initContainerStatuses")
        for each in status.get(field_name) or ()
    }

    def requested(container: Raw, counts_status: bool) -> Amounts:
        resources = container.get("resources") or {}
        return {**millis(resources.get("limits")), **millis(resources.get("requests"))}

    def reported(container: Raw, counts_status: bool) -> Raw | None:
        seen = running.get(container.get("name")) if counts_status else None
        return seen if seen is not None and seen.get("resources") is not None else None

    def allocated(container: Raw, counts_status: bool) -> Amounts:
        seen = reported(container, counts_status)
        if seen is not None and seen.get("allocatedResources"):
            return millis(seen["allocatedResources"])
        return {} if seen is not None and infeasible else requested(container, counts_status)

    def actual(container: Raw, counts_status: bool) -> Amounts:
        seen = reported(container, counts_status)
        if seen is not None and seen["resources"].get("requests"):
            return millis(seen["resources"]["requests"])
        return allocated(container, counts_status)

    spec = raw["spec"]
    refused = infeasible and any(each.get("resources") is not None for each in running.values())
    total: Amounts = {} if refused else _peak(spec, requested)
    raise_to(total, _peak(spec, allocated))
    raise_to(total, _peak(spec, actual))
    whole = _pod_level(spec, requested)
    if whole and status.get("resources") is not None:
        whole = {} if infeasible else whole
        raise_to(whole, millis(status["resources"].get("requests")))
        raise_to(whole, millis(status.get("allocatedResources")))
    total.update((name, value) for name, value in whole.items() if _is_pod_level(name))
    add(total, millis(spec.get("overhead")))
    return counted(total)


def _pod_limits(raw: Raw) -> Amounts:
    """Per container the larger of limit and request."""

    def limit(container: Raw, counts_status: bool) -> Amounts:
        return _larger(container.get("resources") or {})

    spec = raw["spec"]
    total = _peak(spec, limit)
    whole = spec.get("resources") or {}
    for name, value in _larger(whole).items():
        if _is_pod_level(name):
            has_limit = name in (whole.get("limits") or {})
            total[name] = value if has_limit else max(value, total.get(name, 0))
    add(total, millis(spec.get("overhead")))
    return counted(total)


def _larger(resources: Raw) -> Amounts:
    both = millis(resources.get("requests"))
    raise_to(both, millis(resources.get("limits")))
    return both


def _peak(spec: Raw, of: Callable[[Raw, bool], Amounts]) -> Amounts:
    total: Amounts = {}
    for container in spec.get("containers") or ():
        add(total, of(container, True))
    sidecars: Amounts = {}
    highest: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            own = of(container, True)
            add(total, own)
            add(sidecars, own)
        else:
            during = dict(sidecars)
            add(during, of(container, False))
            raise_to(highest, during)
    raise_to(total, highest)
    return total


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _pod_level(spec: Raw, of: Callable[[Raw, bool], Amounts]) -> Amounts:
    whole = spec.get("resources") or {}
    requests, limits = millis(whole.get("requests")), millis(whole.get("limits"))
    if limits:
        summed = _peak(spec, lambda container, _: of(container, False))
        kept = {name: value for name, value in summed.items() if not name.startswith("hugepages-")}
        requests = {**limits, **kept, **requests}
    return {name: value for name, value in requests.items() if _is_pod_level(name)}


def _ports(spec: Raw) -> tuple[Port, ...]:
    listed = [*(spec.get("containers") or ())]
    listed += [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return tuple(
        Port(port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", int(number))
        for container in listed
        for port in container.get("ports") or ()
        if (
            number := port.get("hostPort")
            or (port.get("containerPort") if spec.get("hostNetwork") else None)
        )
    )


def _devices(text: str | None) -> tuple[AuditDeviceShare, ...]:
    return tuple(
        AuditDeviceShare(
            type,
            int(each.get("minor") or 0),
            amounts(each.get("resources")),
            tuple(
                (int(vf.get("minor") or 0), str(vf.get("busID") or ""))
                for vf in (each.get("extension") or {}).get("vfs") or ()
            ),
        )
        for type, shares in _json(text).items()
        for each in shares
    )


def _claims(spec: Raw, namespace: str, pod: str) -> tuple[tuple[str, str], ...]:
    found = []
    for volume in spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            found.append((namespace, volume["persistentVolumeClaim"].get("claimName", "")))
        elif volume.get("ephemeral") and pod:
            found.append((namespace, f"{pod}-{volume.get('name')}"))
    return tuple(found)


def _expiry(metadata: Raw, spec: Raw, status: Raw) -> float | None:
    """When the reservation expires: by `expires`, or its ttl from its start or its creation. One that
    holds its capacity has started, whatever start it got since then."""
    if spec.get("expires"):
        return parse_time(spec["expires"])
    ttl = duration(str(spec.get("ttl") or ""))
    start = (metadata.get("annotations") or {}).get("holdfast.io/starts-at")
    since = start or metadata.get("creationTimestamp")
    if start and status.get("phase") in ("Available", "Waiting"):
        for each in status.get("conditions") or ():
            if each.get("type") == "Scheduled" and parse_time(
                each["lastTransitionTime"]
            ) + 1 <= parse_time(start):
                since = each["lastTransitionTime"]
    return parse_time(since) + ttl if ttl and since else None


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@lru_cache(maxsize=4096)
def duration(text: str) -> float:
    """A Go duration in seconds; 0 if invalid."""
    parts = re.findall(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)", text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
