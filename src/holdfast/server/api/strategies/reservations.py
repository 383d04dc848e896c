"""Reservations: like any kind that is defined, but that they say when they end.

A schema's default would not do, for it cannot depend on whether another field is given.
"""

from typing import Any

from holdfast.backends.embedded.admission import with_expiry
from holdfast.server.api.cluster import Call
from holdfast.server.api.strategies.strategy import (
    Strategy,
    all_but_status,
    keep_all_but_status,
    keep_status,
)
from holdfast.store import Raw


def _new(call: Call, raw: Raw) -> Raw:
    kept = {name: value for name, value in raw.items() if name != "status"}
    return _expiring(kept, None)


def _changed(call: Call, before: Raw, after: Raw) -> Raw:
    return _expiring(keep_status(call, before, after), before)


def _expiring(raw: Raw, before: Raw | None) -> Raw:
    """What has no spec to look at is refused, or was let in by others."""
    if not _has_spec(raw) or not (before is None or _has_spec(before)):
        return raw
    return with_expiry(raw, before)


def _has_spec(raw: dict[str, Any]) -> bool:
    return isinstance(raw.get("spec"), dict)


RESERVATION = Strategy(
    wish=all_but_status,
    unconditional_update=False,
    new=_new,
    changed=_changed,
    status_changed=keep_all_but_status,
)
