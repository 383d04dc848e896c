"""Which process runs the cluster of a kubeconfig.

`holdfast up` writes its process id to a file beside the kubeconfig, and keeps the file locked. The
kernel releases the lock when the process ends, however it ends: the number in a file that is not locked
is that of a process that has ended, even if another program has got it since.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from holdfast.api.errors import HoldfastError

_LOOK_EVERY = 0.02
"""Seconds between two looks whether the lock is released."""


def process_file(kubeconfig: Path) -> Path:
    return kubeconfig.with_name(f"{kubeconfig.name}.pid")


class ClusterRuns(HoldfastError):
    """The file is locked by another process."""

    def __init__(self, process: int) -> None:
        super().__init__(f"process {process}")
        self.process = process


class ProcessFile:
    """The file with the id of this process, until the end of the block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_written = False

    def __enter__(self) -> ProcessFile:
        """Raises ClusterRuns. A file that cannot be written, or on a file system without locks, is no
        reason not to start: `holdfast down` then reports that it does not know the process."""
        with suppress(OSError):
            self._write()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_written:
            with suppress(OSError):
                self._path.unlink()

    def _write(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            process = _read(descriptor)
            os.close(descriptor)
            raise ClusterRuns(process) from None
        except OSError:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        # The descriptor stays open, so that the lock is released by the end of the process.
        self._is_written = True


class ClusterProcess:
    """The process of a file, as another process sees it. Raises OSError if the file cannot be read."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        self.number = _read(self._descriptor)
        """0 if the file has none."""

    def close(self) -> None:
        os.close(self._descriptor)

    @property
    def runs(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return False

    def stop(self, within: float) -> bool:
        """Stops it, and returns whether it has ended within that many seconds. Raises OSError."""
        if self.runs:
            os.kill(self.number, signal.SIGTERM)
        until = time.monotonic() + within
        while self.runs:
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_EVERY)
        return True


def _read(descriptor: int) -> int:
    text = os.pread(descriptor, 20, 0).strip()
    return int(text) if text.isdigit() else 0
