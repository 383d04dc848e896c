"""patch, in its four kinds."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.local.apiserver.api_state import ApiRequest
from holdfast.local.apiserver.request_bodies import (
    Body,
    go_kind,
    media_of,
    read_applied,
    read_json,
    unsupported_media,
)
from holdfast.local.apiserver.verbs.get import found
from holdfast.local.apiserver.verbs.writes import (
    change,
    check_lifecycle,
    check_name,
    check_namespace,
    check_unmodified,
    create_object,
    read,
)
from holdfast.local.store import Raw
from holdfast.machinery.patch import (
    ApplyConflict,
    PatchError,
    apply,
    json_patch,
    merge_patch,
    strategic_merge,
)
from holdfast.machinery.schema import apply_defaults
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.schema.types import to_storage, to_version
from holdfast.machinery.status import StatusError, bad_request, invalid
from holdfast.machinery.validation.metadata import check as check_metadata

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_FOR_CUSTOM = (JSON_PATCH, MERGE_PATCH, APPLY)
_REJECTED = "the server rejected our request due to an error in our request"


def patch(call: ApiRequest, data: bytes, content_type: str) -> tuple[Raw, bool]:
    """The object as it is now, and whether it is new."""
    media = media_of(content_type)
    if media not in (JSON_PATCH, MERGE_PATCH, STRATEGIC, APPLY):
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    if media == STRATEGIC and not call.type.builtin:
        raise unsupported_media(_FOR_CUSTOM)
    if media == APPLY:
        return _apply(call, data)
    if call.options.force is not None:
        complaint = fields.forbidden("force", "may not be specified for non-apply patch")
        raise invalid("meta.k8s.io", "PatchOptions", "", [complaint])
    before = found(call)
    patched = _patched(call, to_version(call.type, before), data, media)
    return _changed(call, before, patched), False


def _changed(call: ApiRequest, before: Raw, patched: Raw) -> Raw:
    try:
        raw = read(call, Body(patched))
    except StatusError as error:
        why = error.message.partition(f" cannot be handled as a {call.type.kind}: ")[2] or error.message
        text = msgspec.json.encode(patched, order="sorted").decode()
        raise invalid("", "", "", [fields.invalid("patch", text, why)]) from None
    check_name(call, raw)
    raw = check_namespace(call, raw)
    check_unmodified(call, raw["metadata"].get("resourceVersion"), before)
    return change(call, before, to_storage(call.type, apply_defaults(call.type, raw)))


def _patched(call: ApiRequest, view: Raw, data: bytes, media: str) -> Raw:
    try:
        value = read_json(data)
    except StatusError as error:
        raise bad_request(f"error decoding patch: {error.message}") from None
    try:
        if media == JSON_PATCH:
            return _by_operations(view, value)
        if not isinstance(value, dict):
            raise bad_request(
                f"json: cannot unmarshal {go_kind(value)} into Go value of type map[string]interface "
                f"{{}}"
            )
        if media == MERGE_PATCH:
            return _an_object(merge_patch(view, value))
        return _an_object(strategic_merge(call.type, view, value))
    except PatchError as error:
        raise _refused(error) from None


def _by_operations(view: Raw, value: Any) -> Raw:
    try:
        return _an_object(json_patch(view, value))
    except PatchError as error:
        if error.code != 422:
            raise
        # Kubernetes does not report which operation failed, or why.
        raise StatusError(422, "Invalid", _REJECTED, {}) from None


def _an_object(value: Any) -> Raw:
    if not isinstance(value, dict):
        raise bad_request("the patched object is not an object")
    return value


def _apply(call: ApiRequest, data: bytes) -> tuple[Raw, bool]:
    if not call.options.manager:
        complaint = fields.required("fieldManager", "is required for apply patch")
        raise invalid("meta.k8s.io", "PatchOptions", "", [complaint])
    applied = read_applied(data, call.type.kind).value
    if (applied.get("apiVersion"), applied.get("kind")) != (call.type.api_version, call.type.kind):
        group, _, version = str(applied.get("apiVersion") or "").rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={applied.get('kind') or ''}")
    metadata = applied.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    named = {**applied, "metadata": {**metadata, "name": metadata.get("name") or call.name}}
    check_name(call, named)
    check_namespace(call, named)
    before = call.cluster.store.get(call.key)
    live = to_version(call.type, before) if before is not None else None
    if before is None:
        check_lifecycle(call)
    else:
        check_unmodified(call, metadata.get("resourceVersion"), before)
    try:
        merged = apply(
            call.type,
            live,
            named,
            call.options.manager,
            bool(call.options.force),
            call.cluster.stamp(),
            call.subresource,
        )
    except PatchError as error:
        raise _refused(error) from None
    raw = check_namespace(call, read(call, Body(merged)))
    if before is None:
        problems = check_metadata(call.type, raw["metadata"])
        if problems:
            raise invalid(call.type.group, call.type.kind, call.name, problems)
        return create_object(call, raw, applied=True), True
    after = to_storage(call.type, apply_defaults(call.type, raw))
    return change(call, before, after, applied=True), False


def _refused(error: PatchError) -> StatusError:
    details: Raw | None = None
    if isinstance(error, ApplyConflict):
        details = {
            "causes": [
                {"reason": each.reason, "message": each.message, "field": each.field}
                for each in error.causes
            ]
        }
    elif error.code == 422:
        details = {}
    return StatusError(error.code, error.reason, error.message, details)
