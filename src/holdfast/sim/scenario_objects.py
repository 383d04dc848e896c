"""The objects of a scenario: completed, then checked as `kubectl apply` would have them checked.

A scenario may leave out what has no bearing on scheduling; that is filled in before anything else:

    the image of a container                   a placeholder
    the limit of an extended resource          its request; so of huge pages
    the UID of an owner reference              one made from the owner's name
    capacity and available of a NUMA zone      its allocatable
    the source of a PersistentVolume           a directory of the host
    access modes and size of volumes, claims   ReadWriteOnce, one byte
    the template of a ReplicaSet, Job, …       nothing: the object is there for pods to refer to
    observedGeneration in a budget's status    the budget's generation: the status counts as current
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.api import names
from holdfast.api.calendar import misspelt_terms
from holdfast.api.decode import object_name
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import NO_KINDS, Kinds, is_cluster_scoped, kind_info
from holdfast.api.memo import Memo
from holdfast.api.resources import is_hugepages, is_native
from holdfast.local.store.objects import Key, Raw
from holdfast.machinery.objects import (
    check_decoded,
    check_decoded_metadata,
    decoded_object,
    reservation_annotations,
)
from holdfast.machinery.schema import UNKNOWN, FieldError, ResourceType
from holdfast.machinery.schema.catalogue import holdfast_catalogue, open_type
from holdfast.machinery.schema.field_errors import MALFORMED, REQUIRED
from holdfast.machinery.status import StatusError
from holdfast.machinery.validation.core_kinds import ABOUT_VOLUMES

IMAGE = "pause"
_MOST_MALFORMED = 100
_HOST_PATH = "/mnt"
_MODES = ("ReadWriteOnce",)
_SIZE = "1"
_REQUESTS = {"requests": {"storage": _SIZE}}
_UIDS = uuid.UUID("5a0c5a2e-6f0b-5d6c-9d5e-4d3c1f0b7a21")
_WITH_TEMPLATE = (
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "Job"),
)
"""Kinds that have pods in a cluster, and may be in a scenario only because pods refer to them."""


class ScenarioObject:
    """A document that is an object, after completion and strict decoding."""

    def __init__(self, given: Raw, declared: Kinds = NO_KINDS) -> None:
        """`errors` are of strict decoding and of validation. `newer` are fields of an object that a
        server stored which this version does not know; they are left out."""
        self.errors: list[InvalidObject] = []
        self.newer: list[str] = []
        self.raw = given
        try:
            api_version, kind = given.get("apiVersion") or "", given.get("kind") or ""
            info = kind_info(str(api_version), str(kind), declared)
        except InvalidObject as error:
            self.errors.append(error.within(object_name(given)))
            return
        type = _catalogued(info.group, info.version, info.kind) or open_type(info)
        template = _template(given) if (info.group, info.kind) == ("", "Pod") else None
        if template is not None and self._is_copy(given, type, template):
            return
        self.raw, problems, is_decoded = _decoded(type, completed(given))
        stored = isinstance(given.get("metadata"), Mapping) and given["metadata"].get("resourceVersion")
        if stored:
            self.newer = [each.field for each in problems if each.reason == UNKNOWN]
            problems = [each for each in problems if each.reason != UNKNOWN]
        if not problems and is_reference(given):
            type = open_type(info)
            self.raw, _ = decoded_object(type, given)
        if is_decoded:
            problems += _beside(problems, check_decoded(type, _with_reference_uids(self.raw)), given)
        for path, written in reservation_annotations(self.raw) if is_decoded else ():
            for key, text in misspelt_terms(written):
                if stored:
                    self.newer.append(f"{path}[{key}]")
                else:
                    problems.append(FieldError(UNKNOWN, f"{path}[{key}]", text))
        if problems:
            name = object_name(given)
            self.errors = [as_invalid(name, each) for each in problems]
        else:
            self.raw = _without_zeroes(given, self.raw)
            if template is not None and not self.newer:
                _known_specs[template] = (given["spec"], self.raw["spec"])

    def _is_copy(self, given: Raw, type: ResourceType, template: bytes) -> bool:
        """Whether a valid pod with this spec came before: then only the rest is read, and the two share
        the spec."""
        known = _known_specs.get(template)
        if known is None or known[0] != given["spec"]:
            return False
        raw, problems = decoded_object(type, {**given, "spec": {}})
        if problems or check_decoded_metadata(type, _with_reference_uids(raw)):
            return False
        self.raw = _without_zeroes(given, {**raw, "spec": known[1]})
        return True


def _decoded(type: ResourceType, raw: Raw) -> tuple[Raw, list[FieldError], bool]:
    """The object without its malformed and unknown fields, the errors of these, and whether these are
    all."""
    malformed: list[FieldError] = []
    while True:
        decoded, found = decoded_object(type, raw)
        if not found or found[0].reason != MALFORMED:
            return decoded, [*malformed, *found], True
        malformed += found
        rest = _without(raw, _steps(found[0].field))
        if rest is None or len(malformed) == _MOST_MALFORMED:
            return decoded, malformed, False
        raw = rest


def _beside(
    decoding: Sequence[FieldError], validation: list[FieldError], given: Raw
) -> list[FieldError]:
    """The errors of validation that do not follow from those of decoding: a field that was left out may
    be the one that is missing."""
    if not decoding:
        return validation
    wrong = tuple(each.field for each in decoding)
    return [
        each
        for each in validation
        if each.reason != REQUIRED
        and not each.field.startswith(wrong)
        and _without(given, _steps(each.field)) is not None
    ]


_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def _steps(path: str) -> list[str]:
    """`spec`, `containers`, `0` of `spec.containers[0]`."""
    return [name or key for name, key in _STEP.findall(path)]


def _without(raw: Any, steps: Sequence[str]) -> Any:
    """A copy without the part at a path; None if there is no such part."""
    if not steps:
        return None
    first, *rest = steps
    if isinstance(raw, list):
        at = int(first) if first.isdecimal() else len(raw)
        if at >= len(raw):
            return None
        if not rest:
            return [*raw[:at], *raw[at + 1 :]]
        inner = _without(raw[at], rest)
        return None if inner is None else [*raw[:at], inner, *raw[at + 1 :]]
    if not isinstance(raw, Mapping) or first not in raw:
        return None
    if not rest:
        return {name: value for name, value in raw.items() if name != first}
    inner = _without(raw[first], rest)
    return None if inner is None else {**raw, first: inner}


_known_specs: Memo[bytes, tuple[Raw, Raw]] = Memo(1024)
"""Pod specs as they were given and as they were decoded, of valid pods, by the encoded former."""


def _template(given: Raw) -> bytes | None:
    """The spec of a pod, encoded."""
    spec = given.get("spec")
    if not isinstance(spec, dict):
        return None
    try:
        return msgspec.json.encode(spec)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def type_of(raw: Raw, declared: Kinds = NO_KINDS) -> ResourceType:
    """The type by whose rules a scenario's object is written."""
    info = kind_info(raw["apiVersion"], raw["kind"], declared)
    if is_reference(raw):
        return open_type(info)
    return _catalogued(info.group, info.version, info.kind) or open_type(info)


def _catalogued(group: str, version: str, kind: str) -> ResourceType | None:
    return holdfast_catalogue().kind(group, version, kind)


def as_invalid(object: str, error: FieldError) -> InvalidObject:
    return InvalidObject(object, error.field, error.message)


def refusals(object: str, error: StatusError) -> list[InvalidObject]:
    """The errors of a request that was refused."""
    causes = (error.details or {}).get("causes") or ()
    if error.reason != "Invalid" or not causes:
        return [InvalidObject(object, "", error.message)]
    # Of a change of a pod that is not allowed, the message goes on with the difference.
    lines = ((each["field"], each["message"].partition("\n")[0]) for each in causes)
    return [InvalidObject(object, field, message) for field, message in lines]


def _without_zeroes(given: Raw, decoded: Raw) -> Raw:
    """Without the status and time that decoding writes into every object."""
    raw = {name: value for name, value in decoded.items() if name != "status" or given.get("status")}
    metadata = {k: v for k, v in raw["metadata"].items() if k != "creationTimestamp" or v is not None}
    return {**raw, "metadata": metadata}


# Completion


def completed(raw: Raw) -> Raw:
    """The object with what scenarios may leave out."""
    api_version, kind = raw.get("apiVersion"), raw.get("kind")
    group = api_version.rpartition("/")[0] if isinstance(api_version, str) else ""
    complete = _COMPLETE.get((group, str(kind)))
    return complete(raw) if complete is not None else raw


def is_reference(raw: Raw) -> bool:
    """Whether an owner has no pod template: pods refer to it, and it makes none."""
    key = raw["apiVersion"].rpartition("/")[0], raw["kind"]
    return key in _WITH_TEMPLATE and not (raw.get("spec") or {}).get("template")


def owner_key(metadata: Raw, reference: Raw) -> Key:
    """The key of the owner that a reference names."""
    kind = reference.get("kind") or ""
    namespace = metadata.get("namespace") or names.DEFAULT_NAMESPACE
    group = (reference.get("apiVersion") or "").rpartition("/")[0]
    return Key(group, kind, "" if is_cluster_scoped(kind) else namespace, reference.get("name") or "")


def made_uid(key: Key) -> str:
    """The UID of an owner that gives none."""
    return str(uuid.uuid5(_UIDS, str(key)))


def _with_reference_uids(raw: Raw) -> Raw:
    metadata = raw.get("metadata") or {}
    references = metadata.get("ownerReferences")
    if not references or all(each.get("uid") for each in references):
        return raw
    filled = [{**each, "uid": each.get("uid") or "missing"} for each in references]
    return {**raw, "metadata": {**metadata, "ownerReferences": filled}}


def _within(raw: Any, path: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """The object with a part replaced, if it has that part."""
    if not path:
        return change(raw)
    if not isinstance(raw, dict) or not isinstance(raw.get(path[0]), dict | list):
        return raw
    return {**raw, path[0]: _within(raw[path[0]], path[1:], change)}


def _each(change: Callable[[Raw], Raw]) -> Callable[[Any], Any]:
    def change_each(items: Any) -> Any:
        if not isinstance(items, list):
            return items
        return [change(item) if isinstance(item, dict) else item for item in items]

    return change_each


def _pod_spec(spec: Any) -> Any:
    for part in ("containers", "initContainers"):
        spec = _within(spec, (part,), _each(_container))
    return spec


def _container(container: Raw) -> Raw:
    container = {"image": IMAGE, **container}
    resources = container.get("resources")
    requests = resources.get("requests") if isinstance(resources, dict) else None
    if not isinstance(resources, dict) or not isinstance(requests, dict):
        return container
    given = resources.get("limits")
    limits = given if isinstance(given, dict) else {}
    lacking = {
        name: amount
        for name, amount in requests.items()
        if isinstance(name, str) and (is_hugepages(name) or not is_native(name)) and name not in limits
    }
    if not lacking:
        return container
    return {**container, "resources": {**resources, "limits": {**limits, **lacking}}}


def _volume(raw: Raw) -> Raw:
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return raw
    spec = {"accessModes": list(_MODES), "capacity": {"storage": _SIZE}, **spec}
    if not any(field not in ABOUT_VOLUMES for field in spec):
        spec["hostPath"] = {"path": _HOST_PATH}
    return {**raw, "spec": spec}


def _claim(raw: Raw) -> Raw:
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return raw
    return {**raw, "spec": {"accessModes": list(_MODES), "resources": dict(_REQUESTS), **spec}}


def _zone_resource(resource: Raw) -> Raw:
    if "allocatable" not in resource:
        return resource
    same = dict.fromkeys(("capacity", "available"), resource["allocatable"])
    return {**same, **resource}


def _topology(raw: Raw) -> Raw:
    def zone(each: Raw) -> Raw:
        changed: Raw = _within(each, ("resources",), _each(_zone_resource))
        return changed

    changed: Raw = _within(raw, ("zones",), _each(zone))
    return changed


def _budget(raw: Raw) -> Raw:
    status, metadata = raw.get("status"), raw.get("metadata")
    if not isinstance(status, dict) or not status or not isinstance(metadata, dict):
        return raw
    return {**raw, "status": {"observedGeneration": metadata.get("generation") or 1, **status}}


def _at(*path: str) -> Callable[[Raw], Raw]:
    def complete(raw: Raw) -> Raw:
        changed: Raw = _within(raw, path, _pod_spec)
        return changed

    return complete


_COMPLETE: dict[tuple[str, str], Callable[[Raw], Raw]] = {
    ("", "Pod"): _at("spec"),
    ("apps", "Deployment"): _at("spec", "template", "spec"),
    **{kind: _at("spec", "template", "spec") for kind in _WITH_TEMPLATE},
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("policy", "PodDisruptionBudget"): _budget,
    ("topology.node.k8s.io", "NodeResourceTopology"): _topology,
}
