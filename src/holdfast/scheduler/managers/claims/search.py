"""The search for devices: depth first, claim by claim, request by request, device by device.

The first solution counts. A candidate is tested in this order: in use, selectors, node selection,
capacity, counters, taints, constraints. Alternatives of a request are tried in order, each with
everything that follows, so that a later request can push an earlier one to its second choice.

A candidate that is interchangeable with one that led nowhere is passed over: by symmetry it leads
nowhere either. So the solution is the one that an exhaustive search finds first, in less time. That is
not so where all devices are requested under a constraint: then the candidate may lead to an error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.api.errors import HoldfastError
from holdfast.scheduler.managers.claims.capacity import Demand
from holdfast.scheduler.managers.claims.claims_request import (
    MAX_RESULTS,
    Choice,
    ClaimsRequest,
    Problem,
    RequestPart,
)
from holdfast.scheduler.managers.claims.constraints import AttributeConstraint, constraints_of
from holdfast.scheduler.managers.claims.device_table import NO_COUNTERS, DeviceEntry
from holdfast.scheduler.managers.claims.device_use import UseSnapshot
from holdfast.scheduler.managers.claims.pools import Counters, DevicePool, VisibleDevices
from holdfast.scheduler.managers.claims.request_columns import RequestColumns
from holdfast.scheduler.managers.claims.selector_columns import ERROR, MATCH

MAX_STEPS = 50_000
"""What stands for kube-scheduler's time limit per node: the scheduler reads no clock."""
TIMED_OUT = "timed out trying to allocate devices"
_FRAMES = 4
_SPARE_FRAMES = 1000

CHOSEN = "allocated to another request of the pod"
SELECTOR, NODE, IN_USE = "selector", "node selection", "in use"
CAPACITY, COUNTERS, TAINT, CONSTRAINT = "capacity", "counters", "taint", "constraint"


class AllocationProblem(HoldfastError):
    """Allocation is given up, on this node and all others."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.text)
        self.problem = problem


class TooManyResults(HoldfastError):
    """A claim would get more devices than an allocation can list."""


class Recorder(Protocol):
    """Is told why candidates were passed over."""

    def refused(self, part: RequestPart, position: int, reason: str, detail: str, depth: int) -> None:
        """`depth` is the number of devices that were allocated at that point."""


@dataclass(slots=True)
class Pick:
    """A device for a request."""

    part: RequestPart
    entry: DeviceEntry
    demand: Demand | None
    """What is consumed of a device that can be shared."""


@dataclass(slots=True)
class Solution:
    """The devices for each claim, and the alternatives that were chosen."""

    picks: list[list[Pick]]
    choices: list[Choice]


@dataclass(slots=True)
class _Undo:
    counters: bool = False
    constraints: int = 0
    marked: bool = False
    consumed: bool = False
    shared_before: bool = False


class _Lists:
    """The columns of one part at the visible devices."""

    __slots__ = ("demand", "match", "tolerated")

    def __init__(self, columns: RequestColumns, part: int, visible: VisibleDevices) -> None:
        rows = visible.rows
        self.match: list[int] = columns.match[part].take(rows).tolist()
        self.tolerated: list[bool] = columns.tolerated[part].take(rows).tolist()
        self.demand: list[int] = columns.demand[part].take(rows).tolist()


@dataclass(slots=True)
class Search:
    """One search on one node."""

    request: ClaimsRequest
    columns: RequestColumns
    visible: VisibleDevices
    use: UseSnapshot
    order: Sequence[int]
    """The positions of candidates in the order in which they are tried."""
    closed: Sequence[bool]
    """By position: devices that are in use, or not offered to this pod."""
    recorder: Recorder | None = None
    steps: int = 0
    _lists: dict[int, _Lists] = field(default_factory=dict)
    _needed: list[int] = field(default_factory=list)
    _all: dict[int, list[int]] = field(default_factory=dict)
    _constraints: list[list[AttributeConstraint]] = field(default_factory=list)
    _marked: dict[int, set[int]] = field(default_factory=dict)
    """By position: the claims that get the device."""
    _consumed: dict[int, dict[str, int]] = field(default_factory=dict)
    """By position of a device that can be shared: what new shares consume."""
    _counters: dict[DevicePool, Counters] = field(default_factory=dict)
    _picks: list[list[Pick]] = field(default_factory=list)
    _chosen: list[list[int]] = field(default_factory=list)
    _codes: list[int] = field(default_factory=list)
    _is_symmetric: bool = True

    def run(self) -> Solution | None:
        """None if there is no solution; raises AllocationProblem."""
        self._prepare()
        if self.recorder is None and self._too_few():
            return None
        frames = _FRAMES * (sum(self._needed) + len(self.request.parts) + len(self._picks))
        if frames + _SPARE_FRAMES > sys.getrecursionlimit():
            sys.setrecursionlimit(frames + 2 * _SPARE_FRAMES)
        try:
            found = self._claim(0)
        except TooManyResults:
            # Only of the first claim's requests: there is no earlier claim that could be changed.
            found = False
        return Solution(self._picks, [tuple(each) for each in self._chosen]) if found else None

    # Before the search

    def _prepare(self) -> None:
        self._codes = self.columns.code.take(self.visible.rows).tolist()
        for claim in self.request.claims:
            total = 0
            for request in claim.requests:
                counts = [self._count(part) for part in request]
                total += min(counts)
            if total > MAX_RESULTS:
                index = len(self._picks)
                why = f": number of requested devices {total} exceeds the claim limit of {MAX_RESULTS}"
                raise AllocationProblem(Problem(why, index))
            if claim.problem is not None:
                raise AllocationProblem(claim.problem)
            self._constraints.append(constraints_of(claim.constraints, self.columns, self.visible.rows))
            if claim.constraints and any(part.takes_all for parts in claim.requests for part in parts):
                self._is_symmetric = False
            self._picks.append([])
            self._chosen.append([0] * len(claim.requests))

    def _count(self, part: RequestPart) -> int:
        """The number of devices a part needs."""
        if part.problem is not None:
            raise AllocationProblem(part.problem)
        self._lists[part.index] = _Lists(self.columns, part.index, self.visible)
        if part.takes_all:
            self._all[part.index] = self._everything(part)
        count = len(self._all[part.index]) if part.takes_all else part.count
        self._needed.append(count)
        return count

    def _everything(self, part: RequestPart) -> list[int]:
        """The positions of all devices that match a part, in use or not."""
        found: list[int] = []
        position = 0
        lists = self._lists[part.index]
        of = f", request {part.name}: asks for all devices, but resource pool"
        for pool in self.visible.pools:
            if pool.incomplete:
                why = f"{of} {pool.id} is currently being updated"
                raise AllocationProblem(Problem(why, part.claim))
            if pool.invalid:
                raise AllocationProblem(Problem(f"{of} {pool.id} is currently invalid", part.claim))
            found += [
                at
                for at in range(position, position + len(pool.devices))
                if self._selectable(part, lists, at) and self._has_capacity(part, lists, at, False)
            ]
            position += len(pool.devices)
        return found

    def _too_few(self) -> bool:
        """Whether some request, or all of them together, need more devices than there are for them, so
        that no order of trying helps. Not answered where the search could meet an error instead."""
        for part in self.request.parts:
            lists = self._lists[part.index]
            if part.takes_all or ERROR in lists.match or ERROR in lists.demand:
                return False
        everything: set[int] = set()
        needed = 0
        for claim in self.request.claims:
            for request in claim.requests:
                enough = False
                for part in request:
                    usable = self._usable(part)
                    everything.update(usable)
                    enough = enough or len(usable) >= self._needed[part.index]
                if not enough:
                    return True
                least = min(self._needed[part.index] for part in request)
                needed += 0 if request[0].admin_access else least
        entries = self.visible.entries
        if needed <= len(everything):
            return False
        return not any(entries[at].device.allow_multiple_allocations for at in everything)

    def _usable(self, part: RequestPart) -> list[int]:
        """The positions of devices that a part could get by itself."""
        lists, closed, unselected = self._lists[part.index], self.closed, self.visible.unselected
        return [
            at
            for at, match in enumerate(lists.match)
            if match == MATCH
            and lists.tolerated[at]
            and lists.demand[at] >= MATCH
            and (part.admin_access or not closed[at])
            and not unselected[at]
        ]

    # The search

    def _claim(self, claim: int) -> bool:
        return claim >= len(self.request.claims) or self._next(claim, 0)

    def _next(self, claim: int, request: int) -> bool:
        """Allocates a request of a claim and everything that follows."""
        requests = self.request.claims[claim].requests
        if request >= len(requests):
            try:
                return self._claim(claim + 1)
            except TooManyResults:
                # With other devices for this claim the next one may get by with fewer.
                return False
        parts = requests[request]
        if not parts[0].parent:
            return self._device(request, parts[0], 0, 0)
        exceeded = True
        for at, part in enumerate(parts):
            try:
                found = self._device(request, part, 0, 0)
            except TooManyResults:
                continue
            exceeded = False
            if found:
                self._chosen[claim][request] = at
                return True
        if exceeded:
            raise TooManyResults
        return False

    def _device(self, request: int, part: RequestPart, number: int, start: int) -> bool:
        """Allocates one device of a part, among the candidates from `start` on, and what follows."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise AllocationProblem(Problem(TIMED_OUT))
        needed = self._needed[part.index]
        if part.takes_all and not needed:
            return False
        if number >= needed:
            return self._next(part.claim, request + 1)
        if len(self._picks[part.claim]) + needed - number > MAX_RESULTS:
            raise TooManyResults
        if part.takes_all:
            # All of them are needed, so their order does not matter: this one, or none.
            position = self._all[part.index][number]
            undo = self._take(part, position, must=True)
            return undo is not None and self._follows(request, part, number, 0, position, undo)
        lists = self._lists[part.index]
        marked, claim, admin = self._marked, part.claim, part.admin_access
        # By what makes devices interchangeable, whether one of them could be taken.
        tried: dict[tuple[int, DevicePool | None, bool], bool] = {}
        for at in range(start, len(self.order)):
            position = self.order[at]
            holders = marked.get(position)
            if admin:
                in_use = holders is not None and claim in holders
            else:
                in_use = holders is not None or self.closed[position]
            if in_use:
                # What does not match is not wanted, whoever has it.
                reason = IN_USE if lists.match[position] in (MATCH, ERROR) else SELECTOR
                detail = CHOSEN if holders and reason == IN_USE else ""
                self._refuse(part, position, reason, detail)
                continue
            if not self._selectable(part, lists, position):
                continue
            if not self._has_capacity(part, lists, position, True):
                self._refuse(part, position, CAPACITY)
                continue
            entry = self.visible.entries[position]
            alike = None
            if self._is_symmetric and holders is None and not entry.device.allow_multiple_allocations:
                pool = self.visible.pool_of[position] if entry.counters != NO_COUNTERS else None
                alike = (self._codes[position], pool, self.closed[position])
                if alike in tried:
                    if self.recorder is not None and not tried[alike]:
                        self._take(part, position, must=False)  # refused for the same reason
                    continue
            undo = self._take(part, position, must=False)
            if undo is not None and self._follows(request, part, number, at + 1, position, undo):
                return True
            if alike is not None:
                tried[alike] = undo is not None
        return False

    def _follows(
        self, request: int, part: RequestPart, number: int, start: int, position: int, undo: _Undo
    ) -> bool:
        """Allocates what follows a device that was taken; gives it back if that fails."""
        try:
            if self._device(request, part, number + 1, start):
                return True
        except TooManyResults:
            self._give_back(part, position, undo)
            raise
        self._give_back(part, position, undo)
        return False

    def _selectable(self, part: RequestPart, lists: _Lists, position: int) -> bool:
        verdict = lists.match[position]
        if verdict == ERROR:
            raise AllocationProblem(self._selector_problem(part, self.visible.entries[position]))
        if verdict != MATCH:
            self._refuse(part, position, SELECTOR)
            return False
        if self.visible.any_unselected and self.visible.unselected[position]:
            self._refuse(part, position, NODE)
            return False
        return True

    def _selector_problem(self, part: RequestPart, entry: DeviceEntry) -> Problem:
        columns = self.columns.parts[part.index]
        of_class = columns.of_class.errors.get(entry.shape)
        number, why, when_compiled = of_class or columns.of_request.errors[entry.shape]
        if when_compiled:
            text = f": selector #{number}: CEL compile error: {why}"
        else:
            text = f": selector #{number} on device {entry.id}: CEL runtime error: {why}"
        if of_class is not None:
            return Problem(f"class {part.class_name}{text}")
        return Problem(text, part.claim)

    def _has_capacity(self, part: RequestPart, lists: _Lists, position: int, remaining: bool) -> bool:
        code = lists.demand[position]
        if code <= MATCH:
            return code == MATCH
        entry = self.visible.entries[position]
        column = self.columns.parts[part.index].demand
        if code == ERROR:
            name = str(entry.id) if remaining else entry.id.device
            why = column.errors[entry.shape]
            text = f", request {part.name}: checking capacity for device {name}: {why}"
            raise AllocationProblem(Problem(text, part.claim))
        demand = column.demands[entry.shape]
        if not remaining:
            return demand.fits()
        return demand.fits(self.use.consumed(entry.identity), self._consumed.get(position, {}))

    def _refuse(self, part: RequestPart, position: int, reason: str, detail: str = "") -> None:
        if self.recorder is not None:
            depth = sum(map(len, self._picks))
            self.recorder.refused(part, position, reason, detail, depth)

    # Taking a device, and giving it back

    def _take(self, part: RequestPart, position: int, must: bool) -> _Undo | None:
        """Allocates a device that matches the part; None if it cannot be."""
        entry, claim = self.visible.entries[position], part.claim
        shared = entry.device.allow_multiple_allocations
        holders = self._marked.get(position)
        if part.admin_access:
            in_use = not shared and holders is not None and claim in holders
        else:
            in_use = bool(self.closed[position] or holders)
        if in_use:
            self._refuse(part, position, IN_USE, CHOSEN if holders else "")
            return None
        undo = _Undo()
        shared_already = shared and (self.use.is_shared(entry.identity) or position in self._consumed)
        if entry.counters != NO_COUNTERS and not shared_already:
            short = self._consume(self.visible.pool_of[position], entry)
            if short:
                self._refuse(part, position, COUNTERS, short)
                return None
            undo.counters = True
        lists = self._lists[part.index]
        if not lists.tolerated[position]:
            self._refuse(part, position, TAINT)
            self._give_back(part, position, undo)
            return None
        for constraint in self._constraints[claim]:
            if not constraint.add(part, position):
                self._refuse(part, position, CONSTRAINT, constraint.name)
                self._give_back(part, position, undo)
                if must:
                    why = (
                        f", request {part.name}: cannot add device {entry.id} because a claim "
                        "constraint would not be satisfied"
                    )
                    raise AllocationProblem(Problem(why, claim))
                return None
            undo.constraints += 1
        if not self._has_capacity(part, lists, position, True):
            self._refuse(part, position, CAPACITY)
            self._give_back(part, position, undo)
            return None
        demand = None
        if shared:
            demand = self.columns.parts[part.index].demand.demands[entry.shape]
            undo.shared_before = position in self._consumed
            _add(self._consumed.setdefault(position, {}), demand, 1)
            undo.consumed = True
        else:
            self._marked.setdefault(position, set()).add(claim)
            undo.marked = True
        self._picks[claim].append(Pick(part, entry, demand))
        return undo

    def _give_back(self, part: RequestPart, position: int, undo: _Undo) -> None:
        entry = self.visible.entries[position]
        if undo.marked or undo.consumed:
            demand = self._picks[part.claim].pop().demand
            if demand is not None:
                _add(self._consumed[position], demand, -1)
                if not undo.shared_before:
                    del self._consumed[position]
        if undo.marked:
            holders = self._marked[position]
            holders.discard(part.claim)
            if not holders:
                del self._marked[position]
        for constraint in reversed(self._constraints[part.claim][: undo.constraints]):
            constraint.remove(part, position)
        if undo.counters:
            consumed = self._counters[self.visible.pool_of[position]]
            for counter_set, name, amount in self._consumption(entry):
                consumed[(counter_set, name)] -= amount

    def _consume(self, pool: DevicePool, entry: DeviceEntry) -> str:
        """Consumes the counters of a device; returns the counter that is short, and consumes nothing
        then."""
        consumed = self._counters.setdefault(pool, {})
        for counter_set, name, amount in self._consumption(entry):
            key = (counter_set, name)
            consumed[key] = consumed.get(key, 0) + amount
        for key, available in self.use.available(pool).items():
            if available < consumed.get(key, 0):
                for counter_set, name, amount in self._consumption(entry):
                    consumed[(counter_set, name)] -= amount
                return f"{key[0]}/{key[1]}"
        return ""

    def _consumption(self, entry: DeviceEntry) -> tuple[tuple[str, str, int], ...]:
        return self.columns.consumption(entry.counters)


def _add(consumed: dict[str, int], demand: Demand, sign: int) -> None:
    for name, amount in demand.consumed.items():
        consumed[name] = consumed.get(name, 0) + sign * amount.nano
