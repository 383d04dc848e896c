"""Label and field selectors of lists and watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from holdfast.api.errors import SelectorError
from holdfast.api.selectors import FieldSelector, Selector, parse_field_selector, parse_label_selector
from holdfast.local.store import Raw
from holdfast.machinery.schema.field_errors import quoted
from holdfast.machinery.schema.types import ResourceType
from holdfast.machinery.status import bad_request

_METADATA = ("metadata.name", "metadata.namespace")
_NAME = _METADATA[:1]

_EVENT_FIELDS = (
    *_METADATA,
    *(
        f"involvedObject.{field}"
        for field in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): (
        *_METADATA,
        *(f"spec.{field}" for field in ("nodeName", "restartPolicy", "schedulerName")),
        *(f"spec.{field}" for field in ("serviceAccountName", "hostNetwork", "host")),
        *(f"status.{field}" for field in ("phase", "podIP", "podIPs", "nominatedNodeName")),
    ),
    ("", "Node"): (*_NAME, "spec.unschedulable"),
    ("", "Namespace"): (*_NAME, "status.phase"),
    ("", "Secret"): (*_METADATA, "type"),
    ("", "Service"): (*_METADATA, "spec.clusterIP", "spec.type"),
    ("", "ReplicationController"): (*_METADATA, "status.replicas"),
    ("", "Event"): _EVENT_FIELDS,
    ("events.k8s.io", "Event"): (
        *(field.replace("involvedObject", "regarding") for field in _EVENT_FIELDS),
        "reportingController",
    ),
    ("batch", "Job"): (*_METADATA, "status.successful"),
    ("resource.k8s.io", "ResourceSlice"): (*_NAME, "spec.nodeName", "spec.driver", "spec.pool.name"),
}
# Where the value of a field is not simply at its path.
_ELSEWHERE: dict[tuple[str, str], str] = {
    ("Pod", "spec.host"): "spec.nodeName",
    ("Job", "status.successful"): "status.succeeded",
}
_ZERO = {
    "spec.unschedulable": "false",
    "spec.hostNetwork": "false",
    "status.replicas": "0",
    "status.successful": "0",
}

Condition = Callable[[Raw], bool]


class Selection:
    """Compiled once per request. `everything` is true if every object matches."""

    __slots__ = ("_fields", "_labels", "everything")

    def __init__(self, labels: Selector, conditions: Iterable[Condition]) -> None:
        self._labels = labels
        self._fields = tuple(conditions)
        self.everything = labels.everything and not self._fields

    def matches(self, raw: Raw) -> bool:
        if not self._labels.everything and not self._labels.matches(
            raw["metadata"].get("labels") or {}
        ):
            return False
        return all(holds(raw) for holds in self._fields)


EVERYTHING = Selection(Selector(), ())


def select(type: ResourceType, labels: str, fields: str) -> Selection:
    """Raises StatusError 400, as Kubernetes words it."""
    if not labels and not fields:
        return EVERYTHING
    try:
        selector = parse_label_selector(labels)
    except SelectorError as error:
        raise bad_request(str(error)) from None
    return Selection(selector, _conditions(type, _field_selector(fields)))


def _field_selector(text: str) -> FieldSelector:
    try:
        return parse_field_selector(text)
    except SelectorError:
        part = next((each for each in text.split(",") if "=" not in each), text)
        raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'") from None


def _conditions(type: ResourceType, chosen: FieldSelector) -> list[Condition]:
    """One for each field, even if the selector names it several times: a kind has few that it can be
    selected by."""
    known = _known_fields(type)
    wanted: dict[str, tuple[set[str], set[str]]] = {}
    for path, equal, value in chosen.conditions:
        if path not in known:
            raise bad_request(_unsupported(type, path))
        wanted.setdefault(path, (set(), set()))[0 if equal else 1].add(value)
    return [_condition(type, path, *values) for path, values in wanted.items()]


def _condition(type: ResourceType, path: str, equal: set[str], unequal: set[str]) -> Condition:
    if (type.kind, path) == ("Pod", "status.podIPs"):
        return lambda raw: equal <= (found := _addresses(raw)) and unequal.isdisjoint(found)
    if len(equal) > 1:
        return lambda raw: False
    if type.kind == "Event" and path == "source" and type.builtin:
        text: Callable[[Raw], str] = _event_source
    else:
        path = _ELSEWHERE.get((type.kind, path), path)
        steps = tuple(path.split("."))
        zero = _ZERO.get(path, "0" if path == "status.succeeded" else "")
        text = partial(_text, steps=steps, zero=zero)
    if not equal:
        return lambda raw: text(raw) not in unequal
    (value,) = equal
    if value in unequal:
        return lambda raw: False
    return lambda raw: text(raw) == value


def _addresses(raw: Raw) -> set[str]:
    return {each.get("ip") for each in (raw.get("status") or {}).get("podIPs") or []}


def _known_fields(type: ResourceType) -> tuple[str, ...]:
    if type.builtin:
        return _FIELDS.get((type.group, type.kind), _METADATA)
    return (*_METADATA, *type.selectable_fields)


def _unsupported(type: ResourceType, path: str) -> str:
    if (type.group, type.kind) == ("batch", "Job"):
        return f"field label {quoted(path)} not supported for Job"
    if (type.group, type.kind) == ("resource.k8s.io", "ResourceSlice"):
        return f"field label not supported for {type.api_version}, Kind={type.kind}: {path}"
    if type.builtin and (type.group, type.kind) in _FIELDS:
        return f"field label not supported: {path}"
    if not type.builtin:
        return f"field label not supported: {path}"
    return f'{quoted(path)} is not a known field selector: only "metadata.name", "metadata.namespace"'


def _text(raw: Raw, steps: tuple[str, ...], zero: str) -> str:
    here: Any = raw
    for step in steps:
        if not isinstance(here, dict):
            return zero
        here = here.get(step)
    if here is None:
        return zero
    if isinstance(here, bool):
        return "true" if here else "false"
    return str(here)


def _event_source(raw: Raw) -> str:
    source = raw.get("source") or raw.get("deprecatedSource") or {}
    return str(source.get("component") or raw.get("reportingComponent") or "")
