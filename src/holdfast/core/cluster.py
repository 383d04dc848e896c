"""The cluster as the scheduler knows it, kept in step with objects.

Objects come in by `feed`; what follows from them is written to the node table and the ledger, and
whoever watches (the scheduling queue) is told what became of pods. Nothing here decides anything.
"""

from collections.abc import Callable, Container
from typing import Any, Protocol

import msgspec

from holdfast.api.errors import InvalidObject
from holdfast.api.jobs import PodGroup, Queue, VolcanoJob
from holdfast.api.meta import Object
from holdfast.api.migration import PodMigrationJob
from holdfast.api.names import QUEUE_NAME_ANNOTATION, RESERVATION_ALLOCATED, RESERVATION_TEMPLATE
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.policy import PriorityClass
from holdfast.api.reservation import Reservation
from holdfast.api.timestamps import parse_time
from holdfast.core.belongings import ABOUT_BELONGINGS, Belongings
from holdfast.core.changes import Change
from holdfast.core.classes import RESULTS, PodClass, PodClasses, pin_of
from holdfast.core.decisions import Decision, Emit, ObjectRef, SetPodScheduled
from holdfast.core.events import (
    Added,
    BindConfirmed,
    BindRefused,
    Deleted,
    Event,
    Malformed,
    Updated,
    WriteRefused,
)
from holdfast.core.facts import (
    allocated_from,
    difference,
    gives_up,
    is_disrupted,
    is_ready,
    kind_of,
    node_info,
    with_devices,
)
from holdfast.core.jobs import Jobs
from holdfast.core.jobs.estimates import estimate_in
from holdfast.core.jobs.naming import KEYS as JOB_KEYS
from holdfast.core.ledger import Ledger
from holdfast.core.limit_sums import LimitSums
from holdfast.core.migrations import Migrations
from holdfast.core.nodes import NodeInfo, NodeTable
from holdfast.core.pods import Phase, PodRecord
from holdfast.core.promises import Promises, Virtuals
from holdfast.core.rowlog import RowLog
from holdfast.core.story import Chronicle, Line
from holdfast.core.topology import Topology
from holdfast.core.volumes import STORAGE_KINDS, Volumes, hint

_ENDED = ("Succeeded", "Failed")


class PodWatcher(Protocol):
    """Is told what becomes of pods that are, or were, waiting for a node."""

    def pod_pending(self, pod: PodRecord) -> None:
        """A pod wants a node: it is new, or changed in a way that matters, or its bind failed."""

    def pod_settled(self, pod: PodRecord) -> None:
        """A pod wants a node no more: it has one, or is being deleted, or is gone. One that was
        assumed until now is still on its row."""

    def bind_confirmed(self, pod: PodRecord) -> None:
        """A decided bind was carried out."""

    def bind_refused(self, pod: PodRecord, row: int, message: str) -> None:
        """The bind to the node of this row was refused; the pod is pending again."""


class Cluster:
    def __init__(self) -> None:
        self.now = 0.0
        self.nodes = NodeTable()
        self.ledger = Ledger(self.nodes)
        self.classes = PodClasses(self.nodes.slot)
        self.topology = Topology(self.classes, self.nodes.labels, self.nodes.capacity)
        self.ledger.listeners.append(self.topology.pod_moved)
        self.ledger.on_emptied = self._row_emptied
        self.classes.on_added.append(self._class_came_or_went)
        self.classes.on_dropped.append(self._class_came_or_went)
        self.nodes_changed = RowLog()
        """Rows whose node object changed in a way a plugin can see."""
        self.starts = RowLog(keep=4096)
        """Rows on which it became known when a pod began to run."""
        self.volumes = Volumes(self.nodes, self.ledger, self.classes, self.nodes_changed)
        self.pods: dict[str, PodRecord] = {}
        self.jobs = Jobs(self)
        self.limits = LimitSums(self)
        self.ledger.allowed = self.limits.allowed
        self.promises = Promises(self)
        self.virtuals = Virtuals(self)
        self.node_listeners: list[Callable[[int], None]] = []
        """Told of every row whose node object came, changed or went."""
        self.belongings = Belongings(self)
        self.migrations = Migrations()
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        """Everything else, by kind (see `kind_of`) and then by (namespace, name)."""
        self.versions: dict[str, int] = {}
        """Moves, for a kind in `objects`, with every change of one of them."""
        self.nominations: dict[str, dict[str, PodRecord]] = {}
        """Pending pods for which a node is being cleared, by the node's name and their uid."""
        self.stamp = 0
        """Moves with every change of a node or another object, and of the classes known."""
        self.chronicle = Chronicle()
        self.watcher: PodWatcher | None = None
        self.served: Container[str] = ()
        """The names of schedulers whose pods are scheduled here."""
        self._changes = Change.NONE
        self._reports: list[Decision] = []
        self._complaints: dict[tuple[str, str], str] = {}
        self._uid: dict[tuple[str, str], str] = {}
        self._handlers: dict[type, Callable[[Any], None]] = {
            Added: self._put,
            Updated: self._put,
            Deleted: self._delete,
            Malformed: self._malformed,
            BindConfirmed: self._bind_confirmed,
            BindRefused: self._bind_refused,
            WriteRefused: self._write_refused,
        }

    def feed(self, event: Event, now: float) -> None:
        """Takes note of an event. Never raises for what is wrong with an object: that is reported."""
        self.now = now
        self._handlers[type(event)](event)

    def take_changes(self) -> int:
        """What kinds of change there were since last asked."""
        changes, self._changes = self._changes, Change.NONE
        return changes

    def has_changes(self) -> bool:
        return bool(self._changes)

    def take_reports(self) -> list[Decision]:
        """What there is to say about objects that make no sense."""
        reports, self._reports = self._reports, []
        return reports

    def complain(self, about: ObjectRef, reason: str, message: str) -> None:
        """Says on an object what is wrong with it, once; an empty message means nothing is any more."""
        known = self._complaints.pop((about.uid, reason), "")
        if message:
            self._complaints[about.uid, reason] = message
            if message != known:
                self.chronicle.note(self.now, about, reason, message)
                self._reports.append(Emit(about, "Warning", reason, message, "Scheduling"))

    def pod(self, namespace: str, name: str) -> PodRecord | None:
        return self.pods.get(self._uid.get((namespace, name), ""))

    def story(self, name: str) -> list[Line]:
        return self.chronicle.story(name)

    def assume(self, pod: PodRecord, row: int) -> None:
        """The pod is to be bound to the node of this row, and claims its room from now on."""
        if pod.promise is not None:
            self.promises.assume(pod.promise, row)
            return
        pod.cleared_for = pod.nominated
        if pod.nominated:
            gives_up_room = self.nodes.row(pod.nominated) != row
            self._nominate(pod, "", gives_up_room)
        self.ledger.place(pod, row)
        pod.phase = Phase.ASSUMED

    def nominate(self, pod: PodRecord, node: str) -> None:
        """A node is being cleared for the pod; none any more if the name is empty."""
        if pod.nominated != node:
            self._nominate(pod, node, gives_up_room=bool(pod.nominated))
            if pod.uid in self.promises.rooms:
                self.promises.nominated(pod)

    def _nominate(self, pod: PodRecord, node: str, gives_up_room: bool) -> None:
        if pod.nominated:
            there = self.nominations[pod.nominated]
            del there[pod.uid]
            if not there:
                del self.nominations[pod.nominated]
        if gives_up_room:
            self.changed(Change.POD_LEFT)
        for name in (pod.nominated, node):
            row = self.nodes.row(name)
            if row is not None:
                self.ledger.changed.add(row)
        pod.nominated = node
        if node:
            self.nominations.setdefault(node, {})[pod.uid] = pod

    def unassume(self, pod: PodRecord) -> None:
        """The pod is not to be bound after all."""
        if pod.promise is not None:
            self.promises.unassume(pod.promise)
            return
        self.ledger.remove(pod)
        pod.draws_on = ""
        pod.phase = Phase.PENDING
        if pod.cleared_for:
            self.nominate(pod, pod.cleared_for)  # as its object has said all the time

    def changed(self, changes: int) -> None:
        """Something happened that may help pods that wait."""
        self._changes |= changes

    # Objects

    def _put(self, event: Added | Updated) -> None:
        obj = event.object
        if isinstance(obj, Pod):
            self._put_pod(obj)
        elif isinstance(obj, Node):
            self._put_node(obj)
        elif isinstance(obj, Reservation):
            self.virtuals.requirements.see_reservation(obj)
            self.promises.put(obj)
        elif isinstance(obj, PodGroup):
            self.jobs.put_group(obj)
        elif isinstance(obj, VolcanoJob):
            self.jobs.put_volcano_job(obj)
        elif isinstance(obj, Queue):
            self.jobs.queues.put(obj)
        elif isinstance(obj, PodMigrationJob):
            self.migrations.put(obj)
        else:
            meta = obj.metadata
            known = self.objects.setdefault(kind_of(obj), {})
            before = known.get((meta.namespace, meta.name))
            known[meta.namespace, meta.name] = obj
            self._other_changed(before, obj)

    def _delete(self, event: Deleted) -> None:
        obj = event.object
        if isinstance(obj, Pod):
            pod = self.pods.get(obj.metadata.uid)
            if pod is not None:
                self._forget(pod, "deleted")
            elif obj.status.phase in _ENDED:
                # Where pods that end are lost sight of, that looks the same, but for the phase.
                self.jobs.gone(obj.metadata.uid)
        elif isinstance(obj, Node):
            self._drop_node(obj.metadata.name, "deleted")
        elif isinstance(obj, Reservation):
            self.virtuals.requirements.forget_reservation(obj.metadata.uid)
            self.promises.drop(obj.metadata.uid)
        elif isinstance(obj, PodGroup):
            self.jobs.drop_group(obj)
        elif isinstance(obj, VolcanoJob):
            self.jobs.drop_volcano_job(obj)
        elif isinstance(obj, Queue):
            self.jobs.queues.drop(obj)
        elif isinstance(obj, PodMigrationJob):
            self.migrations.drop(obj.metadata.uid)
        else:
            meta = obj.metadata
            gone = self.objects.get(kind_of(obj), {}).pop((meta.namespace, meta.name), None)
            if gone is not None:
                self._other_changed(gone, None)

    def _other_changed(self, before: Object | None, after: Object | None) -> None:
        some = after if after is not None else before
        assert some is not None
        self.stamp += 1
        kind = kind_of(some)
        self.versions[kind] = self.versions.get(kind, 0) + 1
        if isinstance(some, STORAGE_KINDS):
            self.volumes.put(before, after)
            changes, touched = hint(before, after)
            self._changes |= changes
            self.volumes.touched.update(touched)
            return
        if isinstance(some, PriorityClass):
            self.jobs.put_priority_class(some, there=after is not None)
        self._changes |= Change.OTHER
        self.belongings.object_changed(before, after)

    def _malformed(self, event: Malformed) -> None:
        ref = ObjectRef(event.kind, event.namespace, event.name, event.uid)
        if event.kind == "Node":
            self._drop_node(event.name, "malformed")
        elif event.kind == "Pod":
            # A pod already on a node keeps what it claims: that room is in use whatever its
            # object says now.
            known = self.pods.get(event.uid)
            if known is not None and known.phase is Phase.PENDING:
                self._forget(known, "malformed")
        elif event.kind in ABOUT_BELONGINGS:
            gone = self.objects.get(event.kind, {}).pop((event.namespace, event.name), None)
            if gone is not None:
                self._other_changed(gone, None)
        self._report(ref, event.error)

    def _report(self, ref: ObjectRef, error: InvalidObject) -> None:
        message = f"{error.field}: {error.message}" if error.field else error.message
        self.chronicle.note(self.now, ref, "invalid", message)
        if ref.kind == "Pod":
            self._reports.append(SetPodScheduled(ref, "SchedulerError", message))
            self._reports.append(Emit(ref, "Warning", "FailedScheduling", message, "Scheduling"))
        else:
            self._reports.append(Emit(ref, "Warning", f"Invalid{ref.kind}", message, "Scheduling"))

    # Nodes

    def _put_node(self, node: Node) -> None:
        meta = node.metadata
        try:
            info = node_info(node)
        except InvalidObject as error:
            self._drop_node(meta.name, "malformed")
            self._report(ObjectRef("Node", "", meta.name, meta.uid), error)
            return
        self._put_info(with_devices(info, self.belongings.offered(meta.name)))

    def offer_again(self, name: str) -> None:
        """What a node offers beyond what it says itself has changed."""
        row = self.nodes.row(name)
        info = self.nodes.info.get(row) if row is not None else None
        if info is not None:
            self._put_info(with_devices(info, self.belongings.offered(name)))

    def _put_info(self, info: NodeInfo) -> None:
        table = self.nodes
        known = table.row(info.name)
        before = table.info.get(known) if known is not None else None
        if before is not None:
            changes = difference(before, info)
            if not changes:
                return
        else:
            changes = Change.NODE_ADDED
        row = self.open_row(info.name)
        codes = self.topology.row_codes(row)
        table.put(row, info)
        self.belongings.node_changed(row)
        self.topology.relabel(row, codes)
        self._node_changed(row, changes)
        self.chronicle.note(self.now, f"Node/{info.name}", "added" if before is None else "changed")

    def open_row(self, name: str) -> int:
        """The row of a node of that name, whether or not there is one yet."""
        known, capacity = self.nodes.row(name), self.nodes.capacity
        if known is not None:
            return known
        row = self.nodes.open_row(name)
        if self.nodes.capacity != capacity:
            self.topology.grow(self.nodes.capacity)
            self.belongings.grow(self.nodes.capacity)
        self.belongings.row_opened(row)
        return row

    def _drop_node(self, name: str, why: str) -> None:
        row = self.nodes.row(name)
        if row is None or not self.nodes.alive[row]:
            return
        codes = self.topology.row_codes(row)
        self.nodes.drop(row)
        self.topology.relabel(row, codes)
        self._node_changed(row, Change.NODE_REMOVED)
        if self.ledger.is_empty(row):
            self._row_emptied(row)
        self.chronicle.note(self.now, f"Node/{name}", why)

    def _class_came_or_went(self, cls: PodClass) -> None:
        self.stamp += 1

    def _node_changed(self, row: int, changes: int) -> None:
        self.stamp += 1
        self.nodes_changed.add(row)
        self.promises.node_changed(row)
        for listen in self.node_listeners:
            listen(row)
        self._changes |= changes

    def _row_emptied(self, row: int) -> None:
        if not self.nodes.alive[row]:
            self.belongings.row_closed(row)
            self.nodes.close_row(row)

    # Pods

    def _put_pod(self, pod: Pod) -> None:
        meta, spec = pod.metadata, pod.spec
        if RESERVATION_TEMPLATE in meta.annotations or meta.uid in self.virtuals.requirements.asks:
            self.virtuals.requirements.see_pod(pod)
        known = self.pods.get(meta.uid)
        if known is None:
            if pod.status.phase in _ENDED:
                # Those that ended may be heard of late, when another has the name.
                self.jobs.ended(meta, pod.status.phase == "Succeeded")
                return
            if self.jobs.has_ended(meta.uid):
                return  # older news than what is known
            namesake = self.pods.get(self._uid.get((meta.namespace, meta.name), ""))
            if namesake is not None:
                # Its deletion was missed: a name is given again only once it is free.
                self._forget(namesake, "replaced")
        if known is not None and pod.status.phase in _ENDED:
            self.jobs.ended(meta, pod.status.phase == "Succeeded")
            self._forget(known, pod.status.phase.lower())
            return
        ref = known.ref if known else ObjectRef("Pod", meta.namespace, meta.name, meta.uid)
        try:
            cls = self.classes.acquire(pod, self.promises.traits(meta))
        except InvalidObject as error:
            if known is not None and known.phase is Phase.PENDING:
                self._forget(known, "malformed")
            self._report(ref, error)
            return
        if known is None:
            known = PodRecord(ref, cls, spec.scheduler_name, self.now)
            known.created = meta.creation_timestamp
            self.pods[meta.uid] = known
            self._uid[meta.namespace, meta.name] = meta.uid
            self._read_job(known, pod)
            self.chronicle.note(self.now, ref, "added")
            self._place_or_queue(known, pod, changed=True)
            return
        self._read_job(known, pod)
        if cls is not known.cls:
            self._reclass(known, pod, cls)
        else:
            self.classes.release(cls)
            self._place_or_queue(known, pod, changed=False)

    def _read_job(self, known: PodRecord, pod: Pod) -> None:
        """What the pod says of the job it belongs to, and of its length."""
        meta = pod.metadata
        annotations = meta.annotations
        if annotations and annotations.keys() <= RESULTS:
            annotations = {}
        if (
            annotations
            or pod.spec.active_deadline_seconds is not None
            or known.queue
            or known.estimate is not None
        ):
            known.estimate = estimate_in(pod)
            if known.estimate is not None:
                self.jobs.lengths_are_told = True
            known.queue = annotations.get(QUEUE_NAME_ANNOTATION, "")
        if (
            known.job is not None
            or (meta.labels and not JOB_KEYS.isdisjoint(meta.labels))
            or (annotations and not JOB_KEYS.isdisjoint(annotations))
        ):
            self.jobs.join(known, meta)

    def _reclass(self, known: PodRecord, pod: Pod, cls: Any) -> None:
        """The pod changed in a way scheduling can see."""
        before, row = known.cls, known.row
        if row >= 0:
            with self.ledger.transaction() as transaction:
                self.ledger.remove(known)
                known.cls = cls
                self.ledger.place(known, row)
                transaction.commit()
            if gives_up(before, cls):
                self._changes |= Change.POD_LEFT
            if cls.labels != before.labels or cls.terminating != before.terminating:
                self._changes |= Change.POD_LABELS
        else:
            known.cls = cls
            cleared = self.nodes.row(known.nominated) if known.nominated else None
            if cleared is not None:
                self.ledger.changed.add(cleared)
                self._changes |= Change.POD_LEFT  # it may leave more room to others than before
        self.classes.release(before)
        self.chronicle.note(self.now, known.ref, "changed")
        self._place_or_queue(known, pod, changed=True)

    def reclassify(self, name: str, uid: str) -> None:
        """Reservations came to mean pods of this name or uid, or do so no more."""
        pods = [self.pods[uid]] if uid in self.pods else []
        if not uid:
            pods = [pod for pod in self.pods.values() if pod.name == name]
        for pod in pods:
            if pod.phase is not Phase.PENDING:
                continue
            seen = pod.cls.pod
            own = msgspec.structs.replace(seen.metadata, name=pod.name, uid=pod.uid)
            one = msgspec.structs.replace(seen, metadata=own)
            before, pod.cls = pod.cls, self.classes.acquire(one, self.promises.traits(own))
            self.classes.release(before)
            if self.watcher is not None and not pod.leaving:
                self.watcher.pod_pending(pod)

    def _place_or_queue(self, known: PodRecord, pod: Pod, changed: bool) -> None:
        node = pod.spec.node_name
        if node:
            started = pod.status.start_time
            before = known.started
            known.started = parse_time(started) if started else None
            known.disrupted = is_disrupted(pod)
            known.ready = is_ready(pod)
            self._draw(known, pod)
            self.belongings.seen(known, pod.metadata)
            self._assigned(known, node)
            if known.started != before:
                self.starts.add(known.row)
                if known.estimate is not None:
                    self.ledger.changed.add(known.row)  # it is known when it ends
            return
        known.leaving = pod.metadata.deletion_timestamp is not None
        if known.uid in self.promises.rooms:
            self.promises.preemptor_changed(known)
        if known.phase is not Phase.PENDING:
            return
        gates = tuple([gate.name for gate in pod.spec.scheduling_gates])
        changed = changed or gates != known.gates
        known.gates = gates
        known.pin = pin_of(pod.spec) if known.cls.pinned else None
        # An update that crossed ours on the way may not know yet that the pod was nominated.
        if pod.status.nominated_node_name:
            self.nominate(known, pod.status.nominated_node_name)
        if self.watcher is None:
            return
        if known.leaving:
            self.watcher.pod_settled(known)
        elif changed:
            self.watcher.pod_pending(known)

    def _draw(self, known: PodRecord, pod: Pod) -> None:
        text = pod.metadata.annotations.get(RESERVATION_ALLOCATED)
        drawn = self.promises.known.get(known.draws_on) if text and known.draws_on else None
        if drawn is None or drawn.mark != text:
            self.ledger.draw(known, allocated_from(text))

    def _assigned(self, known: PodRecord, node: str) -> None:
        """The pod is on a node, by our doing or by another's."""
        row = self.nodes.row(node)
        if known.row >= 0 and known.row == row:
            self._confirm(known)
            return
        if self.watcher is not None:
            self.watcher.pod_settled(known)
        if known.row >= 0:
            self._vacate(known)
        self.nominate(known, "")
        row = self.open_row(node)
        self.ledger.place(known, row)
        known.phase = Phase.ASSIGNED
        if known.draws_on:
            self.promises.pod_confirmed(known)
        if known.uid in self.promises.rooms:
            self.promises.preemptor_changed(known)
        self._changes |= Change.POD_PLACED
        self.chronicle.note(self.now, known.ref, "assigned", node)

    def _vacate(self, pod: PodRecord) -> None:
        self.ledger.remove(pod)
        self._changes |= Change.POD_LEFT
        if self.volumes.release(pod.uid):
            self._changes |= Change.PROMISES

    def _forget(self, pod: PodRecord, why: str) -> None:
        self.virtuals.requirements.forget_pod(pod.uid)
        if self.watcher is not None:
            self.watcher.pod_settled(pod)
        if pod.row >= 0:
            self._vacate(pod)
        self.nominate(pod, "")
        pod.gone = True
        self.belongings.forget(pod.uid)
        del self.pods[pod.uid]
        if pod.uid in self.promises.rooms:
            self.promises.preemptor_changed(pod)
        if self._uid.get((pod.namespace, pod.name)) == pod.uid:
            del self._uid[pod.namespace, pod.name]
        if pod.job is not None:
            self.jobs.leave(pod)
        self.classes.release(pod.cls)
        self.chronicle.note(self.now, pod.ref, why)

    # Binds

    def _bind_confirmed(self, event: BindConfirmed) -> None:
        pod = self._binding(event.uid)
        if pod is not None:
            self._confirm(pod)

    def _write_refused(self, event: WriteRefused) -> None:
        self.promises.not_written(event.uid)
        self.virtuals.not_written(event.uid, event.message)
        self.virtuals.requirements.not_written(event.uid, event.message)
        self.jobs.not_written(event.uid)
        victim = self.pods.get(event.uid)
        if victim is not None and victim.disrupted and victim.phase is Phase.ASSIGNED:
            victim.disrupted = False  # it was asked to go, and may stay
            self.changed(Change.OTHER)
        if self.migrations.known:
            self.migrations.refused.append((event.uid, event.message))
        pod = self.pods.get(event.uid)
        if pod is None or pod.phase is not Phase.PENDING or pod.leaving:
            return
        # A victim stays that was to make room for it, and perhaps for others.
        waiting = self.nominations.get(pod.nominated, {pod.uid: pod})
        for each in list(waiting.values()):
            if self.watcher is not None and not each.leaving:
                self.watcher.pod_pending(each)

    def _binding(self, uid: str) -> PodRecord | None:
        """The pod, or reserve pod, of that uid."""
        promise = self.promises.known.get(uid)
        return promise.pod if promise is not None else self.pods.get(uid)

    def _confirm(self, pod: PodRecord) -> None:
        if pod.phase is not Phase.ASSUMED:
            return
        if pod.promise is not None:
            self.promises.confirm(pod.promise)
            return
        pod.phase = Phase.ASSIGNED
        if pod.job is not None:
            self.jobs.touch(pod.job)
        self.chronicle.note(self.now, pod.ref, "bound")
        if pod.uid in self.promises.rooms:
            self.promises.preemptor_changed(pod)
        self.promises.pod_confirmed(pod)
        if self.watcher is not None:
            self.watcher.bind_confirmed(pod)

    def _bind_refused(self, event: BindRefused) -> None:
        pod = self._binding(event.uid)
        if pod is None or pod.phase is not Phase.ASSUMED:
            return
        row = pod.row
        self.unassume(pod)
        self.changed(Change.POD_LEFT)
        self.chronicle.note(self.now, pod.ref, "bind refused", event.message)
        if self.watcher is not None:
            self.watcher.bind_refused(pod, row, event.message)
