"""The limits of pods: the most each may use.

Most clusters never ask for their sums, so a resource's are counted only from the moment somebody does
(`holdfast.scheduler.cluster.limit_sums`). Then they are slots of the node table like any other: the
ledger keeps them, a reservation holds those of its template, and its owners take them over.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from holdfast.api.pod import Pod
from holdfast.api.resources import NON_ZERO, pod_limits
from holdfast.scheduler.cluster.slots import capped


class CountedLimit(NamedTuple):
    """A resource whose limits are summed up on every row."""

    offered: int
    """The slot of the resource itself."""
    slot: int
    scored: int
    """The slot of the sum in which a container that says nothing of cpu or memory counts with a small
    default; for other resources the same slot."""


CountedLimits = dict[str, CountedLimit]
"""By resource."""


NO_FLOOR: Mapping[int, int] = MappingProxyType({})


class PodLimits:
    """Of the pods of one class."""

    __slots__ = ("_counted", "_floor", "_plain", "_pod", "_scored")

    def __init__(self, pod: Pod, counted: CountedLimits, floor: Mapping[int, int] = NO_FLOOR) -> None:
        """`floor` gives amounts, by slot of the resource, below which no limit is."""
        self._pod = pod
        self._counted = counted
        self._floor = floor
        self._plain: Mapping[str, int] | None = None
        self._scored: Mapping[str, int] | None = None

    def of(self, resource: str) -> int:
        """The most a pod may use of a resource; what it asks for where it sets itself no limit."""
        if self._plain is None:
            self._plain = pod_limits(self._pod)
        return max(capped(self._plain.get(resource, 0)), self._least(resource))

    def scored(self, resource: str) -> int:
        """The same with a small default where a container says nothing of cpu or memory."""
        if self._scored is None:
            self._scored = pod_limits(self._pod, non_missing=NON_ZERO)
        return max(capped(self._scored.get(resource, 0)), self._least(resource))

    def at_size(self, size: Mapping[int, int]) -> "PodLimits":
        """Of pods that differ in asking for so much: a limit is no less than the request."""
        return PodLimits(self._pod, self._counted, size)

    def _least(self, resource: str) -> int:
        if not self._floor:
            return 0
        counted = self._counted.get(resource)
        return self._floor.get(counted.offered, 0) if counted is not None else 0

    def claims(self) -> dict[int, int]:
        """What a pod adds to the sums that are counted, by slot."""
        claims = {}
        for resource, counted in self._counted.items():
            claims[counted.slot] = self.of(resource)
            claims[counted.scored] = self.scored(resource)
        return {slot: amount for slot, amount in claims.items() if amount}

    def hold(self, amounts: dict[int, int]) -> None:
        """Adds to what a reservation holds the limits of its template. It may hold more of a resource
        than that says, and limits itself to no less."""
        for resource, counted in self._counted.items():
            limit = max(self.of(resource), amounts.get(counted.offered, 0))
            if limit:
                amounts[counted.slot] = amounts[counted.scored] = limit
