"""Measures `holdfast snapshot` on a real API server that is filled with a large cluster.

    python -m realserver.large_snapshot FOLDER [nodes] [pods] [times]

Prints the seconds by the clock, the CPU seconds of the command, of kube-apiserver and of etcd, and the
peak memory of the command, for each run.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.api.kinds import KINDS
from holdfast.kube.client import Client, Request, path_of
from holdfast.kube.kubeconfig import find_access
from realserver.server import RealServer
from snapshot import large_cluster

_CONNECTIONS = 32
_GIVEN_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "ownerReferences")
_PROGRAMS = ("kube-apiserver", "etcd")


async def fill(kubeconfig: Path, nodes: int, pods: int) -> None:
    """Creates namespaces, nodes, Deployments and pods. Pods have their node, but no status; owners,
    whose UIDs the server would have to know, are left out."""
    made = chain(large_cluster.nodes(nodes), large_cluster.workloads(pods))
    access = find_access(str(kubeconfig))
    async with Client(access, connections=_CONNECTIONS) as client:
        await _create(client, large_cluster.namespaces())
        await _create(client, made)
        await _create(client, large_cluster.pods(pods, nodes))


async def _create(client: Client, objects: Iterable[dict[str, Any]]) -> None:
    left: Iterator[dict[str, Any]] = iter(objects)

    async def work() -> None:
        for raw in left:
            metadata = {k: v for k, v in raw["metadata"].items() if k not in _GIVEN_BY_SERVER}
            given = {**raw, "metadata": metadata}
            if raw["kind"] != "Node":  # whose status is taken over when it is created
                given.pop("status", None)
            if raw["kind"] == "Pod":  # which admission would have to resolve
                given["spec"] = {k: v for k, v in raw["spec"].items() if k != "serviceAccountName"}
            if raw["kind"] == "Service":  # the server's range of addresses is too small for all
                given["spec"] = {**raw["spec"], "clusterIP": "None"}
            info = KINDS[raw["apiVersion"], raw["kind"]]
            path = path_of(info, metadata.get("namespace", ""))
            await client.call(Request("POST", path, json.dumps(given).encode()))

    await asyncio.gather(*(work() for _ in range(_CONNECTIONS)))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def program_pids(folder: Path) -> dict[str, int]:
    """The servers that were started with this folder."""
    found = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                words = (each / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            name = Path(os.fsdecode(words[0])).name
            if name in _PROGRAMS and any(os.fsencode(folder) in word for word in words):
                found[name] = int(each.name)
    return found


def measure(kubeconfig: Path, folder: Path, *flags: str) -> str:
    target = folder / "snapshot.json.gz"
    pids = program_pids(folder)
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    begun = time.monotonic()
    words = [sys.executable, "-m", "holdfast", "snapshot", "--kubeconfig", str(kubeconfig)]
    process = subprocess.Popen([*words, "-o", str(target), *flags])
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - begun
    servers = ", ".join(
        f"{name} {cpu_seconds(pid) - before[name]:.1f} s of CPU" for name, pid in pids.items()
    )
    own = usage.ru_utime + usage.ru_stime
    memory = usage.ru_maxrss / 1024
    size = target.stat().st_size / 1e6
    return (
        f"status {status}: {took:.1f} s, {own:.1f} s of CPU, {memory:.0f} MB; {servers}; "
        f"file of {size:.1f} MB; load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    folder = Path(sys.argv[1])
    nodes, pods, times = (*map(int, sys.argv[2:]), *(5000, 50_000, 3)[len(sys.argv) - 2 :])
    folder.mkdir(parents=True, exist_ok=True)
    with RealServer(folder) as server:
        kubeconfig = server.kubeconfig()
        begun = time.monotonic()
        asyncio.run(fill(kubeconfig, nodes, pods))
        print(f"filled in {time.monotonic() - begun:.0f} s", flush=True)
        for _ in range(times):
            print(measure(kubeconfig, folder), flush=True)
        again = folder / "again"
        while (folder / "stay").exists():  # measures again whenever this file appears
            if again.exists():
                again.unlink()
                print(measure(kubeconfig, folder), flush=True)
            time.sleep(1)


if __name__ == "__main__":
    main()
