"""Workloads that create pods again which are advised to end.

One pod that ends frees all that is needed at once. Of several, each frees a part, and the pods that
their workload creates again may take these parts before all have ended: the workload must be smaller.
"""

from collections import Counter
from typing import NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.plurals import plural
from holdfast.explanation.facts.pod_owners import controller_of
from holdfast.explanation.verdicts import Subject, starts_on
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import (
    DELETE,
    ClusterChange,
    ObjectChange,
    applied,
    create,
    patch,
)
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_REPLICA_SET, _STATEFUL_SET = KINDS["apps/v1", "ReplicaSet"], KINDS["apps/v1", "StatefulSet"]
_DEPLOYMENT = KINDS["apps/v1", "Deployment"]
_SETS = {"ReplicaSet": _REPLICA_SET, "StatefulSet": _STATEFUL_SET}
_COST = "controller.kubernetes.io/pod-deletion-cost"


class SmallerWorkloads(NamedTuple):
    text: str = ""
    changes: tuple[ObjectChange, ...] = ()


class _Scaled(NamedTuple):
    """A workload with the replicas that it should have."""

    kind: str
    name: str
    namespace: str
    replicas: int

    @property
    def command(self) -> str:
        where = "" if self.namespace == "default" else f" -n {self.namespace}"
        return f"kubectl scale {self.kind.lower()} {self.name}{where} --replicas={self.replicas}"

    @property
    def change(self) -> ObjectChange:
        info = _DEPLOYMENT if self.kind == "Deployment" else _SETS[self.kind]
        raw: Raw = {"metadata": {"name": self.name, "namespace": self.namespace}}
        return patch(info, raw, {"spec": {"replicas": self.replicas}})


def replacements_text(
    snapshot: ClusterSnapshot, change: ClusterChange, subject: Subject, node: str
) -> str:
    """`; ReplicaSet web replaces default/web-1, and its new pod is then pending`, of pods that are
    advised to end and whose workload is not made smaller; empty if the new ones find a node while the
    subject is on this one."""
    raw = snapshot.find(subject.info, subject.name, subject.namespace)
    if subject.info is not POD or raw is None or any(_scales(each) for each in change.objects):
        return ""
    ended = [
        found
        for each in change.objects
        if each.info is POD
        and each.operation == DELETE
        and not each.follows
        and (found := snapshot.find(POD, each.name, each.namespace)) is not None
        and controller_of(found).get("kind") in _SETS
    ]
    again = [create(POD, _again(raw)) for raw in ended]
    bound = patch(POD, raw, {"spec": {"nodeName": node}})
    pending: list[str] = []
    with applied(snapshot, [*change.objects, bound, *again] if ended else []):
        for each in ended:
            name, namespace = each["metadata"]["name"], each["metadata"].get("namespace") or ""
            if not starts_on(snapshot, Subject(POD, name, namespace)):
                pending.append(f"{namespace}/{name}")
    if not pending:
        return ""
    owner = controller_of(ended[0])
    above = controller_of(
        snapshot.find(_SETS[owner["kind"]], owner["name"], ended[0]["metadata"].get("namespace") or "")
        or {"metadata": {}}
    )
    owner = above if above.get("kind") == _DEPLOYMENT.kind else owner
    new = f"{len(pending)} new pods are" if len(pending) > 1 else "its new pod is"
    return f"; {owner['kind']} {owner['name']} replaces {pending[0]}, and {new} then pending"


def _scales(change: ObjectChange) -> bool:
    return "replicas" in (change.body.get("spec") or {})


def _again(pod: Raw) -> Raw:
    """The pod as its controller creates it again."""
    metadata = pod["metadata"]
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    uid = f"{metadata.get('uid') or metadata['name']}-again"
    return {**pod, "metadata": {**metadata, "uid": uid}, "spec": spec, "status": {"phase": "Pending"}}


def is_created_again(pod: PodRecord) -> bool:
    """Whether a controller other than a ReplicaSet or a StatefulSet has the pod: a smaller workload is
    not advised of these."""
    return any(owner.controller and owner.kind not in _SETS for owner in pod.cls.owners)


def smaller_workloads(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> SmallerWorkloads:
    """The workloads of these pods with as many replicas fewer; empty if nothing creates them again."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for each in pods:
        owner = controller_of(snapshot.find(POD, each.name, each.namespace) or {"metadata": {}})
        if owner.get("kind") in _SETS:
            counts[owner["kind"], owner["name"], each.namespace] += 1
    scaled = [
        _scaled(snapshot, kind, name, namespace, count)
        for (kind, name, namespace), count in sorted(counts.items())
    ]
    if not scaled:
        return SmallerWorkloads()
    names = ", ".join(f"{each.kind} {each.name}" for each in scaled)
    commands = "; ".join(each.command for each in scaled)
    first = ""
    if any(each.kind != "StatefulSet" for each in scaled):
        first = f", after the annotation {_COST}=-1 on {plural(len(pods), 'this pod', 'these pods')}"
    again = plural(
        len(pods), "it again in the capacity that it", "them again in the capacity that each"
    )
    text = f", and scale {names} down, which would create {again} frees"
    return SmallerWorkloads(f"{text} ({commands}{first})", tuple(each.change for each in scaled))


def _scaled(snapshot: ClusterSnapshot, kind: str, name: str, namespace: str, fewer: int) -> _Scaled:
    raw = snapshot.find(_SETS[kind], name, namespace) or {"metadata": {}}
    replicas = (raw.get("spec") or {}).get("replicas")
    above = controller_of(raw)
    if above.get("kind") == "Deployment":
        kind, name = "Deployment", above["name"]
    return _Scaled(kind, name, namespace, max(0, (1 if replicas is None else int(replicas)) - fewer))
