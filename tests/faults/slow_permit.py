"""A plugin that makes pods wait in Permit: those with its label are permitted after some calls."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.plugin import FINE, Change, Handle, Outcome, Plugin, PodRecord

QUESTIONS = "example.com/permitted-after"
"""The label with the number of calls after which the pod is permitted."""
_PATIENCE = 3.0
"""Seconds after which a pod that waits is rejected."""


class SlowPermit(Plugin):
    name = "SlowPermit"
    wakes_on = Change.ANY_NODE | Change.ANY_POD

    def __init__(self, handle: Handle, args: Mapping[str, Any]) -> None:
        super().__init__(handle, args)
        self._asked: Counter[str] = Counter()

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        left = int(pod.cls.labels.get(QUESTIONS, "0"))
        if self._asked[pod.uid] >= left:
            return FINE
        self._asked[pod.uid] += 1
        return Outcome(wait=_PATIENCE)
