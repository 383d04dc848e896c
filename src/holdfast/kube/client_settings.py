"""`Access`, the connection settings of one API server, with TLS contexts and proxy selection."""

import ipaddress
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.kube.credentials import Anonymous, ClientIdentity, Credentials
from holdfast.kube.errors import CredentialsError, KubeconfigError


@dataclass(frozen=True, slots=True)
class Tls:
    ca: bytes | None = None
    """Certificates in PEM; None is what the system trusts."""
    insecure: bool = False
    server_name: str = ""
    """The name the server's certificate must carry, if not the host's."""


@dataclass(frozen=True, slots=True)
class Access:
    server: str
    """Without a slash at the end."""
    tls: Tls = field(default_factory=Tls)
    credentials: Credentials = field(default_factory=Anonymous)
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with every request: the user to impersonate."""
    namespace: str = "default"
    origin: str = ""
    """The source of these settings, for logs."""


# TLS contexts


def make_context(tls: Tls, identity: ClientIdentity) -> ssl.SSLContext:
    """Raises KubeconfigError or CredentialsError if a certificate is invalid."""
    try:
        context = ssl.create_default_context(
            cadata=tls.ca.decode("ascii") if tls.ca is not None else None
        )
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise KubeconfigError("", "certificate-authority", f"not a PEM certificate: {error}") from None
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca is not None:
        # Clusters' own authorities often lack what newer OpenSSL insists on (key usage, identifiers).
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    context.set_alpn_protocols(["http/1.1"])
    if identity.certificate:
        _load(context, identity)
    return context


def _load(context: ssl.SSLContext, identity: ClientIdentity) -> None:
    """Loads a client certificate through a temporary file: the ssl module reads them from files
    only.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(identity.certificate + b"\n" + identity.key)
        try:
            context.load_cert_chain(pair)
        except ssl.SSLError as error:
            raise CredentialsError(f"client certificate and key: {error.reason or error}") from None


# Proxy selection by Go's rules: HTTPS_PROXY, HTTP_PROXY, NO_PROXY


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
    """Whether NO_PROXY covers the host: loopback always; else by name, domain, address or network,
    each with or without a port.
    """
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
