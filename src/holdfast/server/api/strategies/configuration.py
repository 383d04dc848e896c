"""ConfigMaps and Secrets, which can be sealed; secrets given as text; and leases."""

from __future__ import annotations

import base64
import binascii
import re

from holdfast.server.api import fields
from holdfast.server.api.cluster import Call
from holdfast.server.api.strategies.strategy import Strategy
from holdfast.server.schema import Problem
from holdfast.store import Raw

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_BAD_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
    f"'KEY_NAME',  or 'key-name', regex used for validation is '{_KEY.pattern}')"
)
_SEALED = "field is immutable when `immutable` is set"


def _check_sealed(before: Raw, after: Raw, *parts: str) -> list[Problem]:
    if not before.get("immutable"):
        return []
    found = []
    if not after.get("immutable"):
        found.append(fields.forbidden("immutable", _SEALED))
    found += [fields.forbidden(part, _SEALED) for part in parts if before.get(part) != after.get(part)]
    return found


def _check_keys(raw: Raw, *parts: str) -> list[Problem]:
    return [
        fields.invalid(f"{part}[{key}]", key, _BAD_KEY)
        for part in parts
        for key in raw.get(part) or {}
        if _KEY.fullmatch(key) is None
    ]


def _check_new_config_map(call: Call, raw: Raw) -> list[Problem]:
    return _check_keys(raw, "data", "binaryData")


def _check_config_map(call: Call, before: Raw, after: Raw) -> list[Problem]:
    return [
        *_check_sealed(before, after, "data", "binaryData"),
        *_check_keys(after, "data", "binaryData"),
    ]


def _new_secret(call: Call, raw: Raw) -> Raw:
    text = raw.get("stringData") or {}
    encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in text.items()}
    secret = {name: value for name, value in raw.items() if name != "stringData"}
    if encoded:
        secret["data"] = {**(raw.get("data") or {}), **encoded}
    secret.setdefault("type", "Opaque")
    return secret


def _changed_secret(call: Call, before: Raw, after: Raw) -> Raw:
    after = _new_secret(call, after)
    return {**after, "type": after.get("type") or before.get("type")}


def _check_new_secret(call: Call, raw: Raw) -> list[Problem]:
    found = _check_keys(raw, "data")
    for key, value in (raw.get("data") or {}).items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            found.append(fields.invalid(f"data[{key}]", value, "must be base64"))
    return found


def _check_secret(call: Call, before: Raw, after: Raw) -> list[Problem]:
    found = _check_sealed(before, after, "data")
    if before.get("type") != after.get("type"):
        found.append(fields.invalid("type", after.get("type"), "field is immutable"))
    return found + _check_new_secret(call, after)


def _check_new_lease(call: Call, raw: Raw) -> list[Problem]:
    spec = raw.get("spec") or {}
    lasts, moved = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    found = []
    if isinstance(lasts, int) and lasts <= 0:
        found.append(fields.invalid("spec.leaseDurationSeconds", lasts, "must be greater than 0"))
    if isinstance(moved, int) and moved < 0:
        why = "must be greater than or equal to 0"
        found.append(fields.invalid("spec.leaseTransitions", moved, why))
    return found


def _check_lease(call: Call, before: Raw, after: Raw) -> list[Problem]:
    return _check_new_lease(call, after)


CONFIG_MAP = Strategy(check_new=_check_new_config_map, check_changed=_check_config_map)
LEASE = Strategy(
    unconditional_update=False,
    create_on_update=True,
    check_new=_check_new_lease,
    check_changed=_check_lease,
)
SECRET = Strategy(
    new=_new_secret, changed=_changed_secret, check_new=_check_new_secret, check_changed=_check_secret
)
