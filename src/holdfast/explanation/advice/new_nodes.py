"""A node that the cluster lacks: labels that say where a node is, what hardware it has, or of which
pool it is, cannot be given to another one, nor can a resource that no node has. Proposed if nothing
else would help."""

import copy
from collections.abc import Sequence

from holdfast.api.affinity import NodeSelectorRequirement
from holdfast.api.names import HOSTNAME_LABEL
from holdfast.api.quantity import format_amount
from holdfast.api.selectors import node_requirement
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.capacity import (
    largest,
    requested,
    row_of,
    served_by_classes,
    shortages,
)
from holdfast.explanation.facts.node_labels import labels_of_nodes, unmet_labels
from holdfast.explanation.repairs.details import resources_like
from holdfast.explanation.repairs.label_repairs import is_discovered, labels_meeting
from holdfast.explanation.repairs.repair import DELETE_RESERVATION, repair
from holdfast.explanation.verdicts import NodeVerdicts
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import CPU, MEMORY, PODS
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
    """A node like one of those there are, with the labels that the pod and its volumes require, and the
    resources that no node has."""
    if pod.pinned_node is not None or any(each.kind == "DaemonSet" for each in pod.cls.owners):
        return
    short, there = shortages(snapshot, pod), labels_of_nodes(snapshot)
    absent = _absent_resources(snapshot, pod)
    rows = {name: row_of(snapshot, name) for name in placing.rejections}
    for name in sorted(rows, key=lambda each: (float(short[rows[each]]), each))[:_TRIED]:
        raw = snapshot.find(NODE, name)
        selector, unmet = unmet_labels(snapshot, pod, rows[name])
        unmet = [*unmet, *_of_volumes(snapshot, pod, rows[name])]
        labels = {key: value for key, value in labels_meeting(selector, unmet).items() if value}
        missing = [key for key, value in labels.items() if value not in there.get(key, ())]
        # Nodes with another value of a label are of other pools.
        is_other = any(is_discovered(key) or key in there for key in missing)
        if raw is None or not (is_other or absent):
            continue
        like = f"(tried as {_NAME}, like {name} without its pods)"
        takers = dict(advisor.takers)
        for count in dict.fromkeys((max(1, advisor.replicas), 1) if absent else (1,)):
            amounts = {of: format_amount(of, n * count) for of, n in absent.items()}
            texts = [f"{key}={value}" for key, value in labels.items()]
            texts += [f"{of}: {n}" for of, n in amounts.items()]
            made = create(NODE, _like(raw, labels, amounts))
            text = f"add a node with {', '.join(texts)} {like}"
            if advisor.propose(repair(text, "AddNode", [made], DELETE_RESERVATION)):
                return
        advisor.takers = takers  # who takes a node that does not exist is no fact


def _absent_resources(snapshot: ClusterSnapshot, pod: PodRecord) -> dict[str, int]:
    """By resource that no node has, how much the pod requests; empty if one is misspelt."""
    slots, served = snapshot.cluster.nodes.slots, served_by_classes(snapshot, pod)
    found = {
        slots.name(slot): amount
        for slot, amount in requested(pod).items()
        if slot not in (CPU, MEMORY, PODS, *served) and not largest(snapshot, slot)
    }
    return {} if any(resources_like(snapshot, name) for name in found) else found


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


def _like(raw: Raw, labels: dict[str, str], amounts: dict[str, str]) -> Raw:
    """The node as its kubelet registers it, without what belongs to the other one."""
    own = raw["metadata"].get("labels") or {}
    kept = {**own, **labels, HOSTNAME_LABEL: _NAME}
    made = copy.deepcopy({key: value for key, value in raw.items() if key != "metadata"})
    for part, fields in _OF_ONE_NODE.items():
        made[part] = {key: each for key, each in (made.get(part) or {}).items() if key not in fields}
    for field in ("capacity", "allocatable") if amounts else ():
        made["status"][field] = {**(made["status"].get(field) or {}), **amounts}
    return {**made, "metadata": {"name": _NAME, "uid": _NAME, "labels": kept}}
