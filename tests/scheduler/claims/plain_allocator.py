"""An allocator that is slow and plain: it looks at every device of every slice, every time.

It states the rules once more, on API objects, without columns, codes, signatures or symmetry. The fast
allocator must choose the same devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.quantity import parse
from holdfast.api.resource_claims import (
    ALL_DEVICES,
    DeviceClass,
    DeviceDemand,
    DeviceRequestAllocationResult,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from holdfast.api.resource_slices import DeviceID, ResourceSlice, SliceDevice
from holdfast.machinery.schema.cel.values import CelRuntimeError
from holdfast.machinery.schema.device_selectors import (
    DeviceValues,
    compiled,
)

Amounts = dict[Any, int]
_MOST = 32


class Failed(Exception):
    """The claims are at fault."""


class _TooMany(Exception):
    pass


@dataclass
class Candidate:
    id: DeviceID
    device: SliceDevice
    pool: tuple[str, str]


@dataclass
class PlainAllocator:
    """On one node, with slices of this node only."""

    slices: Sequence[ResourceSlice]
    classes: Mapping[str, DeviceClass]
    in_use: Sequence[DeviceRequestAllocationResult]
    candidates: list[Candidate] = field(default_factory=list)
    counters: dict[tuple[str, str], Amounts] = field(default_factory=dict)
    chosen: list[tuple[int, str, Candidate]] = field(default_factory=list)

    def allocate(self, claims: Sequence[ResourceClaimSpec]) -> list[tuple[int, str, DeviceID]] | None:
        """Claim, request and device of every result; None if there are too few."""
        self._gather()
        requests: list[list[tuple[int, str, Any]]] = [
            [(claim, f"{request.name}/{each.name}", each) for each in request.first_available]
            or [(claim, request.name, request.exactly or ExactDeviceRequest())]
            for claim, spec in enumerate(claims)
            for request in spec.devices.requests
        ]
        constraints = [
            (claim, each) for claim, spec in enumerate(claims) for each in spec.devices.constraints
        ]
        for claim in range(len(claims)):
            least = sum(
                min(self._number(part[2]) for part in alternatives)
                for alternatives in requests
                if alternatives[0][0] == claim
            )
            if least > _MOST:
                raise Failed
        if not self._solve(requests, constraints):
            return None
        return [(claim, name, candidate.id) for claim, name, candidate in self.chosen]

    def _gather(self) -> None:
        for slice in sorted(
            self.slices, key=lambda s: (s.spec.driver, s.spec.pool.name, s.metadata.name)
        ):
            pool = (slice.spec.driver, slice.spec.pool.name)
            for counter_set in slice.spec.shared_counters:
                for name, counter in counter_set.counters.items():
                    self.counters.setdefault(pool, {})[counter_set.name, name] = parse(counter.value)
            for device in slice.spec.devices:
                self.candidates.append(Candidate(DeviceID(*pool, device.name), device, pool))

    def _number(self, demand: DeviceDemand) -> int:
        if demand.allocation_mode != ALL_DEVICES:
            return demand.count
        return len(self._all(demand))

    def _all(self, demand: DeviceDemand) -> list[Candidate]:
        return [
            each
            for each in self.candidates
            if self._matches(each, demand) and self._fits(each, demand, [])
        ]

    def _solve(self, requests: list[Any], constraints: list[Any]) -> bool:
        if not requests:
            return True
        alternatives, *rest = requests
        exceeded = 0
        for claim, name, demand in alternatives:
            number = self._number(demand)
            if demand.allocation_mode == ALL_DEVICES and not number:
                continue
            try:
                for picks in self._picks(claim, name, demand, number, 0, constraints):
                    assert picks == number
                    if self._following(claim, rest, constraints):
                        return True
            except _TooMany:
                exceeded += 1
        if exceeded == len(alternatives):
            raise _TooMany
        return False

    def _following(self, claim: int, rest: list[Any], constraints: list[Any]) -> bool:
        try:
            return self._solve(rest, constraints)
        except _TooMany:
            if rest and rest[0][0][0] != claim:
                return False
            raise

    def _picks(
        self, claim: int, name: str, demand: Any, left: int, start: int, constraints: list[Any]
    ) -> Iterator[int]:
        """Every way to choose the devices of a request; they are in `chosen` meanwhile."""
        if sum(each[0] == claim for each in self.chosen) + left > _MOST:
            raise _TooMany
        if not left:
            yield 0
            return
        everything = demand.allocation_mode == ALL_DEVICES
        among = self._all(demand) if everything else self.candidates
        for at in range(start, len(among)):
            candidate = among[at]
            if not self._usable(claim, name, candidate, demand, constraints):
                if everything:
                    return
                continue
            self.chosen.append((claim, name, candidate))
            for found in self._picks(claim, name, demand, left - 1, at + 1, constraints):
                yield found + 1
            self.chosen.pop()
            if everything:
                return

    def _usable(
        self, claim: int, name: str, candidate: Candidate, demand: Any, constraints: list[Any]
    ) -> bool:
        others = [other for _, _, other in self.chosen]
        admin = isinstance(demand, ExactDeviceRequest) and demand.admin_access
        if admin:
            mine = [other for number, _, other in self.chosen if number == claim]
            if not candidate.device.allow_multiple_allocations and candidate in mine:
                return False
        else:
            if any(each.device_id == candidate.id and each.share_id is None for each in self.in_use):
                return False
            if not candidate.device.allow_multiple_allocations and candidate in others:
                return False
        return (
            self._matches(candidate, demand)
            and self._fits(candidate, demand, self.chosen)
            and self._counters_suffice(candidate)
            and self._tolerated(candidate, demand)
            and self._satisfies(claim, name, candidate, constraints)
        )

    def _matches(self, candidate: Candidate, demand: DeviceDemand) -> bool:
        device = candidate.device
        values = DeviceValues(
            candidate.id.driver,
            device.attributes,
            device.capacity,
            device.allow_multiple_allocations,
        )
        selectors = [*self.classes[demand.device_class_name].spec.selectors, *demand.selectors]
        try:
            return all(
                compiled(each.cel.expression if each.cel else "").matches(values) for each in selectors
            )
        except CelRuntimeError as error:
            raise Failed from error

    def _fits(self, candidate: Candidate, demand: DeviceDemand, chosen: list[Any]) -> bool:
        """Capacities have no policies here."""
        capacity = candidate.device.capacity
        asked = demand.capacity.requests if demand.capacity is not None else {}
        if any(name not in capacity for name in asked):
            return False
        for name, each in capacity.items():
            wanted = parse(asked.get(name, each.value))
            used = 0
            if candidate.device.allow_multiple_allocations and (chosen or chosen is self.chosen):
                used += sum(
                    parse(result.consumed_capacity.get(name, 0))
                    for result in self.in_use
                    if result.device_id == candidate.id
                )
                used += sum(
                    parse(self.asked.get(request, {}).get(name, each.value))
                    for _, request, other in chosen
                    if other is candidate
                )
            if wanted + used > parse(each.value):
                return False
        return True

    asked: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The capacity that each request asks for, by its name."""

    def _counters_suffice(self, candidate: Candidate) -> bool:
        if not candidate.device.consumes_counters:
            return True
        taken = {each.device_id for each in self.in_use if not each.admin_access}
        counted = {
            id(other): other
            for other in self.candidates
            if other.pool == candidate.pool and other.id in taken
        }
        again = [other for _, _, other in self.chosen if other.pool == candidate.pool]
        shared = candidate.device.allow_multiple_allocations
        if shared and (candidate.id in taken or candidate in again):
            return True
        used: Amounts = {}
        seen: set[int] = set()
        for other in [*counted.values(), *again, candidate]:
            if other.device.allow_multiple_allocations and id(other) in seen:
                continue
            seen.add(id(other))
            for consumed in other.device.consumes_counters:
                for name, counter in consumed.counters.items():
                    key = (consumed.counter_set, name)
                    used[key] = used.get(key, 0) + parse(counter.value)
        return all(used.get(key, 0) <= amount for key, amount in self.counters[candidate.pool].items())

    @staticmethod
    def _tolerated(candidate: Candidate, demand: DeviceDemand) -> bool:
        return all(
            taint.effect not in ("NoSchedule", "NoExecute")
            or any(each.tolerates(taint) for each in demand.tolerations)
            for taint in candidate.device.taints
        )

    def _satisfies(self, claim: int, name: str, candidate: Candidate, constraints: list[Any]) -> bool:
        for of, each in constraints:
            names = (name, name.partition("/")[0])
            if of != claim or (each.requests and not set(names) & set(each.requests)):
                continue
            wanted = each.match_attribute or each.distinct_attribute
            value = _attribute(candidate, wanted)
            if value is None:
                return False
            for number, other_name, other in self.chosen:
                others = (other_name, other_name.partition("/")[0])
                if number != claim or (each.requests and not set(others) & set(each.requests)):
                    continue
                if (_attribute(other, wanted) == value) != (each.match_attribute is not None):
                    return False
        return True


def _attribute(candidate: Candidate, name: str) -> Any:
    domain, _, short = name.partition("/")
    found = candidate.device.attributes.get(name)
    if found is None and domain == candidate.id.driver:
        found = candidate.device.attributes.get(short)
    return found
