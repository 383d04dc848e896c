"""Pods that are being deleted and have not ended by the end of their grace period: a finalizer keeps
them, or the kubelet of their node does not answer. The scheduler counts them until they are gone."""

from collections.abc import Iterable, Iterator

from holdfast.api.plurals import plural
from holdfast.api.times import span_text
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.capacity import missing_on, shortages
from holdfast.explanation.facts.expected_ends import deletion_deadline, ended_pod
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair
from holdfast.explanation.verdicts import NodeVerdicts
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_NODES = 3


def consider_overdue_pods(
    snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, advisor: Advisor
) -> Iterator[str]:
    """Ending the pods of a node that should be gone; yields what keeps them, on the nodes that lack the
    least."""
    overdue: dict[int, list[PodRecord]] = {}
    for each in snapshot.cluster.pods.values():
        if each.row >= 0 and is_overdue(snapshot, each):
            overdue.setdefault(each.row, []).append(each)
    if not overdue:
        return
    short, name = shortages(snapshot, pod), snapshot.cluster.nodes.name
    rows = [
        row for row in overdue if name(row) in placing.rejections and missing_on(snapshot, pod, row)
    ]
    for row in sorted(rows, key=lambda row: (float(short[row]), name(row)))[:_NODES]:
        found, node = sorted(overdue[row], key=lambda each: each.name), name(row)
        yield from (f"{each.namespace}/{each.name} {overdue_text(snapshot, each)}" for each in found)
        advisor.propose_once(("EndOverduePods",), removal(snapshot, found, f" on {node}"))


def is_overdue(snapshot: ClusterSnapshot, pod: PodRecord) -> bool:
    deadline = _deadline(snapshot, pod)
    return deadline is not None and deadline <= snapshot.now


def overdue_text(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """`should have ended 2h ago: …`, with what to look at, for a pod that is overdue."""
    deadline = _deadline(snapshot, pod)
    assert deadline is not None
    node = snapshot.cluster.nodes.name(pod.row)
    why = f"check the kubelet of {node}"
    if finalizers := _finalizers(snapshot, pod):
        noun = plural(len(finalizers), "finalizer is", "finalizers are")
        why = f"its {noun} not removed: {', '.join(finalizers)}"
    return f"is being deleted and should have ended {span_text(snapshot.now - deadline)} ago: {why}"


def removal(snapshot: ClusterSnapshot, pods: list[PodRecord], where: str) -> Repair:
    """Removes overdue pods from the API, with the commands for it."""
    ended = [change for each in pods for change in ended_pod(snapshot, each)]
    return repair(f"{removal_text(snapshot, pods)}{where}", "EndOverduePods", ended, RESIZE)


def removal_text(snapshot: ClusterSnapshot, pods: Iterable[PodRecord]) -> str:
    texts = []
    for each in pods:
        place = "" if each.namespace == "default" else f" -n {each.namespace}"
        command = f"kubectl delete pod {each.name}{place} --grace-period=0 --force"
        how = f"delete pod {each.namespace}/{each.name} by force ({command})"
        if finalizers := _finalizers(snapshot, each):
            noun = plural(len(finalizers), "finalizer")
            how = f"remove the {noun} {', '.join(finalizers)} of pod {each.namespace}/{each.name}"
        texts.append(how)
    return " and ".join(texts)


def _deadline(snapshot: ClusterSnapshot, pod: PodRecord) -> float | None:
    if pod.reservation is not None or not pod.cls.terminating:
        return None
    return deletion_deadline(snapshot.find(POD, pod.name, pod.namespace))


def _finalizers(snapshot: ClusterSnapshot, pod: PodRecord) -> list[str]:
    raw = snapshot.find(POD, pod.name, pod.namespace) or {"metadata": {}}
    return [str(each) for each in raw["metadata"].get("finalizers") or ()]
