"""Kills a writer in the middle of writing, again and again, and looks at what it left. As a program:

    python killing.py FOLDER TIMES SEED

Each writer is forked, so that killing two hundred takes seconds; that is why this is a program of its
own, with one thread, and not part of a test process.
"""

import asyncio
import os
import random
import select
import signal
import struct
import sys
import time
from pathlib import Path

from holdfast.local.store import Store, open_store, pod_key

_ACKNOWLEDGED = struct.Struct("<qqq")
KEYS = 40
KEEP = 300
GONE = -1


def write(folder: Path, pipe: int, seed: int) -> None:
    """Writes for ever, and reports each durable write: revision, key, value."""
    draw = random.Random(seed)
    store = open_store(folder, KEEP)

    async def one(number: int) -> None:
        while True:
            key, value = pod_key("x", str(number)), draw.randrange(1 << 30)
            if store.get(key) is None:
                store.create(key, {"metadata": {"name": key.name}, "value": value, "pad": "x" * 500})
            elif draw.random() < 0.2:
                store.delete(key)
                value = GONE
            else:
                store.update(key, {"metadata": {"name": key.name}, "value": value})
            revision = store.revision
            await store.settled(revision)
            os.write(pipe, _ACKNOWLEDGED.pack(revision, number, value))

    async def all() -> None:
        await asyncio.gather(*(one(number) for number in range(KEYS)))

    asyncio.run(all())


def one_life(folder: Path, seed: int) -> list[tuple[int, int, int]]:
    """Forks a writer, kills it a little after its first report, and returns the reports."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            write(folder, writing, seed)
        finally:
            os._exit(3)
    os.close(writing)
    select.select([reading], [], [], 20)
    time.sleep(random.Random(-seed).random() * 0.008)
    os.kill(child, signal.SIGKILL)
    acknowledged_bytes = b""
    while chunk := os.read(reading, 1 << 16):
        acknowledged_bytes += chunk
    os.close(reading)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the writer ended by itself"
    whole = len(acknowledged_bytes) - len(acknowledged_bytes) % _ACKNOWLEDGED.size
    return list(_ACKNOWLEDGED.iter_unpack(acknowledged_bytes[:whole]))


def check(store: Store, expected: dict[int, tuple[int, int]]) -> None:
    """A key is as it was acknowledged last, or as a later write, not yet acknowledged, made it."""
    for number, (revision, value) in expected.items():
        found = store.get(pod_key("x", str(number)))
        if found is None:
            changes = store.changes_after(store.compacted, "", "Pod")
            later = [c for c in changes if c.key.name == str(number) and c.revision > revision]
            assert value == GONE or later, f"key {number}: revision {revision} was lost"
        else:
            version = int(found["metadata"]["resourceVersion"])
            assert version >= revision, f"key {number}: is at {version}, {revision} was acknowledged"
            assert version > revision or found["value"] == value, f"key {number}: another value"


def main(folder: Path, times: int, seed: int) -> None:
    expected: dict[int, tuple[int, int]] = {}
    reached = acknowledged = lost_tails = 0
    for life in range(times):
        acknowledged_bytes = one_life(folder, seed * 1_000_000 + life)
        for revision, number, value in acknowledged_bytes:
            assert revision > reached, f"revision {revision} after a crash at {reached}"
            known = expected.get(number, (0, 0))
            expected[number] = max(known, (revision, value), key=lambda each: each[0])
        store = open_store(folder, KEEP)
        latest = max((revision for revision, _ in expected.values()), default=0)
        assert store.revision >= max(latest, reached), f"{store.revision} after {latest}, {reached}"
        check(store, expected)
        reached = store.revision
        lost_tails += store.revision > latest
        acknowledged += len(acknowledged_bytes)
        store.close()
    print(f"killed={times} acknowledged={acknowledged} unacknowledged_tails={lost_tails}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
