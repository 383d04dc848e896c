"""Limits of queues for pods and for jobs: their capability, and the guarantees of other queues.

The capacity held for starving jobs of a queue counts as allocated, so that small jobs of the queue
cannot use up its capability forever. So do the requests of nominated pods, so that pods created in
place of their victims do not take the capability that the victims released.

Guarantees of other queues are kept free. A pod that is allocated from a reservation, and a reservation
that replaces a virtual one, use capacity that is claimed already: only what they request beyond that
must be free besides the guarantees.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.jobs.job import Job
from holdfast.scheduler.jobs.queues import QueueRecord, Queues
from holdfast.scheduler.reservations.reservation_cache import ReservationCache
from holdfast.scheduler.reservations.virtual_reservations import VirtualReservations

Pods = tuple[PodRecord, ...]


class QueueLimits:
    """Checks pods against the limits of their queue."""

    def __init__(
        self,
        cluster: ClusterBase,
        reservations: ReservationCache,
        virtuals: VirtualReservations,
        queues: Queues,
    ) -> None:
        self._cluster = cluster
        self._reservations = reservations
        self._virtuals = virtuals
        self._holds = reservations.starvation_holds
        self._queues = queues

    def admission_error(self, *pods: PodRecord) -> str:
        """Why the pods, all of one queue, may not be placed on any node now; empty if they may."""
        name = self._queues.of(pods[0])
        if not name and not self._queues:
            return ""
        if over := self._over_limit(name, pods):
            return over
        reservation = pods[0].reservation
        if reservation is not None and self._holds.knows(reservation):
            return ""  # the guarantees were checked for the pod the hold is for
        return self._takes_guaranteed(name, pods)

    def never_admissible(self, *pods: PodRecord) -> str:
        """Why the pods, all of one queue, may not be placed even if nodes were free; empty if they may
        then. Guarantees of other queues count only if they can never be met together with the pods."""
        name = self._queues.of(pods[0])
        if not name and not self._queues:
            return ""
        if over := self._over_limit(name, pods):
            return over
        nodes = self._cluster.nodes
        for slot, asked in _sum(pods).items():
            kept = self._guaranteed_to_others(name, slot, in_the_end=True)
            if (
                kept
                and asked > self._total(nodes.allocatable[slot] - nodes.daemon_requested[slot]) - kept
            ):
                return f"too much {nodes.slots.name(slot)} is guaranteed to other queues"
        return ""

    def all_refused(self, refuses: Callable[[PodRecord], str], pods: Iterable[PodRecord]) -> str:
        """The reason that `refuses` gives for the first of the pods; empty if
        it gives none for one of them."""
        first, judged = "", set()
        holds = self._holds
        for pod in pods:
            # Pods of one queue and class have the same result, except a pod with a starvation hold.
            kind = (
                self._queues.of(pod),
                pod.cls.id,
                pod.reservation is None,
                pod.uid if holds.of(pod) else "",
            )
            if kind not in judged:
                judged.add(kind)
                why = refuses(pod)
                if not why:
                    return ""
                first = first or why
        return first

    def _over_limit(self, name: str, pods: Pods) -> str:
        """Why the queue or one of its ancestors rejects the pods: it is closed, or its capability would
        be exceeded."""
        if why := self._queues.why_closed(name):
            return why
        path = self._queues.path(name)
        if not any(record.capability for record in path):
            return ""
        self._queues.refresh()
        amounts = _sum(pods)
        for record in path:
            if record.capability is None:
                continue
            left = {
                slot: limit - record.allocated.get(slot, 0)
                for slot, limit in record.capability.items()
                if slot in amounts
            }
            over = _first_over(amounts, left)
            if over is None and left:
                held = self._held_in(record, pods)
                over = _first_over(amounts, {slot: left[slot] - held.get(slot, 0) for slot in left})
            if over is not None:
                resource = self._cluster.nodes.slots.name(over)
                return f"queue {record.name} would have more {resource} than its capability"
        return ""

    def _held_in(self, record: QueueRecord, less: Pods) -> Amounts:
        """What counts as allocated in the queue though it is not."""
        total: Counter[int] = Counter()
        for pod in self.held_pods(record, less):
            total.update(pod.cls.amounts)
        return total

    def held_pods(self, record: QueueRecord, less: Pods) -> list[PodRecord]:
        """The pods that count as allocated in the queue though they are not: those with starvation
        holds, and nominated ones that the pods in `less` defer to. The jobs of `less` do not count.
        Nominated pods do not count for each other: victims were preempted for all of them."""
        expected = self._queues.expected
        kept = {pod.uid: pod for pod in self._holds.pods()}
        if not all(pod.nominated for pod in less):
            lowest = min(less, key=lambda pod: pod.cls.priority)
            for there in self._cluster.nominator.values():
                for pod in there.values():
                    if self._queues.defers_to(lowest, pod):
                        kept.setdefault(pod.uid, pod)
        found = []
        for pod in kept.values():
            if expected is not None and pod in expected:
                continue  # it is counted as allocated already
            own = any(pod is each or (pod.job is not None and pod.job == each.job) for each in less)
            if not own and pod.row < 0 and record in self._queues.path(self._queues.of(pod)):
                found.append(pod)
        return found

    def reserving_error(self, pod: PodRecord, amounts: Amounts) -> str:
        """Why these amounts may not be reserved for the pod now; empty if they may."""
        return self._guaranteed_text(self._lacking(self._queues.of(pod), amounts))

    def _takes_guaranteed(self, name: str, pods: Pods) -> str:
        """Why the pods would use what is guaranteed to other queues; empty if they would not. What is
        held for the pods is claimed already; the guarantees must be free besides that."""
        if not self._queues.has_guarantees:
            return ""
        holds, asked = self._holds, _sum(pods)
        own = [hold for pod in pods if (hold := holds.of(pod)) is not None] if holds else []
        needed = {
            slot: max(0, amount - sum(holds.left(hold, slot) for hold in own))
            for slot, amount in asked.items()
        }
        error = self._guaranteed_text(self._lacking(name, needed))
        if error and len(pods) == 1:
            lacking = self._lacking(name, asked)
            for claimed in self._claimed_for(pods[0]):
                if all(claimed.get(slot, 0) >= amount for slot, amount in lacking.items()):
                    return ""
        return error

    def _lacking(self, name: str, needed: Amounts) -> Amounts:
        """How much of these amounts is not free besides what is guaranteed to other queues."""
        if not self._queues.has_guarantees:
            return {}
        self._queues.refresh()
        found: Amounts = {}
        for slot, amount in needed.items():
            kept = self._guaranteed_to_others(name, slot, in_the_end=False)
            if not kept:
                continue
            free = self._free(slot) - kept
            if free < amount:
                found[slot] = amount - max(0, free)
        return found

    def _guaranteed_text(self, lacking: Amounts) -> str:
        if not lacking:
            return ""
        resource = self._cluster.nodes.slots.name(next(iter(lacking)))
        return f"the free {resource} is guaranteed to other queues"

    def unguaranteed(self, name: str, slot: int) -> int:
        """What is free on all nodes and not guaranteed to other queues than the named one."""
        self._queues.refresh()
        return max(0, self._free(slot) - self._guaranteed_to_others(name, slot, in_the_end=False))

    def _guaranteed_to_others(self, name: str, slot: int, in_the_end: bool) -> int:
        """The unused part of the guarantees of queues that are not ancestors of the named one; all of
        it if `in_the_end`. The guarantee of a queue includes those of the queues below it."""
        if not self._queues.has_guarantees:
            return 0
        below, path = self._queues.below(), {record.name for record in self._queues.path(name)}

        def owed(record: QueueRecord) -> int:
            has = 0 if in_the_end else record.allocated.get(slot, 0)
            return max(
                record.guarantee.get(slot, 0) - has, sum(map(owed, below.get(record.name, ()))), 0
            )

        roots = [r for top in ("", *path) for r in below.get(top, ()) if r.name not in path]
        return sum(map(owed, roots))

    def _claimed_for(self, pod: PodRecord) -> Iterator[Amounts]:
        """What each of the reservations claims that the pod can be allocated from, and what the virtual
        one does that a reserve pod replaces, with its pods. Starvation holds are not among them."""
        if pod.reservation is not None:
            virtual = self._virtuals.of(pod.reservation)
            if virtual is not None and virtual.reservation.entry is not None:
                yield virtual.reservation.entry.amounts
            return
        reservations, virtuals = self._reservations, self._virtuals
        usable = list(reservations.preemption_holds.get(pod.uid, {}).values())
        for spec in reservations.matching(pod.cls):
            usable += [
                each
                for each in reservations.members.get(spec, {}).values()
                if reservations.is_allowed_for(each, pod) and not self._holds.knows(each)
            ]
        usable += virtuals.requested_for(pod)
        for reservation in usable:
            if reservation.entry is not None and reservations.is_usable(reservation):
                yield reservation.entry.remaining

    def _free(self, slot: int) -> int:
        """What no pod or reservation claims, over all nodes."""
        nodes = self._cluster.nodes
        return self._total(nodes.allocatable[slot] - nodes.claimed[slot])

    def _total(self, column: NDArray[np.int64]) -> int:
        """The sum over all nodes; a negative amount of a node counts as 0."""
        nodes = self._cluster.nodes
        return int(np.maximum(column[: nodes.size][nodes.alive[: nodes.size]], 0).sum())


def _first_over(amounts: Amounts, left: Amounts) -> int | None:
    """The first slot in `left` of which more is requested than is left."""
    return next((slot for slot, asked in amounts.items() if asked > left.get(slot, asked)), None)


def _sum(pods: Pods) -> Amounts:
    if len(pods) == 1:
        return pods[0].cls.amounts
    total: Counter[int] = Counter()
    for pod in pods:
        total.update(pod.cls.amounts)
    return dict(total)


# Job admission: which PodGroups may become Inqueue, so that a job controller creates their pods


def may_become_inqueue(nodes: NodeTable, queues: Queues, job: Job, admitted: Iterable[Job]) -> bool:
    """Whether a job may become Inqueue, given the jobs that are: its queue is open, and its
    minResources fit into the queue's capability beside the jobs admitted before it, and into the
    cluster's allocatable total. Whether capacity is free now does not matter: preemption and holds can
    free or reserve capacity only for pods that exist."""
    name = queues.name_of(job.queue)
    if queues.why_closed(name):
        return False
    asked = _min_resources(queues, job)
    if not asked:
        return True
    alive = nodes.alive[: nodes.size]
    for slot, amount in asked.items():
        if amount > int(nodes.allocatable[slot, : nodes.size][alive].sum()):
            return False
    path = queues.path(name)
    if not any(record.capability for record in path):
        return True
    queues.refresh()
    besides: dict[str, Counter[int]] = {record.name: Counter() for record in path}
    for other in admitted:
        if other is not job:
            needs = unmet_min_resources(queues, other)
            for record in queues.path(queues.name_of(other.queue)):
                if record.name in besides:
                    besides[record.name].update(needs)
    return all(
        record.allocated.get(slot, 0) + besides[record.name][slot] + asked.get(slot, 0) <= limit
        for record in path
        for slot, limit in (record.capability or {}).items()
        if asked.get(slot, 0)
    )


def _min_resources(queues: Queues, job: Job) -> Amounts:
    if job.group is None or not job.group.spec.min_resources:
        return {}
    return queues.amounts(job.group.spec.min_resources)


def unmet_min_resources(queues: Queues, job: Job) -> Amounts:
    """The part of a job's minResources that its placed members do not have yet."""
    needs = _min_resources(queues, job)
    for member in job.placed():
        for slot, amount in member.cls.amounts.items():
            if slot in needs:
                needs[slot] = max(0, needs[slot] - amount)
    return needs
