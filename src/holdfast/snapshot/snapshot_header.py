"""The first object of a snapshot file: when and how the snapshot was taken, and what it lacks."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject, TimeError
from holdfast.api.names import SIM_API
from holdfast.api.times import format_time, parse_time

Raw = dict[str, Any]

SNAPSHOT = "Snapshot"
LIST_STARTS = '{"apiVersion":"v1","kind":"List","items":['
SNAPSHOT_STARTS = f'{LIST_STARTS}{{"apiVersion":"{SIM_API}","kind":"{SNAPSHOT}"'
"""The first characters of a snapshot file."""
VERSION = 1
"""Of the file format. A reader refuses a later one."""


class MissingKind(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A kind that could not be read."""

    resource: str
    """`plural.group`, as RBAC writes it."""
    message: str = ""
    """What the server said."""
    effect: str = ""
    """What answers from the snapshot do not take into account."""

    def __str__(self) -> str:
        effect = f"; {self.effect}" if self.effect else ""
        return f"not permitted to list {self.resource}{effect}"


class SnapshotHeader(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    time: float
    """When it was taken, in seconds since the epoch."""
    holdfast_version: str = ""
    server_version: str = ""
    resource_version: str = ""
    """The version of the cluster that all lists are of; empty if they are of different ones."""
    anonymized: bool = False
    configuration: Raw | None = None
    """What the scheduler runs with; None if that is unknown."""
    not_permitted: tuple[MissingKind, ...] = ()

    def anonymous(self) -> SnapshotHeader:
        """Without messages, which name the user, and without the configuration, which may name
        anything."""
        kinds = tuple(msgspec.structs.replace(each, message="") for each in self.not_permitted)
        return msgspec.structs.replace(self, anonymized=True, not_permitted=kinds, configuration=None)

    def raw(self) -> Raw:
        """As the object in the file."""
        found: Raw = msgspec.to_builtins(self)
        del found["time"]
        named = {"apiVersion": SIM_API, "kind": SNAPSHOT, "formatVersion": VERSION}
        return {**named, "metadata": {"creationTimestamp": format_time(self.time)}, **found}


def read_header(raw: Raw) -> SnapshotHeader:
    """Raises InvalidObject."""
    version = raw.get("formatVersion")
    if isinstance(version, int) and version > VERSION:
        message = f"{version} is of a later Holdfast; this one reads up to {VERSION}"
        raise InvalidObject(SNAPSHOT, "formatVersion", message)
    metadata = raw.get("metadata")
    created = metadata.get("creationTimestamp") if isinstance(metadata, dict) else None
    try:
        time = parse_time(str(created or ""))
    except TimeError as error:
        raise InvalidObject(SNAPSHOT, "metadata.creationTimestamp", str(error)) from None
    return convert({**raw, "time": time}, SnapshotHeader, SNAPSHOT)


def is_header(raw: Any) -> bool:
    return isinstance(raw, dict) and (raw.get("apiVersion"), raw.get("kind")) == (SIM_API, SNAPSHOT)
