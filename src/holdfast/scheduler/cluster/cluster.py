"""The cluster state of the scheduler, kept up to date by events.

`feed` takes an event; its effects are written to the node table, the ledger and the indexes, and the
`PodWatcher` (the scheduler) is notified of changes of pods. Nothing is decided here.
"""

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.api.errors import InvalidObject
from holdfast.api.jobs import PodGroup, Queue, VolcanoJob
from holdfast.api.meta import Object
from holdfast.api.migration import PodMigrationJob
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.raw_objects import RawObject
from holdfast.api.reservation import Reservation
from holdfast.api.workloads import PriorityClass
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    CreateReservation,
    Decision,
    DeleteReservation,
    Emit,
    Evict,
    ObjectRef,
    Preempt,
    PreemptReservation,
    SetPodGroupStatus,
    SetPodScheduled,
    SetReservationStatus,
)
from holdfast.scheduler.cluster.domain_counts import DomainCounts
from holdfast.scheduler.cluster.epoch import Epoch
from holdfast.scheduler.cluster.events import (
    Added,
    BindConfirmed,
    BindRefused,
    Change,
    Deleted,
    Event,
    Malformed,
    Updated,
    WriteRefused,
)
from holdfast.scheduler.cluster.ledger import Ledger
from holdfast.scheduler.cluster.limit_sums import LimitSums
from holdfast.scheduler.cluster.node_info import difference, kind_of, node_info, with_devices
from holdfast.scheduler.cluster.node_table import NodeInfo, NodeTable
from holdfast.scheduler.cluster.nominator import Nominator
from holdfast.scheduler.cluster.object_index import Migrations, RawObjects
from holdfast.scheduler.cluster.plugin_errors import PluginErrors
from holdfast.scheduler.cluster.pod_classes import PodClass, PodClasses
from holdfast.scheduler.cluster.pod_handlers import PodHandlers
from holdfast.scheduler.cluster.pods import Phase, PodRecord
from holdfast.scheduler.cluster.settings import ClusterSettings
from holdfast.scheduler.cluster.story import Chronicle, Line
from holdfast.scheduler.jobs import Jobs
from holdfast.scheduler.managers.resource_managers import TOPOLOGY_KINDS, ResourceManagers
from holdfast.scheduler.managers.volumes import STORAGE_KINDS, VolumeManager, hint
from holdfast.scheduler.reservations import ReservationCache, VirtualReservations

_MAX_EVICTION_BACK_OFF = 10.0
"""The longest back-off, in seconds, before a pod whose eviction was refused is evicted again."""


class PodWatcher(Protocol):
    """Receives the changes of pods that are, or were, pending."""

    def pod_pending(self, pod: PodRecord) -> None:
        """A pod is to be scheduled: it is new, it changed in a way that may affect scheduling, or its
        bind failed."""

    def pod_settled(self, pod: PodRecord) -> None:
        """A pod is no longer to be scheduled: it has a node, is being deleted, or is gone. A pod that
        was assumed is still on its row."""

    def bind_confirmed(self, pod: PodRecord) -> None:
        """A decided bind was carried out."""

    def bind_again(self, pod: PodRecord) -> bool:
        """A decided bind was refused. True if the pod stays assumed and its bind is decided again."""

    def bind_refused(self, pod: PodRecord, row: int, message: str) -> None:
        """The bind to the node of this row was refused; the pod is pending again."""


class Cluster:
    """Nodes, pods, reservations, jobs and other objects, as of the events fed so far."""

    def __init__(
        self, settings: ClusterSettings | None = None, watcher: "PodWatcher | None" = None
    ) -> None:
        self.settings = settings or ClusterSettings()
        self.watcher = watcher
        self.now = 0.0
        self.nodes = NodeTable()
        self.epoch = Epoch()
        self.ledger = Ledger(self.nodes, self.epoch.usage)
        self.classes = PodClasses(self.nodes.slot, slots_left=self.nodes.slots.left)
        self.topology = DomainCounts(self.classes, self.nodes.labels, self.nodes.columns)
        self.ledger.listeners.append(self.topology.pod_moved)
        self.ledger.on_emptied = self._row_emptied
        self.classes.on_added.append(self._classes_changed)
        self.classes.on_dropped.append(self._classes_changed)
        self.volumes = VolumeManager(self.nodes, self.ledger, self.classes, self.epoch)
        self.pods: dict[str, PodRecord] = {}
        self.jobs = Jobs(self)
        self.limits = LimitSums(self)
        self.ledger.allowed = self.limits.allowed
        self.reservations = ReservationCache(self)
        self.virtuals = VirtualReservations(self)
        self.node_listeners: list[Callable[[int], None]] = []
        """Called with the row of every node object that is added, changed or deleted."""
        self.managers = ResourceManagers(self)
        self.migrations = Migrations()
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        """Objects of all other kinds, by kind (see `kind_of`) and then by (namespace, name)."""
        self.raw_objects = RawObjects()
        """Objects of the kinds that plugins declare in `reads_objects`."""
        self.nominator = Nominator(self.nodes, self.epoch)
        self.not_evicted_before: dict[str, float] = {}
        """By uid, pods whose eviction was refused, and when their back-off ends."""
        self.plugin_errors = PluginErrors()
        self.chronicle = Chronicle()
        self.pod_handlers = PodHandlers(self)
        self._changes = Change.NONE
        self._reports: list[Decision] = []
        self._warnings: dict[tuple[str, str, str], str] = {}
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
        """Applies an event. An invalid object raises nothing; it is reported (`take_reports`)."""
        self.now = now
        self._handlers[type(event)](event)

    def take_changes(self) -> int:
        """The kinds of change since the last call."""
        changes, self._changes = self._changes, Change.NONE
        return changes

    def has_changes(self) -> bool:
        return bool(self._changes)

    @property
    def changes(self) -> int:
        """The kinds of change since the last `take_changes`."""
        return self._changes

    def undo_changes(self, before: int) -> None:
        """Restores the value `changes` had before a dry run, so that the dry run wakes up no pod."""
        self._changes = before

    def release_slots(self) -> None:
        """Releases the slots of resources that no class, reservation or node has any more. Called once
        a round; looks only at slots whose last known user may be gone (`Slots.loose`)."""
        slots, nodes = self.nodes.slots, self.nodes
        if not slots.loose:
            return
        used: set[int] = set()
        for cls in self.classes.every():
            used.update(slot for slot, _ in cls.usage)
            used.update(slot for slot, _ in cls.requests)
        used.update(self.reservations.slots())
        loose, slots.loose = slots.loose, {}
        for slot in loose:
            if slot in used or slot >= len(nodes.allocatable):
                continue
            if nodes.allocatable[slot].any() or nodes.claimed[slot].any() or nodes.held[slot].any():
                continue
            slots.release(slot)

    def take_reports(self) -> list[Decision]:
        """The events and conditions that report invalid objects, since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def warn_once(self, about: ObjectRef, reason: str, message: str, source: str = "") -> None:
        """Emits a Warning event about an object, unless it is the same as the last of this reason and
        source. An empty message ends the warning."""
        known = self._warnings.pop((about.uid, reason, source), "")
        if message:
            self._warnings[about.uid, reason, source] = message
            if message != known:
                self.chronicle.note(self.now, about, reason, message)
                self._reports.append(Emit(about, "Warning", reason, message, "Scheduling"))

    def pod(self, namespace: str, name: str) -> PodRecord | None:
        return self.pod_handlers.named(namespace, name)

    def story(self, name: str) -> list[Line]:
        """The recent history of an object; see `story.Chronicle`."""
        return self.chronicle.story(name)

    def assume(self, pod: PodRecord, row: int) -> None:
        """Places a pod that is to be bound on the row, where it claims its requests from now on."""
        if pod.reservation is not None:
            self.reservations.assume(pod.reservation, row)
            return
        pod.previous_nomination = pod.nominated
        if pod.nominated:
            if self.nodes.row(pod.nominated) != row:
                self.changed(Change.POD_LEFT)
            self.nominator.set(pod, "")
        self.ledger.place(pod, row)
        pod.phase = Phase.ASSUMED
        pod.bind_decided = False

    def nominated_pods(self, row: int) -> list[PodRecord]:
        """The pods nominated to the row that no preemption hold keeps capacity for. Pods that were
        placed meanwhile, even in a dry run, are left out: they claim their requests already."""
        nominated = self.nominator.get(self.nodes.name(row))
        if not nominated:
            return []
        holds = self.reservations.preemption_holds
        return [pod for pod in nominated.values() if pod.row < 0 and not (holds and holds.of(pod, row))]

    def nominate(self, pod: PodRecord, node: str) -> None:
        """Sets the pod's nominated node; an empty name clears it."""
        if pod.nominated != node:
            if pod.nominated:
                self.changed(Change.POD_LEFT)
            self.nominator.set(pod, node)
            if pod.uid in self.reservations.preemption_holds:
                self.reservations.nominated(pod)

    def unassume(self, pod: PodRecord) -> None:
        """Removes an assumed pod from its row; it is pending again, with its previous nomination."""
        if pod.reservation is not None:
            self.reservations.unassume(pod.reservation)
            return
        self.ledger.remove(pod)
        pod.reservation_uid = ""
        pod.phase = Phase.PENDING
        if pod.being_preempted:
            pod.deletion_pending = True  # it is still a victim, whose deletion is decided
        if pod.previous_nomination:
            self.nominate(pod, pod.previous_nomination)  # its object still has this nominatedNodeName
            if pod.uid in self.reservations.preemption_holds:
                self.reservations.preemptor_pending(pod)

    def changed(self, changes: int) -> None:
        """Notes kinds of change that may make pending pods schedulable."""
        self._changes |= changes

    # Objects

    def _put(self, event: Added | Updated) -> None:
        """Dispatches an added or updated object by its kind."""
        obj = event.object
        if isinstance(obj, Pod):
            self.pod_handlers.put(obj)
        elif isinstance(obj, Node):
            self._put_node(obj)
        elif isinstance(obj, Reservation):
            self.virtuals.requirements.see_reservation(obj)
            self.reservations.put(obj)
        elif isinstance(obj, PodGroup):
            self.jobs.put_group(obj)
        elif isinstance(obj, VolcanoJob):
            self.jobs.put_volcano_job(obj)
        elif isinstance(obj, Queue):
            self.jobs.queues.put(obj)
        elif isinstance(obj, PodMigrationJob):
            self.migrations.put(obj)
        elif isinstance(obj, RawObject):
            self._raw_changed(self.raw_objects.put(obj))
        else:
            meta = obj.metadata
            known = self.objects.setdefault(kind_of(obj), {})
            before = known.get((meta.namespace, meta.name))
            known[meta.namespace, meta.name] = obj
            self._other_changed(before, obj)

    def _delete(self, event: Deleted) -> None:
        """Dispatches a deleted object by its kind."""
        obj = event.object
        if isinstance(obj, Pod):
            self.pod_handlers.drop(obj)
        elif isinstance(obj, Node):
            self._drop_node(obj.metadata.name, "deleted")
        elif isinstance(obj, Reservation):
            self.virtuals.requirements.forget_reservation(obj.metadata.uid)
            self.reservations.drop(obj.metadata.uid)
        elif isinstance(obj, PodGroup):
            self.jobs.drop_group(obj)
        elif isinstance(obj, VolcanoJob):
            self.jobs.drop_volcano_job(obj)
        elif isinstance(obj, Queue):
            self.jobs.queues.drop(obj)
        elif isinstance(obj, PodMigrationJob):
            self.migrations.drop(obj.metadata.uid)
        elif isinstance(obj, RawObject):
            meta = obj.metadata
            gone_name = obj.api_version, obj.kind, meta.namespace, meta.name
            self._raw_changed(self.raw_objects.drop(*gone_name))
        else:
            meta = obj.metadata
            gone = self.objects.get(kind_of(obj), {}).pop((meta.namespace, meta.name), None)
            if gone is not None:
                self._other_changed(gone, None)

    def _other_changed(self, before: Object | None, after: Object | None) -> None:
        """Applies a change of an object of any other kind that Holdfast reads."""
        some = after if after is not None else before
        assert some is not None
        self.epoch.objects += 1
        self.epoch.inputs += 1
        kind = kind_of(some)
        self.epoch.kinds[kind] += 1
        if isinstance(some, STORAGE_KINDS):
            self.volumes.put(before, after)
            changes, touched = hint(before, after)
            self._changes |= changes
            self.volumes.touched.update(touched)
            return
        if isinstance(some, PriorityClass):
            self.jobs.put_priority_class(some, there=after is not None)
        self._changes |= Change.OTHER
        self.managers.object_changed(before, after)

    def _raw_changed(self, is_changed: bool) -> None:
        """Notes a change of an object that only plugins read, if there was one."""
        if is_changed:
            self.epoch.objects += 1
            self.epoch.inputs += 1
            self._changes |= Change.OBJECTS

    def _malformed(self, event: Malformed) -> None:
        """Forgets the last valid version of an object that cannot be decoded, and reports it."""
        ref = ObjectRef(event.kind, event.namespace, event.name, event.uid, event.api_version)
        if event.api_version:
            name = event.api_version, event.kind, event.namespace, event.name
            self._raw_changed(self.raw_objects.drop(*name))
        elif event.kind == "Node":
            self._drop_node(event.name, "malformed")
        elif event.kind == "Pod":
            self.pod_handlers.malformed(event.uid)
        elif event.kind in TOPOLOGY_KINDS:
            gone = self.objects.get(event.kind, {}).pop((event.namespace, event.name), None)
            if gone is not None:
                self._other_changed(gone, None)
        self.report(ref, event.error)

    def report(self, ref: ObjectRef, error: InvalidObject) -> None:
        """Reports an invalid object: by an event, and a pod by its condition too."""
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
            self.report(ObjectRef("Node", "", meta.name, meta.uid), error)
            return
        self._put_info(with_devices(info, self.managers.extended_resources(meta.name)))

    def device_resources_changed(self, name: str) -> None:
        """Applies a change of the resources that a node has through its devices."""
        row = self.nodes.row(name)
        info = self.nodes.info.get(row) if row is not None else None
        if info is not None:
            self._put_info(with_devices(info, self.managers.extended_resources(name)))

    def _put_info(self, info: NodeInfo) -> None:
        """Writes a node to its row if it differs from what is there."""
        table = self.nodes
        known = table.row(info.name)
        before = table.info.get(known) if known is not None else None
        if before is not None and before.uid != info.uid:
            self._drop_node(info.name, "replaced")
            before = None
        if before is not None:
            changes = difference(before, info)
            if not changes:
                return
        else:
            changes = Change.NODE_ADDED
        row = self.open_row(info.name)
        codes = self.topology.row_codes(row)
        table.put(row, info)
        self.managers.node_changed(row)
        self.topology.relabel(row, codes)
        self._node_changed(row, changes)
        self.chronicle.note(self.now, f"Node/{info.name}", "added" if before is None else "changed")

    def open_row(self, name: str) -> int:
        """The row of a node name, a new one if it has none; the node object may be seen later."""
        known = self.nodes.row(name)
        if known is not None:
            return known
        row = self.nodes.open_row(name)
        self.managers.row_opened(row)
        return row

    def _drop_node(self, name: str, why: str) -> None:
        row = self.nodes.row(name)
        if row is None or not self.nodes.alive[row]:
            return
        codes = self.topology.row_codes(row)
        self.nodes.drop(row)
        self.reservations.node_deleted(row)
        self.topology.relabel(row, codes)
        self._node_changed(row, Change.NODE_REMOVED)
        if self.ledger.is_empty(row):
            self._row_emptied(row)
        self.chronicle.note(self.now, f"Node/{name}", why)

    def _classes_changed(self, cls: PodClass) -> None:
        self.epoch.objects += 1

    def _node_changed(self, row: int, changes: int) -> None:
        self.epoch.objects += 1
        self.epoch.inputs += 1
        self.epoch.nodes.add(row)
        self.reservations.node_changed(row)
        for listen in self.node_listeners:
            listen(row)
        self._changes |= changes

    def _row_emptied(self, row: int) -> None:
        """Closes a row without pods and reservations if it has no node object either."""
        if not self.nodes.alive[row]:
            self.managers.row_closed(row)
            self.nodes.close_row(row)

    # Binds

    def _bind_confirmed(self, event: BindConfirmed) -> None:
        pod = self._binding(event.uid)
        if pod is not None:
            self.confirm(pod)

    def _write_refused(self, event: WriteRefused) -> None:
        """Notifies the part of the state that assumed the write, so that it may be decided again."""
        decision, message = event.decision, event.message
        match decision:
            case CreateReservation(reservation=reservation):
                self.virtuals.requirements.not_created(reservation.metadata.name, message)
                self.jobs.holds.not_created(reservation.metadata.name)
            case SetReservationStatus() | DeleteReservation() | PreemptReservation():
                self.reservations.not_written(decision.reservation.uid)
            case AnnotatePod(pod=pod):
                self.virtuals.not_written(pod.uid, message)
                self._requeue_preemptors(pod.uid)
            case Evict(pod=pod):
                self._eviction_refused(pod.uid)
                self._preemption_ended(pod.uid)
            case Preempt(pod=pod, preemptor=preemptor):
                self._preemption_ended(pod.uid)
                self.reservations.not_written(preemptor.uid)
                self._requeue_preemptors(preemptor.uid)
            case SetPodGroupStatus(group=group):
                self.jobs.not_written(group.uid)
        if self.migrations.known:
            self.migrations.refused.append(event)

    def _eviction_refused(self, uid: str) -> None:
        """Sets the back-off of a victim whose eviction a disruption budget or an error refused."""
        victim = self.pods.get(uid)
        if victim is not None and victim.being_preempted:
            victim.evictions_refused += 1
            delay = min(2.0 ** min(victim.evictions_refused - 1, 30), _MAX_EVICTION_BACK_OFF)
            self.not_evicted_before[uid] = self.now + delay

    def _preemption_ended(self, uid: str) -> None:
        """Ends the preemption of a victim whose deletion or eviction was refused."""
        victim = self.pods.get(uid)
        if victim is None or not victim.being_preempted:
            return
        victim.being_preempted = False
        victim.deletion_pending = victim.cls.terminating
        self.changed(Change.OTHER)
        if victim.job is not None:
            self.jobs.touch(victim.job)
        if victim.phase is Phase.PENDING and not victim.deletion_pending and self.watcher is not None:
            self.watcher.pod_pending(victim)

    def _requeue_preemptors(self, uid: str) -> None:
        """Requeues a pending pod whose decision was not carried out, and the other pods nominated to
        the same node: a victim that was to free capacity for them may stay."""
        pod = self.pods.get(uid)
        if pod is None or pod.phase is not Phase.PENDING or pod.deletion_pending:
            return
        waiting = self.nominator.get(pod.nominated, {pod.uid: pod})
        for each in list(waiting.values()):
            if self.watcher is not None and not each.deletion_pending:
                self.watcher.pod_pending(each)

    def _binding(self, uid: str) -> PodRecord | None:
        """The pod, or reserve pod, of that uid."""
        pod = self.pods.get(uid)
        if pod is not None:
            return pod
        reservation = self.reservations.known.get(uid)
        return reservation.pod if reservation is not None else None

    def confirm(self, pod: PodRecord) -> None:
        """Marks an assumed pod, or the reservation of an assumed reserve pod, as bound."""
        if pod.phase is not Phase.ASSUMED:
            return
        if pod.reservation is not None:
            self.reservations.confirm(pod.reservation)
            return
        pod.phase = Phase.ASSIGNED
        self.epoch.inputs += 1
        if pod.job is not None:
            self.jobs.touch(pod.job)
        self.chronicle.note(self.now, pod.ref, "bound")
        if pod.uid in self.reservations.preemption_holds:
            self.reservations.preemptor_changed(pod)
        if pod.reservation_uid:
            self.reservations.pod_confirmed(pod)
        if self.watcher is not None:
            self.watcher.bind_confirmed(pod)

    def _bind_refused(self, event: BindRefused) -> None:
        pod = self._binding(event.uid)
        if pod is None or pod.phase is not Phase.ASSUMED:
            return
        row = pod.row
        self.chronicle.note(self.now, pod.ref, "bind refused", event.message)
        if self.watcher is not None and self.watcher.bind_again(pod):
            return
        self.unassume(pod)
        self.changed(Change.POD_LEFT)
        if self.watcher is not None:
            self.watcher.bind_refused(pod, row, event.message)
