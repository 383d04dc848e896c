"""The usage of reservations, as immutable states that many reservations share.

Thousands of reservations are alike, and so are their owners: each goes through the same states from
unused to used up. So a state (reserved, allocated and remaining amounts) is one immutable object for
all reservations that are in it, and a reservation moves from one state to the next. The state that
follows when a pod of a class is added or removed is memoized.
"""

from collections.abc import Collection
from typing import NamedTuple

from holdfast.api.memo import Memo
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import PODS, Amounts, Pairs

_KEPT = 4096


class ReservationUsage:
    """A state of a reservation's usage. Compared by identity; two objects with equal amounts are rare
    and do no harm."""

    __slots__ = ("amounts", "named", "remaining", "taken")

    def __init__(self, amounts: Amounts, taken: Amounts, named: Pairs) -> None:
        self.amounts = amounts
        """The reserved amounts, by slot."""
        self.taken = taken
        """The requests of the pods allocated from it, for the slots it reserves; not capped."""
        self.remaining = {slot: max(0, amount - taken.get(slot, 0)) for slot, amount in amounts.items()}
        """The reserved amounts that are not allocated, which the reservation itself claims."""
        self.named = named
        """The reserved amounts of resources: without the slot of pods and without derived sums."""


class Step(NamedTuple):
    """What happens when a pod that is allocated from a reservation is added to its row, or removed."""

    usage: ReservationUsage
    """The reservation's usage after it."""
    claims: Pairs
    """By how much the claims on the row change, of pod and reservation together. Mostly little: the
    reservation already claims what the pod requests."""
    freed: Pairs
    """By how much they fall, of what falls."""


class UsageStates:
    """The states of usage in use, and the memoized steps between them."""

    def __init__(self, sums: Collection[int]) -> None:
        """`sums` are the slots of derived sums, which are not resources."""
        self._sums = sums
        self._known: Memo[tuple[Pairs, Pairs], ReservationUsage] = Memo(_KEPT)
        self._steps: Memo[tuple[ReservationUsage, int, int], Step] = Memo(_KEPT)

    def untouched(self, amounts: Amounts) -> ReservationUsage:
        """The usage of a reservation from which no pod is allocated."""
        return self._of(amounts, {})

    def after(self, usage: ReservationUsage, cls: PodClass, sign: int) -> ReservationUsage:
        """The usage when a pod of the class is allocated from the reservation too (+1), or one less
        is (-1)."""
        asked, taken = dict(cls.usage), {}
        for slot in usage.amounts:
            amount = usage.taken.get(slot, 0) + sign * asked.get(slot, 0)
            if amount:
                taken[slot] = amount
        return self._of(usage.amounts, taken)

    def step(self, usage: ReservationUsage, cls: PodClass, sign: int) -> Step:
        """The same for a pod that is added to the row (+1) or removed from it (-1), with the change of
        claims."""
        key = (usage, cls.id, sign)
        step = self._steps.get(key)
        if step is None:
            after = self.after(usage, cls, sign)
            claims = {slot: sign * amount for slot, amount in cls.usage}
            for slot, left in after.remaining.items():
                claims[slot] = claims.get(slot, 0) + left - usage.remaining[slot]
            pairs = tuple((slot, amount) for slot, amount in claims.items() if amount)
            freed = tuple((slot, -amount) for slot, amount in pairs if amount < 0)
            step = self._steps[key] = Step(after, pairs, freed)
        return step

    def forget_steps(self) -> None:
        """Forgets memoized steps, because the usage of classes has changed."""
        self._steps.clear()

    def _of(self, amounts: Amounts, taken: Amounts) -> ReservationUsage:
        key = tuple(amounts.items()), tuple(taken.items())
        usage = self._known.get(key)
        if usage is None:
            named = tuple(
                [(slot, n) for slot, n in amounts.items() if slot != PODS and slot not in self._sums]
            )
            usage = self._known[key] = ReservationUsage(amounts, taken, named)
        return usage
