"""Workloads that create pods again which are advised to end.

One pod that ends frees all that is needed at once. Of several, each frees a part, and the pods that
their workload creates again may take these parts before all have ended: the workload must be smaller,
and it is made smaller before pods of no workload are ended.
"""

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
    delete,
    patch,
)
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_REPLICA_SET, _STATEFUL_SET = KINDS["apps/v1", "ReplicaSet"], KINDS["apps/v1", "StatefulSet"]
_DEPLOYMENT = KINDS["apps/v1", "Deployment"]
_SETS = {"ReplicaSet": _REPLICA_SET, "StatefulSet": _STATEFUL_SET}
_MARKED = (_REPLICA_SET.kind, _DEPLOYMENT.kind)
"""Kinds whose controllers look at the annotation of pods; the others end the last pod first."""
_NOTHING: Raw = {"metadata": {}}
_COST = "controller.kubernetes.io/pod-deletion-cost"
_MARK: Raw = {"metadata": {"annotations": {_COST: "-1"}}}


class SmallerWorkloads(NamedTuple):
    text: str = ""
    changes: tuple[ObjectChange, ...] = ()
    pods: frozenset[str] = frozenset()
    """The uids of the pods that end as a result."""


class _Workload(NamedTuple):
    kind: str
    name: str
    namespace: str


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
    if subject.info is not POD or raw is None or any(scales_workload(each) for each in change.objects):
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


def scales_workload(change: ObjectChange) -> bool:
    """Whether it changes the number of replicas."""
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
    """The workloads of these pods with as many replicas fewer; empty if nothing creates them again.
    Their pending pods would be the first to go, so these count too."""
    ended: dict[_Workload, list[PodRecord]] = {}
    for each in pods:
        owner = controller_of(snapshot.find(POD, each.name, each.namespace) or _NOTHING)
        if owner.get("kind") in _SETS:
            workload = _workload(snapshot, owner["kind"], owner["name"], each.namespace)
            ended.setdefault(workload, []).append(each)
    if not ended:
        return SmallerWorkloads()
    ended = dict(sorted(ended.items()))
    pending = {each: _pending(snapshot, each) for each in ended}
    scaled = [_scaled(snapshot, each, len(ended[each]) + len(pending[each])) for each in ended]
    own = [pod for those in ended.values() for pod in those]
    marked = [pod for each, those in ended.items() if each.kind in _MARKED for pod in those]
    changes = [*(_marked(snapshot, pod) for pod in marked), *(each.change for each in scaled)]
    gone = [delete(POD, pod.name, pod.namespace) for those in pending.values() for pod in those]
    changes += [each._replace(follows=True) for each in gone]
    names = ", ".join(f"{each.kind} {each.name}" for each in scaled)
    commands = "; ".join(each.command for each in scaled)
    first = f", after the annotation {_COST}=-1 on {plural(len(own), 'this pod', 'these pods')}"
    again = plural(len(own), "it again in the capacity that it", "them again in the capacity that each")
    by = (
        f" by scaling {names} down"
        if len(own) == len(pods)
        else f", those of {names} by scaling these down"
    )
    text = f"{by}, which would create {again} frees ({commands}{first if marked else ''})"
    return SmallerWorkloads(text, tuple(changes), frozenset(pod.uid for pod in own))


def _marked(snapshot: ClusterSnapshot, pod: PodRecord) -> ObjectChange:
    """The pod is the first of those on nodes that a ReplicaSet with fewer replicas ends."""
    raw = snapshot.find(POD, pod.name, pod.namespace) or _NOTHING
    return patch(POD, raw, _MARK)


def marks_pod(change: ObjectChange) -> bool:
    """Whether it only has a smaller workload end the pod before others."""
    return change.body == _MARK


def _workload(snapshot: ClusterSnapshot, kind: str, name: str, namespace: str) -> _Workload:
    """The StatefulSet or ReplicaSet, or the Deployment above it."""
    above = controller_of(snapshot.find(_SETS[kind], name, namespace) or _NOTHING)
    if above.get("kind") == _DEPLOYMENT.kind:
        kind, name = _DEPLOYMENT.kind, above["name"]
    return _Workload(kind, name, namespace)


def _sets_of(snapshot: ClusterSnapshot, workload: _Workload) -> list[Raw]:
    """The ReplicaSets of a Deployment; or the workload itself."""
    if workload.kind != _DEPLOYMENT.kind:
        raw = snapshot.find(_SETS[workload.kind], workload.name, workload.namespace)
        return [raw] if raw is not None else []
    return [
        raw
        for raw in snapshot.all(_REPLICA_SET)
        for above in [controller_of(raw)]
        if (above.get("kind"), above.get("name")) == workload[:2]
        and (raw["metadata"].get("namespace") or "") == workload.namespace
    ]


def _pending(snapshot: ClusterSnapshot, workload: _Workload) -> list[PodRecord]:
    """The pods of a workload that have no node."""
    uids = {raw["metadata"].get("uid") for raw in _sets_of(snapshot, workload)}
    return [
        each
        for each in snapshot.cluster.pods.values()
        if each.row < 0 and any(owner.controller and owner.uid in uids for owner in each.cls.owners)
    ]


def _scaled(snapshot: ClusterSnapshot, workload: _Workload, fewer: int) -> _Scaled:
    known = _sets_of(snapshot, workload)
    if workload.kind == _DEPLOYMENT.kind:
        raw = snapshot.find(_DEPLOYMENT, workload.name, workload.namespace)
        known = [raw] if raw is not None else known
    given = [(raw.get("spec") or {}).get("replicas") for raw in known or [_NOTHING]]
    replicas = sum(1 if each is None else int(each) for each in given)
    return _Scaled(*workload, max(0, replicas - fewer))
