"""The dry run of one pod: whether it fits a row now, or would fit without some of the pods there.

Pods that are nominated to the row count as if they were there (`nominated_pods`). Capacity that is held
for the pod itself counts as free.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.framework.diagnosis import FITS, NodeRejection
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.reservation_column import ReservationColumn
from holdfast.scheduler.framework.feasibility.reservation_scores import AllocatingOne
from holdfast.scheduler.framework.interface import Need, Order
from holdfast.scheduler.framework.nominated_pods import (
    add_nominated_pods,
    lacking_capacity,
    only_capacity_matters,
)
from holdfast.scheduler.framework.reservation_diagnosis import count_reservations
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.state.cluster import Cluster


class DryRun:
    """Tries one pod on rows of the node table; implements `Trial`. Every change of the ledger is undone
    before a method returns."""

    __slots__ = (
        "_allowed",
        "_cluster",
        "_column",
        "_others",
        "_pinned",
        "_pod",
        "_preemption_holds",
        "_within",
        "passing",
    )

    def __init__(
        self,
        cluster: Cluster,
        column: ClassColumn,
        pod: PodRecord,
        pinned: bool,
        others: "OtherDryRuns | None" = None,
        within: NDArray[np.bool_] | None = None,
    ) -> None:
        self._cluster = cluster
        self._column = column
        self._pod = pod
        self._pinned = pinned
        self._others = others
        self._within = within
        self._preemption_holds = cluster.reservations.preemption_holds
        self._allowed: NDArray[np.bool_] | None = None
        self.passing: list[int] = []

    def resolvable(self) -> NDArray[np.bool_]:
        nodes, rejected = self._cluster.nodes, self._column.rejected
        if rejected is not None:
            return nodes.alive[: nodes.size] & rejected.resolvable
        corrections = self.corrections()
        self._column.refresh()
        rows = self._column.diagnosis.resolvable()
        if corrections:
            rows = rows.copy()
            for row, rejection in corrections.items():
                rows[row] = rejection.resolvable
        return self._eligible(rows)

    def rows_with(self, reason: str) -> NDArray[np.bool_]:
        nodes = self._cluster.nodes
        if self._column.rejected is not None:
            return np.zeros(nodes.size, dtype=np.bool_)
        corrections = self.corrections()
        self._column.refresh()
        rows = self._column.diagnosis.rows_with(reason)
        for row, rejection in corrections.items():
            rows[row] = reason in rejection.texts
        return self._eligible(rows)

    def _eligible(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Those of the rows that the pod is tried on."""
        if self._pinned:
            nodes = self._cluster.nodes
            named = nodes.row(self._pod.pinned_node or "")
            rows = rows & (np.arange(nodes.size) == (-1 if named is None else named))
        return rows if self._within is None else rows & self._within

    def fits(self, row: int) -> bool:
        """Whether the pod fits the row now. Capacity of its preemption hold counts as free, unless the
        hold itself still waits for that capacity."""
        own = self._preemption_holds.of(self._pod, row) if self._preemption_holds else None
        if own is None or own.waiting:
            return self._fits(row)
        if self._is_amounts_only(own, row):
            assert own.entry is not None
            self._column.refresh()
            return self._column.fits_with(
                AllocatingOne(self._cluster.nodes, self._cluster.ledger, own.entry)
            )
        with self._own_holds_released(row, as_reserved=True):
            return self._fits(row)

    def _is_amounts_only(self, own: ReservationInfo, row: int) -> bool:
        """Whether releasing the pod's preemption hold changes nothing on the row but amounts."""
        return (
            own.pod is not None
            and not own.pod.cls.ports
            and not self._column.owned
            and self._column.is_local
            and not self._cluster.managers.awake
            and not self._cluster.nominated_pods_for(self._pod, row)
        )

    def _fits(self, row: int) -> bool:
        self._column.refresh()
        return self._column.fits_row(row) and self._rejection_with_nominated(row) is None

    @property
    def is_local(self) -> bool:
        return self._column.is_local

    @property
    def is_separable(self) -> bool:
        return self._column.is_local or self._column.needs is not None

    @property
    def version(self) -> int:
        return self._column.answers_version

    def allowed(self) -> NDArray[np.bool_] | None:
        column = self._column
        if column.is_local or column.needs is None or column.rejected is not None:
            return None
        column.refresh()
        allowed, priority = column.topology_allows(), self._pod.cls.priority
        for cls in column.topology_dependencies.all(self._cluster.epoch.objects):
            if cls.priority < priority and cls.placed:
                allowed[list(cls.placed)] = True  # these pods may be victims: then the row may pass
        self._allowed = allowed
        return allowed

    def ruled_out(self, rows: NDArray[np.intp]) -> Counter[tuple[str, ...]]:
        return self._column.against_by_topology(rows)

    def victims(
        self, row: int, pods: list[PodRecord], spared_first: Order
    ) -> list[PodRecord] | tuple[str, ...]:
        ledger, column = self._cluster.ledger, self._column
        nominated_pods = self._cluster.nominated_pods_for(self._pod, row)
        needs = column.needs
        if self._cluster.jobs.known:
            pods = self._cluster.jobs.victims.preemptible_together(pods, self._pod.cls.priority)
        if (
            needs is not None
            and column.passes_node_filters(row)
            and not (
                self._pod.uid in self._preemption_holds and self._preemption_holds.of(self._pod, row)
            )
            and not (self._cluster.reservations.starvation_holds and self._starvation_hold(row))
            and not (
                nominated_pods
                and any(
                    self._cluster.reservations.reservation_for_nominated(nominated, row)
                    for nominated in nominated_pods
                )
            )
            and not any(
                pod.reservation_uid and ledger.reservations.get(pod.reservation_uid) for pod in pods
            )
        ):
            spare = ledger.spare(row, needs, pods, nominated_pods)
            if min(spare.values(), default=0) < 0:
                return tuple([need.text for need in needs if spare[need.slot] < 0])
            if column.is_local:
                return ledger.to_remove(spare, spared_first(pods))
            if not self._depends_on(pods) and not self._depends_on(nominated_pods):
                column.refresh()
                if column.fits_by_topology(row) or not self._is_allowed(row):
                    return ledger.to_remove(spare, spared_first(pods))
        if not column.is_local:
            self.passing.append(row)
        with self._own_holds_released(row):
            for pod in pods:
                ledger.remove(pod)
            if not self._fits(row):
                return self._rejection(row).texts
            victims = []
            for pod in spared_first(pods):
                ledger.place(pod, row)
                if not self._fits(row):
                    ledger.remove(pod)
                    victims.append(pod)
        return victims

    def _depends_on(self, pods: list[PodRecord]) -> bool:
        """Whether any of these pods can affect the pod's topology filters."""
        includes = self._column.topology_dependencies.includes
        return any(includes(pod.cls) for pod in pods)

    def _is_allowed(self, row: int) -> bool:
        return self._allowed is None or bool(self._allowed[row])

    def reservations_to_go(
        self, row: int, reserving: list[PodRecord], gone: list[PodRecord], spared_first: Order
    ) -> list[PodRecord] | tuple[str, ...]:
        needs = self._column.needs
        passing = self._column.is_local and self._column.passes_node_filters(row)
        if needs is not None and passing and not self._cluster.nominated_pods_for(self._pod, row):
            return reservation_victims_by_amounts(
                self._cluster, row, needs, reserving, gone, spared_first
            )
        found = reservation_victims(
            self._cluster,
            reserving,
            gone,
            spared_first,
            lambda: self.fits(row),
            lambda: self.rejection(row).texts,
        )
        self._column.refresh()
        return found

    def of(self, pod: PodRecord) -> tuple[int, "DryRun"]:
        assert self._others is not None
        return self._others(pod)

    def reservation_uid(self, row: int, victims: Iterable[PodRecord]) -> str | None:
        if not self._column.uses_reservations:
            return None
        if not self._column.owned:
            return ""
        with self._own_holds_released(row):
            for victim in victims:
                self._cluster.ledger.remove(victim)
            self._column.refresh()
            return self._column.reservation_uid(row)

    def reservations(self) -> str:
        if not isinstance(self._column, ReservationColumn):
            return ""
        column = self._column
        version = self._corrections_version(), self._cluster.epoch.reservations.end
        then, counts = column.reservation_counts
        if then != version:
            counts = count_reservations(self._cluster, column)
            column.reservation_counts = version, counts
        return counts

    def rejection(self, row: int) -> NodeRejection:
        """The first rejection of the row; FITS if there is none."""
        if self._preemption_holds and self._preemption_holds.of(self._pod, row) is not None:
            with self._own_holds_released(row, as_reserved=True):
                rejection = self._rejection(row)
            if rejection != FITS:
                return rejection
        return self._rejection(row)

    def _rejection(self, row: int) -> NodeRejection:
        rejection = self._rejection_with_nominated(row)
        if rejection is None:
            self._column.refresh()
            fits = self._column.fits_row(row)
            rejection = FITS if fits else self._column.diagnosis.rejection(row)
        return rejection

    def corrections(self) -> dict[int, NodeRejection]:
        """Rejections, by row, of the rows whose rejection differs from the one in the class's
        diagnosis: a pod does not compete with its own nomination, nominated pods of other queues may
        count for it, and in a column that is not local each nominated node must be tried."""
        if self._column.is_local and self._column.diagnosis.nominated_check is not None:
            own = [self._pod.nominated] if self._pod.nominated else []
            return self._rejections_of([*own, *self._nodes_of_other_queues()])
        known = self.known_corrections()
        if known is None:
            known = self._rejections_of(self._nominated_nodes())
            if not self._has_own_capacity:
                self._column.corrections = (self._corrections_version(), known)
        return known

    def _nominated_nodes(self) -> list[str]:
        """The nodes with nominated pods that count for the pod, and its own nominated node."""
        cluster, pod = self._cluster, self._pod
        row, own = cluster.nodes.row, pod.nominated if self._has_own_capacity else ""
        return [
            name
            for name in cluster.nominator
            if name == own
            or ((at := row(name)) is not None and self._cluster.nominated_pods_for(self._pod, at))
        ]

    def _nodes_of_other_queues(self) -> list[str]:
        """The nodes with nominated pods of lower priority that count for this pod because it may not
        preempt from their queue. A queue is not part of a pod's class."""
        queues, priority = self._cluster.jobs.queues, self._pod.cls.priority
        if not queues or not queues.of(self._pod):
            return []
        return [
            name
            for name, there in self._cluster.nominator.items()
            if any(
                pod.cls.priority < priority and not queues.may_preempt(self._pod, pod)
                for pod in there.values()
            )
        ]

    def rows_of_other_queues(self) -> list[int]:
        """The rows that are feasible for the pod's class but not for the pod, because of nominated pods
        of lower priority that belong to other queues."""
        rows = map(self._cluster.nodes.row, self._nodes_of_other_queues())
        return [row for row in rows if row is not None and not self.fits(row)]

    @property
    def _has_own_capacity(self) -> bool:
        """Whether the pod has a nominated node or a preemption hold, which other pods of its class do
        not have."""
        return bool(self._pod.nominated) or self._pod.uid in self._preemption_holds

    def known_corrections(self) -> dict[int, NodeRejection] | None:
        """The corrections found for another pod of the class, if nothing has changed since."""
        if self._has_own_capacity or not self._column.shares_corrections:
            return None
        self._column.refresh()
        then, known = self._column.corrections
        return known if then == self._corrections_version() else None

    def _rejections_of(self, names: Iterable[str]) -> dict[int, NodeRejection]:
        nodes = self._cluster.nodes
        rows = [row for row in map(nodes.row, names) if row is not None and nodes.alive[row]]
        return {row: self.rejection(row) for row in rows}

    def _corrections_version(self) -> Hashable:
        """The version of everything that corrections and reservation counts depend on: equal versions
        mean that they are the same for all pods of the class and queue."""
        queues = self._cluster.jobs.queues
        place = (queues.of(self._pod), self._cluster.epoch.queues) if queues else None
        return (*self._cluster.epoch.of_feasibility(), self._column.answers_version, place)

    def _rejection_with_nominated(self, row: int) -> NodeRejection | None:
        nominated_pods = self._cluster.nominated_pods_for(self._pod, row)
        if not nominated_pods:
            return None
        if only_capacity_matters(self._cluster, self._column, row, nominated_pods):
            rejection = lacking_capacity(self._cluster, self._column, row, nominated_pods)
            if rejection is not None or not self._depends_on(nominated_pods):
                return rejection
        with add_nominated_pods(self._cluster, nominated_pods, row, self._cluster.ledger.transaction()):
            self._column.refresh()
            rejection = None if self._column.fits_row(row) else self._column.diagnosis.rejection(row)
        self._column.refresh()
        return rejection

    @contextmanager
    def _own_holds_released(self, row: int, as_reserved: bool = False) -> Iterator[None]:
        """Releases the capacity held for the pod on the row, and undoes this and every change made
        inside the block at its end. With `as_reserved` only the preemption hold is released, and its
        capacity goes to the pod before reservations that wait on the row."""
        own, ledger = self._preemption_holds.of(self._pod, row), self._cluster.ledger
        with ledger.transaction():
            if own is not None and own.pod is not None:
                if as_reserved and not own.waiting:
                    ledger.defer_waiting(row)
                ledger.release(own.pod)
            hold = None if as_reserved else self._starvation_hold(row)
            if hold is not None and hold.pod is not None:
                ledger.release(hold.pod)
            yield
        self._column.refresh()

    def _starvation_hold(self, row: int) -> ReservationInfo | None:
        """The starvation hold on the row that waits for the pod's capacity, if there is one. It claims
        what victims leave, for the pod itself."""
        hold = self._cluster.reservations.starvation_holds.of(self._pod)
        if hold is None or not hold.waiting or hold.pod is None or hold.pod.row != row:
            return None
        return hold


OtherDryRuns = Callable[[PodRecord], tuple[int, DryRun]]
"""The row another pod would be placed on, -1 if none, and its dry run."""


# Reservation preemption: which reservations of a row have to be deleted for a pod to fit there.


ReleasedReservation = tuple[int, Amounts, list[PodRecord]]
"""The row and amounts of a reservation, and the pods allocated from it."""


def release_reservation(cluster: Cluster, reserving: PodRecord) -> ReleasedReservation:
    """Releases a reservation and removes the pods allocated from it; inside a transaction."""
    entry, reservation = cluster.ledger.reservations.get(reserving.uid), reserving.reservation
    assert entry is not None and reservation is not None
    row, amounts = entry.row, entry.amounts
    allocated_pods = cluster.reservations.allocated_pods(reservation)
    for pod in allocated_pods:
        cluster.ledger.remove(pod)
    cluster.ledger.release(reserving)
    return row, amounts, allocated_pods


def restore_reservation(cluster: Cluster, reserving: PodRecord, gone: ReleasedReservation) -> None:
    """Undoes `release_reservation`."""
    row, amounts, allocated_pods = gone
    cluster.ledger.reserve(reserving, row, amounts)
    for pod in allocated_pods:
        cluster.ledger.place(pod, row)


def reservation_victims(
    cluster: Cluster,
    reserving: list[PodRecord],
    gone: list[PodRecord],
    spared_first: Order,
    fits: Callable[[], bool],
    rejection: Callable[[], tuple[str, ...]],
) -> list[PodRecord] | tuple[str, ...]:
    """The reservations to delete, found by releasing all of them and restoring one after the other as
    long as the pod still fits; or the reasons why it does not fit without any of them. Those in `gone`
    count as deleted already."""
    with cluster.ledger.transaction():
        for each in gone:
            release_reservation(cluster, each)
        left = {each.uid: release_reservation(cluster, each) for each in reserving}
        if not fits():
            return rejection()
        victims = []
        for each in spared_first(reserving):
            restore_reservation(cluster, each, left[each.uid])
            if not fits():
                release_reservation(cluster, each)
                victims.append(each)
    return victims


def reservation_victims_by_amounts(
    cluster: Cluster,
    row: int,
    needs: tuple[Need, ...],
    reserving: list[PodRecord],
    gone: list[PodRecord],
    spared_first: Order,
) -> list[PodRecord] | tuple[str, ...]:
    """As `reservation_victims`, by arithmetic; for rows that pass all filters except on amounts."""
    ledger, slots = cluster.ledger, [need.slot for need in needs]

    def freed(each: PodRecord) -> dict[int, int]:
        entry, reservation = ledger.reservations.get(each.uid), each.reservation
        assert entry is not None and reservation is not None
        return ledger.freed(entry, cluster.reservations.allocated_pods(reservation), slots)

    spare = ledger.spare(row, needs, (), ())
    claims = {each.uid: freed(each) for each in reserving}
    for amounts in (*claims.values(), *map(freed, gone)):
        for slot, amount in amounts.items():
            spare[slot] += amount
    lacking = tuple(need.text for need in needs if spare[need.slot] < 0)
    if lacking:
        return lacking
    victims = []
    for each in spared_first(reserving):
        claim = claims[each.uid]
        if all(spare[slot] >= amount for slot, amount in claim.items()):
            for slot, amount in claim.items():
                spare[slot] -= amount
        else:
            victims.append(each)
    return victims
