"""Measures pods bound per second in a local cluster, from creation to the watch event with the node
(`holdfast bench --mode embedded`).
"""

import asyncio
import base64
import gc
import resource
import signal
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml
from rich.console import Console

from holdfast.bench.measure import this_machine
from holdfast.bench.report import new_table
from holdfast.bench.workload import BenchError
from holdfast.local.cluster_loop import EmbeddedCluster
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Store, StoreChange, open_store, pod_key
from holdfast.local.store.objects import POD
from holdfast.scheduler.assembly import GARBAGE_AFTER

DEFAULT_NODES = 1_000
_PODS_PER_NODE = 10
_AT_ONCE = 100
"""Pods created before the cluster has its turn."""
_CLIENTS = 32
_PODS = "/api/v1/namespaces/default/pods"


class Measured(msgspec.Struct, frozen=True):
    how: str
    nodes: int
    pods: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.pods / self.seconds


def run(nodes: int, repeat: int, as_json: bool) -> None:
    """The best of the given number of runs of each row."""
    errors = Console(stderr=True, highlight=False)
    pods = nodes * _PODS_PER_NODE
    rows: list[Callable[[Path], Measured]] = [
        lambda folder: measure_in_process(nodes, pods, None),
        lambda folder: measure_in_process(nodes, pods, folder / "data"),
        lambda folder: measure_over_http(nodes, pods, folder, kept=False),
        lambda folder: measure_over_http(nodes, pods, folder, kept=True),
    ]
    best = []
    for row in rows:
        runs = []
        for _ in range(repeat):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(row(Path(folder)))
        best.append(max(runs, key=lambda each: each.rate))
        errors.print(f"{best[-1].how}: {best[-1].rate:,.0f} pods/s")
    if as_json:
        document = {"mode": "embedded", "machine": this_machine(), "rows": best}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        _print(Console(highlight=False), best)


def _print(console: Console, rows: list[Measured]) -> None:
    table = new_table("pods created", "nodes", "pods", "pods/s", "CPU s per 1,000")
    for row in rows:
        cpu = row.cpu_seconds / row.pods * 1_000
        table.add_row(row.how, str(row.nodes), str(row.pods), f"{row.rate:,.0f}", f"{cpu:.2f}")
    console.print(table)
    console.print(str(this_machine()))


def new_pod(number: int) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "200Mi"}
    container = {"name": "main", "image": "app:1", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:06d}", "labels": {"app": "bench"}},
        "spec": {
            "containers": [container],
            "schedulerName": "default-scheduler",
            "priority": 0,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
        },
    }


def measure_in_process(nodes: int, pods: int, folder: Path | None) -> Measured:
    """Pods created in the cluster's own process: store, scheduler and kubelets without HTTP. With
    SQLite in the folder, or in memory."""
    return asyncio.run(_measure_in_process(nodes, pods, folder))


async def _measure_in_process(nodes: int, pods: int, folder: Path | None) -> Measured:
    gc.set_threshold(*GARBAGE_AFTER)
    store = open_store(folder) if folder is not None else Store()
    cluster = EmbeddedCluster(SchedulerFactory.of(), store)
    cluster.add_nodes(nodes)
    await cluster.quiet()
    await store.settled(store.revision)
    running = asyncio.create_task(cluster.run())
    all_bound = _when_bound(store, pods)
    start, cpu = time.perf_counter(), time.process_time()
    for number in range(pods):
        raw = {**new_pod(number), "status": {"phase": "Pending", "qosClass": "Burstable"}}
        key = pod_key("default", raw["metadata"]["name"])
        store.create(key, cluster.identity.new(key, raw))
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
    await all_bound
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    cluster.stop()
    await running
    store.close()
    how = "in process, SQLite" if folder is not None else "in process, memory"
    return Measured(how, nodes, pods, seconds, cpu)


def _when_bound(store: Store, pods: int) -> "asyncio.Future[None]":
    """Returns when that many pods have a node, durably."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    bound: set[str] = set()

    def look(change: StoreChange) -> None:
        if change.key[:2] == POD and change.after is not None and change.after["spec"].get("nodeName"):
            bound.add(change.key.name)
            if len(bound) == pods and not done.done():
                done.set_result(None)

    store.subscribe(look)
    return done


def measure_over_http(nodes: int, pods: int, folder: Path, kept: bool) -> Measured:
    """Pods created over HTTPS against `holdfast up` in a process of its own; `kept` on disk, or in
    memory. The folder also takes the kubeconfig."""
    return asyncio.run(_measure_over_http(nodes, pods, folder, kept))


async def _measure_over_http(nodes: int, pods: int, folder: Path, kept: bool) -> Measured:
    kubeconfig = folder / "kubeconfig"
    arguments = ["up", "--nodes", str(nodes), "--kubeconfig-out", str(kubeconfig)]
    if kept:
        arguments += ["--data-dir", str(folder / "data")]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    before = _children_cpu()
    try:
        while line := await process.stdout.readline():
            if line.startswith(b"Try:"):
                break
        else:
            raise BenchError("holdfast up did not start")
        seconds = await _bound_after(kubeconfig, pods)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()
    how = f"over HTTP, {'SQLite' if kept else 'memory'}"
    return Measured(how, nodes, pods, seconds, _children_cpu() - before)


async def _bound_after(kubeconfig: Path, pods: int) -> float:
    """Seconds from the first request to the last pod seen on a node."""
    document = yaml.safe_load(kubeconfig.read_text())
    server = document["clusters"][0]["cluster"]
    authority = base64.b64decode(server["certificate-authority-data"]).decode()
    headers = {"Authorization": f"Bearer {document['users'][0]['user']['token']}"}
    connector = aiohttp.TCPConnector(
        limit=_CLIENTS + 1, ssl=ssl.create_default_context(cadata=authority)
    )
    async with aiohttp.ClientSession(
        server["server"], connector=connector, headers=headers, timeout=aiohttp.ClientTimeout()
    ) as session:
        watching = asyncio.create_task(_see_bound(session, pods))
        numbers = iter(range(pods))
        start = time.perf_counter()
        await asyncio.gather(*(_create(session, numbers) for _ in range(_CLIENTS)))
        await watching
        return time.perf_counter() - start


async def _create(session: aiohttp.ClientSession, numbers: Any) -> None:
    headers = {"Content-Type": "application/json"}
    for number in numbers:
        data = msgspec.json.encode(new_pod(number))
        async with session.post(_PODS, data=data, headers=headers) as response:
            if response.status != 201:
                raise BenchError(f"a pod was not created: {await response.text()}")
            await response.read()


async def _see_bound(session: aiohttp.ClientSession, pods: int) -> None:
    bound: set[str] = set()
    decoder = msgspec.json.Decoder(_Event)
    async with session.get(_PODS, params={"watch": "1"}, max_line_size=1 << 20) as response:
        rest = b""
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event = decoder.decode(line)
                if event.object.spec.node_name:
                    bound.add(event.object.metadata.name)
            if len(bound) == pods:
                return
    raise BenchError("the watch ended before all pods were bound")


class _Metadata(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _Event(msgspec.Struct):
    object: _Pod


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
