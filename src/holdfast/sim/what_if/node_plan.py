"""The smallest number of nodes of given shapes with which everything fits.

An attempt is the same question with so many more nodes, asked of the scheduler; nothing is computed
from sums alone, except that a number of nodes with too little in total is not tried.

    1  the numbers are doubled until everything fits, or more nodes stop helping
    2  each number is reduced in turn to the smallest that suffices, in every order of the shapes
    3  smaller totals are tried one by one, as long as there are few; then the answer is exact

Equal pods without constraints on one another fit on more nodes if they fit on fewer, so that for one
shape the second step finds the smallest number.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, NamedTuple

from holdfast.api.plurals import number_of

_MOST_ATTEMPTS = 64
"""Smaller totals that are tried one by one."""
_MOST_ORDERS = 6
_MOST_NODES = 10_000
_IDLE_DOUBLINGS = 2
_FEW = 16

Counts = tuple[int, ...]
"""How many nodes of each shape."""


class PendingReason(NamedTuple):
    """A reason, and whether it is reservations that it keeps pending, or pods."""

    reason: str
    is_reservation: bool = False


class PendingCount(NamedTuple):
    """How many pods and reservations have no node."""

    pods: int = 0
    reservations: int = 0

    @property
    def total(self) -> int:
        return self.pods + self.reservations

    def __str__(self) -> str:
        """Such as `2 pods`, or `2 pods and 1 reservation`."""
        each = ((self.pods, "pod"), (self.reservations, "reservation"))
        return " and ".join(number_of(count, one) for count, one in each if count)


_NONE = PendingCount()


class AttemptResult(NamedTuple):
    """With so many nodes."""

    pending: PendingCount
    reasons: Mapping[PendingReason, int]
    """How many of them each reason keeps pending."""
    requests: Mapping[str, int]
    """What they request in total."""
    free: Mapping[str, int]
    """What is free in total."""
    awaited: int = 0
    """How many pods are made, or evicted from a drained node, only when others are ready."""
    is_uniform: bool = False
    """Whether all pods that are placed or pending are equal, and without constraints on others."""

    placed: int = 0
    """How many got a node. They may take new nodes, so that these do not help the others."""

    @property
    def unmet(self) -> int:
        return self.pending.total + self.awaited


Attempt = Callable[[Counts], AttemptResult]
Reasons = Callable[[Counts], Mapping[PendingReason, int]]
"""With so many nodes: how many pods and reservations each reason keeps from the new ones."""


@dataclass(slots=True)
class NodePlan:
    nodes: dict[str, int]
    """How many nodes of each shape."""
    fits: bool
    """Whether everything fits with them."""
    exact: bool
    """Whether all smaller numbers were tried, or have too little in total, or cannot suffice because
    one node less does not."""
    binding: dict[str, PendingCount] = field(default_factory=dict)
    """With one node less: how many pods and reservations each reason keeps pending."""
    unplaceable: PendingCount = _NONE
    """How many pods and reservations no number of these nodes helps."""
    unplaceable_reasons: dict[str, PendingCount] = field(default_factory=dict)
    attempts: int = 0

    @property
    def total(self) -> int:
        return sum(self.nodes.values())

    def data(self) -> dict[str, Any]:
        return {
            "nodes": [{"shape": shape, "count": count} for shape, count in self.nodes.items()],
            "total": self.total,
            "fits": self.fits,
            "exact": self.exact,
            "binding": _reasons(self.binding),
            "unplaceable": self.unplaceable.total,
            "unplaceableReasons": _reasons(self.unplaceable_reasons),
        }


def most_frequent_first(counts: Mapping[str, PendingCount]) -> list[tuple[str, PendingCount]]:
    return sorted(counts.items(), key=lambda each: (-each[1].total, each[0]))


def _reasons(counts: Mapping[str, PendingCount]) -> list[dict[str, Any]]:
    return [
        {"reason": reason, "pods": count.pods, "reservations": count.reservations}
        for reason, count in most_frequent_first(counts)
    ]


def _by_reason(counts: Mapping[PendingReason, int]) -> dict[str, PendingCount]:
    return {
        reason: PendingCount(
            counts.get(PendingReason(reason), 0), counts.get(PendingReason(reason, True), 0)
        )
        for reason, _ in counts
    }


class NodePlanner:
    """`shapes` are texts of shapes, and `sizes` what a node of each offers."""

    def __init__(
        self,
        shapes: Sequence[str],
        sizes: Sequence[Mapping[str, int]],
        attempt: Attempt,
        reasons: Reasons | None = None,
    ) -> None:
        self._reasons = reasons
        self._shapes = shapes
        self._sizes = sizes
        self._ask = attempt
        self._known: dict[Counts, AttemptResult] = {}
        self._left = 0
        """How many are unmet with any number of nodes."""
        self._needed: dict[str, int] = {}
        """What new nodes must offer in total."""

    def plan(self) -> NodePlan:
        none = (0,) * len(self._shapes)
        enough = self._enough(none)
        last = self._attempt(enough)
        self._left = last.unmet
        self._needed = _missing(self._attempt(none), last)
        best, exact = none, True
        if not self._suffices(none):
            best = self._reduced(enough)
            best, exact = self._smaller(best)
        fewer = [(*best[:i], best[i] - 1, *best[i + 1 :]) for i in range(len(best)) if best[i] > 0]
        binding: Counter[PendingReason] = Counter()
        for counts in fewer:
            result = self._attempt(counts)
            extra = Counter(result.reasons)
            extra.subtract(last.reasons)
            binding |= +extra
        return NodePlan(
            nodes=dict(zip(self._shapes, best, strict=True)),
            fits=not last.pending.total,
            exact=exact,
            binding=_by_reason(binding),
            unplaceable=last.pending,
            unplaceable_reasons=_by_reason(self._why(last)) if last.pending.total else {},
            attempts=len(self._known),
        )

    def _attempt(self, counts: Counts) -> AttemptResult:
        if counts not in self._known:
            self._known[counts] = self._ask(counts)
        return self._known[counts]

    def _why(self, last: AttemptResult) -> Mapping[PendingReason, int]:
        """Why the most nodes that were tried do not help."""
        most = max(self._known, key=sum)
        return (self._reasons(most) if self._reasons is not None else {}) or last.reasons

    def _suffices(self, counts: Counts) -> bool:
        return self._attempt(counts).unmet <= self._left

    def _enough(self, none: Counts) -> Counts:
        """So many of each that more do not help."""
        start = self._attempt(none)
        fewest, enough, idle = start.unmet, none, 0
        most = min(start.unmet + start.placed, _MOST_NODES)
        number = max(1, self._least_total(_missing(start, None)))
        while fewest and enough != (most,) * len(none):
            counts = (min(number, most),) * len(none)
            now = self._attempt(counts).unmet
            idle = 0 if now < fewest else idle + 1
            if now < fewest:
                fewest, enough = now, counts
            if number >= most:
                break
            if number >= _FEW and idle >= _IDLE_DOUBLINGS and self._has_more(none, counts):
                break
            number *= 2
        return enough

    def _has_more(self, none: Counts, counts: Counts) -> bool:
        """Whether these nodes have more of everything than all pending pods request."""
        start = self._attempt(none)
        return all(
            self._amount_of(name, counts) + start.free.get(name, 0) >= amount
            for name, amount in start.requests.items()
            if any(name in size for size in self._sizes)
        )

    def _amount_of(self, resource: str, counts: Counts) -> int:
        return sum(
            size.get(resource, 0) * count for size, count in zip(self._sizes, counts, strict=True)
        )

    def _least_total(self, needed: Mapping[str, int]) -> int:
        """As many nodes of the largest shape as it takes to offer that much."""
        largest = {name: max(size.get(name, 0) for size in self._sizes) for name in needed}
        found = (-(-amount // largest[name]) for name, amount in needed.items() if largest[name])
        return max(found, default=0)

    def _may_suffice(self, counts: Counts) -> bool:
        """Whether the nodes offer as much in total as is needed."""
        return all(self._amount_of(name, counts) >= amount for name, amount in self._needed.items())

    def _reduced(self, enough: Counts) -> Counts:
        """No number can be reduced further; of all orders of reducing them, the smallest total."""
        found = []
        for order in [*permutations(range(len(enough)))][:_MOST_ORDERS]:
            counts = enough
            for i in order:
                counts = self._least(counts, i)
            found.append(counts)
        return min(found, key=lambda each: (sum(each), [-count for count in each]))

    def _least(self, counts: Counts, i: int) -> Counts:
        """With the smallest number of shape i that suffices beside the others, by bisection."""
        low, high = -1, counts[i]
        while high - low > 1:
            middle = (low + high) // 2
            tried = (*counts[:i], middle, *counts[i + 1 :])
            if self._may_suffice(tried) and self._suffices(tried):
                high = middle
            else:
                low = middle
        return (*counts[:i], high, *counts[i + 1 :])

    def _smaller(self, best: Counts) -> tuple[Counts, bool]:
        """A smaller total if there is one, and whether all smaller ones were tried."""
        if len(best) == 1 and all(each.is_uniform for each in self._known.values()):
            return best, True
        tried = 0
        for counts in self._totals(len(best), sum(best)):
            if not self._may_suffice(counts):
                continue
            tried += counts not in self._known
            if tried > _MOST_ATTEMPTS:
                return best, False
            if self._suffices(counts):
                return counts, True
        return best, True

    def _totals(self, shapes: int, below: int) -> Iterator[Counts]:
        """All numbers with a smaller total, the smallest totals first."""
        least = self._least_total(self._needed)
        for total in range(least, below):
            yield from _divided(total, shapes)


def _divided(total: int, parts: int) -> Iterator[Counts]:
    """All ways to divide a number, most for the first part first."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):
        for rest in _divided(total - first, parts - 1):
            yield (first, *rest)


def _missing(start: AttemptResult, last: AttemptResult | None) -> dict[str, int]:
    """What is requested beyond what is free without new nodes, but for pods that these do not help."""
    found = {}
    for name, amount in start.requests.items():
        left = last.requests.get(name, 0) if last is not None else 0
        short = amount - left - start.free.get(name, 0)
        if short > 0:
            found[name] = short
    return found
