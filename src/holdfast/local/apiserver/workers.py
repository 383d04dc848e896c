"""Requests too large for the event loop are worked out in threads beside it.

A request that is processed in the event loop blocks all others, so only requests of a few milliseconds
are: a body of up to 64 KiB, for an object that takes no more in memory, less where its schema has
patterns and rules that take long to check. Others run in a thread, which shares the interpreter with
the loop. Reading is safe there, since objects are never changed in place; a write is drafted and
committed in the loop (`store.draft`), so that writes have one order. A request that somebody else's
write came before is worked out again, as the API server does it.

What is stored has the limit of etcd, and its words.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any, TypeVar

import msgspec

from holdfast.local.apiserver.api_state import ApiRequest
from holdfast.local.store import ChangedMeanwhile, Draft, Key, Raw, Store
from holdfast.machinery.schema import ResourceType
from holdfast.machinery.schema.custom import validation as custom
from holdfast.machinery.status import MODIFIED, StatusError, conflict

T = TypeVar("T")
Written = tuple[Raw, bool]
"""The object as it is now, and whether it is new."""

LARGE = 64 * 1024
"""Bytes of a body, or of an object in memory, that are too many for the loop."""
MANY = 500
"""Objects that are, or as many bytes as would be of"""
_USUAL = 16 * 1024
"""bytes each."""
_COLUMNS = 16
"""Columns of a table that cost as much as their object."""
_DEEP = 50
"""Columns that one counts for which searches all of the object."""
MAX_STORED = 1536 * 1024
"""Bytes an object may have: etcd's limit on a request."""
_THREADS = 2
_TRIES = 8
_SWITCH_INTERVAL = 0.001
"""Seconds a thread computes before another may: the loop waits this long, several times a request."""
_encode = msgspec.json.Encoder().encode


class Workers:
    def __init__(self, store: Store) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._store = store
        self._committing = asyncio.Lock()
        self.encoding = asyncio.Semaphore(_THREADS)
        """Taken while a response is encoded in a thread."""

    async def compute(self, function: Callable[[], T]) -> T:
        """The result of the function, computed in a thread. It must not touch the store."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "request")
            sys.setswitchinterval(_SWITCH_INTERVAL)
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    async def write(
        self, call: ApiRequest, size: int, verb: Callable[[ApiRequest], Written]
    ) -> Written:
        """The result of the verb, computed in the loop or in a thread, depending on the size of the
        request and of the object."""
        if size * custom.weight(call.type) <= LARGE and not self.is_large(call.key):
            return verb(call)
        before = [*call.warnings]
        for attempt in range(_TRIES):
            one = copy(call)
            one.warnings = [*before]
            try:
                return await self._drafted(one, verb, again=attempt > 0)
            except ChangedMeanwhile:
                continue
            finally:
                call.warnings[:] = one.warnings
        raise conflict(call.resource, call.name, MODIFIED)

    async def _drafted(
        self, call: ApiRequest, verb: Callable[[ApiRequest], Written], again: bool
    ) -> Written:
        """Raises ChangedMeanwhile. While a request is worked out `again` no other draft is committed:
        large requests that depend on each other would overtake it once more."""
        draft = Draft(call.cluster.store)
        call.cluster = call.cluster.drafting(draft)

        def work() -> Written:
            result = verb(call)
            _check_size(draft, call.type.builtin)
            return result

        if again:
            async with self._committing:
                answer, new = await self.compute(work)
                committed = draft.commit()
        else:
            answer, new = await self.compute(work)
            async with self._committing:
                committed = draft.commit()
        return (committed if committed is not None else answer), new

    def is_large(self, key: Key) -> bool:
        """Whether what is to be done with the object is too much for the loop."""
        return self._store.size(key) > LARGE

    def is_heavy(self, keys: Sequence[Key], type: ResourceType) -> bool:
        """Whether showing those objects is too much for the loop."""
        columns = sum(_DEEP if ".." in column.json_path else 1 for column in type.columns)
        work = 1 + columns / _COLUMNS
        if len(keys) * work > MANY:
            return True
        return sum(map(self._store.size, keys)) * work > MANY * _USUAL

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _check_size(draft: Draft, builtin: bool) -> None:
    raw = draft.pending.after if draft.pending is not None else None
    if raw is None or len(_encode(raw)) <= MAX_STORED:
        return
    if not builtin or _as_protobuf(raw) > MAX_STORED:
        raise StatusError(500, "", "etcdserver: request is too large")


def _as_protobuf(raw: Raw) -> int:
    """How many bytes an object of a built-in kind has at least in etcd, where it is protobuf: the names
    of its fields take a byte each, but for those in `managedFields`, which stay JSON."""
    size = 0
    waiting: list[Any] = [raw]
    while waiting:
        part = waiting.pop()
        if part.__class__ is dict:
            size += 2 * len(part)
            for name, value in part.items():
                if name == "managedFields":
                    size += len(_encode(value))
                else:
                    waiting.append(value)
        elif part.__class__ is list:
            size += 2 * len(part)
            waiting.extend(part)
        elif part.__class__ is str:
            size += len(part) if part.isascii() else len(part.encode())
    return size
