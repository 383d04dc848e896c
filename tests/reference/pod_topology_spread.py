from __future__ import annotations

from math import log
from typing import NamedTuple

from holdfast.api.affinity import TopologySpreadConstraint
from holdfast.api.meta import LabelSelector
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.labels import Requirements, own_labels, requirements, same, selected
from reference.node_affinity import NodeAffinity
from reference.plugin import ReferencePlugin, Unfit
from reference.state import ReferenceState
from reference.taint_toleration import TaintToleration

HOSTNAME = "kubernetes.io/hostname"
_IGNORED = -1
_LACKING = Unfit(
    ("node(s) didn't match pod topology spread constraints (missing required label)",), False
)
_SKEWED = Unfit(("node(s) didn't match pod topology spread constraints",), True)


class Constraint(NamedTuple):
    given: TopologySpreadConstraint
    wanted: Requirements | None

    @property
    def key(self) -> str:
        return self.given.topology_key

    def admits(self, pod: Pod, node: Node, world: ReferenceState) -> bool:
        """Whether the node counts."""
        honours_affinity = self.given.node_affinity_policy != "Ignore"
        if honours_affinity and NodeAffinity().filter(pod, node, world) is not None:
            return False
        if self.given.node_taints_policy == "Honor":
            return TaintToleration().filter(pod, node, world) is None
        return True

    def count_on(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        """How many pods on the node count."""
        if not self.wanted:
            return 0
        return sum(
            other.metadata.namespace == pod.metadata.namespace
            and other.metadata.deletion_timestamp is None
            and selected(self.wanted, other.metadata.labels)
            for other in world.on(node.metadata.name)
        )


class PodTopologySpread(ReferencePlugin):
    """`defaults` are the profile's own default constraints; None means kube-scheduler's."""

    name = "PodTopologySpread"

    def __init__(self, defaults: list[TopologySpreadConstraint] | None = None) -> None:
        self._system = defaults is None
        self._defaults = defaults if defaults is not None else _SYSTEM

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        constraints = self._constraints(pod, world, "DoNotSchedule")
        for constraint in constraints:
            domain = node.metadata.labels.get(constraint.key)
            if domain is None:
                return _LACKING
            counts = self._counts(pod, constraint, constraints, world)
            least = min(counts.values(), default=0)
            if len(counts) < (constraint.given.min_domains or 1):
                least = 0
            itself = int(selected(constraint.wanted, pod.metadata.labels))
            if counts.get(domain, 0) + itself - least > constraint.given.max_skew:
                return _SKEWED
        return None

    def score_all(self, pod: Pod, nodes: list[Node], world: ReferenceState) -> dict[str, int]:
        constraints = self._constraints(pod, world, "ScheduleAnyway")
        all_keys = bool(pod.spec.topology_spread_constraints) or not self._system
        scores = dict.fromkeys((node.metadata.name for node in nodes), _IGNORED)
        considered = [n for n in nodes if not all_keys or _has_all(n, constraints)]
        for node in considered:
            total = 0.0
            for constraint in constraints:
                domain = node.metadata.labels.get(constraint.key)
                if domain is None:
                    continue
                if constraint.key == HOSTNAME:
                    size = len(considered)
                    count = constraint.count_on(pod, node, world)
                else:
                    size = len({n.metadata.labels.get(constraint.key, "") for n in considered})
                    counted = constraints if all_keys else [constraint]
                    counts = self._counts(pod, constraint, counted, world)
                    count = counts.get(domain, 0)
                total += count * log(size + 2) + (constraint.given.max_skew - 1)
            scores[node.metadata.name] = int(total + 0.5)
        return scores if constraints else dict.fromkeys(scores, _IGNORED)

    def normalize(self, scores: dict[str, int]) -> dict[str, int]:
        counted = [score for score in scores.values() if score != _IGNORED]
        least, most = min(counted, default=0), max(counted, default=0)
        result = {}
        for name, score in scores.items():
            if score == _IGNORED:
                result[name] = 0
            elif most == 0:
                result[name] = 100
            else:
                result[name] = 100 * (most + least - score) // most
        return result

    def _counts(
        self, pod: Pod, constraint: Constraint, together: list[Constraint], world: ReferenceState
    ) -> dict[str, int]:
        counts: dict[str, int] = {}
        for node in world.nodes.values():
            if _has_all(node, together) and constraint.admits(pod, node, world):
                domain = node.metadata.labels[constraint.key]
                counts[domain] = counts.get(domain, 0) + constraint.count_on(pod, node, world)
        return counts

    def _constraints(self, pod: Pod, world: ReferenceState, action: str) -> list[Constraint]:
        own = pod.spec.topology_spread_constraints
        if own:
            return [_completed(c, pod) for c in own if c.when_unsatisfiable == action]
        wanted = default_selector(pod, world)
        if not wanted:
            return []
        return [Constraint(c, wanted) for c in self._defaults if c.when_unsatisfiable == action]


_SYSTEM = [
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(
        max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable="ScheduleAnyway"
    ),
]


def _completed(constraint: TopologySpreadConstraint, pod: Pod) -> Constraint:
    wanted = requirements(constraint.label_selector)
    if wanted is not None:
        wanted = wanted + same(own_labels(pod, constraint.match_label_keys))
    return Constraint(constraint, wanted)


def _has_all(node: Node, constraints: list[Constraint]) -> bool:
    return all(constraint.key in node.metadata.labels for constraint in constraints)


def default_selector(pod: Pod, world: ReferenceState) -> Requirements:
    """What selects the pod together with others; nothing is known if it is empty."""
    labels: dict[str, str] = {}
    namespace = pod.metadata.namespace
    for service in world.of_kind("Service"):
        chosen = service.spec.selector or {}
        if service.metadata.namespace == namespace and all(
            pod.metadata.labels.get(key) == value for key, value in chosen.items()
        ):
            labels.update(chosen)
    more: Requirements = []
    for owner in pod.metadata.owner_references:
        if not owner.controller:
            continue
        controller = world.find(owner.kind, namespace, owner.name)
        if controller is None:
            continue
        if (owner.api_version, owner.kind) == ("v1", "ReplicationController"):
            labels.update(controller.spec.selector or {})
        elif owner.api_version == "apps/v1" and owner.kind in ("ReplicaSet", "StatefulSet"):
            selector: LabelSelector | None = controller.spec.selector
            more = requirements(selector) or []
    return [*same(labels.items()), *more]
