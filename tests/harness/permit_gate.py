"""A plugin that makes pods wait in Permit until a test opens it."""

from collections.abc import Mapping
from typing import Any

from holdfast.plugin import FINE, Handle, Outcome, Plugin, PodRecord


class Gate(Plugin):
    """Makes pods wait in Permit until it is open, except preemption holds and those called free-…"""

    name = "Gate"

    def __init__(self, handle: Handle, args: Mapping[str, Any]) -> None:
        super().__init__(handle, args)
        self.is_open = False
        self.held: set[str] = set()

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self.held.add(pod.name)
        return FINE

    def unreserve(self, pod: PodRecord, row: int) -> None:
        self.held.remove(pod.name)

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        is_free = pod.name.startswith(("free-", "preempted-for-"))
        return FINE if self.is_open or is_free else Outcome(wait=3600.0)
