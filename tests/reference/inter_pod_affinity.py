from __future__ import annotations

from holdfast.api.affinity import PodAffinityTerm
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.labels import (
    affinity,
    anti_affinity,
    own_labels,
    preferred,
    required,
    requirements,
    same,
    selected,
    unlike,
)
from reference.plugin import ReferencePlugin, Unfit
from reference.state import ReferenceState

_NOT_NEAR = Unfit(("node(s) didn't match pod affinity rules",), False)
_TOO_NEAR = Unfit(("node(s) didn't match pod anti-affinity rules",), True)
_UNWELCOME = Unfit(("node(s) didn't satisfy existing pods anti-affinity rules",), True)


class InterPodAffinity(ReferencePlugin):
    """`hard_weight` is what the required affinity of a pod already there counts for."""

    name = "InterPodAffinity"

    def __init__(self, hard_weight: int = 1, *, ignores_others: bool = False) -> None:
        self._hard_weight = hard_weight
        self._ignores_others = ignores_others

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        if not self._is_near(pod, node, world):
            return _NOT_NEAR
        placed = list(_placed(world))
        for term in required(anti_affinity(pod)):
            for other, there in placed:
                if _wants(term, pod, other, world) and _together(term, node, there):
                    return _TOO_NEAR
        for other, there in placed:
            for term in required(anti_affinity(other)):
                if _selects(term, other, pod, world) and _together(term, node, there):
                    return _UNWELCOME
        return None

    def _is_near(self, pod: Pod, node: Node, world: ReferenceState) -> bool:
        terms = required(affinity(pod))
        if any(term.topology_key not in node.metadata.labels for term in terms):
            return False
        wanted = [
            there
            for other, there in _placed(world)
            if all(_wants(term, pod, other, world) for term in terms)
        ]
        if all(any(_together(term, node, there) for there in wanted) for term in terms):
            return True
        reachable = any(t.topology_key in there.metadata.labels for there in wanted for t in terms)
        return not reachable and all(_wants(term, pod, pod, world) for term in terms)

    def score(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        preferences, fears = preferred(affinity(pod)), preferred(anti_affinity(pod))
        if self._ignores_others and not preferences and not fears:
            return 0
        total = 0
        for other, there in _placed(world):
            entries = [(weight, term, pod, other) for weight, term in preferences]
            entries += [(-weight, term, pod, other) for weight, term in fears]
            entries += [(self._hard_weight, t, other, pod) for t in required(affinity(other))]
            entries += [(weight, t, other, pod) for weight, t in preferred(affinity(other))]
            entries += [(-weight, t, other, pod) for weight, t in preferred(anti_affinity(other))]
            for weight, term, owner, target in entries:
                selects = _wants if owner is pod else _selects
                if selects(term, owner, target, world) and _together(term, node, there):
                    total += weight
        return total

    def normalize(self, scores: dict[str, int]) -> dict[str, int]:
        least, most = min(scores.values(), default=0), max(scores.values(), default=0)
        if most == least:
            return dict.fromkeys(scores, 0)
        span = float(most - least)
        return {name: int(100.0 * (float(score - least) / span)) for name, score in scores.items()}


def _placed(world: ReferenceState) -> list[tuple[Pod, Node]]:
    """Pods on nodes that are known."""
    return [
        (pod, world.nodes[pod.spec.node_name])
        for pod in world.pods.values()
        if pod.spec.node_name in world.nodes
    ]


def _together(term: PodAffinityTerm, one: Node, other: Node) -> bool:
    value = one.metadata.labels.get(term.topology_key)
    return value is not None and value == other.metadata.labels.get(term.topology_key)


def _wants(term: PodAffinityTerm, owner: Pod, target: Pod, world: ReferenceState) -> bool:
    """Whether a term of the pod that looks for a node selects a pod. kube-scheduler looks up the
    namespaces its selector matches, and then asks the selector once more as if there were no labels:
    one that does not mind their absence selects every namespace."""
    return _selects(term, owner, target, world) or _selects(term, owner, target, None)


def _selects(term: PodAffinityTerm, owner: Pod, target: Pod, world: ReferenceState | None) -> bool:
    namespace = target.metadata.namespace
    labels = world.namespace_labels(namespace) if world is not None else {}
    if not term.namespaces and term.namespace_selector is None:
        if namespace != owner.metadata.namespace:
            return False
    elif namespace not in term.namespaces and not selected(
        requirements(term.namespace_selector), labels
    ):
        return False
    wanted = requirements(term.label_selector)
    if wanted is None:
        return False
    wanted = wanted + same(own_labels(owner, term.match_label_keys))
    wanted += unlike(own_labels(owner, term.mismatch_label_keys))
    return selected(wanted, target.metadata.labels)
