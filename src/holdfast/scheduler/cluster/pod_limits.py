"""The resource limits of a pod class.

Few clusters use the sums of limits, so limits of a resource are counted only once a plugin asks for
them (`limit_sums`). Then the sums are slots of the node table like any other: the ledger keeps them, a
reservation reserves the limits of its template, and its owners are allocated from those.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from holdfast.api.pod import Pod
from holdfast.api.resources import NON_ZERO, pod_limits
from holdfast.scheduler.cluster.slots import capped


class CountedLimit(NamedTuple):
    """A resource whose limits are summed on every row."""

    offered: int
    """The slot of the resource itself."""
    slot: int
    """The slot of the sum of limits."""
    scored: int
    """The slot of the sum used in scores, in which a container without cpu or memory values counts with
    kube-scheduler's default; for other resources the same as `slot`."""


CountedLimits = dict[str, CountedLimit]
"""By resource."""


NO_FLOOR: Mapping[int, int] = MappingProxyType({})


class PodLimits:
    """The limits of the pods of one class."""

    __slots__ = ("_counted", "_floor", "_plain", "_pod", "_scored")

    def __init__(self, pod: Pod, counted: CountedLimits, floor: Mapping[int, int] = NO_FLOOR) -> None:
        """`floor` has the minimum of limits, by slot of the resource."""
        self._pod = pod
        self._counted = counted
        self._floor = floor
        self._plain: Mapping[str, int] | None = None
        self._scored: Mapping[str, int] | None = None

    def of(self, resource: str) -> int:
        """The limit of a resource; a container without a limit counts with its request."""
        if self._plain is None:
            self._plain = pod_limits(self._pod)
        return max(capped(self._plain.get(resource, 0)), self._least(resource))

    def scored(self, resource: str) -> int:
        """The limit in scores: a container without cpu or memory values counts with the default."""
        if self._scored is None:
            self._scored = pod_limits(self._pod, non_missing=NON_ZERO)
        return max(capped(self._scored.get(resource, 0)), self._least(resource))

    def at_size(self, size: Mapping[int, int]) -> "PodLimits":
        """The limits of pods with these requests: a limit is at least the request."""
        return PodLimits(self._pod, self._counted, size)

    def _least(self, resource: str) -> int:
        if not self._floor:
            return 0
        counted = self._counted.get(resource)
        return self._floor.get(counted.offered, 0) if counted is not None else 0

    def claims(self) -> dict[int, int]:
        """What a pod adds to the counted sums, by slot."""
        claims = {}
        for resource, counted in self._counted.items():
            claims[counted.slot] = self.of(resource)
            claims[counted.scored] = self.scored(resource)
        return {slot: amount for slot, amount in claims.items() if amount}

    def hold(self, amounts: dict[int, int]) -> None:
        """Adds the limits of a reservation's template to its reserved amounts. If it reserves more of a
        resource than the template's limit, the reserved amount is the limit."""
        for resource, counted in self._counted.items():
            limit = max(self.of(resource), amounts.get(counted.offered, 0))
            if limit:
                amounts[counted.slot] = amounts[counted.scored] = limit
