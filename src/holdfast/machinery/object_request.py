"""The write of one object, as its rules see it: of which type and name, in which cluster, with which
options.

The local API server makes one for each HTTP request; `simulate` and the components of the local cluster
make one for each object that they submit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

from holdfast.api.raw_objects import Key, Raw
from holdfast.machinery.schema import ResourceType
from holdfast.machinery.schema.types import key_of
from holdfast.machinery.status import Resource

_MOST_WARNINGS = 512
"""More than a response can carry."""


class ObjectReader(Protocol):
    """The objects of a cluster, as admission reads them."""

    def get(self, key: Key, /) -> Raw | None: ...

    def scan(self, group: str, kind: str, /) -> Iterable[Raw]:
        """Every object of a kind, in no particular order."""


class ObjectIdentity(Protocol):
    """Gives new objects their name, UID and creation time."""

    def name(self, prefix: str, /) -> str: ...

    def new(self, key: Key, raw: Raw, /) -> Raw: ...


class WriteCluster(Protocol):
    """The cluster that an object is written to."""

    @property
    def store(self) -> ObjectReader: ...

    @property
    def identity(self) -> ObjectIdentity: ...

    def stamp(self, after: float = 0.0) -> str:
        """Now, or some seconds later, in the format of objects."""


class WriteOptions(NamedTuple):
    """CreateOptions, UpdateOptions and PatchOptions in one."""

    dry_run: bool = False
    manager: str | None = ""
    """The field manager; None if managed fields are not tracked."""
    validation: str = "Warn"
    force: bool | None = None


_DEFAULT = WriteOptions()
UNTRACKED = WriteOptions(manager=None)

C = TypeVar("C", bound=WriteCluster, covariant=True)


@dataclass(slots=True)
class ObjectRequest(Generic[C]):
    """`name` is set when it is generated; `warnings` go into the response."""

    cluster: C
    type: ResourceType
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    """`status`, `scale` …; empty for the object itself."""
    options: WriteOptions = _DEFAULT
    restores: bool = False
    """Whether the object comes from a scenario or a snapshot: it keeps the UID, times and status it
    has, and what the admission of another cluster gave it. Its PriorityClass and RuntimeClass may be
    missing.
    """
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> Key:
        return key_of(self.type, self.namespace, self.name)

    @property
    def resource(self) -> Resource:
        return Resource(self.type.group, self.type.plural)

    @property
    def store(self) -> ObjectReader:
        return self.cluster.store

    def stamp(self, after: float = 0.0) -> str:
        return self.cluster.stamp(after)

    def warn(self, text: str) -> None:
        if len(self.warnings) < _MOST_WARNINGS and text not in self.warnings:
            self.warnings.append(text)

    def named(self, name: str) -> ObjectRequest[C]:
        """The same request for another object; the two share their warnings."""
        return ObjectRequest(
            self.cluster,
            self.type,
            self.namespace,
            name,
            self.subresource,
            self.options,
            self.restores,
            self.warnings,
        )


WriteRequest = ObjectRequest[WriteCluster]
