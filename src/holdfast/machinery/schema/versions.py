"""One object, several versions: as the version asked for shows what is stored, and back.

A custom kind's versions differ in their name only (there is no conversion but None). Events are stored
as core/v1 has them and shown as events.k8s.io/v1 to those who ask there.
"""

from holdfast.api.raw_objects import Key, Raw
from holdfast.machinery.schema.types import ResourceType

EVENTS_GROUP = "events.k8s.io"

# The names of one thing in core/v1 and in events.k8s.io/v1.
_EVENT_FIELDS = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
_LEFT_OUT_EMPTY = ("reportingController", "reportingInstance")
_TO_EVENTS = dict(_EVENT_FIELDS)
_TO_CORE = {theirs: ours for ours, theirs in _EVENT_FIELDS}


def storage_group(type: ResourceType) -> str:
    return "" if type.group == EVENTS_GROUP else type.group


def key_of(type: ResourceType, namespace: str, name: str) -> Key:
    return Key(storage_group(type), type.kind, namespace if type.namespaced else "", name)


def shown(type: ResourceType, raw: Raw) -> Raw:
    """The stored object as this version shows it."""
    if raw.get("apiVersion") == type.api_version:
        return raw
    if type.group == EVENTS_GROUP:
        return _renamed(raw, _TO_EVENTS, type.api_version)
    return {**raw, "apiVersion": type.api_version}


def stored(type: ResourceType, raw: Raw) -> Raw:
    """An object of this version as it is kept."""
    if type.group == EVENTS_GROUP:
        return _renamed(raw, _TO_CORE, "v1")
    return raw


def _renamed(raw: Raw, names: dict[str, str], api_version: str) -> Raw:
    renamed = {names.get(name, name): value for name, value in raw.items()}
    if names is _TO_EVENTS:
        for name in _LEFT_OUT_EMPTY:
            if not renamed.get(name):
                renamed.pop(name, None)
    return {**renamed, "apiVersion": api_version}
