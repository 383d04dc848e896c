"""The CustomResourceDefinitions of the kinds that Kubernetes does not have by itself.

One YAML file each, with `{part: name}` where several share a piece of schema (`parts.yaml`, and
the pod template, which is generated). `definitions()` gives them whole, as an API server takes
them.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from holdfast.api.documents import write_yaml
from holdfast.api.errors import UnknownDefinition
from holdfast.api.similar_names import did_you_mean

Raw = dict[str, Any]

NAMES = (
    "reservations.scheduling.koordinator.sh",
    "podmigrationjobs.scheduling.koordinator.sh",
    "reservationschedules.scheduling.holdfast.io",
    "devices.scheduling.koordinator.sh",
    "noderesourcetopologies.topology.node.k8s.io",
    "podgroups.scheduling.volcano.sh",
    "podgroups.scheduling.sigs.k8s.io",
    "queues.scheduling.volcano.sh",
)
_OTHERWISE_NAMED = {
    "podgroups.scheduling.volcano.sh": "podgroups-volcano",
    "podgroups.scheduling.sigs.k8s.io": "podgroups-sigs",
}


def definitions(*names: str) -> list[Raw]:
    """The definitions with the given full name, plural, kind or short name; all without any."""
    if not names:
        return [definition(name) for name in NAMES]
    return [definition(name) for wanted in names for name in _matching(wanted)]


@cache
def definition(name: str) -> Raw:
    """One definition by its full name. Shared: callers must copy it before changing it."""
    loaded = _load(f"{_OTHERWISE_NAMED.get(name, name.partition('.')[0])}.yaml")
    whole: Raw = _resolve(loaded, {**_load("parts.yaml"), "podTemplate": _load("podTemplate.json")})
    return whole


def as_yaml(definitions: list[Raw]) -> str:
    """One stream, a document each."""
    return "".join("---\n" + write_yaml(each) for each in definitions)


def _matching(wanted: str) -> list[str]:
    found = []
    for name in NAMES:
        names = definition(name)["spec"]["names"]
        also = {names["plural"], names["singular"], names["kind"], *names.get("shortNames", ())}
        if wanted == name or wanted in also:
            found.append(name)
    if not found:
        plurals = {name.partition(".")[0]: name for name in NAMES}
        hint = did_you_mean(wanted, (*plurals, *NAMES), f"known: {', '.join(plurals)}")
        raise UnknownDefinition(f"no definition of {wanted!r}{hint}")
    return found


def _load(file: str) -> Raw:
    text = files(__name__).joinpath(file).read_text(encoding="utf-8")
    if file.endswith(".json"):
        read: Raw = json.loads(text)
        return read
    loaded: Raw = yaml.load(text, Loader=yaml.CSafeLoader)
    return loaded


def _resolve(value: Any, parts: Raw) -> Any:
    if isinstance(value, list):
        return [_resolve(item, parts) for item in value]
    if not isinstance(value, dict):
        return value
    own = {key: _resolve(inner, parts) for key, inner in value.items() if key != "part"}
    # `part` is text only where it is ours: a property of that name would be a schema.
    if isinstance(value.get("part"), str):
        return {**_resolve(parts[value["part"]], parts), **own}
    return own if "part" not in value else {**own, "part": _resolve(value["part"], parts)}
