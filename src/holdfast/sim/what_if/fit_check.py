"""Would manifests fit? Each workload as a whole, on the cluster as it is or without its pods.

The manifests are applied to a hypothetical cluster, all together. How many nodes could take one pod of
a workload is asked before that, so that the workload does not stand in its own way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.api.decode import decode
from holdfast.api.documents import Document
from holdfast.api.times import format_time
from holdfast.explanation.no_node import plain
from holdfast.explanation.pods import explain_pod
from holdfast.explanation.verdicts import place
from holdfast.local.component import RESERVATION
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Key, Raw
from holdfast.local.workloads.lister import controller_of
from holdfast.local.workloads.pods import from_template
from holdfast.scheduler.cluster.events import Added, Deleted
from holdfast.scheduler.framework.config import plugin_sets as plugins
from holdfast.scheduler.framework.diagnosis import NodeRejection
from holdfast.scheduler.jobs.job import named_in
from holdfast.sim.scenario_objects import ScenarioObject
from holdfast.sim.what_if.answer import PENDING, WhatIfAnswer
from holdfast.sim.what_if.changes import WhatIfChanges
from holdfast.sim.what_if.drain import is_daemon
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster
from holdfast.sim.what_if.question import WhatIfQuestion
from holdfast.snapshot.cluster_objects import ClusterObjects
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

SCHEMA = "https://holdfast.io/schemas/check/v1"

_WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
_SCHEDULE = "ReservationSchedule"
_RESERVING = ("Reservation", _SCHEDULE)
_GONE_IF_EMPTY = (*_WORKLOADS[:3], "Job", "CronJob", *_RESERVING, "PodGroup", "ResourceClaim")
"""Kinds that an empty cluster does not have; nor pods but those of DaemonSets."""
_MOST_EXPLAINED = 10


@dataclass(slots=True)
class CheckedObject:
    """A pod, workload, pod group or reservation of the manifests."""

    object: str
    document: Document
    pods: int = 0
    placed: int = 0
    nodes: int = 0
    """How many nodes could take one of its pods."""
    nodes_if_empty: int = 0
    """How many could if no pods were on them."""
    all_nodes: int = 0
    queue: str = ""
    message: str = ""
    reasons: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    preempts: list[str] = field(default_factory=list)
    field: str = ""
    """The field of the manifest that the first reason is about."""
    field_line: int = 0

    @property
    def fits(self) -> bool:
        return self.placed >= self.pods

    @property
    def share(self) -> float:
        return round(self.nodes / self.all_nodes, 4) if self.all_nodes else 0.0

    @property
    def line(self) -> int:
        return max(1, self.document.line)

    def data(self) -> dict[str, Any]:
        return {
            "object": self.object,
            "file": self.document.file,
            "line": self.line,
            "fits": self.fits,
            "pods": self.pods,
            "placed": self.placed,
            "nodes": self.nodes,
            "nodesIfEmpty": self.nodes_if_empty,
            "share": self.share,
            "queue": self.queue,
            "reasons": self.reasons,
            "message": self.message,
            "details": self.details,
            "preempts": self.preempts,
            "field": self.field,
            "fieldLine": self.field_line or self.line,
        }


@dataclass(slots=True)
class CheckResult:
    time: float
    objects: list[CheckedObject]
    notes: list[str]

    @property
    def fits(self) -> bool:
        return all(each.fits for each in self.objects)

    def data(self) -> dict[str, Any]:
        return {
            "$schema": SCHEMA,
            "kind": "Check",
            "time": format_time(self.time),
            "fits": self.fits,
            "summary": {
                "objects": len(self.objects),
                "fitting": sum(each.fits for each in self.objects),
                "pods": sum(each.pods for each in self.objects),
                "placed": sum(each.placed for each in self.objects),
                "preempted": len({name for each in self.objects for name in each.preempts}),
            },
            "objects": [each.data() for each in self.objects],
            "notes": self.notes,
        }


def check_fit(
    setup: SchedulerFactory,
    objects: ClusterObjects,
    manifests: Sequence[Document],
    namespace: str = "default",
    *,
    empty: bool = False,
) -> CheckResult:
    """Raises InvalidInput, NotSettled."""
    if empty:
        kept = tuple(each for each in objects.documents if _is_kept(each.data))
        objects = replace(objects, documents=kept)
    manifests = [_runnable(each) for each in manifests]
    question = WhatIfQuestion.about(setup, objects)
    asked = _nodes_for(question.cluster, manifests, namespace)
    answer = question.ask(WhatIfChanges(manifests=manifests, namespace=namespace))
    assert question.applied is not None
    found = []
    for key, document in question.applied.objects.items():
        checked = _checked(question.cluster, key, document, answer)
        if checked is None:
            continue
        checked.all_nodes = question.before.nodes
        if (rejections := asked.get(key)) is not None:
            checked.nodes = sum(not each.texts for each in rejections)
            checked.nodes_if_empty = sum(not each.texts or each.resolvable for each in rejections)
        found.append(checked)
    _explain(question.cluster, [each for each in found if not each.fits][:_MOST_EXPLAINED])
    notes = [*answer.notes]
    if not found:
        notes.append("the manifests have no pods, workloads or reservations")
    return CheckResult(answer.time, found, notes)


def _is_kept(raw: Raw) -> bool:
    """Whether the object is there in the empty cluster as well."""
    return raw["kind"] not in _GONE_IF_EMPTY and (raw["kind"] != "Pod" or is_daemon(raw))


def _runnable(document: Document) -> Document:
    """Instead of a CronJob, the Job that it would start."""
    data = document.data
    if not isinstance(data, dict) or (data.get("apiVersion"), data.get("kind")) != (
        "batch/v1",
        "CronJob",
    ):
        return document
    job = (data.get("spec") or {}).get("jobTemplate") or {}
    metadata = {**(job.get("metadata") or {}), **(data.get("metadata") or {})}
    made = {"apiVersion": "batch/v1", "kind": "Job", **job, "metadata": metadata}
    return replace(document, data=made)


def _nodes_for(
    cluster: HypotheticalCluster, manifests: Iterable[Document], namespace: str
) -> dict[Key, list[NodeRejection]]:
    """The verdict of every node on one pod of each object, by the object's key."""
    found: dict[Key, list[NodeRejection]] = {}
    for document in manifests:
        read = ScenarioObject(document.data) if isinstance(document.data, dict) else None
        if read is None or read.errors or not (pod := _pod_of(read.raw, namespace)):
            continue
        raw = read.raw
        metadata = {**raw["metadata"], "namespace": raw["metadata"].get("namespace") or namespace}
        key = cluster.objects.key_of({**raw, "metadata": metadata})
        found[key] = _verdicts(cluster, pod)
    return found


def _pod_of(raw: Raw, namespace: str) -> Raw | None:
    """One pod of a workload, or the pod itself."""
    metadata = {**raw["metadata"], "namespace": raw["metadata"].get("namespace") or namespace}
    if raw["kind"] == "Pod":
        return {**raw, "metadata": {**metadata, "name": "asked", "uid": "asked"}}
    template = (raw.get("spec") or {}).get("template")
    if raw["kind"] not in _WORKLOADS or not template:
        return None
    owner = {**raw, "metadata": {"uid": "asked", "name": "asked", **metadata}}
    pod = from_template(owner, template, name="asked")
    return {**pod, "metadata": {**pod["metadata"], "uid": "asked"}}


def _verdicts(cluster: HypotheticalCluster, pod: Raw) -> list[NodeRejection]:
    """Asks the scheduler about a pod that is forgotten again."""
    scheduler, now = cluster.scheduler, cluster.clock.epoch()
    objects = cluster.objects
    _, complete = objects.prepared(pod, objects.type_of(pod), restores=True)
    view = decode(complete)
    scheduler.feed(Added(view), now)
    try:
        record = scheduler.cluster.pods.get(view.metadata.uid)
        return [*place(scheduler, record).rejections.values()] if record is not None else []
    finally:
        scheduler.feed(Deleted(view), now)


def _checked(
    cluster: HypotheticalCluster, key: Key, document: Document, answer: WhatIfAnswer
) -> CheckedObject | None:
    name = str(key)
    if key.kind == "PodGroup":
        members = _members(cluster, key)
        if not members:
            return None
        names = members
    elif key.kind == _SCHEDULE:
        names = {
            str(Key(*RESERVATION, "", raw["metadata"]["name"]))
            for raw in cluster.objects.scan(*RESERVATION)
            if (owner := controller_of(raw)) is not None
            and (owner["kind"], owner["name"]) == (_SCHEDULE, key.name)
        }
        if not names:
            return None
    elif key.kind in (*_WORKLOADS, "Pod") or key[:2] == RESERVATION:
        names = {name}
    else:
        return None
    placed = [each for each in answer.placed if names & {each.workload, each.object}]
    pending = [each for each in answer.pending if names & {each.workload, each.object}]
    checked = CheckedObject(name, document, len(placed) + len(pending), len(placed))
    waiting = [each for each in pending if each.was != PENDING] or pending
    if waiting:
        checked.message = waiting[0].message
        checked.reasons = [*dict.fromkeys(reason for each in waiting for reason in each.reasons)]
    own = {each.object for each in placed} | {each.object for each in pending}
    checked.preempts = [each.object for each in answer.displaced if each.by in own]
    checked.queue = _queue(cluster, own)
    return checked


def _members(cluster: HypotheticalCluster, group: Key) -> set[str]:
    found = set()
    for uid, pod in cluster.scheduler.cluster.pods.items():
        job = pod.job
        if uid and job is not None and (job.namespace, job.name) == (group.namespace, group.name):
            found.add(str(pod.ref))
    return found


def _queue(cluster: HypotheticalCluster, objects: set[str]) -> str:
    state = cluster.scheduler.cluster
    for pod in state.pods.values():
        if str(pod.ref) in objects:
            return state.jobs.queues.of(pod)
    return ""


# Why


def _explain(cluster: HypotheticalCluster, objects: Iterable[CheckedObject]) -> None:
    """Facts and advice about the first pending pod of each object."""
    snapshot: ClusterSnapshot | None = None
    for each in objects:
        pod = _first_pending(cluster, each)
        if pod is None:
            continue
        snapshot = snapshot or _snapshot(cluster)
        report = explain_pod(snapshot, pod)
        if report.nodes:
            most = max(report.nodes, key=lambda found: (len(found.nodes), found.reason))
            each.field = _field_of(each.document.data, most.plugin, most.reason)
        each.details = [report.summary, *report.details, *(advice.text for advice in report.advice)]


def _first_pending(cluster: HypotheticalCluster, checked: CheckedObject) -> Raw | None:
    for record in cluster.scheduler.cluster.pods.values():
        if record.row >= 0 or record.reservation is not None:
            continue
        raw = cluster.objects.get(Key("", "Pod", record.namespace, record.name))
        if raw is None:
            continue
        group = named_in(decode(raw).metadata)
        names = {str(record.ref), cluster.workload_of(raw)}
        if group is not None:
            names.add(f"PodGroup/{group.namespace}/{group.name}")
        if checked.object in names:
            return raw
    return None


def _snapshot(cluster: HypotheticalCluster) -> ClusterSnapshot:
    """For questions only; the two share objects and scheduler."""
    snapshot = ClusterSnapshot(cluster.scheduler, cluster.clock.epoch())
    for raw in cluster.objects.all():
        metadata = raw["metadata"]
        of_kind = snapshot.objects.setdefault((raw["apiVersion"], raw["kind"]), {})
        of_kind[metadata.get("namespace") or "", metadata["name"]] = raw
    return snapshot


_FIELDS = {
    plugins.NODE_RESOURCES_FIT: "containers[0].resources.requests",
    "NodeAffinity": "affinity.nodeAffinity",
    "TaintToleration": "tolerations",
    "PodTopologySpread": "topologySpreadConstraints",
    "InterPodAffinity": "affinity",
    "NodePorts": "containers[0].ports",
    "NodeName": "nodeName",
    "VolumeBinding": "volumes",
    "VolumeZone": "volumes",
    "NodeVolumeLimits": "volumes",
    "DynamicResources": "resourceClaims",
}
"""By plugin, the field of a pod's spec that it reads."""


def _field_of(raw: Raw, plugin: str, reason: str) -> str:
    """The field behind a plugin's reason; empty if no field is."""
    inner = _FIELDS.get(plugin)
    spec = raw.get("spec") or {}
    prefix = "spec.template.spec" if "template" in spec else "spec"
    of_pod = (spec.get("template") or {}).get("spec") or spec
    if inner is None:
        return ""
    if plugin == plugins.NODE_RESOURCES_FIT:
        resource = reason.removeprefix("Insufficient ")
        for i, container in enumerate(of_pod.get("containers") or ()):
            if resource in ((container.get("resources") or {}).get("requests") or {}):
                inner = f"containers[{i}].resources.requests.{resource}"
                break
    elif plugin == "NodeAffinity" and of_pod.get("nodeSelector"):
        inner = "nodeSelector"
    return f"{prefix}.{inner}"


def short_reasons(checked: CheckedObject) -> str:
    """The reasons in a few words each."""
    return ", ".join(plain(reason) for reason in checked.reasons) or checked.message
