"""Changing raw objects without touching the originals."""

from typing import Any


def apply(live: Any, last: Any, new: Any) -> Any:
    """As `kubectl apply` does: what `new` says is so; what only `last` said is gone; what others
    wrote stays."""
    if not isinstance(new, dict) or not isinstance(live, dict):
        return new
    before = last if isinstance(last, dict) else {}
    result = {key: value for key, value in live.items() if key in new or key not in before}
    for key, value in new.items():
        result[key] = apply(live.get(key), before.get(key), value)
    return result
