"""What reservations are worth to pods that may draw on them.

Which reservation of a row is used: the one with the lowest order; else, of reusable ones without a
policy only the oldest counts, and of what is left the one of which most ends up allocated. Between
nodes, an order comes first again; then the share of the pod's request that is reserved; then how much
of the reservation ends up allocated.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.classes import PodClass
from holdfast.core.cluster import Cluster
from holdfast.core.holds import Hold, HoldTable
from holdfast.core.nodes import NodeTable
from holdfast.core.promises import Promise
from holdfast.core.slots import PODS
from holdfast.core.view import Cells, One, Some

Ints = NDArray[np.int64]

_STEPS = 101
_MOST_ORDER = 2**42

INSUFFICIENT = "Reservation(s) Insufficient {}"
INSUFFICIENT_BY_NODE = "Insufficient {} by node"
TOO_MANY_PODS = "Reservation(s) Too many pods"


class DrawnSome(Some):
    """Rows as an owner of one reservation on each of them sees them."""

    __slots__ = ("_holds",)

    def __init__(self, table: NodeTable, holds: HoldTable, drawn: list[Hold]) -> None:
        super().__init__(table, np.array([hold.row for hold in drawn], dtype=np.intp))
        self._holds = np.array([hold.index for hold in drawn], dtype=np.intp)
        left = holds.left[:, self._holds]
        shared = min(len(left), len(self._claimed))
        self._claimed[:shared] -= left[:shared]

    @property
    def holds(self) -> Cells:
        return self._holds


class DrawnOne(One):
    __slots__ = ("_hold",)

    def __init__(self, table: NodeTable, hold: Hold) -> None:
        super().__init__(table, hold.row)
        self._hold = hold.index
        claimed = self._claimed
        for slot, left in hold.remaining.items():
            claimed[slot] -= left

    @property
    def holds(self) -> Cells:
        return self._hold


class Drawing:
    """Of one class."""

    def __init__(self, cluster: Cluster, cls: PodClass) -> None:
        self._cluster = cluster
        self._cls = cls
        self._sums = cluster.nodes.slots.sums
        self._asked = [(slot, amount) for slot, amount in cls.requests if slot != PODS]
        self._by_slot = dict(self._asked)
        self.draws = cluster.promises.drawable(cls)
        self.required = cluster.promises.wish(cls).required

    def among(self, rows: NDArray[np.intp]) -> list[int]:
        """Those of the rows that have reservations the class may draw on."""
        if self.draws is None:
            return []
        known = self.draws.rows()
        return known if len(rows) >= self._cluster.nodes.size else np.intersect1d(rows, known).tolist()

    def on(self, row: int) -> list[Hold]:
        """The reservations there that can be drawn on."""
        return self.draws.on(row) if self.draws is not None else []

    def serves(self, hold: Hold) -> bool:
        """Whether the pod would draw something of it, and all it must."""
        promise, remaining = hold.promise, hold.remaining
        if promise.restricted is not None and self.lacking(hold):
            return False
        particular = self._cluster.belongings.particular(self._cls, hold.row)
        for slot, _ in self._asked:
            if remaining.get(slot) and slot not in particular:
                return True
        if particular and self._cluster.belongings.draws(self._cls, hold):
            return True
        return bool(self._shared_ports(promise) or self._shared_claims(promise))

    def lacking(self, hold: Hold) -> list[int]:
        """The slots a restricted reservation has not enough of."""
        promise = hold.promise
        if promise.restricted is None:
            return []
        lacking = [
            slot
            for slot, amount in self._asked
            if slot in promise.restricted and hold.left(slot) - promise.withheld.get(slot, 0) < amount
        ]
        if hold.amounts.get(PODS, 0) > 1 and not hold.left(PODS):
            lacking.append(PODS)
        return lacking

    def texts(self, drawn: list[Hold]) -> list[str]:
        """Why none of the reservations on a row will do."""
        names = self._cluster.nodes.slots
        found: dict[str, None] = {}
        for hold in drawn:
            restricted = self.lacking(hold)
            for slot in restricted:
                found[TOO_MANY_PODS if slot == PODS else INSUFFICIENT.format(names.name(slot))] = None
            view = DrawnOne(self._cluster.nodes, hold)
            for slot, amount in self._asked:
                if slot not in restricted and view.free(slot) < amount:
                    found[INSUFFICIENT_BY_NODE.format(names.name(slot))] = None
        return list(found)

    def worth(self, drawn: list[Hold]) -> Ints:
        """Of a node with this reservation; the bigger the better."""
        holds = self._cluster.ledger.holds
        index = [hold.index for hold in drawn]
        left, amounts = holds.left[:, index], holds.amounts[:, index]
        share: Any = np.zeros(len(index), dtype=np.int64)
        for slot, amount in self._asked:
            if slot < len(left):
                share = share + 100 * np.minimum(left[slot], amount) // amount
        share //= max(1, len(self._asked))
        asked = np.zeros(len(left), dtype=np.int64)
        for slot, amount in self._asked:
            if slot < len(left):
                asked[slot] = amount
        after = amounts - np.maximum(0, left - asked[:, None])
        counted = amounts > 0
        counted[[PODS, *(slot for slot in self._sums if slot < len(counted))]] = False
        part = np.where(counted, 100 * after // np.maximum(amounts, 1), 0).sum(axis=0)
        filled = part // np.maximum(counted.sum(axis=0), 1)
        worth: Ints = share * _STEPS + filled
        worth += np.array([_order_worth(hold.promise.order) for hold in drawn], dtype=np.int64)
        return worth

    def worth_of(self, hold: Hold) -> int:
        """The same for one, without arrays."""
        remaining, asked = hold.remaining, self._by_slot
        share = filled = parts = 0
        for slot, amount in self._asked:
            left = remaining.get(slot, 0)
            share += 100 if left >= amount else 100 * left // amount
        for slot, promised in hold.amounts.items():
            if slot == PODS or slot in self._sums:
                continue
            parts += 1
            unused = remaining.get(slot, 0) - asked.get(slot, 0)
            filled += 100 if unused <= 0 else 100 * (promised - unused) // promised
        worth = share // max(1, len(self._asked)) * _STEPS + filled // max(1, parts)
        order = hold.promise.order
        return worth + _order_worth(order) if order else worth

    def _shared_ports(self, promise: Promise) -> set[Any]:
        return set(self._cls.ports) & set(promise.pod.cls.ports) if promise.pod is not None else set()

    def _shared_claims(self, promise: Promise) -> bool:
        if promise.pod is None or not self._cls.volumes or not promise.pod.cls.volumes:
            return False
        mine = {v.persistent_volume_claim for v in self._cls.volumes if v.persistent_volume_claim}
        theirs = promise.pod.cls.volumes
        return any(v.persistent_volume_claim in mine for v in theirs if v.persistent_volume_claim)


def pick(worths: list[tuple[Promise, int]]) -> int:
    """Which of a row's reservations to use, as a position in the list."""
    ordered = [(p.order, _age(p), i) for i, (p, _) in enumerate(worths) if p.order]
    if ordered:
        return min(ordered)[-1]
    shared = [(_age(p), i) for i, (p, _) in enumerate(worths) if _is_shared(p)]
    left = [i for i, (p, _) in enumerate(worths) if not _is_shared(p)]
    if shared:
        left.append(min(shared)[-1])
    return min(left, key=lambda i: (-(worths[i][1] % _STEPS), _age(worths[i][0])))


def _is_shared(promise: Promise) -> bool:
    return promise.reusable and promise.plain


def _age(promise: Promise) -> tuple[float, str]:
    return promise.created, promise.name


def _order_worth(order: int) -> int:
    """More than anything else, and the more the lower the order."""
    if not order:
        return 0
    return (_MOST_ORDER - max(-_MOST_ORDER + 1, min(order, _MOST_ORDER - 1))) * _STEPS * _STEPS
