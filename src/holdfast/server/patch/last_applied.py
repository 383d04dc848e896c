"""The annotation in which client-side apply keeps what it last applied."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.server.patch import fields as f
from holdfast.server.patch import ownership
from holdfast.server.patch.compare import compare
from holdfast.server.patch.typed import NotComparable, field_set
from holdfast.server.schema.types import ResourceType

Raw = dict[str, Any]
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_ANNOTATIONS = 256 * 1024


def not_ours_already(
    type: ResourceType, live: Raw, manager: str, conflicts: ownership.Conflicts
) -> ownership.Conflicts:
    """Without the conflicts kubectl has with its own client-side past.

    What the last-applied annotation says and the object still has was applied by kubectl before it
    learned to apply on the server.
    """
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    text = annotations.get(LAST_APPLIED)
    if manager != "kubectl" or not text:
        return conflicts
    try:
        last = msgspec.json.decode(text)
        if not isinstance(last, dict) or last.get("apiVersion") != type.api_version:
            return conflicts
        comparison = compare(type.shape, last, live)
        ours = field_set(type.shape, last)
    except (msgspec.DecodeError, NotComparable, RecursionError):
        return conflicts
    for changed in comparison:
        ours = f.difference(ours, changed)
    left = {manager: f.difference(taken, ours) for manager, taken in conflicts.items()}
    return {manager: taken for manager, taken in left.items() if taken}


def with_last_applied(new: Raw, config: Raw) -> Raw:
    """Keep the annotation of client-side apply up to date, so that either way can be used next."""
    metadata = new.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return new
    given = config.get("metadata") or {}
    mentioned = given.get("annotations")
    if isinstance(mentioned, dict) and LAST_APPLIED in mentioned:
        rest = {name: value for name, value in mentioned.items() if name != LAST_APPLIED}
        config = {**config, "metadata": {**given, "annotations": rest}}
    text = msgspec.json.encode(config, order="sorted").decode() + "\n"
    annotations = {**annotations, LAST_APPLIED: text}
    if sum(len(name) + len(value) for name, value in annotations.items()) > _MAX_ANNOTATIONS:
        del annotations[LAST_APPLIED]
    return {**new, "metadata": {**metadata, "annotations": annotations}}
