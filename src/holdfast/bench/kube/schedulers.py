"""Schedulers as processes: started on a server, and looked at from outside."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.bench.errors import BenchError

_FAST = {"qps": 10_000, "burst": 10_000}
_STOPS_WITHIN = 30.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """`binary` is kube-scheduler's; None stands for Holdfast."""

    name: str
    scheduler_name: str
    kubeconfig: str
    binary: str | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator["Running"]:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            config = Path(folder) / "config.yaml"
            config.write_text(json.dumps(self._configuration()))
            log = Path(folder) / "log"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    self._command(config),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            try:
                yield Running(self.name, process, log)
            finally:
                process.terminate()
                try:
                    process.wait(_STOPS_WITHIN)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _configuration(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": self.kubeconfig, **_FAST},
            "leaderElection": {"leaderElect": False},
        }

    def _command(self, config: Path) -> list[str]:
        if self.binary is not None:
            return [self.binary, f"--config={config}", "--secure-port=0"]
        return [sys.executable, "-m", "holdfast", "run", "--config", str(config), "--health-address="]


def holdfast(kubeconfig: str) -> Candidate:
    return Candidate("holdfast", "holdfast-scheduler", kubeconfig)


def kube_scheduler(binary: str, kubeconfig: str) -> Candidate:
    if not os.access(binary, os.X_OK):
        raise BenchError(f"--kube-scheduler: {binary} is not a program")
    return Candidate("kube-scheduler", "default-scheduler", kubeconfig, binary)


class Running:
    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self._name = name
        self._process = process
        self._log = log
        self._ticks = os.sysconf("SC_CLK_TCK")

    def check(self) -> None:
        """Raises BenchError if it has ended."""
        if self._process.poll() is not None:
            end = "\n".join(self._log.read_text(errors="replace").splitlines()[-8:])
            raise BenchError(f"{self._name} ended with status {self._process.returncode}:\n{end}")

    def cpu_seconds(self) -> float:
        self.check()
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / self._ticks

    def peak_memory_mb(self) -> float:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return 0.0
