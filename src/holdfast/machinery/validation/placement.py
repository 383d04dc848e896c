"""Affinity, tolerations, topology spread constraints, taints."""

from __future__ import annotations

from typing import Any

from holdfast.api.name_rules import dns_label, label_value
from holdfast.machinery.schema.field_errors import (
    DUPLICATE,
    INVALID,
    REQUIRED,
    FieldError,
    field_problem,
    not_supported,
)
from holdfast.machinery.validation.metadata import (
    check_key,
    check_label_selector,
    check_node_selector_term,
)

Found = list[FieldError]
Part = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NO_KEY = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
_WEIGHT = "must be in the range 1-100"


def check_affinity(found: Found, affinity: Part, path: str) -> None:
    node = affinity.get("nodeAffinity") or {}
    if node:
        _check_node_affinity(found, node, f"{path}.nodeAffinity")
    for name in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(name) or {}
        for i, term in enumerate(terms.get(_REQUIRED) or ()):
            _check_term(found, term, f"{path}.{name}.{_REQUIRED}[{i}]")
        for i, weighted in enumerate(terms.get(_PREFERRED) or ()):
            where = f"{path}.{name}.{_PREFERRED}[{i}]"
            _check_weight(found, weighted, where)
            _check_term(found, weighted.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")


def _check_node_affinity(found: Found, node: Part, path: str) -> None:
    required = node.get(_REQUIRED)
    if required is not None:
        check_node_selector(found, required, f"{path}.{_REQUIRED}")
    for i, term in enumerate(node.get(_PREFERRED) or ()):
        where = f"{path}.{_PREFERRED}[{i}]"
        _check_weight(found, term, where)
        preference = term.get("preference") or {}
        check_node_selector_term(found, preference, f"{where}.preference", strict=False)


def check_volume_affinity(found: Found, affinity: Part, path: str) -> None:
    """From which nodes a volume can be reached."""
    required = affinity.get("required")
    if required is None:
        why = "must specify required node constraints"
        found.append(field_problem(REQUIRED, f"{path}.required", detail=why))
    else:
        check_node_selector(found, required, f"{path}.required")


def check_node_selector(found: Found, selector: Part, path: str) -> None:
    where = f"{path}.nodeSelectorTerms"
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        why = "must have at least one node selector term"
        found.append(field_problem(REQUIRED, where, detail=why))
    for i, term in enumerate(terms):
        check_node_selector_term(found, term, f"{where}[{i}]", strict=True)


def _check_weight(found: Found, term: Part, where: str) -> None:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        found.append(field_problem(INVALID, f"{where}.weight", weight, _WEIGHT))


def _check_term(found: Found, term: Part, where: str) -> None:
    check_label_selector(found, term.get("labelSelector"), f"{where}.labelSelector")
    check_label_selector(found, term.get("namespaceSelector"), f"{where}.namespaceSelector")
    for name in term.get("namespaces") or ():
        place = f"{where}.namespace"
        found.extend(field_problem(INVALID, place, name, problems) for problems in dns_label(name))
    _check_match_keys(found, term, where)
    key = term.get("topologyKey", "")
    if not key:
        found.append(field_problem(REQUIRED, f"{where}.topologyKey", detail="can not be empty"))
    check_key(found, key, f"{where}.topologyKey")


def _check_match_keys(found: Found, term: Part, where: str) -> None:
    wanted, unwanted = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    selector = term.get("labelSelector")
    for field, keys in (("matchLabelKeys", wanted), ("mismatchLabelKeys", unwanted)):
        if keys and selector is None:
            why = "must not be specified when labelSelector is not set"
            found.append(field_problem("FieldValueForbidden", f"{where}.{field}", detail=why))
            continue
        for i, key in enumerate(keys):
            check_key(found, key, f"{where}.{field}[{i}]")
    either = set(wanted).intersection(unwanted)
    for i, key in enumerate(wanted):
        if key in either:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            found.append(field_problem(INVALID, f"{where}.matchLabelKeys[{i}]", key, why))


def check_tolerations(found: Found, tolerations: list[Part], path: str) -> None:
    for i, toleration in enumerate(tolerations):
        _check_toleration(found, toleration, f"{path}[{i}]")


def _check_toleration(found: Found, toleration: Part, where: str) -> None:
    key, value = toleration.get("key", ""), toleration.get("value", "")
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    if key:
        check_key(found, key, f"{where}.key")
    elif operator != "Exists":
        found.append(field_problem(INVALID, f"{where}.operator", operator, _NO_KEY))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(field_problem(INVALID, f"{where}.effect", effect, why))
    if operator in ("Equal", ""):
        problems = label_value(value)
        if problems:
            found.append(field_problem(INVALID, f"{where}.operator", value, ";".join(problems)))
    elif operator == "Exists":
        if value:
            why = "value must be empty when `operator` is 'Exists'"
            found.append(field_problem(INVALID, f"{where}.operator", value, why))
    elif operator in ("Lt", "Gt"):
        allowed = ("Equal", "Exists", "Lt", "Gt")
        found.append(not_supported(f"{where}.operator", operator, allowed))
    else:
        found.append(not_supported(f"{where}.operator", operator, ("Equal", "Exists")))
    if effect and effect not in _EFFECTS:
        found.append(not_supported(f"{where}.effect", effect, _EFFECTS))


def check_spread(found: Found, constraints: list[Part], path: str) -> None:
    last = {
        (each.get("topologyKey"), each.get("whenUnsatisfiable")): i
        for i, each in enumerate(constraints)
    }
    for i, constraint in enumerate(constraints):
        where = f"{path}[{i}]"
        skew = constraint.get("maxSkew", 0)
        if skew <= 0:
            found.append(field_problem(INVALID, f"{where}.maxSkew", skew, "must be greater than zero"))
        key, action = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
        if not key:
            found.append(field_problem(REQUIRED, f"{where}.topologyKey", detail="can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            allowed = ("DoNotSchedule", "ScheduleAnyway")
            found.append(not_supported(f"{where}.whenUnsatisfiable", action, allowed))
        if last.get((key, action), i) > i:
            place = f"{where}.{{topologyKey, whenUnsatisfiable}}"
            found.append(field_problem(DUPLICATE, place, f"{{{key}, {action}}}"))
        _check_domains(found, constraint, where, action)
        _check_match_keys(found, constraint, where)
        check_label_selector(found, constraint.get("labelSelector"), f"{where}.labelSelector")


def _check_domains(found: Found, constraint: Part, where: str, action: str) -> None:
    domains = constraint.get("minDomains")
    if domains is not None:
        if domains <= 0:
            why = "must be greater than zero"
            found.append(field_problem(INVALID, f"{where}.minDomains", domains, why))
        if action != "DoNotSchedule":
            why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            found.append(field_problem(INVALID, f"{where}.minDomains", domains, why))
    for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        policy = constraint.get(field)
        if policy is not None and policy not in ("Honor", "Ignore"):
            found.append(not_supported(f"{where}.{field}", policy, ("Honor", "Ignore")))


def check_taints(found: Found, taints: list[Part], path: str) -> None:
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        where = f"{path}[{i}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        check_key(found, key, f"{where}.key")
        problems = label_value(taint.get("value", ""))
        if problems:
            found.append(
                field_problem(INVALID, f"{where}.value", taint.get("value"), ";".join(problems))
            )
        if not effect:
            found.append(field_problem(REQUIRED, f"{where}.effect"))
        elif effect not in _EFFECTS:
            found.append(not_supported(f"{where}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            problem = field_problem(DUPLICATE, where, taint)
            why = "taints must be unique by key and effect pair"
            found.append(FieldError(problem.reason, where, f"{problem.message}: {why}"))
        seen.add((key, effect))
