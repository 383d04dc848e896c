"""The raw objects of a cluster at one time, wherever they come from, and a reader that answers queries
from them as an API server would."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from holdfast.api.decode import object_name
from holdfast.api.documents import Document
from holdfast.api.errors import InvalidObject, SelectorError
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import DEFAULT_NAMESPACE, SIM_API
from holdfast.api.selectors import parse_field_selector, parse_label_selector
from holdfast.kube.errors import ApiError
from holdfast.kube.object_client import ObjectLister, Raw, RunningConfiguration
from holdfast.snapshot.admission import admission
from holdfast.snapshot.manifests import InvalidInput, load_files
from holdfast.snapshot.snapshot_header import SnapshotHeader, is_header, read_header
from holdfast.snapshot.timestamps import newest_creation, newest_time

_UIDS = uuid.UUID("0f5e1f0a-35d5-5e0b-8a55-5f7a86c0b1de")


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    documents: tuple[Document, ...]
    """As the files have them, for `sim.scenario.read_scenario`: with the header and Steps, if any."""
    now: float
    """When the objects were like this, in seconds since the epoch: the newest time that they state."""
    header: SnapshotHeader | None = None
    """None unless they come from `holdfast snapshot`."""

    @property
    def objects(self) -> list[Raw]:
        """Without the documents of the simulation itself."""
        return [each.data for each in self.documents if not is_own(each.data)]

    @property
    def warnings(self) -> list[str]:
        """What could not be read, a line each."""
        return [str(each) for each in self.header.not_permitted] if self.header is not None else []

    def lister(self, namespace: str = "") -> SnapshotLister:
        return SnapshotLister(self.objects, self.now, namespace, self.configuration)

    @property
    def configuration(self) -> RunningConfiguration:
        """Of the scheduler, if the snapshot has it."""
        if self.header is None or self.header.configuration is None:
            return RunningConfiguration(None, "the files do not have it")
        return RunningConfiguration(self.header.configuration)


def is_own(raw: Raw) -> bool:
    """Whether it is a document of the simulation, not an object of a cluster."""
    return raw.get("apiVersion") == SIM_API


def is_stored(raw: Raw) -> bool:
    """Whether a server has completed and checked the object."""
    metadata = raw["metadata"]
    return bool(metadata.get("uid") and metadata.get("creationTimestamp"))


def read_files(paths: Sequence[str]) -> ClusterObjects:
    """The objects of snapshot files and of whatever else has objects: files as `kubectl get -o yaml`
    writes them, folders of these, `-` for standard input. Raises InvalidInput with all errors."""
    documents = load_files(paths)
    if not documents:
        raise InvalidInput(f"{path}: no documents" for path in paths)
    problems = [problem for each in documents for problem in _shape_problems(each)]
    headers: list[SnapshotHeader] = []
    for document in documents:
        if is_header(document.data):
            try:
                headers.append(read_header(document.data))
            except InvalidObject as error:
                problems.append(f"{document}: {error}")
    if problems:
        raise InvalidInput(problems)
    return of_documents(documents, max(headers, key=lambda each: each.time, default=None))


def of_objects(objects: Iterable[Raw], header: SnapshotHeader) -> ClusterObjects:
    """Objects that were read from a cluster."""
    found = [header.raw(), *objects]
    return of_documents([Document("cluster", 1, 1, raw, i) for i, raw in enumerate(found)], header)


def of_documents(documents: Sequence[Document], header: SnapshotHeader | None) -> ClusterObjects:
    if header is None:
        # Objects that state no time may as well have been read just now.
        now = newest_time(each.data for each in documents) or float(int(time()))
    else:
        # Reading a large cluster takes seconds, in which objects may be created.
        now = max(header.time, newest_creation(each.data for each in documents) or 0.0)
    return ClusterObjects(tuple(documents), now, header)


def _shape_problems(document: Document) -> list[str]:
    """What no object may lack."""
    raw = document.data
    if not isinstance(raw, dict):
        return [f"{document}: expected an object"]
    if is_own(raw):
        return []
    found = [
        f"{document}: {object_name(raw)}: {field}: is required"
        for field in ("apiVersion", "kind")
        if not isinstance(raw.get(field), str) or not raw[field]
    ]
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        found.append(f"{document}: {object_name(raw)}: metadata.name: is required")
    return found


class SnapshotLister(ObjectLister):
    """Answers from a list of raw objects. The last of several with one name counts."""

    def __init__(
        self,
        objects: Iterable[Raw],
        now: float,
        namespace: str = "",
        configuration: RunningConfiguration | None = None,
    ) -> None:
        self._configuration = configuration
        self.namespace = namespace or DEFAULT_NAMESPACE
        self._now = now
        self._objects: dict[tuple[str, str], dict[tuple[str, str], Raw]] = {}
        known = list(objects)
        admitted = admission(known)
        for raw in map(admitted, known):
            info = KINDS.get((raw["apiVersion"], raw["kind"]))
            identified = _identified(raw, info is not None and info.namespaced)
            metadata = identified["metadata"]
            of_kind = self._objects.setdefault((raw["apiVersion"], raw["kind"]), {})
            of_kind[metadata.get("namespace") or "", metadata["name"]] = identified

    def now(self) -> float:
        return self._now

    async def configuration(self) -> RunningConfiguration:
        return self._configuration or await super().configuration()

    def counts(self) -> Counter[tuple[str, str]]:
        """How many objects there are, by apiVersion and kind."""
        return Counter({kind: len(found) for kind, found in self._objects.items()})

    async def listed(
        self, info: KindInfo, namespace: str = "", selector: str = "", fields: str = ""
    ) -> tuple[list[Raw], str]:
        try:
            labels, conditions = parse_label_selector(selector), parse_field_selector(fields)
        except SelectorError as error:
            raise ApiError(400, "BadRequest", str(error)) from None
        found = self._objects.get((info.api_version, info.kind), {})
        return [
            raw
            for (where, _), raw in found.items()
            if (not namespace or where == namespace)
            and (not selector or labels.matches(raw["metadata"].get("labels") or {}))
            and (not fields or conditions.matches(raw))
        ], ""

    async def some(
        self,
        info: KindInfo,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        limit: int = 500,
    ) -> list[Raw]:
        return (await self.listed(info, namespace, selector, fields))[0][:limit]

    async def get(self, info: KindInfo, name: str, namespace: str = "") -> Raw:
        found = self._objects.get((info.api_version, info.kind), {}).get((namespace, name))
        if found is None:
            raise ApiError(404, "NotFound", f'{info.resource} "{name}" not found')
        return found


def _identified(raw: Raw, namespaced: bool) -> Raw:
    """With a namespace and a UID, which objects written by hand may lack."""
    metadata = raw["metadata"]
    changes: dict[str, Any] = {}
    if namespaced and not metadata.get("namespace"):
        changes["namespace"] = DEFAULT_NAMESPACE
    if not metadata.get("uid"):
        changes["uid"] = str(
            uuid.uuid5(_UIDS, object_name({**raw, "metadata": {**metadata, **changes}}))
        )
    return {**raw, "metadata": {**metadata, **changes}} if changes else raw
