"""Requests in a mistaken unit: 250 CPUs for 250m, 64Gi for 64Mi, where no node is nearly that large, or
the capability of the queue is not. The API server stores quantities in their shortest form: 2000 CPUs
as 2k."""

import copy
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.api.names import CPU, MEMORY
from holdfast.api.quantity import amount, format_amount
from holdfast.explanation.facts.capacity import largest, largest_for
from holdfast.explanation.repairs.pod_sizes import SMALLEST_SHARE, parts_of
from holdfast.explanation.repairs.repair import Repair, repair, spec_changes
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot

_BYTES = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]+)")
_SMALLER = {"Pi": "Ti", "Ti": "Gi", "Gi": "Mi", "P": "T", "T": "G", "G": "M"}
"""By unit of bytes, the next smaller one."""
_STORED = (MEMORY, "ephemeral-storage")
_LEAST_MILLICPU, _LEAST_LIKELY_MILLICPU = 10, 100
"""Few pods request less; few reservations request less than the second, which also is for requests that
a node is large enough for, so that a smaller number is one of CPUs."""

UNIT = "CorrectUnit"
"""The action of a change of units."""


class MistakenUnit(NamedTuple):
    wrong: str
    """The quantity that is far too large, as its author may have written it."""
    right: str
    """The same number in the largest unit with which it is not, or nearly not."""
    is_limit: bool
    """Whether only limits have it."""


def mistaken_units(snapshot: ClusterSnapshot, pod: PodRecord) -> dict[str, dict[int, MistakenUnit]]:
    """By resource, the amounts of containers that no node, or its queue, comes near: requests, and
    limits."""
    subject = Subject.of(pod)
    raw = subject.raw(snapshot)
    is_reservation = subject.info is RESERVATION
    template = (raw.get("spec") or {}).get("template") or {} if is_reservation else raw
    given = _resources(copy.deepcopy(template.get("spec") or {}))
    found = dict[str, dict[int, MistakenUnit]]()
    for slot, asked in pod.cls.requests:
        name, most = snapshot.cluster.nodes.slots.name(slot), largest_for(snapshot, pod, slot)
        if not most or max(asked, pod.cls.limits.of(name)) <= most * SMALLEST_SHARE:
            continue
        for field, amounts in given:
            text = str(amounts.get(name, "0"))
            size = amount(name, text)
            is_likely = is_reservation or size <= largest(snapshot, slot)
            least = _LEAST_LIKELY_MILLICPU if is_likely else _LEAST_MILLICPU
            if size > most and (near := _near(name, text, size, most, least)) is not None:
                units = found.setdefault(name, {})
                is_limit = field == "limits" and (size not in units or units[size].is_limit)
                units[size] = MistakenUnit(*near, is_limit)
    return found


def _resources(spec: Raw) -> list[tuple[str, Raw]]:
    """The requests and limits of the containers, and of the pod as a whole; the requests first."""
    parts = [*(part.resources for part in parts_of(spec)), spec.get("resources") or {}]
    return [
        (field, each[field]) for field in ("requests", "limits") for each in parts if each.get(field)
    ]


def _near(name: str, text: str, size: int, most: int, least_millicpu: int) -> tuple[str, str] | None:
    """The quantity as it is and as it may be meant."""
    if name == CPU:
        number, rest = divmod(size, 1000)
        is_near = not rest and least_millicpu <= number <= most * SMALLEST_SHARE
        return (format_amount(name, size), f"{number}m") if is_near else None
    written = _BYTES.fullmatch(text)
    if written is None or not (name in _STORED or name.startswith("hugepages-")):
        return None
    number_text, unit = written.groups()
    while (unit := _SMALLER.get(unit, "")) != "":
        if amount(name, number_text + unit) <= most:
            return text, number_text + unit
    return None


def unit_hint(snapshot: ClusterSnapshot, pod: PodRecord, name: str) -> str:
    """`; did you mean 250m?`"""
    first = next(iter(mistaken_units(snapshot, pod).get(name, {}).values()), None)
    return f"; did you mean {first.right}?" if first is not None else ""


def units_hint(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """`; did you mean 250m cpu and 1Gi memory?`"""
    found = mistaken_units(snapshot, pod).items()
    meant = [f"{next(iter(units.values())).right} {name}" for name, units in found]
    return f"; did you mean {' and '.join(meant)}?" if meant else ""


def corrected_units(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    """All of them at once: no node, or its queue, is large enough for any."""
    found = mistaken_units(snapshot, pod)
    texts: dict[str, list[str]] = {}
    for name, units in found.items():
        for unit in units.values():
            verb = "limit it to" if unit.is_limit else "request"
            texts.setdefault(verb, []).append(f"{unit.right} {name} instead of {unit.wrong}")
    if texts:
        objects = spec_changes(snapshot, subject, lambda spec: _with(spec, found))
        changes = " and ".join(f"{verb} {' and '.join(each)}" for verb, each in texts.items())
        yield repair(f"{changes}, if the unit is wrong", UNIT, objects)


def _with(spec: Raw, units: dict[str, dict[int, MistakenUnit]]) -> Raw:
    """The requests and limits with other quantities in place of these."""
    fields = [each for each in ("containers", "initContainers", "resources") if spec.get(each)]
    found: Raw = copy.deepcopy({each: spec[each] for each in fields})
    for _, amounts in _resources(found):
        for name in units.keys() & amounts.keys():
            unit = units[name].get(amount(name, amounts[name]))
            if unit is not None:
                amounts[name] = unit.right
    return found
