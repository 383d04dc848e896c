"""The formats of strings that are looked at; others say what is meant and are let pass."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

from holdfast.api.duration import parse_duration
from holdfast.api.errors import MalformedText
from holdfast.api.timestamps import parse_time

_HOST = re.compile(
    r"(?=.{1,255}$)[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
    r"(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*\.?"
)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}")
_UUID = re.compile(
    r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?([0-9a-fA-F])[0-9a-fA-F]{3}-?"
    r"[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"
)


def _tried(read: Callable[[str], object]) -> Callable[[str], bool]:
    def is_readable(text: str) -> bool:
        try:
            read(text)
        except (ValueError, MalformedText, binascii.Error):
            return False
        return True

    return is_readable


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


def _uuid(version: str) -> Callable[[str], bool]:
    def is_uuid(text: str) -> bool:
        match = _UUID.fullmatch(text)
        return match is not None and match[1] == version

    return is_uuid


FORMATS: dict[str, Callable[[str], bool]] = {
    "byte": _tried(lambda text: base64.b64decode(text, validate=True)),
    "cidr": _tried(lambda text: ipaddress.ip_network(text, strict=False)),
    "date": _tried(date.fromisoformat),
    "date-time": _tried(parse_time),
    "datetime": _tried(parse_time),
    "duration": _tried(parse_duration),
    "email": _matches(_EMAIL),
    "hostname": _matches(_HOST),
    "ipv4": _tried(ipaddress.IPv4Address),
    "ipv6": _tried(ipaddress.IPv6Address),
    "mac": _matches(_MAC),
    "uri": _is_uri,
    "uuid": _matches(_UUID),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4"),
    "uuid5": _uuid("5"),
}
