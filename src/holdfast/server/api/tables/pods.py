"""A pod in one line: how many of its containers are ready, and what the matter is with the rest."""

from typing import Any

from holdfast.api.timestamps import parse_time
from holdfast.server.api.tables.columns import (
    AGE,
    NAME,
    NONE,
    Column,
    Printer,
    age,
    condition,
    is_true,
    since,
    wide,
)
from holdfast.store import Raw

_ENDED = ("Succeeded", "Failed")


class _Restarts:
    def __init__(self) -> None:
        self.count = 0
        self.last: str | None = None

    def add(self, status: Raw) -> None:
        self.count += status.get("restartCount", 0)
        ended = ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
        if ended and (self.last is None or parse_time(ended) > parse_time(self.last)):
            self.last = ended

    def text(self, now: float) -> str:
        if self.count and self.last:
            return f"{self.count} ({since(self.last, now)} ago)"
        return str(self.count)


def _cells(pod: Raw, now: float) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {each.get("name") for each in spec.get("initContainers") or [] if _restarts_always(each)}
    reason, ready, restarts = _reason(pod, spec, status, sidecars)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in _ENDED:
            reason = "Terminating"
    total = len(spec.get("containers") or []) + len(sidecars)
    addresses = [each["ip"] for each in status.get("podIPs") or [] if each.get("ip")]
    return [
        pod["metadata"]["name"],
        f"{ready}/{total}",
        reason,
        restarts.text(now),
        age(pod, now),
        addresses[0] if addresses else status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(pod, spec.get("readinessGates") or []),
    ]


def _reason(pod: Raw, spec: Raw, status: Raw, sidecars: set[str | None]) -> tuple[str, int, _Restarts]:
    reason = status.get("reason") or status.get("phase") or ""
    scheduled = condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    ready = 0
    restarts, of_sidecars = _Restarts(), _Restarts()
    initializing = False
    for i, each in enumerate(status.get("initContainerStatuses") or []):
        restarts.add(each)
        is_sidecar = each.get("name") in sidecars
        if is_sidecar:
            of_sidecars.add(each)
        state = each.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if is_sidecar and each.get("started"):
            ready += bool(each.get("ready"))
            continue
        if ended is not None:
            reason = f"Init:{_end(ended)}"
        elif waiting.get("reason") not in (None, "", "PodInitializing"):
            reason = f"Init:{waiting['reason']}"
        else:
            reason = f"Init:{i}/{len(spec.get('initContainers') or [])}"
        initializing = True
        break
    if initializing and not is_true(pod, "Initialized"):
        return reason, ready, restarts
    restarts = of_sidecars
    running = False
    for each in reversed(status.get("containerStatuses") or []):
        restarts.add(each)
        state = each.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = _end(ended)
        elif each.get("ready") and state.get("running") is not None:
            running = True
            ready += 1
    if reason == "Completed" and running:
        reason = "Running" if is_true(pod, "Ready") else "NotReady"
    return reason, ready, restarts


def _restarts_always(container: Raw) -> bool:
    return container.get("restartPolicy") == "Always"


def _end(terminated: Raw) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _gates(pod: Raw, gates: list[Raw]) -> str:
    if not gates:
        return NONE
    return f"{sum(is_true(pod, each.get('conditionType', '')) for each in gates)}/{len(gates)}"


def row_conditions(pod: Raw) -> list[Raw]:
    """By which kubectl can tell pods that are done from those that are not."""
    phase = (pod.get("status") or {}).get("phase")
    if phase not in _ENDED:
        return []
    how = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
    return [{"type": "Completed", "status": "True", "reason": phase, "message": how}]


PODS = Printer(
    (
        NAME,
        Column("Ready", description="Containers that are ready, of all."),
        Column("Status", description="The phase, or what keeps the containers from running."),
        Column("Restarts", description="How often containers were restarted, and when last."),
        AGE,
        wide("IP", description="The pod's address."),
        wide("Node", description="The node the pod is bound to."),
        wide("Nominated Node", description="The node room is being made on by preemption."),
        wide("Readiness Gates", description="Readiness gates that are true, of all."),
    ),
    _cells,
)
