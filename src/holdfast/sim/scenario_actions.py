"""The actions of a scenario (create, apply, delete, patch, restart, check an expectation), and the Step
documents that state them.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.api import names
from holdfast.api.decode import object_name
from holdfast.api.documents import Document
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS, NO_KINDS, KindInfo, Kinds
from holdfast.api.raw_objects import ObjectKind
from holdfast.local.store.objects import Key, Raw
from holdfast.machinery.objects import decoded_object
from holdfast.machinery.schema import UNKNOWN, FieldError
from holdfast.machinery.schema.catalogue import holdfast_catalogue
from holdfast.sim.clock import START, timing
from holdfast.sim.document_fields import described, hint, seconds, unknown_fields
from holdfast.sim.expect import Expectation
from holdfast.sim.scenario_objects import ScenarioObject, as_invalid


@dataclass(frozen=True, slots=True)
class Target:
    """The object a Step names. Its group may be open if the kind alone is ambiguous."""

    kind: str
    namespace: str
    name: str
    groups: tuple[str, ...]

    def candidates(self) -> list[Key]:
        return [Key(group, self.kind, self.namespace, self.name) for group in self.groups]

    def __str__(self) -> str:
        return str(self.candidates()[0])


@dataclass(frozen=True, slots=True)
class Create:
    raw: Raw


@dataclass(frozen=True, slots=True)
class Apply:
    raw: Raw


@dataclass(frozen=True, slots=True)
class Delete:
    target: Target


@dataclass(frozen=True, slots=True)
class Patch:
    target: Target
    merge: Raw


@dataclass(frozen=True, slots=True)
class Restart:
    pass


@dataclass(frozen=True, slots=True)
class ExpectationCheck:
    expectation: Expectation


Action = Create | Apply | Delete | Patch | Restart | ExpectationCheck


@dataclass(frozen=True, slots=True)
class ScenarioAction:
    """An action and its time. `order` is the documents' order, except that dependencies come first."""

    t: float
    order: tuple[int, int]
    origin: Document
    action: Action


@dataclass(frozen=True, slots=True)
class Scenario:
    actions: tuple[ScenarioAction, ...]
    at_the_end: tuple[tuple[Document, Expectation], ...]
    start: float = START
    """When virtual time starts, in seconds since the epoch."""
    notes: tuple[str, ...] = ()
    """Notes about input that is ignored, a line each."""
    kinds: tuple[ObjectKind, ...] = ()
    """The kinds of objects that only plugins read."""


# Step documents


STEP = "Step"
_VERBS = ("apply", "delete", "patch", "restart")
_FIELDS = ("apiVersion", "kind", "metadata", "at", *_VERBS)


def read_step(
    data: Raw, found: list[InvalidObject], declared: Kinds = NO_KINDS
) -> tuple[float, Action] | None:
    before = len(found)
    unknown_fields(data, _FIELDS, STEP, "", found)
    misspelt = len(found) > before
    at = 0.0
    if "at" not in data:
        found.append(InvalidObject(STEP, "at", "is required: the time of the step, such as 60s"))
    else:
        at = seconds(data["at"], STEP, "at", found)
    verbs = [verb for verb in _VERBS if data.get(verb) is not None]
    if not verbs and misspelt:
        return None
    if len(verbs) != 1:
        said = " and ".join(verbs) or "none"
        found.append(InvalidObject(STEP, "", f"exactly one of {', '.join(_VERBS)}; got {said}"))
        return None
    verb = verbs[0]
    action = _read_action(verb, data[verb], found, declared)
    if len(found) > before or action is None:
        return None
    if isinstance(action, Apply):
        timing(action.raw, found, step_at=at)
    return at, action


def _read_action(verb: str, given: Any, found: list[InvalidObject], declared: Kinds) -> Action | None:
    if verb == "restart":
        if given != "scheduler":
            found.append(InvalidObject(STEP, verb, f"must be scheduler, got {described(given)}"))
        return Restart()
    if not isinstance(given, dict):
        found.append(InvalidObject(STEP, verb, f"expected a mapping, got {described(given)}"))
        return None
    if verb == "apply":
        read = ScenarioObject(given, declared)
        raw = read.raw
        found.extend(each.within(each.object or STEP, "apply") for each in read.errors)
        metadata = raw.get("metadata")
        if isinstance(metadata, dict) and not metadata.get("name") and metadata.get("generateName"):
            message = "is required: apply needs the name of the object"
            found.append(InvalidObject(object_name(raw), "apply.metadata.name", message))
        return Apply(raw)
    fields = ("apiVersion", "kind", "name", "namespace")
    unknown_fields(given, (*fields, "merge") if verb == "patch" else fields, STEP, verb, found)
    target = _read_target(given, verb, found, declared)
    if verb == "delete":
        return Delete(target) if target is not None else None
    merge = given.get("merge")
    if not isinstance(merge, dict):
        found.append(InvalidObject(STEP, "patch.merge", "is required: a JSON merge patch"))
        return None
    if target is None:
        return None
    found.extend(_misspelt(target, merge))
    return Patch(target, merge)


def _misspelt(target: Target, merge: Raw) -> list[InvalidObject]:
    """Fields of a patch that none of the object's possible kinds has."""
    fewest: list[FieldError] | None = None
    for info in KINDS.values():
        if info.kind == target.kind and info.group in target.groups:
            type = holdfast_catalogue().kind(info.group, info.version, info.kind)
            unknown = decoded_object(type, merge)[1] if type is not None else []
            unknown = [each for each in unknown if each.reason == UNKNOWN]
            if fewest is None or len(unknown) < len(fewest):
                fewest = unknown
    return [as_invalid(str(target), each).within(prefix="patch.merge") for each in fewest or ()]


def _read_target(given: Raw, path: str, found: list[InvalidObject], declared: Kinds) -> Target | None:
    before = len(found)
    for field in ("kind", "name", "namespace", "apiVersion"):
        value = given.get(field)
        if value is None and field in ("kind", "name"):
            found.append(InvalidObject(STEP, f"{path}.{field}", "is required"))
        elif value is not None and not isinstance(value, str):
            message = f"expected a string, got {described(value)}"
            found.append(InvalidObject(STEP, f"{path}.{field}", message))
    if len(found) > before:
        return None
    every = (*KINDS.values(), *declared.values())
    infos = [info for info in every if info.kind == given["kind"]]
    if not infos:
        known = sorted({info.kind for info in every})
        message = f"unknown kind {given['kind']!r}{hint(given['kind'], known)}"
        found.append(InvalidObject(STEP, f"{path}.kind", message))
        return None
    api_version = given.get("apiVersion")
    if api_version:
        versions = ", ".join(info.api_version for info in infos)
        infos = [info for info in infos if info.api_version == api_version]
        if not infos:
            message = f"no {given['kind']} in {api_version!r}; known: {versions}"
            found.append(InvalidObject(STEP, f"{path}.apiVersion", message))
            return None
    return _target(infos, given)


def _target(infos: list[KindInfo], given: Raw) -> Target:
    namespaced = infos[0].namespaced
    namespace = (given.get("namespace") or names.DEFAULT_NAMESPACE) if namespaced else ""
    groups = tuple(dict.fromkeys(info.group for info in infos))
    return Target(given["kind"], namespace, given["name"], groups)
