"""The summary of a run: usage of nodes over time, counts, waiting times, and why pods are pending.

Usage is computed from the objects alone, independently of the scheduler's ledger, so it also checks the
scheduler: what it places must fit by this count too.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.node import Device, Node
from holdfast.api.pod import Pod
from holdfast.api.resources import Amounts, amounts, pod_requests
from holdfast.local.component import ENDED, ObjectWriter
from holdfast.local.store.objects import Raw
from holdfast.machinery.strategies.pods import GATED_REASON
from holdfast.scheduler.managers.devices import resources_of

_SHOWN = ("cpu", "memory")


@dataclass(slots=True)
class _Account:
    offered: Amounts | None = None
    """None while there is no such node."""
    used: Amounts = field(default_factory=dict)
    pods: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A node's usage from `t` on, as shares of its cpu and memory."""

    t: float
    cpu: float
    memory: float
    pods: int


class NodeUsage:
    def __init__(self) -> None:
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
        self.history: dict[str, list[Sample]] = {}

    def put_node(self, node: Node, t: float) -> None:
        self._advance(t)
        account = self._nodes.setdefault(node.metadata.name, _Account())
        self._in_total(account, -1)
        account.offered = amounts(node.status.allocatable)
        self._in_total(account, 1)
        self._sample(node.metadata.name, t)

    def put_device(self, device: Device) -> None:
        self._devices[device.metadata.name] = resources_of(device)

    def drop_device(self, name: str) -> None:
        self._devices.pop(name, None)

    def drop_node(self, name: str, t: float) -> None:
        self._advance(t)
        account = self._nodes[name]
        self._in_total(account, -1)
        account.offered = None
        self._sample(name, t)

    def put_pod(self, pod: Pod, t: float) -> None:
        """The pod is there; it counts while it is on a node and has not ended."""
        node = pod.spec.node_name
        if not node or pod.status.phase in ENDED:
            self.drop_pod(pod.metadata.uid, t)
            return
        placed = (node, self._requests(pod))
        if self._placed.get(pod.metadata.uid) == placed:
            return
        self.drop_pod(pod.metadata.uid, t)
        self._placed[pod.metadata.uid] = placed
        self._count(node, placed[1], 1, t)

    def drop_pod(self, uid: str, t: float) -> None:
        placed = self._placed.pop(uid, None)
        if placed is not None:
            self._count(*placed, -1, t)

    def does_not_fit(self, pod: Pod, node: str, checked: Callable[[str], bool]) -> list[str]:
        """The resources that the pod would overcommit on the node."""
        account = self._nodes.get(node) or _Account()
        offered = self._devices.get(node, {}) | (account.offered or {})
        wanted = {"pods": 1} | {
            name: amount for name, amount in self._requests(pod).items() if amount and name != "pods"
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

    def _requests(self, pod: Pod) -> Amounts:
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
        self._sample(node, t)

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

    def _sample(self, node: str, t: float) -> None:
        account = self._nodes[node]
        offered = account.offered or {}
        cpu, memory = (_share(account.used, offered, name) for name in _SHOWN)
        samples = self.history.setdefault(node, [])
        if samples and samples[-1].t == t:
            samples.pop()
        samples.append(Sample(t, cpu, memory, account.pods if account.offered is not None else 0))


def _add(into: Amounts, other: Amounts, sign: int) -> None:
    for name, amount in other.items():
        into[name] = into.get(name, 0) + sign * amount


def _share(used: Mapping[str, float], offered: Mapping[str, float], name: str) -> float:
    return round(used.get(name, 0) / offered[name], 6) if offered.get(name) else 0.0


# Counts, waiting times, and why pods are pending


_PHASES = ("Pending", "Running", "Succeeded", "Failed")
_COUNTED = re.compile(r"^(\d+) (.*)$")


class RunFigures:
    """Figures that the final objects do not show."""

    def __init__(self) -> None:
        self.pods = 0
        self._waiting: dict[str, float] = {}
        self.waits: list[float] = []

    def pod_created(self, pod: Pod, t: float) -> None:
        self.pods += 1
        if not pod.spec.node_name:
            self._waiting[pod.metadata.uid] = t

    def pod_bound(self, uid: str, t: float) -> None:
        since = self._waiting.pop(uid, None)
        if since is not None:
            self.waits.append(t - since)


def summary(
    objects: ObjectWriter, node_usage: NodeUsage, figures: RunFigures, end: float
) -> dict[str, Any]:
    kinds = Counter(raw["kind"] for raw in objects.all())
    pods = objects.scan("", "Pod")
    phases = Counter(pod["status"].get("phase") or "Pending" for pod in pods)
    scheduled = [_pod_scheduled(pod) for pod in pods if not pod["spec"].get("nodeName")]
    unschedulable = [each for each in scheduled if each.get("reason") == "Unschedulable"]
    waits = figures.waits
    return {
        "objects": dict(kinds),
        "pods": {
            "created": figures.pods,
            "bound": len(waits),
            "pending": len(scheduled),
            "unschedulable": len(unschedulable),
            "gated": sum(each.get("reason") == GATED_REASON for each in scheduled),
            "phases": {phase: phases[phase] for phase in _PHASES if phases[phase]},
        },
        "wait": {
            "mean": round(sum(waits) / len(waits), 6) if waits else 0.0,
            "max": round(max(waits, default=0.0), 6),
        },
        "nodes": {
            "total": kinds["Node"],
            "used": node_usage.nodes_in_use,
            "peak": node_usage.peak_nodes,
        },
        "utilisation": node_usage.utilisation(end),
        "unschedulable": _reasons(unschedulable),
    }


def _pod_scheduled(pod: Raw) -> Raw:
    for condition in pod["status"].get("conditions") or []:
        if condition.get("type") == "PodScheduled" and isinstance(condition, dict):
            return condition
    return {}


def _reasons(conditions: list[Raw]) -> dict[str, int]:
    """How many pods each reason keeps pending, most frequent first."""
    counts: Counter[str] = Counter()
    for condition in conditions:
        counts.update(set(reasons_in(str(condition.get("message") or ""))))
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def reasons_in(message: str) -> list[str]:
    """`0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.` gives the two."""
    _, found, rest = message.partition(" nodes are available: ")
    if not found:
        return [message.rstrip(".")]
    rest = rest.partition(". preemption: ")[0].rstrip(".")
    reasons = []
    for part in re.split(r", (?=\d+ )", rest):
        counted = _COUNTED.match(part)
        reasons.append(counted[2] if counted else part)
    return reasons
