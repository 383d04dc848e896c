"""What `holdfast get` and `describe` show: a class for each kind, and a line in the table here.

    kind          columns and description of a kind
    reservations  Reservations, and among them starvation holds
    nodes         requested, reserved and free amounts of each node
    queues        Queues; pending pods and reservations in scheduling order

A kind is imported when it is used: not all of them need a scheduler.
"""

from difflib import get_close_matches
from importlib import import_module

from holdfast.cli.kinds.kind import OutputKind
from holdfast.cli.options import Failure

_KINDS = {
    "reservations": (
        "reservations",
        "ReservationKind",
        ("reservation", "rsv", "reservations.scheduling.koordinator.sh"),
    ),
    "holds": ("reservations", "HoldKind", ("hold",)),
    "nodes": ("nodes", "NodeKind", ("node", "no")),
    "queue": ("queues", "PendingObject", ()),
    "queues": ("queues", "QueueKind", ("q", "queues.scheduling.volcano.sh")),
}
"""By title: the module, the class, and what else users may call it."""


def find_kind(name: str) -> OutputKind:
    """Raises Failure."""
    wanted = name.lower()
    known = {alias: title for title, (_, _, aliases) in _KINDS.items() for alias in (title, *aliases)}
    title = known.get(wanted)
    if title is None:
        close = get_close_matches(wanted, known, n=1)
        hint = f"did you mean {known[close[0]]}?" if close else f"known: {', '.join(_KINDS)}"
        raise Failure(1, [f'unknown resource type "{name}"; {hint}'])
    module, class_name, _ = _KINDS[title]
    kind: OutputKind = getattr(import_module(f"{__name__}.{module}"), class_name)()
    return kind


def titles() -> list[str]:
    return list(_KINDS)
