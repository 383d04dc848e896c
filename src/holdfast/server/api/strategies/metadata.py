"""Rules for the metadata of every object, in Kubernetes' words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.api.name_words import (
    LABEL,
    LABEL_WORDS,
    NAME,
    SUBDOMAIN,
    SUBDOMAIN_WORDS,
    VALUE,
    VALUE_WORDS,
)
from holdfast.server.api import fields
from holdfast.server.schema import Problem, ResourceType
from holdfast.store import Raw

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


def check(type: ResourceType, metadata: Raw) -> list[Problem]:
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


def check_name(type: ResourceType, name: str) -> list[Problem]:
    if not name:
        return [fields.required("metadata.name", "name or generateName is required")]
    return _each("metadata.name", name, name_problems(type, name))


def _is_core(type: ResourceType) -> bool:
    """Kubernetes' own kinds are stricter about finalizers than those of extensions."""
    return type.builtin and type.group != "apiextensions.k8s.io"


def check_labels(labels: Mapping[str, Any], path: str) -> list[Problem]:
    found: list[Problem] = []
    for key, value in sorted(labels.items()):
        found += _each(path, key, key_problems(key))
        found += _each(path, value, value_problems(value))
    return found


def _check_annotations(annotations: Mapping[str, str]) -> list[Problem]:
    found: list[Problem] = []
    for key in sorted(annotations):
        found += _each("metadata.annotations", key, key_problems(key.lower()))
    if (
        sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
        > _ANNOTATIONS
    ):
        found.append(fields.too_long("metadata.annotations", _ANNOTATIONS))
    return found


def _check_owners(owners: list[Raw]) -> list[Problem]:
    found: list[Problem] = []
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


def check_change(before: Raw, after: Raw) -> list[Problem]:
    """Of an update's metadata: what names an object stays what it is."""
    found: list[Problem] = []
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


def _each(path: str, value: Any, problems: list[str]) -> list[Problem]:
    return [fields.invalid(path, value, each) for each in problems]
