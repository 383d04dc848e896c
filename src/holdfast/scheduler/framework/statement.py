"""Places taken for several pods, which are kept together or given back together."""

import numpy as np

from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.gang_permit import Unpermitted
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_cycle import Cycle


class Statement:
    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._changes = cycle.cluster.changes
        self.placed: list[tuple[Profile, PodRecord]] = []
        self.was_refused = False
        """Whether a plugin refused to reserve the place that was found last."""

    def place(self, profile: Profile, pod: PodRecord) -> bool:
        """Takes the best place there is for the pod, if there is one."""
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
        """The best row where the pod uses no reservation that is still to be made: members that waited
        for one would be bound later than the others, or never. -1 if there is none."""
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
        """Takes a place on this row, where the pod fits."""
        self.was_refused = self._cycle.occupy(profile, pod, row) is not None
        if self.was_refused:
            return False
        self.placed.append((profile, pod))
        return True

    def discard(self) -> None:
        """Everything is as it was before."""
        for profile, pod in reversed(self.placed):
            self._cycle.give_back(profile, pod)
        self.placed.clear()
        self._cycle.cluster.undo_changes(self._changes)

    def commit(self, now: float, says_ready: bool = False) -> Unpermitted | None:
        """All of them are to be bound. A job of which plugins do not permit as many as it needs is not
        bound at all, and everything is as it was before."""
        placed, self.placed = self.placed, []
        if placed and placed[0][1].job is None:
            for profile, pod in placed:
                self._cycle.bind(profile, pod, now)
            return None
        lost = self._cycle.gang_permit.bind(placed, now, says_ready)
        if lost is not None and len(lost.members) == len(placed):
            self._cycle.cluster.undo_changes(self._changes)
        return lost
