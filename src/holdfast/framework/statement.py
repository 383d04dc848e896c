"""Places taken for several pods, which are kept together or given back together."""

from holdfast.core.pods import PodRecord
from holdfast.framework.cycle import Cycle
from holdfast.framework.profile import Profile


class Statement:
    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._changes = cycle.cluster.changes
        self.placed: list[tuple[Profile, PodRecord]] = []

    def place(self, profile: Profile, pod: PodRecord) -> bool:
        """Takes the best place there is for the pod, if there is one."""
        cycle = self._cycle
        column = cycle.column(profile, pod.cls)
        row = cycle.find_row(profile, pod, column)
        if row < 0:
            return False
        cycle.draw(profile, pod, column, row)
        return self.put(profile, pod, row)

    def put(self, profile: Profile, pod: PodRecord, row: int) -> bool:
        """Takes a place on this row, where the pod fits."""
        if self._cycle.occupy(profile, pod, row) is not None:
            return False
        self.placed.append((profile, pod))
        return True

    def discard(self) -> None:
        """Everything is as it was before."""
        for profile, pod in reversed(self.placed):
            self._cycle.give_back(profile, pod)
        self.placed.clear()
        self._cycle.cluster.undo_changes(self._changes)

    def commit(self, now: float) -> None:
        """All of them are to be bound."""
        for profile, pod in self.placed:
            self._cycle.bind(profile, pod, now)
        self.placed.clear()
