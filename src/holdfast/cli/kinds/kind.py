"""How a kind is queried and shown: columns, rows, and the OutputKind base class."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from holdfast.api.kinds import KindInfo
from holdfast.cli.client import Raw, Server, failure
from holdfast.cli.options import Failure
from holdfast.kube.errors import ApiError


class OutputColumn(NamedTuple):
    name: str
    wide: bool = False


class Query(NamedTuple):
    names: tuple[str, ...] = ()
    """All, if none is given."""
    namespace: str = ""
    """Everywhere, if empty."""
    selector: str = ""


class OutputRow(NamedTuple):
    object: Raw
    cells: Sequence[str]


class Found(NamedTuple):
    rows: list[OutputRow]
    columns: Sequence[OutputColumn]
    version: str = ""
    """The resource version to watch from."""
    missing: tuple[str, ...] = ()
    """Messages for names that were not found."""


class OutputKind(ABC):
    info: ClassVar[KindInfo]
    """The kind on the server."""
    selector: ClassVar[str] = ""
    """The label that selects them among the server's objects of the kind."""

    @abstractmethod
    async def find(self, server: Server, query: Query) -> Found:
        """A row for each queried object."""

    @abstractmethod
    async def describe(self, server: Server, raw: Raw) -> str:
        """The description of one object."""

    async def objects(self, server: Server, query: Query) -> tuple[list[Raw], str, tuple[str, ...]]:
        """The objects, their resource version, and messages for names that were not found."""
        namespace = query.namespace if self.info.namespaced else ""
        if not query.names:
            try:
                found, version = await server.listed(self.info, namespace, self.selected(query))
            except ApiError as error:
                if error.status == 404:
                    raise Failure(
                        1, [f'the server doesn\'t have a resource type "{self.info.plural}"']
                    ) from None
                raise
            return found, version, ()
        objects, missing = [], []
        for name in query.names:
            try:
                found_one = await server.get(self.info, name, namespace)
            except ApiError as error:
                if error.status != 404:
                    raise
                missing += failure(error).lines
                continue
            if self.selector and self.selector not in (found_one["metadata"].get("labels") or {}):
                missing.append(f'{self.info.resource} "{name}" has no label {self.selector}')
            else:
                objects.append(found_one)
        return objects, "", tuple(missing)

    def selected(self, query: Query) -> str:
        return ",".join(filter(None, (self.selector, query.selector)))


class PlainKind(OutputKind):
    """A kind whose row depends only on the object, so that it can be watched."""

    columns: ClassVar[tuple[OutputColumn, ...]]

    @abstractmethod
    def cells(self, raw: Raw, now: float) -> list[str]:
        """One cell per column."""

    async def find(self, server: Server, query: Query) -> Found:
        now = time.time()
        objects, version, missing = await self.objects(server, query)
        return Found(
            [OutputRow(raw, self.cells(raw, now)) for raw in objects], self.columns, version, missing
        )
