"""A transaction over several placements: pods are assumed one by one, and then all bound or all
unassumed (Volcano's Statement)."""

import numpy as np

from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.gang_permit import Unpermitted
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_cycle import Cycle


class Statement:
    """Assumes pods one by one; `commit` binds them, `discard` undoes them."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._changes = cycle.cluster.changes
        self.placed: list[tuple[Profile, PodRecord]] = []
        self.was_refused = False
        """Whether `reserve` of a plugin refused the last placement."""

    def place(self, profile: Profile, pod: PodRecord) -> bool:
        """Assumes the pod on its best node, if there is a feasible one."""
        cycle = self._cycle
        column = cycle.column(profile, pod.cls)
        self.was_refused = False
        row = cycle.find_row(profile, pod, column)
        if row < 0:
            cycle.note_failure(pod, column)
            return False
        cycle.nominate_reservation(profile, pod, column, row)
        if pod.reservation_uid in cycle.cluster.virtuals.by_id:
            row = self._apart_from_virtuals(profile, pod, column)
            if row < 0:
                return False
        return self.put(profile, pod, row)

    def _apart_from_virtuals(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> int:
        """The best row where the pod is not allocated from a reservation that is yet to be created:
        members that wait for one would be bound after the others, or never. -1 if there is none."""
        cluster = self._cycle.cluster
        pod.reservation_uid = ""
        if cluster.nominator or pod.pinned_node is not None:
            return -1
        apart = np.ones(cluster.nodes.size, dtype=np.bool_)
        for virtual in cluster.virtuals.by_id.values():
            if column.reservation_uid(virtual.row) == virtual.id:
                apart[virtual.row] = False
        row = column.best_of(apart)
        if row >= 0:
            self._cycle.nominate_reservation(profile, pod, column, row)
        return row

    def put(self, profile: Profile, pod: PodRecord, row: int) -> bool:
        """Assumes the pod on this row, where it fits."""
        self.was_refused = self._cycle.assume(profile, pod, row) is not None
        if self.was_refused:
            return False
        self.placed.append((profile, pod))
        return True

    def discard(self) -> None:
        """Undoes all placements."""
        for profile, pod in reversed(self.placed):
            self._cycle.unassume(profile, pod)
        self.placed.clear()
        self._cycle.cluster.undo_changes(self._changes)

    def commit(self, now: float, reports_ready: bool = False) -> Unpermitted | None:
        """Binds all pods. If plugins permit fewer pods of a job than it needs, none is bound and all
        placements are undone."""
        placed, self.placed = self.placed, []
        if placed and placed[0][1].job is None:
            for profile, pod in placed:
                self._cycle.bind(profile, pod, now)
            return None
        lost = self._cycle.gang_permit.bind(placed, now, reports_ready)
        if lost is not None and len(lost.members) == len(placed):
            self._cycle.cluster.undo_changes(self._changes)
        return lost
