"""What there is to say about a kind, and what holds for most."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.api.name_rules import (
    LABEL,
    LABEL_WORDS,
    NAME,
    SUBDOMAIN,
    SUBDOMAIN_WORDS,
    VALUE,
    VALUE_WORDS,
)
from holdfast.local.apiserver import field_errors as fields
from holdfast.local.apiserver.api_state import Call
from holdfast.local.store import Raw
from holdfast.machinery.schema import FieldError, ResourceType

New = Callable[[Call, Raw], Raw]
Changed = Callable[[Call, Raw, Raw], Raw]
CheckNew = Callable[[Call, Raw], list[FieldError]]
CheckChanged = Callable[[Call, Raw, Raw], list[FieldError]]


def spec_of(raw: Raw) -> Any:
    return raw.get("spec")


def spec_and_annotations(raw: Raw) -> Any:
    return raw.get("spec"), raw["metadata"].get("annotations")


def all_but_metadata(raw: Raw) -> Any:
    return {name: value for name, value in raw.items() if name != "metadata"}


def all_but_status(raw: Raw) -> Any:
    return {name: value for name, value in raw.items() if name not in ("metadata", "status")}


def _as_it_is(call: Call, raw: Raw) -> Raw:
    return raw


def without_status(call: Call, raw: Raw) -> Raw:
    return {**raw, "status": {}}


def status_of(**zeros: int) -> New:
    """A new object's status: what is always said is zero."""

    def with_zeros(call: Call, raw: Raw) -> Raw:
        return {**raw, "status": dict(zeros)}

    return with_zeros


def keep_status(call: Call, before: Raw, after: Raw) -> Raw:
    """An update of the object itself leaves its status alone."""
    return _with_part(after, "status", before)


def keep_spec(call: Call, before: Raw, after: Raw) -> Raw:
    """An update of the status leaves the spec alone."""
    return _with_part(after, "spec", before)


def keep_all_but_status(call: Call, before: Raw, after: Raw) -> Raw:
    managed = after["metadata"].get("managedFields")
    metadata = {**before["metadata"], "managedFields": managed} if managed else before["metadata"]
    kept = {**before, "metadata": metadata}
    if "status" in after:
        return {**kept, "status": after["status"]}
    kept.pop("status", None)
    return kept


def keep_spec_and_labels(call: Call, before: Raw, after: Raw) -> Raw:
    after = keep_spec(call, before, after)
    return {**after, "metadata": _with_part(after["metadata"], "labels", before["metadata"])}


def _change(call: Call, before: Raw, after: Raw) -> Raw:
    return after


def _with_part(after: Raw, name: str, before: Raw) -> Raw:
    if name in before:
        return {**after, name: before[name]}
    if name in after:
        return {key: value for key, value in after.items() if key != name}
    return after


def _nothing_new(call: Call, raw: Raw) -> list[FieldError]:
    return []


def _nothing_changed(call: Call, before: Raw, after: Raw) -> list[FieldError]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    wish: Callable[[Raw], Any] | None = None
    """What a change of makes a new generation; None for kinds that do not count generations."""
    unconditional_update: bool = True
    """Whether an update may leave the resourceVersion out."""
    create_on_update: bool = False
    """Whether a PUT of what is not there creates it."""
    returns_deleted: bool = False
    """Whether a deletion answers with the object rather than with a Status."""
    new: New = _as_it_is
    changed: Changed = _change
    status_changed: Changed = keep_spec
    check_new: CheckNew = _nothing_new
    check_changed: CheckChanged = _nothing_changed
    leaves_with: tuple[str, ...] = ()
    """Finalizers that a deletion adds, for those who clean up after the object."""
    orphans: bool = False
    """Whether a deletion that does not say otherwise leaves dependents behind, with a warning."""
    grace: Callable[[Raw, int | None], int] | None = None
    """How long an object may take to end, given what was asked; None for kinds that end at once."""


PLAIN = Strategy()


# Rules for the metadata of every object, in Kubernetes' words.


_DNS_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"

_DNS_1035_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_DNS_1035}')"
)
_KEY_WORDS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{NAME}')"
)
_label, _subdomain = re.compile(LABEL), re.compile(SUBDOMAIN)
_name, _value, _dns_1035 = re.compile(NAME), re.compile(VALUE), re.compile(_DNS_1035)
_ANNOTATIONS = 256 * 1024
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_BAD_FINALIZER = "name is neither a standard finalizer name nor is it fully qualified"

_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")
_DNS_LABELS = frozenset({"Namespace"})
_PATH_NAMES = frozenset({"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})


def name_problems(type: ResourceType, name: str) -> list[str]:
    if type.builtin:
        if type.kind in _PATH_NAMES:
            return path_name_problems(name)
        if type.kind in _DNS_LABELS:
            return label_problems(name)
        if type.kind == "Service":
            return [*_length(name, 63), *([] if _dns_1035.fullmatch(name) else [_DNS_1035_WORDS])]
    return subdomain_problems(name)


def path_name_problems(name: str) -> list[str]:
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{each}'" for each in ("/", "%") if each in name]


def label_problems(text: str) -> list[str]:
    return [*_length(text, 63), *([] if _label.fullmatch(text) else [LABEL_WORDS])]


def subdomain_problems(text: str) -> list[str]:
    return [*_length(text, 253), *([] if _subdomain.fullmatch(text) else [SUBDOMAIN_WORDS])]


def key_problems(text: str) -> list[str]:
    """Of the key of a label, annotation or taint."""
    prefix, slash, name = text.rpartition("/")
    found = []
    if slash:
        if not prefix:
            found.append("prefix part must be non-empty")
        elif "/" in prefix:
            return [
                "a valid label key must consist of a name, with an optional DNS subdomain prefix and "
                "'/' "
                "(e.g. 'example.com/MyName')"
            ]
        else:
            found += [f"prefix part {each}" for each in subdomain_problems(prefix)]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    if not _name.fullmatch(name):
        found.append(_KEY_WORDS)
    return found


def value_problems(text: str) -> list[str]:
    return [*_length(text, 63, "bytes"), *([] if _value.fullmatch(text) else [VALUE_WORDS])]


def _length(text: str, limit: int, unit: str = "characters") -> list[str]:
    return [f"must be no more than {limit} {unit}"] if len(text.encode()) > limit else []


def check(type: ResourceType, metadata: Raw) -> list[FieldError]:
    found = check_name(type, metadata.get("name") or "")
    if type.namespaced:
        namespace = metadata.get("namespace") or ""
        if not namespace:
            found.append(fields.required("metadata.namespace"))
        else:
            found += _each("metadata.namespace", namespace, label_problems(namespace))
    found += check_labels(metadata.get("labels") or {}, "metadata.labels")
    found += _check_annotations(metadata.get("annotations") or {})
    found += _check_owners(metadata.get("ownerReferences") or [])
    for i, each in enumerate(metadata.get("finalizers") or []):
        found += _each("metadata.finalizers", each, key_problems(each))
        if "/" not in each and each not in STANDARD_FINALIZERS and _is_core(type):
            found.append(fields.invalid(f"metadata.finalizers[{i}]", each, _BAD_FINALIZER))
    return found


def check_name(type: ResourceType, name: str) -> list[FieldError]:
    if not name:
        return [fields.required("metadata.name", "name or generateName is required")]
    return _each("metadata.name", name, name_problems(type, name))


def _is_core(type: ResourceType) -> bool:
    """Kubernetes' own kinds are stricter about finalizers than those of extensions."""
    return type.builtin and type.group != "apiextensions.k8s.io"


def check_labels(labels: Mapping[str, Any], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for key, value in sorted(labels.items()):
        found += _each(path, key, key_problems(key))
        found += _each(path, value, value_problems(value))
    return found


def _check_annotations(annotations: Mapping[str, str]) -> list[FieldError]:
    found: list[FieldError] = []
    for key in sorted(annotations):
        found += _each("metadata.annotations", key, key_problems(key.lower()))
    if (
        sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
        > _ANNOTATIONS
    ):
        found.append(fields.too_long("metadata.annotations", _ANNOTATIONS))
    return found


def _check_owners(owners: list[Raw]) -> list[FieldError]:
    found: list[FieldError] = []
    path = "metadata.ownerReferences"
    for owner in owners:
        if not owner.get("apiVersion"):
            found.append(fields.invalid(f"{path}.apiVersion", "", "version must not be empty"))
        found += [
            fields.invalid(f"{path}.{field}", "", "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        ]
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        kinds = " and ".join(str(owner.get("kind")) for owner in controllers[:2])
        why = (
            "Only one reference can have Controller set to true. "
            f'Found "true" in references for {kinds}'
        )
        found.append(fields.invalid(path, owners, why))
    return found


def check_change(before: Raw, after: Raw) -> list[FieldError]:
    """Of an update's metadata: what names an object stays what it is."""
    found: list[FieldError] = []
    if before.get("deletionTimestamp"):
        new = sorted(set(after.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if new:
            listed = ", ".join(f'"{each}"' for each in new)
            why = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            found.append(fields.forbidden("metadata.finalizers", why))
    for field in _IMMUTABLE:
        if after.get(field) != before.get(field):
            value = after.get(field)
            found.append(fields.invalid(f"metadata.{field}", value, "field is immutable"))
    return found


def _each(path: str, value: Any, problems: list[str]) -> list[FieldError]:
    return [fields.invalid(path, value, each) for each in problems]
