"""URLs, IP addresses and CIDRs of CEL in Kubernetes."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import quote, unquote_plus

from holdfast.machinery.schema.cel.overloads import (
    BOOL,
    CIDR,
    INT,
    IP,
    STRING,
    STRINGS,
    URL,
    Functions,
    Type,
    failed,
    function,
    method,
)
from holdfast.machinery.schema.cel.values import (
    AddressValue,
    CelRuntimeError,
    NetworkValue,
    UrlValue,
)

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*", re.ASCII)
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*", re.ASCII)
_BAD_HOST = re.compile(r"""[\s<>"\\^`{|}#?/]""")
_PREFIX = re.compile(r"(.+)/(0|[1-9]\d{0,2})", re.ASCII | re.DOTALL)
_PATH_SAFE = "$&+,/:;=@!'()*"


# URLs


def _refused(text: str, why: str) -> CelRuntimeError:
    return failed(f'URL parse error during conversion from string: parse "{text}": {why}')


def parse_url(text: str) -> UrlValue:
    """An absolute URI or an absolute path, by the rules of Go's net/url. Raises CelRuntimeError."""
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise _refused(text, "net/url: invalid control character in URL")
    if not text:
        raise _refused(text, "empty url")
    if text == "*":
        return UrlValue("", "", "*", "")
    rest, scheme = text.partition("#")[0], ""
    found = _SCHEME.match(rest)
    if rest.startswith(":"):
        raise _refused(text, "missing protocol scheme")
    if found is not None and rest[found.end() : found.end() + 1] == ":":
        scheme, rest = found[0].lower(), rest[found.end() + 1 :]
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return UrlValue(scheme, "", "", query)  # opaque, such as mailto:x
        raise _refused(text, "invalid URI for request")
    host = ""
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        host, rest = _host(text, authority), slash + path
    if bad := _ESCAPE.search(rest):
        raise _refused(text, f'invalid URL escape "{rest[bad.start() : bad.start() + 3]}"')
    return UrlValue(scheme, host, rest, query)


def _host(text: str, authority: str) -> str:
    user, at, host = authority.rpartition("@")
    if at and _USER.fullmatch(user) is None:
        raise _refused(text, "net/url: invalid userinfo")
    name, port = host, ""
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise _refused(text, "missing ']' in host")
        name, port = host[: end + 1], host[end + 1 :]
    elif ":" in host:
        colon = host.rfind(":")
        name, port = host[:colon], host[colon:]
        if ":" in name:
            raise _refused(text, f'invalid port "{host[host.index(":") :]}" after host')
    if port and not (port[0] == ":" and (port[1:].isdigit() or port == ":") and port.isascii()):
        raise _refused(text, f'invalid port "{port}" after host')
    if bad := _BAD_HOST.search(name):
        raise _refused(text, f'invalid character "{bad[0]}" in host name')
    if bad := _ESCAPE.search(name):
        raise _refused(text, f'invalid URL escape "{name[bad.start() : bad.start() + 3]}"')
    return host


def _is_url(text: str) -> bool:
    try:
        parse_url(text)
    except CelRuntimeError:
        return False
    return True


def _hostname(url: UrlValue) -> str:
    host = url.host
    if host.startswith("["):
        return host[1 : host.rfind("]")]
    return host.rpartition(":")[0] if ":" in host else host


def _port(url: UrlValue) -> str:
    after = url.host[url.host.rfind("]") + 1 :]
    return after.rpartition(":")[2] if ":" in after else ""


def _escaped_path(url: UrlValue) -> str:
    return quote(url.path, safe=_PATH_SAFE + "%" + "~")


def _query(url: UrlValue) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in url.query.split("&"):
        if not part or ";" in part or _ESCAPE.search(part):
            continue
        key, _, value = part.partition("=")
        found.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return found


# Addresses


def _address(text: str) -> IPv4Address | IPv6Address:
    """Without a zone, and not an IPv4 address written as an IPv6 one."""
    if "%" in text:
        raise failed(f'IP address "{text}" with zone value is not allowed')
    found: IPv4Address | IPv6Address
    try:
        found = IPv6Address(text) if ":" in text else IPv4Address(text)
    except AddressValueError:
        raise failed(
            f'IP Address "{text}" parse error during conversion from string: ParseAddr("{text}"): '
            f"{'unable to parse IP' if ':' in text else _ipv4_problem(text)}"
        ) from None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        raise failed(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return found


def _ipv4_problem(text: str) -> str:
    """Why a text is no IPv4 address, in Go's words."""
    if "." not in text:
        return "unable to parse IP"
    for number, part in enumerate(text.split(".")):
        digits = re.match(r"\d*", part, re.ASCII)
        rest = part[len(digits[0]) :] if digits is not None else part
        if rest:
            after = ".".join(text.split(".")[number + 1 :])
            at = rest + (f".{after}" if after else "")
            return f'unexpected character (at "{at}")'
        if not part:
            return f'IPv4 field must have at least one digit (at "{text}")'
        if len(part) > 1 and part[0] == "0":
            return "IPv4 field has octet with leading zero"
        if int(part) > 255:
            return "IPv4 field has value >255"
        if number == 4:
            return "IPv4 address too long"
    return "IPv4 address too short"


def parse_address(text: str) -> AddressValue:
    """Raises CelRuntimeError."""
    found = _address(text)
    return AddressValue(found.version, int(found))


def parse_network(text: str) -> NetworkValue:
    """Raises CelRuntimeError."""
    prefix = "network address parse error during conversion from string: "
    found = _PREFIX.fullmatch(text)
    if found is None:
        raise failed(f"{prefix}{prefix}netip.ParsePrefix(\"{text}\"): no '/'")
    try:
        address = parse_address(found[1])
    except CelRuntimeError as error:
        raise failed(f"{prefix}{error}") from None
    if int(found[2]) > address.bits:
        raise failed(f'{prefix}{prefix}netip.ParsePrefix("{text}"): prefix length out of range')
    return NetworkValue(address, int(found[2]))


def _is_address(text: str) -> bool:
    try:
        _address(text)
    except CelRuntimeError:
        return False
    return True


def _is_network(text: str) -> bool:
    try:
        parse_network(text)
    except CelRuntimeError:
        return False
    return True


def _as_python(address: AddressValue) -> IPv4Address | IPv6Address:
    return IPv4Address(address.number) if address.version == 4 else IPv6Address(address.number)


def address_text(address: AddressValue) -> str:
    return str(_as_python(address))


def network_text(network: NetworkValue) -> str:
    return f"{address_text(network.address)}/{network.length}"


def _masked(network: NetworkValue) -> NetworkValue:
    address = network.address
    free = address.bits - network.length
    return NetworkValue(AddressValue(address.version, address.number >> free << free), network.length)


def _has_address(network: NetworkValue, address: AddressValue) -> bool:
    free = network.address.bits - network.length
    return (
        network.address.version == address.version
        and network.address.number >> free == address.number >> free
    )


def _has_network(network: NetworkValue, other: NetworkValue) -> bool:
    return network.length <= other.length and _has_address(network, other.address)


def _is_link_local_multicast(address: AddressValue) -> bool:
    if address.version == 4:
        return address.number >> 8 == 0xE00000
    return address.number >> 112 & 0xFF0F == 0xFF02


def _is_global_unicast(address: AddressValue) -> bool:
    found = _as_python(address)
    is_broadcast = address.version == 4 and address.number == 2**32 - 1
    return not (
        is_broadcast
        or found.is_unspecified
        or found.is_loopback
        or found.is_multicast
        or found.is_link_local
    )


_QUERY: Type = ("map", STRING, STRINGS)
NETWORK: Functions = {
    "url": [function((STRING,), URL, parse_url)],
    "isURL": [function((STRING,), BOOL, _is_url)],
    "getScheme": [method((URL,), STRING, lambda url: url.scheme)],
    "getHost": [method((URL,), STRING, lambda url: url.host)],
    "getHostname": [method((URL,), STRING, _hostname)],
    "getPort": [method((URL,), STRING, _port)],
    "getEscapedPath": [method((URL,), STRING, _escaped_path)],
    "getQuery": [method((URL,), _QUERY, _query)],
    "ip": [
        function((STRING,), IP, parse_address),
        method((CIDR,), IP, lambda network: network.address),
    ],
    "isIP": [function((STRING,), BOOL, _is_address)],
    "ip.isCanonical": [function((STRING,), BOOL, lambda text: str(_address(text)) == text)],
    "family": [method((IP,), INT, lambda address: address.version)],
    "isUnspecified": [method((IP,), BOOL, lambda address: address.number == 0)],
    "isLoopback": [method((IP,), BOOL, lambda address: _as_python(address).is_loopback)],
    "isLinkLocalMulticast": [method((IP,), BOOL, _is_link_local_multicast)],
    "isLinkLocalUnicast": [method((IP,), BOOL, lambda address: _as_python(address).is_link_local)],
    "isGlobalUnicast": [method((IP,), BOOL, _is_global_unicast)],
    "cidr": [function((STRING,), CIDR, parse_network)],
    "isCIDR": [function((STRING,), BOOL, _is_network)],
    "containsIP": [
        method((CIDR, IP), BOOL, _has_address),
        method((CIDR, STRING), BOOL, lambda a, text: _has_address(a, parse_address(text))),
    ],
    "containsCIDR": [
        method((CIDR, CIDR), BOOL, _has_network),
        method((CIDR, STRING), BOOL, lambda a, text: _has_network(a, parse_network(text))),
    ],
    "masked": [method((CIDR,), CIDR, _masked)],
    "prefixLength": [method((CIDR,), INT, lambda network: network.length)],
    "string": [
        function((IP,), STRING, address_text),
        function((CIDR,), STRING, network_text),
    ],
}
