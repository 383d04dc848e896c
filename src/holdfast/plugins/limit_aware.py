"""LimitAware: the limits of a node's pods may add up to so much of what it has, and no more; and of
several nodes the one is better where they add up to less."""

from collections.abc import Mapping
from typing import Any

from holdfast.core.changes import Change
from holdfast.core.classes import PodClass
from holdfast.core.limit_sums import UNLIMITED
from holdfast.core.view import Cells, One, View
from holdfast.framework.cluster_plugin import ClusterPlugin
from holdfast.framework.config import LimitAwareArgs
from holdfast.framework.handle import Handle
from holdfast.framework.interface import (
    MAX_SCORE,
    ByRange,
    Filter,
    Reason,
    Scope,
    Score,
    Settled,
)
from holdfast.plugins.limit_ceilings import Ceiling, Ceilings

REASON = "Insufficient {} limit"
REASON_MALFORMED = "node(s) had a malformed limit-to-allocatable annotation"

_LEAST_LEFT = -(2**56)
_WORST = -(10**13)
"""Bounds beyond anything that makes sense, within which sums stay within 64 bits."""


class LimitAware(ClusterPlugin):
    name = "LimitAware"
    wakes_on = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.NODE_OTHER | Change.POD_LEFT

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        given = args if isinstance(args, LimitAwareArgs) else LimitAwareArgs()
        self._weights = {resource.name: resource.weight for resource in given.resources}
        self._ceilings = Ceilings(self.cluster, given.default_limit_to_allocatable_ratio)
        self._version = Settled(self._ceilings.version)

    def filter(self, cls: PodClass) -> Filter | None:
        if any(owner.kind == "DaemonSet" for owner in cls.owners):
            return None
        ceilings = self._ceilings
        wanted = [
            (ceiling, amount, REASON.format(resource))
            for resource, ceiling in sorted(ceilings.by_resource.items())
            if (amount := cls.limits.of(resource))
        ]
        _, some_malformed = ceilings.version()
        if not wanted and not some_malformed:
            return Filter.nothing(self._version)
        left = self._left_ahead if cls.ahead else _left
        needs = [(ceiling.column, ceiling.counted.slot, amount) for ceiling, amount, _ in wanted]
        plain = not cls.ahead and not some_malformed

        def passes(view: View) -> Cells:
            if not (plain and isinstance(view, One)):
                return several(view)
            row, claims = view.rows, view.claims
            for most, slot, amount in needs:
                if most.cells.item(row) - claims[slot] < amount:
                    break
            else:
                return True
            return False

        def several(view: View) -> Cells:
            enough = view.take(ceilings.valid) if some_malformed else True
            for ceiling, amount, _ in wanted:
                enough = enough & (left(view, ceiling) >= amount)
            return enough

        def reasons(view: View) -> list[Reason]:
            malformed = view.negate(view.take(ceilings.valid))
            return [Reason(REASON_MALFORMED, malformed, resolvable=False)] + [
                Reason(
                    text,
                    left(view, ceiling) < amount,
                    resolvable=view.take(ceiling.cells) >= amount,
                )
                for ceiling, amount, text in wanted
            ]

        kind = None if cls.ahead else ceilings.kind
        return Filter(passes, reasons, Scope.USAGE, self._version, kind=kind)

    def _left_ahead(self, view: View, ceiling: Ceiling) -> Cells:
        """For a reservation made ahead of time pods that will end are as good as gone."""
        table, slot = self.cluster.nodes, ceiling.counted.slot
        kept = view.take(table.reserved[slot]) + view.take(table.permanent[slot])
        return view.take(ceiling.cells) - kept

    def score(self, cls: PodClass) -> Score:
        """The share of what limits may add up to that would still be left; less than nothing where they
        add up to more already."""
        counted = [
            (ceiling, ceiling.column, ceiling.counted.scored, cls.limits.scored(resource), weight)
            for resource, weight in self._weights.items()
            if (ceiling := self._ceilings.by_resource.get(resource)) is not None
        ]
        if not counted:
            return Score.same(0, self._version)

        def score(view: View) -> Cells:
            if not isinstance(view, One):
                return several(view)
            total = weights = 0
            row, claims = view.rows, view.claims
            for _, column, slot, added, weight in counted:
                most = column.cells.item(row)
                if most < UNLIMITED and most > 0:
                    left = (most - claims[slot] - added) * MAX_SCORE
                    if left >= 0:
                        total += left // most * weight
                    else:
                        total -= min(-left // most, -_WORST) * weight
                    weights += weight
            if total < 0:
                return -(-total // weights)
            return total // weights if weights else 0

        def several(view: View) -> Cells:
            """As for one row, in what arrays understand."""
            total, weights = 0, 0
            for ceiling, _, slot, added, weight in counted:
                most = view.take(ceiling.cells)
                counts = (most > 0) & (most < UNLIMITED)
                most = most * counts
                left = view.maximum(most - view.claimed(slot) - added, _LEAST_LEFT)
                part = toward_zero(left * MAX_SCORE, most + (most == 0))
                total = total + view.maximum(part, _WORST) * weight * counts
                weights = weights + weight * counts
            return toward_zero(total, weights + (weights == 0))

        return Score(
            score,
            Scope.USAGE,
            ByRange(),
            self._version,
            by_amounts=True,
            kind=self._ceilings.kind,
        )


def _left(view: View, ceiling: Ceiling) -> Cells:
    return view.take(ceiling.cells) - view.claimed(ceiling.counted.slot)


def toward_zero(dividend: Cells, divisor: Cells) -> Cells:
    """Without what is behind the point, whatever the sign."""
    return abs(dividend) // divisor * (1 - 2 * (dividend < 0))
