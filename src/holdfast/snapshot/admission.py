"""What the API server sets in pods and claims when they are created, for objects written by hand that
were never on one: the priority of a PriorityClass, and the default storage class. Objects that were on
an API server have both."""

from collections.abc import Callable, Iterable

from holdfast.api.decode import decode
from holdfast.api.errors import InvalidObject
from holdfast.api.names import STORAGE_CLASS_ANNOTATION
from holdfast.api.storage import StorageClass
from holdfast.kube.object_client import Raw
from holdfast.machinery.strategies.admission import SYSTEM_CLASSES
from holdfast.scheduler.managers.volumes.volume_objects import default_class

_POD = ("v1", "Pod")
_CLAIM = ("v1", "PersistentVolumeClaim")
_PRIORITY_CLASS = ("scheduling.k8s.io/v1", "PriorityClass")
_STORAGE_CLASS = ("storage.k8s.io/v1", "StorageClass")


def admission(objects: Iterable[Raw]) -> Callable[[Raw], Raw]:
    """Returns a function that completes an object by the classes among these."""
    by_kind: dict[tuple[str, str], list[Raw]] = {_PRIORITY_CLASS: [], _STORAGE_CLASS: []}
    for raw in objects:
        kind = raw["apiVersion"], raw["kind"]
        if kind in by_kind:
            by_kind[kind].append(raw)
    priorities = {each["metadata"]["name"]: each for each in by_kind[_PRIORITY_CLASS]}
    defaults = [each for each in priorities.values() if each.get("globalDefault")]
    usual = min(defaults, key=lambda each: int(each.get("value") or 0), default=None)
    storage = default_class(_storage_classes(by_kind[_STORAGE_CLASS]))

    def completed(raw: Raw) -> Raw:
        kind, spec = (raw["apiVersion"], raw["kind"]), raw.get("spec") or {}
        if kind == _POD and spec.get("priority") is None:
            return _with_priority(raw, spec, priorities, usual)
        annotations = raw["metadata"].get("annotations") or {}
        is_unset = spec.get("storageClassName") is None and not spec.get("volumeName")
        if kind == _CLAIM and storage and is_unset and STORAGE_CLASS_ANNOTATION not in annotations:
            return {**raw, "spec": {**spec, "storageClassName": storage}}
        return raw

    return completed


def _with_priority(raw: Raw, spec: Raw, classes: dict[str, Raw], usual: Raw | None) -> Raw:
    name = spec.get("priorityClassName")
    if name in SYSTEM_CLASSES and name not in classes:
        return {**raw, "spec": {**spec, "priority": SYSTEM_CLASSES[name][0]}}
    chosen = classes.get(name) if name else usual
    if chosen is None:
        return raw
    given: Raw = {"priority": int(chosen.get("value") or 0)}
    if policy := chosen.get("preemptionPolicy"):
        given["preemptionPolicy"] = policy
    return {**raw, "spec": {**given, **{k: v for k, v in spec.items() if k != "priority"}}}


def _storage_classes(found: list[Raw]) -> Iterable[StorageClass]:
    for raw in found:
        try:
            decoded = decode(raw)
        except InvalidObject:
            continue  # reported where the objects are decoded
        if isinstance(decoded, StorageClass):
            yield decoded
