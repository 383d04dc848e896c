"""An event loop whose clock jumps: to wait costs nothing, and everything happens in the same order.

For what stays inside one process. When nothing is left to do, time moves to the next timer at once;
when there is no timer either, the test cannot go on, and fails with that message.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.kube.flow_control import Clock

T = TypeVar("T")
START = 1_767_225_600.0


class _JumpingSelector:
    def __init__(self, loop: VirtualLoop) -> None:
        self._real = selectors.DefaultSelector()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("everything waits and nothing will ever happen")
        self._loop.virtual += timeout
        return ready

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual = 0.0
        selector: Any = _JumpingSelector(self)
        super().__init__(selector)

    def time(self) -> float:
        return self.virtual


class LoopClock(Clock):
    """The loop's time, from some day on."""

    def __init__(self) -> None:
        pass

    def elapsed(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> float:
        return START + self.elapsed()

    def wall(self) -> float:
        return self.now()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs it in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def until(condition: Callable[[], object], within: float = 3600.0) -> None:
    """Returns when it is so."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within
    while not condition():
        assert loop.time() < end, "it did not come true"
        await asyncio.sleep(0.01)
