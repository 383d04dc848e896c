"""Who lives in a cluster besides the scheduler."""

from typing import Protocol

from holdfast.store.objects import Change


class Resident(Protocol):
    def changed(self, change: Change) -> None:
        """Takes note of a change; writes nothing."""

    def settle(self) -> None:
        """Does what there is to do by now. What must wait goes on the agenda."""
