"""What a kubelet reports of a pod."""

from typing import Protocol

from holdfast.backends.embedded.objects import with_condition
from holdfast.backends.embedded.telling import SUCCEEDED
from holdfast.store.objects import Raw

_RUNS = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
_STOPS = ("Ready", "ContainersReady")


class Reports(Protocol):
    def running(self, pod: Raw, now: str) -> Raw:
        """The status of a pod that has just started."""

    def ended(self, pod: Raw, phase: str, now: str) -> Raw:
        """The status of a pod that has just come to its end."""


class BareReports:
    """Phase and conditions, which is what scheduling reads."""

    def running(self, pod: Raw, now: str) -> Raw:
        status = {**pod["status"], "phase": "Running", "startTime": now}
        conditions = status.get("conditions") or []
        for type_ in _RUNS:
            conditions = with_condition(conditions, {"type": type_, "status": "True"}, now)
        status["conditions"] = conditions
        return status

    def ended(self, pod: Raw, phase: str, now: str) -> Raw:
        status = {**pod["status"], "phase": phase}
        conditions = status.get("conditions") or []
        reason = "PodCompleted" if phase == SUCCEEDED else "PodFailed"
        for type_ in _STOPS:
            condition = {"type": type_, "status": "False", "reason": reason}
            conditions = with_condition(conditions, condition, now)
        status["conditions"] = conditions
        return status
