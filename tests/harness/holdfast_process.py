"""`holdfast run`, or another command that goes on, as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from realserver.process import free_ports

_PATIENCE = 60.0
_LOOK_EVERY = 0.05


class HoldfastProcess:
    def __init__(self, kubeconfig: Path, log: Path, *flags: str, command: str = "run") -> None:
        (self.port,) = free_ports(1)
        self.log = log
        words = [sys.executable, "-m", "holdfast", command, "--kubeconfig", str(kubeconfig)]
        words += ["--health-address", f"127.0.0.1:{self.port}", *flags]
        with log.open("wb") as output:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=output)

    def get(self, path: str) -> tuple[int, str]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def difference(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = json.loads(self.get("/debug/compare")[1])
        return {key: value for key, value in found.items() if value}

    def figure(self, name: str) -> float:
        """A metric's value, summed over its labels."""
        lines = self.get("/metrics")[1].splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def events(self) -> list[dict[str, Any]]:
        """What it logged."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

    def wait_until(self, condition: Callable[[], object], within: float = _PATIENCE) -> None:
        wait_until(condition, within, lambda: self.log.read_text()[-3000:])


def wait_until(
    condition: Callable[[], object], within: float = _PATIENCE, describe: Callable[[], str] = str
) -> None:
    """Other processes do the work, so there is nothing to do but to look again."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"not within {within:g} s\n{describe()}"
        time.sleep(_LOOK_EVERY)


@contextmanager
def holdfast(
    kubeconfig: Path, log: Path, *flags: str, command: str = "run"
) -> Iterator[HoldfastProcess]:
    process = HoldfastProcess(kubeconfig, log, *flags, command=command)
    try:
        process.wait_until(process.is_ready)
        yield process
    finally:
        if process.process.poll() is None:
            process.process.send_signal(signal.SIGKILL)
        process.process.wait()
