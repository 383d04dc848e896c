"""Queues: their tree, what is allocated to each, what each deserves, and their order.

The amounts of a queue include those of the queues below it. Hard limits decide whether a pod may be
placed at all: its queue exists and is open, no capability of the queue and its ancestors is exceeded,
and the guarantees of other queues stay free (`queue_limits`). Shares decide the order of queues.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from holdfast.api.jobs import ROOT_QUEUE, Queue, missing_parent
from holdfast.api.meta import ResourceList
from holdfast.api.quantity import QuantityError, amount
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import JobName, PodRecord
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.jobs.queue_shares import QueueClaim, Vector, deserved_shares, dominant_share

DEFAULT = "default"
_CLOSED = ("Closed", "Closing")


class QueueShare(NamedTuple):
    """What a queue deserves and wants; `QueueRecord` documents both."""

    deserved: Vector
    wants: Vector


class QueueRecord:
    """A queue, with its amounts by slot."""

    __slots__ = (
        "allocated",
        "capability",
        "deserved",
        "guarantee",
        "last_status",
        "name",
        "object",
        "parent",
        "share",
        "wants",
    )

    def __init__(self, queue: Queue) -> None:
        self.object = queue
        self.name = queue.metadata.name
        self.parent = ""
        self.capability: Amounts | None = None
        """None if it is not limited."""
        self.deserved: Amounts | None = None
        self.guarantee: Amounts = {}
        self.allocated: Amounts = {}
        """What the placed pods of it and of the queues below it request."""
        self.share: Vector = np.zeros(0)
        """What it deserves, as of the last `Queues.share_out`."""
        self.wants: Vector = np.zeros(0)
        """What is allocated to it, plus the requests of its pending pods (Volcano: its request)."""
        self.last_status: object = None

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef("Queue", "", self.name, self.object.metadata.uid)

    @property
    def weight(self) -> int:
        return max(1, self.object.spec.weight)

    @property
    def priority(self) -> int:
        return self.object.spec.priority

    @property
    def is_open(self) -> bool:
        meta, status = self.object.metadata, self.object.status
        return meta.deletion_timestamp is None and status.state not in _CLOSED

    @property
    def reclaimable(self) -> bool:
        return self.object.spec.reclaimable is not False


QueueOrder = tuple[bool, int, float]
"""Whether a queue is overused, its negated priority, and its dominant share; the lowest is first."""


class ExpectedUsage:
    """Pods that are counted in or out of the allocated amounts of queues for the time being."""

    def __init__(
        self, add: Callable[[str, Amounts, int], None], queue_of: Callable[[PodRecord], str]
    ) -> None:
        self._add, self._queue_of = add, queue_of
        self._done: list[tuple[str, Amounts, int]] = []
        self._coming: set[str] = set()

    def __contains__(self, pod: PodRecord) -> bool:
        """Whether the pod is counted as if it were placed."""
        return pod.uid in self._coming

    def coming(self, pod: PodRecord) -> None:
        """Counts a pod as placed."""
        self._coming.add(pod.uid)
        self._count(pod, 1)

    def going(self, pod: PodRecord) -> None:
        """Counts a placed pod, or one that was counted as placed, as gone."""
        self._coming.discard(pod.uid)
        self._count(pod, -1)

    def forget(self) -> None:
        """Restores the allocated amounts."""
        for queue, amounts, sign in self._done:
            self._add(queue, amounts, -sign)
        self._done.clear()
        self._coming.clear()

    def _count(self, pod: PodRecord, sign: int) -> None:
        queue = self._queue_of(pod)
        if queue:
            self._done.append((queue, pod.cls.amounts, sign))
            self._add(queue, pod.cls.amounts, sign)


class Queues:
    """The queues of a cluster."""

    def __init__(self, cluster: ClusterBase, queue_of_job: Callable[[JobName], str]) -> None:
        """`queue_of_job` returns the name of the queue that a job asks for."""
        self._cluster = cluster
        self._queue_of_job = queue_of_job
        self.known: dict[str, QueueRecord] = {}
        self._counted: dict[str, tuple[str, Amounts]] = {}
        """By uid of a placed pod, its queue and the amounts it counts with."""
        self._follows = False
        self._stale = False
        self._children: dict[str, list[QueueRecord]] | None = None
        self.has_guarantees = False
        self.expected: ExpectedUsage | None = None
        """Set inside `expected_usage`."""
        self.dirty: dict[str, None] = {}
        """Queues whose status may have to change."""

    def __bool__(self) -> bool:
        return bool(self.known)

    def __iter__(self) -> Iterator[QueueRecord]:
        return iter(self.known.values())

    # Objects

    def put(self, queue: Queue) -> None:
        before = self.known.get(queue.metadata.name)
        record = self.known[queue.metadata.name] = QueueRecord(queue)
        if before is not None:
            record.allocated, record.last_status = before.allocated, before.last_status
            if before.object.metadata.uid != queue.metadata.uid:
                record.last_status = None
        spec = queue.spec
        record.capability = None if spec.capability is None else self.amounts(spec.capability)
        record.deserved = None if spec.deserved is None else self.amounts(spec.deserved)
        record.guarantee = self.amounts(spec.guarantee.resource) if spec.guarantee else {}
        if before is not None:
            record.share, record.wants = before.share, before.wants
        record.parent = "" if spec.parent in ("", ROOT_QUEUE, record.name) else spec.parent
        self.dirty[record.name] = None
        self._children = None
        self.has_guarantees = any(r.guarantee for r in self.known.values())
        same = before is not None and before.object.spec == spec and before.is_open == record.is_open
        if not same:
            self.changed()

    def drop(self, queue: Queue) -> None:
        known = self.known.get(queue.metadata.name)
        if known is not None and known.object.metadata.uid == queue.metadata.uid:
            del self.known[known.name]
            self._children = None
            self.has_guarantees = any(r.guarantee for r in self.known.values())
            self.changed()

    def changed(self) -> None:
        """Notes that queues changed, or which queue pods belong to."""
        self._cluster.epoch.inputs += 1
        if not self._follows and self.known:
            self._follows = True
            self._cluster.ledger.listeners.append(self._moved)
        self._stale = True
        self._cluster.epoch.queues += 1
        self._cluster.changed(Change.OTHER | Change.POD_LEFT)  # of its queue a pod may preempt others

    def take_dirty(self) -> dict[str, None]:
        """The queues in `dirty`, which is empty then."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    # Queries

    def of(self, pod: PodRecord) -> str:
        """The name of the pod's queue; empty if it is in none."""
        return self.name_of(self.named_by(pod))

    def named_by(self, pod: PodRecord) -> str:
        """The queue that the pod or its group names, whether or not it exists."""
        return pod.queue if pod.job is None else self._queue_of_job(pod.job)

    def name_of(self, asked: str) -> str:
        """The queue of this name; empty for `default` if no such queue exists."""
        return "" if asked == DEFAULT and DEFAULT not in self.known else asked

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        """Whether the pod may preempt the victim: a pod in a queue preempts only within the queue."""
        name = self.of(pod)
        return not name or self.of(victim) == name

    def defers_to(self, pod: PodRecord, nominated: PodRecord) -> bool:
        """Whether a pod may not use the capacity of a nominated pod, because it could not preempt that
        pod once it is bound."""
        if nominated.cls.priority >= pod.cls.priority:
            return True
        return bool(self.known) and not self.may_preempt(pod, nominated)

    def pods_in(self, name: str) -> list[PodRecord]:
        """The placed pods of the queue."""
        self.refresh()
        uids = (uid for uid, (queue, _) in self._counted.items() if queue == name)
        return [self._cluster.pods[uid] for uid in uids if uid in self._cluster.pods]

    def path(self, name: str) -> list[QueueRecord]:
        """The queue and its ancestors, from the bottom up."""
        found: list[QueueRecord] = []
        while (record := self.known.get(name)) is not None and record not in found:
            found.append(record)
            name = record.parent
        return found

    def closed(self, pod: PodRecord) -> str:
        """Why the queue of the pod takes no pods; empty if it does, or the pod is in no queue."""
        return self.why_closed(self.of(pod))

    def why_closed(self, name: str) -> str:
        """Why a queue takes no pods: it or an ancestor is closed, or it does not exist."""
        if not name:
            return ""
        path = self.path(name)
        if not path:
            return f"queue {name} does not exist"
        return next((f"queue {record.name} is closed" for record in path if not record.is_open), "")

    def missing_parents(self, name: str) -> Iterator[str]:
        """The queues from this one up whose parent does not exist: `queue a: its parent …`"""
        for record in self.path(name):
            if problem := missing_parent(record.name, record.parent, self.known):
                yield f"queue {record.name}: {problem}"

    def below(self) -> dict[str, list[QueueRecord]]:
        """The children of each queue, by name."""
        if self._children is None:
            self._children = {}
            for record in self.known.values():
                self._children.setdefault(self._parent_of(record), []).append(record)
        return self._children

    @contextmanager
    def expected_usage(self) -> Iterator[ExpectedUsage]:
        """Counts nominated pods as placed, and pods that are being preempted or deleted as gone."""
        self.refresh()
        self.expected = expected = ExpectedUsage(self._add, self.of)
        pods = self._cluster.pods
        for there in self._cluster.nominator.values():
            for pod in there.values():
                expected.coming(pod)
        for pod in [pods[uid] for uid in self._counted if uid in pods]:
            if pod.being_preempted or pod.cls.terminating:
                expected.going(pod)
        try:
            yield expected
        finally:
            expected.forget()
            self.expected = None

    # Shares

    def share_out(self, waiting: Iterable[PodRecord]) -> None:
        """Sets what each queue deserves, given these pending pods."""
        for name, found in self.shares(waiting).items():
            record = self.known[name]
            record.share, record.wants = found.deserved, found.wants

    @contextmanager
    def shared_out(self, waiting: Iterable[PodRecord]) -> Iterator[None]:
        """Sets what each queue deserves, given these pending pods, until the end of the block."""
        before = [(record, record.share, record.wants) for record in self]
        self.share_out(waiting)
        try:
            yield
        finally:
            for record, share, wants in before:
                record.share, record.wants = share, wants

    def shares(self, waiting: Iterable[PodRecord]) -> dict[str, QueueShare]:
        """What each queue deserves, given these pending pods; by name."""
        self.refresh()
        nodes = self._cluster.nodes
        size = len(nodes.slots)
        total = nodes.allocatable[:size, : nodes.size].sum(axis=1).astype(np.float64)
        wants = {name: self._vector(record.allocated, size) for name, record in self.known.items()}
        asking: dict[tuple[str, int], list[PodRecord]] = {}
        for pod in waiting:
            asking.setdefault((self.of(pod), pod.cls.id), []).append(pod)
        for (name, _), pods in asking.items():
            for record in self.path(name):
                for slot, asked in pods[0].cls.amounts.items():
                    wants[record.name][slot] += asked * len(pods)
        found: dict[str, QueueShare] = {}
        self._share_below("", total, wants, found)
        return found

    def _share_below(
        self, parent: str, total: Vector, wants: dict[str, Vector], found: dict[str, QueueShare]
    ) -> None:
        """Divides the total among the children of a queue, and their shares among theirs."""
        children, size = self.below().get(parent, []), len(total)
        claims = []
        for record in children:
            most = wants[record.name].copy()
            for slot, limit in (record.capability or {}).items():
                most[slot] = min(most[slot], limit)
            entitled = np.maximum(
                self._vector(record.guarantee, size), self._vector(record.deserved or {}, size)
            )
            claims.append(QueueClaim(record.weight, entitled, most))
        for record, share in zip(children, deserved_shares(total, claims), strict=True):
            found[record.name] = QueueShare(share, wants[record.name])
            self._share_below(record.name, share, wants, found)

    def _parent_of(self, record: QueueRecord) -> str:
        """The parent of a queue. Empty if it does not exist, or the queue's ancestors form a cycle."""
        path = self.path(record.name)
        ends = not path[-1].parent or path[-1].parent not in {r.name for r in path}
        return record.parent if record.parent in self.known and ends else ""

    def order_key(self, name: str, pod: PodRecord) -> tuple[QueueOrder, ...]:
        """The sort key of a queue whose next pod is this one, level by level from the top of the tree
        down; the lowest is first."""
        asked = pod.cls.amounts
        return tuple(
            (
                self._is_overused(record, asked),
                -record.priority,
                self.share_of(record),
            )
            for record in reversed(self.path(name))
        )

    def share_of(self, record: QueueRecord) -> float:
        """The dominant share of a queue."""
        return dominant_share(record.allocated, record.share)

    def _is_overused(self, record: QueueRecord, asked: Amounts) -> bool:
        """Whether it has all it deserves of a requested resource of which it wants more."""
        return any(
            has >= record.share[slot] and record.wants[slot] > record.share[slot]
            for slot, has in record.allocated.items()
            if slot < len(record.share) and (slot in asked or slot == PODS)
        )

    def _vector(self, amounts: Amounts, size: int) -> Vector:
        vector = np.zeros(size)
        for slot, value in amounts.items():
            if slot < size:
                vector[slot] = value
        return vector

    # Allocated amounts

    def placed(self) -> list[PodRecord]:
        """The placed pods of all queues."""
        self.refresh()
        pods = self._cluster.pods
        return [pods[uid] for uid in self._counted if uid in pods]

    def refresh(self) -> None:
        """Computes the allocated amounts of all queues again, if they are out of date."""
        if not self._stale:
            return
        self._stale = False
        self._counted.clear()
        self.dirty.update(dict.fromkeys(self.known))
        for record in self.known.values():
            record.allocated = {}
        for pods in self._cluster.ledger.pods.values():
            for pod in pods.values():
                self._count(pod)

    def _moved(self, pod: PodRecord, row: int, sign: int) -> None:
        if pod.reservation is not None or self._stale:
            return
        if sign > 0:
            self._count(pod)
        else:
            counted = self._counted.pop(pod.uid, None)
            if counted is not None:
                self._add(*counted, -1)

    def _count(self, pod: PodRecord) -> None:
        name = self.of(pod)
        if name:
            self._counted[pod.uid] = name, pod.cls.amounts
            self._add(*self._counted[pod.uid], 1)

    def _add(self, name: str, amounts: Amounts, sign: int) -> None:
        for record in self.path(name):
            self.dirty[record.name] = None
            for slot, value in amounts.items():
                now = record.allocated.get(slot, 0) + sign * value
                if now:
                    record.allocated[slot] = now
                else:
                    record.allocated.pop(slot, None)

    def amounts(self, listed: ResourceList) -> Amounts:
        """A resource list by slot; invalid quantities are left out."""
        found: Amounts = {}
        for name, quantity in listed.items():
            try:
                found[self._cluster.nodes.pinned_slot(name)] = amount(name, quantity)
            except QuantityError:
                continue
        return found
