"""How far holds are used up, as states that many holds share.

Thousands of reservations are alike, and so are their owners: one after the other they go the same way
from untouched to used up. So what a hold promises, what was taken of it and what is left is kept once
for all holds of which it is true, and never changed; a hold goes from one such state to another. What
a pod of some class does to a state by coming or going is worked out once, too.
"""

from collections.abc import Collection
from typing import NamedTuple

from holdfast.core.classes import PodClass
from holdfast.core.slots import PODS

Amounts = dict[int, int]
Pairs = tuple[tuple[int, int], ...]
"""Slots and amounts."""

_KEPT = 4096


class Fill:
    """Two are the same only if they are one; equal ones may be there twice, though mostly are not."""

    __slots__ = ("amounts", "named", "remaining", "taken")

    def __init__(self, amounts: Amounts, taken: Amounts, named: Pairs) -> None:
        self.amounts = amounts
        """What is promised, by slot."""
        self.taken = taken
        """What pods that draw on it ask for, of the slots it promises; not capped."""
        self.remaining = {slot: max(0, amount - taken.get(slot, 0)) for slot, amount in amounts.items()}
        """What is left, which the hold itself claims."""
        self.named = named
        """What is promised, less the pods and what is summed up besides resources."""


class Step(NamedTuple):
    """A pod that draws on a hold comes to its row, or leaves it."""

    fill: Fill
    """What the hold is like then."""
    claims: Pairs
    """What is claimed of the row by then, more or less than before, by pod and hold together. Mostly
    little: what a pod asks for is claimed already, by the hold."""


class Fills:
    def __init__(self, sums: Collection[int]) -> None:
        """`sums` are the slots that are no resources of their own."""
        self._sums = sums
        self._known: dict[tuple[Pairs, Pairs], Fill] = {}
        self._steps: dict[tuple[Fill, int, int], Step] = {}

    def untouched(self, amounts: Amounts) -> Fill:
        return self._of(amounts, {})

    def after(self, fill: Fill, cls: PodClass, sign: int) -> Fill:
        """A pod of the class draws on it, or does so no more."""
        asked, taken = dict(cls.usage), {}
        for slot in fill.amounts:
            amount = fill.taken.get(slot, 0) + sign * asked.get(slot, 0)
            if amount:
                taken[slot] = amount
        return self._of(fill.amounts, taken)

    def step(self, fill: Fill, cls: PodClass, sign: int) -> Step:
        """The same with a pod that comes to the row, or leaves it."""
        key = (fill, cls.id, sign)
        step = self._steps.get(key)
        if step is None:
            after = self.after(fill, cls, sign)
            claims = {slot: sign * amount for slot, amount in cls.usage}
            for slot, left in after.remaining.items():
                claims[slot] = claims.get(slot, 0) + left - fill.remaining[slot]
            if len(self._steps) >= _KEPT:
                self._steps.clear()
            pairs = tuple((slot, amount) for slot, amount in claims.items() if amount)
            step = self._steps[key] = Step(after, pairs)
        return step

    def forget_steps(self) -> None:
        """Pods of a class may claim something else by now."""
        self._steps.clear()

    def _of(self, amounts: Amounts, taken: Amounts) -> Fill:
        key = tuple(amounts.items()), tuple(taken.items())
        fill = self._known.get(key)
        if fill is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            named = tuple(
                [(slot, n) for slot, n in amounts.items() if slot != PODS and slot not in self._sums]
            )
            fill = self._known[key] = Fill(amounts, taken, named)
        return fill
