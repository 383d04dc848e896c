"""What a client sent, made into an object of the type it is for."""

from typing import Any

from holdfast.local.apiserver.api_state import Call
from holdfast.local.apiserver.request_bodies import Body
from holdfast.local.store import Raw
from holdfast.machinery.schema import (
    MALFORMED,
    UNKNOWN,
    FieldError,
    ResourceType,
    decoding,
    read_object,
    suggestion,
)
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.status import StatusError, bad_request, invalid


def read(call: Call, body: Body, type: ResourceType | None = None) -> Raw:
    """The object with unknown fields taken out, or refused, as `fieldValidation` says. Raises
    StatusError 400."""
    type = type or call.type
    raw: Raw = body.value
    twice = body.duplicates()
    if not type.builtin:
        for field, called in (("kind", "Kind"), ("apiVersion", "apiVersion")):
            if not raw.get(field):
                raise body.lacks(called)
    check_kind(call, type, raw)
    raw, problems = read_object(type, {**raw, "apiVersion": type.api_version, "kind": type.kind})
    unknown: list[str] = []
    for problem in problems:
        if problem.reason == MALFORMED:
            raise _cannot_be_handled(type.kind, type.version, problem.message)
        if problem.reason == UNKNOWN:
            unknown.append(problem.message)
    complaints = [f'duplicate field "{path}"' for path in twice] + unknown
    complaints = complaints[: decoding.MOST_UNKNOWN]
    if complaints:
        if call.options.validation == "Strict":
            _suggest(call, type, problems)
            why = f"strict decoding error: {', '.join(complaints)}"
            raise _cannot_be_handled(type.kind, type.version, why)
        if call.options.validation == "Warn":
            for each in complaints:
                call.warn(each)
    if not isinstance(raw.get("metadata"), dict):
        raw = {**raw, "metadata": {}}
    return raw


def _suggest(call: Call, type: ResourceType, problems: list[FieldError]) -> None:
    """Warns of what is probably meant by unknown fields: the error has the API server's words alone."""
    for each in problems:
        hint = suggestion(type.shape, each.field) if each.reason == UNKNOWN else ""
        if hint:
            call.warn(f"{each.message}: {hint}")


def read_known(definition: str, value: Any) -> Raw:
    """What is sent to be acted on rather than kept, such as a Scale, by its OpenAPI name. Raises
    StatusError 400."""
    kind = definition.rpartition(".")[2]
    if not isinstance(value, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind})")
    raw, problems = decoding.read(definition, value)
    for problem in problems:
        if problem.reason == MALFORMED:
            raise _cannot_be_handled(kind, "v1", problem.message)
    return raw


def check_kind(call: Call, type: ResourceType, raw: Raw) -> None:
    """An object that says what it is must be what it is sent as; one that does not is taken for it."""
    api_version, kind = raw.get("apiVersion") or type.api_version, raw.get("kind") or type.kind
    if not isinstance(api_version, str) or not isinstance(kind, str):
        field = "apiVersion" if not isinstance(api_version, str) else "kind"
        raise bad_request(
            f"the object provided is unrecognized (must be of type {type.kind}): couldn't get "
            f"version/kind; json parse error: {field} is not a string"
        )
    if (api_version, kind) == (type.api_version, type.kind):
        return
    group, _, version = api_version.rpartition("/")
    if not type.builtin:
        if api_version != type.api_version:
            raise bad_request(
                f"the API version in the data ({api_version}) does not match the expected API version "
                f"({type.api_version})"
            )
        metadata = raw.get("metadata")
        name = metadata.get("name") or "" if isinstance(metadata, dict) else ""
        complaint = fields.invalid("kind", kind, f"must be {type.kind}")
        raise invalid(type.group, kind, name, [complaint])
    if call.cluster.catalogue.kind(group, version, kind) is None:
        why = f'no kind "{kind}" is registered for version "{api_version}"'
    else:
        package = type.group.partition(".")[0] or "core"
        why = f"converting ({version}.{kind}) to ({package}.{type.kind}): unknown conversion"
    raise bad_request(f'{kind} in version "{version}" cannot be handled as a {type.kind}: {why}')


def _cannot_be_handled(kind: str, version: str, why: str) -> StatusError:
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def check_namespace(call: Call, raw: Raw) -> Raw:
    """The object in the namespace of the request."""
    metadata = raw["metadata"]
    given = metadata.get("namespace") or ""
    if not call.type.namespaced:
        if given:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        return raw
    if given and given != call.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if given:
        return raw
    return {**raw, "metadata": {**metadata, "namespace": call.namespace}}
