"""What the figures were taken on."""

import os
import platform
from pathlib import Path

import msgspec
import numpy as np

import holdfast


class Machine(msgspec.Struct, frozen=True):
    cpu: str
    cores: int
    system: str
    python: str
    numpy: str
    holdfast: str

    def __str__(self) -> str:
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        return f"{self.cpu}, {cores}, {self.system}, Python {self.python}, numpy {self.numpy}"


def this_machine() -> Machine:
    return Machine(
        cpu=_cpu(),
        cores=_cores(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        numpy=np.__version__,
        holdfast=holdfast.__version__,
    )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    """Those this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
