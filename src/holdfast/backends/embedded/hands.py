"""Carries the scheduler's decisions out against the store, and feeds back what came of them."""

from collections.abc import Callable
from typing import Any

from holdfast.api import names
from holdfast.api.annotations import ReservationAllocated
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.backends.embedded.jobs import JobHands
from holdfast.backends.embedded.migrations import MigrationHands
from holdfast.backends.embedded.objects import with_condition
from holdfast.backends.embedded.reservations import ReservationHands
from holdfast.backends.embedded.telling import BOUND, EVICTED, PREEMPTED, UNSCHEDULABLE
from holdfast.backends.embedded.world import World
from holdfast.core.decisions import (
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
)
from holdfast.core.events import BindConfirmed, BindRefused, WriteRefused
from holdfast.store.objects import Key, Raw, node_key, pod_key


class Hands:
    def __init__(self, world: World) -> None:
        self._world = world
        self._objects = world.objects
        self._reservations = ReservationHands(world)
        self._jobs = JobHands(world)
        self._migrations = MigrationHands(world)
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
        refusal = _refusal(pod, decision.pod)
        if pod is None or refusal:
            world.feed(BindRefused(decision.pod.uid, refusal))
            return
        world.binding(key, decision)
        world.feed(BindConfirmed(decision.pod.uid))
        node = self._objects.get(node_key(decision.node))
        world.volumes.pod_bound(pod, node)
        condition = {"type": "PodScheduled", "status": "True"}
        conditions = with_condition(
            pod["status"].get("conditions") or [], condition, world.clock.stamp()
        )
        status = {**pod["status"], "conditions": conditions}
        status.pop("nominatedNodeName", None)  # no node is being cleared for it any more
        bound = {**pod, "spec": {**pod["spec"], "nodeName": decision.node}, "status": status}
        if decision.annotations:
            metadata = pod["metadata"]
            annotations = {**(metadata.get("annotations") or {}), **decision.annotations}
            bound["metadata"] = {**metadata, "annotations": annotations}
        world.tell(key, BOUND, node=decision.node, reservation=reservation_of(bound))
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
        self._world.tell(key, UNSCHEDULABLE, message=decision.message)
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
        self._world.tell(key, event, node=decision.node, message=message)
        self._world.kubelets.delete(key)

    def _this(self, wanted: ObjectRef) -> Raw | None:
        """The pod, unless another has its name by now."""
        pod = self._objects.get(pod_key(wanted.namespace, wanted.name))
        return pod if pod is not None and pod["metadata"]["uid"] == wanted.uid else None

    def _emit(self, decision: Emit) -> None:
        about = decision.about
        pod = self._objects.get(pod_key(about.namespace, about.name)) if about.kind == "Pod" else None
        name = pod["spec"]["schedulerName"] if pod is not None else names.HOLDFAST_SCHEDULER
        self._jobs.tell(decision)
        self._world.recorder.emit(decision, name)


def _refusal(pod: Raw | None, wanted: ObjectRef) -> str:
    """Why an API server would not bind the pod, in its words; "" if it would."""
    if pod is None:
        return f'pods "{wanted.name}" not found'
    start = f'Operation cannot be fulfilled on pods/binding "{wanted.name}"'
    if pod["metadata"]["uid"] != wanted.uid:
        return f"{start}: the pod now there is another one"
    if pod["metadata"].get("deletionTimestamp"):
        return f"{start}: pod {wanted.name} is being deleted, cannot be assigned to a host"
    node = pod["spec"].get("nodeName")
    if node:
        return f'{start}: pod {wanted.name} is already assigned to node "{node}"'
    return ""


def reservation_of(pod: Raw) -> str:
    """The reservation it was bound through."""
    text = (pod["metadata"].get("annotations") or {}).get(names.RESERVATION_ALLOCATED)
    if text is None:
        return ""
    try:
        return decode_json(text, ReservationAllocated).name
    except InvalidObject:
        return ""
