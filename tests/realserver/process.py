"""One server process: started, awaited, stopped."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

READY_WITHIN = 60.0
_LOOK_EVERY = 0.1
_STOPS_WITHIN = 10.0
_LAST_LINES = 15


class ServerFailedError(Exception):
    """A server process ended, or did not become ready in time; the message has the end of its log."""


class ServerProcess:
    def __init__(self, name: str, command: Sequence[str | Path], log: Path) -> None:
        self.name = name
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Asks again and again; the waiting is done on the process, so that its end is seen at once."""
        for _ in range(round(READY_WITHIN / _LOOK_EVERY)):
            if ready():
                return
            try:
                status = self._process.wait(_LOOK_EVERY)
            except subprocess.TimeoutExpired:
                continue
            raise ServerFailedError(f"{self.name} ended with status {status}:\n{self._end_of_log()}")
        raise ServerFailedError(
            f"{self.name} is not ready after {READY_WITHIN:g} s:\n{self._end_of_log()}"
        )

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _end_of_log(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:])


def free_ports(count: int) -> list[int]:
    """Ports that are free now. Another process may take one before it is used: then start again."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
