"""Metadata, labels and label selectors of every kind, in the API server's words.

The rules of names themselves are in `api.name_rules`.
"""

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
from holdfast.machinery.schema.field_errors import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    FieldError,
    field_problem,
)
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
    check_labels(found, metadata.get("labels") or {}, "metadata.labels")
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
    """Whether finalizers must be qualified, as those of Kubernetes' own kinds."""
    return type.builtin and type.group != "apiextensions.k8s.io"


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
    """The errors of an update: immutable fields, and finalizers added during deletion."""
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


Found = list[FieldError]
Part = dict[str, Any]

_NEEDS_VALUES = "must be specified when `operator` is 'In' or 'NotIn'"
_NO_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
_ONE_VALUE = "must be specified single value when `operator` is 'Lt' or 'Gt'"
_ONE_FIELD = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
_NO_OPERATOR = "not a valid selector operator"


def check_labels(found: Found, labels: dict[str, str], path: str) -> None:
    for key, value in labels.items():
        found.extend(field_problem(INVALID, path, key, message) for message in label_key(key))
        found.extend(field_problem(INVALID, path, value, message) for message in label_value(value))


def check_key(found: Found, key: str, path: str) -> None:
    found.extend(field_problem(INVALID, path, key, message) for message in label_key(key))


def check_label_selector(found: Found, selector: Part | None, path: str) -> None:
    if not selector:
        return
    check_labels(found, selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for i, wanted in enumerate(selector.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{i}]"
        _check_operator(found, wanted, where, numbers=False)
        check_key(found, wanted.get("key", ""), f"{where}.key")
        _check_values(found, wanted, where)


def _check_values(found: Found, wanted: Part, where: str) -> None:
    for i, value in enumerate(wanted.get("values") or ()):
        place = f"{where}.values[{i}]"
        found.extend(field_problem(INVALID, place, value, message) for message in label_value(value))


def _check_operator(found: Found, wanted: Part, where: str, numbers: bool) -> None:
    operator, values = wanted.get("operator", ""), wanted.get("values") or ()
    place = f"{where}.values"
    if operator in ("In", "NotIn"):
        if not values:
            found.append(field_problem(REQUIRED, place, detail=_NEEDS_VALUES))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            found.append(field_problem(FORBIDDEN, place, detail=_NO_VALUES))
    elif numbers and operator in ("Gt", "Lt"):
        if len(values) != 1:
            found.append(field_problem(REQUIRED, place, detail=_ONE_VALUE))
    else:
        found.append(field_problem(INVALID, f"{where}.operator", operator, _NO_OPERATOR))


def check_node_selector_term(found: Found, term: Part, path: str, strict: bool) -> None:
    """With `strict`, as for required terms, values must be valid label values."""
    for i, wanted in enumerate(term.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{i}]"
        _check_operator(found, wanted, where, numbers=True)
        check_key(found, wanted.get("key", ""), f"{where}.key")
        if strict:
            _check_values(found, wanted, where)
    for i, wanted in enumerate(term.get("matchFields") or ()):
        _check_field(found, wanted, f"{path}.matchFields[{i}]")


def _check_field(found: Found, wanted: Part, where: str) -> None:
    operator, values = wanted.get("operator", ""), wanted.get("values") or ()
    if operator not in ("In", "NotIn"):
        found.append(field_problem(INVALID, f"{where}.operator", operator, _NO_OPERATOR))
    elif len(values) != 1:
        found.append(field_problem(REQUIRED, f"{where}.values", detail=_ONE_FIELD))
    key = wanted.get("key", "")
    if key != "metadata.name":
        found.append(field_problem(INVALID, f"{where}.key", key, "not a valid field selector key"))
        return
    for i, value in enumerate(values):
        place = f"{where}.values[{i}]"
        found.extend(field_problem(INVALID, place, value, message) for message in dns_subdomain(value))
