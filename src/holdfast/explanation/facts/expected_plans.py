"""Reservations that start later and have no node yet: a round plans them before it places pods."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from holdfast.scheduler.jobs.node_forecast import planning_order
from holdfast.scheduler.reservations.calendar import FEASIBLE, PlannedReservation
from holdfast.snapshot.cluster_changes import applied, patch
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot


@contextmanager
def all_planned(
    snapshot: ClusterSnapshot, before: PlannedReservation | None = None, again: bool = False
) -> Iterator[None]:
    """Gives reservations that no scheduler has seen yet the nodes that the next round plans for them,
    until the end of the block; all, or those that are planned before one. With `again` also those for
    which it found no node, and that may have one now."""
    plans = sorted(snapshot.cluster.reservations.calendar, key=planning_order)
    if before is not None:
        plans = [each for each in plans if planning_order(each) < planning_order(before)]
    with ExitStack() as stack:
        for name in [each.reservation.name for each in plans]:
            planned, raw = _plan_of(snapshot, name), snapshot.find(RESERVATION, name)
            if planned is None or planned.node or raw is None or (raw.get("status") and not again):
                continue
            node = snapshot.scheduler.calendar_planner.questions.certain_node(planned)
            if node:
                conditions = [{"type": FEASIBLE, "status": "True"}]
                status = {"phase": "Pending", "nodeName": node, "conditions": conditions}
                stack.enter_context(applied(snapshot, [patch(RESERVATION, raw, {"status": status})]))
        yield


def _plan_of(snapshot: ClusterSnapshot, name: str) -> PlannedReservation | None:
    reservation = snapshot.cluster.reservations.get(name)
    calendar = snapshot.cluster.reservations.calendar
    return calendar.get(reservation.uid) if reservation is not None else None
