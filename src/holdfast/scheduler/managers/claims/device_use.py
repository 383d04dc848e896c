"""Which devices are in use, and by which claims.

A claim has devices for itself, or shares of devices that allow several allocations. Devices with admin
access are not in use by the claim that has it. Whoever keeps the cluster's state adds each allocated
claim, also one that is only assumed, under a key of its own; removing it undoes that.

`without` answers what would be if some claims were gone: the victims of a preemption, or the claim with
which a reservation holds devices for an owner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, KeysView, Mapping

import numpy as np
from numpy.typing import NDArray

from holdfast.api.resource_claims import DeviceRequestAllocationResult
from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.managers.claims.device_table import DeviceTable, nano
from holdfast.scheduler.managers.claims.pools import Counters, DevicePool, VisibleDevices

ClaimKey = Hashable
"""Identifies a claim: its uid, or whatever the caller likes."""
Results = Collection[DeviceRequestAllocationResult]
Capacities = Mapping[str, int]
"""Consumed capacity in nano, by name."""
State = tuple[tuple[str, int], ...]
_NOTHING: Capacities = {}
_UNSHARED = 0
_FIRST = 64
_FEW_STATES = 4096


class UseSnapshot(ABC):
    """What an allocation reads of the devices in use."""

    def __init__(self, table: DeviceTable) -> None:
        self._table = table
        self.taken: NDArray[np.int32] = np.zeros(_FIRST, dtype=np.int32)
        """By identity: how many claims have a device for themselves. More than one is an error of
        others, but is counted."""
        self.share_state: NDArray[np.int32] = np.zeros(_FIRST, dtype=np.int32)
        """By identity; equal for devices of which shares consume the same capacity."""
        self._shares: dict[int, int] = {}
        """How many shares there are of a device."""
        self._consumed: dict[int, Capacities] = {}

    def consumed(self, identity: int) -> Capacities:
        """What shares consume of a device."""
        return self._consumed.get(identity, _NOTHING)

    def is_shared(self, identity: int) -> bool:
        return identity in self._shares

    def is_allocated(self, identity: int) -> bool:
        return identity in self._shares or bool(self.taken[identity])

    def busy(self, visible: VisibleDevices) -> NDArray[np.bool_]:
        """Which devices no other claim can get: one has them for itself, or shares from the time when
        several claims could."""
        found: NDArray[np.bool_] = self.taken.take(visible.identities) > 0
        if self._shares:
            found |= (self.share_state.take(visible.identities) > 0) & visible.exclusive
        return found

    @abstractmethod
    def holders(self, identity: int) -> list[ClaimKey]:
        """The claims that have a device, or shares of it."""

    def available(self, pool: DevicePool) -> Counters:
        """What is left of a pool's counters; negative where they shrank below what is allocated."""
        left = dict(pool.counters)
        for entry in pool.consumers:
            if self.is_allocated(entry.identity):
                for counter_set, name, amount in self._table.consumptions.value(entry.counters):
                    left[(counter_set, name)] -= amount
        return left

    def cover(self) -> None:
        """Makes the arrays long enough for all identities."""
        needed = len(self._table.identities)
        if needed > len(self.taken):
            more = max(needed, 2 * len(self.taken)) - len(self.taken)
            self.taken = np.pad(self.taken, (0, more))
            self.share_state = np.pad(self.share_state, (0, more))


class DeviceUse(UseSnapshot):
    """The devices in use by all claims that were added."""

    def __init__(self, table: DeviceTable) -> None:
        super().__init__(table)
        self.version = 0
        """Incremented with every change."""
        self._results: dict[ClaimKey, Results] = {}
        self._holders: dict[int, list[ClaimKey]] = {}
        self._states: dict[State, int] = {}
        self._pool_versions: dict[tuple[str, str], int] = {}
        self._available: dict[DevicePool, tuple[int, Counters]] = {}

    def __contains__(self, key: ClaimKey) -> bool:
        return key in self._results

    def keys(self) -> KeysView[ClaimKey]:
        """The claims that were added."""
        return self._results.keys()

    def results(self, key: ClaimKey) -> Results:
        """What a claim was added with."""
        return self._results.get(key, ())

    def add(self, key: ClaimKey, results: Results) -> None:
        """Counts the devices of a claim, instead of those it was added with before."""
        self.remove(key)
        self._results[key] = results
        identities = self._table.identities
        for result in results:
            if result.admin_access:
                continue
            id = result.device_id
            identity = identities.hold(id, id)
            self.cover()
            self._holders.setdefault(identity, []).append(key)
            if result.share_id is None:
                self.taken[identity] += 1
            else:
                self._share(identity, result, 1)
            self._changed(result)

    def remove(self, key: ClaimKey) -> None:
        """Counts the devices of a claim no longer."""
        identities = self._table.identities
        for result in self._results.pop(key, ()):
            if result.admin_access:
                continue
            identity = identities.find(result.device_id)
            assert identity is not None
            holders = self._holders[identity]
            holders.remove(key)
            if not holders:
                del self._holders[identity]
            if result.share_id is None:
                self.taken[identity] -= 1
            else:
                self._share(identity, result, -1)
            identities.let_go(identity)
            self._changed(result)

    def without(self, keys: Iterable[ClaimKey], used: Iterable[DeviceID] = ()) -> Reduced:
        """The use as if these claims were gone, and these devices in use; valid until the next
        change."""
        reduced = Reduced(self, self._table, [key for key in keys if key in self._results])
        reduced.take(used)
        return reduced

    def holders(self, identity: int) -> list[ClaimKey]:
        return self._holders.get(identity, [])

    def available(self, pool: DevicePool) -> Counters:
        version = self._pool_versions.get(pool.id, 0)
        kept = self._available.get(pool)
        if kept is None or kept[0] != version:
            if len(self._available) > 2 * len(self._pool_versions) + _FIRST:
                self._available.clear()
            kept = self._available[pool] = (version, super().available(pool))
        return kept[1]

    def forget_pools(self) -> None:
        """Drops what is kept per pool. To be called when slices changed, so that old pools can go."""
        self._available.clear()

    def state_code(self, consumed: Capacities) -> int:
        state = tuple(sorted(consumed.items()))
        code = self._states.get(state)
        if code is None:
            if len(self._states) > _FEW_STATES + 2 * len(self._shares):
                self._recode()
            code = self._states[state] = len(self._states) + 1
        return code

    def check(self) -> list[str]:
        """Self-check: the counts against the claims they were made of."""
        fresh = DeviceUse(self._table)
        for key, results in self._results.items():
            fresh.add(key, results)
        fresh.cover()
        self.cover()
        size = len(self._table.identities)
        problems = []
        if not np.array_equal(fresh.taken[:size], self.taken[:size]):
            problems.append("devices in use differ from those of the claims")
        if fresh._consumed != self._consumed or fresh._shares != self._shares:
            problems.append("consumed capacity differs from that of the claims")
        for key in self._results:
            fresh.remove(key)
        return problems

    def _changed(self, result: DeviceRequestAllocationResult) -> None:
        pool = (result.driver, result.pool)
        self._pool_versions[pool] = self._pool_versions.get(pool, 0) + 1
        self.version += 1

    def _share(self, identity: int, result: DeviceRequestAllocationResult, sign: int) -> None:
        shares = self._shares.get(identity, 0) + sign
        consumed = added(self.consumed(identity), result, sign)
        if shares:
            self._shares[identity], self._consumed[identity] = shares, consumed
            self.share_state[identity] = self.state_code(consumed)
        else:
            del self._shares[identity]
            self._consumed.pop(identity, None)
            self.share_state[identity] = _UNSHARED

    def _recode(self) -> None:
        self._states.clear()
        for identity, consumed in self._consumed.items():
            state = tuple(sorted(consumed.items()))
            self.share_state[identity] = self._states.setdefault(state, len(self._states) + 1)


class Reduced(UseSnapshot):
    """The use without some claims, and with some devices in use."""

    def __init__(self, use: DeviceUse, table: DeviceTable, gone: list[ClaimKey]) -> None:
        self._table = table
        self._use = use
        self._gone = frozenset(gone)
        use.cover()
        self.taken, self.share_state = use.taken.copy(), use.share_state.copy()
        self._shares, self._consumed = use._shares, use._consumed
        for key in gone:
            for result in use.results(key):
                if result.admin_access:
                    continue
                identity = table.identities.find(result.device_id)
                assert identity is not None
                if result.share_id is None:
                    self.taken[identity] -= 1
                else:
                    self._unshare(identity, result)

    def take(self, devices: Iterable[DeviceID]) -> None:
        """Counts further devices as in use."""
        for device in devices:
            identity = self._table.identities.find(device)
            if identity is not None and not self.is_allocated(identity):
                self.taken[identity] += 1

    def _unshare(self, identity: int, result: DeviceRequestAllocationResult) -> None:
        if self._shares is self._use._shares:
            self._shares, self._consumed = dict(self._shares), dict(self._consumed)
        self._shares[identity] -= 1
        consumed = added(self.consumed(identity), result, -1)
        if self._shares[identity]:
            self._consumed[identity] = consumed
            self.share_state[identity] = self._use.state_code(consumed)
        else:
            del self._shares[identity]
            self._consumed.pop(identity, None)
            self.share_state[identity] = _UNSHARED

    def holders(self, identity: int) -> list[ClaimKey]:
        return [key for key in self._use.holders(identity) if key not in self._gone]

    def available(self, pool: DevicePool) -> Counters:
        return super().available(pool) if self._gone else self._use.available(pool)


def added(consumed: Capacities, result: DeviceRequestAllocationResult, sign: int) -> Capacities:
    """Consumed capacity with that of one share more, or one less."""
    total = dict(consumed)
    for name, quantity in result.consumed_capacity.items():
        total[name] = total.get(name, 0) + sign * nano(quantity)
        if not total[name]:
            del total[name]
    return total
