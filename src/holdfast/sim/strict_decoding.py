"""Fields an object's kind does not have, found as the API server of `up` finds them.

Its strict decoding refuses them, so a misspelt field never goes unnoticed. The nearest name the field
could have been is suggested.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache

from holdfast.api.crds import definitions
from holdfast.api.decode import object_name
from holdfast.api.errors import InvalidObject
from holdfast.server.schema import UNKNOWN, Catalogue, ResourceType, read_object
from holdfast.store.objects import Raw

_CHECKED_ELSEWHERE = ("Reservation",)
"""Kinds whose validation looks for unknown fields itself, in their templates too."""


def unknown_field_errors(raw: Raw) -> Iterator[InvalidObject]:
    """Of an object of a known kind, or of a part of one that says its apiVersion and kind."""
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
