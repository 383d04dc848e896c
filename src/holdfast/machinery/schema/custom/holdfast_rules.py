"""The rules of Holdfast's own definitions, written out, for where there is no CEL library.

They are told by their messages, which are what users see; the texts of the rules are looked up in the
definitions. Every rule there has its function here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from holdfast.api.crds import definitions

Variables = dict[str, Any]
Rule = Callable[[Variables], bool]

_FIXED = ("preAllocation", "preAllocationPolicy", "allocateOnce", "allocatePolicy")
_FIXED_IN_TEMPLATE = (
    "nodeName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
    "priority",
    "schedulerName",
)


def own_rule(text: str) -> Rule | None:
    return _by_text().get(text)


@cache
def _by_text() -> dict[str, Rule]:
    return {
        rule["rule"]: _BY_MESSAGE[rule["message"]]
        for definition in definitions()
        for version in definition["spec"]["versions"]
        for rule in own_rules_in(version["schema"]["openAPIV3Schema"])
        if rule.get("message") in _BY_MESSAGE
    }


def own_rules_in(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations") or ()
        for part in schema.values():
            yield from own_rules_in(part)


def _one_end(variables: Variables) -> bool:
    return not ("ttl" in variables["self"] and "expires" in variables["self"])


def _has_containers(variables: Variables) -> bool:
    return "resources" in variables["self"] or bool(variables["self"].get("containers"))


def _keeps_policy(variables: Variables) -> bool:
    return _unplaced(variables) or _same(_specs(variables), _FIXED)


def _keeps_template(variables: Variables) -> bool:
    templates = [(spec.get("template") or {}).get("spec") or {} for spec in _specs(variables)]
    return _unplaced(variables) or _same(templates, _FIXED_IN_TEMPLATE)


def _unplaced(variables: Variables) -> bool:
    return not (variables["oldSelf"].get("status") or {}).get("nodeName")


def _specs(variables: Variables) -> list[dict[str, Any]]:
    return [variables[name].get("spec") or {} for name in ("oldSelf", "self")]


def _same(parts: list[dict[str, Any]], fields: tuple[str, ...]) -> bool:
    before, after = parts
    return all(
        (field in before) == (field in after) and before.get(field) == after.get(field)
        for field in fields
    )


_FIXED_ONCE = "are fixed once the reservation has a node"
_RESIZED = "only the resources of the template can be changed once the reservation has a node"
_BY_MESSAGE: dict[str, Rule] = {
    "expires cannot be given together with ttl; keep one of them": _one_end,
    "is required: at least one container, or resources of the pod as a whole": _has_containers,
    f"{', '.join(_FIXED[:-1])} and {_FIXED[-1]} {_FIXED_ONCE}": _keeps_policy,
    _RESIZED: _keeps_template,
}
