"""Who lives in a cluster besides the scheduler."""

from collections.abc import Callable, Iterator
from typing import Protocol

from holdfast.store.objects import Change

Work = Callable[[], None]
"""Takes long and writes nothing: to be called before the next step, where there are threads in one."""
Steps = Iterator[Work | None]
"""Each step is done when it is taken, or is work to be done."""


class Resident(Protocol):
    def changed(self, change: Change) -> None:
        """Takes note of a change; writes nothing."""

    def settle(self) -> Steps:
        """Does what there is to do by now, step by step. What must wait goes on the agenda.

        A step takes milliseconds. Between two steps requests are answered, so anything may change: what
        is gone through is a copy, and each object is read anew."""
