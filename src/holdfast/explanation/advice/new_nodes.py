"""A node that the cluster lacks: labels that say where a node is, what hardware it has, or of which
pool it is, cannot be given to another one, nor can a resource that no node has. Proposed if nothing
else would help."""

import copy
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.api.affinity import NodeSelectorRequirement
from holdfast.api.names import HOSTNAME_LABEL
from holdfast.api.plurals import plural
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
from holdfast.explanation.facts.other_pods import taker_names
from holdfast.explanation.facts.rehearsed_rounds import started_before
from holdfast.explanation.repairs.details import resources_like
from holdfast.explanation.repairs.label_repairs import is_discovered, labels_meeting
from holdfast.explanation.repairs.repair import DELETE_RESERVATION, Repair, repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import NodeVerdicts
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import CPU, MEMORY, PODS
from holdfast.snapshot.cluster_changes import applied, create
from holdfast.snapshot.cluster_snapshot import NODE, ClusterSnapshot

_NAME = "new-node"
_TRIED = 2
_MOST_NEW = 8
"""How many nodes are added."""
_SHOWN = 3
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
        takers = dict(advisor.takers)
        new = _NewNode(name, raw, labels, absent)
        counts = dict.fromkeys((max(1, advisor.replicas), 1) if absent else (1,))
        is_enough = any(advisor.propose(_repair(new, [count])) for count in counts)
        is_enough = is_enough or _consider_several(snapshot, new, advisor)
        advisor.takers = takers  # who takes a node that does not exist is no fact
        if is_enough:
            return


class _NewNode(NamedTuple):
    """A node that is added."""

    like: str
    """The name of the node that it resembles."""
    raw: Raw
    """That node."""
    labels: dict[str, str]
    amounts: dict[str, int]
    """What one pod requests of resources that no node has."""


def _consider_several(snapshot: ClusterSnapshot, new: _NewNode, advisor: Advisor) -> bool:
    """As many nodes as are enough also for the pods that are tried before and take them."""
    for count in range(2, _MOST_NEW + 1):
        fewer = _repair(new, [1] * (count - 1)).change.objects
        with applied(snapshot, fewer), started_before(snapshot, advisor.goal) as started:
            rows = {row_of(snapshot, each.name) for each in fewer}
            names = taker_names(snapshot, (each for each in started if each.row in rows))
        if not names:
            return False
        if advisor.propose(_repair(new, [1] * count, names)):
            return True
    return False


def _repair(new: _NewNode, counts: list[int], before: Sequence[str] = ()) -> Repair:
    """Nodes for so many pods each."""
    names = [_NAME if not at else f"{_NAME}-{at + 1}" for at in range(len(counts))]
    made, texts = [], [f"{key}={value}" for key, value in new.labels.items()]
    for name, count in zip(names, counts, strict=True):
        amounts = {of: format_amount(of, n * count) for of, n in new.amounts.items()}
        made.append(create(NODE, _like(new.raw, name, new.labels, amounts)))
    texts += [f"{of}: {n}" for of, n in amounts.items()]
    what = plural(len(counts), "a node", f"{len(counts)} nodes")
    tried = f"(tried as {few(names)}, like {new.like} without its pods)"
    text = f"add {what} with {', '.join(texts)} {tried}"
    if before:
        is_are = plural(len(before), "is", "are")
        text += f", since {few(list(before), _SHOWN)} {is_are} tried before it"
    return repair(text, "AddNode", made, DELETE_RESERVATION)


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


def _like(raw: Raw, name: str, labels: dict[str, str], amounts: dict[str, str]) -> Raw:
    """The node as its kubelet registers it, without what belongs to the other one."""
    own = raw["metadata"].get("labels") or {}
    kept = {**own, **labels, HOSTNAME_LABEL: name}
    made = copy.deepcopy({key: value for key, value in raw.items() if key != "metadata"})
    for part, fields in _OF_ONE_NODE.items():
        made[part] = {key: each for key, each in (made.get(part) or {}).items() if key not in fields}
    for field in ("capacity", "allocatable") if amounts else ():
        made["status"][field] = {**(made["status"].get(field) or {}), **amounts}
    return {**made, "metadata": {"name": name, "uid": name, "labels": kept}}
