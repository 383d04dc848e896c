"""The SQLite journal of a store, written by a thread that commits in batches.

The table has the changes, oldest first. An object is its latest row; a row without an object is a
deletion. Rows up to the compacted revision are only those still current, so reading all rows in order
yields both the objects and the retained changes. Every row has a checksum, since SQLite detects damage
to its own structures but not to their content.
"""

import gc
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from holdfast.local.store.history import History
from holdfast.local.store.objects import Key, Raw, StoreChange, StoreFailed, memory_of
from holdfast.local.store.store import KEEP, Kind, Store

APPLICATION_ID = 0x484F4C44
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE changes (
    revision INTEGER PRIMARY KEY, "group" TEXT NOT NULL, kind TEXT NOT NULL,
    namespace TEXT NOT NULL, name TEXT NOT NULL, object BLOB, checksum INTEGER NOT NULL
);
CREATE TABLE state (compacted INTEGER NOT NULL);
INSERT INTO state VALUES (0);
"""
_TAKE_OUT = "DELETE FROM changes WHERE revision IN (SELECT value FROM json_each(?))"
_COLUMNS = 7
_ROWS_AT_ONCE = 4_000
"""SQLite takes no more than 32,766 values in one statement."""

Row = tuple[int, str, str, str, str, bytes | None, int]


class Database:
    """The file. One process holds it at a time: SQLite's lock ends with the process, also after a
    crash.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it. Raises StoreFailed where that cannot be."""
        self.path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)  # what is in it may be secret
            self._connection = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise StoreFailed(f"{path}: cannot be opened: {error}") from None
        try:
            self._prepare()
        except BaseException as error:
            self._connection.close()
            if isinstance(error, sqlite3.Error):
                raise self._failed(error) from None
            raise

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        (application,) = run("PRAGMA application_id").fetchone()
        (version,) = run("PRAGMA user_version").fetchone()
        (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
        new = not (application or version or tables)
        if not new and application != APPLICATION_ID:
            raise StoreFailed(f"{self.path}: is a database, but not Holdfast's")
        if version > SCHEMA_VERSION:
            raise StoreFailed(
                f"{self.path}: was written by a newer Holdfast (format {version}; this version "
                f"reads up to {SCHEMA_VERSION}): use a newer version, or another --data-dir"
            )
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        # Takes the lock, which is then kept.
        run("BEGIN EXCLUSIVE")
        if new:
            for statement in _SCHEMA.split(";"):
                run(statement)
            run(f"PRAGMA application_id = {APPLICATION_ID}")
            run(f"PRAGMA user_version = {SCHEMA_VERSION}")
        run("COMMIT")
        found = [line for (line,) in run("PRAGMA quick_check(3)")]
        if found != ["ok"]:
            raise self._damaged("; ".join(found))

    def compacted(self) -> int:
        rows = self._connection.execute("SELECT compacted FROM state").fetchall()
        if len(rows) != 1:
            raise self._damaged("the compacted revision is missing")
        return int(rows[0][0])

    def rows(self) -> Iterator[tuple[int, Key, Raw | None, int]]:
        """Revision, key, object and its size in memory, oldest first. Raises StoreFailed at what is
        damaged."""
        decode = msgspec.json.Decoder().decode
        columns = 'revision, "group", kind, namespace, name, object, checksum'
        try:
            for row in self._connection.execute(f"SELECT {columns} FROM changes ORDER BY revision"):
                revision, *names, data, checksum = row
                key = Key(*names)
                if _checksum(revision, key, data) != checksum:
                    raise self._damaged(f"the checksum of revision {revision} ({key}) is wrong")
                if data is None:
                    yield revision, key, None, 0
                else:
                    yield revision, key, decode(data), memory_of(data)
        except (sqlite3.Error, TypeError, msgspec.DecodeError) as error:
            raise self._damaged(str(error)) from None

    def commit(
        self,
        changes: Sequence[tuple[StoreChange, bytes | None]],
        gone: Iterable[int],
        compacted: int | None,
    ) -> None:
        """Adds the changes, with their objects encoded, and takes out the rows of revisions that are
        gone, all or nothing. Raises StoreFailed.

        Few statements for many rows: between two of them this thread must ask Python for its
        turn, and the event loop's thread is slow to give it."""
        rows = [_row(change, data) for change, data in changes]
        chunks = [rows[i : i + _ROWS_AT_ONCE] for i in range(0, len(rows), _ROWS_AT_ONCE)]
        run = self._connection.execute
        try:
            if len(chunks) == 1 and compacted is None:
                self._insert(chunks[0])
                return
            run("BEGIN")
            for chunk in chunks:
                self._insert(chunk)
            if compacted is not None:
                revisions = msgspec.json.encode(list(gone)).decode()
                run(_TAKE_OUT, (revisions,))
                run("UPDATE state SET compacted = ?", (compacted,))
            run("COMMIT")
        except sqlite3.Error as error:
            raise StoreFailed(f"{self.path}: cannot be written: {error}") from None

    def _insert(self, rows: Sequence[Row]) -> None:
        places = f"({', '.join('?' * _COLUMNS)})"
        statement = f"INSERT INTO changes VALUES {', '.join([places] * len(rows))}"
        self._connection.execute(statement, [value for row in rows for value in row])

    def close(self) -> None:
        self._connection.close()

    def _failed(self, error: sqlite3.Error) -> StoreFailed:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreFailed(f"{self.path}: is in use by another process")
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return self._damaged(str(error))
        return StoreFailed(f"{self.path}: cannot be opened: {error}")

    def _damaged(self, how: str) -> StoreFailed:
        return StoreFailed(
            f"{self.path}: is damaged: {how}. Restore it from a backup, or use another --data-dir"
        )


def _row(change: StoreChange, data: bytes | None) -> Row:
    return (change.revision, *change.key, data, _checksum(change.revision, change.key, data))


def _checksum(revision: int, key: Key, data: bytes | None) -> int:
    start = crc32("\0".join((str(revision), *key)).encode())
    return start if data is None else crc32(data, start)


FILE = "holdfast.db"
T = TypeVar("T")


def open_store(folder: Path, keep: int = KEEP) -> Store:
    """The store in that folder. Raises StoreFailed if it cannot be used."""
    journal = SqliteJournal(folder / FILE)
    try:
        return Store(journal, keep)
    except BaseException:
        journal.close()
        raise


class SqliteJournal:
    """Queues changes in the event loop's thread and commits them in another: one commit makes
    everything queued durable, so batches grow with the load.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path)
        self.durable = 0
        self.failure: StoreFailed | None = None
        self._queue: deque[tuple[StoreChange, bytes | None]] = deque()
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
                    history.add(StoreChange(revision, key, of_kind.get(key), after), size)
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

    def write(self, change: StoreChange, data: bytes | None) -> None:
        self._written = change.revision
        self._queue.append((change, data))
        if not self._something.is_set():
            self._something.set()

    def forget(self, changes: Iterable[StoreChange], compacted: int) -> None:
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
    """Switches the garbage collector off while objects are loaded: there is no garbage, and scanning
    for it takes longer than loading.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
