"""Whether a pod would fit a row, as the ledger stands at this moment.

Nodes that are being cleared for other pods of the same or higher priority, or of queues from which the
pod may not preempt, count those pods as there already; a pod must fit with them and without them, and
what stands against a node with them is said first. What a reservation holds for such a pod is counted
with the reservation, and not once more; what is held for the pod itself counts as free.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.cluster.reservation_table import Amounts
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.diagnosis import FITS, NodeRejection
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.reservation_column import ReservationColumn
from holdfast.scheduler.framework.feasibility.reservation_scores import AllocatingOne
from holdfast.scheduler.framework.interface import Need, Order
from holdfast.scheduler.framework.reservation_diagnosis import count_reservations
from holdfast.scheduler.reservations import ReservationInfo


class DryRun:
    """One pod's attempt at nodes."""

    __slots__ = (
        "_allowed",
        "_cluster",
        "_column",
        "_others",
        "_pinned",
        "_pod",
        "_preemption_holds",
        "passing",
    )

    def __init__(
        self,
        cluster: Cluster,
        column: ClassColumn,
        pod: PodRecord,
        pinned: bool,
        others: "Others | None" = None,
    ) -> None:
        self._cluster = cluster
        self._column = column
        self._pod = pod
        self._pinned = pinned
        self._others = others
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
        if self._pinned:
            named = nodes.row(self._pod.pinned_node or "")
            rows = rows & (np.arange(nodes.size) == (-1 if named is None else named))
        return rows

    def fits(self, row: int) -> bool:
        room = self._preemption_holds.of(self._pod, row) if self._preemption_holds else None
        if room is None or room.waiting:
            return self._fits(row)  # only beside what is not there yet
        if self._is_amounts_only(room, row):
            assert room.hold is not None
            self._column.refresh()
            return self._column.fits_as(
                AllocatingOne(self._cluster.nodes, self._cluster.ledger, room.hold)
            )
        with self._own_room_free(row, as_reserved=True):
            return self._fits(row)

    def _is_amounts_only(self, room: ReservationInfo, row: int) -> bool:
        """Whether a row without the room differs from the row with it in amounts alone."""
        return (
            room.pod is not None
            and not room.pod.cls.ports
            and not self._column.owned
            and self._column.is_local
            and not self._cluster.managers.awake
            and not self.nominated_pods(row)
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
        return self._column.compiled

    def allowed(self) -> NDArray[np.bool_] | None:
        column = self._column
        if column.is_local or column.needs is None or column.rejected is not None:
            return None
        column.refresh()
        allowed, priority = column.topology_allows(), self._pod.cls.priority
        for cls in column.topology_dependencies.all(self._cluster.epoch.objects):
            if cls.priority < priority and cls.placed:
                allowed[list(cls.placed)] = True  # until their pods there have left, who knows
        self._allowed = allowed
        return allowed

    def ruled_out(self, rows: NDArray[np.intp]) -> Counter[tuple[str, ...]]:
        return self._column.against_by_topology(rows)

    def victims(
        self, row: int, pods: list[PodRecord], spared_first: Order
    ) -> list[PodRecord] | tuple[str, ...]:
        ledger, column, nominated_pods = self._cluster.ledger, self._column, self.nominated_pods(row)
        needs = column.needs
        if self._cluster.jobs.known:
            pods = self._cluster.jobs.losable(pods, self._pod.cls.priority)
        if (
            needs is not None
            and column.suits_row(row)
            and not (
                self._pod.uid in self._preemption_holds and self._preemption_holds.of(self._pod, row)
            )
            and not (self._cluster.jobs.holds and self._starvation_hold(row))
            and not (
                nominated_pods
                and any(
                    self._cluster.reservations.inside(nominated, row) for nominated in nominated_pods
                )
            )
            and not any(pod.reservation_uid and ledger.holds.get(pod.reservation_uid) for pod in pods)
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
        with self._own_room_free(row):
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
        """Whether by topology any of these pods bears on where this one can be."""
        includes = self._column.topology_dependencies.includes
        return any(includes(pod.cls) for pod in pods)

    def _is_allowed(self, row: int) -> bool:
        return self._allowed is None or bool(self._allowed[row])

    def reservations_to_go(
        self, row: int, reserving: list[PodRecord], gone: list[PodRecord], spared_first: Order
    ) -> list[PodRecord] | tuple[str, ...]:
        needs = self._column.needs
        suits = self._column.is_local and self._column.suits_row(row)
        if needs is not None and suits and not self.nominated_pods(row):
            return to_go_for_amounts(self._cluster, row, needs, reserving, gone, spared_first)
        found = to_go(
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
        with self._own_room_free(row):
            for victim in victims:
                self._cluster.ledger.remove(victim)
            self._column.refresh()
            return self._column.reservation_uid(row)

    def reservations(self) -> str:
        if not isinstance(self._column, ReservationColumn):
            return ""
        column = self._column
        moment = self._moment(), self._cluster.epoch.reservations.end
        then, told = column.counted
        if then != moment:
            told = count_reservations(self._cluster, column)
            column.counted = moment, told
        return told

    def rejection(self, row: int) -> NodeRejection:
        """What stands against the row."""
        if self._preemption_holds and self._preemption_holds.of(self._pod, row) is not None:
            with self._own_room_free(row, as_reserved=True):
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
        """What stands against rows of which the class's diagnosis does not know it: a pod is no rival
        of its own, and where rows depend on each other each must be tried."""
        if self._column.is_local and self._column.diagnosis.nominated_check is not None:
            own = [self._pod.nominated] if self._pod.nominated else []
            return self._rejections_of([*own, *self._nodes_of_other_queues()])
        known = self.known_corrections()
        if known is None:
            known = self._rejections_of(self._nominated_nodes())
            if not self._sees_more:
                self._column.corrected = (self._moment(), known)
        return known

    def _nominated_nodes(self) -> list[str]:
        """The nodes that are being cleared for others, or for the pod itself."""
        cluster, pod = self._cluster, self._pod
        row, own = cluster.nodes.row, pod.nominated if self._sees_more else ""
        return [
            name
            for name in cluster.nominator
            if name == own or ((at := row(name)) is not None and self.nominated_pods(at))
        ]

    def _nodes_of_other_queues(self) -> list[str]:
        """The nodes with nominated pods that count for this pod because of its queue, which its class
        knows nothing of."""
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
        """The rows where the pod does not fit, though its class does, because they are being cleared
        for less important pods of other queues."""
        rows = map(self._cluster.nodes.row, self._nodes_of_other_queues())
        return [row for row in rows if row is not None and not self.fits(row)]

    @property
    def _sees_more(self) -> bool:
        """Whether something is kept for the pod itself, which is not so for its siblings."""
        return bool(self._pod.nominated) or self._pod.uid in self._preemption_holds

    def known_corrections(self) -> dict[int, NodeRejection] | None:
        """The same, if a sibling found it and nothing has changed since."""
        if self._sees_more or self._column.made_of_others:
            return None
        self._column.refresh()
        then, known = self._column.corrected
        return known if then == self._moment() else None

    def _rejections_of(self, names: Iterable[str]) -> dict[int, NodeRejection]:
        nodes = self._cluster.nodes
        rows = [row for row in map(nodes.row, names) if row is not None and nodes.alive[row]]
        return {row: self.rejection(row) for row in rows}

    def _moment(self) -> Hashable:
        """As long as it is the same, nothing has changed that pods of the class and queue could
        notice."""
        queues = self._cluster.jobs.queues
        place = (queues.of(self._pod), self._cluster.epoch.queues) if queues else None
        return (*self._cluster.epoch.of_feasibility(), self._column.compiled, place)

    def nominated_pods(self, row: int) -> list[PodRecord]:
        """Pods the row is being cleared for that this pod must not get in the way of."""
        pod, nominated_pods = self._pod, self._cluster.nominated_pods(row)
        if not nominated_pods:
            return nominated_pods
        defers_to = self._cluster.jobs.queues.defers_to
        return [each for each in nominated_pods if each is not pod and defers_to(pod, each)]

    def _rejection_with_nominated(self, row: int) -> NodeRejection | None:
        nominated_pods = self.nominated_pods(row)
        if not nominated_pods:
            return None
        if _is_about_room(self._cluster, self._column, row, nominated_pods):
            rejection = _lacking_capacity(self._cluster, self._column, row, nominated_pods)
            if rejection is not None or not self._depends_on(nominated_pods):
                return rejection
        with _placed(self._cluster, nominated_pods, row, self._cluster.ledger.transaction()):
            self._column.refresh()
            rejection = None if self._column.fits_row(row) else self._column.diagnosis.rejection(row)
        self._column.refresh()
        return rejection

    @contextmanager
    def _own_room_free(self, row: int, as_reserved: bool = False) -> Iterator[None]:
        """What is done inside is undone at the end. What is promised already is there, even if others
        wait on the row for more than pods have left them so far."""
        room, ledger = self._preemption_holds.of(self._pod, row), self._cluster.ledger
        with ledger.transaction():
            if room is not None and room.pod is not None:
                if as_reserved and not room.waiting:
                    ledger.defer_waiting(row)
                ledger.release(room.pod)
            hold = None if as_reserved else self._starvation_hold(row)
            if hold is not None and hold.pod is not None:
                ledger.release(hold.pod)
            yield
        self._column.refresh()

    def _starvation_hold(self, row: int) -> ReservationInfo | None:
        """What waits on the row for capacity for the pod, which starves: for what the pod asks for, and
        its own once victims have left."""
        hold = self._cluster.jobs.holds.of(self._pod)
        if hold is None or not hold.waiting or hold.pod is None or hold.pod.row != row:
            return None
        return hold


Others = Callable[[PodRecord], tuple[int, DryRun]]
"""Where another pod would go, and its trial."""


class NominatedPodsCheck:
    """What stands against the nodes that are being cleared for pods at least as important as a class,
    as long as rows do not depend on each other. Kept by the class's diagnosis."""

    def __init__(self, cluster: Cluster, column: ClassColumn) -> None:
        self._cluster = cluster
        self._column: ClassColumn = proxy(column)  # it owns this, and should go when it is dropped

    def rows(self) -> list[int]:
        if not self._column.is_local:
            return []
        nodes = self._cluster.nodes
        rows = map(nodes.row, self._cluster.nominator)
        return [row for row in rows if row is not None and nodes.alive[row]]

    def rejection(self, row: int) -> NodeRejection | None:
        if not self._column.is_local:
            return None
        cluster = self._cluster
        priority = self._column.cls.priority
        nominated_pods = [p for p in cluster.nominated_pods(row) if p.cls.priority >= priority]
        if not nominated_pods:
            return None
        if _is_about_room(cluster, self._column, row, nominated_pods):
            return _lacking_capacity(cluster, self._column, row, nominated_pods)
        with _placed(cluster, nominated_pods, row, cluster.ledger.peek()):
            rejection = self._column.diagnosis.rejection(row)
        return rejection if rejection.plugin else None


def _is_about_room(
    cluster: Cluster, column: ClassColumn, row: int, nominated_pods: list[PodRecord]
) -> bool:
    """Whether nothing matters on the row but room, and after that topology."""
    return (
        column.needs is not None
        and not any(cluster.reservations.inside(nominated, row) for nominated in nominated_pods)
        and column.suits_row(row)
    )


def _lacking_capacity(
    cluster: Cluster, column: ClassColumn, row: int, nominated_pods: list[PodRecord]
) -> NodeRejection | None:
    """What of room is lacking once rivals have theirs."""
    needs = column.needs or ()
    spare = cluster.ledger.spare(row, needs, (), nominated_pods)
    lacking = [need for need in needs if spare[need.slot] < 0]
    if not lacking:
        return None
    offered = cluster.nodes.allocatable
    hopeful = all(n.slot == PODS or n.amount <= offered.item(n.slot, row) for n in lacking)
    return NodeRejection(column.needing, tuple(need.text for need in lacking), hopeful)


@contextmanager
def _placed(
    cluster: Cluster, pods: list[PodRecord], row: int, undone: AbstractContextManager[object]
) -> Iterator[None]:
    """As if the pods were on the row already, drawing on the reservations they will draw on."""
    try:
        with undone:
            for pod in pods:
                pod.reservation_uid = cluster.reservations.inside(pod, row)
                cluster.ledger.place(pod, row)
            yield
    finally:
        for pod in pods:
            pod.reservation_uid = ""


# Which reservations would have to go from a row for a pod to fit there.


Gone = tuple[int, Amounts, list[PodRecord]]


def leave(cluster: Cluster, reserving: PodRecord) -> Gone:
    """A reservation gives up its room, and the pods that draw on it theirs; inside a transaction."""
    hold, reservation = cluster.ledger.holds.get(reserving.uid), reserving.reservation
    assert hold is not None and reservation is not None
    row, amounts = hold.row, hold.amounts
    allocated_pods = cluster.reservations.allocated_pods(reservation)
    for pod in allocated_pods:
        cluster.ledger.remove(pod)
    cluster.ledger.release(reserving)
    return row, amounts, allocated_pods


def come_back(cluster: Cluster, reserving: PodRecord, gone: Gone) -> None:
    row, amounts, allocated_pods = gone
    cluster.ledger.hold(reserving, row, amounts)
    for pod in allocated_pods:
        cluster.ledger.place(pod, row)


def to_go(
    cluster: Cluster,
    reserving: list[PodRecord],
    gone: list[PodRecord],
    spared_first: Order,
    fits: Callable[[], bool],
    rejection: Callable[[], tuple[str, ...]],
) -> list[PodRecord] | tuple[str, ...]:
    """By trying."""
    with cluster.ledger.transaction():
        for each in gone:
            leave(cluster, each)
        left = {each.uid: leave(cluster, each) for each in reserving}
        if not fits():
            return rejection()
        victims = []
        for each in spared_first(reserving):
            come_back(cluster, each, left[each.uid])
            if not fits():
                leave(cluster, each)
                victims.append(each)
    return victims


def to_go_for_amounts(
    cluster: Cluster,
    row: int,
    needs: tuple[Need, ...],
    reserving: list[PodRecord],
    gone: list[PodRecord],
    spared_first: Order,
) -> list[PodRecord] | tuple[str, ...]:
    """By arithmetic, where nothing but amounts matters."""
    ledger, slots = cluster.ledger, [need.slot for need in needs]

    def freed(each: PodRecord) -> dict[int, int]:
        hold, reservation = ledger.holds.get(each.uid), each.reservation
        assert hold is not None and reservation is not None
        return ledger.freed(hold, cluster.reservations.allocated_pods(reservation), slots)

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
