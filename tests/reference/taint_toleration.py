from __future__ import annotations

from holdfast.api.affinity import Taint, Toleration
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import ReferencePlugin, Unfit, by_maximum
from reference.state import ReferenceState


class TaintToleration(ReferencePlugin):
    name = "TaintToleration"

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        for taint in node.spec.taints:
            if taint.effect == "PreferNoSchedule":
                continue
            if not is_tolerated(taint, pod.spec.tolerations):
                return Unfit(("node(s) had untolerated taint(s)",), False)
        return None

    def score(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        soft = [t for t in pod.spec.tolerations if t.effect in ("", "PreferNoSchedule")]
        disliked = 0
        for taint in node.spec.taints:
            if taint.effect == "PreferNoSchedule" and not is_tolerated(taint, soft):
                disliked += 1
        return disliked

    def normalize(self, scores: dict[str, int]) -> dict[str, int]:
        return by_maximum(scores, reverse=True)


def is_tolerated(taint: Taint, tolerations: list[Toleration]) -> bool:
    for toleration in tolerations:
        if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
            continue
        if toleration.operator == "Exists":
            return True
        if toleration.operator in ("", "Equal") and toleration.value == taint.value:
            return True
        if toleration.operator in ("Gt", "Lt"):
            try:
                has, bound = int(taint.value), int(toleration.value)
            except ValueError:
                continue
            if (has > bound) if toleration.operator == "Gt" else (has < bound):
                return True
    return False
