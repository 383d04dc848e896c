"""`holdfast up --detach`: the same command in a process of its own, which outlives this one.

    this process                       the detached process (new session)
    start ────────────────────────────► reads its options, starts
    wait for the end of the pipe        │ serves
      status 0, with the banner ◄────── announce: writes banner and warnings, closes the pipe
      its errors and its status ◄────── or ends before that

The number of the pipe's descriptor is in an environment variable, as systemd gives NOTIFY_SOCKET to a
service. If this process is killed while it waits, the announcement fails and the cluster stops: its
address would have been printed nowhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.cli.options import Failure

READY_DESCRIPTOR = "HOLDFAST_READY_FD"
_STOPS_WITHIN = 15.0


def detach(words: Sequence[str], log: Path, stops: str, reads_stdin: bool = False) -> None:
    """Runs `holdfast` with these words, and returns once it is ready. Its output goes to `log`, or to
    a temporary file if that cannot be written. `stops` is the command that ends it. Raises Failure with
    its errors, if it ends before."""
    output = _Log(log)
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            # -P: modules are not looked for in the current directory
            [sys.executable, "-P", "-m", "holdfast", *words],
            stdin=None if reads_stdin else subprocess.DEVNULL,
            stdout=output.descriptor,
            stderr=output.descriptor,
            pass_fds=[writing],
            start_new_session=True,
            env=os.environ | {READY_DESCRIPTOR: str(writing)},
        )
    finally:
        os.close(writing)
    try:
        with os.fdopen(reading, encoding="utf-8") as pipe:
            announced = pipe.read()
        status = 0 if announced else process.wait()
    except BaseException:
        _stop(process)
        raise
    if not announced:
        raise Failure(_exit_status(status), output.discard(), as_it_is=True)
    os.close(output.descriptor)
    banner, warnings = json.loads(announced)
    sys.stderr.writelines(f"{warning}\n" for warning in warnings)
    sys.stdout.write(banner + how_to_stop(output.path, stops))
    process.returncode = 0  # it goes on; without this Popen warns that it was not waited for


def how_to_stop(log: Path, command: str) -> str:
    return f"Runs in the background, log in {log}\nTo stop it: {command}\n"


def announce(banner: str, warnings: Sequence[str]) -> None:
    """Tells the process that waits in `detach`, if there is one, that this one is ready, and what to
    print on stdout and stderr. Raises Failure if that process is gone."""
    number = os.environ.pop(READY_DESCRIPTOR, "")
    if not number:
        return
    try:
        with os.fdopen(int(number), "w", encoding="utf-8") as pipe:
            json.dump([banner, list(warnings)], pipe)
    except BrokenPipeError:
        raise Failure(
            1, ["the process that started this one ended before the cluster was up"]
        ) from None


def words_of(context: Any, *, without: str) -> list[str]:
    """The options of the command line, except one."""
    words: list[str] = []
    for option in context.command.params:
        value = context.params.get(option.name)
        if option.name == without or value is None or value == option.get_default(context):
            continue
        flag = max(option.opts, key=len)
        if option.is_flag:
            words.append(flag if value else option.secondary_opts[0])
        else:
            values = value if isinstance(value, list | tuple) else [value]
            words += [f"{flag}={each}" for each in values]
    return words


class _Log:
    """The file that a detached process writes to, readable by its owner only: the dashboard's address
    has a token."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_new = not path.exists()
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError:
            self._is_new = True
            self.descriptor, name = tempfile.mkstemp(prefix="holdfast-", suffix=".log")
            self.path = Path(name)
        self._begin = os.fstat(self.descriptor).st_size

    def discard(self) -> list[str]:
        """The lines that were written. Removes the file if it was made for them."""
        with os.fdopen(self.descriptor, encoding="utf-8", errors="replace") as file:
            file.seek(self._begin)
            lines = file.read().splitlines()
        if self._is_new:
            with suppress(OSError):
                self.path.unlink()
        return lines


def _exit_status(status: int) -> int:
    """As a shell gives it: that of a process ended by a signal is above 128."""
    return status if status >= 0 else 128 - status


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOPS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
