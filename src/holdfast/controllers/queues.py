"""What queues say of themselves: their state, what they have, and how many jobs are where in them."""

from collections import Counter

import msgspec

from holdfast.api.jobs import QueueStatus
from holdfast.api.quantity import format_amount
from holdfast.controllers.podgroups import phase_of
from holdfast.core.cluster import Cluster
from holdfast.core.decisions import Decision, SetQueueStatus
from holdfast.core.jobs.queues import QueueRecord


class QueueStatuses:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queues = cluster.jobs.queues

    def run(self, now: float) -> list[Decision]:
        """Looks at those something happened in."""
        if not self._queues:
            return []
        self._queues.refresh()
        dirty, jobs = self._queues.dirty, self._cluster.jobs
        for name in jobs.dirty:
            if name in jobs.known and jobs.known[name].queue:
                dirty[jobs.known[name].queue] = None
        if not dirty:
            return []
        self._queues.dirty = {}
        phases: dict[str, Counter[str]] = {name: Counter() for name in dirty}
        for job in jobs.known.values():
            if job.group is not None and job.queue in phases:
                phases[job.queue][phase_of(job)] += 1
        decisions: list[Decision] = []
        for record in [self._queues.known[name] for name in dirty if name in self._queues.known]:
            status = self._status(record, phases[record.name])
            if status == record.object.status:
                record.told = None
            elif status != record.told:
                record.told = status
                decisions.append(SetQueueStatus(record.ref, status))
        return decisions

    def next_timer(self) -> float | None:
        return None

    def _status(self, record: QueueRecord, phases: Counter[str]) -> QueueStatus:
        slots = self._cluster.nodes.slots
        has = {slots.name(slot): amount for slot, amount in record.allocated.items()}
        return msgspec.structs.replace(
            record.object.status,
            state=_state(record, phases),
            allocated={name: format_amount(name, has[name]) for name in sorted(has) if name},
            pending=phases["Pending"],
            running=phases["Running"],
            inqueue=phases["Inqueue"],
            unknown=phases["Unknown"],
            completed=phases["Completed"],
        )


def _state(record: QueueRecord, phases: Counter[str]) -> str:
    """A queue that is being closed is closed once there are no jobs in it."""
    state = record.object.status.state or "Open"
    return "Closed" if state == "Closing" and not phases.total() else state
