"""Objects of custom kinds: read and judged by the schema of their CustomResourceDefinition."""

from __future__ import annotations

from typing import Any

from holdfast.server.schema import decoding
from holdfast.server.schema.definitions import META
from holdfast.server.schema.leaves import Mismatch
from holdfast.server.schema.problems import MALFORMED, Problem, unknown_field
from holdfast.server.schema.shapes import builtin_shape
from holdfast.server.schema.types import ResourceType


def read(type: ResourceType, raw: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    unknown: list[decoding.Path] = []
    read_metadata = decoding.reader_of(builtin_shape(META + "ObjectMeta"))
    try:
        metadata = read_metadata(raw.get("metadata") or {}, ((), "metadata"), unknown)
    except Mismatch as mismatch:
        return raw, [Problem(MALFORMED, mismatch.field, mismatch.text())]
    problems = [unknown_field(decoding.path_text(path)) for path in unknown]
    return {**raw, "metadata": metadata}, problems


def check(type: ResourceType, raw: dict[str, Any]) -> list[Problem]:
    return []
