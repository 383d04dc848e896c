"""Rules for the metadata of every object, in the API server's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.api.name_rules import (
    dns_1035_label,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
    path_segment,
)
from holdfast.api.raw_objects import Raw
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.schema.field_errors import FieldError
from holdfast.machinery.schema.types import ResourceType

_ANNOTATIONS = 256 * 1024
STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_BAD_FINALIZER = "name is neither a standard finalizer name nor is it fully qualified"

_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")
_PATH_NAMES = frozenset({"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})


def _name_rule(type: ResourceType) -> Callable[[str], tuple[str, ...]]:
    if type.builtin:
        if type.kind in _PATH_NAMES:
            return path_segment
        if type.kind == "Namespace":
            return dns_label
        if type.kind == "Service":
            return dns_1035_label
    return dns_subdomain


def check(type: ResourceType, metadata: Raw) -> list[FieldError]:
    found = check_name(type, metadata.get("name") or "")
    if type.namespaced:
        namespace = metadata.get("namespace") or ""
        if not namespace:
            found.append(fields.required("metadata.namespace"))
        else:
            found += _each("metadata.namespace", namespace, dns_label(namespace))
    found += check_labels(metadata.get("labels") or {}, "metadata.labels")
    found += _check_annotations(metadata.get("annotations") or {})
    found += _check_owners(metadata.get("ownerReferences") or [])
    for i, each in enumerate(metadata.get("finalizers") or []):
        found += _each("metadata.finalizers", each, label_key(each))
        if "/" not in each and each not in STANDARD_FINALIZERS and _is_core(type):
            found.append(fields.invalid(f"metadata.finalizers[{i}]", each, _BAD_FINALIZER))
    return found


def check_name(type: ResourceType, name: str) -> list[FieldError]:
    if not name:
        return [fields.required("metadata.name", "name or generateName is required")]
    return _each("metadata.name", name, _name_rule(type)(name))


def _is_core(type: ResourceType) -> bool:
    """Kubernetes' own kinds are stricter about finalizers than those of extensions."""
    return type.builtin and type.group != "apiextensions.k8s.io"


def check_labels(labels: Mapping[str, Any], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for key, value in sorted(labels.items()):
        found += _each(path, key, label_key(key))
        found += _each(path, value, label_value(value))
    return found


def _check_annotations(annotations: Mapping[str, str]) -> list[FieldError]:
    found: list[FieldError] = []
    for key in sorted(annotations):
        found += _each("metadata.annotations", key, label_key(key.lower()))
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


def _each(path: str, value: Any, problems: Iterable[str]) -> list[FieldError]:
    return [fields.invalid(path, value, each) for each in problems]
