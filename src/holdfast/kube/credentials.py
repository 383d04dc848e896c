"""Client credentials for an API server: static ones, rotated files, and exec plugins.

`current()` is called before every request and is cheap. The client awaits `renew()` when `current()`
returns None or the server answers 401.
"""

import asyncio
import base64
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject, TimeError
from holdfast.api.meta import Struct
from holdfast.api.times import parse_time
from holdfast.kube.errors import CredentialsError

_LOOK_AGAIN = 60.0
"""Seconds after which a credential file is read again."""


class ClientIdentity(NamedTuple):
    authorization: str = ""
    """The header's value."""
    certificate: bytes = b""
    key: bytes = b""
    """Certificate and key in PEM, for TLS."""


_ANONYMOUS = ClientIdentity()


class Credentials:
    """Credentials that never change. The base of the others."""

    def __init__(self, identity: ClientIdentity) -> None:
        self._identity: ClientIdentity | None = identity

    def current(self) -> ClientIdentity | None:
        return self._identity

    async def renew(self) -> ClientIdentity:
        """Reads or obtains new credentials. Raises CredentialsError."""
        assert self._identity is not None
        return self._identity

    @property
    def may_change(self) -> bool:
        """Whether renewing can help after a 401."""
        return False


class Anonymous(Credentials):
    def __init__(self) -> None:
        super().__init__(_ANONYMOUS)


class FileCredentials(Credentials):
    """A token or a client certificate in files that are rotated from outside."""

    def __init__(
        self,
        token: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        rest: ClientIdentity = _ANONYMOUS,
    ) -> None:
        self._rest = rest
        """The credentials that do not come from files."""
        self._token = token
        self._certificate = certificate
        self._key = key
        self._identity = None
        self._read_at = 0.0

    @property
    def may_change(self) -> bool:
        return True

    def current(self) -> ClientIdentity | None:
        fresh = time.monotonic() - self._read_at < _LOOK_AGAIN
        return self._identity if fresh else None

    async def renew(self) -> ClientIdentity:
        try:
            token = _read(self._token).decode("ascii").strip() if self._token else ""
            rest = self._rest
            certificate = _read(self._certificate) if self._certificate else rest.certificate
            key = _read(self._key) if self._key else rest.key
            if self._token and not token:
                raise CredentialsError(f"{self._token}: the token file is empty")
        except (CredentialsError, UnicodeDecodeError) as error:
            # A file that is being replaced may be gone for a moment: the old token is used until
            # the server rejects it.
            if self._identity is None:
                if isinstance(error, CredentialsError):
                    raise
                raise CredentialsError(f"{self._token}: not a token") from None
        else:
            self._identity = ClientIdentity(
                bearer(token) if token else rest.authorization, certificate, key
            )
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


GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
_PATIENCE = 60.0
"""How long the program may take, in seconds."""


class ExecStatus(Struct):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class ExecCredential(Struct):
    api_version: str = ""
    kind: str = ""
    status: ExecStatus | None = None


class ExecPlugin:
    """The `exec` section of a kubeconfig user."""

    def __init__(
        self,
        api_version: str,
        command: str,
        args: list[str],
        env: Mapping[str, str],
        interactive_mode: str,
        install_hint: str = "",
        cluster: Mapping[str, Any] | None = None,
    ) -> None:
        self.api_version = api_version
        self.command = command
        self.args = args
        self.env = env
        self.interactive_mode = interactive_mode
        self.install_hint = install_hint
        self.cluster = cluster
        """The cluster info, if the plugin asks for it."""


class ExecCredentials(Credentials):
    """Credentials from an exec plugin, by the protocol of `client.authentication.k8s.io`.

    The plugin gets an ExecCredential in the environment variable KUBERNETES_EXEC_INFO and prints one
    with a status. The result is cached until it expires or the server rejects it.
    """

    def __init__(self, plugin: ExecPlugin, rest: ClientIdentity) -> None:
        self._plugin = plugin
        self._rest = rest
        """A certificate the kubeconfig has besides."""
        self._identity = None
        self._expires: float | None = None
        self._running: asyncio.Task[ClientIdentity] | None = None

    @property
    def may_change(self) -> bool:
        return True

    def current(self) -> ClientIdentity | None:
        if self._expires is not None and time.time() >= self._expires:
            return None
        return self._identity

    async def renew(self) -> ClientIdentity:
        """Concurrent requests share one run of the program."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._ask())
        return await asyncio.shield(self._running)

    async def _ask(self) -> ClientIdentity:
        status = await self._run()
        rest = self._rest
        self._identity = ClientIdentity(
            bearer(status.token) if status.token else rest.authorization,
            status.client_certificate_data.encode() or rest.certificate,
            status.client_key_data.encode() or rest.key,
        )
        self._expires = self._expiry(status)
        return self._identity

    async def _run(self) -> ExecStatus:
        plugin = self._plugin
        interactive = self._is_interactive()
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                env={**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": self._info(interactive)},
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"\n{plugin.install_hint}" if plugin.install_hint else ""
            raise CredentialsError(
                f"exec plugin {plugin.command!r}: {error.strerror or error}{hint}"
            ) from None
        try:
            out, complaints = await asyncio.wait_for(process.communicate(), _PATIENCE)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise CredentialsError(
                f"exec plugin {plugin.command!r}: no output within {_PATIENCE:g} s"
            ) from None
        if process.returncode:
            last = complaints.decode(errors="replace").strip().splitlines()[-1:] or [""]
            raise CredentialsError(
                f"exec plugin {plugin.command!r}: exit status {process.returncode}: {last[0]}"
            )
        return self._read(out)

    def _read(self, out: bytes) -> ExecStatus:
        name = f"exec plugin {self._plugin.command!r}"
        try:
            answer = convert(msgspec.json.decode(out), ExecCredential)
        except msgspec.DecodeError:
            raise CredentialsError(f"{name}: its output is not JSON") from None
        except InvalidObject as error:
            raise CredentialsError(f"{name}: its output's {error}") from None
        if answer.kind != "ExecCredential" or answer.api_version != self._plugin.api_version:
            raise CredentialsError(
                f"{name}: expected an ExecCredential of {self._plugin.api_version}, "
                f"got {answer.kind or 'nothing'} of {answer.api_version or 'no apiVersion'}"
            )
        status = answer.status
        if status is None or not (status.token or status.client_certificate_data):
            raise CredentialsError(f"{name}: its output has neither a token nor a certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise CredentialsError(f"{name}: a certificate and its key must be given together")
        return status

    def _expiry(self, status: ExecStatus) -> float | None:
        if not status.expiration_timestamp:
            return None
        try:
            return parse_time(status.expiration_timestamp)
        except TimeError as error:
            raise CredentialsError(
                f"exec plugin {self._plugin.command!r}: status.expirationTimestamp: {error}"
            ) from None

    def _is_interactive(self) -> bool:
        mode = self._plugin.interactive_mode
        terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if mode == "Always" and not terminal:
            raise CredentialsError(
                f"exec plugin {self._plugin.command!r} requires a terminal (interactiveMode: Always), "
                "but there is no terminal"
            )
        return terminal and mode != "Never"

    def _info(self, interactive: bool) -> str:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._plugin.cluster is not None:
            spec["cluster"] = self._plugin.cluster
        info = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(info).decode()


def command_path(command: str, folder: Path) -> str:
    """Resolves a command that contains a slash relative to the kubeconfig's folder."""
    return str(folder / command) if os.sep in command and not Path(command).is_absolute() else command
