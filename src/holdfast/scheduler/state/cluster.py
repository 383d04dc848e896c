"""The cluster state of the scheduler, kept up to date by events.

`feed` takes an event; its effects are written to the node table, the ledger and the indexes, and the
`PodListener` (the scheduler) is notified of changes of pods. Nothing is decided here.
"""

from collections.abc import Callable
from typing import Any

from holdfast.api.errors import InvalidObject
from holdfast.api.jobs import PodGroup, Queue, VolcanoJob
from holdfast.api.meta import Object, ObjectMeta
from holdfast.api.node import Device, Node, NodeResourceTopology
from holdfast.api.pod import Pod
from holdfast.api.raw_objects import RawObject
from holdfast.api.reservation import PodMigrationJob, Reservation
from holdfast.api.reservation_schedules import schedule_of
from holdfast.api.resource_claims import ResourceClaim
from holdfast.api.workloads import PriorityClass
from holdfast.scheduler.cluster.base import ClusterBase, ClusterSettings, PodListener
from holdfast.scheduler.cluster.decisions import Emit, Nominate, ObjectRef
from holdfast.scheduler.cluster.events import (
    Added,
    AnnotateRefused,
    BindConfirmed,
    BindRefused,
    Change,
    ClaimWriteRefused,
    CreateRefused,
    Deleted,
    Event,
    EvictRefused,
    GroupStatusRefused,
    Malformed,
    MigrationWriteRefused,
    PreemptRefused,
    ReservationWriteRefused,
    Updated,
    WriteRefused,
)
from holdfast.scheduler.cluster.node_table import NodeInfo, difference, node_info, with_devices
from holdfast.scheduler.cluster.object_index import Migrations, RawObjects, kind_of
from holdfast.scheduler.cluster.plugin_errors import PluginErrors
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.jobs import Jobs
from holdfast.scheduler.jobs.node_forecast import NodeForecast
from holdfast.scheduler.managers.claims.claim_handlers import is_outdated
from holdfast.scheduler.managers.claims.claim_manager import DEVICE_KINDS, ClaimManager
from holdfast.scheduler.managers.resource_managers import TOPOLOGY_KINDS, ResourceManagers
from holdfast.scheduler.managers.volumes import STORAGE_KINDS, VolumeManager, hint
from holdfast.scheduler.reservations import ReservationCache, VirtualReservations
from holdfast.scheduler.reservations.reservation_handlers import ReservationHandlers
from holdfast.scheduler.state.pod_handlers import PodHandlers

_MAX_EVICTION_BACK_OFF = 10.0
"""The longest back-off, in seconds, before a pod whose eviction was refused is evicted again."""
_MOST_UNSEEN = 8
"""Of the nominations of a pod that may be unwritten, the last so many are kept."""


class Cluster(ClusterBase):
    """Nodes, pods, reservations, jobs and other objects, as of the events fed so far."""

    def __init__(
        self, settings: ClusterSettings | None = None, listener: PodListener | None = None
    ) -> None:
        super().__init__(settings, listener)
        self.volumes = VolumeManager(self.nodes, self.ledger, self.classes, self.epoch)
        self.claims = ClaimManager(self)
        self.managers = ResourceManagers(self, self._nominated_beside)
        self.reservations = ReservationCache(self, self.managers, self.volumes, listener=self)
        self.reservation_handlers = ReservationHandlers(
            self, self.managers, self.reservations, listener=self
        )
        self.virtuals = VirtualReservations(self, self.reservations, self.reservation_handlers)
        forecast = NodeForecast(self, self.managers, self.volumes, self.claims)
        self.jobs = Jobs(
            self, self.reservations, self.virtuals, forecast, self._reprioritized, self._victim_leaves
        )
        self.node_listeners: list[Callable[[int], None]] = []
        """Called with the row of every node object that is added, changed or deleted."""
        self.migrations = Migrations()
        self.raw_objects = RawObjects()
        """Objects of the kinds that plugins declare in `reads_objects`."""
        self.not_evicted_before: dict[str, float] = {}
        """By uid, pods whose eviction was refused, and when their back-off ends."""
        self.plugin_errors = PluginErrors()
        self.pod_handlers = PodHandlers(
            self,
            self.volumes,
            self.claims,
            self.managers,
            self.reservations,
            self.virtuals,
            self.jobs,
            self.nominate,
            self.confirm,
        )
        self.claims.pods_changed = self.pod_handlers.claims_changed
        self.claims.templates_changed = self.reservation_handlers.templates_changed
        self.claims.is_live = self._is_live
        self.claims.pod_group = self.jobs.core_group
        self.claims.allocated_pods = self._allocated_pods
        self.claims.holder_changed = self._holder_changed
        self.reservations.waiting.lacks_devices = self.claims.lacking
        self.reservations.on_dropped.append(lambda info: self.claims.reservation_dropped(info.uid))
        self.reservation_handlers.claim_traits = self.claims.template_traits
        self._handlers: dict[type, Callable[[Any], None]] = {
            Added: self._put,
            Updated: self._put,
            Deleted: self._delete,
            Malformed: self._malformed,
            BindConfirmed: self._bind_confirmed,
            BindRefused: self._bind_refused,
            CreateRefused: self._create_refused,
            ReservationWriteRefused: self._reservation_write_refused,
            AnnotateRefused: self._annotate_refused,
            EvictRefused: self._evict_refused,
            PreemptRefused: self._preempt_refused,
            GroupStatusRefused: self._group_status_refused,
            ClaimWriteRefused: self._claim_write_refused,
            MigrationWriteRefused: self._write_refused,
            WriteRefused: self._write_refused,
        }

    def feed(self, event: Event, now: float) -> None:
        """Applies an event. An invalid object raises nothing; it is reported (`take_reports`)."""
        self.now = now
        self._handlers[type(event)](event)

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
        for slot in slots.take_loose():
            if slot in used or slot >= len(nodes.allocatable):
                continue
            if nodes.allocatable[slot].any() or nodes.claimed[slot].any() or nodes.held[slot].any():
                continue
            slots.release(slot)

    def pod(self, namespace: str, name: str) -> PodRecord | None:
        return self.pod_handlers.named(namespace, name)

    def assume(self, pod: PodRecord, row: int) -> None:
        """Places a pod that is to be bound on the row, where it claims its requests from now on."""
        if pod.reservation is not None:
            self.reservations.assume(pod.reservation, row)
            return
        pod.previous_nomination = pod.nominated
        if pod.nominated:
            if self.nodes.row(pod.nominated) != row:
                self.changed(Change.POD_LEFT | self._devices_of(pod))
            self.nominator.set(pod, "")
        self.ledger.place(pod, row)
        pod.phase = Phase.ASSUMED
        pod.bind_decided = pod.bind_retried = False

    def nominated_pods(self, row: int) -> list[PodRecord]:
        """The pods nominated to the row that no preemption hold keeps capacity for. Pods that were
        placed meanwhile, even in a dry run, are left out: they claim their requests already."""
        nominated = self.nominator.get(self.nodes.name(row))
        if not nominated:
            return []
        holds = self.reservations.preemption_holds
        return [pod for pod in nominated.values() if pod.row < 0 and not (holds and holds.of(pod, row))]

    def nominated_pods_for(self, pod: PodRecord, row: int) -> list[PodRecord]:
        """Those of them that a pod has to leave capacity to: pods of the same or higher priority, and
        pods of queues from which it may not preempt."""
        nominated = self.nominator.get(self.nodes.name(row))
        if not nominated:
            return []
        holds, priority = self.reservations.preemption_holds, pod.cls.priority
        defers_to = self.jobs.queues.defers_to
        return [
            each
            for each in nominated.values()
            if each.row < 0
            and each is not pod
            and (each.cls.priority >= priority or defers_to(pod, each))
            and not (holds and holds.of(each, row))
        ]

    def _nominated_beside(self, pod: PodRecord, row: int) -> list[tuple[PodRecord, str]]:
        """The other pods nominated to the row that a pod defers to, each with the uid of the
        reservation it would be allocated from."""
        reservation_of = self.reservations.reservation_for_nominated
        return [(each, reservation_of(each, row)) for each in self.nominated_pods_for(pod, row)]

    def nominate(self, pod: PodRecord, node: str) -> None:
        """Sets the pod's nominated node; an empty name clears it."""
        if pod.nominated != node:
            if pod.nominated:
                self.changed(Change.POD_LEFT | self._devices_of(pod))
            self.nominator.set(pod, node)
            if pod.uid in self.reservations.preemption_holds:
                self.reservations.pod_nominated(pod)

    def nomination_decided(self, decision: Nominate) -> None:
        """A nomination is about to be written: when the pod's object shows it, it is not news."""
        pod = self.pods.get(decision.pod.uid)
        if pod is not None:
            pod.unseen_nominations = (*pod.unseen_nominations, decision.node)[-_MOST_UNSEEN:]

    def _devices_of(self, pod: PodRecord) -> int:
        """The change that there is for devices by claim when a pod does not wait for any, or does not
        leave any, as it was to do."""
        return Change.DEVICES if self.claims.concerns(pod.cls) else Change.NONE

    def _victim_leaves(self) -> int:
        """The kinds of change when a victim of preemption leaves; of a pod that was bound when it was
        first seen it is not known which devices it has."""
        return Change.POD_LEFT | (Change.DEVICES if self.claims.active else Change.NONE)

    def unassume(self, pod: PodRecord) -> None:
        """Removes an assumed pod from its row; it is pending again, with its previous nomination."""
        if pod.reservation is not None:
            self.reservations.unassume(pod.reservation)
            return
        self.ledger.remove(pod)
        pod.reservation_uid = ""
        pod.phase = Phase.PENDING
        self.claims.pending_again(pod)
        if pod.being_preempted:
            pod.deletion_pending = True  # it is still a victim, whose deletion is decided
        if pod.previous_nomination:
            self.nominate(pod, pod.previous_nomination)  # its object still has this nominatedNodeName
            if pod.uid in self.reservations.preemption_holds:
                self.reservations.preemptor_pending(pod)

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
            self.reservation_handlers.put(obj)
        elif isinstance(obj, PodGroup):
            self.jobs.put_group(obj)
        elif isinstance(obj, VolcanoJob):
            self.jobs.estimates.put_volcano_job(obj)
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
            if isinstance(obj, ResourceClaim) and is_outdated(before, obj):
                return
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
            self.jobs.estimates.drop_volcano_job(obj)
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
        if isinstance(some, DEVICE_KINDS):
            self.claims.put(before, after)
            return
        if isinstance(some, PriorityClass):
            self.jobs.put_priority_class(some, there=after is not None)
        self._changes |= Change.OTHER
        if isinstance(some, TOPOLOGY_KINDS):
            self._topology_changed(some)

    def _topology_changed(self, changed: Device | NodeResourceTopology) -> None:
        """Applies a change of the object that lists the devices or the CPUs of a node."""
        name = changed.metadata.name
        self.managers.object_changed(changed)
        row = self.nodes.row(name)
        info = self.nodes.info.get(row) if row is not None else None
        if isinstance(changed, Device) and info is not None:
            self._put_info(with_devices(info, self.managers.extended_resources(name)))
        if row is not None:
            self.reservations.node_changed(row)

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
        elif event.kind in ("Device", "NodeResourceTopology"):
            gone = self.objects.get(event.kind, {}).pop((event.namespace, event.name), None)
            if gone is not None:
                self._other_changed(gone, None)
        self.report(ref, event.error)

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

    def _node_changed(self, row: int, changes: int) -> None:
        self.epoch.objects += 1
        self.epoch.inputs += 1
        self.epoch.nodes.add(row)
        self.claims.node_changed(row)
        self.reservations.node_changed(row)
        for listen in self.node_listeners:
            listen(row)
        self._changes |= changes

    # Changes of reservations (`ReservationListener`) and of PodGroups

    def reserve_pod_read(self, pod: PodRecord, metadata: ObjectMeta) -> None:
        self.jobs.join(pod, metadata, pod.cls.namespace)

    def reserve_pod_gone(self, pod: PodRecord) -> None:
        self.jobs.leave(pod)

    def reservation_succeeded(self, metadata: ObjectMeta, namespace: str) -> None:
        self.jobs.ended(metadata, namespace)

    def reservation_deleted(self, uid: str) -> None:
        self.jobs.gone(uid)

    def _is_live(self, uid: str) -> bool:
        """Whether a reservation has a node and is not finished."""
        reservation = self.reservations.known.get(uid)
        if reservation is None or reservation.finished:
            return False
        return reservation.pod is not None and reservation.pod.row >= 0

    def _allocated_pods(self, uid: str) -> list[PodRecord]:
        reservation = self.reservations.known.get(uid)
        return self.reservations.allocated_pods(reservation) if reservation is not None else []

    def _holder_changed(self, uid: str) -> None:
        """What a reservation holds by claims may have changed: it is reconciled."""
        if uid in self.reservations.known:
            self.reservations.dirty[uid] = None

    def pods_named(self, name: str, uid: str) -> None:
        self.pod_handlers.reclassify(name, uid)

    def groups_named(self) -> None:
        for job in list(self.jobs.known.values()):
            for pod in list(job.members.values()):
                if pod.reservation is None:
                    self.pod_handlers.reprioritize(pod)

    def _reprioritized(self, pod: PodRecord) -> None:
        self.pod_handlers.reprioritize(pod)

    # Binds

    def _bind_confirmed(self, event: BindConfirmed) -> None:
        self.claims.bind_settled(event.uid)
        pod = self._binding(event.uid)
        if pod is not None:
            self.confirm(pod)

    def _create_refused(self, event: CreateRefused) -> None:
        name = event.decision.reservation.metadata.name
        self.virtuals.requirements.not_created(name, event.message)
        self.reservations.starvation_holds.not_created(name)
        if schedule_of(event.decision.reservation) is not None:
            self.reservations.not_created[name] = event.message
        self._write_refused(event)

    def _reservation_write_refused(self, event: ReservationWriteRefused) -> None:
        self.reservations.not_written(event.decision.reservation.uid)
        self._write_refused(event)

    def _annotate_refused(self, event: AnnotateRefused) -> None:
        uid = event.decision.pod.uid
        self.virtuals.not_written(uid, event.message)
        self._requeue_preemptors(uid)
        self._write_refused(event)

    def _evict_refused(self, event: EvictRefused) -> None:
        uid = event.decision.pod.uid
        self._eviction_refused(uid)
        self._report_refused(event)
        self._preemption_ended(uid)
        self._write_refused(event)

    def _preempt_refused(self, event: PreemptRefused) -> None:
        victim, preemptor = event.decision.pod.uid, event.decision.preemptor.uid
        self._preemption_ended(victim)
        self.reservations.not_written(preemptor)
        self._requeue_preemptors(preemptor)
        self._write_refused(event)

    def _group_status_refused(self, event: GroupStatusRefused) -> None:
        self.jobs.not_written(event.decision.group.uid)
        self._write_refused(event)

    def _claim_write_refused(self, event: ClaimWriteRefused) -> None:
        self.claims.write_refused(event.decision, event.message)
        self._write_refused(event)

    def _write_refused(self, event: WriteRefused) -> None:
        """Keeps the refusal for the migration controller; a migration writes all kinds of objects."""
        if self.migrations.known:
            self.migrations.refused.append(event)

    def _report_refused(self, event: EvictRefused) -> None:
        """Reports what refuses the eviction of a victim, the first time."""
        pod = self.pods.get(event.decision.pod.uid)
        if pod is not None and pod.being_preempted and pod.evictions_refused == 1:
            parts = event.decision.message, " ".join(filter(None, (event.message, event.detail)))
            self._reports.append(
                Emit(pod.ref, "Warning", "EvictionRefused", ": ".join(parts), "Evicting")
            )

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
        self.changed(Change.OTHER | (self._victim_leaves() & Change.DEVICES))
        self.jobs.touch_job_of(victim)
        if victim.phase is Phase.PENDING and not victim.deletion_pending and self.listener is not None:
            self.listener.pod_pending(victim)

    def _requeue_preemptors(self, uid: str) -> None:
        """Requeues a pending pod whose decision was not carried out, and the other pods nominated to
        the same node: a victim that was to free capacity for them may stay."""
        pod = self.pods.get(uid)
        if pod is None or pod.phase is not Phase.PENDING or pod.deletion_pending:
            return
        waiting = self.nominator.get(pod.nominated, {pod.uid: pod})
        for each in list(waiting.values()):
            if self.listener is not None and not each.deletion_pending:
                self.listener.pod_pending(each)

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
        pod.phase, pod.bind_retried = Phase.ASSIGNED, False
        self.epoch.inputs += 1
        if pod.job is not None:
            self.jobs.touch_job_of(pod)
        self.chronicle.note(self.now, pod.ref, "bound")
        if pod.uid in self.reservations.preemption_holds:
            self.reservations.preemptor_changed(pod)
        if pod.reservation_uid:
            self.reservations.pod_confirmed(pod)
        if self.listener is not None:
            self.listener.bind_confirmed(pod)

    def _bind_refused(self, event: BindRefused) -> None:
        self.claims.bind_refused(event.uid)
        pod = self._binding(event.uid)
        if pod is None or pod.phase is not Phase.ASSUMED:
            return
        pod.bind_decided = False
        self.chronicle.note(self.now, pod.ref, "bind refused", event.message)
        listener = self.listener if event.transient else None
        if listener is not None and listener.bind_failed(pod, event.message):
            return
        self.not_bound(pod, event.message)

    def not_bound(self, pod: PodRecord, message: str) -> None:
        """Releases the capacity of an assumed pod that is not bound after all."""
        row = pod.row
        self.unassume(pod)
        self.changed(Change.POD_LEFT)
        if self.listener is not None:
            self.listener.bind_refused(pod, row, message)
