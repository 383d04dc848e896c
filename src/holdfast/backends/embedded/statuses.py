"""What a kubelet reports of a pod."""

import re
from collections.abc import Callable
from typing import Protocol

from holdfast.backends.embedded.objects import with_condition
from holdfast.backends.embedded.telling import SUCCEEDED
from holdfast.store.objects import Raw

_RUNS = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
_STOPS = ("Ready", "ContainersReady")
_ADDRESS = re.compile(r"10\.(\d+)\.(\d+)\.(\d+)")


class Reports(Protocol):
    def running(self, pod: Raw, now: str) -> Raw:
        """The status of a pod that has just started."""

    def adopt(self, pod: Raw) -> None:
        """The pod was there before."""

    def ended(self, pod: Raw, phase: str, now: str) -> Raw:
        """The status of a pod that has just come to its end."""


class BareReports:
    """Phase and conditions, which is what scheduling reads."""

    def adopt(self, pod: Raw) -> None:
        pass

    def running(self, pod: Raw, now: str) -> Raw:
        status = {**pod["status"], "phase": "Running", "startTime": now}
        conditions = [*(status.get("conditions") or [])]
        known = {condition.get("type") for condition in conditions}
        for type_ in _RUNS:
            if type_ in known:
                conditions = with_condition(conditions, {"type": type_, "status": "True"}, now)
            else:
                conditions.append({"type": type_, "status": "True", "lastTransitionTime": now})
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


class FullReports:
    """Containers and addresses too, for readers of a cluster that is there. `host` says the address of
    a node."""

    def __init__(self, host: Callable[[str], str]) -> None:
        self._bare = BareReports()
        self._host = host
        self._addresses = 0

    def running(self, pod: Raw, now: str) -> Raw:
        spec, status = pod["spec"], self._bare.running(pod, now)
        host = self._host(spec.get("nodeName") or "")
        address = host if spec.get("hostNetwork") else self._next_address()
        status["hostIP"], status["hostIPs"] = host, [{"ip": host}]
        status["podIP"], status["podIPs"] = address, [{"ip": address}]
        running = {"running": {"startedAt": now}}
        status["containerStatuses"] = [_container(each, running) for each in spec["containers"]]
        if spec.get("initContainers"):
            done = {"terminated": _terminated(0, "Completed", now, now)}
            status["initContainerStatuses"] = [
                _container(each, running if each.get("restartPolicy") == "Always" else done)
                for each in spec["initContainers"]
            ]
        return status

    def ended(self, pod: Raw, phase: str, now: str) -> Raw:
        status = self._bare.ended(pod, phase, now)
        well = phase == SUCCEEDED
        for field in ("containerStatuses", "initContainerStatuses"):
            if status.get(field):
                status[field] = [_stopped(each, well, now) for each in status[field]]
        return status

    def adopt(self, pod: Raw) -> None:
        """No other pod is given its address."""
        text = (pod.get("status") or {}).get("podIP") or ""
        match = _ADDRESS.fullmatch(text)
        if match is not None:
            first, second, third = map(int, match.groups())
            self._addresses = max(self._addresses, (first - 128 << 16) + (second << 8) + third)

    def _next_address(self) -> str:
        self._addresses += 1
        number = self._addresses
        return f"10.{128 + (number >> 16) % 128}.{(number >> 8) & 255}.{number & 255}"


def _container(container: Raw, state: Raw) -> Raw:
    runs = "running" in state
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": image,
        "state": state,
        "lastState": {},
        "ready": True,
        "started": runs,
        "restartCount": 0,
    }


def _stopped(status: Raw, well: bool, now: str) -> Raw:
    running = (status.get("state") or {}).get("running")
    if running is None:
        return status
    code, reason = (0, "Completed") if well else (137, "Error")
    terminated = _terminated(code, reason, running.get("startedAt", now), now)
    return {**status, "state": {"terminated": terminated}, "ready": False, "started": False}


def _terminated(code: int, reason: str, since: str, until: str) -> Raw:
    return {"exitCode": code, "reason": reason, "startedAt": since, "finishedAt": until}
