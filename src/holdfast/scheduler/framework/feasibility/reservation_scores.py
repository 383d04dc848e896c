"""Scores of matched reservations, and which one is nominated on a node.

On one node: the reservation with the lowest order label; else, of reusable reservations with the
default allocate policy only the oldest counts, and of those and the rest the one that is most allocated
afterwards (a resource of which the pod requests more than is left counts as 0). Between nodes: an order
label comes first again, then the share of the pod's request that is reserved, then how much of the
reservation is allocated. Ties on one node go to the larger reserved share, then to the oldest.

A reservation that gives a pod nothing but the last slot of its node is a last resort: it comes after
every other reservation of the node, and the node after every node on which the pod needs none such.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.ledger import Ledger
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import ReservationEntry
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.cluster.view import Cells, One, Some
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.state.cluster import Cluster

Ints = NDArray[np.int64]

_STEPS = 101
"""A score has three digits of this base: the order, the reserved share and the allocated share."""
_LEVELS = 2**37 + 2**33 + 1
"""How many orders are told apart."""
_WEIGHT = 5000
"""The highest weight of a score with so many orders that fits 64 bits."""
_LAST_RESORT = 2**59
"""By how much, weighted, a last resort scores lower: less than a row that is infeasible does, but more
than its own order and all other scores add."""

INSUFFICIENT = "Reservation(s) Insufficient {}"
IN_FIGURES = ", requested: {}, used: {}, capacity: {}"
BY_RESERVATION = "Reservation(s) {}"
INSUFFICIENT_BY_NODE = "Insufficient {} by node"
TOO_MANY_PODS = "Reservation(s) Too many pods"


class AllocatingSome(Some):
    """Rows as an owner of one reservation on each of them sees them: what is left of the reservation is
    free, even if waiting reservations (pre-allocation) claim more on the row than there is."""

    __slots__ = ("_entries",)

    def __init__(self, table: NodeTable, ledger: Ledger, matched: list[ReservationEntry]) -> None:
        reservations = ledger.reservations
        super().__init__(table, np.array([entry.row for entry in matched], dtype=np.intp))
        self._entries = np.array([entry.index for entry in matched], dtype=np.intp)
        self._claimed.flags.writeable = True
        if reservations.waiting:
            awaited = [
                (at, entry.row) for at, entry in enumerate(matched) if entry.row in reservations.waiting
            ]
            for at, row in awaited:
                for slot, excess in ledger.excess(row).items():
                    self._claimed[slot, at] -= excess
        left = reservations.left[:, self._entries]
        shared = min(len(left), len(self._claimed))
        self._claimed[:shared] -= left[:shared]
        self._claimed.flags.writeable = False

    @property
    def entries(self) -> Cells:
        return self._entries


class AllocatingOne(One):
    """As `AllocatingSome`, for one row; the reservation may be a waiting one."""

    __slots__ = ("_entry",)

    def __init__(self, table: NodeTable, ledger: Ledger, entry: ReservationEntry) -> None:
        row = self.rows = entry.row
        self._entry = entry.index
        self._allocatable = table.allocatable[:, row].tolist()
        claimed = self.claims = table.claimed[:, row].tolist()
        if row in ledger.reservations.waiting and not entry.reservation.waiting:
            for slot, excess in ledger.excess(row).items():
                claimed[slot] -= excess
        for slot, left in entry.usage.remaining.items():
            claimed[slot] -= left

    @property
    def entries(self) -> Cells:
        return self._entry


class ReservationScores:
    """The reservations that a class matches, and their scores for it."""

    def __init__(
        self,
        cluster: Cluster,
        cls: PodClass,
        ignores: Callable[[str], bool],
        weight: int,
        virtual_too: bool = True,
    ) -> None:
        """`ignores` says which resources the Restricted policy does not restrict; `weight` by what
        scores are multiplied; `virtual_too` whether virtual reservations count."""
        self._cluster = cluster
        self._cls = cls
        self._sums = cluster.nodes.slots.sums
        self._asked = [(slot, amount) for slot, amount in cls.requests if slot != PODS]
        names = cluster.nodes.slots
        self._strict = [each for each in self._asked if not ignores(names.name(each[0]))]
        self._by_slot = dict(self._asked)
        self._asks_nothing = not self._asked and not cls.claims
        self._parts = len(self._asked) or 1
        self._managers = cluster.managers
        self._weight = weight
        self._order_step = -(-weight // _WEIGHT) or 1
        self._last_resort = max(1, _LAST_RESORT // (weight or 1) // _STEPS) * _STEPS
        self.matched = cluster.reservations.matched(cls)
        self.on: Callable[[int], list[ReservationEntry]] = (
            self.matched.on if self.matched is not None else _nothing
        )
        """The matched reservations on a row that can be allocated from."""
        self._virtual_too = virtual_too
        if self.matched is not None and not virtual_too:
            self.on = _real_only(self.matched.on)
        self.by_amounts = not cls.ports and not cls.volumes and not cls.claims
        """Whether pods of the class allocate nothing but amounts: no ports, volumes or devices."""
        affinity = cluster.reservations.affinity(cls)
        self.required = affinity.required
        self._one_by_name = bool(affinity.by_name)

    def among(self, rows: NDArray[np.intp]) -> list[ReservationEntry]:
        """The matched reservations on these rows, each of which is named once."""
        matched = self.matched
        if matched is None:
            return []
        if len(rows) >= self._cluster.nodes.size:
            entries = matched.everywhere()
            return entries if self._virtual_too else _real(entries)
        return [entry for row in rows.tolist() for entry in self.on(row)]

    def serving(self, matched: list[ReservationEntry]) -> list[ReservationEntry]:
        """The reservations for which `serves` is true."""
        asked = [slot for slot, _ in self._asked]
        if not matched or not asked or self._cls.claims or self._cluster.managers.awake:
            return [entry for entry in matched if self.serves(entry)]
        left = self._cluster.ledger.reservations.left[:, [entry.index for entry in matched]]
        some: NDArray[np.bool_] = np.any(left[[s for s in asked if s < len(left)]] > 0, axis=0)
        return [
            entry
            for entry, plenty in zip(matched, some, strict=True)
            if (plenty and entry.reservation.restricted is None) or self.serves(entry)
        ]

    def serves(self, entry: ReservationEntry) -> bool:
        """Whether the pod would allocate something from it, and everything its policy requires."""
        if entry.reservation.restricted is not None and self.lacking(entry):
            return False
        return self._serves_by_more(entry) or self._has_last_slot(entry)

    def _serves_by_more(self, entry: ReservationEntry) -> bool:
        """Whether there is a reason to use the reservation other than the last slot of its node."""
        reservation, remaining = entry.reservation, entry.remaining
        managed_slots = self._cluster.managers.managed_slots(self._cls, entry)
        for slot, _ in self._asked:
            if remaining.get(slot) and slot not in managed_slots:
                return True
        if managed_slots and self._cluster.managers.can_allocate_from(self._cls, entry):
            return True
        if self._shared_ports(reservation) or self._shared_claims(reservation):
            return True
        if self._cls.volumes and self._cluster.volumes.serves(self._cls, entry):
            return True
        if self._cls.claims and self._cluster.claims.serves(self._cls, entry):
            return True
        if self._is_for_slots(entry):
            return True
        # Reservation affinity is satisfied by a reservation without any resource the pod requests.
        return self.required and not any(slot in entry.amounts for slot, _ in self._asked)

    def _is_for_slots(self, entry: ReservationEntry) -> bool:
        """Whether a pod slot is reason enough to use the reservation: it reserves a number of pods, or
        nothing but its slot. Otherwise a pod that requests nothing would use up a reservation of
        resources."""
        usage, reservation = entry.usage, entry.reservation
        if not usage.remaining.get(PODS):
            return False
        return reservation.counts_pods or not (usage.named or reservation.holds_more)

    def _has_last_slot(self, entry: ReservationEntry) -> bool:
        """Whether its node has no pod slot but those that reservations hold, and this one has one."""
        if not entry.usage.remaining.get(PODS):
            return False
        nodes = self._cluster.nodes
        return nodes.claimed.item(PODS, entry.row) >= nodes.allocatable.item(PODS, entry.row)

    def _last_resorts(self, matched: list[ReservationEntry]) -> list[int]:
        """Which of these give the pod nothing but the last slot of their nodes, as positions."""
        nodes, left = self._cluster.nodes, self._cluster.ledger.reservations.left
        rows, index = [entry.row for entry in matched], [entry.index for entry in matched]
        full = nodes.claimed[PODS, rows] >= nodes.allocatable[PODS, rows]
        possible = full & (left[PODS, index] > 0)
        return [i for i in np.flatnonzero(possible).tolist() if not self._serves_by_more(matched[i])]

    def closes(self, entry: ReservationEntry) -> bool:
        """Whether pods of the class can use its node only through a reservation: it is Restricted, and
        they request resources, or it restricts the number of pods."""
        restricted = entry.reservation.restricted
        return restricted is not None and (not self._asks_nothing or PODS in restricted)

    def _lacks(self, entry: ReservationEntry, restricted: frozenset[int]) -> bool:
        """Whether a Restricted reservation is short of a resource."""
        remaining, withheld = entry.usage.remaining, entry.reservation.withheld
        for slot, amount in self._strict:
            if slot in restricted and remaining.get(slot, 0) - withheld.get(slot, 0) < amount:
                return True
        return PODS in restricted and not remaining.get(PODS)

    def lacking(self, entry: ReservationEntry) -> list[int]:
        """The slots that a Restricted reservation is short of."""
        reservation = entry.reservation
        if reservation.restricted is None:
            return []
        lacking = [
            slot
            for slot, amount in self._strict
            if slot in reservation.restricted
            and entry.left(slot) - reservation.withheld.get(slot, 0) < amount
        ]
        if PODS in reservation.restricted and not entry.left(PODS):
            lacking.append(PODS)
        return lacking

    def texts(self, matched: list[ReservationEntry]) -> list[str]:
        """Why no reservation on a row is feasible: reasons of a reservation for each of them, reasons
        of the node once."""
        names = self._cluster.nodes.slots
        found: list[str] = []
        of_node: dict[str, None] = {}
        for entry in matched:
            restricted = self.lacking(entry)
            for slot in restricted:
                text = TOO_MANY_PODS if slot == PODS else INSUFFICIENT.format(names.name(slot))
                found.append(text + self._figures(entry, slot) if self._one_by_name else text)
            view = AllocatingOne(self._cluster.nodes, self._cluster.ledger, entry)
            for slot, amount in self._asked:
                if slot not in restricted and view.free(slot) < amount:
                    of_node[INSUFFICIENT_BY_NODE.format(names.name(slot))] = None
            found += map(BY_RESERVATION.format, self._cluster.managers.reasons(self._cls, entry))
        return [*found, *of_node]

    def enough_combined(self, matched: list[ReservationEntry]) -> bool:
        """Whether a row without enough free capacity would have enough if a pod could allocate from all
        of these reservations at once."""
        if not matched:
            return False
        view, lacks = One(self._cluster.nodes, matched[0].row), False
        for slot, amount in self._asked:
            free = view.free(slot)
            if free < amount:
                lacks = True
                if free + sum(entry.left(slot) for entry in matched) < amount:
                    return False
        return lacks

    def _figures(self, entry: ReservationEntry, slot: int) -> str:
        """The figures of a resource that a Restricted reservation is short of; cpu in millicores."""
        asked = 1 if slot == PODS else self._by_slot[slot]
        capacity = entry.amounts.get(slot, 0) - entry.reservation.withheld.get(slot, 0)
        return IN_FIGURES.format(asked, entry.taken.get(slot, 0), capacity)

    def scores(self, matched: list[ReservationEntry]) -> Ints:
        """The score of each reservation that serves; higher is better, and negative for last
        resorts."""
        reservations = self._cluster.ledger.reservations
        index = [entry.index for entry in matched]
        left, amounts = reservations.left[:, index], reservations.amounts[:, index]
        share: Any = np.zeros(len(index), dtype=np.int64)
        for slot, amount in self._asked:
            if slot < len(left):
                share = share + 100 * np.minimum(left[slot], amount) // amount
        if not self._asked:
            share = np.where(left[PODS] > 0, 100, 0)
        share //= max(1, len(self._asked))
        asked = np.zeros(len(left), dtype=np.int64)
        for slot, amount in self._asked:
            if slot < len(left):
                asked[slot] = amount
        after = np.where(left < asked[:, None], 0, amounts - left + asked[:, None])
        counted = amounts > 0
        counted[[PODS, *(slot for slot in self._sums if slot < len(counted))]] = False
        part = np.where(counted, 100 * after // np.maximum(amounts, 1), 0).sum(axis=0)
        filled = part // np.maximum(counted.sum(axis=0), 1)
        score: Ints = share * _STEPS + filled
        orders = [entry.reservation.order for entry in matched]
        by_order = np.zeros(len(index), dtype=np.int64)
        if any(orders):
            by_order += np.array([self._order_score(order) for order in orders], dtype=np.int64)
        score += by_order
        if last := self._last_resorts(matched):
            score[last] = by_order[last] // _STEPS + filled[last] - self._last_resort
        return score

    def score_of(self, entry: ReservationEntry) -> int | None:
        """The same for one reservation, without arrays; None if `serves` is false."""
        reservation, usage, asked = entry.reservation, entry.usage, self._by_slot
        remaining, named = usage.remaining, usage.named
        share = filled = 0
        sure = not self._managers.awake
        some = False
        for slot, amount in self._asked:
            left = remaining.get(slot)
            if left:
                some = True
                share += 100 if left >= amount else 100 * left // amount
        if sure and (some or (self.by_amounts and not self.required)):
            by_more = some or self._is_for_slots(entry)
            if not (by_more or self._has_last_slot(entry)) or (
                reservation.restricted is not None and self._lacks(entry, reservation.restricted)
            ):
                return None
        elif self.serves(entry):
            by_more = not self._has_last_slot(entry) or self._serves_by_more(entry)
        else:
            return None
        if not self._asked and remaining.get(PODS):
            share = 100
        for slot, reserved in named:
            unused = remaining.get(slot, 0) - asked.get(slot, 0)
            if unused >= 0:
                filled += 100 * (reserved - unused) // reserved
        filled //= len(named) or 1
        by_order = self._order_score(reservation.order) if reservation.order else 0
        if not by_more:
            return by_order // _STEPS + filled - self._last_resort
        return share // self._parts * _STEPS + filled + by_order

    def weighted(self, score: Any) -> Any:
        """What a score, or each of several, adds to the total of a row. A last resort is one without a
        weight too."""
        return self._weight * score if self._weight else score * (score < 0)

    def _order_score(self, order: int) -> int:
        """Exceeds every other score; higher for a lower order. A score has 64 bits, so orders are
        distinct up to 2**36, in steps of 64 up to 2**42 (they may be milliseconds since 1970), and in
        steps of half a billion beyond; in larger steps if the score's weight is above the default."""
        if not order:
            return 0
        if order < 2**36:
            level = max(order, -(2**33))
        elif order < 2**42:
            level = 2**36 + (order - 2**36) // 2**6
        else:
            level = 2**37 + min((order - 2**42) // 2**29, 2**33)
        return (_LEVELS - level) // self._order_step * _STEPS * _STEPS

    def _shared_ports(self, reservation: ReservationInfo) -> set[Any]:
        return (
            set(self._cls.ports) & set(reservation.pod.cls.ports)
            if reservation.pod is not None
            else set()
        )

    def _shared_claims(self, reservation: ReservationInfo) -> bool:
        """Whether the pod and the reservation name the same claim of one namespace."""
        if reservation.pod is None or reservation.pod.cls.namespace != self._cls.namespace:
            return False
        return not _claims(self._cls).isdisjoint(_claims(reservation.pod.cls))


def _claims(cls: PodClass) -> set[str]:
    claims = (volume.persistent_volume_claim for volume in cls.volumes)
    return {claim.claim_name for claim in claims if claim is not None}


def _nothing(row: int) -> list[ReservationEntry]:
    return []


def _real(entries: list[ReservationEntry]) -> list[ReservationEntry]:
    return [entry for entry in entries if not entry.reservation.virtual]


def _real_only(on: Callable[[int], list[ReservationEntry]]) -> Callable[[int], list[ReservationEntry]]:
    return lambda row: _real(on(row))


def nominate(scored: list[tuple[ReservationInfo, int]]) -> int:
    """Which of a row's feasible reservations to nominate, as a position in the list."""
    among = [(i, p) for i, (p, score) in enumerate(scored) if score >= 0]
    among = among or [(i, p) for i, (p, _) in enumerate(scored)]
    ordered = [(p.order, _age(p), i) for i, p in among if p.order]
    if ordered:
        return min(ordered)[-1]
    shared = [(_age(p), i) for i, p in among if _is_shared(p)]
    left = [i for i, p in among if not _is_shared(p)]
    if shared:
        left.append(min(shared)[-1])

    def merit(i: int) -> tuple[int, int, tuple[float, str]]:
        reservation, score = scored[i]
        return -(score % _STEPS), -(score // _STEPS % _STEPS), _age(reservation)

    return min(left, key=merit)


def _is_shared(reservation: ReservationInfo) -> bool:
    return reservation.reusable and reservation.plain


def _age(reservation: ReservationInfo) -> tuple[float, str]:
    return reservation.created, reservation.name
