"""The summary of a run: counts, waiting times, usage, and why pods are pending."""

import re
from collections import Counter
from typing import Any

from holdfast.api.pod import Pod
from holdfast.local.component import ObjectWriter
from holdfast.local.store.objects import Raw
from holdfast.machinery.strategies.pods import GATED_REASON
from holdfast.sim.node_usage import NodeUsage

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
