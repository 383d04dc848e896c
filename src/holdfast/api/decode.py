"""From raw objects to typed ones.

An object that must come out of Holdfast as it went in is kept as a raw dict; the typed object decoded
here is a *view* of it. A view knows only the fields that scheduling reads, may share parts with its raw
object, and is never written back: change the raw object and decode again.

Decoding costs one call into msgspec. Only when that fails do we look closer: JSON nulls,
which Kubernetes writes for "not set" (`creationTimestamp: null`), are dropped and the object
is tried again; what fails then is reported with the field's path in Kubernetes' spelling.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any, TypeVar

import msgspec

from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import is_cluster_scoped, kind_info
from holdfast.api.meta import Object
from holdfast.api.names import DEFAULT_NAMESPACE
from holdfast.api.pod import Pod

T = TypeVar("T")

_pod_decoder = msgspec.json.Decoder(Pod)

# In these maps a null is not "not set" but a value that is missing its text, or a driver's parameter.
_KEPT_MAPS = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "opaque"})

_TYPE_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "object": "a map",
    "dict": "a map",
    "array": "a list",
    "list": "a list",
    "null": "null",
}


def object_name(obj: Mapping[str, Any] | Object) -> str:
    """`Pod/namespace/name`, or `Reservation/name` for what lives outside namespaces.

    Works on objects too broken to decode, since it is what their errors are titled with.
    """
    if isinstance(obj, Object):
        kind, namespace = obj.kind, obj.metadata.namespace
        name = obj.metadata.name or obj.metadata.generate_name
    else:
        metadata = obj.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        kind = str(obj.get("kind") or "")
        namespace = str(metadata.get("namespace") or "")
        name = str(metadata.get("name") or metadata.get("generateName") or "")
    if is_cluster_scoped(kind):
        return f"{kind}/{name}"
    return f"{kind or '?'}/{namespace or DEFAULT_NAMESPACE}/{name}"


def decode(raw: Mapping[str, Any]) -> Object:
    """The typed view of a raw object, of the type its apiVersion and kind name."""
    if not isinstance(raw, Mapping):
        raise InvalidObject("", "", f"expected an object, got {_found(raw)}")
    try:
        info = kind_info(_text(raw, "apiVersion"), _text(raw, "kind"))
    except InvalidObject as error:
        raise error.within(object_name(raw)) from None
    return convert(raw, info.type, object_name(raw))


def decode_pod_json(data: bytes | str) -> Pod:
    """A pod straight from the API server's bytes: the fast path of reflectors."""
    try:
        return _pod_decoder.decode(data)
    except msgspec.ValidationError:
        raw = msgspec.json.decode(data)
        return convert(raw, Pod, object_name(raw) if isinstance(raw, Mapping) else "")
    except msgspec.DecodeError as error:
        raise InvalidObject("", "", f"not JSON: {error}") from None


def convert(raw: Any, type: type[T], object: str = "", prefix: str = "") -> T:
    """Decode a part of an object; `object` and `prefix` name it in errors."""
    try:
        return msgspec.convert(raw, type)
    except msgspec.ValidationError:
        raw = drop_nulls(raw)
    try:
        return msgspec.convert(raw, type)
    except msgspec.ValidationError as error:
        raise _explained(error, raw, type).within(object, prefix) from None


def decode_json(text: str | bytes, type: type[T], object: str = "", field: str = "") -> T:
    """Decode JSON kept as text inside an object, as annotations do."""
    try:
        raw = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidObject(object, field, f"not JSON: {error}") from None
    try:
        return convert(raw, type)
    except InvalidObject as error:
        where = f"{error.field}: " if error.field else ""
        raise InvalidObject(object, field, where + error.message) from None


def drop_nulls(raw: Any, key: str = "") -> Any:
    """A copy without null-valued keys, for comparing and decoding what Kubernetes wrote."""
    if isinstance(raw, Mapping):
        if key in _KEPT_MAPS:
            return dict(raw)
        return {k: drop_nulls(v, k) for k, v in raw.items() if v is not None}
    if isinstance(raw, list):
        return [drop_nulls(item) for item in raw]
    return raw


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidObject("", key, f"expected a string, got {_found(value)}")
    return value or ""


def _explained(error: msgspec.ValidationError, raw: Any, type: type[Any]) -> InvalidObject:
    message, _, path = str(error).partition(" - at `")
    about_key, _, map_path = path.partition("key` in `")
    steps = _steps(map_path if map_path and not about_key else path)
    field, value = _walk(raw, steps, type, str(error))
    if map_path and isinstance(value, Mapping):
        key = next((key for key in value if not isinstance(key, str)), None)
        return InvalidObject("", field, f"keys must be strings; quote {key!r}")
    expected = re.match(r"Expected `([^`]*)`", message)
    if expected is not None:
        wanted = expected[1].removesuffix(" | null").split(" | ")
        if "float" in wanted:
            wanted = [name for name in wanted if name != "int"]
        names = dict.fromkeys(_TYPE_NAMES.get(name, name) for name in wanted)
        message = f"expected {' or '.join(names)}, got {_found(value)}"
    return InvalidObject("", field, message)


def _steps(path: str) -> list[str]:
    """`$.spec.containers[0].image` as `spec`, `containers`, `[0]`, `image`."""
    return re.findall(r"\[[^\]]*\]|[^.\[\]$`]+", path)


def _walk(raw: Any, steps: list[str], type: type[Any], complaint: str) -> tuple[str, Any]:
    """Follow msgspec's path through the object, finding the map keys it leaves out (`[...]`)."""
    field = ""
    here = raw
    trail: list[Any] = []
    for step in steps:
        key: Any
        if step == "[...]":
            if not isinstance(here, Mapping):
                return field, here
            key = _culprit(raw, trail, here, type, complaint)
            field += f"[{key}]"
        elif step.startswith("["):
            key = int(step[1:-1])
            field += step
        else:
            key = step
            field = f"{field}.{step}" if field else step
        if isinstance(here, Mapping):
            if key not in here:
                return field, None
        elif not isinstance(here, list) or not isinstance(key, int):
            return field, here
        trail.append(key)
        here = here[key]
    return field, here


def _culprit(
    raw: Any, trail: list[Any], here: Mapping[Any, Any], type: type[Any], complaint: str
) -> Any:
    """The key of a map that causes the error: the one that fails in the same way alone."""
    for key, value in here.items():
        try:
            msgspec.convert(_replaced(raw, trail, {key: value}), type)
        except msgspec.ValidationError as error:
            if str(error) == complaint:
                return key
    return "..."


def _replaced(raw: Any, trail: list[Any], value: Any) -> Any:
    if not trail:
        return value
    copy = dict(raw) if isinstance(raw, Mapping) else list(raw)
    copy[trail[0]] = _replaced(raw[trail[0]], trail[1:], value)
    return copy


def _found(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return f"the string {value!r}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, date):
        return f"the date {value} (put it in quotes)"
    return f"a {type(value).__name__}"
