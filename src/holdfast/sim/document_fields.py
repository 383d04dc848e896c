"""Reads fields of Step and Expect documents, collecting errors."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from holdfast.api.errors import DurationError, InvalidObject
from holdfast.api.similar_names import did_you_mean
from holdfast.api.times import parse_duration


@lru_cache(maxsize=10_000)
def duration(text: str) -> float:
    """Like `parse_duration`, memoized."""
    return parse_duration(text)


def seconds(given: Any, object: str, field: str, found: list[InvalidObject]) -> float:
    """A point in simulated time; 0 if it is invalid, with an error noted."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        message = f"expected a duration such as 60s, got {described(given)}"
        found.append(InvalidObject(object, field, message))
        return 0.0
    try:
        value = duration(str(given))
    except DurationError as error:
        found.append(InvalidObject(object, field, str(error)))
        return 0.0
    if value < 0:
        found.append(InvalidObject(object, field, f"must not be negative: {given}"))
        return 0.0
    return value


def unknown_fields(
    data: Mapping[Any, Any],
    known: Sequence[str],
    object: str,
    path: str,
    found: list[InvalidObject],
) -> None:
    for field in data:
        if field not in known:
            where = f"{path}.{field}" if path else str(field)
            found.append(InvalidObject(object, where, f"unknown field{hint(str(field), known)}"))


def hint(name: str, known: Sequence[str]) -> str:
    return did_you_mean(name, known, f"known: {', '.join(known)}")


def described(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else repr(value)
