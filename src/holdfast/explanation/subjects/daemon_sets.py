"""Nodes for which a DaemonSet creates no pod, and changes with which it does.

Its controller asks only for labels, taints and the name of a node: for one that is full it creates a
pod, which is pending. These pods tolerate that a node is cordoned or under pressure.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.explanation.report import ExplainedReason, Report, few
from holdfast.explanation.subjects.plain_reasons import plain
from holdfast.explanation.subjects.pods import explain_pod
from holdfast.explanation.subjects.uncreated_pods import pod_of_template
from holdfast.explanation.verdicts import NodeVerdicts, Subject, place
from holdfast.kube.object_client import Raw
from holdfast.local.workloads.daemon_set import tolerations_of
from holdfast.snapshot.cluster_changes import applied, create
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_NODE_PLUGINS = ("NodeAffinity", "NodeName", "TaintToleration")
"""What the controller asks before it creates a pod for a node."""
_NODES = 3


def explain_without_pods(snapshot: ClusterSnapshot, raw: Raw, report: Report) -> None:
    """Why no node is eligible for a pod of the DaemonSet, and what would make one eligible."""
    with _pod_of(snapshot, raw) as (pod, placing):
        if placing is None:
            return
        reasons = _reasons(placing)
        refused = {name for each in reasons for name in each.nodes}
        eligible = sorted(set(placing.rejections) - refused)
        report.details += [f"{plain(each.reason)}: {few(each.nodes, _NODES)}" for each in reasons]
        if eligible:
            nodes = few(eligible, _NODES)
            report.details.append(f"eligible, and without a pod of its controller: {nodes}")
            return
        found = explain_pod(snapshot, pod)
    report.details += found.details
    report.advice += found.advice
    report.nodes, report.would_say = found.nodes, found.would_say


def ineligible_nodes(snapshot: ClusterSnapshot, raw: Raw) -> Iterator[str]:
    """The nodes for which a DaemonSet that has pods creates none, by reason."""
    with _pod_of(snapshot, raw) as (_, placing):
        reasons = _reasons(placing) if placing is not None else []
    for each in reasons:
        yield f"no pod is created for {few(each.nodes, _NODES)}: {plain(each.reason)}"


def _reasons(placing: NodeVerdicts) -> list[ExplainedReason]:
    return [each for each in placing.reasons if each.plugin in _NODE_PLUGINS]


@contextmanager
def _pod_of(snapshot: ClusterSnapshot, raw: Raw) -> Iterator[tuple[Raw, NodeVerdicts | None]]:
    """A pod as the controller would create it, for no node in particular, and the verdicts for it; none
    if it is rejected whatever the node."""
    pod = pod_of_template(snapshot, raw)
    pod["spec"]["tolerations"] = tolerations_of(pod["spec"])
    before, snapshot.is_hypothetical = snapshot.is_hypothetical, True
    try:
        with applied(snapshot, [create(POD, pod)]):
            record = Subject(POD, pod["metadata"]["name"], pod["metadata"]["namespace"]).record(
                snapshot
            )
            placing = place(snapshot.scheduler, record) if record is not None else None
            is_judged = placing is not None and placing.column.rejected is None
            yield pod, placing if is_judged else None
    finally:
        snapshot.is_hypothetical = before
