"""Who we are to the server, and how that changes while we run.

A client asks `current()` before every request; that costs nothing. Where it answers None, or the server
said 401, the client awaits `renew()`.
"""

import base64
import time
from pathlib import Path
from typing import NamedTuple

from holdfast.backends.kubernetes.errors import CredentialsError

_LOOK_AGAIN = 60.0
"""How long what was read from a file is used before the file is looked at again, in seconds."""


class Identity(NamedTuple):
    authorization: str = ""
    """The header's value."""
    certificate: bytes = b""
    key: bytes = b""
    """Certificate and key in PEM, for TLS."""


_NOBODY = Identity()


class Credentials:
    """What never changes."""

    def __init__(self, identity: Identity) -> None:
        self._identity: Identity | None = identity

    def current(self) -> Identity | None:
        return self._identity

    async def renew(self) -> Identity:
        """What is true now, read or made anew. Raises CredentialsError."""
        assert self._identity is not None
        return self._identity

    @property
    def may_change(self) -> bool:
        """Whether asking anew can help against a 401."""
        return False


class Anonymous(Credentials):
    def __init__(self) -> None:
        super().__init__(_NOBODY)


class FileCredentials(Credentials):
    """A token or a certificate in files that somebody rotates."""

    def __init__(
        self,
        token: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        rest: Identity = _NOBODY,
    ) -> None:
        self._rest = rest
        """What does not come from files."""
        self._token = token
        self._certificate = certificate
        self._key = key
        self._identity = None
        self._read_at = 0.0

    @property
    def may_change(self) -> bool:
        return True

    def current(self) -> Identity | None:
        fresh = time.monotonic() - self._read_at < _LOOK_AGAIN
        return self._identity if fresh else None

    async def renew(self) -> Identity:
        try:
            token = _read(self._token).decode("ascii").strip() if self._token else ""
            rest = self._rest
            certificate = _read(self._certificate) if self._certificate else rest.certificate
            key = _read(self._key) if self._key else rest.key
            if self._token and not token:
                raise CredentialsError(f"{self._token}: the token file is empty")
        except (CredentialsError, UnicodeDecodeError) as error:
            # A file that is being replaced may be gone for a moment: what it said is good until the
            # server says otherwise.
            if self._identity is None:
                if isinstance(error, CredentialsError):
                    raise
                raise CredentialsError(f"{self._token}: not a token") from None
        else:
            self._identity = Identity(bearer(token) if token else rest.authorization, certificate, key)
        self._read_at = time.monotonic()
        return self._identity


def bearer(token: str) -> str:
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror or error}") from None
