"""How a type is queried and shown: columns, rows, and the OutputKind base class."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from holdfast.api.kinds import KindInfo
from holdfast.api.similar_names import did_you_mean
from holdfast.cli.client import ObjectLister, Raw, failure
from holdfast.cli.options import Failure
from holdfast.kube.errors import ApiError, KubernetesError

_MOST_NAMES = 500
"""Objects among which a misspelt name is looked for."""


class OutputColumn(NamedTuple):
    name: str
    wide: bool = False
    """Only with `-o wide`."""
    optional: bool = False
    """Left out while no object has a value in it."""
    narrow: bool = False
    """Only without `-o wide`."""


class Query(NamedTuple):
    names: tuple[str, ...] = ()
    """All, if none is given."""
    namespace: str = ""
    """Everywhere, if empty."""
    selector: str = ""
    fields: str = ""


class OutputRow(NamedTuple):
    object: Raw
    cells: Sequence[str]


class Found(NamedTuple):
    rows: list[OutputRow]
    columns: Sequence[OutputColumn]
    missing: tuple[str, ...] = ()
    """Messages for names that were not found."""
    elsewhere: int = 0
    """How many there are in other namespaces, where that is known."""
    wide_notes: tuple[str, ...] = ()
    """What to know of the wide columns."""


class OutputKind(ABC):
    infos: ClassVar[tuple[KindInfo, ...]]
    """The kinds on the server. The server must have the first, or one of several."""
    selector: ClassVar[str] = ""
    """The label that selects them among the server's objects of the kind."""
    status: ClassVar[str]
    """The column that says `Deleted` of a deleted object."""

    @property
    def info(self) -> KindInfo:
        return self.infos[0]

    @property
    def names_namespace(self) -> bool:
        """Whether a column with the namespace is shown for objects of several."""
        return self.info.namespaced

    @abstractmethod
    async def find(self, server: ObjectLister, query: Query) -> Found:
        """A row for each queried object."""

    @abstractmethod
    async def describe(self, server: ObjectLister, raw: Raw) -> str:
        """The description of one object."""

    async def objects(self, server: ObjectLister, query: Query) -> tuple[list[Raw], tuple[str, ...]]:
        """The objects, and messages for names that were not found."""
        if not query.names:
            return sorted(await self._listed(server, query), key=self.order), ()
        if self.info.namespaced and not query.namespace:
            raise Failure(1, ["a resource cannot be retrieved by name across all namespaces"])
        objects: list[Raw] = []
        missing: list[str] = []
        for name in query.names:
            found, message = await self._named(server, name, query)
            objects += found
            missing += message
        return objects, tuple(missing)

    async def _listed(self, server: ObjectLister, query: Query) -> list[Raw]:
        found: list[Raw] = []
        absent = 0
        for info in self.infos:
            namespace = query.namespace if info.namespaced else ""
            try:
                found += (await server.listed(info, namespace, self.selected(query), query.fields))[0]
            except ApiError as error:
                if error.status != 404:
                    raise
                absent += 1
        if absent == len(self.infos):
            raise Failure(1, [f'the server doesn\'t have a resource type "{self.info.plural}"'])
        return found

    async def _named(
        self, server: ObjectLister, name: str, query: Query
    ) -> tuple[list[Raw], list[str]]:
        found: list[Raw] = []
        message: list[str] = []
        for info in self.infos:
            namespace = query.namespace if info.namespaced else ""
            try:
                found.append(await server.get(info, name, namespace))
            except ApiError as error:
                if error.status != 404:
                    raise
                message = message or failure(error).lines
        if not found:
            hint = await similar_object(server, self.info, name, query.namespace, self.selector)
            return [], [f"{line}{hint}" for line in message]
        if self.selector and self.selector not in (found[0]["metadata"].get("labels") or {}):
            return [], [f'{self.info.resource} "{name}" has no label {self.selector}']
        return found, []

    def selected(self, query: Query) -> str:
        return ",".join(filter(None, (self.selector, query.selector)))

    def order(self, raw: Raw) -> tuple[bool, str, str]:
        """By namespace and name, those that have ended last."""
        metadata = raw["metadata"]
        return self.has_ended(raw), metadata.get("namespace") or "", metadata["name"]

    def has_ended(self, raw: Raw) -> bool:
        return False


class PlainKind(OutputKind):
    """A type whose row depends only on the object, or on few others that `filled` asks for."""

    columns: ClassVar[tuple[OutputColumn, ...]]

    @abstractmethod
    def cells(self, raw: Raw, now: float) -> list[str]:
        """One cell per column."""

    async def filled(self, server: ObjectLister, objects: Sequence[Raw], now: float) -> list[list[str]]:
        """The cells of several objects."""
        return [self.cells(raw, now) for raw in objects]

    async def find(self, server: ObjectLister, query: Query) -> Found:
        objects, missing = await self.objects(server, query)
        cells = await self.filled(server, objects, server.now())
        return Found([*map(OutputRow, objects, cells)], self.columns, missing)


async def similar_object(
    server: ObjectLister, info: KindInfo, name: str, namespace: str, selector: str = ""
) -> str:
    """`; did you mean web-0?`, or the namespace that has the object; empty if there is neither."""
    try:
        found = await server.some(info, "", selector, limit=_MOST_NAMES)
    except KubernetesError:
        try:
            found = await server.some(info, namespace, selector, limit=_MOST_NAMES)
        except KubernetesError:
            return ""
    return similar_name(found, name, namespace if info.namespaced else "")


def similar_name(found: Iterable[Raw], name: str, namespace: str) -> str:
    """`; did you mean web-0?`, or that another namespace has an object of that name."""
    here = []
    for raw in found:
        metadata = raw["metadata"]
        where = metadata.get("namespace") or ""
        if metadata["name"] == name and where != namespace:
            return f"; there is one in namespace {where}: use -n {where}"
        if where == namespace:
            here.append(metadata["name"])
    return did_you_mean(name, here)
