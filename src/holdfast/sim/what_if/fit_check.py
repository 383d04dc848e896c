"""Would manifests fit? Each workload as a whole, on the cluster as it is or without its pods.

The manifests are applied to a hypothetical cluster, all together; `checkable_manifests` says what in
place of some. How many nodes could take one pod of a workload is asked when everything else of the
manifests is there but no pods are, so that the workload does not stand in its own way.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from holdfast.api.decode import decode
from holdfast.api.documents import Document
from holdfast.api.kinds import KINDS
from holdfast.api.names import RESERVATION_API, STARTS_AT
from holdfast.api.reservation import Reservation
from holdfast.api.times import format_time
from holdfast.explanation.facts.pod_owners import CRON_JOB
from holdfast.explanation.report import few
from holdfast.explanation.subjects.plain_reasons import NODE_NOT_NAMED, plain
from holdfast.explanation.subjects.pods import explain_pod
from holdfast.explanation.subjects.reservations import explain_reservation
from holdfast.explanation.subjects.uncreated_pods import missing_classes
from holdfast.explanation.verdicts import place
from holdfast.local.component import ENDED, RESERVATION
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Key, Raw
from holdfast.local.workloads.lister import Ref, controller_of, labels_of
from holdfast.local.workloads.pods import from_template
from holdfast.local.workloads.revisions import REVISION_LABEL, current
from holdfast.machinery.status import StatusError
from holdfast.scheduler.cluster.events import Added, Deleted
from holdfast.scheduler.framework.config import plugin_sets as plugins
from holdfast.scheduler.framework.diagnosis import NodeRejection
from holdfast.scheduler.jobs import Job, JobName
from holdfast.scheduler.jobs.job import CORE, named_in
from holdfast.sim.what_if.answer import PENDING, WhatIfAnswer
from holdfast.sim.what_if.changes import WhatIfChanges
from holdfast.sim.what_if.checkable_manifests import CheckableManifest, checkable
from holdfast.sim.what_if.drain import is_daemon
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster
from holdfast.sim.what_if.question import WhatIfQuestion
from holdfast.snapshot.cluster_objects import ClusterObjects
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, SnapshotObjects

SCHEMA = "https://holdfast.io/schemas/check/v1"

_JOB = KINDS["batch/v1", "Job"]
_WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
_SCHEDULE = "ReservationSchedule"
_RESERVING = ("Reservation", _SCHEDULE)
_GONE_IF_EMPTY = (*_WORKLOADS[:3], "Job", "CronJob", *_RESERVING, "PodGroup", "ResourceClaim")
"""Kinds that an empty cluster does not have; nor pods but those of DaemonSets."""
_MOST_EXPLAINED = 10
_ASKED = "asked"
"""The name of the pod that the scheduler is asked about."""
_OVER = "it has expired: see spec.expires and spec.ttl"
_NO_PODS = "it makes no pods"

FITS, DOES_NOT_FIT, NOT_CHECKED = "Fits", "DoesNotFit", "NotChecked"


@dataclass(slots=True)
class CheckedObject:
    """A pod, workload, pod group or reservation of the manifests."""

    object: str
    manifest: CheckableManifest
    names: Collection[str] = ()
    """Of what is applied in its place, and of its pods."""
    not_checked: str = ""
    """Why it is not checked."""
    refusal: str = ""
    """Why no pod of it can be created."""
    pods: int = 0
    placed: int = 0
    min_member: int = 0
    """How many of them a PodGroup needs; 0 if all are needed."""
    is_ready: bool = True
    """Of a PodGroup, whether it has what it needs, also of each task."""
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
    reclaims: list[str] = field(default_factory=list)
    """Pods of other queues that are evicted for it."""
    field: str = ""
    """The field of the manifest that the first reason is about."""
    field_line: int = 0

    @property
    def document(self) -> Document:
        return self.manifest.document

    @property
    def status(self) -> str:
        if self.not_checked:
            return NOT_CHECKED
        fits = self.placed >= self.needed and self.is_ready and not self.refusal
        return FITS if fits else DOES_NOT_FIT

    @property
    def needed(self) -> int:
        """How many of its pods must have a node."""
        return self.min_member or self.pods

    @property
    def fits(self) -> bool:
        return self.status == FITS

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
            "status": self.status,
            "pods": self.pods,
            "placed": self.placed,
            "needed": self.needed,
            "nodes": self.nodes,
            "nodesIfEmpty": self.nodes_if_empty,
            "share": self.share,
            "queue": self.queue,
            "reasons": self.reasons,
            "message": self.not_checked or self.message,
            "details": self.details,
            "preempts": self.preempts,
            "reclaims": self.reclaims,
            "field": self.field,
            "fieldLine": self.field_line or self.line,
        }


@dataclass(slots=True)
class CheckResult:
    time: float
    objects: list[CheckedObject]
    notes: list[str]

    @property
    def status(self) -> str:
        """The worst of all."""
        found = {each.status for each in self.objects}
        return next((each for each in (DOES_NOT_FIT, NOT_CHECKED) if each in found), FITS)

    def data(self) -> dict[str, Any]:
        return {
            "$schema": SCHEMA,
            "kind": "Check",
            "time": format_time(self.time),
            "fits": self.status == FITS,
            "status": self.status,
            "summary": {
                "objects": len(self.objects),
                "fitting": sum(each.fits for each in self.objects),
                "notChecked": sum(each.status == NOT_CHECKED for each in self.objects),
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
    question = WhatIfQuestion.about(setup, objects)
    cluster = question.cluster
    declared = cluster.objects.declared
    given = [checkable(each, namespace, cluster.objects.get, declared) for each in manifests]
    of = {id(document): each for each in given for document in each.applied}
    asked: dict[Key, _Verdict] = {}
    wanted = WhatIfChanges(
        manifests=[document for each in given for document in each.applied], namespace=namespace
    )
    before = _objects_by_kind(cluster.objects.all())
    answer = question.ask(wanted, lambda scheduled: asked.update(_nodes_for(cluster, scheduled)))
    assert question.applied is not None
    keys: dict[int, list[Key]] = {id(each): [] for each in given}
    for key, document in question.applied.objects.items():
        keys[id(of[id(document)])].append(key)
    pods = _PodsByName(cluster)
    found = []
    for manifest in given:
        checked = _checked(cluster, manifest, keys[id(manifest)], answer, pods)
        if checked is None:
            continue
        checked.all_nodes = answer.after.nodes
        for verdict in (asked[key] for key in keys[id(manifest)][::-1] if key in asked):
            rejections = verdict.nodes
            # Of a reservation that starts later this is asked for now, when its node may be in use.
            least = checked.placed if checked.manifest.kind in _RESERVING else 0
            checked.nodes = max(least, sum(not each.texts for each in rejections))
            if_empty = sum(not each.texts or each.resolvable for each in rejections)
            checked.nodes_if_empty = max(checked.nodes, if_empty)
            if verdict.refusal:
                _refuse(cluster, checked, verdict.refusal)
        found.append(checked)
    failing = [each for each in found if each.status == DOES_NOT_FIT]
    _explain(cluster, before, failing[:_MOST_EXPLAINED])
    notes = [*answer.notes]
    if not found:
        notes.append("the manifests have no pods, workloads or reservations")
    return CheckResult(answer.time, found, notes)


def _is_kept(raw: Raw) -> bool:
    """Whether the object is there in the empty cluster as well."""
    return raw["kind"] not in _GONE_IF_EMPTY and (raw["kind"] != "Pod" or is_daemon(raw))


class _Verdict(NamedTuple):
    """What is said of one pod of an object."""

    nodes: list[NodeRejection]
    """Of every node."""
    refusal: str = ""
    """Why the API server does not create it."""


def _nodes_for(
    cluster: HypotheticalCluster, scheduled: Iterable[tuple[Key, Raw]]
) -> dict[Key, _Verdict]:
    """The verdict on one pod of each object, by the object's key."""
    found: dict[Key, _Verdict] = {}
    for key, raw in scheduled:
        pod = _pod_of(raw)
        if pod is None:
            continue
        try:
            found[key] = _Verdict(_verdicts(cluster, pod))
        except StatusError as error:
            # A pod is refused when it is applied, too; those of a workload only when they are created.
            found[key] = _Verdict([], error.message.replace(f'"{_ASKED}"', f'"{key.name}-"'))
    return found


def _refuse(cluster: HypotheticalCluster, checked: CheckedObject, refusal: str) -> None:
    """Pods of the workload cannot be created, whatever the nodes are like."""
    checked.refusal = checked.message = f"pods cannot be created: {refusal}"
    checked.reasons = ["pods cannot be created"]
    checked.pods = max(checked.pods, 1)
    checked.details = [each for each in checked.details if each != _NO_PODS]
    checked.details.append(refusal)
    raw, snapshot = checked.document.data, _snapshot(cluster)
    checked.details += [each.text for each in missing_classes(snapshot, raw)]


def _pod_of(raw: Raw) -> Raw | None:
    """One pod of a workload, or the pod itself; likewise a reservation, as if it started now."""
    if raw["kind"] in _RESERVING:
        return _reservation_of(raw)
    if raw["kind"] == "Pod":
        return {**raw, "metadata": {**raw["metadata"], "name": _ASKED, "uid": _ASKED}}
    template = (raw.get("spec") or {}).get("template")
    if raw["kind"] not in _WORKLOADS or not template:
        return None
    owner = {**raw, "metadata": {"uid": _ASKED, **raw["metadata"]}}
    pod = from_template(owner, template, name=_ASKED)
    return {**pod, "metadata": {**pod["metadata"], "uid": _ASKED}}


def _reservation_of(raw: Raw) -> Raw:
    template = raw["spec"]["template"] if raw["kind"] == _SCHEDULE else raw
    given = template.get("metadata") or {}
    annotations = {k: v for k, v in (given.get("annotations") or {}).items() if k != STARTS_AT}
    metadata = {**given, "annotations": annotations, "name": _ASKED, "uid": _ASKED}
    spec = {k: v for k, v in template["spec"].items() if k not in ("expires", "ttl")}
    return {
        "apiVersion": RESERVATION_API,
        "kind": RESERVATION[1],
        "metadata": metadata,
        "spec": spec,
    }


def _verdicts(cluster: HypotheticalCluster, pod: Raw) -> list[NodeRejection]:
    """Asks the scheduler about a pod, or a reservation, that is forgotten again."""
    scheduler, now = cluster.scheduler, cluster.clock.epoch()
    objects = cluster.objects
    _, complete = objects.prepared(pod, objects.type_of(pod), restores=True)
    view = decode(complete)
    scheduler.feed(Added(view), now)
    try:
        if isinstance(view, Reservation):
            reservation = scheduler.cluster.reservations.get(view.metadata.name)
            record = reservation.pod if reservation is not None else None
        else:
            record = scheduler.cluster.pods.get(view.metadata.uid)
        return [*place(scheduler, record).rejections.values()] if record is not None else []
    finally:
        scheduler.feed(Deleted(view), now)


def _checked(
    cluster: HypotheticalCluster,
    manifest: CheckableManifest,
    keys: Sequence[Key],
    answer: WhatIfAnswer,
    pods: "_PodsByName",
) -> CheckedObject | None:
    """None if it neither has nor makes anything that is scheduled."""
    if manifest.not_checked:
        return CheckedObject(manifest.name, manifest, not_checked=manifest.not_checked)
    names: set[str] = set()
    for key in keys:
        names |= _scheduled_by(cluster, key)
    if not names:
        return None
    first = keys[0]
    shown = str(first._replace(kind=manifest.kind)) if first.namespace else str(first)
    checked = CheckedObject(shown, manifest, names, details=[*manifest.remarks])
    checked.placed, checked.pods = pods.counts(names)
    pending = [each for each in answer.pending if names & {each.workload, each.object}]
    for key in keys:
        if key.kind in ("Deployment", "ReplicaSet", "StatefulSet"):
            _count_replicas(cluster, key, checked)
    reservations = [each for each in names if each.startswith(f"{RESERVATION[1]}/")]
    checked.pods += len(reservations)
    checked.placed += len(reservations) - sum(each.object in reservations for each in pending)
    waiting = [each for each in pending if each.was != PENDING] or pending
    if waiting:
        checked.message = waiting[0].message
        checked.reasons = [*dict.fromkeys(reason for each in waiting for reason in each.reasons)]
        if len(checked.reasons) > 1 and NODE_NOT_NAMED in checked.reasons:
            # Of nodes that are left out by a nodeName, or that other pods of a DaemonSet are for.
            checked.reasons.remove(NODE_NOT_NAMED)
        if all(each.waits_for == "scheduler" for each in waiting):
            checked.not_checked = f"{waiting[0].message}: see --config"
    elif not checked.pods and first.kind == "DaemonSet":
        checked.not_checked = "no node matches its node selector, affinity and tolerations"
    elif not checked.pods:
        checked.details.append(_NO_PODS)
    if over := [key for key in keys if key[:2] == RESERVATION and _is_over(cluster, key)]:
        checked.placed -= len(over)
        checked.refusal = checked.message = _OVER
        checked.reasons = [_OVER]
    own = {each.object for each in pending}
    own |= {each.object for each in answer.placed if names & {each.workload, each.object}}
    for_it = [each for each in answer.displaced if each.by in own | _groups(cluster, own)]
    checked.preempts = [each.object for each in for_it if each.reason == "Preempted"]
    checked.reclaims = [each.object for each in for_it if each.reason == "Reclaimed"]
    if checked.preempts:
        checked.details.append(f"it preempts {few(checked.preempts)}")
    if checked.reclaims:
        evicted = few(checked.reclaims)
        checked.details.append(f"evicted, because its queue reclaims what it deserves: {evicted}")
    checked.queue = _queue(cluster, own)
    for job in (_job(cluster, key) for key in keys if key.kind == "PodGroup"):
        if job is not None:
            checked.min_member, checked.is_ready = job.min_member, job.is_ready
    if checked.fits and checked.placed < checked.pods:
        checked.details.append(
            f"{checked.placed} of {checked.pods} pods fit, {checked.needed} are needed"
        )
    return checked


def _is_over(cluster: HypotheticalCluster, key: Key) -> bool:
    """Whether a reservation has expired, so that it reserves nothing."""
    raw = cluster.objects.get(key) or {}
    return (raw.get("status") or {}).get("phase") == "Failed"


def _scheduled_by(cluster: HypotheticalCluster, key: Key) -> set[str]:
    """The names of what is scheduled for an object: of itself, of its pods' workload, of others."""
    if key.kind == "PodGroup":
        return _members(cluster, key)
    if key.kind == _SCHEDULE:
        return {
            str(Key(*RESERVATION, "", raw["metadata"]["name"]))
            for raw in cluster.objects.scan(*RESERVATION)
            if (owner := controller_of(raw)) is not None
            and (owner["kind"], owner["name"]) == (_SCHEDULE, key.name)
        }
    if key.kind in (*_WORKLOADS, "Pod") or key[:2] == RESERVATION:
        return {str(key)}
    return set()


def _count_replicas(cluster: HypotheticalCluster, key: Key, checked: CheckedObject) -> None:
    """All replicas, also those that are made only after others are ready. Pods of an earlier template,
    which their controller keeps until new ones are ready, do not count."""
    raw = cluster.objects.get(key)
    wanted = ((raw or {}).get("spec") or {}).get("replicas")
    if raw is None or wanted is None:
        return
    uid, pods = raw["metadata"]["uid"], [*cluster.objects.scan("", "Pod")]
    if key.kind == "Deployment":
        new = _new_replica_set(cluster, key, raw)
        pods = [pod for pod in pods if new is not None and _is_controlled(pod, new)]
        checked.placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods if _is_alive(pod))
    elif key.kind == "StatefulSet" and not _keeps_old_pods(raw):
        digest = (raw.get("status") or {}).get("updateRevision")
        pods = [pod for pod in pods if _controller_uid(pod) == uid and _is_alive(pod)]
        updated = [pod for pod in pods if labels_of(pod).get(REVISION_LABEL) == digest]
        checked.placed = sum(bool(pod["spec"].get("nodeName")) for pod in updated)
    checked.pods = wanted


def _keeps_old_pods(stateful_set: Raw) -> bool:
    """Whether some of its pods stay of an earlier template."""
    strategy = stateful_set["spec"].get("updateStrategy") or {}
    return strategy.get("type") == "OnDelete" or bool(
        (strategy.get("rollingUpdate") or {}).get("partition")
    )


def _new_replica_set(cluster: HypotheticalCluster, key: Key, deployment: Raw) -> Raw | None:
    """The ReplicaSet of a Deployment's present template."""
    sets = [
        (Ref("apps", "ReplicaSet", key.namespace, raw["metadata"]["name"]), raw)
        for raw in cluster.objects.scan("apps", "ReplicaSet")
        if _is_controlled(raw, deployment)
    ]
    new = current(sets, deployment["spec"].get("template") or {})
    return new[1] if new is not None else None


def _is_controlled(raw: Raw, owner: Raw) -> bool:
    return _controller_uid(raw) == str(owner["metadata"]["uid"])


def _controller_uid(raw: Raw) -> str:
    return str((controller_of(raw) or {}).get("uid") or "")


def _is_alive(pod: Raw) -> bool:
    """Whether the pod is not at its end."""
    is_ended = pod["status"].get("phase") in ENDED
    return not (is_ended or pod["metadata"].get("deletionTimestamp"))


class _PodsByName:
    """The pods that are not at their end, by their names and those of their workloads."""

    def __init__(self, cluster: HypotheticalCluster) -> None:
        self._bound: dict[str, dict[str, bool]] = {}
        for raw in cluster.objects.scan("", "Pod"):
            metadata = raw["metadata"]
            if not _is_alive(raw):
                continue
            has_node = bool(raw["spec"].get("nodeName"))
            own = str(Key("", "Pod", metadata["namespace"], metadata["name"]))
            for name in {own, cluster.workload_of(raw)} - {""}:
                self._bound.setdefault(name, {})[own] = has_node

    def counts(self, names: Iterable[str]) -> tuple[int, int]:
        """How many of these have a node, and how many there are."""
        found: dict[str, bool] = {}
        for name in names:
            found.update(self._bound.get(name, {}))
        return sum(found.values()), len(found)


def _job(cluster: HypotheticalCluster, group: Key) -> Job | None:
    """The job of a PodGroup; there may be one of the same name in another API group."""
    jobs = cluster.scheduler.cluster.jobs
    if group.group == CORE:
        return jobs.known.get(JobName(CORE, group.namespace, group.name))
    return jobs.get(group.namespace, group.name)


def _members(cluster: HypotheticalCluster, group: Key) -> set[str]:
    job = _job(cluster, group)
    return {str(pod.ref) for uid, pod in job.members.items() if uid} if job is not None else set()


def _groups(cluster: HypotheticalCluster, objects: set[str]) -> set[str]:
    """The PodGroups of these pods, for which the scheduler preempts and reclaims."""
    state = cluster.scheduler.cluster
    pods = (pod for pod in state.pods.values() if pod.job is not None and str(pod.ref) in objects)
    return {str(job.ref) for pod in pods if (job := state.jobs.of(pod)) is not None}


def _queue(cluster: HypotheticalCluster, objects: set[str]) -> str:
    state = cluster.scheduler.cluster
    for pod in state.pods.values():
        if str(pod.ref) in objects:
            return state.jobs.queues.of(pod)
    return ""


# Why


def _explain(
    cluster: HypotheticalCluster, before: SnapshotObjects, objects: Iterable[CheckedObject]
) -> None:
    """Facts and advice about the first pending pod, or the reservation, of each object. `before` are
    the objects without the manifests."""
    snapshot: ClusterSnapshot | None = None
    for each in objects:
        is_reservation = each.manifest.kind in _RESERVING
        pending = (_pending_reservation if is_reservation else _first_pending)(cluster, each)
        if pending is None:
            continue
        snapshot = snapshot or _snapshot(cluster, before)
        if each.manifest.kind == CRON_JOB.kind:
            _own(snapshot, each.names)
        report = (explain_reservation if is_reservation else explain_pod)(snapshot, pending)
        if report.nodes:
            most = max(report.nodes, key=lambda found: (len(found.nodes), found.reason))
            each.field = _field_of(each.manifest, most.plugin, most.reason)
        each.details += [report.summary, *report.details, *(advice.text for advice in report.advice)]


def _own(snapshot: ClusterSnapshot, names: Collection[str]) -> None:
    """Makes a CronJob the owner of the Job that was applied in its place, so that advice names it."""
    jobs = snapshot.objects.get((_JOB.api_version, _JOB.kind), {})
    for (namespace, name), raw in [*jobs.items()]:
        if f"{_JOB.kind}/{namespace}/{name}" in names:
            owner = {"apiVersion": CRON_JOB.api_version, "kind": CRON_JOB.kind, "name": name}
            owned = {**raw["metadata"], "ownerReferences": [{**owner, "controller": True}]}
            jobs[namespace, name] = {**raw, "metadata": owned}


def _pending_reservation(cluster: HypotheticalCluster, checked: CheckedObject) -> Raw | None:
    for raw in cluster.objects.scan(*RESERVATION):
        if str(Key(*RESERVATION, "", raw["metadata"]["name"])) in checked.names:
            return raw
    return None


def _first_pending(cluster: HypotheticalCluster, checked: CheckedObject) -> Raw | None:
    """One of the present template before those of earlier ones, which are about to be deleted."""
    old: list[Raw] = []
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
        if names.isdisjoint((*checked.names, checked.object)):
            continue
        if not _is_of_old_template(cluster, raw):
            return raw
        old.append(raw)
    return old[0] if old else None


def _is_of_old_template(cluster: HypotheticalCluster, pod: Raw) -> bool:
    """Whether the pod is of another ReplicaSet than the newest one of its Deployment."""
    own = controller_of(pod)
    namespace = pod["metadata"]["namespace"]
    set_ = cluster.objects.get(Key("apps", "ReplicaSet", namespace, own["name"])) if own else None
    above = controller_of(set_) if set_ is not None else None
    if set_ is None or above is None or above["kind"] != "Deployment":
        return False
    key = Key("apps", "Deployment", namespace, above["name"])
    deployment = cluster.objects.get(key)
    new = _new_replica_set(cluster, key, deployment) if deployment is not None else None
    return new is not None and new["metadata"]["uid"] != set_["metadata"]["uid"]


def _snapshot(cluster: HypotheticalCluster, before: SnapshotObjects | None = None) -> ClusterSnapshot:
    """For questions only; the two share objects and scheduler."""
    snapshot = ClusterSnapshot(cluster.scheduler, cluster.time, is_hypothetical=True)
    snapshot.objects, snapshot.before = _objects_by_kind(cluster.objects.all()), before or {}
    return snapshot


def _objects_by_kind(objects: Iterable[Raw]) -> SnapshotObjects:
    found: SnapshotObjects = {}
    for raw in objects:
        metadata = raw["metadata"]
        of_kind = found.setdefault((raw["apiVersion"], raw["kind"]), {})
        of_kind[metadata.get("namespace") or "", metadata["name"]] = raw
    return found


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


def _field_of(manifest: CheckableManifest, plugin: str, reason: str) -> str:
    """The field behind a plugin's reason; empty if no field is."""
    inner, prefix = _FIELDS.get(plugin), manifest.pod_spec or "spec"
    if inner is None:
        return ""
    of_pod = _at(manifest.document.data, prefix) or {}
    if plugin == plugins.NODE_RESOURCES_FIT:
        resource = reason.removeprefix("Insufficient ")
        for i, container in enumerate(of_pod.get("containers") or ()):
            if resource in ((container.get("resources") or {}).get("requests") or {}):
                inner = f"containers[{i}].resources.requests.{resource}"
                break
    elif plugin == "NodeAffinity":
        set_ = (each for each in ("nodeName", "nodeSelector") if of_pod.get(each))
        inner = next(set_, inner)
    return f"{prefix}.{inner}"


def _at(raw: Any, path: str) -> Any:
    """What stands at a path such as `spec.tasks[0].template`; None if nothing does."""
    for step in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(raw, list):
            raw = raw[int(step)] if int(step) < len(raw) else None
        else:
            raw = (raw or {}).get(step)
    return raw


def short_reasons(checked: CheckedObject) -> str:
    """The reasons in a few words each."""
    if checked.not_checked:
        return checked.not_checked
    return ", ".join(plain(reason) for reason in checked.reasons) or checked.message
