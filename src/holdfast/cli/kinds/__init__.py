"""What `holdfast get` and `describe` show: a class for each type, and a line in the table here.

    kind                   columns and description of a type; how objects are found
    reservations           Reservations, and among them starvation holds
    reservation_schedules  ReservationSchedules
    pods                   pods with the reservation that each uses
    nodes                  requested, reserved and free amounts of each node
    podgroups              PodGroups
    pending                pending pods and reservations in scheduling order
    queues                 Queues

A class is imported when it is used: not all of them need a scheduler.
"""

from importlib import import_module
from typing import NamedTuple

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import HOLD_LABEL, HOLDFAST_API, RESERVATION_API, VOLCANO_API
from holdfast.api.similar_names import did_you_mean
from holdfast.cli.kinds.kind import OutputKind
from holdfast.cli.options import Failure


class _Type(NamedTuple):
    module: str
    class_name: str
    aliases: tuple[str, ...]
    info: KindInfo
    selector: str = ""
    fields: str = ""


_POD, _RESERVATION = KINDS["v1", "Pod"], KINDS[RESERVATION_API, "Reservation"]
_TYPES = {
    "reservations": _Type(
        "reservations",
        "ReservationKind",
        (),
        _RESERVATION,
    ),
    "holds": _Type("reservations", "HoldKind", ("hold",), _RESERVATION, HOLD_LABEL),
    "reservationschedules": _Type(
        "reservation_schedules",
        "ScheduleKind",
        ("schedules", "schedule"),
        KINDS[HOLDFAST_API, "ReservationSchedule"],
    ),
    "pods": _Type("pods", "PodOutputKind", (), _POD),
    "nodes": _Type("nodes", "NodeKind", (), KINDS["v1", "Node"]),
    "podgroups": _Type("podgroups", "PodGroupKind", ("pg",), KINDS[VOLCANO_API, "PodGroup"]),
    "queue": _Type("pending", "PendingObject", ("pending",), _POD, fields="spec.nodeName="),
    "queues": _Type("queues", "QueueKind", (), KINDS[VOLCANO_API, "Queue"]),
}
"""By title: the class, what else users may call it, and its objects on the server."""


def find_kind(name: str) -> OutputKind:
    """Raises Failure."""
    found = _find(name)
    kind: OutputKind = getattr(import_module(f"{__name__}.{found.module}"), found.class_name)()
    return kind


def find_resource(name: str) -> tuple[KindInfo, str, str]:
    """The kind on the server, and the label and field selectors of the type. Raises Failure."""
    found = _find(name)
    return found.info, found.selector, found.fields


def titles() -> list[str]:
    return list(_TYPES)


def _find(name: str) -> _Type:
    known = _names()
    title = known.get(name.lower())
    if title is None:
        likely = [alias for alias in known if len(alias) > 2 and ("." in name or "." not in alias)]
        hint = did_you_mean(name, likely, f"known: {', '.join(_TYPES)}")
        raise Failure(1, [f'unknown resource type "{name}"{hint}'])
    return _TYPES[title]


def _names() -> dict[str, str]:
    """The title for each name that a user may give: as kubectl takes it, or an alias of ours. `queue`
    is one of ours: what is pending."""
    found = {
        alias: title
        for title, each in _TYPES.items()
        if not (each.selector or each.fields)
        for alias in each.info.command_names
    }
    return found | {alias: title for title, each in _TYPES.items() for alias in (title, *each.aliases)}
