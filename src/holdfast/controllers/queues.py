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
        self._seen: object = None

    def run(self, now: float) -> list[Decision]:
        """Looks at all of them if anything happened in one."""
        if not self._queues or not (self._queues.dirty or self._cluster.jobs.dirty):
            return []
        self._queues.dirty = False
        self._queues.refresh()
        phases: dict[str, Counter[str]] = {}
        for job in self._cluster.jobs.known.values():
            if job.group is not None and job.queue:
                phases.setdefault(job.queue, Counter())[phase_of(job)] += 1
        decisions: list[Decision] = []
        for record in self._queues:
            status = self._status(record, phases.get(record.name, Counter()))
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
            state=record.object.status.state or "Open",
            allocated={name: format_amount(name, has[name]) for name in sorted(has) if name},
            pending=phases["Pending"],
            running=phases["Running"],
            inqueue=phases["Inqueue"],
            unknown=phases["Unknown"],
            completed=phases["Completed"],
        )
