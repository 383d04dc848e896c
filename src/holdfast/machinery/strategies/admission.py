"""Admission of pods, as the API server's plugins do it: Priority, RuntimeClass, ServiceAccount,
DefaultTolerationSeconds; the QoS class; and the rules of PriorityClasses.
"""

from __future__ import annotations

import msgspec

from holdfast.api import names
from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject, MalformedText
from holdfast.api.memo import Memo
from holdfast.api.pod import Pod
from holdfast.api.raw_objects import Key, Raw
from holdfast.api.resources import amounts, qos_class
from holdfast.machinery.object_request import WriteRequest
from holdfast.machinery.schema import FieldError
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.status import Resource, forbidden
from holdfast.machinery.strategies.strategy import Strategy, all_but_metadata

GROUP = "scheduling.k8s.io"
_PODS = Resource("", "pods")
_TOLERATED_SECONDS = 300
_CONTAINERS = ("containers", "initContainers")
_LOWER = "PreemptLowerPriority"
_ACCOUNT = "default"
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


def apply_priority(request: WriteRequest, spec: Raw) -> None:
    """The admission plugin Priority. A restored pod may have a priority without a class, or of a class
    that is not here. Raises StatusError 403."""
    name, given = spec.get("priorityClassName"), spec.get("priority")
    found = class_priority(request, name, restored=given is not None)
    if found is None:
        spec.setdefault("preemptionPolicy", _LOWER)
        return
    chosen, priority, policy = found
    if chosen:
        spec["priorityClassName"] = chosen
    if given is not None and given != priority:
        raise forbidden(
            _PODS,
            request.name,
            f"the integer value of priority ({given}) must not be provided in pod spec; priority "
            f"admission controller computed {priority} from the given PriorityClass name",
        )
    asked = spec.get("preemptionPolicy")
    if asked is not None and asked != policy and (name or not request.restores):
        raise forbidden(
            _PODS,
            request.name,
            f"the string value of PreemptionPolicy ({asked}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name",
        )
    spec["priority"] = priority
    spec["preemptionPolicy"] = asked or policy


def class_priority(
    request: WriteRequest, name: str | None, restored: bool
) -> tuple[str, int, str] | None:
    """The name, priority and preemption policy of the PriorityClass of this name, or of the default
    class; None for an object with a priority that is `restored` without its class. Raises StatusError
    403."""
    chosen = request.store.get(Key(GROUP, "PriorityClass", "", name)) if name else _default(request)
    is_known = chosen is not None or name in SYSTEM_CLASSES
    if request.restores and restored and not (name and is_known):
        return None
    if name and not is_known:
        raise forbidden(request.resource, request.name, f"no PriorityClass with name {name} was found")
    if chosen is None:
        return name or "", SYSTEM_CLASSES[name][0] if name else 0, _LOWER
    policy = chosen.get("preemptionPolicy") or _LOWER
    return chosen["metadata"]["name"], int(chosen.get("value", 0)), policy


def _default(request: WriteRequest) -> Raw | None:
    """The default class; of several, the one with the lowest value."""
    classes = [each for each in request.store.scan(GROUP, "PriorityClass") if each.get("globalDefault")]
    return min(classes, key=lambda each: int(each.get("value", 0)), default=None)


def apply_runtime_class(request: WriteRequest, spec: Raw) -> None:
    """The admission plugin RuntimeClass: overhead, node selector and tolerations of the pod's class.
    The class of a restored pod may be missing. Raises StatusError 403."""
    name = spec.get("runtimeClassName")
    if not name:
        return
    chosen = request.store.get(Key("node.k8s.io", "RuntimeClass", "", name))
    if chosen is None:
        if request.restores:
            return
        raise forbidden(_PODS, request.name, f'pod rejected: RuntimeClass "{name}" not found')
    try:
        merge_runtime_class(spec, chosen)
    except MalformedText:
        return  # what cannot be read is refused by validation, in its own words
    except InvalidObject as error:
        raise forbidden(_PODS, request.name, error.message) from None


def merge_runtime_class(spec: Raw, runtime_class: Raw) -> None:
    """Overhead, node selector and tolerations, as the RuntimeClass admission plugin sets them. Raises
    InvalidObject with its message if the pod contradicts it."""
    overhead = (runtime_class.get("overhead") or {}).get("podFixed")
    if overhead:
        given = spec.get("overhead")
        if given and amounts(given) != amounts(overhead):
            message = "Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            raise InvalidObject("", "spec.overhead", f"pod rejected: {message}")
        spec["overhead"] = given or overhead
    scheduling = runtime_class.get("scheduling") or {}
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            message = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise InvalidObject("", "spec.nodeSelector", f"pod rejected: {message}")
    if selector:
        spec["nodeSelector"] = selector
    tolerations = [*(spec.get("tolerations") or [])]
    tolerations += [each for each in scheduling.get("tolerations") or [] if each not in tolerations]
    if tolerations:
        spec["tolerations"] = tolerations


def apply_service_account(request: WriteRequest, spec: Raw) -> None:
    """Of the admission plugin ServiceAccount: the account `default` of the namespace, if it exists and
    the pod names none. There are no tokens, so no volume is added."""
    if spec.get("serviceAccountName") or request.restores:
        return
    if request.store.get(Key("", "ServiceAccount", request.namespace, _ACCOUNT)) is not None:
        spec["serviceAccountName"] = spec["serviceAccount"] = _ACCOUNT


_DEFAULT_TOLERATIONS: list[Raw] = [
    {
        "key": key,
        "operator": "Exists",
        "effect": names.NO_EXECUTE,
        "tolerationSeconds": _TOLERATED_SECONDS,
    }
    for key in (names.TAINT_NOT_READY, names.TAINT_UNREACHABLE)
]
"""Shared by all pods, as objects are never changed in place."""


def add_default_tolerations(spec: Raw) -> None:
    """The admission plugin DefaultTolerationSeconds: every pod tolerates a node that is not ready or
    unreachable for five minutes, unless it has tolerations of its own for these."""
    given = spec.get("tolerations")
    if not given:
        spec["tolerations"] = _DEFAULT_TOLERATIONS
        return
    lacking = (
        each
        for each in _DEFAULT_TOLERATIONS
        if not any(_covers(toleration, each["key"]) for toleration in given)
    )
    spec["tolerations"] = [*given, *lacking]


def _covers(toleration: Raw, key: str) -> bool:
    effect = toleration.get("effect") or names.NO_EXECUTE
    return effect == names.NO_EXECUTE and (toleration.get("key") or key) == key


_known_qos: Memo[bytes, str] = Memo(10_000)


def qos_of(raw: Raw) -> str:
    """The QoS class, memoized by the resources of the pod's containers."""
    spec = raw["spec"]
    asked = [[each.get("resources") for each in spec.get(part) or []] for part in _CONTAINERS]
    shape = msgspec.json.encode((spec.get("resources"), asked))
    known = _known_qos.get(shape)
    if known is None:
        try:
            known = qos_class(convert(raw, Pod))
        except Exception:  # what cannot be read is refused by validation, in its own words
            return "BestEffort"
        _known_qos[shape] = known
    return known


def _new(request: WriteRequest, raw: Raw) -> Raw:
    if raw.get("globalDefault"):
        other = _default(request)
        if other is not None:
            raise forbidden(
                request.resource,
                request.name,
                f"PriorityClass {other['metadata']['name']} is already marked as default. Only one "
                "default "
                "can exist",
            )
    return raw


def _check_new(request: WriteRequest, raw: Raw) -> list[FieldError]:
    name = raw["metadata"]["name"]
    if name.startswith("system-") and (
        name not in SYSTEM_CLASSES or raw.get("value") != SYSTEM_CLASSES[name][0]
    ):
        why = "priority class names with 'system-' prefix are reserved for system use only. error: "
        return [fields.forbidden("metadata.name", f"{why}{name} is not a known system priority class")]
    return []


def _check_changed(request: WriteRequest, before: Raw, after: Raw) -> list[FieldError]:
    found = []
    if after.get("value") != before.get("value"):
        found.append(fields.forbidden("value", "may not be changed in an update."))
    if (after.get("preemptionPolicy") or _LOWER) != (before.get("preemptionPolicy") or _LOWER):
        value = after.get("preemptionPolicy")
        found.append(fields.invalid("preemptionPolicy", value, "field is immutable"))
    return found


PRIORITY_CLASS = Strategy(
    generation_of=all_but_metadata, new=_new, check_new=_check_new, check_changed=_check_changed
)
