"""The outcome of an allocation, as it is written to the status of claims.

A share of a device has an id. The scheduler is pure, so ids are derived from the claim and the device,
or come from a function that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from holdfast.api.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.quantity import Quantity
from holdfast.api.resource_claims import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from holdfast.api.resource_slices import DeviceID, ResourceSlice
from holdfast.scheduler.managers.claims.claims_request import ClaimsRequest
from holdfast.scheduler.managers.claims.search import Pick, Solution

CANNOT_ALLOCATE = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"


class ClaimName(NamedTuple):
    """The claim that an allocation is for."""

    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


ShareID = Callable[[ClaimName, DeviceID, int], str]
"""The id of a share: of which claim and device, and which of the claim's shares of it."""


def derived_share_id(claim: ClaimName, device: DeviceID, number: int) -> str:
    """An id that only this share has, and has again if the claim is allocated in the same way."""
    digest = sha256(f"{claim.uid or claim}\n{device}\n{number}".encode()).digest()
    return str(UUID(bytes=digest[:16], version=4))


@dataclass(frozen=True, slots=True)
class ClaimsAllocation:
    """The devices for a pod's claims on one node."""

    results: tuple[AllocationResult, ...]
    """By claim."""
    score: int
    """Of the alternatives that were chosen; higher is better."""

    @property
    def devices(self) -> list[DeviceID]:
        """Those that are in use from now on."""
        return [result.device_id for result in self._used()]

    @property
    def exclusive_devices(self) -> list[DeviceID]:
        """Those of them that other claims cannot use too."""
        return [result.device_id for result in self._used() if result.share_id is None]

    def _used(self) -> Iterator[DeviceRequestAllocationResult]:
        for allocation in self.results:
            yield from (each for each in allocation.devices.results if not each.admin_access)


@dataclass(frozen=True, slots=True)
class ClaimsRefusal:
    """Why a pod's claims cannot be allocated."""

    message: str
    fatal: bool = False
    """Whether the claims are at fault: then no node is looked for, and the pod is retried."""


def allocation_of(
    request: ClaimsRequest,
    solution: Solution,
    node: str,
    slice_of: Callable[[str], ResourceSlice],
    names: Sequence[ClaimName],
    share_id: ShareID,
) -> ClaimsAllocation:
    """The allocation that a solution stands for."""
    results = []
    score = 0
    for index, claim in enumerate(request.claims):
        picks, choice = solution.picks[index], solution.choices[index]
        shares: dict[DeviceID, int] = {}
        devices = tuple(_result(pick, names[index], shares, share_id) for pick in picks)
        results.append(
            AllocationResult(
                devices=DeviceAllocationResult(results=devices, config=claim.configuration(choice)),
                node_selector=node_selector(picks, node, slice_of),
            )
        )
        score += claim.score(choice)
    return ClaimsAllocation(tuple(results), score)


def _result(
    pick: Pick, claim: ClaimName, shares: dict[DeviceID, int], share_id: ShareID
) -> DeviceRequestAllocationResult:
    entry, part, demand = pick.entry, pick.part, pick.demand
    id, device = entry.id, entry.device
    share: str | None = None
    consumed: dict[str, Quantity] = {}
    if demand is not None:
        number = shares[id] = shares.get(id, -1) + 1
        share = share_id(claim, id, number)
        consumed = {name: amount.text for name, amount in demand.consumed.items()}
    return DeviceRequestAllocationResult(
        request=part.full_name,
        driver=id.driver,
        pool=id.pool,
        device=id.device,
        admin_access=part.admin_access,
        tolerations=part.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=share,
        consumed_capacity=consumed,
    )


def node_selector(
    picks: Sequence[Pick], node: str, slice_of: Callable[[str], ResourceSlice]
) -> NodeSelector | None:
    """The nodes that can use these devices; None for all."""
    expressions: list[NodeSelectorRequirement] = []
    fields: list[NodeSelectorRequirement] = []
    for pick in picks:
        spec, device = slice_of(pick.entry.slice_name).spec, pick.entry.device
        where = device if spec.per_device_node_selection else spec
        if where.node_name or device.binds_to_node:
            only = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[only])])
        for term in where.node_selector.node_selector_terms if where.node_selector else ():
            _join(expressions, term.match_expressions)
            _join(fields, term.match_fields)
    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(match_expressions=expressions, match_fields=fields)
    return NodeSelector(node_selector_terms=[term])


def _join(among: list[NodeSelectorRequirement], more: Sequence[NodeSelectorRequirement]) -> None:
    """Adds requirements that are not among these yet; the order of values does not matter."""
    for one in more:
        if not any(
            one.key == other.key
            and one.operator == other.operator
            and set(one.values) == set(other.values)
            for other in among
        ):
            among.append(one)
