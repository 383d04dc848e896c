"""Errors of an object, with Kubernetes' messages.

MALFORMED   a value of the wrong type: the object cannot be read at all        400 BadRequest
UNKNOWN     a field the type does not have: an error when asked to be strict   400 BadRequest
the rest    the object can be read but not accepted; the reason is a cause's   422 Invalid

    required("spec.containers")               spec.containers: Required value
    invalid("metadata.name", "A", why)        metadata.name: Invalid value: "A": why
    not_supported("dryRun", "x", ["All"])     dryRun: Unsupported value: "x": supported values: "All"

Clients and people match on these texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

MALFORMED = "Malformed"
UNKNOWN = "UnknownField"

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
TYPE_INVALID = "FieldValueTypeInvalid"
DUPLICATE = "FieldValueDuplicate"
NOT_SUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"
NOT_FOUND = "FieldValueNotFound"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"

_TITLES = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    TYPE_INVALID: "Invalid value",
    DUPLICATE: "Duplicate value",
    NOT_SUPPORTED: "Unsupported value",
    FORBIDDEN: "Forbidden",
    NOT_FOUND: "Not found",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
}
_WITHOUT_VALUE = frozenset({REQUIRED, FORBIDDEN, TOO_LONG, TOO_MANY})
_NOTHING: Any = object()


class FieldError(msgspec.Struct, frozen=True):
    """One thing wrong with one field."""

    reason: str
    field: str
    message: str
    """The message without the field: `Invalid value: 0: must be greater than zero`."""

    @property
    def text(self) -> str:
        """The whole line, as `kubectl` shows it: `spec.replicas: Invalid value: -1: must be …`."""
        if self.reason in (MALFORMED, UNKNOWN):
            return self.message
        return f"{self.field}: {self.message}" if self.field else self.message


def field_problem(reason: str, field: str, value: Any = _NOTHING, detail: str = "") -> FieldError:
    """A problem as `field.Error` of Kubernetes would print it."""
    message = _TITLES[reason]
    if reason not in _WITHOUT_VALUE and value is not _NOTHING:
        message += f": {quoted(value)}"
    if detail:
        message += f": {detail}"
    return FieldError(reason, field, message)


def not_supported(field: str, value: Any, allowed: Iterable[Any]) -> FieldError:
    values = ", ".join(quoted(item) for item in allowed)
    return field_problem(NOT_SUPPORTED, field, value, f"supported values: {values}")


def required(field: str, why: str = "") -> FieldError:
    return field_problem(REQUIRED, field, detail=why)


def invalid(field: str, value: Any, why: str) -> FieldError:
    return field_problem(INVALID, field, value, why)


def forbidden(field: str, why: str) -> FieldError:
    return field_problem(FORBIDDEN, field, detail=why)


def duplicate(field: str, value: Any) -> FieldError:
    return field_problem(DUPLICATE, field, value)


def too_long(field: str, limit: int) -> FieldError:
    return field_problem(TOO_LONG, field, detail=f"may not be more than {limit} bytes")


def unknown_field(path: str) -> FieldError:
    return FieldError(UNKNOWN, path, f'unknown field "{path}"')


def quoted(value: Any) -> str:
    """A value as it appears in a message: strings quoted, the rest as JSON."""
    if value is None:
        return "null"
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    except (TypeError, ValueError):
        return repr(value)


def strict_error(problems: Iterable[FieldError]) -> str:
    """The unknown fields in one message: `strict decoding error: unknown field "a", …`."""
    return "strict decoding error: " + ", ".join(p.message for p in problems if p.reason == UNKNOWN)
