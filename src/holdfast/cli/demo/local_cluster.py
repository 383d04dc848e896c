"""`holdfast up` as a process of its own, as a reader would start it."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast.cli.options import Failure

NODES = 3
THRESHOLD = "8s"
CONFIG = f"""\
# The default actions, but a job starves after {THRESHOLD} instead of 48h, and all nodes may have holds.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
actions:
  - name: allocate
  - name: backfill
  - name: reserve
    arguments: {{starvingJobTimeThreshold: {THRESHOLD}, reservedNodePercent: 100}}
  - name: preempt
  - name: reclaim
"""
_READY = "Try:"
_STOPS_WITHIN = 15.0
_DASHBOARD = re.compile(r"http://\S+")


class LocalCluster(NamedTuple):
    process: Process
    kubeconfig: Path
    printed: list[str]
    """What `up` printed until it was ready."""

    @property
    def dashboard(self) -> str:
        """Its address, or nothing if this cluster has none."""
        found = _DASHBOARD.search("\n".join(self.printed))
        return found[0] if found else ""


@asynccontextmanager
async def local_cluster(folder: Path) -> AsyncIterator[LocalCluster]:
    """Files in `folder`: kubeconfig, configuration and the log. Raises Failure."""
    config, kubeconfig, log = folder / "config.yaml", folder / "kubeconfig", folder / "up.log"
    config.write_text(CONFIG)
    command = ["-m", "holdfast", "up", "--nodes", str(NODES), "--config", str(config)]
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            "--kubeconfig-out",
            str(kubeconfig),
            stdout=PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is for the demo, which stops the cluster
        )
    try:
        yield LocalCluster(process, kubeconfig, await _until_ready(process, log))
    finally:
        await _stop(process)


async def _until_ready(process: Process, log: Path) -> list[str]:
    assert process.stdout is not None
    printed: list[str] = []
    async for line in process.stdout:
        printed.append(line.decode().rstrip("\n"))
        if printed[-1].startswith(_READY):
            return printed
    raise Failure(1, ["`holdfast up` did not start:", *(f"  {line}" for line in _lines(log))])


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOPS_WITHIN)
    except TimeoutError:
        process.kill()
        await process.wait()
