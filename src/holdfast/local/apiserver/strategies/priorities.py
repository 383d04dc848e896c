"""Priority classes, and the priority admission gives pods from them."""

from __future__ import annotations

from holdfast.api import names
from holdfast.local.apiserver import field_errors as fields
from holdfast.local.apiserver.api_state import Call
from holdfast.local.apiserver.status import Resource, forbidden
from holdfast.local.apiserver.strategies.strategy import Strategy, all_but_metadata
from holdfast.local.store import Key, Raw
from holdfast.machinery.schema import FieldError

GROUP = "scheduling.k8s.io"
_PODS = Resource("", "pods")
_LOWER = "PreemptLowerPriority"
SYSTEM_CLASSES = {
    names.SYSTEM_CLUSTER_CRITICAL: (
        2_000_000_000,
        "For pods the cluster cannot do without, though they may move to another node.",
    ),
    names.SYSTEM_NODE_CRITICAL: (
        2_000_001_000,
        "For pods their node cannot do without, and that must stay there.",
    ),
}


def give_priority(call: Call, spec: Raw) -> None:
    """Raises ApiError 403, as Kubernetes' admission words it."""
    name = spec.get("priorityClassName")
    store = call.cluster.store
    chosen: Raw | None
    if name:
        chosen = store.get(Key(GROUP, "PriorityClass", "", name))
        if chosen is None and name not in SYSTEM_CLASSES:
            raise forbidden(_PODS, call.name, f"no PriorityClass with name {name} was found")
    else:
        chosen = _default(call)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    if chosen is not None:
        priority, policy = int(chosen.get("value", 0)), chosen.get("preemptionPolicy") or _LOWER
    else:
        priority, policy = SYSTEM_CLASSES[name][0] if name else 0, _LOWER
    given = spec.get("priority")
    if given is not None and given != priority:
        raise forbidden(
            _PODS,
            call.name,
            f"the integer value of priority ({given}) must not be provided in pod spec; priority "
            f"admission controller computed {priority} from the given PriorityClass name",
        )
    asked = spec.get("preemptionPolicy")
    if asked is not None and asked != policy:
        raise forbidden(
            _PODS,
            call.name,
            f"the string value of PreemptionPolicy ({asked}) must not be provided in pod spec; "
            "priority "
            f"admission controller computed {policy} from the given PriorityClass name",
        )
    spec["priority"] = priority
    spec["preemptionPolicy"] = policy


def _default(call: Call) -> Raw | None:
    """Of several defaults the lowest counts."""
    classes = [
        each for each in call.cluster.store.scan(GROUP, "PriorityClass") if each.get("globalDefault")
    ]
    return min(classes, key=lambda each: int(each.get("value", 0)), default=None)


def _new(call: Call, raw: Raw) -> Raw:
    if raw.get("globalDefault"):
        other = _default(call)
        if other is not None:
            raise forbidden(
                call.resource,
                call.name,
                f"PriorityClass {other['metadata']['name']} is already marked as default. Only one "
                "default "
                "can exist",
            )
    return raw


def _check_new(call: Call, raw: Raw) -> list[FieldError]:
    name = raw["metadata"]["name"]
    if name.startswith("system-") and (
        name not in SYSTEM_CLASSES or raw.get("value") != SYSTEM_CLASSES[name][0]
    ):
        why = "priority class names with 'system-' prefix are reserved for system use only. error: "
        return [fields.forbidden("metadata.name", f"{why}{name} is not a known system priority class")]
    return []


def _check_changed(call: Call, before: Raw, after: Raw) -> list[FieldError]:
    found = []
    if after.get("value") != before.get("value"):
        found.append(fields.forbidden("value", "may not be changed in an update."))
    if (after.get("preemptionPolicy") or _LOWER) != (before.get("preemptionPolicy") or _LOWER):
        value = after.get("preemptionPolicy")
        found.append(fields.invalid("preemptionPolicy", value, "field is immutable"))
    return found


PRIORITY_CLASS = Strategy(
    wish=all_but_metadata, new=_new, check_new=_check_new, check_changed=_check_changed
)
