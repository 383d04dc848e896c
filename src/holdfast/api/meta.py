"""The parts every API object shares: metadata, selectors, references, conditions.

All API structs are trees of plain values that refer to nothing above them, so they are kept
out of the garbage collector's sight (`gc=False`): with 50,000 pods in memory that is what keeps
collections short. Unknown fields are skipped, missing ones take their default. Lists and maps
default to empty; `None` is kept only where "not given" means something else than "empty".
"""

from __future__ import annotations

import msgspec
from msgspec import field

from holdfast.api.quantity import Quantity

ResourceList = dict[str, Quantity]
"""Resource name to quantity, as written in the object."""


class Struct(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """Base of every API type: snake_case in Python, camelCase on the wire."""


class FrozenStruct(
    msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False, frozen=True
):
    """The same for values that objects share with what is made from them."""


class OwnerReference(Struct):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: list[OwnerReference] = field(default_factory=list)
    finalizers: list[str] = field(default_factory=list)


class LabelSelectorRequirement(Struct):
    key: str = ""
    operator: str = ""
    values: list[str] = field(default_factory=list)


class LabelSelector(Struct):
    """Where a selector may be absent, absent matches nothing and empty matches everything."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: list[LabelSelectorRequirement] = field(default_factory=list)


class ObjectReference(Struct):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class Condition(Struct):
    """Conditions of pods, nodes, reservations and the rest; each kind uses some of the fields."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None
    last_probe_time: str | None = None
    last_heartbeat_time: str | None = None


class Object(Struct):
    """An object of the API server, with metadata."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


def condition(conditions: list[Condition], type: str) -> Condition | None:
    """The condition of that type, if there is one."""
    for each in conditions:
        if each.type == type:
            return each
    return None


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """The one owner that manages the object, if there is one."""
    return next((owner for owner in metadata.owner_references if owner.controller), None)
