"""The steps of a migration job. Each is done, waits for an event, or ends the job.

Messages and reasons are those of Koordinator's controller, since users and scripts know them.
"""

from collections.abc import Mapping

import msgspec

from holdfast.api import names
from holdfast.api.meta import ObjectReference
from holdfast.api.reservation import MigrationPhase, MigrationReason, MigrationStep
from holdfast.scheduler.cluster.decisions import CreateReservation, Decision, Emit, Evict
from holdfast.scheduler.cluster.records import Phase, PodRecord, ReservationInfo
from holdfast.scheduler.controllers.migration.migration_job import Move
from holdfast.scheduler.controllers.migration.migration_reservation import (
    name_of,
    reservation_for,
    waits_for_pod,
)
from holdfast.scheduler.reservations.reservation_status import SUCCEEDED, bound_owners
from holdfast.scheduler.state.cluster import Cluster

_Step, _Reason = MigrationStep, MigrationReason
_BUDGET = "PodDisruptionBudget"
_NEVER = str(2**31 - 1)
"""The eviction cost of pods that must not be evicted."""
_TAKEN = "Reservation is already bound by another Pod"


class MigrationSteps:
    """Takes jobs through their steps."""

    def __init__(self, cluster: Cluster, moves: Mapping[str, Move], decisions: list[Decision]) -> None:
        self._cluster = cluster
        self._reservations = cluster.reservations
        self._moves = moves
        self._decisions = decisions

    def proceed(self, move: Move, now: float) -> None:
        """Takes a job as far as possible now."""
        if move.deadline is not None and move.deadline <= now:
            self._fail(move, _Reason.TIMEOUT, "Abort job caused by timeout")
            return
        begun = move.status.phase == MigrationPhase.RUNNING and move.pod
        if not (begun or self._begin(move)):
            return
        self._look_at_pod(move)
        if move.status.pod_ref is None and self._has_lost_pod(move):
            self._miss_pod(move)
            return
        if move.evicts_directly:
            if self._is_evicted(move, None, now):
                self._succeed(move, f"Pod {move.pod_name} has been evicted")
            return
        if move.status.pod_ref is not None:
            self._await_ready(move, now)
            return
        reservation = self._reservation(move, now)
        if reservation is None or not self._is_held(move, reservation, now):
            return
        if waits_for_pod(reservation.object.spec, move.pod):
            self._await_pod(move, reservation, now)
        elif self._is_evicted(move, reservation, now):
            self._await_bind(move, reservation, now)

    def _look_at_pod(self, move: Move) -> None:
        pod = self._cluster.pods.get(move.pod)
        if pod is not None:
            move.pod_ref = pod.ref
            is_bound = pod.phase is Phase.ASSIGNED
            move.old_node = self._cluster.nodes.name(pod.row) if is_bound else ""

    def _has_lost_pod(self, move: Move) -> bool:
        """Whether the pod is gone without having been evicted by the job. A pod of the same name with
        another uid is not the pod."""
        return move.pod not in self._cluster.pods and move.condition(_Step.EVICTION) is None

    # Preconditions

    def _begin(self, move: Move) -> bool:
        reference = move.job.spec.pod_ref
        if reference is None or not (reference.name or reference.uid):
            self._fail(move, _Reason.INVALID_POD_REF, "Abort job caused by invalid PodRef")
            return False
        if reference.uid:
            pod = self._cluster.pods.get(reference.uid)
        else:
            pod = self._cluster.pod(reference.namespace or names.DEFAULT_NAMESPACE, reference.name)
        if pod is None:
            self._miss_pod(move)
            return False
        move.pod, move.pod_ref = pod.uid, pod.ref
        why_not = self._forbids(move, pod)
        if why_not:
            self._fail(move, _Reason.FORBIDDEN, f"Pod {move.pod_name} {why_not}")
            return False
        move.status = msgspec.structs.replace(move.status, phase=str(MigrationPhase.RUNNING))
        return True

    def _forbids(self, move: Move, pod: PodRecord) -> str:
        for other in self._moves.values():
            if (
                other is not move
                and other.pod == pod.uid
                and other.status.phase == MigrationPhase.RUNNING
            ):
                return f'is already being migrated by PodMigrationJob "{other.name}"'
        cost = pod.cls.annotations.get(names.EVICTION_COST)
        if pod.cls.is_daemon or pod.cls.pinned or cost == _NEVER:
            return "is forbidden to migrate because it does not meet the requirements"
        if not move.evicts_directly and pod.scheduler not in self._cluster.settings.scheduler_names:
            return (
                "can not be migrated by ReservationFirst mode because "
                f"pod.schedulerName={pod.scheduler}"
            )
        return ""

    # The reservation

    def _reservation(self, move: Move, now: float) -> ReservationInfo | None:
        """The job's reservation; None while there is none."""
        given = move.reservation_ref
        name = given.name if given is not None else name_of(move.job)
        reservation = self._reservations.get(name)
        wanted = move.reservation_uid or (given.uid if given is not None else "")
        if reservation is None or (wanted and reservation.uid != wanted):
            if given is None and not move.reservation_uid:
                self._create_reservation(move, now)
            else:
                text = f'Abort job caused by missing Reservation "/{name}"'
                self._fail(move, _Reason.MISSING_RESERVATION, text)
            return None
        if not move.reservation_uid:
            move.reservation_uid = reservation.uid
            move.creation.done()
            if given is None:
                text = f'Successfully create Reservation "{name}"'
                self._emit(move, _Step.RESERVATION_CREATED, text)
        move.set_condition(_Step.RESERVATION_CREATED, True, now)
        return reservation

    def _create_reservation(self, move: Move, now: float) -> None:
        pod = self._cluster.pods.get(move.pod)
        if pod is None:
            self._miss_pod(move)
        elif move.creation.may_begin(now):
            move.creation.begin()
            claims = self._cluster.objects.get("PersistentVolumeClaim", {})
            made = reservation_for(move.job, pod, move.old_node, claims, now)
            self._decisions.append(CreateReservation(made))

    def not_created(self, move: Move, message: str, now: float) -> None:
        move.creation.refused(now)
        if move.ended:
            return
        text = f"Failed to create Reservation caused by {message}"
        reason = _Reason.FAILED_CREATE_RESERVATION
        if move.set_condition(_Step.RESERVATION_CREATED, False, now, reason, text):
            self._warn(move, reason, text)

    def _is_held(self, move: Move, reservation: ReservationInfo, now: float) -> bool:
        """Whether the reservation holds its capacity, and that is written to its status."""
        if reservation.finished:
            if reservation.finished == SUCCEEDED:
                return True
            self._fail(move, _Reason.RESERVATION_EXPIRED, "Reservation expired")
            return False
        pod = reservation.pod
        if pod is None or pod.phase is not Phase.ASSIGNED:
            why, reason = reservation.error or reservation.message, _Reason.UNSCHEDULABLE
            if why and move.set_condition(_Step.RESERVATION_SCHEDULED, False, now, reason, why):
                self._warn(move, reason, why)
            return False
        if move.is_true(_Step.RESERVATION_SCHEDULED):
            return not reservation.waiting
        node = self._cluster.nodes.name(pod.row)
        old = self._cluster.pods.get(move.pod)
        if (
            old is not None
            and old.phase is Phase.ASSIGNED
            and old.row == pod.row
            and not waits_for_pod(reservation.object.spec, old.uid)
        ):
            text = (
                f'Scheduler assignes the Reservation "{reservation.name}" on the same node as the Pod'
            )
            self._fail(move, _Reason.FORBIDDEN, text)
            return False
        move.set_condition(_Step.RESERVATION_SCHEDULED, True, now)
        move.status = msgspec.structs.replace(move.status, node_name=node)
        text = f'Assigned Reservation "{reservation.name}" to node "{node}"'
        self._emit(move, _Step.RESERVATION_SCHEDULED, text)
        return not reservation.waiting

    # The eviction

    def _is_evicted(self, move: Move, reservation: ReservationInfo | None, now: float) -> bool:
        """Evicts the pod, and returns whether it is gone."""
        if move.is_true(_Step.EVICTION):
            return True
        known, pod = move.condition(_Step.EVICTION), self._cluster.pods.get(move.pod)
        if pod is None:
            if known is None:
                self._miss_pod(move)
                return False
            self._left(move)
            move.set_condition(_Step.EVICTION, True, now, _Reason.EVICT_COMPLETE)
            self._emit(move, _Reason.EVICT_COMPLETE, f"Pod {move.pod_name} has been evicted")
            return True
        if pod.cls.terminating or pod.deletion_pending:
            self._begin_eviction(move, reservation, now)
            self._left(move)
        elif reservation is not None and reservation.finished == SUCCEEDED:
            self._fail(move, _Reason.FORBIDDEN, _TAKEN)
        elif known is None:
            self._begin_eviction(move, reservation, now)
        elif _is_on_record(move):
            self._evict(move, pod, reservation, now)
        return False

    def _begin_eviction(self, move: Move, reservation: ReservationInfo | None, now: float) -> None:
        if move.condition(_Step.EVICTION) is None:
            self._note_owners(move, reservation)
        text = f'Pod {move.pod_name} evicted from node "{move.old_node}" by the reason "{move.why}"'
        move.set_condition(_Step.EVICTION, False, now, _Reason.EVICTING, text)

    def _note_owners(self, move: Move, reservation: ReservationInfo | None) -> None:
        """Notes the pods that are allocated from the reservation: none of them is the replacement."""
        if reservation is not None:
            bound = bound_owners(self._reservations, reservation)
            move.earlier_owners |= {each.uid for each in bound}

    def _evict(
        self, move: Move, pod: PodRecord, reservation: ReservationInfo | None, now: float
    ) -> None:
        """Evicts the pod, once the owners that the reservation has are on record. A refused eviction is
        tried again after a back-off, or when a PodDisruptionBudget changed."""
        attempt, budgets = move.eviction, self._cluster.epoch.kinds[_BUDGET]
        if attempt.under_way or not (attempt.may_begin(now) or budgets != move.budgets):
            return
        self._note_owners(move, reservation)
        if move.earlier_owners != move.recorded_owners:
            return
        attempt.begin()
        move.budgets = budgets
        options = move.job.spec.delete_options or {}
        self._decisions.append(Evict(pod.ref, f"by {move.ref}", options))

    def not_evicted(self, move: Move, message: str, now: float) -> None:
        move.eviction.refused(now)
        if move.ended:
            return
        text = f"Failed evict Pod {move.pod_name} caused by {message}"
        move.set_condition(_Step.EVICTION, False, now, _Reason.FAILED_EVICT, text)
        self._warn(move, _Reason.EVICTING, text)

    def _left(self, move: Move) -> None:
        """Emits the events of the eviction, once."""
        move.eviction.due = None
        if move.eviction_reported or move.pod_ref is None:
            return
        move.eviction_reported = True
        left = f'evicted from node "{move.old_node}" by the reason "{move.why}"'
        self._emit(move, _Reason.EVICTING, f"Pod {move.pod_name} {left}")
        self._decisions.append(Emit(move.pod_ref, "Normal", "Descheduled", f"Pod {left}", "Migrating"))

    # The replacement

    def _await_pod(self, move: Move, reservation: ReservationInfo, now: float) -> None:
        """Waits for a pod that has no node: it is not evicted, but its own replacement."""
        pod = self._cluster.pods.get(move.pod)
        if pod is None:
            self._miss_pod(move)
        elif pod.phase is Phase.ASSIGNED:
            node = self._cluster.nodes.name(pod.row)
            move.note(_Step.POD_SCHEDULED, True, now)
            move.status = msgspec.structs.replace(move.status, pod_ref=_reference(pod), node_name=node)
            self._succeed(move, f'Assign Pod {move.pod_name} to node "{node}"')
        elif reservation.finished == SUCCEEDED:
            self._fail(move, _Reason.FORBIDDEN, _TAKEN)
        else:
            move.set_condition(
                _Step.POD_SCHEDULED, False, now, _Reason.UNSCHEDULABLE, pod.condition_message
            )

    def _await_bind(self, move: Move, reservation: ReservationInfo, now: float) -> None:
        if reservation.finished:
            owners = (reservation.final or reservation.object.status).current_owners
        elif reservation.once:
            owners = []  # with allocateOnce it is finished by its first owner
        else:
            owners = [_reference(pod) for pod in bound_owners(self._reservations, reservation)]
        owner = next((each for each in owners if each.uid not in move.earlier_owners), None)
        if owner is None:
            reason = _Reason.WAIT_FOR_BIND
            if move.set_condition(_Step.POD_BOUND_RESERVATION, False, now, reason):
                self._emit(move, reason, "Waiting for Pod bind Reservation")
            return
        move.note(_Step.RESERVATION_BOUND, True, now)
        move.status = msgspec.structs.replace(move.status, pod_ref=owner)
        text = f'Reservation bound by pod "{owner.namespace}/{owner.name}"'
        self._emit(move, _Step.POD_BOUND_RESERVATION, text)
        self._await_ready(move, now)

    def _await_ready(self, move: Move, now: float) -> None:
        """Waits until the replacement is ready. One that is deleted meanwhile does not block the
        job."""
        owner = move.status.pod_ref
        assert owner is not None
        pod, name = self._cluster.pods.get(owner.uid), f"{owner.namespace}/{owner.name}"
        if pod is not None and not pod.ready:
            reason = _Reason.WAIT_FOR_READY
            if move.set_condition(_Step.BOUND_POD_READY, False, now, reason):
                self._emit(move, reason, f"Waiting for Bound Pod {name} Ready")
            return
        move.note(_Step.BOUND_POD_READY, True, now)
        self._emit(move, _Step.BOUND_POD_READY, f'Bind pod "{name}" is ready')
        given = move.reservation_ref
        reservation_name = given.name if given is not None else name_of(move.job)
        message = f'Bind Pod "{name}" in Reservation "{reservation_name}"'
        move.note(_Step.POD_BOUND_RESERVATION, True, now, message=message)
        self._succeed(move, message)

    # The end

    def abort(self, move: Move) -> None:
        self._end(move, MigrationPhase.ABORTED, "Deleted", "Abort job caused by its deletion")

    def _succeed(self, move: Move, message: str) -> None:
        move.status = msgspec.structs.replace(
            move.status,
            phase=str(MigrationPhase.SUCCEEDED),
            status="Complete",
            reason="",
            message=message,
        )
        self._emit(move, "Complete", message)

    def _miss_pod(self, move: Move) -> None:
        self._fail(move, _Reason.MISSING_POD, f"Abort job caused by missing Pod {move.pod_name}")

    def _fail(self, move: Move, reason: MigrationReason, message: str) -> None:
        self._end(move, MigrationPhase.FAILED, reason, message)

    def _end(self, move: Move, phase: MigrationPhase, reason: str, message: str) -> None:
        move.status = msgspec.structs.replace(
            move.status, phase=str(phase), reason=str(reason), message=message
        )
        self._warn(move, reason, message)

    def _emit(self, move: Move, reason: str, message: str) -> None:
        self._decisions.append(Emit(move.ref, "Normal", str(reason), message, "Migrating"))

    def _warn(self, move: Move, reason: str, message: str) -> None:
        self._decisions.append(Emit(move.ref, "Warning", str(reason), message, "Migrating"))


def _is_on_record(move: Move) -> bool:
    """Whether the job's object has the condition that this pod is being evicted. Only then it is
    evicted: a restarted controller must know that the job caused the deletion."""
    spec, status = move.job.spec, move.job.status
    return (
        spec.pod_ref is not None
        and spec.pod_ref.uid == move.pod
        and any(each.type == _Step.EVICTION for each in status.conditions)
    )


def _reference(pod: PodRecord) -> ObjectReference:
    return ObjectReference(namespace=pod.namespace, name=pod.name, uid=pod.uid)
