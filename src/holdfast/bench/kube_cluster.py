"""A benchmark on a real API server: bulk creation and deletion, binds, scheduler processes."""

import asyncio
import contextlib
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast.api.kinds import KINDS
from holdfast.api.names import RESOURCE_API
from holdfast.bench.kube_content import DEVICE_KINDS, LABEL, Content
from holdfast.bench.workload import BenchError
from holdfast.kube.client import MERGE, POD, Client, Request, get, path_of
from holdfast.kube.errors import ApiError, KubernetesError

Raw = dict[str, Any]

# The cluster


_CLAIM = KINDS[RESOURCE_API, "ResourceClaim"]
_AT_ONCE = 24
_SELECTOR = f"labelSelector={LABEL}"
_DELETE = b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}'
_QUIET = 300.0
_BETWEEN = 0.5


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Pod(msgspec.Struct):
    """A pod, or the Status of an ERROR event."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Frame(msgspec.Struct):
    type: str
    object: _Pod


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[_Pod] | None = None


class BenchCluster:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, path: str, objects: Iterable[Raw]) -> None:
        """All of them; what is there already is left as it is."""
        waiting = iter(objects)

        async def some() -> None:
            for obj in waiting:
                try:
                    await self._client.call(Request("POST", path, msgspec.json.encode(obj)), attempts=6)
                except ApiError as error:
                    if error.status != 409:
                        raise BenchError(f"cannot create {obj['metadata']['name']}: {error}") from None

        await asyncio.gather(*(some() for _ in range(_AT_ONCE)))

    async def create_namespaces(self, names: Iterable[str]) -> None:
        labels = {LABEL: "kube", "kubernetes.io/metadata.name": ""}
        made = []
        for name in names:
            if name != "default":
                marks = {**labels, "kubernetes.io/metadata.name": name, "team": "devops"}
                made.append(
                    {
                        "apiVersion": "v1",
                        "kind": "Namespace",
                        "metadata": {"name": name, "labels": marks},
                    }
                )
        await self.create("/api/v1/namespaces", made)

    async def create_devices(self, objects: Iterable[Raw]) -> None:
        await self._at_once(self._create_whole, objects)

    async def create_pods(self, pods: Iterable[Raw], content: Content, scheduler: str) -> None:
        """With the claims that come with them, as the claim controller makes them."""

        async def create(pod: Raw) -> None:
            meta = pod["metadata"]
            made = copy.copy(pod)
            made["spec"] = {**pod["spec"], "schedulerName": scheduler}
            claims = content.claims.get(meta["name"], ())
            found = await self._create(f"/api/v1/namespaces/{meta['namespace']}/pods", made)
            for claim in claims:
                await self._create_whole(_owned(claim, found["metadata"]["uid"]))
            if status := content.claim_statuses.get(meta["name"]):
                path = path_of(POD, meta["namespace"], meta["name"], "status")
                await self._patch(path, {"status": status})

        await self._at_once(create, pods)

    async def _at_once(self, create: Callable[[Raw], Awaitable[None]], objects: Iterable[Raw]) -> None:
        waiting = iter(objects)

        async def some() -> None:
            for obj in waiting:
                try:
                    await create(obj)
                except ApiError as error:
                    raise BenchError(f"cannot create {obj['metadata']['name']}: {error}") from None

        await asyncio.gather(*(some() for _ in range(_AT_ONCE)))

    async def _create_whole(self, obj: Raw) -> None:
        """With its status, if it has one."""
        meta, kind = obj["metadata"], KINDS[obj["apiVersion"], obj["kind"]]
        await self._create(path_of(kind, meta.get("namespace", "")), obj)
        if obj.get("status"):
            path = path_of(kind, meta.get("namespace", ""), meta["name"], "status")
            await self._patch(path, {"status": obj["status"]})

    async def _create(self, path: str, obj: Raw) -> Raw:
        made: Raw = msgspec.json.decode(
            await self._client.call(Request("POST", path, msgspec.json.encode(obj)), attempts=6)
        )
        return made

    async def _patch(self, path: str, patch: Raw) -> None:
        body = msgspec.json.encode(patch)
        await self._client.call(Request("PATCH", path, body, MERGE), attempts=6)

    async def delete_pods(self, content: Content) -> None:
        """With the claims that they had: those that came with them, and those that a scheduler created
        for them."""
        for namespace in content.namespaces:
            await self._delete(f"/api/v1/namespaces/{namespace}/pods?{_SELECTOR}")
            if content.devices:
                await self._delete_claims(namespace, content)

    async def _delete_claims(self, namespace: str, content: Content, all_of_them: bool = False) -> None:
        path = path_of(_CLAIM, namespace)
        listed = msgspec.json.decode(await self._client.call(get(path, timeout=120), attempts=5))
        pods = {pod["metadata"]["name"] for pod in (*content.before, *content.measured)}
        fixed = {obj["metadata"]["name"] for obj in content.devices if obj["kind"] == _CLAIM.kind}

        async def delete(claim: Raw) -> None:
            meta = claim["metadata"]
            one = path_of(_CLAIM, namespace, meta["name"])
            if meta.get("finalizers"):
                await self._patch(one, {"metadata": {"finalizers": None}})
            await self._delete(one)

        def is_ours(meta: Raw) -> bool:
            owners = {owner["name"] for owner in meta.get("ownerReferences", ())}
            marked = LABEL in meta.get("labels", {})
            return bool(owners & pods) or (marked and (all_of_them or meta["name"] not in fixed))

        await self._at_once(delete, [each for each in listed["items"] if is_ours(each["metadata"])])

    async def delete_all(self, content: Content) -> None:
        await self.delete_pods(content)
        if content.devices:
            for namespace in content.namespaces:
                await self._delete_claims(namespace, content, all_of_them=True)
            for kind in DEVICE_KINDS:
                if kind != _CLAIM.kind:
                    await self._delete(f"{path_of(KINDS[RESOURCE_API, kind])}?{_SELECTOR}")
        await self._delete(f"/api/v1/nodes?{_SELECTOR}")
        for name in content.namespaces:
            if name != "default":
                await self._drop_namespace(name)

    async def _delete(self, path: str) -> None:
        try:
            await self._client.call(Request("DELETE", path, _DELETE, timeout=120), attempts=6)
        except ApiError as error:
            if error.status != 404:
                raise

    async def _drop_namespace(self, name: str) -> None:
        """Its events go first; where no controller finishes the deletion, we do."""
        await self._delete(f"/api/v1/namespaces/{name}/events")
        await self._delete(f"/api/v1/namespaces/{name}")
        try:
            found = msgspec.json.decode(await self._client.call(get(f"/api/v1/namespaces/{name}"), 3))
            found["spec"]["finalizers"] = []
            path = f"/api/v1/namespaces/{name}/finalize"
            await self._client.call(Request("PUT", path, msgspec.json.encode(found)), attempts=3)
        except ApiError as error:
            if error.status not in (404, 409):
                raise


def _owned(claim: Raw, uid: str) -> Raw:
    """The claim with the uid that the server gave its pod."""
    owners = [{**owner, "uid": uid} for owner in claim["metadata"].get("ownerReferences", ())]
    meta = {**claim["metadata"], "ownerReferences": owners} if owners else claim["metadata"]
    made = {**claim, "metadata": meta}
    if made.get("status"):
        owner = claim["metadata"]["ownerReferences"][0]["name"]
        consumer = {"resource": "pods", "name": owner, "uid": uid}
        made["status"] = {**made["status"], "reservedFor": [consumer]}
    return made


class Binds:
    """Watches pods being bound, with times."""

    def __init__(self, client: Client, wanted: set[str]) -> None:
        self._client = client
        self._wanted = wanted
        self._path = f"/api/v1/pods?{_SELECTOR}"
        self._decoder = msgspec.json.Decoder(_Frame)
        self.at: dict[str, float] = {}
        """Names to the moment their bind was seen."""

    async def watch(self, version: str) -> None:
        """From where `look` left off. Returns when all have their nodes. Servers drop watches that fall
        behind: then we look."""
        while len(self.at) < len(self._wanted):
            try:
                await self._follow(version)
            except KubernetesError:
                await asyncio.sleep(_BETWEEN)
            version = await self.look()

    async def look(self) -> str:
        """The pods that have nodes, and the resource version of the list."""
        listed = msgspec.json.decode(
            await self._client.call(get(self._path, timeout=120), attempts=5), type=_List
        )
        for pod in listed.items or ():
            self._saw(pod, time.monotonic())
        return listed.metadata.resource_version

    async def _follow(self, version: str) -> None:
        path = f"{self._path}&watch=true&timeoutSeconds=3600&resourceVersion={version}"
        rest = b""
        async with self._client.watch(path, _QUIET) as chunks:
            async for chunk in chunks:
                now = time.monotonic()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    frame = self._decoder.decode(line)
                    if frame.type == "ERROR":
                        return
                    self._saw(frame.object, now)
                if len(self.at) == len(self._wanted):
                    return

    def _saw(self, pod: _Pod, now: float) -> None:
        name = pod.metadata.name
        if pod.spec.node_name and name in self._wanted and name not in self.at:
            self.at[name] = now


# Scheduler processes


_FAST = {"qps": 10_000, "burst": 10_000}
_STOPS_WITHIN = 30.0


@dataclass(frozen=True, slots=True)
class SchedulerCandidate:
    """`binary` is kube-scheduler's; None means Holdfast."""

    name: str
    scheduler_name: str
    kubeconfig: str
    binary: str | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator["RunningScheduler"]:
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
                yield RunningScheduler(self.name, process, log)
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


def holdfast(kubeconfig: str) -> SchedulerCandidate:
    return SchedulerCandidate("holdfast", "holdfast-scheduler", kubeconfig)


def kube_scheduler(binary: str, kubeconfig: str) -> SchedulerCandidate:
    if not os.access(binary, os.X_OK):
        raise BenchError(f"--kube-scheduler: {binary} is not an executable file")
    return SchedulerCandidate("kube-scheduler", "default-scheduler", kubeconfig, binary)


class RunningScheduler:
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
