"""Credentials made by another program, by the protocol of `client.authentication.k8s.io`.

The program gets an ExecCredential in the environment variable KUBERNETES_EXEC_INFO and prints one with
a status. What it gave is kept until it expires, or until the server refuses it.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject, TimeError
from holdfast.api.meta import Struct
from holdfast.api.timestamps import parse_time
from holdfast.backends.kubernetes.access.credentials import Credentials, Identity, bearer
from holdfast.backends.kubernetes.errors import CredentialsError

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
    """What a kubeconfig says about the program."""

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
        """Where the server is, if the program is to be told."""


class ExecCredentials(Credentials):
    def __init__(self, plugin: ExecPlugin, rest: Identity) -> None:
        self._plugin = plugin
        self._rest = rest
        """A certificate the kubeconfig has besides."""
        self._identity = None
        self._expires: float | None = None
        self._running: asyncio.Task[Identity] | None = None

    @property
    def may_change(self) -> bool:
        return True

    def current(self) -> Identity | None:
        if self._expires is not None and time.time() >= self._expires:
            return None
        return self._identity

    async def renew(self) -> Identity:
        """Many requests may ask at once; the program runs once for all of them."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._ask())
        return await asyncio.shield(self._running)

    async def _ask(self) -> Identity:
        status = await self._run()
        rest = self._rest
        self._identity = Identity(
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
                f"exec plugin {plugin.command!r}: no answer in {_PATIENCE:g} s"
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
            raise CredentialsError(f"{name}: its answer is not JSON") from None
        except InvalidObject as error:
            raise CredentialsError(f"{name}: its answer's {error}") from None
        if answer.kind != "ExecCredential" or answer.api_version != self._plugin.api_version:
            raise CredentialsError(
                f"{name}: expected an ExecCredential of {self._plugin.api_version}, "
                f"got {answer.kind or 'nothing'} of {answer.api_version or 'no apiVersion'}"
            )
        status = answer.status
        if status is None or not (status.token or status.client_certificate_data):
            raise CredentialsError(f"{name}: its answer has neither a token nor a certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise CredentialsError(f"{name}: a certificate and its key must come together")
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
                f"exec plugin {self._plugin.command!r} wants a terminal (interactiveMode: Always), "
                "and there is none"
            )
        return terminal and mode != "Never"

    def _info(self, interactive: bool) -> str:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._plugin.cluster is not None:
            spec["cluster"] = self._plugin.cluster
        info = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(info).decode()


def command_path(command: str, folder: Path) -> str:
    """A command with a slash in it is looked for from the kubeconfig's folder."""
    return str(folder / command) if os.sep in command and not Path(command).is_absolute() else command
