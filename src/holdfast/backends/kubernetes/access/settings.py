"""All a client needs to know about one API server."""

from dataclasses import dataclass, field

from holdfast.backends.kubernetes.access.credentials import Anonymous, Credentials


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
    """Sent with every request: whom to act as."""
    namespace: str = "default"
    origin: str = ""
    """Where all this was found, for logs."""
