"""What an API server does not let an update change in a pod."""

from collections.abc import Iterator
from typing import Any

from holdfast.api.errors import InvalidObject
from holdfast.api.quantity import parse
from holdfast.store.objects import Raw

_CONTAINERS = ("containers", "initContainers")
_RESOURCES = "a pod's resources cannot be changed by an update"


def refused_changes(live: Raw, changed: Raw) -> Iterator[InvalidObject]:
    """Of two valid versions of a pod, what may not differ as it does."""
    before, after = live["spec"], changed["spec"]
    for field in _CONTAINERS:
        known = {each["name"]: each for each in before.get(field) or []}
        for i, container in enumerate(after.get(field) or []):
            old = known.pop(container["name"], None)
            if old is None:
                message = "containers cannot be added to a pod by an update"
                yield InvalidObject("", f"spec.{field}[{i}]", message)
            elif _amounts(old) != _amounts(container):
                yield InvalidObject("", f"spec.{field}[{i}].resources", _RESOURCES)
        for name in known:
            message = f"containers cannot be taken from a pod by an update: {name}"
            yield InvalidObject("", f"spec.{field}", message)
    if _amounts(before) != _amounts(after):
        yield InvalidObject("", "spec.resources", _RESOURCES)
    gates = _names(before.get("schedulingGates"))
    for i, gate in enumerate(after.get("schedulingGates") or []):
        if gate.get("name") not in gates:
            message = f"{gate.get('name')}: gates can only be removed by an update, not added"
            yield InvalidObject("", f"spec.schedulingGates[{i}]", message)
    if after.get("nodeName") and not before.get("nodeName"):
        message = "cannot be set by an update: a pod gets its node from the scheduler, by a Binding"
        yield InvalidObject("", "spec.nodeName", message)
    kept = after.get("tolerations") or []
    for toleration in before.get("tolerations") or []:
        if toleration not in kept:
            message = "tolerations can only be added by an update, not removed or changed"
            yield InvalidObject("", "spec.tolerations", message)


def _amounts(part_of_pod: Raw) -> dict[tuple[str, str], int]:
    """Quantities by what they are worth, so that `1` and `1000m` are the same."""
    resources = part_of_pod.get("resources") or {}
    return {
        (part, name): parse(quantity)
        for part in ("requests", "limits")
        for name, quantity in (resources.get(part) or {}).items()
    }


def _names(items: list[Any] | None) -> set[Any]:
    return {each.get("name") for each in items or []}
