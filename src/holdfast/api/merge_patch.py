"""JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any


def merge_patch(raw: Any, patch: Any) -> Any:
    """Maps are merged, nulls remove, everything else replaces; what is untouched is shared."""
    if not isinstance(patch, dict):
        return patch
    result = dict(raw) if isinstance(raw, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result
