"""The audit's model of the cluster: the facts of each node's objects, updated with every change."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.sim.audit.facts import (
    CORE_GROUPS,
    ENDED,
    Amounts,
    DeviceFacts,
    PodFacts,
    Raw,
    ReservationFacts,
    TopologyFacts,
    add,
    amounts,
    core_gang,
    device_facts,
    gang_of,
    limit_ratios,
    pod_facts,
    reservation_facts,
    topology_facts,
)

Gang = tuple[str, str]

_REQUIREMENT = "scheduling.koordinator.sh/new-reservation-requirement"


@dataclass(slots=True)
class NodeState:
    name: str
    raw: Raw | None = None
    """None while there is no such node."""
    allocatable: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    """The highest sum of limits by resource, from annotations of the node."""
    devices: DeviceFacts | None = None
    topology: TopologyFacts | None = None
    volume_limits: dict[str, int] = field(default_factory=dict)
    pods: dict[str, PodFacts] = field(default_factory=dict)
    special: dict[str, PodFacts] = field(default_factory=dict)
    """Pods with ports, devices, CPUs, NUMA amounts or claims."""
    reservations: dict[str, ReservationFacts] = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    used_limits: Amounts = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        return ((self.raw or {}).get("metadata") or {}).get("labels") or {}

    def put(self, pod: PodFacts) -> None:
        self.pods[pod.uid] = pod
        if pod.usage.is_special:
            self.special[pod.uid] = pod
        add(self.used, pod.usage.requests)
        add(self.used_limits, pod.usage.limits)

    def drop(self, pod: PodFacts) -> None:
        del self.pods[pod.uid]
        self.special.pop(pod.uid, None)
        add(self.used, pod.usage.requests, -1)
        add(self.used_limits, pod.usage.limits, -1)


class ClusterState:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.pods: dict[str, PodFacts] = {}
        """Pods that are on a node and have not ended, by uid."""
        self.existing: dict[str, Raw] = {}
        """All pods, by uid."""
        self.reservations: dict[str, ReservationFacts] = {}
        """By uid."""
        self.owners: dict[str, dict[str, PodFacts]] = {}
        """By the uid of a reservation, the pods bound through it that are there."""
        self.gangs: dict[Gang, dict[str, Raw]] = {}
        """The members of each gang, by uid."""
        self._member_of: dict[str, Gang] = {}
        self.groups: dict[Gang, Raw] = {}
        """PodGroups."""
        self.relabelled: set[str] = set()
        """Nodes whose labels changed."""
        self.claims: dict[tuple[str, str], Raw] = {}
        self.volumes: dict[str, Raw] = {}
        self.asking: set[str] = set()
        """Uids of pods that requested a reservation: capacity may be set aside for them, and for
        those that share it, which no object shows."""
        self.queues: dict[str, Raw] = {}
        self.objects = 0
        """How many there are besides Events."""

    def node(self, name: str) -> NodeState:
        state = self.nodes.get(name)
        if state is None:
            state = self.nodes[name] = NodeState(name)
        return state

    def put_node(self, name: str, raw: Raw | None) -> None:
        state = self.node(name)
        if state.raw is not None and raw is not None and _labels(state.raw) != _labels(raw):
            self.relabelled.add(name)
        state.raw = raw
        state.allocatable = amounts(((raw or {}).get("status") or {}).get("allocatable"))
        ratios = limit_ratios(raw) if raw is not None else {}
        state.limits = {
            resource: percent * state.allocatable.get(resource, 0) // 100
            for resource, percent in ratios.items()
        }

    def put_device(self, name: str, raw: Raw | None) -> None:
        self.node(name).devices = device_facts(raw) if raw is not None else None

    def put_topology(self, name: str, raw: Raw | None) -> None:
        self.node(name).topology = topology_facts(raw) if raw is not None else None

    def put_csi_node(self, name: str, raw: Raw | None) -> None:
        self.node(name).volume_limits = {
            driver["name"]: int(count)
            for driver in ((raw or {}).get("spec") or {}).get("drivers") or ()
            if (count := (driver.get("allocatable") or {}).get("count")) is not None
        }

    def put_pod(self, raw: Raw) -> PodFacts | None:
        """The pod's facts if it is on a node and has not ended."""
        uid = raw["metadata"]["uid"]
        self.existing[uid] = raw
        if _REQUIREMENT in (raw["metadata"].get("annotations") or {}):
            self.asking.add(uid)
        self._put_member(uid, raw)
        self._displace(uid)
        if not raw["spec"].get("nodeName") or (raw.get("status") or {}).get("phase") in ENDED:
            return None
        pod = pod_facts(raw)
        self.pods[uid] = pod
        self.node(pod.node).put(pod)
        if pod.reservation:
            self.owners.setdefault(pod.reservation, {})[uid] = pod
        return pod

    def drop_pod(self, raw: Raw) -> None:
        uid = raw["metadata"]["uid"]
        self.existing.pop(uid, None)
        self.asking.discard(uid)
        self._put_member(uid, None)
        self._displace(uid)

    def _displace(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self.node(pod.node).drop(pod)
            self.owners.get(pod.reservation, {}).pop(uid, None)

    def _put_member(self, uid: str, raw: Raw | None) -> None:
        gang = gang_of(raw) if raw is not None else None
        was = self._member_of.pop(uid, None)
        if was is not None:
            self.gangs[was].pop(uid, None)
        if gang is not None and raw is not None:
            self._member_of[uid] = gang[:2]
            self.gangs.setdefault(gang[:2], {})[uid] = raw

    def put_reservation(self, raw: Raw, by_scheduler: bool) -> ReservationFacts:
        """Its limits are those of its template, but for more than before only once the scheduler has
        written that it holds what the template asks for; nothing else shows them."""
        reservation = reservation_facts(raw)
        before = self.reservations.get(reservation.uid)
        if before is not None and before.is_live and not (by_scheduler and reservation.is_as_asked):
            had = before.usage.limits
            reservation.usage.limits = {
                name: min(limit, had.get(name, 0)) for name, limit in reservation.usage.limits.items()
            }
        self.drop_reservation(reservation.uid)
        self.reservations[reservation.uid] = reservation
        if reservation.is_live and reservation.node:
            self.node(reservation.node).reservations[reservation.uid] = reservation
        return reservation

    def drop_reservation(self, uid: str) -> None:
        before = self.reservations.pop(uid, None)
        if before is not None and before.node:
            self.node(before.node).reservations.pop(uid, None)

    def owners_of(self, reservation: ReservationFacts) -> list[PodFacts]:
        """The pods bound through it that are on its node."""
        return [
            pod for pod in self.owners.get(reservation.uid, {}).values() if pod.node == reservation.node
        ]


# Owner matching


_ID = "scheduling.koordinator.sh/reservation-id"


def _labels(raw: Raw) -> Mapping[str, str]:
    return raw["metadata"].get("labels") or {}


def owns(cluster: ClusterState, pod: PodFacts, reservation: ReservationFacts) -> bool:
    matches = any(_matches(cluster, pod, owner) for owner in reservation.owners)
    return matches or _asked_for(pod, reservation)


def selects(selector: Raw, labels: Mapping[str, str]) -> bool:
    """A LabelSelector."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(expression(each, labels) for each in selector.get("matchExpressions") or ())


def expression(each: Raw, labels: Mapping[str, str]) -> bool:
    """One requirement of a label or node selector."""
    key, operator, values = each.get("key", ""), each.get("operator"), each.get("values") or ()
    has, value = key in labels, labels.get(key)
    if operator == "In":
        return has and value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return has
    if operator == "DoesNotExist":
        return not has
    if operator in ("Gt", "Lt") and has and values:
        try:
            left, right = int(value or ""), int(values[0])
        except ValueError:
            return False
        return left > right if operator == "Gt" else left < right
    return False


def _matches(cluster: ClusterState, pod: PodFacts, owner: Raw) -> bool:
    """All fields of one owner entry must match."""
    object = owner.get("object")
    if object is not None and object.get("kind") in ("PodGroup", "Workload"):
        if not _is_group(cluster, pod, object):
            return False
    elif object is not None and not _is_object(pod, object):
        return False
    controller = owner.get("controller")
    if controller is not None and not _is_controlled(pod, controller):
        return False
    selector = owner.get("labelSelector")
    return selector is None or selects(selector, pod.labels)


def _is_group(cluster: ClusterState, pod: PodFacts, wanted: Raw) -> bool:
    """Whether the pod belongs to this PodGroup, or to one of this Workload."""
    if wanted.get("namespace") and wanted["namespace"] != pod.namespace:
        return False
    for family, name in pod.groups:
        key = core_gang(pod.namespace, name) if family == CORE_GROUPS else (pod.namespace, name)
        group = cluster.groups.get(key) or {}
        if wanted["kind"] == "Workload":
            of = ((group.get("spec") or {}).get("workloadRef") or {}).get("workloadName")
            if of and wanted.get("name") in (None, "", of):
                return True
            continue
        is_ = {
            "name": name,
            "uid": (group.get("metadata") or {}).get("uid"),
            "apiVersion": family,
        }
        given = {**wanted, "apiVersion": (wanted.get("apiVersion") or "").rpartition("/")[0]}
        if all(not given.get(field) or given[field] == value for field, value in is_.items()):
            return True
    return False


def _is_object(pod: PodFacts, wanted: Raw) -> bool:
    is_ = {
        "uid": pod.uid,
        "name": pod.name,
        "namespace": pod.namespace,
        "apiVersion": "v1",
        "kind": "Pod",
    }
    return all(not wanted.get(field) or wanted[field] == value for field, value in is_.items())


def _is_controlled(pod: PodFacts, wanted: Raw) -> bool:
    if wanted.get("namespace") and wanted["namespace"] != pod.namespace:
        return False
    fields = ("uid", "name", "kind", "apiVersion")
    return any(
        all(not wanted.get(field) or wanted[field] == each.get(field) for field in fields)
        for each in pod.owner_references
    )


def _asked_for(pod: PodFacts, reservation: ReservationFacts) -> bool:
    """A reservation requested for a pod belongs to the pod, independent of spec.owners."""
    known = reservation.labels.get(_ID) or reservation.annotations.get(_ID)
    return bool(known) and f'"{known}"' in pod.annotations.get(_REQUIREMENT, "")
