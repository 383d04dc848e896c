"""Why devices of a node are not used for a pod's claims.

A search is run that records why it passed devices over. Of several reasons for a device the one counts
that was found last on the way to a solution: a device that a constraint excludes beside those chosen
before is excluded by that constraint, though alone it would do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.managers.claims.allocator import ClaimsAllocator
from holdfast.scheduler.managers.claims.claims_request import ClaimsRequest, RequestPart
from holdfast.scheduler.managers.claims.device_table import DeviceEntry, Taints
from holdfast.scheduler.managers.claims.device_use import ClaimKey, UseSnapshot
from holdfast.scheduler.managers.claims.pools import PoolID, VisibleDevices
from holdfast.scheduler.managers.claims.search import (
    CAPACITY,
    CONSTRAINT,
    COUNTERS,
    IN_USE,
    NODE,
    SELECTOR,
    TAINT,
    AllocationProblem,
)


@dataclass(frozen=True, slots=True)
class DeviceReason:
    """Why a request does not get a device."""

    claim: int
    request: str
    device: DeviceID
    reason: str
    """`selector`, `node selection`, `in use`, `capacity`, `counters`, `taint` or `constraint`."""
    detail: str = ""
    """The counter, taints or attribute; or that the pod itself gets the device for another request."""
    holders: tuple[ClaimKey, ...] = ()
    """The claims that have a device which is in use, under the keys they were added with."""
    taints: Taints = ()
    """All taints of a device of which one is not tolerated."""


@dataclass(frozen=True, slots=True)
class PoolReason:
    """Why nothing is allocated from a pool."""

    pool: PoolID
    reason: str


@dataclass(frozen=True, slots=True)
class DevicesExplained:
    """What stands between a pod's claims and the devices of a node."""

    devices: tuple[DeviceReason, ...]
    pools: tuple[PoolReason, ...]
    problem: str
    """What is wrong with the claims themselves."""
    visible: int
    """How many devices the node can use."""


class _Reasons:
    def __init__(self, visible: VisibleDevices) -> None:
        self.visible = visible
        self.found: dict[tuple[int, int], tuple[int, RequestPart, int, str, str]] = {}

    def refused(self, part: RequestPart, position: int, reason: str, detail: str, depth: int) -> None:
        key = (part.index, position)
        if key not in self.found or self.found[key][0] <= depth:
            self.found[key] = (depth, part, position, reason, detail)


def explain(
    allocator: ClaimsAllocator,
    request: ClaimsRequest,
    row: int,
    use: UseSnapshot,
    prefer: Collection[DeviceID] = (),
    only: Collection[DeviceID] | None = None,
) -> DevicesExplained:
    """Why the devices of a node are not used. Devices that are missing in the answer could be used by
    themselves, if there were enough of them."""
    visible = allocator.catalogue.visible(row)
    reasons = _Reasons(visible)
    problem = ""
    try:
        allocator.search(request, row, use, reasons, prefer, only).run()
    except AllocationProblem as error:
        names = [f"#{index}" for index in range(len(request.claims))]
        problem = error.problem.message(names)
    devices = tuple(
        _reason(allocator, use, visible.entries[position], part, reason, detail)
        for _, (_, part, position, reason, detail) in sorted(reasons.found.items())
    )
    pools = tuple(
        PoolReason(pool.id, "is being updated" if pool.incomplete else pool.invalid)
        for pool in visible.pools
        if not pool.usable
    )
    return DevicesExplained(devices, pools, problem, len(visible))


def _reason(
    allocator: ClaimsAllocator,
    use: UseSnapshot,
    entry: DeviceEntry,
    part: RequestPart,
    reason: str,
    detail: str,
) -> DeviceReason:
    holders: tuple[ClaimKey, ...] = ()
    taints: Taints = ()
    if reason in (IN_USE, CAPACITY):
        holders = tuple(use.holders(entry.identity))
    if reason == TAINT:
        taints = allocator.catalogue.table.taint_sets.value(entry.taints)
        detail = ", ".join(
            f"{key}={value}:{effect}" if value else f"{key}:{effect}" for key, value, effect in taints
        )
    return DeviceReason(part.claim, part.full_name, entry.id, reason, detail, holders, taints)


__all__ = [
    "CAPACITY",
    "CONSTRAINT",
    "COUNTERS",
    "IN_USE",
    "NODE",
    "SELECTOR",
    "TAINT",
    "DeviceReason",
    "DevicesExplained",
    "PoolReason",
    "explain",
]
