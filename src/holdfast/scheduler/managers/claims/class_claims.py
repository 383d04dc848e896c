"""The claims of a class of pods, and what is to be allocated for them on each node.

What is to be allocated is the same on all nodes, unless the class requests an extended resource that a
device class serves: then the claim for it is added on nodes that have none of the resource themselves.
"""

from collections.abc import Callable, Collection, Container, Sequence
from typing import NamedTuple

import numpy as np

from holdfast.api.resource_claims import AllocationResult, ResourceClaim, ResourceClaimSpec
from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.managers.claims.allocation import ClaimName, ClaimsRefusal
from holdfast.scheduler.managers.claims.allocator import FEASIBLE, NO_DEVICES, ClaimsAllocator
from holdfast.scheduler.managers.claims.claims_request import ClaimsRequest
from holdfast.scheduler.managers.claims.device_use import UseSnapshot
from holdfast.scheduler.managers.claims.extended_resources import ExtendedClaim
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey


class ClaimNeed(NamedTuple):
    """A claim of a class of pods: allocated or in flight, or to be allocated."""

    key: ResourceClaimKey | None
    """None where the claim counts by its spec."""
    spec: ResourceClaimSpec
    claim: ResourceClaim | None
    allocation: AllocationResult | None


class DevicesSeen(NamedTuple):
    """The devices in use on a row, as a pod sees them."""

    use: UseSnapshot
    only: Collection[DeviceID] | None = None
    """If set, the only devices that the pod may get."""


class NodeNeed(NamedTuple):
    """What is to be allocated for a pod on some nodes."""

    request: ClaimsRequest | None
    """None if nothing is."""
    extended: ExtendedClaim | None
    """The claim for extended resources, the last one of the request; None if there is none."""


class ClassClaims:
    """The claims of a class, as of one moment."""

    def __init__(
        self,
        problem: str,
        claims: Sequence[ClaimNeed],
        delegated: Sequence[tuple[int, str]],
        extended: Callable[[list[str]], ExtendedClaim],
        allocator: ClaimsAllocator,
        nodes: NodeTable,
    ) -> None:
        """`delegated` are the slots and names of extended resources that device classes serve;
        `extended` makes the claim for some of them."""
        self.problem = problem
        """Why no pod of the class can be scheduled now, if so."""
        self.claims = tuple(claims)
        self.delegated = tuple(delegated)
        self._extended = extended
        self._allocator = allocator
        self._nodes = nodes
        self._specs = [need.spec for need in claims if need.allocation is None]
        self._by_lack: dict[int, NodeNeed] = {}

    @property
    def needs_devices(self) -> bool:
        """Whether something is to be allocated, at least on some nodes."""
        return bool(self._specs or self.delegated)

    def requests(self) -> list[ClaimsRequest]:
        """The requests for nodes that have all, and that have none of the extended resources."""
        lacks = (0, (1 << len(self.delegated)) - 1) if self.delegated else (0,)
        found = (self._need(lack).request for lack in lacks)
        return [request for request in found if request is not None]

    def on(self, row: int, released: Container[ResourceClaimKey | None] = ()) -> NodeNeed:
        """What is to be allocated on the node of a row, if the claims `released` are deallocated."""
        lack = 0
        for bit, (slot, _) in enumerate(self.delegated):
            if not self._nodes.allocatable.item(slot, row):
                lack |= 1 << bit
        found = self._need(lack)
        again = [n.spec for n in self.claims if n.allocation is not None and n.key in released]
        if not again:
            return found
        specs = [*self._specs, *again, *([found.extended.spec] if found.extended is not None else [])]
        return NodeNeed(self._allocator.request(specs), found.extended)

    def _need(self, lack: int) -> NodeNeed:
        """What is to be allocated on nodes that lack these of the extended resources, as bits."""
        found = self._by_lack.get(lack)
        if found is None:
            specs, extended = self._specs, None
            resources = [name for bit, (_, name) in enumerate(self.delegated) if lack >> bit & 1]
            if resources:
                extended = self._extended(resources)
                specs = [*specs, extended.spec]
            request = self._allocator.request(specs) if specs else None
            found = self._by_lack[lack] = NodeNeed(request, extended)
        return found

    def codes_with(self, view: View, uses: Sequence[DevicesSeen]) -> Cells:
        """As `codes`, with a use of devices for each row of the view: that of the owner of a
        reservation there."""
        rows = [view.rows] if view.single else view.rows.tolist()
        codes = np.array(
            [self._code(row, use) for row, use in zip(rows, uses, strict=True)], dtype=np.int8
        )
        return int(codes[0]) if view.single else codes

    def _code(self, row: int, use: DevicesSeen) -> int:
        request = self.on(row).request
        if request is None:
            return FEASIBLE
        if use.only is None:
            return self._allocator.verdict(request, row, use.use).code
        names = [ClaimName("", "")] * len(request.claims)
        found = self._allocator.allocate(request, row, use.use, names, only=use.only)
        return NO_DEVICES if isinstance(found, ClaimsRefusal) else FEASIBLE

    def codes(self, view: View, use: UseSnapshot) -> Cells:
        """For each row whether devices can be allocated there: FEASIBLE, or why not."""
        if view.single:
            request = self.on(view.rows).request
            return (
                FEASIBLE if request is None else self._allocator.verdict(request, view.rows, use).code
            )
        if not self.delegated:
            request = self._need(0).request
            if request is None:
                return view.full(FEASIBLE)
            return self._allocator.feasible(request, view.rows, use).codes
        codes = np.full(len(view), FEASIBLE, dtype=np.int8)
        for at, request in self._parts(view):
            codes[at] = self._allocator.feasible(request, view.rows[at], use).codes
        return codes

    def scores(self, view: View, use: UseSnapshot) -> Cells:
        """For each row the score of the alternatives that would be chosen there."""
        if view.single:
            request = self.on(view.rows).request
            return 0 if request is None else self._allocator.verdict(request, view.rows, use).score
        scores = np.zeros(len(view), dtype=np.int64)
        for at, request in self._parts(view):
            scores[at] = self._allocator.feasible(request, view.rows[at], use).scores
        return scores

    def _parts(self, view: View) -> list[tuple[Cells, ClaimsRequest]]:
        """The places in a view of several rows that have the same request, with that request."""
        lacks = np.zeros(len(view), dtype=np.int64)
        for bit, (slot, _) in enumerate(self.delegated):
            lacks |= (view.allocatable(slot) == 0).astype(np.int64) << bit
        parts = []
        for lack in sorted(set(lacks.tolist())):
            request = self._need(lack).request
            if request is not None:
                parts.append((np.flatnonzero(lacks == lack), request))
        return parts
