"""Starvation holds: reservations that hold capacity for pods of starving jobs.

A starvation hold is a reservation with pre-allocation for one pod, created by the reserve action and
marked by a label. It is known here from its decision on, so that it is not decided again while it is
being written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api.names import HOLD_LABEL, STARVATION
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.columns import RowColumn
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo, age
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.cluster.view import Cells, One, View
from holdfast.scheduler.reservations.owners import OwnerSpecs
from holdfast.scheduler.reservations.preemption_holds import PreemptionHolds

_BACKOFF = 1.0
"""For this many seconds no hold for the same pod is placed on a node that refused one twice; each
further refusal doubles them. A single refusal has no back-off: its cause is often over in the same
moment, such as a hold placed before whose pod starts elsewhere."""
_MOST_BACKOFF = 60.0
"""The longest back-off in seconds; after as long without a refusal, earlier ones no longer count."""


class Dropped(NamedTuple):
    """When a hold that was refused or released may be placed on the same node again."""

    revision: int
    """The value of `Epoch.inputs` with which the hold is not created again."""
    until: float = -math.inf
    """The time before which the hold is not created again."""
    refusals: int = 0
    """How often the node refused a hold, without a long break."""

    def leaves_out(self, now: float, revision: int) -> bool:
        """Whether no hold is created on the node now."""
        return self.revision == revision or now < self.until

    def is_over(self, now: float, revision: int) -> bool:
        """Whether it may be forgotten."""
        return self.revision != revision and now >= self.until + _MOST_BACKOFF


class WantedHold(NamedTuple):
    """A hold that was decided and whose object has not been seen yet."""

    name: str
    pod: str
    node: str


class StarvationHolds:
    """The starvation holds of a cluster: existing, decided, and refused ones."""

    def __init__(
        self,
        cluster: ClusterBase,
        specs: OwnerSpecs,
        members: Mapping[int, Mapping[str, ReservationInfo]],
        preemption_holds: PreemptionHolds,
    ) -> None:
        """`members` are the reservations of each owner spec, by its id and their uid."""
        self._cluster = cluster
        self._specs = specs
        self._members = members
        self._preemption_holds = preemption_holds
        self._known: dict[str, ReservationInfo] = {}
        self._of_pod: dict[str, str] = {}
        self.wanted: dict[str, WantedHold] = {}
        """Decided holds, by the uid of their pod."""
        self.dropped: set[str] = set()
        """The uids of holds whose deletion is decided."""
        self._unfit: dict[str, dict[str, Dropped]] = {}
        self._rows: RowColumn[np.bool_] | None = None
        self._by_age: list[ReservationInfo] | None = None
        """The existing holds, the oldest first; None if these have changed."""
        self._held: dict[int, NDArray[np.int64]] = {}
        self._held_version: tuple[int, int, int] | None = None

    def __bool__(self) -> bool:
        return bool(self._known)

    def __iter__(self) -> Iterator[ReservationInfo]:
        return iter(list(self._known.values()))

    def put(self, reservation: ReservationInfo) -> None:
        """Adds a reservation if it is a starvation hold that is not finished. One whose owner is not a
        single pod is not a starvation hold, even if it has the label."""
        uid = pod_of(reservation)
        named = is_starvation_hold(reservation) and uid
        if not named or reservation.finished:
            self.drop(reservation)
            return
        self.wanted.pop(uid, None)
        if (
            self._known.get(reservation.uid) is not reservation
            or self._of_pod.get(uid) != reservation.uid
        ):
            self._known[reservation.uid] = reservation
            self._of_pod.setdefault(uid, reservation.uid)
            self._moved()

    def drop(self, reservation: ReservationInfo) -> None:
        if self._known.pop(reservation.uid, None) is None:
            return
        self.dropped.discard(reservation.uid)
        uid = pod_of(reservation)
        if self._of_pod.get(uid) == reservation.uid:
            del self._of_pod[uid]
        self._moved()

    def want(self, name: str, pod: PodRecord, node: str) -> None:
        """Notes a decided hold."""
        self.wanted[pod.uid] = WantedHold(name, pod.uid, node)

    def refused(self, pod: PodRecord, node: str) -> None:
        """Notes that the hold could not be placed on its node. The node is left out until an input of
        scheduling changes, and if it refuses holds repeatedly for a while."""
        now = self._cluster.now
        last = self._unfit.get(pod.uid, {}).get(node)
        times = last.refusals if last is not None and now < last.until + _MOST_BACKOFF else 0
        backoff = min(_BACKOFF * 2.0 ** min(times - 1, 30), _MOST_BACKOFF) if times else 0.0
        self._leave_out(pod, node, Dropped(self._cluster.epoch.inputs, now + backoff, times + 1))

    def released(self, pod: PodRecord, node: str) -> None:
        """Notes that the hold was released; the node is left out until an input of scheduling
        changes."""
        last = self._unfit.get(pod.uid, {}).get(node, Dropped(0))
        self._leave_out(pod, node, last._replace(revision=self._cluster.epoch.inputs))

    def _leave_out(self, pod: PodRecord, node: str, dropped: Dropped) -> None:
        self._unfit.setdefault(pod.uid, {})[node] = dropped
        for uid in [uid for uid in self._unfit if uid not in self._cluster.pods]:
            del self._unfit[uid]

    def unfit(self, pod: PodRecord) -> list[str]:
        """The nodes that are left out for a hold for the pod; see `Dropped`."""
        known = self._unfit.get(pod.uid)
        if not known:
            return []
        now, revision = self._cluster.now, self._cluster.epoch.inputs
        for node in [node for node, each in known.items() if each.is_over(now, revision)]:
            del known[node]
        return [node for node, each in known.items() if each.leaves_out(now, revision)]

    def next_timer(self) -> float | None:
        """When the first node is no longer left out though nothing changes."""
        if not self._unfit:
            return None
        now, revision, pods = self._cluster.now, self._cluster.epoch.inputs, self._cluster.pods
        times = (
            each.until
            for uid, nodes in self._unfit.items()
            if (pod := pods.get(uid)) is not None and pod.row < 0
            for each in nodes.values()
            if each.revision != revision and each.until > now
        )
        return min(times, default=None)

    def not_created(self, name: str) -> None:
        """Forgets a decided hold that could not be created."""
        for uid in [uid for uid, wanted in self.wanted.items() if wanted.name == name]:
            del self.wanted[uid]

    def of(self, pod: PodRecord) -> ReservationInfo | None:
        """The existing hold for the pod, unless its deletion is decided."""
        reservation = self._known.get(self._of_pod.get(pod.uid, ""))
        return reservation if reservation is not None and reservation.uid not in self.dropped else None

    def is_held(self, pod: PodRecord) -> bool:
        """Whether a hold for the pod exists or is decided."""
        return pod.uid in self.wanted or self.of(pod) is not None

    def is_held_on(self, pod: PodRecord, row: int) -> bool:
        """Whether a hold for the pod exists or is decided on this row."""
        wanted, reservation = self.wanted.get(pod.uid), self.of(pod)
        if reservation is None:
            return wanted is not None and wanted.node == self._cluster.nodes.name(row)
        return reservation.pod is not None and reservation.pod.row == row

    def has_capacity(self, pod: PodRecord) -> bool:
        """Whether capacity is held for the pod: by a starvation hold, its nominated node, a preemption
        hold, or a waiting reservation for this pod that is large enough."""
        if self.is_held(pod):
            return True
        nodes = self._cluster.nodes
        nominated_row = nodes.row(pod.nominated) if pod.nominated else None
        if nominated_row is not None and nodes.alive[nominated_row]:
            return True
        preemption_holds = self._preemption_holds.get(pod.uid)
        if preemption_holds and any(
            hold.placed and not hold.released for hold in preemption_holds.values()
        ):
            return True
        return pod.cls.private and any(
            reservation.waiting
            and not reservation.being_evicted
            and reservation.uid not in self._known
            and all(reservation.amounts.get(slot, 0) >= amount for slot, amount in pod.cls.requests)
            for spec in self._specs.matching(pod.cls)
            for reservation in self._members.get(spec, {}).values()
        )

    def knows(self, reservation: ReservationInfo) -> bool:
        """Whether the reservation is a starvation hold."""
        return reservation.uid in self._known

    def pods(self) -> Iterator[PodRecord]:
        """The pods for which a hold exists or is decided."""
        for uid in {**self._of_pod, **self.wanted}:
            pod = self._cluster.pods.get(uid)
            if pod is not None:
                yield pod

    def pending(self, before: ReservationInfo | None = None) -> list[tuple[PodRecord, int]]:
        """The pending pods for which a hold exists or is decided, and its rows, the oldest hold first;
        or those with older holds than `before`."""
        nodes, pods = self._cluster.nodes, self._cluster.pods
        if self._by_age is None:
            self._by_age = sorted(self._known.values(), key=age)
        known = takewhile(lambda hold: hold is not before, self._by_age)
        places = [(pod_of(hold), hold.wants_node) for hold in known if hold.uid not in self.dropped]
        if before is None:
            places += [(wanted.pod, wanted.node) for wanted in self.wanted.values()]
        return [
            (pod, row)
            for uid, node in places
            if (pod := pods.get(uid)) is not None and pod.row < 0
            if (row := nodes.row(node)) is not None and nodes.alive[row]
        ]

    def rows(self) -> NDArray[np.bool_]:
        """Whether a row has a hold, over all rows; not to be written to."""
        if self._rows is None:
            self._rows = self._cluster.nodes.columns.new(np.bool_)
            for reservation in self._known.values():
                if reservation.pod is not None and reservation.pod.row >= 0:
                    self._rows.cells[reservation.pod.row] = True
        return self._rows.cells

    def blocked_for(self, cls: PodClass) -> NDArray[np.bool_]:
        """Whether a row has a hold for other pods than those of the class, over all rows."""
        rows = self.rows()
        if not cls.private:
            return rows
        own = self._rows_of(cls)
        if own:
            rows = rows.copy()
            rows[own] = False
        return rows

    def blocks(self, cls: PodClass, row: int) -> bool:
        """The same for one row."""
        if not self.rows().item(row):
            return False
        return not cls.private or row not in self._rows_of(cls)

    def _rows_of(self, cls: PodClass) -> list[int]:
        """The rows with a hold for pods of the class, even if a dry run released it."""
        found = [
            self._cluster.nodes.row(reservation.wants_node)
            if reservation.pod.row < 0
            else reservation.pod.row
            for spec in self._specs.matching(cls)
            for reservation in self._members.get(spec, {}).values()
            if reservation.uid in self._known and reservation.pod is not None
        ]
        return [row for row in found if row is not None]

    def nodes(self) -> set[str]:
        """The names of nodes on which a hold exists or is decided."""
        nodes = self._cluster.nodes
        found = {
            nodes.name(reservation.pod.row)
            for reservation in self._known.values()
            if reservation.pod is not None and reservation.pod.row >= 0
        }
        return found | {wanted.node for wanted in self.wanted.values()}

    def on(self, row: int) -> list[ReservationInfo]:
        """The holds on a row."""
        there = self._cluster.ledger.reservations.on(row)
        return [entry.reservation for entry in there if entry.reservation.uid in self._known]

    def held(self, slot: int) -> NDArray[np.int64]:
        """How much of a slot holds claim, over all rows; not to be written to."""
        nodes, ledger = self._cluster.nodes, self._cluster.ledger
        version = (self._cluster.epoch.usage.end, self._cluster.epoch.objects, nodes.size)
        if version != self._held_version:
            self._held_version, self._held = version, {}
        held = self._held.get(slot)
        if held is None:
            held = self._held[slot] = np.zeros(nodes.size, dtype=np.int64)
            known = [
                entry for uid in self._known if (entry := ledger.reservations.get(uid)) is not None
            ]
            if known and slot < len(ledger.reservations.left):
                rows = np.array([entry.row for entry in known])
                np.add.at(held, rows, ledger.reservations.left[slot, [entry.index for entry in known]])
        return held

    def outranked(self, cls: PodClass, view: View, slot: int) -> Cells:
        """What holds that are Waiting claim of a slot, as far as reserve pods of the class come before
        them: all of it if the reservation has a start, else nothing."""
        if not self._known or not cls.is_planned:
            return 0
        if isinstance(view, One):
            return self.outranked_on(view.rows).get(slot, 0)
        return view.take(self.outranked_by_row(slot))

    def outranked_by_row(self, slot: int) -> NDArray[np.int64]:
        """What holds that are Waiting claim of a slot, over all rows."""
        found = np.zeros(self._cluster.nodes.capacity, dtype=np.int64)
        for reservation in self._known.values():
            if reservation.waiting and reservation.entry is not None:
                found[reservation.entry.row] += reservation.entry.left(slot)
        return found

    def outranked_on(self, row: int) -> Amounts:
        """What holds that are Waiting claim on a row, by slot."""
        found: Amounts = {}
        for hold in self.on(row) if self._known else ():
            if hold.waiting and hold.entry is not None:
                for slot, amount in hold.entry.remaining.items():
                    found[slot] = found.get(slot, 0) + amount
        return found

    def left(self, reservation: ReservationInfo, slot: int) -> int:
        """The remaining amount of a reservation; 0 if it is not on a node."""
        entry = self._cluster.ledger.reservations.get(reservation.uid)
        return entry.left(slot) if entry is not None else 0

    def reservation_changed(self, reservation: ReservationInfo) -> None:
        """Notes that a reservation was added to a row or removed from it."""
        if reservation.uid in self._known:
            self._moved()

    def _moved(self) -> None:
        self._rows = self._by_age = None
        self._cluster.epoch.objects += 1


def is_hold(cls: PodClass) -> bool:
    """Whether the class is of reserve pods of starvation holds."""
    return cls.owner_spec_id >= 0 and cls.labels.get(HOLD_LABEL) == STARVATION


def is_starvation_hold(reservation: ReservationInfo) -> bool:
    """Whether the reservation has the label of starvation holds."""
    return reservation.object.metadata.labels.get(HOLD_LABEL) == STARVATION


def pod_of(reservation: ReservationInfo) -> str:
    """The uid of the pod that a hold's owner names; empty if it names none."""
    owners = reservation.object.spec.owners
    named = owners[0].object if owners else None
    return named.uid if named is not None else ""
