"""Workloads whose template names a node that does not exist: no scheduler places their pods, and
nothing runs them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.api.plurals import plural
from holdfast.api.similar_names import nearest
from holdfast.explanation.advice.advisor import fitting_text
from holdfast.explanation.facts.capacity import missing_node, row_of
from holdfast.explanation.facts.created_claims import claims_of_new_pod
from holdfast.explanation.facts.other_pods import Fitting
from holdfast.explanation.facts.pod_owners import PodOwner, workload_of, workload_text
from holdfast.explanation.facts.rehearsed_rounds import placed, started_before
from holdfast.explanation.report import Advice, few
from holdfast.explanation.verdicts import Subject, profile_for, rejection_on
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.scheduling_cycle import Statement
from holdfast.snapshot.cluster_changes import ClusterChange, ObjectChange, applied, create, delete
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_MOST_PODS = 500
_KEEPING = ("StatefulSet", "ReplicaSet")
"""Workloads that do not replace a pod which is not ready when their template changes."""


class NamedNode(NamedTuple):
    """A node that a template names, and that does not exist."""

    name: str
    owner: PodOwner
    """Whose template it is: for a ReplicaSet of a Deployment, that of the Deployment."""

    def text(self, snapshot: ClusterSnapshot) -> str:
        """`the template of Deployment web has nodeName: n9, which does not exist; did you mean n1?`"""
        near = missing_node(snapshot, self.name)
        whose = f"{self.owner.info.kind} {self.owner.name}"
        return f"the template of {whose} has nodeName: {self.name}, which does not exist{near}"


def named_node(snapshot: ClusterSnapshot, pod: Raw) -> NamedNode | None:
    """The node that the template of a pod names; None if it names none, or one that exists."""
    owner = workload_of(snapshot, pod)
    name = str(owner.pod_spec.get("nodeName") or "") if owner is not None else ""
    if owner is None or owner.info.kind == "DaemonSet" or missing_node(snapshot, name) is None:
        return None
    return NamedNode(name, owner) if name else None


def named_node_of(snapshot: ClusterSnapshot, workload: Raw) -> NamedNode | None:
    """The node that the template of a workload names."""
    metadata = workload["metadata"]
    reference = {"apiVersion": workload["apiVersion"], "kind": workload["kind"]}
    reference |= {"name": metadata["name"], "controller": True}
    pod: Raw = {"namespace": metadata.get("namespace") or "", "ownerReferences": [reference]}
    return named_node(snapshot, {"metadata": pod})


def consider_other_node(
    snapshot: ClusterSnapshot, named: NamedNode, template: Raw, count: int, there: list[Raw]
) -> Iterator[Advice]:
    """The template with a node of a similar name, or without one, if so many pods of it then fit. Pods
    that are `there` and that their controller does not replace are to be deleted."""
    known = [name for name, row in snapshot.cluster.nodes.names() if snapshot.cluster.nodes.alive[row]]
    kept = [raw["metadata"]["name"] for raw in there if named.owner.info.kind in _KEEPING]
    for node in (*nearest(named.name, known), ""):
        objects = [named.owner.change({"spec": {"nodeName": node or None}})]
        edit = ClusterChange(("SetNodeName" if node else "RemoveNodeName",), tuple(objects))
        deleted = tuple(delete(POD, name, named.owner.namespace) for name in kept)
        with _created(snapshot, named.owner, template, min(count, _MOST_PODS)) as new:
            nodes = _places(snapshot, new, node)
        if not nodes:
            continue
        wrong = f"nodeName: {named.name}"
        text = f"set nodeName: {node} instead of {named.name}" if node else f"remove {wrong}"
        text += workload_text(edit)
        if kept:
            text += f", then delete {plural(len(kept), 'pod', 'pods')} {few(kept)}"
        names = sorted(set(nodes))
        fitting = Fitting(len(nodes), len(new), names, len(nodes), len(nodes))
        text += fitting_text(fitting) if len(new) > 1 else f"; then it fits {names[0]}"
        yield Advice(text, (edit + ClusterChange((), deleted)).data(), names)


@contextmanager
def _created(
    snapshot: ClusterSnapshot, owner: PodOwner, metadata: Raw, count: int
) -> Iterator[list[PodRecord]]:
    """New pods of the template, pending, until the end of the block."""
    changes, subjects = list[ObjectChange](), list[Subject]()
    spec = {key: value for key, value in owner.pod_spec.items() if key != "nodeName"}
    kept: Raw = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    for at in range(count):
        name = f"{owner.name}-new-{at}"
        about: Raw = {**kept, "name": name, "namespace": owner.namespace, "uid": name}
        raw: Raw = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}
        raw["status"] = {"phase": "Pending"}
        changes += [create(POD, raw), *claims_of_new_pod(snapshot, raw)]
        subjects.append(Subject(POD, name, owner.namespace))
    with applied(snapshot, changes):
        found = [subject.record(snapshot) for subject in subjects]
        yield [pod for pod in found if pod is not None]


def _places(snapshot: ClusterSnapshot, pods: list[PodRecord], node: str) -> list[str]:
    """The nodes of those that fit, beside pods that are tried before them; only this node, if one is
    given, which no scheduler checks."""
    name = snapshot.cluster.nodes.name
    if not pods:
        return []
    if not node:
        with started_before(snapshot, Subject.of(pods[0])), placed(snapshot, pods) as found:
            return [name(pod.row) for pod in found]
    statement, row = Statement(snapshot.scheduler.cycle), row_of(snapshot, node)
    try:
        for pod in pods:
            is_rejected = rejection_on(snapshot, pod, row).texts
            if is_rejected or not statement.assume_on(profile_for(snapshot.scheduler, pod), pod, row):
                break
        return [node for _ in statement.assumed]
    finally:
        statement.discard()
