"""Metrics of reservations over time: hours held and used, planned reservations, starts and late starts.

Hours are amounts times time: the amounts change with rounds, so they are added up from round to round,
and at every scrape. Of many reservations, the amounts are read again only some seconds later.
Starvation holds and preemption holds are not counted.
"""

from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.api.names import CPU, MEMORY
from holdfast.api.reservation_schedules import KIND as SCHEDULE
from holdfast.metrics.cluster_metrics import Counter
from holdfast.scheduler.cluster.records import ReservationInfo
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.scheduler.state.cluster import Cluster

IN_TIME, LATE = "in time", "late"
OTHER_SCHEDULES = "other"
_MOST_SCHEDULES = 200
"""Reservations of further schedules are counted together."""
_MANY = 500
_READ_AGAIN = 5.0
"""Seconds until amounts are read again if there are many reservations."""
_HOUR = 3600.0
_UNITS = {CPU: 1000, MEMORY: 1024**3}
"""How much of a resource is 1 in metrics: cores and GiB."""
_STATES = ("planned", "draining", "no node")
_FEASIBLE = ("True", "Unknown", "False")

Rates = dict[tuple[str, str], tuple[float, float]]
"""Amounts held and used, by schedule and resource."""


class CalendarFigures:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        labels = ("schedule", "resource")
        about = "of user-created reservations that are Available, by ReservationSchedule (empty: none)"
        self._held = Counter(
            "holdfast_reservation_held_hours_total",
            f"Resource-hours reserved {about}: core-hours, GiB-hours, or hours of one unit.",
            labels,
        )
        self._used = Counter(
            "holdfast_reservation_used_hours_total",
            f"Resource-hours used by owners {about}: core-hours, GiB-hours, or hours of one unit.",
            labels,
        )
        self._starts = Counter(
            "holdfast_reservation_starts_total",
            "Number of reservations whose start was reached: in time if Available then, late if not.",
            ("result",),
        )
        for result in (IN_TIME, LATE):
            self._starts.add((result,), 0)
        self._rates: Rates = {}
        self._until: float | None = None
        """The time until which hours are counted."""
        self._read_at = -_READ_AGAIN
        self._seen: tuple[int, ...] = ()
        self._schedules: set[str] = set()
        self._planned: dict[str, PlannedReservation] = {}
        self._calendar_revision = -1

    def round_done(self) -> None:
        self._count_starts()
        self._add_hours()
        many = len(self._cluster.reservations.known) > _MANY
        if not many or self._cluster.now >= self._read_at + _READ_AGAIN:
            self._read()

    def collect(self) -> Iterator[Metric]:
        self._add_hours()
        self._read()
        for figure in (self._held, self._used, self._starts):
            yield figure.family()
        planned = GaugeMetricFamily(
            "holdfast_planned_reservations",
            "Number of reservations that have not started, by the state of the plan and its condition "
            "Feasible.",
            labels=["state", "feasible"],
        )
        calendar = self._cluster.reservations.calendar
        counts = Count((_state(each), each.feasible) for each in calendar)
        for state in _STATES:
            for feasible in _FEASIBLE:
                planned.add_metric([state, feasible], counts[state, feasible])
        yield planned

    # Hours

    def _add_hours(self) -> None:
        now, until = self._cluster.now, self._until
        self._until = now if until is None else max(now, until)
        if until is None or now <= until:
            return
        hours = (now - until) / _HOUR
        for labels, (held, used) in self._rates.items():
            self._held.add(labels, held * hours)
            self._used.add(labels, used * hours)

    def _read(self) -> None:
        """Reads the amounts again if reservations or their use changed."""
        epoch = self._cluster.epoch
        seen = epoch.usage.end, epoch.reservations.end, epoch.objects
        if seen == self._seen:
            return
        self._seen, self._read_at = seen, self._cluster.now
        slots, table = self._cluster.nodes.slots, self._cluster.ledger.reservations
        holds = self._cluster.reservations.starvation_holds
        rates: Rates = {}
        for reservation in self._cluster.reservations.known.values():
            entry = table.get(reservation.uid)
            if entry is None or reservation.waiting or reservation.virtual or reservation.preemptor:
                continue
            if reservation in holds:
                continue
            schedule = self._schedule(reservation)
            for slot, amount in entry.named:
                name = slots.name(slot)
                unit = _UNITS.get(name, 1)
                held, used = rates.get((schedule, name), (0.0, 0.0))
                taken = min(entry.taken.get(slot, 0), amount)
                rates[schedule, name] = held + amount / unit, used + taken / unit
        for labels in rates.keys() - self._held.values.keys():
            self._held.add(labels, 0)
            self._used.add(labels, 0)
        self._rates = rates

    def _schedule(self, reservation: ReservationInfo) -> str:
        for owner in reservation.object.metadata.owner_references:
            if owner.kind == SCHEDULE and owner.controller:
                if owner.name not in self._schedules and len(self._schedules) >= _MOST_SCHEDULES:
                    return OTHER_SCHEDULES
                self._schedules.add(owner.name)
                return owner.name
        return ""

    # Starts

    def _count_starts(self) -> None:
        """Counts the reservations that have left the calendar because they started."""
        calendar = self._cluster.reservations.calendar
        if calendar.revision == self._calendar_revision:
            return
        self._calendar_revision = calendar.revision
        current = {each.reservation.uid: each for each in calendar}
        for uid, planned in self._planned.items():
            reservation = planned.reservation
            if uid not in current and reservation.started and uid in self._cluster.reservations.known:
                entry = self._cluster.ledger.reservations.get(uid)
                is_free = entry is not None and not reservation.waiting
                self._starts.add((IN_TIME if is_free or reservation.finished else LATE,))
        self._planned = current


def _state(planned: PlannedReservation) -> str:
    if not planned.node:
        return "no node"
    return "draining" if planned.draining else "planned"
