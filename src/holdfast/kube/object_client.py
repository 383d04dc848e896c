"""Raw objects of any kind from an API server: list, get, create, watch and events of an object."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from holdfast.api.events import last_observed
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import LEASE_LABELS, RUNNING_CONFIGURATION
from holdfast.kube.client import LEASE, MERGE, Client, Request, get, path_of
from holdfast.kube.errors import ApiError

Raw = dict[str, Any]

_EVENT = KINDS["v1", "Event"]
_PAGE = 500
_CONFIGZ = "kubescheduler.config.k8s.io"
"""The key of a scheduler's configuration in the answer of /configz."""
_QUIET = 3600.0
_ATTEMPTS = 3


Decode = Callable[[bytes], Raw]


def _decode(data: bytes) -> Raw:
    return msgspec.json.decode(data, type=Raw)


class ObjectPage(NamedTuple):
    items: list[Raw]
    version: str
    left: int
    """How many objects follow on other pages, where the server says so."""


class RunningConfiguration(NamedTuple):
    """The configuration that the scheduler of a cluster runs with."""

    mapping: Raw | None
    why_unknown: str = ""


class ObjectLister(ABC):
    """Answers queries for objects. Raises ApiError, as an API server does."""

    namespace: str
    """The default namespace."""

    @abstractmethod
    def now(self) -> float:
        """The time that ages are counted to, in seconds since the epoch."""

    @abstractmethod
    async def listed(
        self, info: KindInfo, namespace: str = "", selector: str = "", fields: str = ""
    ) -> tuple[list[Raw], str]:
        """All of them, and the version they are of."""

    @abstractmethod
    async def some(
        self,
        info: KindInfo,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        limit: int = _PAGE,
    ) -> list[Raw]:
        """Not more than so many of them."""

    @abstractmethod
    async def get(self, info: KindInfo, name: str, namespace: str = "") -> Raw: ...

    async def configuration(self) -> RunningConfiguration:
        return RunningConfiguration(None, "it is not part of what was read")

    async def events(self, raw: Raw) -> list[Raw]:
        """The events of an object, oldest first."""
        metadata = raw["metadata"]
        fields = f"involvedObject.kind={raw['kind']},involvedObject.name={metadata['name']}"
        if metadata.get("uid"):
            fields += f",involvedObject.uid={metadata['uid']}"
        found, _ = await self.listed(_EVENT, metadata.get("namespace") or "", fields=fields)
        return sorted(found, key=last_observed)


class Server(ObjectLister):
    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    @property
    def address(self) -> str:
        return self._client.access.server

    def now(self) -> float:
        return time.time()

    async def listed(
        self, info: KindInfo, namespace: str = "", selector: str = "", fields: str = ""
    ) -> tuple[list[Raw], str]:
        found: list[Raw] = []
        version = ""
        async for page in self.pages(info, namespace, selector, fields):
            found += page.items
            version = page.version
        return found, version

    async def pages(
        self,
        info: KindInfo,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        version: str = "",
        decode: Decode = _decode,
    ) -> AsyncIterator[ObjectPage]:
        """All of them, page by page; all pages are of one version: the latest, or the one given."""
        query = {"limit": str(_PAGE), "labelSelector": selector, "fieldSelector": fields}
        path = path_of(info, namespace)
        first = {"resourceVersion": version, "resourceVersionMatch": "Exact"} if version else {}
        reading = asyncio.ensure_future(self._read(f"{path}?{_encoded({**query, **first})}", decode))
        try:
            while True:
                page = await reading
                metadata = page.get("metadata") or {}
                more = metadata.get("continue") or ""
                if more:  # the server works on the next page while this one is used
                    reading = asyncio.ensure_future(
                        self._read(f"{path}?{_encoded({**query, 'continue': more})}", decode)
                    )
                items = [named(info, item) for item in page.pop("items", None) or ()]
                left = int(metadata.get("remainingItemCount") or 0)
                yield ObjectPage(items, str(metadata.get("resourceVersion") or ""), left)
                if not more:
                    return
        finally:
            reading.cancel()

    async def some(
        self,
        info: KindInfo,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        limit: int = _PAGE,
    ) -> list[Raw]:
        query = {"limit": str(limit), "labelSelector": selector, "fieldSelector": fields}
        page = await self._read(f"{path_of(info, namespace)}?{_encoded(query)}")
        return [named(info, item) for item in page.get("items") or ()]

    async def get(self, info: KindInfo, name: str, namespace: str = "") -> Raw:
        return named(info, await self._read(path_of(info, namespace, quote(name, safe=""))))

    async def create(self, info: KindInfo, raw: Raw, namespace: str = "", dry_run: bool = False) -> Raw:
        path = path_of(info, namespace) + ("?dryRun=All" if dry_run else "")
        request = Request("POST", path, msgspec.json.encode(raw))
        return named(info, msgspec.json.decode(await self._client.send(request), type=Raw))

    async def patch(self, info: KindInfo, name: str, patch: Raw, namespace: str = "") -> Raw:
        """Applies a merge patch."""
        path = path_of(info, namespace, quote(name, safe=""))
        request = Request("PATCH", path, msgspec.json.encode(patch), MERGE)
        return named(info, msgspec.json.decode(await self._client.send(request), type=Raw))

    async def watch(
        self,
        info: KindInfo,
        version: str,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
    ) -> AsyncIterator[tuple[str, Raw]]:
        """Changes from that version on, until the server ends it."""
        query = {"watch": "true", "resourceVersion": version, "labelSelector": selector}
        query["allowWatchBookmarks"] = "true"
        query["fieldSelector"] = fields
        async with self._client.watch(
            f"{path_of(info, namespace)}?{_encoded(query)}", _QUIET
        ) as chunks:
            rest = b""
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    frame = msgspec.json.decode(line, type=Raw)
                    if frame["type"] == "ERROR":
                        status = frame["object"]
                        raise ApiError(
                            int(status.get("code") or 500),
                            str(status.get("reason") or ""),
                            str(status.get("message") or ""),
                        )
                    yield frame["type"], named(info, frame["object"])

    async def version(self) -> Raw:
        """The answer of /version."""
        return await self._read("/version")

    async def configuration(self) -> RunningConfiguration:
        """`holdfast up` serves it beside the API; the leader of `holdfast run` writes it to its
        Lease."""
        try:
            served = (await self._read("/configz")).get(_CONFIGZ)
        except (ApiError, msgspec.DecodeError):
            served = None
        if isinstance(served, dict):
            return RunningConfiguration(served)
        labels = ",".join(f"{key}={value}" for key, value in LEASE_LABELS.items())
        try:
            leases, _ = await self.listed(LEASE, selector=labels)
        except ApiError as error:
            return RunningConfiguration(None, error.message)
        return _published_by(leases)

    async def _read(self, path: str, decode: Decode = _decode) -> Raw:
        return decode(await self._client.call(get(path), _ATTEMPTS))


class _Published(msgspec.Struct, rename="camel"):
    """What the leader writes to its Lease."""

    configuration: Raw
    arguments_left_out: list[str] = []
    """Plugins of others whose arguments are not part of it."""


def _published_by(leases: list[Raw]) -> RunningConfiguration:
    """What the leaders that hold these leases have written."""
    found: dict[str, Raw] = {}
    for lease in leases:
        metadata = lease["metadata"]
        text = (metadata.get("annotations") or {}).get(RUNNING_CONFIGURATION)
        if text is None:
            continue
        name = f"{metadata.get('namespace')}/{metadata['name']}"
        try:
            published = msgspec.json.decode(text, type=_Published)
        except msgspec.DecodeError:
            return RunningConfiguration(None, f"Lease {name}: {RUNNING_CONFIGURATION} is invalid")
        if plugins := ", ".join(published.arguments_left_out):
            return RunningConfiguration(None, f"the arguments of {plugins} are not published")
        found[name] = published.configuration
    if not found:
        return RunningConfiguration(None, "no Lease of a Holdfast scheduler has it")
    first, *others = found.values()
    if any(each != first for each in others):
        return RunningConfiguration(None, f"those of {', '.join(sorted(found))} differ")
    return RunningConfiguration(first)


def named(info: KindInfo, raw: Raw) -> Raw:
    """The object with apiVersion and kind, which items of a list lack."""
    return {**raw, "apiVersion": info.api_version, "kind": info.kind}


def _encoded(query: dict[str, str]) -> str:
    return urlencode({key: value for key, value in query.items() if value})
