"""Complaints about fields, worded as Kubernetes words them.

    required("spec.containers")               spec.containers: Required value
    invalid("metadata.name", "A", why)        metadata.name: Invalid value: "A": why
    unsupported("dryRun", "x", ["All"])       dryRun: Unsupported value: "x": supported values: "All"

Clients and people match on these words.
"""

from collections.abc import Iterable
from typing import Any

from holdfast.machinery.schema import field_errors as problems
from holdfast.machinery.schema.field_errors import FieldError, shown

__all__ = [
    "FieldError",
    "duplicate",
    "forbidden",
    "invalid",
    "quoted",
    "required",
    "too_long",
    "unsupported",
]


def required(field: str, why: str = "") -> FieldError:
    return problems.field_problem(problems.REQUIRED, field, detail=why)


def invalid(field: str, value: Any, why: str) -> FieldError:
    return problems.field_problem(problems.INVALID, field, value, why)


def unsupported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    return problems.not_supported(field, value, supported)


def forbidden(field: str, why: str) -> FieldError:
    return problems.field_problem(problems.FORBIDDEN, field, detail=why)


def duplicate(field: str, value: Any) -> FieldError:
    return problems.field_problem(problems.DUPLICATE, field, value)


def too_long(field: str, limit: int) -> FieldError:
    return problems.field_problem(
        problems.TOO_LONG, field, detail=f"may not be more than {limit} bytes"
    )


def quoted(text: str) -> str:
    return shown(text)
