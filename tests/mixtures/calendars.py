"""Reservations with a start, added to a life: plans, gangs of them, schedules, estimates, edits.

It draws from random numbers of its own, so that the life without them stays the same.
"""

import copy

from holdfast.api.times import format_time, parse_time
from mixtures import actors
from mixtures.making import SIM, Making, Raw, annotate, label

BEGIN = parse_time("2026-01-01T00:00:00Z")
_SCHEDULES = "scheduling.holdfast.io/v1alpha1"
_GANG = "gang.scheduling.koordinator.sh/"
_EVERY = ("* * * * *", "*/2 * * * *", "1-59/3 * * * *")


def add_calendar(making: Making) -> None:
    """Adds reservations with a start to a life that is complete otherwise."""
    _estimate(making)
    listed = [each for each in making.documents if each["kind"] == "Reservation"]
    for each in listed:
        if making.chance(0.4):
            _start_later(making, each)
    made = [actors.reservation(making) for _ in range(making.some(1, 4))]
    for each in made:
        _start_later(making, each)
    if making.chance(0.4):
        made += _gang(making)
    if making.chance(0.4):
        _schedule(making)
    for _ in range(making.some(0, 3)):
        making.pick(_EDITS)(making, making.pick(made))


def _estimate(making: Making) -> None:
    """Most pods that end say when; some are wrong."""
    for each in making.documents:
        annotations = each["metadata"].get("annotations") or {} if each["kind"] == "Pod" else {}
        runs = annotations.get(SIM + "runs-for")
        if runs and making.chance(0.6):
            seconds = int(runs.rstrip("s"))
            if making.chance(0.2):
                seconds = max(1, int(seconds * making.pick((0.5, 0.8, 1.5))))
            annotations["holdfast.io/run-estimate"] = f"{seconds}s"


def _starts(making: Making, after: int) -> str:
    return format_time(BEGIN + after + making.pick((0, 1, making.some(10, 120), making.some(30, 300))))


def _start_later(making: Making, reservation: Raw, starts: str = "") -> None:
    metadata, spec = reservation["metadata"], reservation["spec"]
    at = int(metadata.get("annotations", {}).get(SIM + "at", "0s").rstrip("s"))
    annotate(metadata, "holdfast.io/starts-at", starts or _starts(making, at))
    if making.chance(0.5):
        annotate(metadata, "holdfast.io/lead", f"{making.pick((0, 10, 30, 60, 400))}s")
    policy = making.pick(("", "", "Backfill", "Drain", "Preempt"))
    if policy:
        annotate(metadata, "holdfast.io/before-start", policy)
    if policy == "Preempt" and making.chance(0.7):
        spec["template"]["spec"]["priorityClassName"] = "high"
    if making.chance(0.2):
        annotate(metadata, "holdfast.io/release-if-unused-after", f"{making.some(5, 60)}s")
    if making.chance(0.3):
        annotate(metadata, "holdfast.io/at-end", making.pick(("Keep", "Evict")))
    if making.chance(0.8):
        spec["ttl"] = f"{making.some(20, 200)}s"


def _gang(making: Making) -> list[Raw]:
    """Reservations that start together, some of them in one zone."""
    name, size = making.name("cg"), making.some(2, 3)
    at = making.time(0.0, 0.5)
    starts, first = _starts(making, at), actors.reservation(making, at)
    first["spec"]["template"]["spec"].pop("nodeName", None)
    if making.chance(0.6):
        template = first["spec"]["template"]
        label(template.setdefault("metadata", {}), "calendar", name)
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"calendar": name}}}
        near = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        template["spec"].setdefault("affinity", {})["podAffinity"] = near
    annotate(first["metadata"], _GANG + "name", name)
    annotate(first["metadata"], _GANG + "min-available", str(size))
    _start_later(making, first, starts)
    members = [first]
    for _ in range(size - 1):
        other = copy.deepcopy(first)
        other["metadata"]["name"] = making.name("r")
        making.reservations.append(other["metadata"]["name"])
        making.documents.append(other)
        members.append(other)
    return members


def _schedule(making: Making) -> None:
    made = actors.reservation(making, 0)
    making.documents.remove(made)
    making.reservations.remove(made["metadata"]["name"])
    made["spec"].pop("ttl", None)
    annotations = {SIM + "at": f"{making.time(0.0, 0.4)}s"}
    spec: Raw = {
        "schedule": making.pick(_EVERY),
        "duration": f"{making.some(10, 80)}s",
        "template": {"spec": made["spec"]},
    }
    if making.chance(0.5):
        spec["lead"] = f"{making.pick((0, 10, 30))}s"
    if making.chance(0.5):
        spec["beforeStart"] = making.pick(("Backfill", "Drain", "Preempt"))
    if making.chance(0.4):
        spec["concurrencyPolicy"] = making.pick(("Allow", "Forbid", "Replace"))
    if making.chance(0.3):
        spec["historyLimit"] = making.some(0, 2)
    name = making.name("s")
    making.add(
        _SCHEDULES, "ReservationSchedule", name, metadata={"annotations": annotations}, spec=spec
    )
    if making.chance(0.4):
        suspend = {"spec": {"suspend": making.chance(0.7)}}
        target = {
            "kind": "ReservationSchedule",
            "apiVersion": _SCHEDULES,
            "name": name,
            "merge": suspend,
        }
        making.step(making.time(0.3, 0.9), patch=target)


# Edits


def _move_start(making: Making, reservation: Raw) -> None:
    at = making.time(0.1, 0.7)
    merge = {"metadata": {"annotations": {"holdfast.io/starts-at": _starts(making, at)}}}
    making.patch(at, "Reservation", reservation["metadata"]["name"], merge)


def _change_policy(making: Making, reservation: Raw) -> None:
    chosen = {
        "holdfast.io/before-start": making.pick(("Backfill", "Drain", "Preempt", None)),
        "holdfast.io/lead": making.pick(("0s", "20s", "5m", None)),
    }
    merge = {"metadata": {"annotations": chosen}}
    making.patch(making.time(0.1, 0.7), "Reservation", reservation["metadata"]["name"], merge)


def _delete(making: Making, reservation: Raw) -> None:
    making.delete(making.time(0.1, 0.9), "Reservation", reservation["metadata"]["name"])


def _restart(making: Making, reservation: Raw) -> None:
    making.step(making.time(0.05, 0.95), restart="scheduler")


_EDITS = (_move_start, _change_policy, _delete, _restart, _restart)
