"""Asking the scheduler again, with a pod or nodes changed: advice is given only if it would help.

The scheduler is that of a picture, which decides nothing. What was changed is put back.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.api.affinity import Taint, Toleration
from holdfast.api.decode import convert
from holdfast.api.node import Node
from holdfast.cli.asking.picture import Picture
from holdfast.cli.asking.server import NODE, Raw
from holdfast.cli.explaining.placing import Placing
from holdfast.core.classes import Traits
from holdfast.core.events import Updated
from holdfast.core.pods import PodRecord


def eligible_with_tolerations(
    picture: Picture, pod: PodRecord, placing: Placing, taints: Iterable[Taint]
) -> set[str]:
    """The nodes that pass every filter once the pod tolerates these taints."""
    added = [
        Toleration(key=taint.key, operator="Equal", value=taint.value or "", effect=taint.effect)
        for taint in taints
    ]
    cls, classes = pod.cls, picture.cluster.classes
    given = cls.pod
    metadata = msgspec.structs.replace(given.metadata, name=pod.name, uid=pod.uid)
    spec = msgspec.structs.replace(given.spec, tolerations=[*given.spec.tolerations, *added])
    traits = Traits(
        cls.private, cls.promised_to, cls.wants_node, cls.alone, cls.ahead, cls.priority, cls.spared
    )
    changed = classes.acquire(msgspec.structs.replace(given, metadata=metadata, spec=spec), traits)
    pod.cls = changed
    try:
        return _eligible(picture, pod, placing)
    finally:
        pod.cls = cls
        classes.release(changed)


def eligible_on_changed_nodes(
    picture: Picture,
    pod: PodRecord,
    placing: Placing,
    names: Iterable[str],
    change: Callable[[str, Raw], Raw],
) -> set[str]:
    """Of these nodes, those that pass every filter once each is changed."""
    given = {name: raw for name in names if (raw := picture.find(NODE, name)) is not None}
    try:
        for name, raw in given.items():
            picture.scheduler.feed(Updated(convert(change(name, raw), Node)), picture.now)
        return _eligible(picture, pod, placing) & given.keys()
    finally:
        for raw in given.values():
            picture.scheduler.feed(Updated(convert(raw, Node)), picture.now)


def _eligible(picture: Picture, pod: PodRecord, placing: Placing) -> set[str]:
    cycle = picture.scheduler.cycle
    column = cycle.column(placing.profile, pod.cls)
    blames = cycle.blames(placing.profile, pod, column)
    return {name for name, blame in blames.items() if not blame.texts}


def uncordoned(taint: str) -> Callable[[str, Raw], Raw]:
    """Without `spec.unschedulable`, and the taint that goes with it."""

    def change(_: str, raw: Raw) -> Raw:
        spec: dict[str, Any] = {**(raw.get("spec") or {}), "unschedulable": False}
        spec["taints"] = [each for each in spec.get("taints") or () if each.get("key") != taint]
        return {**raw, "spec": spec}

    return change


def enlarged(missing: dict[str, dict[str, int]]) -> Callable[[str, Raw], Raw]:
    """With that much more to allocate, by node and resource; cpu is in thousandths."""

    def change(name: str, raw: Raw) -> Raw:
        status = raw.get("status") or {}
        allocatable = {
            **(status.get("allocatable") or {}),
            **{
                resource: f"{amount}m" if resource == "cpu" else str(amount)
                for resource, amount in missing[name].items()
            },
        }
        return {**raw, "status": {**status, "allocatable": allocatable}}

    return change
