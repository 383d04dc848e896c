"""…/scale: the number of replicas, whatever kind wants them."""

from __future__ import annotations

from typing import Any

from holdfast.server.api import fields
from holdfast.server.api.bodies import Body, media_of, read_json
from holdfast.server.api.cluster import Call
from holdfast.server.api.status import MODIFIED, ApiError, bad_request, conflict, invalid
from holdfast.server.api.tables.columns import selector_text
from holdfast.server.api.verbs.bodies import read_known
from holdfast.server.api.verbs.patching import JSON_PATCH, MERGE_PATCH, STRATEGIC
from holdfast.server.api.verbs.reading import found
from holdfast.server.api.verbs.updating import change
from holdfast.server.patch import PatchError, json_patch, merge_patch
from holdfast.store import Raw

_SCALE = "io.k8s.api.autoscaling.v1.Scale"


def get_scale(call: Call) -> Raw:
    return scale_of(call, found(call))


def scale_of(call: Call, raw: Raw) -> Raw:
    paths = call.type.scale
    assert paths is not None
    metadata = raw["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Raw = {"replicas": _at(raw, paths.status_replicas) or 0}
    selector = _at(raw, paths.selector) if paths.selector else None
    if selector is not None:
        status["selector"] = _selector(selector)
    replicas = _at(raw, paths.replicas)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in shown if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def put_scale(call: Call, body: Body) -> Raw:
    """The object, scaled."""
    return _scaled(call, body.value)


def patch_scale(call: Call, data: bytes, content_type: str) -> Raw:
    """The object, scaled."""
    media = media_of(content_type)
    value = read_json(data)
    now = get_scale(call)
    try:
        if media == JSON_PATCH:
            patched = json_patch(now, value)
        elif media in (MERGE_PATCH, STRATEGIC):
            patched = merge_patch(now, value)
        else:
            raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    except PatchError as error:
        raise ApiError(error.code, error.reason, error.message) from None
    return _scaled(call, patched)


def _scaled(call: Call, sent: Any) -> Raw:
    scale = read_known(_SCALE, sent)
    if scale.get("kind", "Scale") != "Scale":
        raise bad_request("the object provided is unrecognized (must be of type Scale)")
    metadata = scale.get("metadata") or {}
    if metadata.get("name", call.name) != call.name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({call.name})"
        )
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        complaint = fields.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("autoscaling", "Scale", call.name, [complaint])
    before = found(call)
    version = metadata.get("resourceVersion")
    if version and version != before["metadata"]["resourceVersion"]:
        raise conflict(call.resource, call.name, MODIFIED)
    paths = call.type.scale
    assert paths is not None
    after = _with(before, paths.replicas.split("."), replicas)
    return change(call, before, after)


def _at(raw: Any, path: str) -> Any:
    for step in path.split("."):
        if not isinstance(raw, dict):
            return None
        raw = raw.get(step)
    return raw


def _with(raw: Raw, steps: list[str], value: Any) -> Raw:
    name, *rest = steps
    return {**raw, name: _with(raw.get(name) or {}, rest, value) if rest else value}


def _selector(selector: Any) -> str:
    if isinstance(selector, str):
        return selector
    if "matchLabels" in selector or "matchExpressions" in selector:
        return selector_text(selector)
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
