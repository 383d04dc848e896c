"""Carries decisions out on the objects of a cluster in this process, and feeds the outcomes back.

A decision becomes what the API server would make of the scheduler's request: a bind sets the node
unless the pod is deleted, bound or recreated; an eviction is subject to disruption budgets; a write to
an object that was recreated (UID changed) does nothing. Local clusters, simulations, benchmarks and
tests all use this executor, each with its `DecisionTarget`. On a Kubernetes cluster `kube.writer`
sends the same writes as requests.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from holdfast.api import names
from holdfast.api.annotations import ReservationAllocated
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import condition
from holdfast.api.names import HOLDFAST_API, RESERVATION_API, RESOURCE_API
from holdfast.api.raw_objects import Key, Raw, with_condition
from holdfast.api.reservation import MigrationPhase, ReservationPhase, ReservationStatus
from holdfast.local.timeline import BOUND, EVICTED, JOB_EVENTS, PREEMPTED, UNSCHEDULABLE, deletion_event
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.machinery.pod_subresources import (
    EvictionRefusal,
    bound_pod,
    decrement_budget,
    with_disruption_target,
)
from holdfast.machinery.status import StatusError
from holdfast.scheduler.cluster.claim_writes import (
    ClaimConflict,
    allocated_claim,
    deallocated_claim,
    held_claims,
    holder_metadata,
    new_claim,
    reserved_claim,
    unreserved_claim,
    with_finalizer,
    without_finalizer,
)
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    AnnotateReservation,
    Bind,
    BindVolume,
    CreateClaim,
    CreateHolder,
    CreateReservation,
    DeallocateClaim,
    Decision,
    DeleteClaim,
    DeleteReservation,
    Emit,
    Evict,
    HoldDevices,
    Nominate,
    ObjectRef,
    Preempt,
    PreemptReservation,
    ReserveClaim,
    SelectNode,
    SetMigrationStatus,
    SetPodGroupStatus,
    SetPodScheduled,
    SetQueueStatus,
    SetReservationStatus,
    SetScheduleStatus,
    SpecifyMigration,
    UnreserveClaim,
    disruption_condition,
    extended_resource_claim_status,
    metadata_patch,
    pod_scheduled_condition,
    specification,
    volume_patch,
)
from holdfast.scheduler.cluster.events import BindConfirmed, BindRefused, Event, write_refused
from holdfast.scheduler.reservations.calendar import FEASIBLE, PLANNED


class TargetObjects(Protocol):
    """The objects that decisions change."""

    def get(self, key: Key) -> Raw | None: ...

    def update(self, key: Key, raw: Raw) -> object: ...

    def submit(self, raw: Raw) -> Raw:
        """Creates an object as for a client, and returns it. Raises StatusError."""

    def end(self, key: Key) -> object:
        """Deletes an object, or marks it as deleted if it has finalizers."""

    def scan(self, group: str, kind: str) -> Iterable[Raw]:
        """All objects of a kind."""


class DecisionTarget(Protocol):
    """The cluster that decisions are carried out on."""

    @property
    def objects(self) -> TargetObjects: ...

    def now(self) -> str:
        """The time, as objects state it."""

    def feed(self, event: Event) -> None:
        """Feeds an outcome to the scheduler."""

    def record(
        self, key: Key, event: str, *, node: str = "", reservation: str = "", message: str = ""
    ) -> None:
        """Records an event in the timeline, where there is one."""

    def binding(self, key: Key, decision: Bind) -> None:
        """Called just before a pod is bound."""

    def started(self, pod: Raw, bound: Raw) -> Raw:
        """The bound pod as its node reports it. `pod` is the pod as it was before."""

    def delete_pod(self, key: Key, grace: int | None = None) -> None:
        """Deletes a pod gracefully, after its own grace period by default."""

    def emit(self, decision: Emit) -> None:
        """Records a Kubernetes Event."""


class DecisionExecutor:
    def __init__(self, target: DecisionTarget) -> None:
        self._target = target
        self._objects = target.objects
        self._failed: dict[str, str] = {}
        """By the uid of a pod or reservation, why a claim of it was not written: its bind fails."""
        self._carry_out: dict[type, Callable[[Any], None]] = {
            Bind: self._bind,
            BindVolume: self._bind_volume,
            SelectNode: self._select_node,
            ReserveClaim: self._reserve_claim,
            CreateClaim: self._create_claim,
            CreateHolder: self._create_holder,
            HoldDevices: self._hold_devices,
            UnreserveClaim: self._unreserve_claim,
            DeallocateClaim: self._deallocate_claim,
            DeleteClaim: self._delete_claim,
            SetPodScheduled: self._set_pod_scheduled,
            Nominate: self._nominate,
            Preempt: self._preempt,
            AnnotatePod: self._annotate_pod,
            Evict: self._evict,
            CreateReservation: self._create_reservation,
            SetReservationStatus: self._set_reservation_status,
            AnnotateReservation: self._annotate_reservation,
            DeleteReservation: self._delete_reservation,
            PreemptReservation: self._preempt_reservation,
            SetMigrationStatus: self._set_migration_status,
            SpecifyMigration: self._specify_migration,
            SetPodGroupStatus: self._set_group_status,
            SetQueueStatus: self._set_queue_status,
            SetScheduleStatus: self._set_schedule_status,
            Emit: self._emit,
        }

    def carry_out(self, decision: Decision) -> None:
        self._carry_out[type(decision)](decision)

    # Pods

    def _bind(self, decision: Bind) -> None:
        target, ref = self._target, decision.pod
        key = _pod_key(ref)
        if (failure := self._failed.pop(ref.uid, "")) and not self._is_bound(key, ref):
            target.feed(BindRefused(ref.uid, failure))
            return
        pod = self._objects.get(key)
        if pod is None:
            target.feed(BindRefused(ref.uid, f'pods "{ref.name}" not found'))
            return
        binding = {"uid": ref.uid, "annotations": decision.annotations}
        try:
            bound = bound_pod(pod, binding, decision.node, target.now())
        except StatusError as error:
            target.feed(BindRefused(ref.uid, error.message))
            return
        target.binding(key, decision)
        target.feed(BindConfirmed(ref.uid))
        started = target.started(pod, bound)
        target.record(key, BOUND, node=decision.node, reservation=reservation_of(bound))
        self._objects.update(key, started)

    def _set_pod_scheduled(self, decision: SetPodScheduled) -> None:
        key = _pod_key(decision.pod)
        pod = self._current(key, decision.pod)
        if pod is None:
            return
        before = pod["status"].get("conditions") or []
        conditions = with_condition(before, pod_scheduled_condition(decision), self._target.now())
        if conditions == before:
            return
        self._target.record(key, UNSCHEDULABLE, message=decision.message)
        self._objects.update(key, {**pod, "status": {**pod["status"], "conditions": conditions}})

    def _nominate(self, decision: Nominate) -> None:
        key = _pod_key(decision.pod)
        self._patch(key, decision.pod, {"status": {"nominatedNodeName": decision.node or None}})

    def _annotate_pod(self, decision: AnnotatePod) -> None:
        key = _pod_key(decision.pod)
        if not self._patch(key, decision.pod, {"metadata": metadata_patch(decision)}):
            message = f'pods "{decision.pod.name}" not found'
            self._target.feed(write_refused(decision, message))

    def _preempt(self, decision: Preempt) -> None:
        key = _pod_key(decision.pod)
        pod = self._current(key, decision.pod)
        if pod is None:
            return
        before = pod["status"].get("conditions") or []
        conditions = with_condition(before, disruption_condition(decision), self._target.now())
        self._objects.update(key, {**pod, "status": {**pod["status"], "conditions": conditions}})
        event = EVICTED if decision.preemptor.kind == "Reservation" else PREEMPTED
        self._target.record(key, event, node=decision.node, message=f"by {decision.preemptor}")
        self._target.delete_pod(key)

    def _evict(self, decision: Evict) -> None:
        target, ref, options = self._target, decision.pod, decision.options
        key = _pod_key(ref)
        pod = self._current(key, ref)
        if pod is None:
            return
        now = target.now()
        budgets = (
            budget
            for budget in self._objects.scan("policy", "PodDisruptionBudget")
            if budget["metadata"]["namespace"] == ref.namespace
        )
        disrupted = decrement_budget(pod, budgets, now)
        if isinstance(disrupted, EvictionRefusal):
            target.feed(write_refused(decision, disrupted.message, disrupted.why))
            return
        if options.get("dryRun"):
            return
        if disrupted is not None:
            name = disrupted["metadata"]["name"]
            self._objects.update(Key("policy", "PodDisruptionBudget", ref.namespace, name), disrupted)
        self._objects.update(key, with_disruption_target(pod, now))
        node = pod["spec"].get("nodeName") or ""
        target.record(key, EVICTED, node=node, message=decision.message)
        if decision.event is not None:
            self._emit(decision.event)
        target.delete_pod(key, options.get("gracePeriodSeconds"))

    # Volumes. The claim itself is bound when its pod is.

    def _bind_volume(self, decision: BindVolume) -> None:
        key = Key("", "PersistentVolume", "", decision.volume.name)
        volume = self._objects.get(key)
        if volume is None:
            return
        reference = volume["spec"].get("claimRef") or {}
        if not reference.get("uid"):
            patch = volume_patch(decision, is_referenced=bool(reference))
            self._objects.update(key, merge_patch(volume, patch))

    def _select_node(self, decision: SelectNode) -> None:
        key = Key("", "PersistentVolumeClaim", decision.claim.namespace, decision.claim.name)
        claim = self._objects.get(key)
        if claim is not None:
            self._objects.update(key, merge_patch(claim, {"metadata": metadata_patch(decision)}))

    # ResourceClaims

    def _reserve_claim(self, decision: ReserveClaim) -> None:
        key = claim_key(decision.claim)
        try:
            claim = reserved_claim(self._objects.get(key), decision, self._target.now())
        except ClaimConflict as error:
            if decision.waits:
                self._target.feed(write_refused(decision, str(error)))
            else:
                self._failed[decision.pod.uid] = str(error)
            return
        if claim is not None:
            self._objects.update(key, with_finalizer(claim) or claim)

    def _create_claim(self, decision: CreateClaim) -> None:
        pod = decision.pod
        try:
            created = self._objects.submit(new_claim(decision))
        except StatusError as error:
            self._failed[pod.uid] = f"create claim for extended resources: {error.message}"
            return
        metadata = created["metadata"]
        key = Key(_group_of(RESOURCE_API), "ResourceClaim", metadata["namespace"], metadata["name"])
        self._objects.update(key, allocated_claim(created, decision, self._target.now()))
        status = extended_resource_claim_status(key.name, decision)
        self._patch(_pod_key(pod), pod, {"status": status})

    def _create_holder(self, decision: CreateHolder) -> None:
        meta = decision.claim.metadata
        key = Key(_group_of(RESOURCE_API), "ResourceClaim", meta.namespace, meta.name)
        try:
            claim = self._objects.get(key)
            if claim is None:
                claim = self._objects.submit(new_claim(decision))
            elif (changed := holder_metadata(claim, decision)) is not None:
                self._objects.update(key, changed)
                claim = changed
        except (StatusError, ClaimConflict) as error:
            why = error.message if isinstance(error, StatusError) else str(error)
            if decision.before_bind:
                self._failed[decision.reservation.uid] = why
            else:
                self._target.feed(write_refused(decision, why))
            return
        for version in held_claims(claim, decision, self._target.now()):
            self._objects.update(key, version)

    def _hold_devices(self, decision: HoldDevices) -> None:
        key = claim_key(decision.claim)
        raw = self._current(key, decision.claim)
        for claim in held_claims(raw, decision, self._target.now()) if raw is not None else ():
            self._objects.update(key, claim)

    def _unreserve_claim(self, decision: UnreserveClaim) -> None:
        key = claim_key(decision.claim)
        raw = self._current(key, decision.claim)
        claim = unreserved_claim(raw, decision) if raw is not None else None
        if claim is not None:
            self._objects.update(key, claim)

    def _deallocate_claim(self, decision: DeallocateClaim) -> None:
        key = claim_key(decision.claim)
        raw = self._current(key, decision.claim)
        if raw is None:
            return
        try:
            claim = deallocated_claim(raw, decision)
        except ClaimConflict as error:
            self._target.feed(write_refused(decision, str(error)))
            return
        if claim is not None:
            self._objects.update(key, claim)

    def _delete_claim(self, decision: DeleteClaim) -> None:
        key = claim_key(decision.claim)
        raw = self._current(key, decision.claim)
        if raw is None:
            return
        claim = without_finalizer(raw)
        if claim is not None:
            self._objects.update(key, claim)
        if self._current(key, decision.claim) is not None:
            self._objects.end(key)

    # Reservations

    def _create_reservation(self, decision: CreateReservation) -> None:
        raw: Raw = msgspec.to_builtins(decision.reservation)
        if self._objects.get(reservation_key(decision.reservation.metadata.name)) is not None:
            return
        try:
            self._objects.submit(raw)
        except StatusError as error:
            self._target.feed(write_refused(decision, error.message))

    def _set_reservation_status(self, decision: SetReservationStatus) -> None:
        ref = decision.reservation
        key = reservation_key(ref.name)
        raw = self._current(key, ref)
        failure = self._failed.pop(ref.uid, "") if decision.binds else ""
        if failure and raw is not None:
            self._target.feed(BindRefused(ref.uid, failure))
            return
        if raw is None:
            if decision.binds:
                self._target.feed(BindRefused(ref.uid, f'reservations "{ref.name}" not found'))
            return
        if decision.binds:
            self._target.feed(BindConfirmed(ref.uid))
        self._record_status(key, raw, decision.status)
        written = {**raw, "status": msgspec.to_builtins(decision.status)}
        if decision.annotations:
            written = merge_patch(written, {"metadata": metadata_patch(decision)})
        self._objects.update(key, written)

    def _record_status(self, key: Key, raw: Raw, status: ReservationStatus) -> None:
        """Records a new phase, a new plan, and a new reason why the reservation is unschedulable."""
        before = raw.get("status") or {}
        planned = condition(status.conditions, PLANNED)
        if planned is not None and planned.status == "True":
            was = [c for c in before.get("conditions", ()) if c["type"] == PLANNED]
            plan = planned.reason, status.node_name
            if not was or plan != (was[0].get("reason"), before.get("nodeName")):
                feasible = condition(status.conditions, FEASIBLE)
                why = feasible.message if feasible is not None else ""
                self._target.record(key, planned.reason, node=status.node_name, message=why)
        if status.phase != before.get("phase") and status.phase != ReservationPhase.PENDING:
            ready = condition(status.conditions, "Ready")
            why = ready.message if ready is not None else ""
            self._target.record(key, status.phase, node=status.node_name, message=why)
        scheduled = condition(status.conditions, "Scheduled")
        if scheduled is None or scheduled.status != "False":
            return
        known = [c for c in before.get("conditions", ()) if c["type"] == "Scheduled"]
        if not known or known[0].get("message") != scheduled.message:
            self._target.record(key, UNSCHEDULABLE, message=scheduled.message)

    def _annotate_reservation(self, decision: AnnotateReservation) -> None:
        key = reservation_key(decision.reservation.name)
        self._patch(key, decision.reservation, {"metadata": metadata_patch(decision)})

    def _delete_reservation(self, decision: DeleteReservation) -> None:
        key = reservation_key(decision.reservation.name)
        raw = self._current(key, decision.reservation)
        if raw is None:
            return
        if not raw["metadata"].get("finalizers"):
            self._target.record(key, deletion_event(raw), message=decision.message)
        self._objects.end(key)

    def _preempt_reservation(self, decision: PreemptReservation) -> None:
        key = reservation_key(decision.reservation.name)
        raw = self._current(key, decision.reservation)
        if raw is None:
            return
        message = f"by {decision.preemptor}"
        self._target.record(key, PREEMPTED, node=decision.node, message=message)
        self._objects.update(key, merge_patch(raw, {"metadata": metadata_patch(decision)}))

    # Migrations and jobs

    def _set_migration_status(self, decision: SetMigrationStatus) -> None:
        key = migration_key(decision.job.name)
        raw = self._current(key, decision.job)
        if raw is None:
            return
        status = decision.status
        before = (raw.get("status") or {}).get("phase", "")
        if status.phase != before and status.phase not in ("", MigrationPhase.PENDING):
            message = status.message if status.phase != MigrationPhase.RUNNING else ""
            self._target.record(key, status.phase, node=status.node_name, message=message)
        self._objects.update(key, {**raw, "status": msgspec.to_builtins(status)})

    def _specify_migration(self, decision: SpecifyMigration) -> None:
        key = migration_key(decision.job.name)
        self._patch(key, decision.job, specification(decision))

    def _set_group_status(self, decision: SetPodGroupStatus) -> None:
        ref = decision.group
        key = Key(_group_of(decision.api_version), "PodGroup", ref.namespace, ref.name)
        raw = self._current(key, ref)
        if raw is not None:
            kept = (raw.get("status") or {}) if decision.is_part else {}
            self._objects.update(key, {**raw, "status": {**kept, **decision.written()}})

    def _set_queue_status(self, decision: SetQueueStatus) -> None:
        key = Key(_group_of(decision.api_version), "Queue", "", decision.queue.name)
        self._set_status(key, decision.queue, decision.status)

    def _set_schedule_status(self, decision: SetScheduleStatus) -> None:
        key = Key(_group_of(HOLDFAST_API), decision.schedule.kind, "", decision.schedule.name)
        self._set_status(key, decision.schedule, decision.status)

    def _set_status(self, key: Key, ref: ObjectRef, status: msgspec.Struct) -> None:
        raw = self._current(key, ref)
        if raw is not None:
            self._objects.update(key, {**raw, "status": msgspec.to_builtins(status)})

    # Events

    def _emit(self, decision: Emit) -> None:
        about = decision.about
        if decision.reason in JOB_EVENTS and about.kind in ("PodGroup", "Pod"):
            key = Key("", about.kind, about.namespace, about.name)
            self._target.record(key, decision.reason, message=decision.message)
        self._target.emit(decision)

    # All objects

    def _is_bound(self, key: Key, ref: ObjectRef) -> bool:
        pod = self._current(key, ref)
        return pod is not None and bool(pod["spec"].get("nodeName"))

    def _current(self, key: Key, ref: ObjectRef) -> Raw | None:
        """The object, unless it is gone or was recreated (UID changed)."""
        raw = self._objects.get(key)
        return raw if raw is not None and raw["metadata"]["uid"] == ref.uid else None

    def _patch(self, key: Key, ref: ObjectRef, patch: Raw) -> bool:
        """Merges the patch into the object. Whether the object is there."""
        raw = self._current(key, ref)
        if raw is None:
            return False
        self._objects.update(key, merge_patch(raw, patch))
        return True


def reservation_of(pod: Raw) -> str:
    """The name of the reservation that the pod is allocated from."""
    text = (pod["metadata"].get("annotations") or {}).get(names.RESERVATION_ALLOCATED)
    if text is None:
        return ""
    try:
        return decode_json(text, ReservationAllocated).name
    except InvalidObject:
        return ""


def _pod_key(ref: ObjectRef) -> Key:
    return Key("", "Pod", ref.namespace, ref.name)


def claim_key(ref: ObjectRef) -> Key:
    return Key(_group_of(RESOURCE_API), "ResourceClaim", ref.namespace, ref.name)


def reservation_key(name: str) -> Key:
    return Key(_group_of(RESERVATION_API), "Reservation", "", name)


def migration_key(name: str) -> Key:
    return Key(_group_of(RESERVATION_API), "PodMigrationJob", "", name)


def _group_of(api_version: str) -> str:
    return api_version.partition("/")[0]
