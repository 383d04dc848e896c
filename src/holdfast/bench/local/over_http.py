"""Measures pods created over HTTPS against `holdfast up` in a process of its own."""

import asyncio
import base64
import resource
import signal
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from holdfast.bench.errors import BenchError
from holdfast.bench.local.in_process import Measured, new_pod

_CLIENTS = 32
_PODS = "/api/v1/namespaces/default/pods"


def measure(nodes: int, pods: int, folder: Path, kept: bool) -> Measured:
    """`kept` on disk, or in memory. The folder also takes the kubeconfig."""
    return asyncio.run(_measure(nodes, pods, folder, kept))


async def _measure(nodes: int, pods: int, folder: Path, kept: bool) -> Measured:
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
            raise BenchError("holdfast up did not come up")
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
