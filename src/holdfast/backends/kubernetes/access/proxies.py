"""Which proxy to go through, by the rules of Go's programs: HTTPS_PROXY, HTTP_PROXY, NO_PROXY."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

SCHEMES = ("http", "https")


def proxy_from(environment: Mapping[str, str], server: str) -> str | None:
    """The proxy for the server, or None to connect directly."""
    url = urlsplit(server)
    host = url.hostname or ""
    port = url.port or (443 if url.scheme == "https" else 80)
    name = f"{url.scheme.upper()}_PROXY"
    proxy = environment.get(name) or environment.get(name.lower()) or ""
    exempt = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if not proxy or is_exempt(host, port, exempt):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def is_exempt(host: str, port: int, exempt: str) -> bool:
    """Loopback always; else by name, domain, address, network, each with or without a port."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(
        _matches(entry.strip().lower(), host.lower(), port, address) for entry in exempt.split(",")
    )


def _matches(
    entry: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None
) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, separator, wanted = entry.rpartition(":")
    if separator and wanted.isdigit() and _address(entry) is None:
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    if address is not None:
        return _address(entry) == address
    entry = entry.removeprefix("*")
    if entry.startswith("."):
        return host.endswith(entry)
    return host == entry or host.endswith(f".{entry}")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
