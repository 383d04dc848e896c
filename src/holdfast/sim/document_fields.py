"""Reads fields of Step and Expect documents and finds unknown fields, collecting errors."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any

from holdfast.api.crds import definitions
from holdfast.api.decode import object_name
from holdfast.api.errors import DurationError, InvalidObject
from holdfast.api.times import parse_duration
from holdfast.local.store.objects import Raw
from holdfast.machinery.schema import UNKNOWN, Catalogue, ResourceType, read_object


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
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"


def described(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else repr(value)


# Unknown fields, found by the strict decoding of the local API server, with the closest known field
# name as a suggestion.


_CHECKED_ELSEWHERE = ("Reservation",)
"""Kinds whose validation looks for unknown fields itself, in their templates too."""


def unknown_field_errors(raw: Raw) -> Iterator[InvalidObject]:
    """For an object of a known kind, or a part of one that has its apiVersion and kind."""
    group, _, version = raw["apiVersion"].rpartition("/")
    kind = _catalogue().kind(group, version, raw["kind"])
    if kind is None or raw["kind"] in _CHECKED_ELSEWHERE:
        return
    for problem in read_object(kind, raw)[1]:
        if problem.reason == UNKNOWN:
            message = f"strict decoding error: {problem.message}{_suggestion(kind, problem.field)}"
            yield InvalidObject(object_name(raw), problem.field, message)


@cache
def _catalogue() -> Catalogue:
    catalogue = Catalogue()
    for definition in definitions():
        catalogue.add_crd(definition)
    return catalogue


def _suggestion(kind: ResourceType, path: str) -> str:
    *way, last = re.findall(r"\[\d+\]|[^.\[\]]+", path)
    shape = kind.shape
    for step in way:
        inner = shape.items if step.startswith("[") else shape.field(step)
        if inner is None:
            return ""
        shape = inner
    close = get_close_matches(last, shape.fields, n=1)
    return f"; did you mean {close[0]}?" if close else ""
