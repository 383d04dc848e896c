"""What contradicts itself in a queue or a PodGroup, as Volcano's own admission sees it.

A queue is owed no more than it deserves (its guarantee), and deserves no more than it may have (its
capability). What a queue does not say is no limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.api.quantity import QuantityError, parse

Part = Mapping[str, Any]


class Contradiction(NamedTuple):
    path: tuple[str, ...]
    """Of the field to blame, from `spec` on."""
    value: Any
    message: str


def queue_contradictions(name: str, spec: Part) -> Iterator[Contradiction]:
    guarantee = _part(_part(spec, "guarantee"), "resource")
    deserved, capability = _part(spec, "deserved"), _part(spec, "capability")
    for resource, owed in guarantee.items():
        if resource in deserved and _exceeds(owed, deserved[resource]):
            text = _text("deserved", resource, deserved, ">=", "guarantee", guarantee)
            yield Contradiction(("spec", "deserved", resource), deserved[resource], text)
        elif resource in capability and _exceeds(owed, capability[resource]):
            text = _text("guarantee", resource, guarantee, "<=", "capability", capability)
            yield Contradiction(("spec", "guarantee", "resource", resource), owed, text)
    for resource, given in deserved.items():
        if resource in capability and _exceeds(given, capability[resource]):
            text = _text("deserved", resource, deserved, "<=", "capability", capability)
            yield Contradiction(("spec", "deserved", resource), given, text)
    if name and spec.get("parent") == name:
        yield Contradiction(("spec", "parent"), name, f"queue {name} cannot use itself as parent")


def group_contradictions(spec: Part) -> Iterator[Contradiction]:
    parts: list[tuple[tuple[str, ...], Part]] = [(("spec", "networkTopology"), spec)]
    policies = spec.get("subGroupPolicy")
    if isinstance(policies, list):
        parts += [
            (("spec", f"subGroupPolicy[{i}]", "networkTopology"), policy)
            for i, policy in enumerate(policies)
            if isinstance(policy, Mapping)
        ]
    for path, part in parts:
        topology = _part(part, "networkTopology")
        if topology.get("highestTierAllowed") is not None and topology.get("highestTierName"):
            text = "must not specify 'highestTierAllowed' and 'highestTierName' simultaneously"
            yield Contradiction(path, dict(topology), text)


def _part(part: Part, name: str) -> Part:
    found = part.get(name)
    return found if isinstance(found, Mapping) else {}


def _exceeds(one: Any, other: Any) -> bool:
    """What cannot be read is for others to complain of."""
    try:
        return parse(one) > parse(other)
    except (QuantityError, TypeError):
        return False


def _text(of: str, resource: str, own: Part, sign: str, than: str, other: Part) -> str:
    return f"{of}[{resource}]={own[resource]} must be {sign} {than}[{resource}]={other[resource]}"
