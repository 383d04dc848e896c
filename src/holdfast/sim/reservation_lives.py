"""What reservations reserve and how much of it is used, from their objects alone.

A reservation is *live* while it is Available or Waiting and has a node. Per resource:

    reserved            its status.allocatable
    used                what its owners use of that: min(status.allocated, reserved)
    held unused         kept from other pods: min(reserved - used, idle capacity of its node)
    occupied            the rest: still in use by pods that a Waiting reservation waits for

so that reserved = used + held unused + occupied. Where several reservations on a node claim more than
is idle, Available ones come first, then Waiting ones, each in order of creation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.api import names
from holdfast.api.meta import condition
from holdfast.api.reservation import Reservation, ReservationPhase, unused_for
from holdfast.api.resources import Amounts, amounts

USER, DYNAMIC, PREEMPTION, STARVATION, MIGRATION = KINDS = (
    "user",
    "dynamic",
    "preemption",
    "starvation",
    "migration",
)
"""Who made a reservation: a user, or the scheduler for a pod with a template, a preemptor, a starving
job or a migration."""

_LIVE = (ReservationPhase.AVAILABLE, ReservationPhase.WAITING)
_FINISHED = (ReservationPhase.SUCCEEDED, ReservationPhase.FAILED)
DELETED, RELEASED = "Deleted", "Released"
_MOST_STEPS = 400


def kind_of(reservation: Reservation) -> str:
    labels = reservation.metadata.labels
    if labels.get(names.HOLD_LABEL) == names.STARVATION:
        return STARVATION
    if names.PREEMPTOR_UID in labels:
        return PREEMPTION
    if names.MIGRATION_JOB in labels:
        return MIGRATION
    return DYNAMIC if names.RESERVATION_ID in labels else USER


@dataclass(slots=True)
class ReservedAmounts:
    """Amounts of one resource: of a moment, or multiplied by seconds."""

    reserved: float = 0.0
    used: float = 0.0
    unused: float = 0.0


@dataclass(frozen=True, slots=True)
class LifeStep:
    """A reservation from `t` on, until its next step."""

    t: float
    phase: str
    used: Amounts
    unused: Amounts


@dataclass(slots=True)
class ReservationLife:
    """A reservation from its creation to its end."""

    number: int
    name: str
    kind: str
    created: float
    phase: str = ReservationPhase.PENDING
    node: str = ""
    scheduled: float | None = None
    """When it first had a node."""
    ended: float | None = None
    end: str = ""
    """Succeeded, Expired and other reasons of a failure, Released (it was unused), or Deleted."""
    pods: int = 0
    """How many pods were bound through it in this run."""
    was_used: bool = False
    """Whether a pod ever used it."""
    reserved: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    unused: Amounts = field(default_factory=dict)
    seconds: dict[str, ReservedAmounts] = field(default_factory=dict)
    """Per resource, amounts multiplied by seconds."""
    steps: list[LifeStep] | None = None
    """Its history, if that is recorded."""
    since: float = 0.0

    @property
    def is_live(self) -> bool:
        return self.ended is None and self.phase in _LIVE and bool(self.node)

    @property
    def order(self) -> tuple[bool, int]:
        return (self.phase == ReservationPhase.WAITING, self.number)

    def advance(self, t: float) -> None:
        """Adds up what it had since it last changed."""
        passed = t - self.since
        if passed > 0 and self.reserved:
            for name, amount in self.reserved.items():
                total = self.seconds.get(name)
                if total is None:
                    total = self.seconds[name] = ReservedAmounts()
                total.reserved += amount * passed
                total.used += self.used.get(name, 0) * passed
                total.unused += self.unused.get(name, 0) * passed
        self.since = t

    def record(self, t: float) -> None:
        steps = self.steps
        if steps is None:
            return
        if steps and steps[-1].t == t:
            steps.pop()
        steps.append(
            LifeStep(t, self.phase if self.ended is None else self.end, self.used, self.unused)
        )
        if len(steps) > 2 * _MOST_STEPS:
            _thin_out(steps)


def _thin_out(steps: list[LifeStep]) -> None:
    """Keeps changes of phase and every second of the others."""
    steps[:] = [
        step
        for i, step in enumerate(steps)
        if i % 2 == 0 or i == len(steps) - 1 or step.phase != steps[i - 1].phase
    ]


class ReservationLives:
    """The lives of all reservations."""

    def __init__(self) -> None:
        self.lives: list[ReservationLife] = []
        self.records_steps = False
        self.held: dict[str, Amounts] = {kind: {} for kind in KINDS}
        """Per kind, what reservations hold unused now."""
        self._of: dict[str, ReservationLife] = {}
        """The lives that have not ended, by UID."""
        self._on: dict[str, dict[str, ReservationLife]] = {}
        """Live ones, by node and UID."""

    def on_node(self, node: str) -> Iterable[ReservationLife]:
        return self._on.get(node, {}).values()

    def has_any(self, node: str) -> bool:
        return node in self._on

    def put(self, reservation: Reservation, t: float) -> str:
        """Returns the node whose idle capacity is to be distributed again, if any."""
        uid, status = reservation.metadata.uid, reservation.status
        life = self._of.get(uid)
        if life is None:
            if status.phase in _FINISHED:
                return ""  # it had ended before the run began
            life = self._begin(reservation, t)
        life.was_used = life.was_used or bool(status.current_owners)
        if life.ended is not None:
            return ""
        life.advance(t)
        life.phase = status.phase or ReservationPhase.PENDING
        if status.node_name and life.scheduled is None:
            life.scheduled = t
        before, life.node = life.node, status.node_name or life.node
        if life.phase in _FINISHED:
            self._end(uid, life, _end_reason(reservation), t)
            return life.node
        if life.is_live:
            life.reserved = {
                n: a for n, a in amounts(status.allocatable).items() if a and n != names.PODS
            }
            allocated = amounts(status.allocated)
            life.used = {n: min(a, allocated.get(n, 0)) for n, a in life.reserved.items()}
            if before and before != life.node:
                self._leave(uid, before)
            self._on.setdefault(life.node, {})[uid] = life
        life.record(t)
        return life.node if life.is_live else ""

    def drop(self, uid: str, t: float) -> str:
        """The object no longer exists."""
        life = self._of.pop(uid, None)
        if life is None or life.ended is not None:
            return ""
        life.advance(t)
        self._end(uid, life, DELETED, t)
        return life.node

    def pod_bound(self, uid: str) -> None:
        """A pod was bound through the reservation with this UID."""
        life = self._of.get(uid)
        if life is not None:
            life.pods += 1
            life.was_used = True

    def distribute(self, node: str, idle: Amounts, t: float) -> None:
        """Computes what the reservations of the node hold unused; `idle` is what pods leave of it."""
        left = dict(idle)
        for life in sorted(self.on_node(node), key=lambda each: each.order):
            unused = {}
            for name, amount in life.reserved.items():
                wanted = amount - life.used.get(name, 0)
                part = max(0, min(wanted, left.get(name, 0)))
                left[name] = left.get(name, 0) - part
                unused[name] = part
            if unused != life.unused:
                life.advance(t)
                self._hold(life, unused)
                life.record(t)

    def close(self, t: float) -> None:
        """The run has ended."""
        for life in self._of.values():
            if life.ended is None:
                life.advance(t)

    def _begin(self, reservation: Reservation, t: float) -> ReservationLife:
        life = ReservationLife(
            len(self.lives), reservation.metadata.name, kind_of(reservation), t, since=t
        )
        if self.records_steps:
            life.steps = []
        self.lives.append(life)
        self._of[reservation.metadata.uid] = life
        return life

    def _end(self, uid: str, life: ReservationLife, reason: str, t: float) -> None:
        self._hold(life, {})
        life.reserved, life.used = {}, {}
        life.ended, life.end = t, reason
        if life.node:
            self._leave(uid, life.node)
        life.record(t)

    def _leave(self, uid: str, node: str) -> None:
        there = self._on.get(node)
        if there is not None:
            there.pop(uid, None)
            if not there:
                del self._on[node]

    def _hold(self, life: ReservationLife, unused: Amounts) -> None:
        held = self.held[life.kind]
        for name, amount in life.unused.items():
            held[name] = held.get(name, 0) - amount
        for name, amount in unused.items():
            held[name] = held.get(name, 0) + amount
        life.unused = unused


def _end_reason(reservation: Reservation) -> str:
    if reservation.status.phase == ReservationPhase.SUCCEEDED:
        return str(ReservationPhase.SUCCEEDED)
    ready = condition(reservation.status.conditions, "Ready")
    if ready is not None and unused_for(ready.message):
        return RELEASED
    return (ready.reason if ready is not None else "") or str(ReservationPhase.FAILED)


# Figures


def reservation_figures(
    lives: Iterable[ReservationLife], capacity: Mapping[str, float]
) -> dict[str, Any]:
    """`capacity` is that of all nodes, per resource, multiplied by seconds."""
    total = list(lives)
    kinds = {kind: found for kind in KINDS if (found := [each for each in total if each.kind == kind])}
    return {
        **_figures(total, capacity),
        "kinds": {kind: _figures(found, capacity) for kind, found in kinds.items()},
    }


def _figures(lives: list[ReservationLife], capacity: Mapping[str, float]) -> dict[str, Any]:
    used = sum(each.was_used for each in lives)
    missed = sum(not each.was_used and each.ended is not None for each in lives)
    return {
        "created": len(lives),
        "scheduled": sum(each.scheduled is not None for each in lives),
        "live": sum(each.is_live for each in lives),
        "used": used,
        "missed": missed,
        "hitRate": round(used / (used + missed), 6) if used + missed else None,
        "podsBound": sum(each.pods for each in lives),
        "held": _held(lives, capacity),
    }


def _held(
    lives: list[ReservationLife], capacity: Mapping[str, float]
) -> dict[str, dict[str, float | None]]:
    totals: dict[str, ReservedAmounts] = {}
    for life in lives:
        for name, seconds in life.seconds.items():
            total = totals.setdefault(name, ReservedAmounts())
            total.reserved += seconds.reserved
            total.used += seconds.used
            total.unused += seconds.unused
    return {
        name: {
            "reserved": hours(name, total.reserved),
            "used": hours(name, total.used),
            "unused": hours(name, total.unused),
            "unusedShare": round(total.unused / total.reserved, 6) if total.reserved else 0.0,
            "capacityShare": round(total.unused / capacity[name], 6) if capacity.get(name) else None,
        }
        for name, total in sorted(totals.items())
    }


def hours(resource: str, amount_seconds: float) -> float:
    """Resource-hours: of cores for cpu, of bytes for memory, of the unit of others."""
    return round(amount_seconds / (3_600_000 if resource == names.CPU else 3600), 6)
