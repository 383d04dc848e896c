"""Schedules pods that bring a reservation template, and the reservations created for them.

A pod uses an existing reservation with enough capacity left, if there is one. Otherwise it is scheduled
as if it requested as much as is to be reserved, the preferred size first; that capacity is held by a
virtual reservation, and the pod waits there for the real one. When the real reservation is created it
replaces the virtual one without being scheduled itself.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from holdfast.api import names
from holdfast.machinery.dynamic_reservations import amounts_of, at_least, id_of, sizes
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.cluster.slots import capped
from holdfast.scheduler.framework.binding_cycle import BindingCycle
from holdfast.scheduler.framework.config.plugin_sets import DYNAMIC_RESERVATION
from holdfast.scheduler.framework.failure_handler import FailureHandler
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore, NodeSearch
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.reservations.provisioning_requests import ReservationRequest
from holdfast.scheduler.reservations.virtual_reservations import Virtual
from holdfast.scheduler.state.cluster import Cluster

"""The plugin that rejects reservations in messages."""

NOT_FOR_IT = "reservation {} was created, but not for this pod"

Size = tuple[tuple[str, int], ...]


class PodCycle(Protocol):
    """The scheduling cycle of one pod."""

    def schedule(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """Tries to schedule the pod; whether it has a node."""

    def schedule_pod(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """As `schedule`, on existing nodes and reservations."""

    def assume_and_bind(self, profile: Profile, pod: PodRecord, row: int, now: float) -> bool:
        """Assumes the pod on the row and starts its binding cycle; whether it has its node."""


class DynamicProvisioning:
    """Schedules pods with a template and adopts the reservations created for them."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        profiles: Mapping[str, Profile],
        columns: ColumnStore,
        search: NodeSearch,
        failures: FailureHandler,
        binding: BindingCycle,
        cycle: PodCycle,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._profiles = profiles
        self._columns = columns
        self._search = search
        self._failures = failures
        self._binding = binding
        self._cycle = cycle
        self._virtuals = cluster.virtuals
        self._requirements = cluster.virtuals.requirements
        self._sized: dict[int, dict[Size, PodClass]] = {}
        """For each class id, the same class with requests of other sizes."""
        self._opened: tuple[Virtual, int] | None = None
        """The virtual reservation opened for the pod being scheduled, and the cluster's changes before
        that."""
        cluster.classes.on_dropped.append(self._class_dropped)

    def concerns(self, pod: PodRecord) -> bool:
        """Whether this module schedules the pod or reserve pod."""
        if self._virtuals.settings is None:
            return False
        reservation = pod.reservation
        if reservation is None:
            return pod.cls.brings_template
        return bool(self._requirements.requests) and bool(id_of(reservation.object.metadata))

    def schedule(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        if pod.phase is not Phase.PENDING:
            return True  # it was scheduled together with its reservation or with its pod
        if pod.reservation is not None:
            return self._adopt(profile, pod, pod.reservation, now)
        self._opened = None
        request = self._requirements.requests.get(pod.uid)
        if request is None or self._needs_none(pod):
            return self._cycle.schedule_pod(profile, pod, now)
        found = self._existing_reservation(profile, pod, request)
        if found is None:
            found = self._fitting(profile, pod) or self._set_aside(profile, pod, request)
        if found is None:
            return self._cycle.schedule_pod(profile, pod, now)
        pod.reservation_uid, row = found
        if self._cycle.assume_and_bind(profile, pod, row, now):
            return True
        if self._opened is not None and self._opened[0].reservation.uid == found[0]:
            # Dropping it again frees nothing, so it must wake no pod, least of all this one.
            virtual, before = self._opened
            self._virtuals.drop(virtual)
            self._cluster.undo_changes(before)
        return False

    def _needs_none(self, pod: PodRecord) -> bool:
        """Whether the pod ignores reservations, or has a preemption hold."""
        ignoring = pod.cls.labels.get(names.RESERVATION_IGNORED) == "true"
        return ignoring or pod.uid in self._cluster.reservations.preemption_holds

    # Where a pod can go: the reservation it is allocated from, and the row

    def _existing_reservation(
        self, profile: Profile, pod: PodRecord, request: ReservationRequest
    ) -> tuple[str, int] | None:
        """The reservation that was requested for the pod before, if the pod can use it."""
        reservation = self._virtuals.live(request.id) if request.id else None
        if reservation is None or not self._virtuals.may_use(pod, reservation, pod.uid):
            return None
        if not self._has_for(reservation, pod):
            return None
        if not self._fits_in(profile, pod, reservation):
            return None
        assert reservation.pod is not None
        return reservation.uid, reservation.pod.row

    def _fitting(self, profile: Profile, pod: PodRecord) -> tuple[str, int] | None:
        """A matched reservation that has enough left for the pod of every resource it reserves."""
        column = self._columns.column(profile, pod.cls)
        if not column.owned:
            return None
        row = self._search.find_row(profile, pod, column)
        if row < 0:
            return None
        uid = column.reservation_uid(row)
        if self._covers(uid, pod.cls):
            return uid, row
        matched = self._cluster.reservations.matched(pod.cls)
        if matched is None or (not uid and profile.reservation_weight):
            return None  # nodes with a matched reservation score higher than all others
        enough = np.zeros(self._cluster.nodes.size, dtype=np.bool_)
        for each in matched.rows():
            enough[each] = self._covers(column.reservation_uid(each), pod.cls)
        row = column.best(enough)
        return (column.reservation_uid(row), row) if row >= 0 else None

    def _set_aside(
        self, profile: Profile, pod: PodRecord, request: ReservationRequest
    ) -> tuple[str, int] | None:
        """Opens a virtual reservation for the pod on the best node with enough free capacity."""
        reservations, virtuals = self._cluster.reservations, self._virtuals
        kept = virtuals.asked_by(pod)
        if kept is not None:
            if self._fits_in(profile, pod, kept.reservation):
                return kept.reservation.uid, kept.row
            virtuals.drop(kept)
        affinity = reservations.affinity(pod.cls)
        for size in self._sizes(pod, request):
            if not affinity.takes_new(dict(size)):
                continue
            column = self._column(profile, pod.cls, size)
            if self._cluster.jobs.queue_limits.reserving_error(pod, dict(column.cls.requests)):
                continue  # the pod itself was admitted, but with what it requests alone
            row = self._row_for_both(profile, pod, column)
            if row >= 0:
                before = self._cluster.changes
                virtual = virtuals.open(request, dict(size), row)
                self._opened = virtual, before
                self._queue.pop_pod(pod)  # a reservation that names it may have requeued it
                return virtual.reservation.uid, row
        return None

    def _row_for_both(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> int:
        """The best row where both the size and the pod itself fit, -1 if there is none: a node that
        allocates whole cores may have four CPUs for a reservation, but not three of them for the
        pod."""
        row = self._search.find_row(profile, pod, column)
        if row < 0:
            return row
        bare = self._column(profile, pod.cls, self._bare(pod))
        if bare is column or bare.fits_row(row):
            return row
        if bare.rejected is not None or self._cluster.nominator or pod.pinned_node is not None:
            return -1
        return column.best_of(bare.fits)

    def _bare(self, pod: PodRecord) -> Size:
        return tuple(sorted(self._cluster.reservations.by_name(pod.cls.requests).items()))

    def _sizes(self, pod: PodRecord, request: ReservationRequest) -> list[Size]:
        requests = self._cluster.reservations.by_name(pod.cls.requests)
        tried = sizes(requests, request.template)
        if request.requirement is not None:
            least = at_least(requests, amounts_of(request.requirement.resources))
            least = at_least(least, self._virtuals.coming(request))
            tried.insert(0, tuple(sorted((name, value) for name, value in least.items() if value)))
        return [size for size in dict.fromkeys(tried) if size]

    def _column(self, profile: Profile, cls: PodClass, size: Size) -> ClassColumn:
        known = self._sized.setdefault(cls.id, {})
        sized = known.get(size)
        if sized is None:
            slots = {self._cluster.nodes.pinned_slot(name): capped(value) for name, value in size}
            sized = known[size] = self._cluster.classes.at_size(cls, slots)
        return self._columns.column(profile, sized)

    def _covers(self, uid: str, cls: PodClass) -> bool:
        entry = self._cluster.ledger.reservations.get(uid) if uid else None
        return entry is not None and all(
            entry.left(slot) >= amount for slot, amount in cls.requests if slot in entry.amounts
        )

    def _has_for(self, reservation: ReservationInfo, pod: PodRecord) -> bool:
        """Whether the reservation is usable and has enough left of its restricted resources."""
        entry, restricted = reservation.entry, reservation.restricted or ()
        return (
            entry is not None
            and self._cluster.reservations.is_usable(reservation)
            and not any(
                slot in restricted and amount > entry.left(slot) for slot, amount in pod.cls.usage
            )
        )

    def _fits_in(self, profile: Profile, pod: PodRecord, reservation: ReservationInfo) -> bool:
        """Whether the pod fits the reservation's node when the reservation's capacity is free."""
        reserving = reservation.pod
        assert reserving is not None
        row = reserving.row
        if row < 0 or not self._cluster.nodes.alive[row]:
            return False
        ledger = self._cluster.ledger
        with ledger.transaction():
            ledger.release(reserving)
            column = self._column(profile, pod.cls, self._bare(pod))
            return column.rejected is None and column.fits_row(row)

    # The reservation was created

    def _adopt(
        self, profile: Profile, pod: PodRecord, reservation: ReservationInfo, now: float
    ) -> bool:
        virtual = self._virtuals.of(reservation)
        if virtual is None:
            self._schedule_asker(id_of(reservation.object.metadata), now)
            virtual = self._virtuals.of(reservation)
            self._queue.pop_pod(pod)  # the virtual reservation woke it, but it is scheduled right now
        if (
            virtual is None
            or virtual.reservation.node_gone
            or not self._cluster.nodes.alive[virtual.row]
        ):
            return self._cycle.schedule_pod(profile, pod, now)
        why = self._virtuals.refusal(reservation, virtual)
        if why:
            self._virtuals.refuse(virtual, reservation, why)
            self._failures.handle_unschedulable(
                profile, pod, why, {DYNAMIC_RESERVATION}, now, next_scout=True
            )
            return False
        return self._replace(profile, pod, reservation, virtual, now)

    def _schedule_asker(self, id: str, now: float) -> None:
        """Schedules the pod a reservation was created for, if its queue admits it; the reservation then
        goes to its node."""
        admission_error = self._cluster.jobs.queue_limits.admission_error
        for uid in list(self._requirements.by_id.get(id, {})):
            pod = self._cluster.pods.get(uid)
            profile = self._profiles.get(pod.scheduler) if pod is not None else None
            if pod is None or profile is None or pod.job is not None:
                continue
            if admission_error(pod):
                continue  # it is refused when its turn comes
            if self._queue.pop_pod(pod):
                self._cycle.schedule(profile, pod, now)
                return

    def _replace(
        self,
        profile: Profile,
        pod: PodRecord,
        reservation: ReservationInfo,
        virtual: Virtual,
        now: float,
    ) -> bool:
        """Puts the reservation in the place of the virtual one, with the pods it is for."""
        ledger, standin = self._cluster.ledger, virtual.reservation
        assert standin.pod is not None
        successors = self._virtuals.successors(virtual, reservation)
        for each in self._cluster.reservations.allocated_pods(standin):
            if each not in successors:
                self._binding.reject_waiting(each, NOT_FOR_IT.format(reservation.name), now)
        if not self._virtuals.is_live(virtual):
            return self._cycle.schedule_pod(profile, pod, now)  # no pod uses it any more
        row, allocated_pods = virtual.row, self._cluster.reservations.allocated_pods(standin)
        for each in allocated_pods:
            ledger.allocate_from(each, reservation.uid)
        if reservation.amounts == standin.amounts:
            self._cluster.managers.pass_on(standin.uid, reservation.uid)
        ledger.release(standin.pod)
        reservation.replaces_virtual = True
        if self._cycle.assume_and_bind(profile, pod, row, now):
            self._virtuals.adopted(virtual, reservation)
            return True
        reservation.replaces_virtual = False
        for each in allocated_pods:
            ledger.allocate_from(each, standin.uid)
        ledger.reserve(standin.pod, row, standin.amounts)
        return False

    def _class_dropped(self, cls: PodClass) -> None:
        for sized in self._sized.pop(cls.id, {}).values():
            self._cluster.classes.unused(sized)
