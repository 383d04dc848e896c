"""The writes of an object, without storing it: create, update, delete.

    new_object       a new object: defaults, the server's metadata, admission, validation
    changed_object   an update: fields that the request may not change are restored, then validation
    checked_object   all errors of an object that can be found without a cluster
    deleted_object   a deletion: the object that waits for finalizers or its grace period

The local API server, the components of the local cluster and `simulate` write objects through these.
Each raises StatusError, with the API server's code, reason and message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.api.calendar import misspelt_terms
from holdfast.api.raw_objects import Key, Raw
from holdfast.api.times import format_time, parse_time
from holdfast.machinery.object_request import ObjectRequest, WriteRequest
from holdfast.machinery.patch import keep_times, track_update
from holdfast.machinery.schema import (
    UNKNOWN,
    FieldError,
    ResourceType,
    apply_defaults,
    read_object,
    suggestion,
)
from holdfast.machinery.schema.types import to_storage, to_version
from holdfast.machinery.status import Resource, forbidden, invalid, not_found
from holdfast.machinery.strategies import strategy_of
from holdfast.machinery.strategies.strategy import Strategy
from holdfast.machinery.validation import metadata as metadata_rules
from holdfast.machinery.validation.kinds import check_values

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
_NAMESPACES = Resource("", "namespaces")
_IDENTITY = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_GIVEN_BY_SERVER = (*_IDENTITY, "selfLink", "resourceVersion")
_MOST_OF_NAME = 58
"""The longest prefix of a generateName that is used, so that the name is a DNS label."""


class _NoCluster:
    """Without objects, identities and time, for checks that need none of them."""

    @property
    def store(self) -> _NoCluster:
        return self

    @property
    def identity(self) -> _NoCluster:
        return self

    def get(self, key: Key, /) -> Raw | None:
        return None

    def scan(self, group: str, kind: str, /) -> Iterable[Raw]:
        return ()

    def name(self, prefix: str, /) -> str:
        return prefix

    def new(self, key: Key, raw: Raw, /) -> Raw:
        return raw

    def stamp(self, after: float = 0.0) -> str:
        return ""


def new_object(request: WriteRequest, raw: Raw, applied: bool = False, checked: bool = False) -> Raw:
    """The new object, ready to be stored. `applied` if its managed fields are up to date,
    `checked` that `check_decoded` has found no error in it. Raises StatusError 403 or 422."""
    type, strategy = request.type, strategy_of(request.type)
    given = raw.get("status")
    raw = apply_defaults(type, raw)
    dropped = _GIVEN_BY_SERVER[len(_IDENTITY) :] if request.restores else _GIVEN_BY_SERVER
    metadata = {name: value for name, value in raw["metadata"].items() if name not in dropped}
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = request.cluster.identity.name(metadata["generateName"][:_MOST_OF_NAME])
    request.name = metadata.get("name") or ""
    raw = to_storage(type, {**raw, "metadata": metadata})
    if not applied:
        # Fields that admission and the server set have no manager.
        raw = with_managers(request, None, raw)
    raw = request.cluster.identity.new(request.key, raw)
    if strategy.generation_of is not None and not (request.restores and "generation" in metadata):
        raw["metadata"]["generation"] = 1
    elif "generation" not in metadata:
        raw["metadata"].pop("generation", None)
    raw = strategy.new(request, raw)
    if request.restores and given:
        raw = {**raw, "status": {**(raw.get("status") or {}), **given}}
    _warn_of_finalizers(request, raw)
    _warn_of_annotations(request, raw)
    if checked:
        return raw
    problems = metadata_rules.check(type, raw["metadata"])
    problems += strategy.check_new(request, raw)
    problems += check_values(type, to_version(type, raw))
    if problems:
        raise invalid(type.group, type.kind, request.name, problems)
    return raw


def decoded_object(type: ResourceType, raw: Raw) -> tuple[Raw, list[FieldError]]:
    """The object as its type has it, without unknown fields; and the errors of strict decoding, with
    suggestions for unknown fields."""
    decoded, problems = read_object(type, {**raw, "apiVersion": type.api_version, "kind": type.kind})
    found = []
    for each in problems:
        if each.reason == UNKNOWN:
            hint = suggestion(type.shape, each.field)
            message = f"strict decoding error: {each.message}{f'; {hint}' if hint else ''}"
            each = FieldError(UNKNOWN, each.field, message)
        found.append(each)
    return decoded, found


def checked_object(type: ResourceType, raw: Raw) -> tuple[Raw, list[FieldError]]:
    """The decoded object, and all its errors that can be found without a cluster: errors of
    strict decoding, else of validation."""
    decoded, problems = decoded_object(type, raw)
    if problems:
        return decoded, problems
    return decoded, check_decoded(type, decoded)


def check_decoded(type: ResourceType, decoded: Raw) -> list[FieldError]:
    """The errors of validation of a decoded object."""
    request = ObjectRequest(_NoCluster(), type)
    whole = apply_defaults(type, decoded)
    metadata = _complete_metadata(type, whole)
    whole = {**whole, "metadata": metadata}
    problems = metadata_rules.check(type, metadata)
    problems += strategy_of(type).check_new(request, whole)
    problems += check_values(type, to_version(type, whole))
    # That rules were not checked because of other errors is of no use beside these.
    return [each for each in dict.fromkeys(problems) if each.field != "<nil>"]


def check_decoded_metadata(type: ResourceType, decoded: Raw) -> list[FieldError]:
    """The errors of validation of the metadata alone, for an object whose other parts are valid."""
    return metadata_rules.check(type, _complete_metadata(type, decoded))


def _complete_metadata(type: ResourceType, raw: Raw) -> Raw:
    """The metadata with a namespace, and with a name as it would be generated."""
    metadata: Raw = raw.get("metadata") or {}
    if not metadata.get("name") and metadata.get("generateName"):
        metadata = {**metadata, "name": f"{metadata['generateName'][:_MOST_OF_NAME]}xxxxx"}
    return {"namespace": "default", **metadata} if type.namespaced else metadata


def check_namespace_is_active(request: WriteRequest, must_exist: bool = True) -> None:
    """Nothing is created in a namespace that does not exist or is being deleted. Raises StatusError 403
    or 404."""
    if not request.type.namespaced:
        return
    namespace = request.store.get(Key("", "Namespace", "", request.namespace))
    if namespace is None:
        if not must_exist:
            return
        raise not_found(_NAMESPACES, request.namespace)
    if namespace["metadata"].get("deletionTimestamp"):
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {request.namespace} is being terminated",
            "field": "metadata.namespace",
        }
        why = (
            f"unable to create new content in namespace {request.namespace} because it is being "
            "terminated"
        )
        raise forbidden(request.resource, request.name, why, [cause])


def _warn_of_finalizers(request: WriteRequest, raw: Raw) -> None:
    if request.type.builtin:
        return
    for each in raw["metadata"].get("finalizers") or ():
        if "/" not in each and each not in metadata_rules.STANDARD_FINALIZERS:
            request.warn(
                f'metadata.finalizers: "{each}": prefer a domain-qualified finalizer name to avoid '
                "accidental conflicts with other finalizer writers"
            )


def _warn_of_annotations(request: WriteRequest, raw: Raw) -> None:
    for path, given in reservation_annotations(raw):
        for key, problem in misspelt_terms(given):
            request.warn(f"{path}[{key}]: {problem}")


def reservation_annotations(raw: Raw) -> list[tuple[str, Mapping[str, str]]]:
    """The annotations of a Reservation, or of the Reservations of a ReservationSchedule, with their
    path; none where these are invalid."""
    match raw:
        case {"kind": "Reservation", "metadata": {"annotations": dict(found)}}:
            return [("metadata.annotations", found)]
        case {
            "kind": "ReservationSchedule",
            "spec": {"template": {"metadata": {"annotations": dict(found)}}},
        }:
            return [("spec.template.metadata.annotations", found)]
        case _:
            return []


def with_managers(request: WriteRequest, before: Raw | None, after: Raw) -> Raw:
    """The object with its `managedFields` brought up to date, if the request has a field manager."""
    type, manager = request.type, request.options.manager
    if manager is None:
        return after
    was = to_version(type, before) if before is not None else None
    now = request.stamp()
    return to_storage(
        type, track_update(type, was, to_version(type, after), manager, request.subresource, now)
    )


def changed_object(request: WriteRequest, before: Raw, after: Raw, applied: bool = False) -> Raw:
    """`after` as it is to replace `before`, as far as the request's subresource lets it; equal to
    `before` if nothing changes. `applied` if its managed fields are up to date. Raises
    StatusError 422."""
    type, strategy = request.type, strategy_of(request.type)
    if not applied:
        after = with_managers(request, before, after)
    after = keep_times(before, _prepared(request, strategy, before, after))
    if after == before:
        return after
    problems = metadata_rules.check(type, after["metadata"])
    problems += metadata_rules.check_change(before["metadata"], after["metadata"])
    problems += strategy.check_changed(request, before, after)
    if request.subresource != "status" or not type.builtin:
        problems += check_values(type, to_version(type, after), to_version(type, before))
    if reservation_annotations(after) != reservation_annotations(before):
        _warn_of_annotations(request, after)
    if problems:
        raise invalid(type.group, type.kind, request.name, problems)
    return after


def _prepared(request: WriteRequest, strategy: Strategy, before: Raw, after: Raw) -> Raw:
    """`after` with the fields that this request may not change restored."""
    old = before["metadata"]
    metadata = {**after["metadata"], "resourceVersion": old["resourceVersion"]}
    for name in ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        if name in old:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)
    for name in ("uid", "namespace"):
        if not metadata.get(name) and name in old:
            metadata[name] = old[name]
    metadata.pop("selfLink", None)
    after = {**after, "metadata": metadata}
    if request.subresource == "status":
        return strategy.status_changed(request, before, after)
    after = strategy.changed(request, before, after)
    if strategy.generation_of is not None and strategy.generation_of(after) != strategy.generation_of(
        before
    ):
        generation = old.get("generation", 0) + 1
        after = {**after, "metadata": {**after["metadata"], "generation": generation}}
    return after


def is_gone(request: WriteRequest, raw: Raw) -> bool:
    """Whether a deleted object waits for nothing any more: no finalizers, no grace period."""
    metadata = raw["metadata"]
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not _namespace_waits(request, raw)
    )


def deleted_object(
    request: WriteRequest, raw: Raw, grace: int | None = None, propagation: str | None = None
) -> tuple[Raw, bool]:
    """The object as a deletion leaves it, and whether it can be removed. `grace` and
    `propagation` are those of the delete options."""
    metadata, strategy = raw["metadata"], strategy_of(request.type)
    finalizers = _finalizers(propagation, metadata.get("finalizers") or [])
    period = strategy.grace(raw, grace) if strategy.grace is not None else 0
    already = metadata.get("deletionTimestamp")
    if not already:
        added = strategy.deletion_finalizers
        finalizers = [*finalizers, *(each for each in added if each not in finalizers)]
    left = metadata.get("deletionGracePeriodSeconds") or 0
    if already:
        # A second deletion can shorten the grace period, never extend it.
        period = left if grace is None else min(period, left)
        unchanged = period == left and finalizers == (metadata.get("finalizers") or [])
        if unchanged and (period or finalizers or _namespace_waits(request, raw)):
            return raw, False
    changed = dict(metadata)
    if not already:
        changed["deletionTimestamp"] = request.stamp(period)
        changed["deletionGracePeriodSeconds"] = period
        if "generation" in changed:
            changed["generation"] += 1
    elif period < left:
        changed["deletionTimestamp"] = format_time(parse_time(already) - left + period)
        changed["deletionGracePeriodSeconds"] = period
    if finalizers:
        changed["finalizers"] = finalizers
    else:
        changed.pop("finalizers", None)
    after = {**raw, "metadata": changed}
    if _is_namespace(request):
        changed.pop("deletionGracePeriodSeconds", None)
        after["status"] = {**(raw.get("status") or {}), "phase": "Terminating"}
    return after, not finalizers and not period and not _namespace_waits(request, raw)


def _finalizers(propagation: str | None, existing: list[str]) -> list[str]:
    """The finalizers with those of the garbage collector that the propagation policy asks for."""
    match propagation:
        case None:
            return existing
        case "Orphan":
            wanted = [ORPHAN]
        case "Foreground":
            wanted = [FOREGROUND]
        case _:
            wanted = []
    kept = [each for each in existing if each not in (ORPHAN, FOREGROUND)]
    return [*kept, *wanted]


def _is_namespace(request: WriteRequest) -> bool:
    return request.type.builtin and request.type.kind == "Namespace"


def _namespace_waits(request: WriteRequest, raw: Raw) -> bool:
    """Whether it is a namespace that is not empty: it has a finalizer in its spec."""
    return _is_namespace(request) and bool((raw.get("spec") or {}).get("finalizers"))
