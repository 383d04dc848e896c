"""What a chapter uses: commands that are printed and carried out, and checks of what came of them.

What is printed as a kubectl command is done with the same requests by the client of this process, so
that the demo needs no kubectl. `holdfast` commands are run as they are printed.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml
from rich.console import Console
from rich.text import Text

from holdfast.api.errors import HoldfastError
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.cli.client import NODE, POD, RESERVATION, Raw, Server
from holdfast.cli.demo.objects import Manifests
from holdfast.cli.demo.site import Site
from holdfast.kube.client import MERGE, Client, Request, path_of
from holdfast.kube.errors import ApiError, KubernetesError

DEPLOYMENT = KINDS["apps/v1", "Deployment"]
_FIRST_LOOK, _LAST_LOOK = 0.1, 1.0
"""Seconds between two looks at a cluster, growing from the first to the second."""
_CLEANUP = 30.0


class Skipped(HoldfastError):
    """The chapter cannot be shown on this cluster; the message says why."""


class CheckFailed(HoldfastError):
    """One line per fact: what was expected, what was seen, and events."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = list(lines)


class Seen(NamedTuple):
    """A look at the cluster."""

    fits: bool
    text: str
    """What was seen, for a check that fails."""


Look = Callable[[], Awaitable[Seen]]
Ref = tuple[KindInfo, str]


class DemoCluster(NamedTuple):
    """The cluster that commands are typed against."""

    kubeconfig: str
    context: str
    namespace: str
    """Of the demo's own."""
    prefix: str
    """Of names of objects that are in no namespace."""


class Stage:
    def __init__(
        self,
        client: Client,
        site: Site,
        manifests: Manifests,
        target: DemoCluster,
        folder: Path,
        console: Console,
        patience: float,
    ) -> None:
        self.site = site
        self.manifests = manifests
        self.namespace = target.namespace
        self.client = client
        self.server = Server(client, target.namespace)
        self._target = target
        self._folder = folder
        self._console = console
        self._patience = patience
        self._made: list[Ref] = []
        self._undo: list[Request] = []

    # Text

    def heading(self, number: int, title: str) -> None:
        self._console.print(f"\n{number}. {title}", style="bold cyan", soft_wrap=True)

    def explain(self, text: str) -> None:
        self._console.print(f"   {text}", soft_wrap=True)

    def note(self, text: str) -> None:
        self._console.print(f"   {text}", style="yellow", soft_wrap=True)

    def _command(self, text: str, comment: str = "") -> None:
        comment = f"    # {comment}" if comment else ""
        self._console.print(Text.assemble((f"   $ {text}", "bold"), (comment, "dim")), soft_wrap=True)

    def _output(self, text: str) -> None:
        for line in text.splitlines():
            self._console.print(f"     {line}".rstrip(), style="dim", soft_wrap=True)

    def name(self, name: str) -> str:
        """The name of an object that is in no namespace."""
        return self._target.prefix + name

    # Commands

    async def apply(
        self, file: str, *objects: Raw, comment: str = "", excerpt: Raw | None = None
    ) -> None:
        text = yaml.safe_dump_all(objects, sort_keys=False, default_flow_style=None, width=100)
        (self._folder / file).write_text(text)
        self._command(f"kubectl apply -f {file}", comment)
        if excerpt is not None:
            self._output(yaml.safe_dump(excerpt, sort_keys=False, default_flow_style=None, width=90))
        for raw in objects:
            info = KINDS[raw["apiVersion"], raw["kind"]]
            self._made.append((info, raw["metadata"]["name"]))
            await self.server.create(info, raw, self._namespace_of(info))

    async def scale(self, deployment: str, replicas: int) -> None:
        self._command(
            f"kubectl scale deployment {deployment} --replicas {replicas} -n {self.namespace}"
        )
        path = path_of(DEPLOYMENT, self.namespace, deployment)
        await self._patch(path, {"spec": {"replicas": replicas}})

    async def delete_pods(self, names: Sequence[str], comment: str = "") -> None:
        self._command(f"kubectl delete pod {' '.join(names)} -n {self.namespace}", comment)
        for name in names:
            await self._delete((POD, name))

    async def annotate_node(self, node: str, key: str, value: str) -> None:
        self._command(f"kubectl annotate node {node} {key}={shlex.quote(value)}")
        path = path_of(NODE, "", node)
        removed = {"metadata": {"annotations": {key: None}}}
        self._undo.append(Request("PATCH", path, msgspec.json.encode(removed), MERGE))
        await self._patch(path, {"metadata": {"annotations": {key: value}}})

    async def holdfast(self, *words: str, shown: bool = True, comment: str = "") -> str:
        """Runs the command and returns what it printed. Raises CheckFailed if it fails."""
        self._command(f"holdfast {shlex.join(words)}", comment)
        context = ["--context", self._target.context] if self._target.context else []
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "holdfast", *words, *context),
            env=os.environ | {"KUBECONFIG": self._target.kubeconfig, "COLUMNS": "120"},
            stdout=PIPE,
            stderr=PIPE,
        )
        out, err = (part.decode() for part in await process.communicate())
        if shown:
            self._output(out)
        if process.returncode:
            if "(Forbidden)" in err:
                raise Skipped(f"no permission: {err.strip()}")
            lines = [f"expected: `holdfast {shlex.join(words)}` succeeds", "seen:", *err.splitlines()]
            raise CheckFailed(lines)
        return out

    # Reads

    async def pods(self) -> dict[str, Raw]:
        """The pods of the demo, by name."""
        found, _ = await self.server.listed(POD, self.namespace)
        return {raw["metadata"]["name"]: raw for raw in found}

    async def reservations(self) -> dict[str, Raw]:
        """The reservations of the demo, by name. All are for pods in its namespace."""
        found, _ = await self.server.listed(RESERVATION)
        return {raw["metadata"]["name"]: raw for raw in found if self._is_for_own_pods(raw)}

    def _is_for_own_pods(self, reservation: Raw) -> bool:
        owners = reservation["spec"].get("owners") or ()
        return any((owner.get("object") or {}).get("namespace") == self.namespace for owner in owners)

    # Checks

    async def check(self, expected: str, look: Look, about: Sequence[Ref] = (), hint: str = "") -> None:
        """Looks until it is as expected, then prints that it is. Raises CheckFailed; `hint` is a likely
        cause."""
        deadline, pause = time.monotonic() + self._patience, _FIRST_LOOK
        while not (seen := await look()).fits:
            if time.monotonic() > deadline:
                lines = [f"expected: {expected}", f"seen: {seen.text}", f"after {self._patience:g}s"]
                hints = [f"hint: {hint}"] if hint else []
                raise CheckFailed([*lines, *await self._events(about), *hints])
            await asyncio.sleep(pause)
            pause = min(_LAST_LOOK, pause * 1.5)
        self._console.print(f"   ✓ {expected}", style="green", soft_wrap=True)

    async def _events(self, about: Sequence[Ref]) -> list[str]:
        lines: list[str] = []
        for info, name in about:
            lines.append(f"events of {info.kind} {name}:")
            try:
                raw = await self.server.get(info, name, self._namespace_of(info))
                found = await self.server.events(raw)
            except KubernetesError as error:
                lines.append(f"  {error}")
                continue
            lines += [f"  {each.get('reason')}: {each.get('message')}" for each in found] or ["  none"]
        return lines

    # Cleanup

    async def clear(self) -> None:
        """Deletes everything that chapters created, and waits until it is gone. Raises CheckFailed."""
        made, self._made = self._made, []
        undo, self._undo = self._undo, []
        for request in undo:
            await self._send_quietly(request)
        for ref in reversed(made):
            await self._delete(ref)
        deadline, pause = time.monotonic() + _CLEANUP, _FIRST_LOOK
        while (left := [*await self._left()]) and time.monotonic() < deadline:
            for ref in left:
                await self._delete(ref)
            await asyncio.sleep(pause)
            pause = min(_LAST_LOOK, pause * 1.5)
        if left:
            names = ", ".join(f"{info.kind} {name}" for info, name in left)
            raise CheckFailed(
                [f"expected: all that was deleted is gone after {_CLEANUP:g}s", f"seen: {names}"]
            )

    async def _left(self) -> list[Ref]:
        pods = [(POD, name) for name in await self.pods()]
        return [*pods, *((RESERVATION, name) for name in await self.reservations())]

    async def _delete(self, ref: Ref) -> None:
        info, name = ref
        path = path_of(info, self._namespace_of(info), name)
        await self._send_quietly(Request("DELETE", path, b'{"propagationPolicy":"Background"}'))

    async def _send_quietly(self, request: Request) -> None:
        try:
            await self.client.send(request)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def _patch(self, path: str, merge: Raw) -> None:
        await self.client.send(Request("PATCH", path, msgspec.json.encode(merge), MERGE))

    def _namespace_of(self, info: KindInfo) -> str:
        return self.namespace if info.namespaced else ""


async def remove(client: Client, info: KindInfo, name: str) -> None:
    """Deletes an object that is in no namespace. Errors are ignored: the caller checks what is left."""
    with suppress(KubernetesError):
        await client.send(Request("DELETE", path_of(info, "", name)))
