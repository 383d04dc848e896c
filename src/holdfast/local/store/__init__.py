"""The object store of a local cluster: one revision for all objects, watches, SQLite.

    objects  raw objects, their keys, changes; UIDs and names of new ones
    store    the store, in memory; watches; consistent lists in pages; drafts of requests in threads
    history  the changes that a watch can still resume from
    journal  the SQLite file, written by a thread of its own

    store = Store()
    pod = store.create(key, raw)                        # resourceVersion is the store's
    store.update(key, {**pod, …}, expected=pod["metadata"]["resourceVersion"])
    await store.settled(store.revision)                 # now a crash cannot take it back

A mutation takes effect at once, in the thread of the event loop, and every later call sees it. With a
journal it is durable a little later: an HTTP response or a watch event waits for `settled`, and
`subscribe` does so by itself. May import `api` only.
"""

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
from holdfast.local.store.store import ChangedMeanwhile, Draft, Snapshot, Store

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
