"""Usage of nodes over time: what pods request of them, and what reservations hold.

Usage is computed from the objects alone, independently of the scheduler's ledger, so it also checks the
scheduler: what it places must fit by this count too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.api.node import Device, Node
from holdfast.api.pod import Pod
from holdfast.api.reservation import Reservation
from holdfast.api.resources import Amounts, amounts, pod_requests
from holdfast.local.component import ENDED
from holdfast.scheduler.managers.devices import resources_of
from holdfast.sim.reservation_lives import ReservationLives

_SHOWN = ("cpu", "memory")


@dataclass(slots=True)
class _Account:
    offered: Amounts | None = None
    """None while there is no such node."""
    used: Amounts = field(default_factory=dict)
    pods: int = 0


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A node's usage at a moment: shares of its cpu and memory, and what reservations hold unused."""

    pods: int
    cpu: float
    memory: float
    held: Amounts


class UsageListener(Protocol):
    """Is told what changes on nodes."""

    def node_changed(self, name: str, offered: Amounts | None, t: float) -> None:
        """`offered` includes devices; None if the node is gone."""

    def pod_placed(self, pod: Pod, node: str, requests: Amounts, t: float) -> None: ...

    def pod_left(self, uid: str, t: float) -> None: ...


class NodeUsage:
    def __init__(self) -> None:
        self.reservations = ReservationLives()
        self.listener: UsageListener | None = None
        self._nodes: dict[str, _Account] = {}
        self._devices: dict[str, Amounts] = {}
        """The capacity of nodes in devices, which their allocatable may lack."""
        self._placed: dict[str, tuple[str, Amounts]] = {}
        self._asked: tuple[Pod, Amounts] | None = None
        """The pod last looked at."""
        self._used: Amounts = {}
        self._offered: Amounts = {}
        self._since = 0.0
        self._used_over_time: dict[str, float] = {}
        self._offered_over_time: dict[str, float] = {}
        self._occupied = 0
        self.peak_nodes = 0

    def put_node(self, node: Node, t: float) -> None:
        self._advance(t)
        name = node.metadata.name
        account = self._nodes.setdefault(name, _Account())
        self._in_total(account, -1)
        account.offered = amounts(node.status.allocatable)
        self._in_total(account, 1)
        self._node_changed(name, t)

    def drop_node(self, name: str, t: float) -> None:
        self._advance(t)
        account = self._nodes[name]
        self._in_total(account, -1)
        account.offered = None
        self._node_changed(name, t)

    def put_device(self, device: Device, t: float) -> None:
        self._devices[device.metadata.name] = resources_of(device)
        self._node_changed(device.metadata.name, t)

    def drop_device(self, name: str, t: float) -> None:
        if self._devices.pop(name, None) is not None:
            self._node_changed(name, t)

    def put_pod(self, pod: Pod, t: float) -> None:
        """The pod is there; it counts while it is on a node and has not ended."""
        node = pod.spec.node_name
        if not node or pod.status.phase in ENDED:
            self.drop_pod(pod.metadata.uid, t)
            return
        placed = (node, self.requests(pod))
        if self._placed.get(pod.metadata.uid) == placed:
            return
        self.drop_pod(pod.metadata.uid, t)
        self._placed[pod.metadata.uid] = placed
        self._count(node, placed[1], 1, t)
        if self.listener is not None:
            self.listener.pod_placed(pod, node, placed[1], t)

    def drop_pod(self, uid: str, t: float) -> None:
        placed = self._placed.pop(uid, None)
        if placed is not None:
            self._count(*placed, -1, t)
            if self.listener is not None:
                self.listener.pod_left(uid, t)

    def put_reservation(self, reservation: Reservation, t: float) -> None:
        self._distribute(self.reservations.put(reservation, t), t)

    def drop_reservation(self, uid: str, t: float) -> None:
        self._distribute(self.reservations.drop(uid, t), t)

    def does_not_fit(self, pod: Pod, node: str, checked: Callable[[str], bool]) -> list[str]:
        """The resources that the pod would overcommit on the node."""
        account = self._nodes.get(node) or _Account()
        offered = self._with_devices(node)
        wanted = {"pods": 1} | {
            name: amount for name, amount in self.requests(pod).items() if amount and name != "pods"
        }
        problems = []
        for name, amount in wanted.items():
            used = account.pods if name == "pods" else account.used.get(name, 0)
            if checked(name) and used + amount > offered.get(name, 0):
                problems.append(
                    f"Node/{node}: {name}: {amount} more on {used} of {offered.get(name, 0)} "
                    f"for {pod.kind}/{pod.metadata.namespace}/{pod.metadata.name}"
                )
        return problems

    def requests(self, pod: Pod) -> Amounts:
        """A pod is looked at twice when it is bound; between the two its requests are the same."""
        if self._asked is not None:
            before, amounts = self._asked
            if before is pod or (
                not pod.status.container_statuses
                and not pod.status.init_container_statuses
                and not before.status.container_statuses
                and not before.status.init_container_statuses
                and before.spec.containers == pod.spec.containers
                and before.spec.init_containers == pod.spec.init_containers
                and before.spec.resources == pod.spec.resources
                and before.spec.overhead == pod.spec.overhead
            ):
                return amounts
        found = pod_requests(pod)
        self._asked = (pod, found)
        return found

    @property
    def nodes_in_use(self) -> int:
        return self._occupied

    def state(self, node: str) -> NodeLoad:
        """The node as it is now."""
        account = self._nodes[node]
        offered = account.offered or {}
        cpu, memory = (_share(account.used, offered, name) for name in _SHOWN)
        held: Amounts = {}
        for life in self.reservations.on_node(node):
            _add(held, life.unused, 1)
        return NodeLoad(account.pods if account.offered is not None else 0, cpu, memory, held)

    def utilisation(self, end: float) -> dict[str, dict[str, float]]:
        """Per resource, the share requested: over the whole run, and at its end."""
        self._advance(end)
        resources = [*_SHOWN, *sorted(set(self._offered_over_time) | set(self._offered))]
        return {
            name: {
                "mean": _share(self._used_over_time, self._offered_over_time, name)
                if self._offered_over_time.get(name)
                else _share(self._used, self._offered, name),
                "end": _share(self._used, self._offered, name),
            }
            for name in dict.fromkeys(resources)
            if name not in ("pods",) and (self._offered_over_time.get(name) or self._offered.get(name))
        }

    def capacity(self, end: float) -> Mapping[str, float]:
        """Per resource, what all nodes offered, multiplied by seconds."""
        self._advance(end)
        return self._offered_over_time

    def _count(self, node: str, requests: Amounts, sign: int, t: float) -> None:
        self._advance(t)
        account = self._nodes.get(node)
        if account is None:
            account = self._nodes[node] = _Account()
        occupied = account.pods > 0
        _add(account.used, requests, sign)
        account.pods += sign
        if account.offered is not None:
            _add(self._used, requests, sign)
            self._occupied += (account.pods > 0) - occupied
            self.peak_nodes = max(self.peak_nodes, self._occupied)
        if self.reservations.has_any(node):
            self._distribute(node, t)

    def _node_changed(self, name: str, t: float) -> None:
        if self.reservations.has_any(name):
            self._distribute(name, t)
        account = self._nodes.get(name)
        if self.listener is not None and account is not None:
            offered = None if account.offered is None else self._with_devices(name)
            self.listener.node_changed(name, offered, t)

    def _with_devices(self, node: str) -> Amounts:
        account = self._nodes.get(node)
        return self._devices.get(node, {}) | ((account and account.offered) or {})

    def _distribute(self, node: str, t: float) -> None:
        """Computes again what reservations hold on the node."""
        if not node:
            return
        account = self._nodes.get(node)
        idle = self._with_devices(node) if account is not None and account.offered is not None else {}
        if account is not None:
            for name, amount in account.used.items():
                if name in idle:
                    idle[name] = max(0, idle[name] - amount)
        self.reservations.distribute(node, idle, t)

    def _in_total(self, account: _Account, sign: int) -> None:
        if account.offered is None:
            return
        _add(self._offered, account.offered, sign)
        _add(self._used, account.used, sign)
        self._occupied += sign * (account.pods > 0)
        self.peak_nodes = max(self.peak_nodes, self._occupied)

    def _advance(self, t: float) -> None:
        passed = t - self._since
        if passed > 0:
            for into, rates in (
                (self._used_over_time, self._used),
                (self._offered_over_time, self._offered),
            ):
                for name, amount in rates.items():
                    into[name] = into.get(name, 0.0) + amount * passed
            self._since = t


def _add(into: Amounts, other: Amounts, sign: int) -> None:
    for name, amount in other.items():
        into[name] = into.get(name, 0) + sign * amount


def _share(used: Mapping[str, float], offered: Mapping[str, float], name: str) -> float:
    return round(used.get(name, 0) / offered[name], 6) if offered.get(name) else 0.0
