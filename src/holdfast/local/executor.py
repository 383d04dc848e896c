"""Carries out the scheduler's decisions against the store, and feeds the outcomes back."""

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.api import names
from holdfast.api.annotations import ReservationAllocated
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import condition
from holdfast.api.migration import MigrationPhase
from holdfast.api.names import RESERVATION_API
from holdfast.api.reservation import ReservationPhase, ReservationStatus
from holdfast.local.cluster_parts import ClusterParts, deletion_event
from holdfast.local.component import BOUND, EVICTED, PREEMPTED, UNSCHEDULABLE, with_condition
from holdfast.local.store.objects import Key, Raw, node_key, pod_key
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.machinery.pod_subresources import EvictionRefusal, bound_pod, disruption, marked
from holdfast.machinery.status import StatusError
from holdfast.scheduler.actions.reserve import RESERVED, STARVING
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    AnnotateReservation,
    Bind,
    BindVolume,
    CreateReservation,
    Decision,
    DeleteReservation,
    Emit,
    Evict,
    Nominate,
    ObjectRef,
    Preempt,
    PreemptReservation,
    SelectNode,
    SetMigrationStatus,
    SetPodGroupStatus,
    SetPodScheduled,
    SetQueueStatus,
    SetReservationStatus,
    SpecifyMigration,
    specification,
)
from holdfast.scheduler.cluster.events import BindConfirmed, BindRefused, WriteRefused
from holdfast.scheduler.framework.gangs import READY


class DecisionExecutor:
    """Dispatches decisions; those of jobs, migrations and reservations go to the executors below."""

    def __init__(self, world: ClusterParts) -> None:
        self._world = world
        self._objects = world.objects
        self._reservations = ReservationExecutor(world)
        self._jobs = JobExecutor(world)
        self._migrations = MigrationExecutor(world)
        self._carry_out: dict[type, Callable[[Any], None]] = {
            Bind: self._bind,
            BindVolume: self._bind_volume,
            SelectNode: self._select_node,
            SetPodScheduled: self._set_pod_scheduled,
            Nominate: self._nominate,
            Preempt: self._preempt,
            AnnotatePod: self._annotate,
            Evict: self._migrations.evict,
            SetMigrationStatus: self._migrations.set_status,
            SpecifyMigration: self._migrations.specify,
            CreateReservation: self._reservations.create,
            SetReservationStatus: self._reservations.set_status,
            DeleteReservation: self._reservations.delete,
            PreemptReservation: self._reservations.preempt,
            AnnotateReservation: self._jobs.annotate,
            SetPodGroupStatus: self._jobs.set_group_status,
            SetQueueStatus: self._jobs.set_queue_status,
            Emit: self._emit,
        }

    def carry_out(self, decision: Decision) -> None:
        self._carry_out[type(decision)](decision)

    def _bind(self, decision: Bind) -> None:
        world = self._world
        key = pod_key(decision.pod.namespace, decision.pod.name)
        pod = self._objects.get(key)
        if pod is None:
            world.feed(BindRefused(decision.pod.uid, f'pods "{decision.pod.name}" not found'))
            return
        binding = {"uid": decision.pod.uid, "annotations": decision.annotations}
        try:
            bound = bound_pod(pod, binding, decision.node, world.clock.stamp())
        except StatusError as error:
            world.feed(BindRefused(decision.pod.uid, error.message))
            return
        world.binding(key, decision)
        world.feed(BindConfirmed(decision.pod.uid))
        node = self._objects.get(node_key(decision.node))
        world.volumes.pod_bound(pod, node)
        world.record(key, BOUND, node=decision.node, reservation=reservation_of(bound))
        self._objects.update(key, world.kubelets.running(bound) if node is not None else bound)

    def _set_pod_scheduled(self, decision: SetPodScheduled) -> None:
        key = pod_key(decision.pod.namespace, decision.pod.name)
        pod = self._this(decision.pod)
        if pod is None:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": decision.reason,
            "message": decision.message,
        }
        before = pod["status"].get("conditions") or []
        conditions = with_condition(before, condition, self._world.clock.stamp())
        if conditions == before:
            return
        self._world.record(key, UNSCHEDULABLE, message=decision.message)
        self._objects.update(key, {**pod, "status": {**pod["status"], "conditions": conditions}})

    def _bind_volume(self, decision: BindVolume) -> None:
        """The claim itself follows when its pod is bound."""
        key = Key("", "PersistentVolume", "", decision.volume.name)
        volume = self._objects.get(key)
        if volume is None or (volume["spec"].get("claimRef") or {}).get("uid"):
            return
        claim = decision.claim
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
        }
        self._objects.update(key, {**volume, "spec": {**volume["spec"], "claimRef": reference}})

    def _select_node(self, decision: SelectNode) -> None:
        key = Key("", "PersistentVolumeClaim", decision.claim.namespace, decision.claim.name)
        found = self._objects.get(key)
        if found is None:
            return
        metadata = found["metadata"]
        annotations = {
            **(metadata.get("annotations") or {}),
            names.SELECTED_NODE_ANNOTATION: decision.node,
        }
        self._objects.update(key, {**found, "metadata": {**metadata, "annotations": annotations}})

    def _nominate(self, decision: Nominate) -> None:
        pod = self._this(decision.pod)
        if pod is None:
            return
        status = {k: v for k, v in pod["status"].items() if k != "nominatedNodeName"}
        if decision.node:
            status["nominatedNodeName"] = decision.node
        self._objects.update(
            pod_key(decision.pod.namespace, decision.pod.name), {**pod, "status": status}
        )

    def _annotate(self, decision: AnnotatePod) -> None:
        pod = self._this(decision.pod)
        if pod is None:
            self._world.feed(WriteRefused(decision, f'pods "{decision.pod.name}" not found'))
            return
        metadata = pod["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **decision.annotations}
        kept = {name: value for name, value in annotations.items() if value is not None}
        key = pod_key(decision.pod.namespace, decision.pod.name)
        self._objects.update(key, {**pod, "metadata": {**metadata, "annotations": kept}})

    def _preempt(self, decision: Preempt) -> None:
        pod = self._this(decision.pod)
        if pod is None:
            return
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": decision.message,
        }
        before = pod["status"].get("conditions") or []
        conditions = with_condition(before, condition, self._world.clock.stamp())
        key = pod_key(decision.pod.namespace, decision.pod.name)
        self._objects.update(key, {**pod, "status": {**pod["status"], "conditions": conditions}})
        message = f"by {decision.preemptor}"
        event = EVICTED if decision.preemptor.kind == "Reservation" else PREEMPTED
        self._world.record(key, event, node=decision.node, message=message)
        self._world.kubelets.delete(key)

    def _this(self, wanted: ObjectRef) -> Raw | None:
        """The pod, unless another has its name by now."""
        pod = self._objects.get(pod_key(wanted.namespace, wanted.name))
        return pod if pod is not None and pod["metadata"]["uid"] == wanted.uid else None

    def _emit(self, decision: Emit) -> None:
        about = decision.about
        pod = self._objects.get(pod_key(about.namespace, about.name)) if about.kind == "Pod" else None
        name = pod["spec"]["schedulerName"] if pod is not None else names.HOLDFAST_SCHEDULER
        self._jobs.record(decision)
        self._world.recorder.emit(decision, name)


def reservation_of(pod: Raw) -> str:
    """The reservation that the pod is allocated from."""
    text = (pod["metadata"].get("annotations") or {}).get(names.RESERVATION_ALLOCATED)
    if text is None:
        return ""
    try:
        return decode_json(text, ReservationAllocated).name
    except InvalidObject:
        return ""


_OF_JOBS = (STARVING, RESERVED, READY)


class JobExecutor:
    """Decisions about PodGroups, Queues and the reservations the scheduler creates for jobs."""

    def __init__(self, world: ClusterParts) -> None:
        self._world = world
        self._objects = world.objects

    def annotate(self, decision: AnnotateReservation) -> None:
        ref = decision.reservation
        raw = self._objects.get(reservation_key(ref.name))
        if raw is None or raw["metadata"]["uid"] != ref.uid:
            return
        metadata = raw["metadata"]
        before, said = metadata.get("annotations") or {}, decision.annotations
        kept = {key: value for key, value in before.items() if key not in said}
        annotations = kept | {key: value for key, value in said.items() if value}
        self._objects.update(
            reservation_key(ref.name), {**raw, "metadata": {**metadata, "annotations": annotations}}
        )

    def set_group_status(self, decision: SetPodGroupStatus) -> None:
        ref = decision.group
        key = Key(decision.api_version.partition("/")[0], "PodGroup", ref.namespace, ref.name)
        self._set_status(key, ref.uid, decision.status)

    def set_queue_status(self, decision: SetQueueStatus) -> None:
        key = Key(decision.api_version.partition("/")[0], "Queue", "", decision.queue.name)
        self._set_status(key, decision.queue.uid, decision.status)

    def record(self, decision: Emit) -> None:
        """Records an event of a job in the timeline."""
        if decision.reason in _OF_JOBS and decision.about.kind in ("PodGroup", "Pod"):
            about = decision.about
            key = Key("", about.kind, about.namespace, about.name)
            self._world.record(key, decision.reason, message=decision.message)

    def _set_status(self, key: Key, uid: str, status: msgspec.Struct) -> None:
        raw = self._objects.get(key)
        if raw is not None and raw["metadata"]["uid"] == uid:
            self._objects.update(key, {**raw, "status": msgspec.to_builtins(status)})


_UNSETTLED = ("", MigrationPhase.PENDING)


class MigrationExecutor:
    """Decisions about PodMigrationJobs and the pods they evict."""

    def __init__(self, world: ClusterParts) -> None:
        self._world = world
        self._objects = world.objects

    def set_status(self, decision: SetMigrationStatus) -> None:
        key = migration_key(decision.job.name)
        raw = self._this(decision.job)
        if raw is None:
            return
        status = decision.status
        before = (raw.get("status") or {}).get("phase", "")
        if status.phase != before and status.phase not in _UNSETTLED:
            message = status.message if status.phase != MigrationPhase.RUNNING else ""
            self._world.record(key, status.phase, node=status.node_name, message=message)
        self._objects.update(key, {**raw, "status": msgspec.to_builtins(status)})

    def specify(self, decision: SpecifyMigration) -> None:
        raw = self._this(decision.job)
        if raw is None:
            return
        changed = merge_patch(raw, {"spec": specification(decision)})
        self._objects.update(migration_key(decision.job.name), changed)

    def evict(self, decision: Evict) -> None:
        world, ref = self._world, decision.pod
        key, options = pod_key(ref.namespace, ref.name), decision.options
        pod = self._objects.get(key)
        if pod is None or pod["metadata"]["uid"] != ref.uid:
            return
        now = world.clock.stamp()
        budgets = (
            budget
            for budget in self._objects.scan("policy", "PodDisruptionBudget")
            if budget["metadata"]["namespace"] == ref.namespace
        )
        taken = disruption(pod, budgets, now)
        if isinstance(taken, EvictionRefusal):
            world.feed(WriteRefused(decision, taken.message))
            return
        if options.get("dryRun"):
            return
        if taken is not None:
            name = taken["metadata"]["name"]
            budget = Key("policy", "PodDisruptionBudget", ref.namespace, name)
            self._objects.update(budget, taken)
        self._objects.update(key, marked(pod, now))
        node = pod["spec"].get("nodeName") or ""
        world.record(key, EVICTED, node=node, message=decision.message)
        world.kubelets.delete(key, grace=options.get("gracePeriodSeconds"))

    def _this(self, wanted: ObjectRef) -> Raw | None:
        """The job, unless another has its name by now."""
        raw = self._objects.get(migration_key(wanted.name))
        return raw if raw is not None and raw["metadata"]["uid"] == wanted.uid else None


def migration_key(name: str) -> Key:
    return Key(RESERVATION_API.partition("/")[0], "PodMigrationJob", "", name)


class ReservationExecutor:
    """Decisions about reservations."""

    def __init__(self, world: ClusterParts) -> None:
        self._world = world
        self._objects = world.objects

    def create(self, decision: CreateReservation) -> None:
        raw: Raw = msgspec.to_builtins(decision.reservation)
        name = decision.reservation.metadata.name
        if reservation_key(name) in self._objects:
            return
        try:
            self._objects.submit(raw)
        except StatusError as error:
            self._world.feed(WriteRefused(decision, error.message))

    def set_status(self, decision: SetReservationStatus) -> None:
        ref = decision.reservation
        raw = self._this(ref)
        if raw is None:
            if decision.binds:
                self._world.feed(BindRefused(ref.uid, f'reservations "{ref.name}" not found'))
            return
        if decision.binds:
            self._world.feed(BindConfirmed(ref.uid))
        self._record(ref, raw, decision.status)
        status = msgspec.to_builtins(decision.status)
        written = {**raw, "status": status}
        if decision.annotations:
            metadata = raw["metadata"]
            annotations = {**(metadata.get("annotations") or {}), **decision.annotations}
            annotations = {key: value for key, value in annotations.items() if value}
            written["metadata"] = {**metadata, "annotations": annotations}
        self._objects.update(reservation_key(ref.name), written)

    def delete(self, decision: DeleteReservation) -> None:
        ref = decision.reservation
        raw = self._this(ref)
        if raw is None:
            return
        key = reservation_key(ref.name)
        if not raw["metadata"].get("finalizers"):
            self._world.record(key, deletion_event(raw), message=decision.message)
        self._objects.end(key)

    def preempt(self, decision: PreemptReservation) -> None:
        ref = decision.reservation
        raw = self._this(ref)
        if raw is None:
            return
        key, metadata = reservation_key(ref.name), raw["metadata"]
        self._world.record(key, PREEMPTED, node=decision.node, message=f"by {decision.preemptor}")
        labels = {**(metadata.get("labels") or {}), **decision.labels}
        annotations = {**(metadata.get("annotations") or {}), **decision.annotations}
        marked = {**metadata, "labels": labels, "annotations": annotations}
        self._objects.update(key, {**raw, "metadata": marked})

    def _record(self, ref: ObjectRef, raw: Raw, status: ReservationStatus) -> None:
        """What the new status means, if it means something new."""
        before = raw.get("status") or {}
        key = reservation_key(ref.name)
        if status.phase != before.get("phase") and status.phase != ReservationPhase.PENDING:
            ready = condition(status.conditions, "Ready")
            why = ready.message if ready is not None else ""
            self._world.record(key, status.phase, node=status.node_name, message=why)
        scheduled = condition(status.conditions, "Scheduled")
        if scheduled is None or scheduled.status != "False":
            return
        known = [c for c in before.get("conditions", ()) if c["type"] == "Scheduled"]
        if not known or known[0].get("message") != scheduled.message:
            self._world.record(key, UNSCHEDULABLE, message=scheduled.message)

    def _this(self, wanted: ObjectRef) -> Raw | None:
        """The reservation, unless another has its name by now."""
        raw = self._objects.get(reservation_key(wanted.name))
        return raw if raw is not None and raw["metadata"]["uid"] == wanted.uid else None


def reservation_key(name: str) -> Key:
    return Key(RESERVATION_API.partition("/")[0], "Reservation", "", name)
