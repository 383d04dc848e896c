"""Events: the older sort with first and last times, and the newer one with a time and a series."""

from __future__ import annotations

from holdfast.server.api import fields
from holdfast.server.api.cluster import Call
from holdfast.server.api.strategies.strategy import Strategy
from holdfast.server.api.views import EVENTS_GROUP
from holdfast.server.schema import Problem
from holdfast.store import Raw

_LIMITS = (("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024))
_NEEDED = ("reportingInstance", "action", "reason")
_OLD_FIELDS = ("firstTimestamp", "lastTimestamp", "count", "source")


def _check_new(call: Call, raw: Raw) -> list[Problem]:
    found = _check_new_sort(call, raw) if raw.get("eventTime") else _check_place(raw)
    if call.type.group == EVENTS_GROUP:
        found += _check_strictly(raw)
    return found


def _check_place(raw: Raw) -> list[Problem]:
    own = raw["metadata"].get("namespace") or ""
    about = (raw.get("involvedObject") or {}).get("namespace") or ""
    if about == own or (not about and own == "default"):
        return []
    return [fields.invalid("involvedObject.namespace", about, "does not match event.namespace")]


def _check_new_sort(call: Call, raw: Raw) -> list[Problem]:
    found: list[Problem] = []
    own = raw["metadata"].get("namespace") or ""
    if not (raw.get("involvedObject") or {}).get("namespace") and own not in ("default", "kube-system"):
        found.append(fields.invalid("involvedObject.namespace", "", "does not match event.namespace"))
    if not raw.get("reportingComponent"):
        newer = call.type.group == EVENTS_GROUP
        found.append(fields.required("reportingController" if newer else "reportingComponent"))
    found += [fields.required(name) for name in _NEEDED if not raw.get(name)]
    for name, limit in _LIMITS:
        if len(raw.get(name) or "") > limit:
            found.append(fields.invalid(name, "", f"can have at most {limit} characters"))
    return found


def _check_strictly(raw: Raw) -> list[Problem]:
    found: list[Problem] = []
    if not raw.get("eventTime"):
        found.append(fields.required("eventTime"))
    if raw.get("type") not in ("Normal", "Warning"):
        found.append(fields.invalid("type", "", f"has invalid value: {raw.get('type') or ''}"))
    found += [fields.invalid(name, "", "needs to be unset") for name in _OLD_FIELDS if raw.get(name)]
    return found


EVENT = Strategy(create_on_update=True, check_new=_check_new)
