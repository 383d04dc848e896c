"""A node that the cluster lacks: labels that say where a node is, what hardware it has, or of which
pool it is, cannot be given to another one. Proposed if nothing else would help."""

import copy
from collections.abc import Sequence

from holdfast.api.affinity import NodeSelectorRequirement
from holdfast.api.names import HOSTNAME_LABEL
from holdfast.api.selectors import node_requirement
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.capacity import row_of, shortages
from holdfast.explanation.facts.node_labels import labels_of_nodes, unmet_labels
from holdfast.explanation.repairs.label_repairs import is_discovered, labels_meeting
from holdfast.explanation.repairs.repair import DELETE_RESERVATION, repair
from holdfast.explanation.verdicts import NodeVerdicts
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import create
from holdfast.snapshot.cluster_snapshot import NODE, ClusterSnapshot

_NAME = "new-node"
_TRIED = 2
_OF_ONE_NODE = {
    "spec": ("podCIDR", "podCIDRs", "providerID"),
    "status": ("addresses", "config", "images", "nodeInfo", "volumesAttached", "volumesInUse"),
}
"""What no two nodes have in common, and scheduling does not depend on."""


def consider_new_node(
    snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, advisor: Advisor
) -> None:
    """A node like one of those there are, with the labels that the pod and its volumes require."""
    if pod.pinned_node is not None or any(each.kind == "DaemonSet" for each in pod.cls.owners):
        return
    short, there = shortages(snapshot, pod), labels_of_nodes(snapshot)
    rows = {name: row_of(snapshot, name) for name in placing.rejections}
    for name in sorted(rows, key=lambda each: (float(short[rows[each]]), each))[:_TRIED]:
        raw = snapshot.find(NODE, name)
        selector, unmet = unmet_labels(snapshot, pod, rows[name])
        unmet = [*unmet, *_of_volumes(snapshot, pod, rows[name])]
        labels = {key: value for key, value in labels_meeting(selector, unmet).items() if value}
        missing = [key for key, value in labels.items() if value not in there.get(key, ())]
        # Nodes with another value of a label are of other pools.
        if raw is None or not any(is_discovered(key) or key in there for key in missing):
            continue
        text = ", ".join(f"{key}={value}" for key, value in labels.items())
        made = create(NODE, _like(raw, labels))
        like = f"(tried as {_NAME}, like {name} without its pods)"
        repairs = repair(f"add a node with {text} {like}", "AddNode", [made], DELETE_RESERVATION)
        takers = dict(advisor.takers)
        if advisor.propose(repairs):
            return
        advisor.takers = takers  # who takes a node that does not exist is no fact


def _of_volumes(
    snapshot: ClusterSnapshot, pod: PodRecord, row: int
) -> Sequence[NodeSelectorRequirement]:
    """What the volumes of the pod's claims require and the node does not have."""
    volumes, labels = snapshot.cluster.volumes, snapshot.cluster.nodes.info[row].labels
    found = []
    for each in volumes.wanted(pod.cls).claims:
        claim = volumes.claim(each.key)
        volume = volumes.volume(claim.spec.volume_name) if claim is not None else None
        affinity = volume.spec.node_affinity if volume is not None else None
        terms = affinity.required.node_selector_terms if affinity and affinity.required else ()
        for term in terms[:1]:
            found += [e for e in term.match_expressions if not node_requirement(e).matches(labels)]
    return found


def _like(raw: Raw, labels: dict[str, str]) -> Raw:
    """The node as its kubelet registers it, without what belongs to the other one."""
    own = raw["metadata"].get("labels") or {}
    kept = {**own, **labels, HOSTNAME_LABEL: _NAME}
    made = copy.deepcopy({key: value for key, value in raw.items() if key != "metadata"})
    for part, fields in _OF_ONE_NODE.items():
        made[part] = {key: each for key, each in (made.get(part) or {}).items() if key not in fields}
    return {**made, "metadata": {"name": _NAME, "uid": _NAME, "labels": kept}}
