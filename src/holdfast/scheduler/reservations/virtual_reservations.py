"""Virtual reservations: capacity held for a pod until a provisioner has created its Reservation.

                   failed                          again
    requested ──────────────► kept for a while ────────► requested
        │                            │
        │ the object is created      │ the retention is over, or no pod requests it any more
        ▼                            ▼
    replaced by it                dropped

A virtual reservation is like any other: it holds capacity in the ledger, and other pods that match its
owners can be allocated from it. Pods that are wait in Permit for the object. Its id derives from the
pod's uid, so that a restarted scheduler requests the same reservation again, and never a second one.

`may_use` decides which pods can be allocated from it and from the reservation that replaces it. It is
evaluated each time a waiting pod could be bound, as labels and annotations can change meanwhile, and
when the reservation is created, whose owners can differ from the template's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.api.meta import ResourceList
from holdfast.api.names import PODS, RESERVATION_ID, RESERVATION_IGNORED
from holdfast.api.quantity import format_amount
from holdfast.api.reservation import NewReservationRequirement
from holdfast.machinery.dynamic_reservations import amounts_of, at_least, id_of, new_id, reservation_for
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.decisions import Decision, Emit, ObjectRef
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import Phase, PodRecord, ReservationInfo
from holdfast.scheduler.reservations.provisioning_requests import Requirements, ReservationRequest
from holdfast.scheduler.reservations.reservation_cache import ReservationCache
from holdfast.scheduler.reservations.reservation_handlers import ReservationHandlers

_MOST_OBSERVED = 100_000
"""The number of observations that are kept until metrics are read."""


class Settings(NamedTuple):
    """The configuration of dynamic reservations."""

    timeout: float
    """Seconds until a request that was not fulfilled fails."""
    retention: float
    """Seconds for which the capacity is kept after that."""
    bind_anyway: bool
    """Whether the pod is then bound without a reservation."""


@dataclass(slots=True)
class VirtualFigures:
    """Counts and observations for metrics."""

    requests: int = 0
    created: int = 0
    failures: int = 0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_OBSERVED))
    """Seconds from the request until the reservation was created; those not yet read."""
    pendings: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_OBSERVED))
    """Seconds from the creation of a reservation until it was Available."""


class Virtual:
    """One virtual reservation."""

    __slots__ = (
        "asked_at",
        "deadline",
        "failed",
        "id",
        "keep_until",
        "requester",
        "reservation",
        "resources",
        "waiting",
    )

    def __init__(
        self, id: str, reservation: ReservationInfo, requester: ObjectRef, resources: ResourceList
    ) -> None:
        self.id = id
        self.reservation = reservation
        self.requester = requester
        """The pod with the requirement in its annotation."""
        self.resources = resources
        self.waiting: dict[str, PodRecord] = {}
        """The pods that are allocated from it and wait in Permit, by uid."""
        self.asked_at = 0.0
        self.deadline = 0.0
        self.failed = ""
        """Why the request failed, until it is made again."""
        self.keep_until: float | None = None
        """When it is dropped even if pods wait; set when the request first fails."""

    @property
    def row(self) -> int:
        return self.reservation.pod.row if self.reservation.pod is not None else -1


ATTEMPT = "ReservationCreationAttempt"
SUCCESS = "ReservationCreationSuccess"
FAILURE = "ReservationCreationFailure"
TIMEOUT = "ReservationTimeout"

_INSTANT = 1e-6


class VirtualReservations:
    """All virtual reservations of a cluster, and the pods that wait for them."""

    def __init__(
        self, cluster: ClusterBase, reservations: ReservationCache, handlers: ReservationHandlers
    ) -> None:
        self._cluster = cluster
        self._reservations = reservations
        self._handlers = handlers
        self.settings: Settings | None = None
        """None if dynamic reservations are disabled; then templates of pods are ignored."""
        self.requirements = Requirements()
        self.by_id: dict[str, Virtual] = {}
        self._by_requester: dict[str, Virtual] = {}
        self.waits: dict[str, Virtual] = {}
        """The pods that wait in Permit, by uid, and the virtual reservation each waits for. This can
        have been dropped, or replaced by its reservation, for whose status the pod then waits; see
        `is_live`. Another one can have its id by then."""
        self.unreported: dict[str, None] = {}
        """The ids of those whose requirement must be written to the requester's annotation."""
        self.reports: list[Decision] = []
        self.figures = VirtualFigures()
        self.adopting: dict[str, float] = {}
        """The uids of reservations that replaced one, and when they were created, until Available."""
        self.refused: dict[str, str] = {}
        """The uids of created reservations that were rejected, and why."""
        self._unwritten: dict[str, str] = {}

    def enable(self, settings: Settings) -> None:
        """Enables dynamic reservations."""
        self.settings = settings

    def take_reports(self) -> list[Decision]:
        """The events that are to be emitted, since the last call."""
        reports, self.reports = self.reports, []
        return reports

    # Requests

    def id_for(self, request: ReservationRequest, size: Mapping[str, int]) -> str:
        """The id that the pod has requested before, unless its reservation exists and cannot be used
        for this size; else a new one."""
        id = request.id or new_id(request.pod.uid)
        while id in self.by_id or any(
            reservation is None or reservation.placed or not _within(reservation, size)
            for reservation in self._made(id)
        ):
            id = new_id(request.pod.uid, spent=id)
        return id

    def _made(self, id: str) -> Iterator[ReservationInfo | None]:
        """The reservations with an id; None for finished ones, even if that is not written yet."""
        known = self._reservations.known
        for uid, finished in self.requirements.made.get(id, {}).items():
            reservation = known.get(uid)
            yield None if finished or reservation is None or reservation.finished else reservation

    def coming(self, request: ReservationRequest) -> dict[str, int]:
        """The amounts of reservations that were created for the pod and are not scheduled yet."""
        amounts: dict[str, int] = {}
        for reservation in self._made(request.id):
            if reservation is not None and not reservation.placed:
                amounts = at_least(amounts, _without_slot(reservation))
        return amounts

    def open(self, request: ReservationRequest, size: Mapping[str, int], row: int) -> Virtual:
        """Adds a virtual reservation on the row. Raises if the template's owners are invalid."""
        now = self._cluster.now
        id = self.id_for(request, size)
        listed: ResourceList = {name: format_amount(name, size[name]) for name in sorted(size)}
        asked = NewReservationRequirement(labels={RESERVATION_ID: id}, resources=listed)
        reservation = reservation_for(request.template, asked)
        reservation.metadata.uid = id
        reservation.metadata.name = f"virtual/{id}"  # no object can be called that
        info = ReservationInfo(reservation, now)
        info.virtual = True
        self._handlers.put_virtual(info, row)
        virtual = self.by_id[id] = Virtual(id, info, request.pod, listed)
        self._by_requester[request.pod.uid] = virtual
        self.figures.requests += 1
        node = self._cluster.nodes.name(row)
        amounts = ", ".join(f"{name}: {quantity}" for name, quantity in listed.items())
        self._emit(virtual, "Normal", ATTEMPT, f"Requesting reservation {id} on {node} ({amounts})")
        self._try_again(id)
        self.requirements.touch(id)
        return virtual

    def has_reported(self, request: ReservationRequest) -> bool:
        """Whether the requirement in the pod's annotation is the current one."""
        virtual, requirement = self.by_id.get(request.id), request.requirement
        if virtual is None or requirement is None:
            return False
        return amounts_of(requirement.resources) == amounts_of(virtual.resources)

    def asked_by(self, pod: PodRecord) -> Virtual | None:
        """The virtual reservation that was requested for the pod."""
        return self._by_requester.get(pod.uid)

    def requested_for(self, pod: PodRecord) -> Iterator[ReservationInfo]:
        """The virtual reservation that was requested for the pod, and the scheduled one that was
        created for it, as far as the pod can be allocated from them; it need not match their owners."""
        if self.settings is None or pod.job is not None:
            return
        virtual, request = self.asked_by(pod), self.requirements.requests.get(pod.uid)
        if virtual is not None:
            yield virtual.reservation
        reservation = self.live(request.id) if request is not None and request.id else None
        if reservation is not None and self.may_use(pod, reservation, pod.uid):
            yield reservation

    def begin_wait(self, pod: PodRecord) -> None:
        """Begins the wait of a pod that is allocated from a virtual reservation."""
        reservation = self._reservations.known.get(pod.reservation_uid)
        if reservation is None or not reservation.virtual:
            return
        virtual, now = self.by_id[reservation.uid], self._cluster.now
        if self.waits.get(pod.uid) is virtual:
            return
        assert self.settings is not None
        if not virtual.waiting:
            virtual.asked_at = now
            virtual.deadline = now + self.settings.timeout
            virtual.failed = ""
            self.unreported[virtual.id] = None
        virtual.waiting[pod.uid] = pod
        self.waits[pod.uid] = virtual

    def may_use(self, pod: PodRecord, reservation: ReservationInfo, requester: str = "") -> bool:
        """Whether a pod can be allocated from a virtual reservation or the one that replaces it: pods
        that match its owners can, and the requester, unless it is closed to them."""
        if pod.cls.labels.get(RESERVATION_IGNORED) == "true":
            return False
        reservations = self._reservations
        affinity = reservations.affinity(pod.cls)
        if affinity.untolerated(reservation):
            return False
        if pod.uid == requester:
            return affinity.takes_new(_without_slot(reservation)) or not affinity.refusal(
                reservation, reservations.node_labels(pod.row)
            )
        if reservation.owner_spec_id not in reservations.matching(pod.cls):
            return False
        return not affinity.refusal(reservation, reservations.node_labels(pod.row))

    def successors(self, virtual: Virtual, reservation: ReservationInfo) -> list[PodRecord]:
        """The pods of a virtual reservation that are allocated from the one that replaces it: one if
        that has allocateOnce, and as many as fit if its policy is Restricted."""
        allocated_pods = self._reservations.allocated_pods(virtual.reservation)
        allocated_pods.sort(key=lambda pod: pod.uid != virtual.requester.uid)
        left = dict(reservation.wanted)
        found: list[PodRecord] = []
        for pod in allocated_pods:
            if not self.may_use(pod, reservation, virtual.requester.uid) or (
                found and reservation.once
            ):
                continue
            restricted = reservation.restricted or ()
            if any(slot in restricted and amount > left.get(slot, 0) for slot, amount in pod.cls.usage):
                continue
            for slot, amount in pod.cls.usage:
                left[slot] = left.get(slot, 0) - amount
            found.append(pod)
        return found

    def keep_asking(self, virtual: Virtual) -> bool:
        """Keeps a requester for it: the same, or another pod that waits. If there is none, drops it and
        returns False."""
        if virtual.requester.uid in self.requirements.requests or self._hand_over(virtual):
            return True
        self.drop(virtual)
        return False

    def ask_again(self) -> None:
        """Has requirements written again that were removed or changed while the pod waits."""
        edited = self.requirements.take_edited()
        for uid in edited:
            virtual = self._by_requester.get(uid)
            if virtual is not None and virtual.waiting:
                self.unreported[virtual.id] = None

    def is_live(self, virtual: Virtual) -> bool:
        """Whether it is neither replaced nor dropped."""
        return self.by_id.get(virtual.id) is virtual

    def end_wait(self, pod: PodRecord) -> None:
        """Ends the wait of a pod. The virtual reservation is dropped if no other pod waits and it is
        not kept after a failure."""
        virtual = self.waits.pop(pod.uid, None)
        self._unwritten.pop(pod.uid, None)
        if virtual is None:
            return
        virtual.waiting.pop(pod.uid, None)
        if not self.is_live(virtual):
            return
        if virtual.failed and virtual.waiting:
            return
        if virtual.waiting:
            self.keep_asking(virtual)
        elif not (virtual.failed and self._is_kept(virtual)):
            self.drop(virtual)

    # Outcomes

    def failure(self, pod: PodRecord) -> str:
        """Why the request of a waiting pod failed; empty while it can still be fulfilled."""
        virtual, now = self.waits[pod.uid], self._cluster.now
        if virtual.failed:
            return virtual.failed
        request = self.requirements.requests.get(virtual.requester.uid)
        unwritten = self._unwritten.get(virtual.requester.uid, "")
        if unwritten:
            self._fail(virtual, FAILURE, f"cannot request reservation {virtual.id}: {unwritten}")
        elif request is not None and request.error != request.processed_error:
            request.processed_error = request.error
            self._fail(virtual, FAILURE, f"reservation {virtual.id} was not created: {request.error}")
        elif now >= virtual.deadline - _INSTANT:
            after = f"{virtual.deadline - virtual.asked_at:g}s"
            self._fail(virtual, TIMEOUT, f"reservation {virtual.id} was not created within {after}")
        elif virtual.keep_until is not None and now >= virtual.keep_until - _INSTANT:
            virtual.failed = f"reservation {virtual.id} was not created"
        return virtual.failed

    def patience(self, pod: PodRecord) -> float:
        """How many more seconds the pod waits at most."""
        virtual = self.waits[pod.uid]
        until = virtual.deadline
        if virtual.keep_until is not None:
            until = min(until, virtual.keep_until)
        return max(until - self._cluster.now, _INSTANT)

    def adopted(self, virtual: Virtual, reservation: ReservationInfo) -> None:
        """Replaces it by the created reservation, which holds the capacity now."""
        now = self._cluster.now
        del self.by_id[virtual.id]
        self._no_longer_asked(virtual)
        self.unreported.pop(virtual.id, None)
        self.refused.pop(reservation.uid, None)
        self._reservations.drop(virtual.reservation.uid, "replaced")
        self.figures.created += 1
        self.figures.latencies.append(now - virtual.asked_at)
        self.adopting[reservation.uid] = reservation.created
        node = self._cluster.nodes.name(reservation.pod.row) if reservation.pod is not None else ""
        message = (
            f"Reservation {reservation.name} was created for {virtual.id} and holds capacity on {node}"
        )
        self._emit(virtual, "Normal", SUCCESS, message)

    def of(self, reservation: ReservationInfo) -> Virtual | None:
        """The virtual reservation that this reservation is to replace."""
        return self.by_id.get(id_of(reservation.object.metadata))

    def refusal(self, reservation: ReservationInfo, virtual: Virtual) -> str:
        """Why the reservation cannot replace the virtual one; empty if it can."""
        nodes = self._cluster.nodes
        assert reservation.pod is not None
        there = nodes.name(virtual.row)
        requester = self._cluster.pods.get(virtual.requester.uid)
        if requester is not None:
            closed = self._reservations.affinity(requester.cls).untolerated(reservation)
            if closed:
                return f"it {closed}"
        wanted_node = reservation.pod.cls.wants_node
        if wanted_node and wanted_node != there:
            return f"it requests node {wanted_node}, but {virtual.id} is on {there}"
        for slot, least in virtual.reservation.amounts.items():
            name, given = nodes.slots.name(slot), reservation.wanted.get(slot, 0)
            if name and given < least:
                got, required = format_amount(name, given), format_amount(name, least)
                return f"it reserves {got} of {name}, {virtual.id} requires {required}"
        reservations = self._reservations
        lacking = reservations.waiting.lacking(virtual.reservation, reservation.wanted)
        if lacking:
            return f"it does not fit {there}: Insufficient {', '.join(lacking)}"
        ours = reservations.allocated_pods(virtual.reservation)
        taken = reservations.waiting.claimed_by_others(reservation.pod.cls, virtual.row, ours)
        return f"it does not fit {there}: its {' and '.join(taken)} are in use" if taken else ""

    def refuse(self, virtual: Virtual, reservation: ReservationInfo, why: str) -> None:
        """Rejects a created reservation, with events on it and on the requester."""
        if self.refused.get(reservation.uid) == why:
            return
        self.refused[reservation.uid] = why
        self.figures.failures += 1
        self.reports.append(Emit(reservation.ref, "Warning", FAILURE, why, "Provisioning"))
        self._emit(virtual, "Warning", FAILURE, f"reservation {reservation.name} is rejected: {why}")

    def drop(self, virtual: Virtual) -> None:
        """Drops it and releases its capacity, except for what its pods request themselves."""
        if self.by_id.pop(virtual.id, None) is None:
            return
        self._no_longer_asked(virtual)
        self.unreported.pop(virtual.id, None)
        reservations = self._reservations
        for pod in reservations.allocated_pods(virtual.reservation):
            self._cluster.ledger.allocate_from(pod, "")
        reservations.drop(virtual.reservation.uid, "dropped")
        self._cluster.changed(Change.POD_LEFT)
        self._try_again(virtual.id)

    def not_written(self, uid: str, message: str) -> None:
        """Records why the requirement could not be written to the pod's annotation."""
        if uid in self.waits:
            self._unwritten[uid] = message

    def live(self, id: str) -> ReservationInfo | None:
        """The scheduled reservation with the id, if there is one."""
        for reservation in self._made(id):
            if reservation is not None and reservation.placed and not reservation.waiting:
                return reservation
        return None

    def taken_over(self, virtual: Virtual) -> bool:
        """Gives way to a reservation with the id that another scheduler has scheduled. Returns whether
        it did."""
        reservation = self.live(virtual.id)
        if reservation is None or reservation.pod is None:
            return False
        if reservation.pod.row != virtual.row:
            self.drop(virtual)
            return True
        if not _holds_enough(reservation, virtual):
            return False
        successors = self.successors(virtual, reservation)
        for pod in self._reservations.allocated_pods(virtual.reservation):
            self._cluster.ledger.allocate_from(pod, reservation.uid if pod in successors else "")
        self.adopted(virtual, reservation)
        return True

    def problems(self) -> list[str]:
        """Self-check: what differs from a computation from scratch."""
        cluster = self._cluster
        known = {uid for uid, reservation in self._reservations.known.items() if reservation.virtual}
        problems = [f"{id} is set aside, but not known" for id in sorted(self.by_id.keys() - known)]
        problems += [f"{id} is known, but not set aside" for id in sorted(known - self.by_id.keys())]
        asked_by = {virtual.requester.uid: virtual for virtual in self.by_id.values()}
        if asked_by != self._by_requester:
            problems.append(f"requested by {sorted(asked_by)}, indexed by {sorted(self._by_requester)}")
        for uid in self.waits:
            pod = cluster.pods.get(uid)
            if pod is None or pod.phase is not Phase.ASSUMED:
                problems.append(f"{pod or uid} waits for a reservation, but is not assumed")
        for virtual in self.by_id.values():
            waiting = {uid for uid, each in self.waits.items() if each is virtual}
            if waiting != set(virtual.waiting):
                problems.append(f"{sorted(waiting)} wait for {virtual.id}: {sorted(virtual.waiting)}")
        return problems

    def _fail(self, virtual: Virtual, reason: str, message: str) -> None:
        """Records that the request failed, with an event; the capacity is kept from now on for the
        retention."""
        assert self.settings is not None
        virtual.failed = message
        if virtual.keep_until is None:
            virtual.keep_until = self._cluster.now + self.settings.retention
        self.figures.failures += 1
        self._emit(virtual, "Warning", reason, message[0].upper() + message[1:])

    def _is_kept(self, virtual: Virtual) -> bool:
        return virtual.keep_until is not None and self._cluster.now < virtual.keep_until - _INSTANT

    def _hand_over(self, virtual: Virtual) -> bool:
        """Makes another waiting pod the requester, after the requester is gone. A failed virtual
        reservation that this pod requested before is dropped. Returns whether there is such a pod."""
        for uid, pod in virtual.waiting.items():
            other = self._by_requester.get(uid)
            if uid not in self.requirements.requests or (other is not None and other.waiting):
                continue
            if other is not None:
                self.drop(other)
            self._no_longer_asked(virtual)
            self._by_requester[uid] = virtual
            virtual.requester = pod.ref
            self.unreported[virtual.id] = None
            return True
        return False

    def _no_longer_asked(self, virtual: Virtual) -> None:
        """Removes it from the index by requester, unless the requester has another one since."""
        if self._by_requester.get(virtual.requester.uid) is virtual:
            del self._by_requester[virtual.requester.uid]

    def _try_again(self, id: str) -> None:
        """Requeues reservations with the id that are not scheduled."""
        cluster = self._cluster
        for uid in self.requirements.made.get(id, {}):
            reservation = self._reservations.known.get(uid)
            self.refused.pop(uid, None)
            if (
                reservation is None
                or reservation.pod is None
                or reservation.placed
                or reservation.terminating
            ):
                continue
            if cluster.listener is not None:
                cluster.listener.pod_pending(reservation.pod)

    def _emit(self, virtual: Virtual, type: str, reason: str, message: str) -> None:
        self.reports.append(Emit(virtual.requester, type, reason, message, "Provisioning"))


def _holds_enough(reservation: ReservationInfo, virtual: Virtual) -> bool:
    """Whether a reservation holds at least what was requested."""
    held = reservation.amounts_by_name
    return all(held.get(n, 0) >= amount for n, amount in _without_slot(virtual.reservation).items())


def _without_slot(reservation: ReservationInfo) -> dict[str, int]:
    """What it reserves, without the one pod slot that every reservation has."""
    return {name: amount for name, amount in reservation.amounts_by_name.items() if name != PODS}


def _within(reservation: ReservationInfo, size: Mapping[str, int]) -> bool:
    return all(amount <= size.get(name, 0) for name, amount in _without_slot(reservation).items())
