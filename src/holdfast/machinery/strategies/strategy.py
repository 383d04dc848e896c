"""The strategy of a kind, and the defaults that hold for most kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.api.raw_objects import Raw
from holdfast.machinery.object_request import WriteRequest
from holdfast.machinery.schema import FieldError

New = Callable[[WriteRequest, Raw], Raw]
Changed = Callable[[WriteRequest, Raw, Raw], Raw]
CheckNew = Callable[[WriteRequest, Raw], list[FieldError]]
CheckChanged = Callable[[WriteRequest, Raw, Raw], list[FieldError]]


def spec_of(raw: Raw) -> Any:
    return raw.get("spec")


def spec_and_annotations(raw: Raw) -> Any:
    return raw.get("spec"), raw["metadata"].get("annotations")


def all_but_metadata(raw: Raw) -> Any:
    return {name: value for name, value in raw.items() if name != "metadata"}


def all_but_status(raw: Raw) -> Any:
    return {name: value for name, value in raw.items() if name not in ("metadata", "status")}


def _as_it_is(request: WriteRequest, raw: Raw) -> Raw:
    return raw


def without_status(request: WriteRequest, raw: Raw) -> Raw:
    return {**raw, "status": {}}


def status_of(**zeros: int | Raw | None) -> New:
    """The status of a new object, with counts of zero and empty parts."""

    def with_zeros(request: WriteRequest, raw: Raw) -> Raw:
        return {**raw, "status": dict(zeros)}

    return with_zeros


def keep_status(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    """An update of the object does not change its status."""
    return _with_part(after, "status", before)


def keep_spec(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    """An update of the status does not change the spec."""
    return _with_part(after, "spec", before)


def keep_all_but_status(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    managed = after["metadata"].get("managedFields")
    metadata = {**before["metadata"], "managedFields": managed} if managed else before["metadata"]
    kept = {**before, "metadata": metadata}
    if "status" in after:
        return {**kept, "status": after["status"]}
    kept.pop("status", None)
    return kept


def keep_spec_and_labels(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    after = keep_spec(request, before, after)
    return {**after, "metadata": _with_part(after["metadata"], "labels", before["metadata"])}


def _change(request: WriteRequest, before: Raw, after: Raw) -> Raw:
    return after


def _with_part(after: Raw, name: str, before: Raw) -> Raw:
    if name in before:
        return {**after, name: before[name]}
    if name in after:
        return {key: value for key, value in after.items() if key != name}
    return after


def _nothing_new(request: WriteRequest, raw: Raw) -> list[FieldError]:
    return []


def _nothing_changed(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How objects of a kind are prepared, validated and deleted."""

    generation_of: Callable[[Raw], Any] | None = None
    """The part whose change increments the generation; None for kinds without generations."""
    unconditional_update: bool = True
    """Whether an update may omit the resourceVersion."""
    create_on_update: bool = False
    """Whether a PUT of an object that does not exist creates it."""
    returns_deleted: bool = False
    """Whether a deletion returns the object and not a Status."""
    new: New = _as_it_is
    changed: Changed = _change
    status_changed: Changed = keep_spec
    check_new: CheckNew = _nothing_new
    check_changed: CheckChanged = _nothing_changed
    deletion_finalizers: tuple[str, ...] = ()
    """Finalizers that a deletion adds, for the controller that cleans up."""
    orphans: bool = False
    """Whether a deletion without a propagation policy orphans dependents, with a warning."""
    grace: Callable[[Raw, int | None], int] | None = None
    """The grace period of a deletion, given the requested one; None for kinds without."""


PLAIN = Strategy()
