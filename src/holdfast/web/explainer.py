"""`holdfast explain` for the dashboard, in a child process.

The child reads the cluster through the API server and evaluates the plugins itself, so the scheduler
neither waits nor shares state with it. One child runs at a time; the same question asked by several
browsers is answered once, and an answer is good for some seconds.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.explanation.explained_kinds import EXPLAINED

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_MAX_NAME = 253
_FRESH = 5.0
"""Seconds for which an answer is given again."""
_PATIENCE = 60.0
_MAX_WAITING = 8
_MAX_ANSWER = 8 * 1024**2
_NICENESS = 10
_REFUSED = re.compile(r"^Error from server \((\w+)\): ", re.MULTILINE)
_STATUS_OF_REASON = {"NotFound": 404, "Forbidden": 403}
"""Other errors of the API server are 502: the browser did nothing wrong."""
_CGROUP = Path("/sys/fs/cgroup")

Json = dict[str, Any]


class Question(NamedTuple):
    kind: str
    namespace: str
    name: str

    @property
    def command(self) -> str:
        """What a user types to get the same answer."""
        where = f" -n {self.namespace}" if self.namespace else ""
        return f"holdfast explain {self.kind} {self.name}{where}"

    def is_valid(self) -> bool:
        return self.kind in EXPLAINED and all(
            len(name) <= _MAX_NAME and _NAME.fullmatch(name)
            for name in (self.name, self.namespace or "default")
        )


class ExplainAnswer(NamedTuple):
    status: int
    """The status of the HTTP response."""
    body: Json
    """{"explanation": what the command prints, "command": …} or {"error": why there is none}"""

    @classmethod
    def failed(cls, status: int, error: str) -> ExplainAnswer:
        return cls(status, {"error": error})


class Explainer:
    """`options` are those of the command that lead to the cluster: --kubeconfig, --config."""

    def __init__(
        self, options: Sequence[str] = (), program: Sequence[str] = (sys.executable, "-m", "holdfast")
    ) -> None:
        self._options = list(options)
        self._program = list(program)
        self._one = asyncio.Semaphore(1)
        self._asked: dict[Question, asyncio.Task[ExplainAnswer]] = {}
        self._answers: dict[Question, tuple[float, ExplainAnswer]] = {}

    async def explain(self, question: Question) -> ExplainAnswer:
        now = time.monotonic()
        self._answers = {
            each: answer for each, answer in self._answers.items() if now - answer[0] < _FRESH
        }
        if question in self._answers:
            return self._answers[question][1]
        task = self._asked.get(question)
        if task is None:
            if len(self._asked) >= _MAX_WAITING:
                error = f"too many explanations are under way; run `{question.command}`"
                return ExplainAnswer.failed(503, error)
            task = self._asked[question] = asyncio.create_task(self._answer(question))
            task.add_done_callback(lambda _: self._asked.pop(question, None))
        # A browser that goes away does not end what others wait for.
        return await asyncio.shield(task)

    async def close(self) -> None:
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, question: Question) -> ExplainAnswer:
        async with self._one:
            if lacking := lacking_memory():
                command = question.command
                return ExplainAnswer.failed(503, f"{lacking}; run `{command}` on another machine")
            answer = await self._run(question)
        self._answers[question] = time.monotonic(), answer
        return answer

    async def _run(self, question: Question) -> ExplainAnswer:
        command = [*self._program, "explain", "-o", "json", *self._options]
        if question.namespace:
            command += ["-n", question.namespace]
        command += ["--", question.kind, question.name]
        try:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_MAX_ANSWER,
            )
        except OSError as error:
            why = f"`{question.command}` cannot be run: {error.strerror or error}"
            return ExplainAnswer.failed(500, why)
        try:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, _NICENESS)
            async with asyncio.timeout(_PATIENCE):
                output, errors, _ = await asyncio.gather(
                    _read(child.stdout), _read(child.stderr), child.wait()
                )
        except TimeoutError:
            return ExplainAnswer.failed(504, f"`{question.command}` took longer than {_PATIENCE:g} s")
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if child.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            said = "\n".join(lines[-5:])
            return ExplainAnswer.failed(_status_of(said), said or f"`{question.command}` failed")
        try:
            found = msgspec.json.decode(output)
        except msgspec.DecodeError:
            why = f"`{question.command}` printed something other than JSON"
            return ExplainAnswer.failed(502, why)
        return ExplainAnswer(200, {"explanation": found, "command": question.command})


def _status_of(errors: str) -> int:
    """The status of what the API server refused, by the reason that the command prints."""
    refused = _REFUSED.search(errors)
    return _STATUS_OF_REASON.get(refused[1], 502) if refused is not None else 502


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """All of it, up to the limit; the rest is read and dropped, so that the child can end."""
    assert stream is not None
    found = bytearray()
    while chunk := await stream.read(65536):
        if len(found) < _MAX_ANSWER:
            found += chunk
    return bytes(found)


def lacking_memory(cgroup: Path = _CGROUP) -> str:
    """Why a second copy of the cluster's state could take the scheduler down with it; empty if it could
    not, or there is no limit."""
    try:
        most = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):
        return ""
    if not most.isdigit():
        return ""
    mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    left = int(most) - used
    if left >= mine:
        return ""
    return (
        f"explaining needs about {mine // 1024**2} MiB, and {max(left, 0) // 1024**2} MiB are left "
        "below the memory limit of this container"
    )
