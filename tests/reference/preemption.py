"""Which pods would have to go for a pod that finds no node."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.labels import requirements, selected
from reference.scheduler import Judgement, Weighted, against, message
from reference.state import ReferenceState

NEVER = "preemption: not eligible due to preemptionPolicy=Never."
TERMINATING = "preemption: not eligible due to a terminating pod on the nominated node."
_LATER = "~"
"""Sorts after all times."""


@dataclass
class Candidate:
    node: str
    victims: list[str]
    """Names, the most important first."""
    cost: tuple[object, ...]
    """But for the start time; the smallest is best."""
    oldest: str
    """When the first of the most important victims was started; the latest is best."""

    @property
    def message(self) -> str:
        return (
            f"preemption: found a potential placement for pod on node {self.node}, "
            f"preempting {len(self.victims)} victims"
        )


@dataclass
class Preemption:
    best: list[Candidate] = field(default_factory=list)
    """Any of these will do."""
    message: str = ""
    keeps_nomination: bool = False


def preempt(pod: Pod, world: ReferenceState, plugins: Weighted, judgement: Judgement) -> Preemption:
    if pod.spec.preemption_policy == "Never":
        return Preemption(message=NEVER, keeps_nomination=True)
    if _is_under_way(pod, world, judgement):
        return Preemption(message=TERMINATING, keeps_nomination=True)
    candidates: list[Candidate] = []
    reasons: list[str] = []
    for name, node in world.nodes.items():
        _, unfit = judgement.unfit.get(name, ("", None))
        if unfit is None or not unfit.resolvable:
            reasons.append("Preemption is not helpful for scheduling")
            continue
        found = _candidate(pod, node, world, plugins)
        if isinstance(found, Candidate):
            candidates.append(found)
        else:
            reasons += found
    if not candidates:
        return Preemption(message=f"preemption: {message(len(world.nodes), reasons)}")
    least = min(candidate.cost for candidate in candidates)
    best = [candidate for candidate in candidates if candidate.cost == least]
    latest = max(candidate.oldest for candidate in best)
    return Preemption([candidate for candidate in best if candidate.oldest == latest])


def _is_under_way(pod: Pod, world: ReferenceState, judgement: Judgement) -> bool:
    nominated = pod.status.nominated_node_name
    if not nominated or nominated not in judgement.unfit:
        return False
    if not judgement.unfit[nominated][1].resolvable:
        return False
    return any(
        _priority(other) < _priority(pod)
        and other.metadata.deletion_timestamp is not None
        and any(
            c.type == "DisruptionTarget" and c.status == "True" and c.reason == "PreemptionByScheduler"
            for c in other.status.conditions
        )
        for other in world.on(nominated)
    )


def _candidate(
    pod: Pod, node: Node, world: ReferenceState, plugins: Weighted
) -> Candidate | tuple[str, ...]:
    lesser = [p for p in world.on(node.metadata.name) if _priority(p) < _priority(pod)]
    if not lesser:
        return ("No preemption victims found for incoming pod",)
    lesser.sort(key=_importance)
    placed = dict(world.pods)
    try:
        for other in lesser:
            world.delete_pod(other.metadata.uid)
        rejection = against(pod, node, world, plugins)
        if rejection is not None:
            return rejection[1].reasons
        violating, fine = _by_budget(lesser, world)
        victims, violations = [], 0
        for other in violating + fine:
            world.put_pod(other)
            if against(pod, node, world, plugins) is not None:
                world.delete_pod(other.metadata.uid)
                victims.append(other)
                violations += other in violating
    finally:
        world.pods = placed
    victims.sort(key=_importance)
    highest = _priority(victims[0])
    cost = (violations, highest, sum(_priority(v) + 2**31 for v in victims), len(victims))
    oldest = min(_started(v) for v in victims if _priority(v) == highest)
    return Candidate(node.metadata.name, [v.metadata.name for v in victims], cost, oldest)


def _by_budget(pods: list[Pod], world: ReferenceState) -> tuple[list[Pod], list[Pod]]:
    """Those whose going breaks a budget, and the others."""
    budgets = world.of_kind("PodDisruptionBudget")
    left = [budget.status.disruptions_allowed for budget in budgets]
    violating: list[Pod] = []
    fine: list[Pod] = []
    for pod in pods:
        broken = False
        for i, budget in enumerate(budgets):
            wanted = requirements(budget.spec.selector)
            if (
                budget.metadata.namespace != pod.metadata.namespace
                or not pod.metadata.labels
                or not wanted
                or not selected(wanted, pod.metadata.labels)
                or pod.metadata.name in budget.status.disrupted_pods
            ):
                continue
            left[i] -= 1
            broken = broken or left[i] < 0
        (violating if broken else fine).append(pod)
    return violating, fine


def _priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def _started(pod: Pod) -> str:
    return pod.status.start_time or _LATER


def _importance(pod: Pod) -> tuple[object, ...]:
    """kube-scheduler leaves the order of equals open; by name it is settled."""
    meta = pod.metadata
    return (-_priority(pod), _started(pod), meta.namespace, meta.name)
