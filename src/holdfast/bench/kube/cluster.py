"""The server the benchmark runs on: objects made and deleted, many at a time; binds seen."""

import asyncio
import copy
import time
from collections.abc import Iterable

import msgspec

from holdfast.backends.kubernetes.errors import ApiError, KubernetesError
from holdfast.backends.kubernetes.http.client import Client, Request, get
from holdfast.bench.errors import BenchError
from holdfast.bench.kube.objects import LABEL, Raw

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
    """Also what an ERROR event has in the place of a pod."""

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

    async def create_pods(self, pods: Iterable[Raw], scheduler: str) -> None:
        by_namespace: dict[str, list[Raw]] = {}
        for pod in pods:
            made = copy.copy(pod)
            made["spec"] = {**pod["spec"], "schedulerName": scheduler}
            by_namespace.setdefault(pod["metadata"]["namespace"], []).append(made)
        for namespace, some in by_namespace.items():
            await self.create(f"/api/v1/namespaces/{namespace}/pods", some)

    async def delete_pods(self, namespaces: Iterable[str]) -> None:
        for namespace in namespaces:
            await self._delete(f"/api/v1/namespaces/{namespace}/pods?{_SELECTOR}")

    async def delete_all(self, namespaces: Iterable[str]) -> None:
        await self.delete_pods(namespaces)
        await self._delete(f"/api/v1/nodes?{_SELECTOR}")
        for name in namespaces:
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


class Binds:
    """Sees pods get their nodes, and remembers when."""

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
        """Which have their nodes now, and as of which version of the list."""
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
