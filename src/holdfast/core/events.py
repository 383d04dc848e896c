"""What the core is told. Objects come decoded; time comes with each event."""

from typing import Any

import msgspec

from holdfast.api.errors import InvalidObject
from holdfast.core.decisions import Decision


class Added(msgspec.Struct, frozen=True):
    """An object exists. Saying so again of a known object is the same as `Updated`."""

    object: Any


class Updated(msgspec.Struct, frozen=True):
    object: Any


class Deleted(msgspec.Struct, frozen=True):
    """An object is gone. Of an unknown object: nothing happens."""

    object: Any


class Malformed(msgspec.Struct, frozen=True):
    """An object exists that does not decode; what was known of it before is no longer true."""

    kind: str
    namespace: str
    name: str
    uid: str
    error: InvalidObject
    api_version: str = ""
    """Given of a kind that only plugins read."""


class BindConfirmed(msgspec.Struct, frozen=True):
    """A decided bind was carried out."""

    uid: str


class BindRefused(msgspec.Struct, frozen=True):
    """A decided bind was not carried out; the pod is as it was before."""

    uid: str
    message: str


class WriteRefused(msgspec.Struct, frozen=True):
    """A decision other than a bind was not carried out; it may be decided again."""

    decision: Decision
    message: str


Event = Added | Updated | Deleted | Malformed | BindConfirmed | BindRefused | WriteRefused
