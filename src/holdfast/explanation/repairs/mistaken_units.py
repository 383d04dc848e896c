"""Requests in a mistaken unit: 250 CPUs for 250m, 64Gi for 64Mi, where no node is nearly
that large."""

import copy
import re
from collections.abc import Iterator

from holdfast.api.names import CPU, MEMORY
from holdfast.api.quantity import amount
from holdfast.explanation.facts.capacity import largest
from holdfast.explanation.repairs.pod_sizes import SMALLEST_SHARE, parts_of
from holdfast.explanation.repairs.repair import Repair, repair, spec_changes
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]*)")
_SMALLER = {
    CPU: {"": "m"},
    MEMORY: {"Pi": "Ti", "Ti": "Gi", "Gi": "Mi", "P": "T", "T": "G", "G": "M"},
}
"""By resource and unit, the next smaller one."""
_LEAST_MILLICPU, _LEAST_RESERVED_MILLICPU = 10, 100
"""Few pods request less, and few reservations, so that a smaller number is one of CPUs."""


def mistaken_units(snapshot: ClusterSnapshot, pod: PodRecord) -> dict[str, tuple[str, str]]:
    """By resource, the quantity of a container that no node comes near, and the same number in the
    largest unit with which one does."""
    subject = Subject.of(pod)
    raw = subject.raw(snapshot)
    is_reservation = subject.info is RESERVATION
    template = (raw.get("spec") or {}).get("template") or {} if is_reservation else raw
    least = _LEAST_RESERVED_MILLICPU if is_reservation else _LEAST_MILLICPU
    parts = parts_of(copy.deepcopy(template.get("spec") or {}))
    slots, found = snapshot.cluster.nodes.slots, dict[str, tuple[str, str]]()
    for slot, asked in pod.cls.requests:
        name, most = slots.name(slot), largest(snapshot, slot)
        if name not in _SMALLER or not most or asked <= most * SMALLEST_SHARE:
            continue
        for part in parts:
            for field in ("requests", "limits"):
                text = str((part.resources.get(field) or {}).get(name, "0"))
                if amount(name, text) > most and (near := _near(name, text, most, least)):
                    found.setdefault(name, (text, near))
    return found


def _near(name: str, text: str, most: int, least_millicpu: int) -> str:
    written = _QUANTITY.fullmatch(text)
    if written is None:
        return ""
    number, unit = written.groups()
    if name == CPU and float(number) < least_millicpu:
        return ""
    while (unit := _SMALLER[name].get(unit, "")) != "":
        if amount(name, number + unit) <= most:
            return number + unit
    return ""


def unit_hint(snapshot: ClusterSnapshot, pod: PodRecord, name: str) -> str:
    """`; did you mean 250m?`"""
    _, near = mistaken_units(snapshot, pod).get(name, ("", ""))
    return f"; did you mean {near}?" if near else ""


def corrected_units(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    for name, (wrong, right) in mistaken_units(snapshot, pod).items():
        objects = spec_changes(snapshot, subject, lambda spec: _with(spec, name, wrong, right))  # noqa: B023
        text = f"request {right} {name} instead of {wrong}, if the unit is wrong"
        yield repair(text, "CorrectUnit", objects)


def _with(spec: Raw, name: str, wrong: str, right: str) -> Raw:
    """The containers with one quantity of a resource in place of another."""
    fields = [each for each in ("containers", "initContainers") if spec.get(each)]
    found: Raw = copy.deepcopy({each: spec[each] for each in fields})
    for part in parts_of(found):
        for field in ("requests", "limits"):
            amounts = part.resources.get(field) or {}
            if str(amounts.get(name)) == wrong:
                amounts[name] = right
    return found
