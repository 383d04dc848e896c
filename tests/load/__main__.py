"""`python -m load up|run [--minutes 60] [--rate 20] [--seed 0]`"""

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.holdfast_process import holdfast
from harness.up_process import Running
from load.measuring import Size, oversold, size_of
from load.operations import Json, Operations, RequestRefused, Requests
from realserver.client import RefusedError
from realserver.server import RealServer

_CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: holdfast-scheduler
  pluginConfig:
  - name: Reservation
    args: {gcDurationSeconds: 60}
actions:
- {name: allocate}
- {name: backfill}
- {name: reserve, arguments: {starvingJobTimeThreshold: 30s, reservedNodePercent: 20}}
- {name: preempt}
- {name: reclaim}
"""
_PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "load-high"},
    "value": 1000,
}
_WARM_UP = 20
"""Minutes after which the process should have its size: the history for watches has 20,000 changes by
then, and the caches what they may have."""


class Target:
    """The process under load, and how to talk to its cluster."""

    def __init__(self, pid: int, request: Requests, has_kubelets: bool) -> None:
        self.pid = pid
        self.request = request
        self.has_kubelets = has_kubelets


@contextmanager
def up(folder: Path, config: Path) -> Iterator[Target]:
    arguments = ["--nodes", "0", "--data-dir", str(folder / "data"), "--config", str(config)]
    with Running(folder, *arguments) as running:
        kept: list[http.client.HTTPSConnection] = []

        def request(method: str, path: str, body: Json | None = None) -> Json:
            if not kept:
                kept.append(running.client._connection())
            kind = "merge-patch+json" if method == "PATCH" else "json"
            headers = {
                "Authorization": f"Bearer {running.client.token}",
                "Content-Type": f"application/{kind}",
            }
            try:
                kept[0].request(method, path, json.dumps(body) if body is not None else None, headers)
                answer = kept[0].getresponse()
                text = answer.read()
            except (http.client.HTTPException, OSError):
                kept.pop().close()
                raise
            if answer.status >= 300:
                raise RequestRefused(text.decode())
            found: Json = json.loads(text)
            return found

        yield Target(running.process.pid, request, True)
        for connection in kept:
            connection.close()


@contextmanager
def run(folder: Path, config: Path) -> Iterator[Target]:
    with RealServer(folder) as server:

        def request(method: str, path: str, body: Json | None = None) -> Json:
            kind = "merge-patch+json" if method == "PATCH" else "json"
            try:
                answer: Any = server.client.request(method, path, body, kind)
            except RefusedError as error:
                raise RequestRefused(str(error)) from None
            found: Json = answer
            return found

        flags = ("--install-crds", "--config", str(config))
        with holdfast(server.kubeconfig("holdfast"), folder / "run.log", *flags) as process:
            yield Target(process.process.pid, request, False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("mode", choices=("up", "run"))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=20, help="operations a second at most")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    sizes: list[Size] = []
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        config = folder / "config.yaml"
        config.write_text(_CONFIG)
        with {"up": up, "run": run}[asked.mode](folder, config) as target:
            target.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", _PRIORITY)
            operations = Operations(target.request, asked.seed)
            operations.prepare()
            begun = time.monotonic()
            for minute in range(1, round(asked.minutes) + 1):
                _one_minute(operations, target, begun + minute * 60, asked.rate)
                sizes.append(size_of(target.pid))
                nodes = target.request("GET", "/api/v1/nodes")["items"]
                pods = target.request("GET", "/api/v1/pods")["items"]
                problems += oversold(nodes, pods)
                bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
                print(
                    f"minute {minute}: {sizes[-1].mebibytes:.0f} MiB, {sizes[-1].descriptors} fds,"
                    f" {sum(operations.counts.values())} operations, {len(pods)} pods, {bound} bound,"
                    f" {len(problems)} problems",
                    flush=True,
                )
    settled = sizes[_WARM_UP:] or sizes
    half = len(settled) // 2 or 1
    first, second = settled[:half], settled[half:] or settled
    print(json.dumps(operations.counts))
    print(
        f"{asked.mode}: mean {_mean(first):.0f} MiB in the first half after {_WARM_UP} minutes,"
        f" {_mean(second):.0f} MiB in the second; descriptors {min(s.descriptors for s in settled)}"
        f" to {max(s.descriptors for s in settled)}; {len(problems)} nodes oversold"
    )
    print(f"growth after {_WARM_UP} minutes: {_slope(settled) * 60:+.1f} MiB an hour")
    for problem in problems[:10]:
        print(problem)
    return 1 if problems else 0


def _one_minute(operations: Operations, target: Target, until: float, rate: float) -> None:
    step = 0
    while (now := time.monotonic()) < until:
        operations.step()
        step += 1
        if not target.has_kubelets and step % 20 == 0:
            operations.finish_deletions()
        time.sleep(max(0.0, now + 1 / rate - time.monotonic()))
    operations.collect_events()


def _slope(sizes: list[Size]) -> float:
    """MiB a minute, by least squares."""
    middle = (len(sizes) - 1) / 2
    mean = _mean(sizes)
    spread = sum((at - middle) ** 2 for at in range(len(sizes)))
    along = sum((at - middle) * (size.mebibytes - mean) for at, size in enumerate(sizes))
    return along / spread if spread else 0.0


def _mean(sizes: list[Size]) -> float:
    return sum(size.mebibytes for size in sizes) / len(sizes)


if __name__ == "__main__":
    sys.exit(main())
