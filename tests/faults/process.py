"""Processes on virtual time: an event loop for each, all on one timeline.

Callbacks of all loops stand in one line, timers in one heap. When the line is empty, time moves to the
next timer. A process that is killed runs no further callback; one that is paused runs them when it is
resumed, late.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeVarTuple, Unpack

_Ts = TypeVarTuple("_Ts")

_MOST_CALLBACKS = 200_000
"""At one instant; more is an endless loop."""


class Endless(Exception):
    """Time does not move on."""


class Timeline:
    """What happens next, to whom."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._line: deque[tuple[ProcessLoop | None, Any]] = deque()
        self._timers: list[tuple[float, int, ProcessLoop | None, Any]] = []
        self._count = 0
        self._running: ProcessLoop | None = None

    def soon(self, loop: ProcessLoop | None, handle: Any) -> None:
        self._line.append((loop, handle))

    def at(self, when: float, loop: ProcessLoop | None, handle: Any) -> None:
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, loop, handle))

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        """For what is no process: the network, the server, users."""
        self.at(max(when, self.now), None, (callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        self.at(self.now + max(delay, 0.0), None, (callback, args))

    def run(self, until: float, done: Callable[[], bool] | None = None) -> bool:
        """Runs up to that moment, or until `done`; whether it was done."""
        try:
            while True:
                self._run_line()
                if done is not None and done():
                    return True
                if not self._timers or self._timers[0][0] > until:
                    self.now = max(self.now, until)
                    return False
                when, _, loop, handle = heapq.heappop(self._timers)
                if when > self.now:
                    self.now = when
                self._line.append((loop, handle))
                while self._timers and self._timers[0][0] <= self.now:
                    _, _, loop, handle = heapq.heappop(self._timers)
                    self._line.append((loop, handle))
        finally:
            self._enter(None)

    def clear(self) -> None:
        """Nothing of what was to happen will."""
        self._timers.clear()
        self.run_line(len(self._line))

    def run_line(self, most: int) -> None:
        """Runs what is ready now, at most so many callbacks; time stands still."""
        try:
            while self._line and most:
                most -= 1
                self._step()
        finally:
            self._enter(None)

    def _run_line(self) -> None:
        line, step = self._line, self._step
        last = self.steps + _MOST_CALLBACKS
        while line:
            step()
            if self.steps >= last:
                raise Endless(f"{_MOST_CALLBACKS} callbacks at {self.now:.3f} s, and no end")

    def _step(self) -> None:
        loop, handle = self._line.popleft()
        self.steps += 1
        if loop is None:
            if self._running is not None:
                self._enter(None)
            callback, args = handle
            callback(*args)
            return
        if handle._cancelled:
            return
        if loop.fuse and not loop.is_paused:
            loop.fuse -= 1
            if not loop.fuse:
                loop.burnt()
        if loop.is_dead or loop.is_paused:
            loop.undone.append(handle)
            return
        if loop is not self._running:
            self._enter(loop)
        try:
            handle._context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            loop.call_exception_handler({"exception": error})

    def _enter(self, loop: ProcessLoop | None) -> None:
        self._running = loop
        asyncio._set_running_loop(loop)


class _Handle(asyncio.Handle):
    """As asyncio's, less what is for debugging."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Any, context: Context | None) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._cancelled = False
        self._callback = callback
        self._args = args

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _ignore, ()


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()

    def __init__(
        self, when: float, callback: Any, args: Any, loop: Any, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._cancelled = False
        self._callback = callback
        self._args = args
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _ignore, ()


class ProcessLoop(asyncio.SelectorEventLoop):
    """The event loop of one scheduler process: no selector, no threads, no real signals."""

    def __init__(
        self, timeline: Timeline, name: str, connect: Callable[..., Awaitable[Any]], failed: Any
    ) -> None:
        self.timeline = timeline
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.fuse = 0
        """After so many further steps `burnt` is called instead of the next; 0 for never."""
        self.burnt: Callable[[], object] = self.kill
        self.signals: dict[int, Callable[[], object]] = {}
        self._connect = connect
        self._failed = failed
        self.undone: list[asyncio.Handle] = []
        """Steps that came due while it was paused, or after it was killed."""
        self.tasks: dict[asyncio.Task[Any], None] = {}

    # What asyncio asks of a loop

    def time(self) -> float:
        return self.timeline.now

    def call_soon(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self.timeline._line.append((self, handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.timeline.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when, callback, args, self, context)
        self.timeline.at(when, self, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Any = None) -> Any:
        task = asyncio.Task(coro, loop=self, context=context)
        self.tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)

    async def create_connection(self, *args: Any, **_: Any) -> Any:
        return await self._connect(self, args[0])

    def add_signal_handler(self, sig: int, callback: Callable[[Unpack[_Ts]], Any], *args: *_Ts) -> None:
        self.signals[sig] = partial(callback, *args)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return True  # there is nothing real to be closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self._failed(self, context.get("exception") or context.get("message"))

    # What happens to a process

    def start(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self.create_task(main)
        return task

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        for handle in self.undone:
            self.timeline.soon(self, handle)
        self.undone.clear()

    def kill(self) -> None:
        """No further step of it is made."""
        self.is_dead = True

    def bury(self) -> None:
        """Unwinds what a killed process left behind, so that nothing of it is found by the garbage
        collector. For the end of a life, when all processes are dead and nothing is heard any more."""
        self.is_dead, self.fuse, self._failed = False, 0, _ignore
        self.resume()
        for _ in range(20):
            self.timeline.run(self.timeline.now + 60.0)
            if not self.tasks:
                break
            for task in list(self.tasks):
                task.cancel()
        self.is_dead = True


def _ignore(*_: object) -> None:
    pass
