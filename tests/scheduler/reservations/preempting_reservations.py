"""Reservations of more and of less importance, for tests of those that make others go."""

from typing import Any

from harness.objects import Raw, reservation
from harness.world import World

PRIORITY = "koordinator.sh/priority"
CAN_PREEMPT = "scheduling.koordinator.sh/can-preempt"
SOFT = "scheduling.koordinator.sh/soft-eviction"
GANG = "gang.scheduling.koordinator.sh/"
SOFT_MODE = {"eviction": "Soft"}
SOFT_EVICTOR = {"eviction": "Soft", "softEvictor": True}
TRIO = {"name": "trio", "min-available": 3, "total-number": 3}


def rsv(name: str, priority: int | str | None, cpu: str = "4", can: str = "", **more: Any) -> Raw:
    labels = {**more.pop("labels", {})}
    if priority is not None:
        labels[PRIORITY] = str(priority)
    if can:
        labels[CAN_PREEMPT] = can
    once = more.pop("allocateOnce", False)
    app = more.pop("app", name)
    return reservation(
        name, app=app, cpu=cpu, labels=labels, allocateOnce=once, allocatePolicy="Aligned", **more
    )


def low(name: str = "low", priority: int | str | None = 1, **more: Any) -> Raw:
    return rsv(name, priority, **more)


def high(name: str = "high", priority: int | str | None = 10, **more: Any) -> Raw:
    return rsv(name, priority, can=more.pop("can", "true"), **more)


def member(name: str, gang: Raw, **more: Any) -> Raw:
    return high(name, annotations={f"{GANG}{key}": str(value) for key, value in gang.items()}, **more)


def names(world: World, kind: str = "Reservation") -> list[str]:
    return sorted(name for each, name in world.objects if each == kind)


def budget(allowed: int, app: str) -> Raw:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"for-{app}", "namespace": "default", "uid": f"pdb-{app}"},
        "spec": {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed, "expectedPods": 1, "currentHealthy": 1},
    }
