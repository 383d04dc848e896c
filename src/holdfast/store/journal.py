"""Changes kept on disk, by one thread that commits whatever has gathered since it last did.

The event loop's thread only appends to a queue. One commit makes all that is queued durable, so the
more there is to write, the more is written at once.
"""

import gc
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from holdfast.store.database import Database
from holdfast.store.errors import StoreFailed
from holdfast.store.history import History
from holdfast.store.objects import Change, Key, Raw
from holdfast.store.store import KEEP, Kind, Store

FILE = "holdfast.db"
T = TypeVar("T")


def open_store(folder: Path, keep: int = KEEP) -> Store:
    """The store kept in that folder. Raises StoreFailed where it cannot be used."""
    journal = SqliteJournal(folder / FILE)
    try:
        return Store(journal, keep)
    except BaseException:
        journal.close()
        raise


class SqliteJournal:
    def __init__(self, path: Path) -> None:
        self._database = Database(path)
        self.durable = 0
        self.failure: StoreFailed | None = None
        self._queue: deque[tuple[Change, bytes | None]] = deque()
        self._gone: deque[tuple[list[int], int]] = deque()
        self._written = 0
        self._something = threading.Event()
        """Set when there may be something to commit."""
        self._committed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._progress: Callable[[], None] = lambda: None

    def load(self, objects: dict[Kind, dict[Key, Raw]], history: History) -> int:
        history.compacted = compacted = self._database.compacted()
        revision = compacted
        with _collector_off():
            for revision, key, after, size in self._database.rows():
                of_kind = objects.setdefault(key[:2], {})
                if revision > compacted:
                    history.add(Change(revision, key, of_kind.get(key), after), size)
                elif after is not None:
                    history.sized(key, size)
                if after is None:
                    of_kind.pop(key, None)
                else:
                    of_kind[key] = after
        self.durable = self._written = max(revision, compacted)
        return self.durable

    def start(self, progress: Callable[[], None]) -> None:
        self._progress = progress
        self._thread = threading.Thread(target=self._run, name="holdfast-journal", daemon=True)
        self._thread.start()

    def write(self, change: Change, data: bytes | None) -> None:
        self._written = change.revision
        self._queue.append((change, data))
        if not self._something.is_set():
            self._something.set()

    def forget(self, changes: Iterable[Change], compacted: int) -> None:
        gone = []
        for change in changes:
            if change.before is not None:
                gone.append(int(change.before["metadata"]["resourceVersion"]))
            if change.after is None:
                gone.append(change.revision)
        self._gone.append((gone, compacted))
        self._something.set()

    def flush(self) -> None:
        with self._committed:
            self._committed.wait_for(lambda: self.durable >= self._written or self.failure is not None)

    def close(self) -> None:
        self._closing = True
        self._something.set()
        if self._thread is not None:
            self._thread.join()
        self._database.close()

    def _run(self) -> None:
        while not (self._closing and not self._queue and not self._gone):
            self._something.wait()
            self._something.clear()
            failure = self._commit()
            if failure is not None:
                with self._committed:
                    self.failure = failure
                    self._committed.notify_all()
                self._progress()
                return

    def _commit(self) -> StoreFailed | None:
        changes = list(_drained(self._queue))
        forgotten = list(_drained(self._gone))
        if not changes and not forgotten:
            return None
        gone = [revision for revisions, _ in forgotten for revision in revisions]
        try:
            self._database.commit(changes, gone, forgotten[-1][1] if forgotten else None)
        except StoreFailed as failure:
            return failure
        except Exception as error:  # this thread never ends without saying why
            return StoreFailed(f"{self._database.path}: cannot be written: {error}")
        if changes:
            with self._committed:
                self.durable = changes[-1][0].revision
                self._committed.notify_all()
            self._progress()
        return None


def _drained(queue: deque[T]) -> Iterator[T]:
    while queue:
        yield queue.popleft()


@contextmanager
def _collector_off() -> Iterator[None]:
    """Nothing is garbage while objects are read, and looking for some takes longer than reading."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
