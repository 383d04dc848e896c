"""The embedded object store: one revision for all objects, watches, SQLite. May import `api` only.

    objects    what is kept: raw objects, their keys, changes
    errors     what the store refuses
    store      the store itself, in memory
    history    the changes still remembered
    notices    who is told of changes, and who waits for them to be durable
    snapshot   the objects of a kind at one revision
    journal    the same on disk: the thread that writes
    database   and the SQLite file it writes to
    draft      the store for a request in another thread, whose write is committed later
    identity   uids, names and times of new objects

    store = Store()
    pod = store.create(key, raw)                        # resourceVersion is the store's
    store.update(key, {**pod, …}, expected=pod["metadata"]["resourceVersion"])
    await store.settled(store.revision)                 # now a crash cannot take it back

A mutation takes effect at once, in the thread of the event loop, and every later call sees it. With a
journal it is durable a little later: whoever tells the outside world of it (an HTTP response, a watch)
waits for `settled`, and `subscribe` does so by itself.
"""

from holdfast.local.store.draft import ChangedMeanwhile, Draft
from holdfast.local.store.journal import open_store
from holdfast.local.store.objects import (
    AlreadyExists,
    Compacted,
    Conflict,
    FutureRevision,
    Identity,
    Key,
    NotEncodable,
    NotFound,
    RandomNames,
    Raw,
    SeededNames,
    StoreChange,
    StoreError,
    StoreFailed,
    memory_of,
    node_key,
    pod_key,
)
from holdfast.local.store.store import Snapshot, Store

__all__ = [
    "AlreadyExists",
    "ChangedMeanwhile",
    "Compacted",
    "Conflict",
    "Draft",
    "FutureRevision",
    "Identity",
    "Key",
    "NotEncodable",
    "NotFound",
    "RandomNames",
    "Raw",
    "SeededNames",
    "Snapshot",
    "Store",
    "StoreChange",
    "StoreError",
    "StoreFailed",
    "memory_of",
    "node_key",
    "open_store",
    "pod_key",
]
