"""Taints that keep a pod off nodes, and the tolerations that it lacks: those most like its own come
first."""

from collections import Counter
from collections.abc import Collection, Iterable

from holdfast.api.affinity import Taint, Toleration
from holdfast.api.names import TAINT_UNSCHEDULABLE
from holdfast.api.node_taints import is_lifecycle_taint
from holdfast.api.selectors import tolerated
from holdfast.api.similar_names import nearest, similar_names
from holdfast.explanation.repairs.repair import CONFIGURE, RESIZE, Repair, repair, spec_changes
from holdfast.explanation.verdicts import Subject
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
KEEPING_OUT = ("NoSchedule", "NoExecute")


def untolerated(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[Taint]:
    """The taints of a node that keep the pod off it."""
    return [
        taint
        for taint in snapshot.cluster.nodes.info[row].taints
        if taint.effect in KEEPING_OUT and not tolerated(taint, pod.cls.tolerations)
    ]


def is_lifecycle(taint: Taint) -> bool:
    """Whether the taint says that its node is not ready, under pressure, starting or being removed."""
    return is_lifecycle_taint(taint.key)


def taint_text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def toleration_repairs(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> list[Repair]:
    """The pod with tolerations of all taints of the node; none if the node cannot be used now."""
    taints = untolerated(snapshot, pod, row)
    if not taints or any(map(is_lifecycle, taints)):
        return []
    added = [
        {"key": each.key, "operator": "Equal", "value": each.value or "", "effect": each.effect}
        for each in taints
    ]
    texts = " and ".join(sorted(taint_text(each) for each in taints))
    edit = lambda spec: {"tolerations": [*(spec.get("tolerations") or ()), *added]}  # noqa: E731
    cost = RESIZE if any(each.key in _CONTROL_PLANE for each in taints) else CONFIGURE
    return [repair(f"tolerate {texts}", "Tolerate", spec_changes(snapshot, subject, edit), cost)]


def tolerable_first(snapshot: ClusterSnapshot, pod: PodRecord, rows: list[int]) -> list[int]:
    """The rows in the order in which tolerations for them are worth trying: one of each set of taints
    before others with the same. The sets most like the pod's own tolerations come first, then those of
    control planes, and nodes that cannot be used now come last. Equal ones keep their order."""
    taints = {row: untolerated(snapshot, pod, row) for row in rows}
    known = {taint_text(taint): taint for each in taints.values() for taint in each}
    likeness = {
        text: _likeness(taint, known.values(), pod.cls.tolerations) for text, taint in known.items()
    }

    def rank(row: int) -> tuple[bool, bool, int]:
        there = taints[row]
        unusable = any(map(is_lifecycle, there))
        of_control_plane = any(each.key in _CONTROL_PLANE for each in there)
        nearest_one = min((likeness[taint_text(each)] for each in there), default=_UNLIKE)
        return unusable, of_control_plane, nearest_one

    ranks = {row: rank(row) for row in rows}
    ordered = sorted(rows, key=ranks.__getitem__)
    counts, seen = Counter[frozenset[str]](), dict[int, int]()
    for row in ordered:
        texts = frozenset(map(taint_text, taints[row]))
        seen[row] = counts[texts]
        counts[texts] += 1
    return sorted(ordered, key=lambda row: (ranks[row][0], seen[row]))


_SAME, _SAME_KEY, _SIMILAR_KEY, _UNLIKE = range(4)


def _likeness(taint: Taint, known: Collection[Taint], tolerations: Iterable[Toleration]) -> int:
    """How near a toleration of the pod comes to the taint, among the taints that there are: 0 is the
    nearest."""
    return min((_compared(taint, known, own) for own in tolerations if _is_own(own)), default=_UNLIKE)


def _is_own(toleration: Toleration) -> bool:
    """Not one that every pod is given for the lifecycle of nodes."""
    key = toleration.key
    return bool(key) and key != TAINT_UNSCHEDULABLE and not is_lifecycle_taint(key)


def _compared(taint: Taint, known: Collection[Taint], own: Toleration) -> int:
    if taint.key == own.key:
        values = [each.value for each in known if each.key == own.key]
        near = (own.value, *similar_names(own.value, values, 0))
        return _SAME if own.operator == "Exists" or taint.value in near else _SAME_KEY
    return _SIMILAR_KEY if taint.key in nearest(own.key, {each.key for each in known}) else _UNLIKE


def own_toleration(taint: Taint, known: Collection[Taint], pod: PodRecord) -> str:
    """`; it tolerates dedicated=bd`, of a toleration that resembles the taint."""
    for own in pod.cls.tolerations:
        if _is_own(own) and _compared(taint, known, own) != _UNLIKE:
            value = f"={own.value}" if own.value else ""
            return f"; it tolerates {own.key}{value}{f':{own.effect}' if own.effect else ''}"
    return ""
