"""Event handlers of pods: add, update, delete, and the end of a pod.

A handler keeps the pod's record, class, job and claims in line with its object, and notifies the
`PodListener` of pods that are to be scheduled or no longer are.
"""

from collections.abc import Callable, Iterable

import msgspec

from holdfast.api.annotations import ReservationAllocated
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import condition
from holdfast.api.names import QUEUE_NAME_ANNOTATION, RESERVATION_ALLOCATED, RESERVATION_TEMPLATE
from holdfast.api.pod import Pod
from holdfast.api.times import TimeError, parse_time
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.class_key import RESULTS, pin_of
from holdfast.scheduler.cluster.decisions import Nominate, ObjectRef
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass, Traits
from holdfast.scheduler.cluster.records import Phase, PodRecord, queued_since
from holdfast.scheduler.jobs import Job, JobName, Jobs
from holdfast.scheduler.jobs.job import KEYS as JOB_KEYS
from holdfast.scheduler.managers.claims.claim_manager import ClaimManager
from holdfast.scheduler.managers.resource_managers import ResourceManagers
from holdfast.scheduler.managers.volumes import VolumeManager
from holdfast.scheduler.reservations import ReservationCache, VirtualReservations

_ENDED = ("Succeeded", "Failed")


class PodHandlers:
    """Applies pod objects to the cluster state."""

    def __init__(
        self,
        cluster: ClusterBase,
        volumes: VolumeManager,
        claims: ClaimManager,
        managers: ResourceManagers,
        reservations: ReservationCache,
        virtuals: VirtualReservations,
        jobs: Jobs,
        nominate: Callable[[PodRecord, str], None],
        confirm: Callable[[PodRecord], None],
    ) -> None:
        """`nominate` sets the nominated node of a pod; `confirm` marks an assumed pod as bound."""
        self._cluster = cluster
        self._nominate = nominate
        self._confirm = confirm
        self._pods = cluster.pods
        self._nodes = cluster.nodes
        self._ledger = cluster.ledger
        self._classes = cluster.classes
        self._volumes = volumes
        self._claims = claims
        self._jobs = jobs
        self._reservations = reservations
        self._virtuals = virtuals
        self._requests = virtuals.requirements.requests
        self._managers = managers
        self._chronicle = cluster.chronicle
        self._uid: dict[tuple[str, str], str] = {}

    def named(self, namespace: str, name: str) -> PodRecord | None:
        return self._pods.get(self._uid.get((namespace, name), ""))

    def put(self, pod: Pod) -> None:
        """Applies an added or updated pod."""
        meta = pod.metadata
        uid = meta.uid
        if RESERVATION_TEMPLATE in meta.annotations or uid in self._requests:
            self._virtuals.requirements.see_pod(pod)
        known = self._pods.get(uid)
        if pod.status.phase in _ENDED:
            # The event may arrive late, when another pod already has the name.
            self._jobs.pod_ended(pod, _bound_at(pod))
            self._jobs.estimates.pod_ended(pod)
            if known is not None:
                self._forget(known, pod.status.phase.lower())
            return
        claims_changed = bool(pod.spec.resource_claims) and self._claims.see_pod(pod)
        if known is None:
            self._add_pod(pod)
            return
        try:
            cls = self._class_of(pod, known)
        except InvalidObject as error:
            self.malformed(uid)
            self._cluster.report(known.ref, error)
            return
        moved = self._read_job(known, pod)
        if moved:
            self._cluster.epoch.inputs += 1
            if self._jobs.queues:
                self._jobs.queues.changed()
        if cls is not known.cls:
            self._reclass(known, pod, cls)
        else:
            self._classes.release(cls)
            self._place_or_queue(known, pod, changed=claims_changed or moved)

    def _add_pod(self, pod: Pod) -> None:
        """Adds a pod that is not known."""
        meta, cluster = pod.metadata, self._cluster
        uid, name = meta.uid, (meta.namespace, meta.name)
        if self._jobs.has_ended(uid):
            return  # an outdated event: the pod is known to have ended
        namesake = self._uid.get(name)
        if namesake is not None and namesake in self._pods:
            # The event of its deletion was missed: a name can be used again only after that.
            self._forget(self._pods[namesake], "replaced")
        ref = ObjectRef("Pod", *name, uid)
        try:
            cls = self._class_of(pod)
        except InvalidObject as error:
            cluster.report(ref, error)
            return
        now = cluster.now
        known = self._pods[uid] = PodRecord(ref, cls, pod.spec.scheduler_name, now)
        if meta.creation_timestamp:
            known.created = meta.creation_timestamp
            known.queued_since = queued_since(meta.creation_timestamp, now)
        cluster.epoch.inputs += 1
        self._uid[name] = uid
        self._read_job(known, pod)
        self._chronicle.note(now, ref, "added")
        self._place_or_queue(known, pod, changed=True)

    def drop(self, pod: Pod) -> None:
        """Applies the deletion of a pod."""
        known = self._pods.get(pod.metadata.uid)
        if known is not None:
            self._forget(known, "deleted")
            self._jobs.estimates.pod_gone(pod.metadata.uid)
        elif pod.status.phase in _ENDED:
            # A watch that leaves out ended pods also reports the end of a pod as a deletion, but with
            # the phase before it.
            self._jobs.gone(pod.metadata.uid)
            self._jobs.estimates.pod_gone(pod.metadata.uid)

    def malformed(self, uid: str) -> None:
        """Forgets a pending pod whose object is invalid. A pod on a node keeps its claim, because it
        uses that capacity whatever its object says."""
        known = self._pods.get(uid)
        if known is not None and known.phase is Phase.PENDING:
            self._forget(known, "malformed")

    def _read_job(self, known: PodRecord, pod: Pod) -> bool:
        """Reads the pod's job, queue and run-time estimate; returns whether the pod is in another job
        or queue than before."""
        meta, queue, job = pod.metadata, known.queue, known.job
        annotations = meta.annotations
        if annotations and RESULTS.issuperset(annotations):
            annotations = {}
        if (
            annotations
            or pod.spec.active_deadline_seconds is not None
            or known.queue
            or known.estimate is not None
            or known.uid in self._jobs.estimates.ignored
        ):
            before, known.estimate = known.estimate, self._jobs.estimates.read(pod, known.ref)
            if known.estimate != before and known.row >= 0:
                self._cluster.epoch.run_estimates += 1
            known.queue = annotations.get(QUEUE_NAME_ANNOTATION, "")
        if (
            known.job is not None
            or known.group is not None
            or pod.spec.scheduling_group is not None
            or (meta.labels and not JOB_KEYS.isdisjoint(meta.labels))
            or (annotations and not JOB_KEYS.isdisjoint(annotations))
        ):
            if self._jobs.is_leaving(known, pod):
                self._leave_queue(known)
            self._jobs.join_named(known, pod)
        if known.queue != queue and (joined := self._jobs.of(known)) is not None:
            joined.note_queue(known)
        return (known.queue, known.job) != (queue, job)

    def _leave_queue(self, known: PodRecord) -> None:
        """A pending pod leaves its job: another member may have to be queued instead of it."""
        if known.phase is Phase.PENDING and self._cluster.listener is not None:
            self._cluster.listener.pod_settled(known)

    def _reclass(self, known: PodRecord, pod: Pod, cls: PodClass) -> None:
        """Moves a pod to another class, after a change of something that scheduling reads."""
        before = known.cls
        self._cluster.epoch.inputs += 1
        if known.row >= 0:
            self._claim_as(known, cls)
            if _releases_capacity(before, cls):
                self._cluster.changed(Change.POD_LEFT)
            self._note_victim(before, cls)
            if cls.labels != before.labels or cls.terminating != before.terminating:
                self._cluster.changed(Change.POD_LABELS)
        else:
            known.cls = cls
            nominated_row = self._nodes.row(known.nominated) if known.nominated else None
            if nominated_row is not None:
                self._cluster.epoch.usage.add(nominated_row)
                self._cluster.changed(Change.POD_LEFT)  # the nominated pod may request less than before
        self._classes.release(before)
        self._chronicle.note(self._cluster.now, known.ref, "changed")
        self._place_or_queue(known, pod, changed=True)

    def _note_victim(self, before: PodClass, after: PodClass) -> None:
        """Notes the change if a pod on a node may be a victim now and was none before."""
        if after.priority < before.priority or after.non_preemptible < before.non_preemptible:
            self._cluster.changed(self._jobs.victims.left_by())

    def reclassify(self, name: str, uid: str) -> None:
        """Updates the classes of pods with this name or uid that are not bound, after owners of
        reservations began or ceased to name them. An assumed pod may be pending again later, and while
        it waits in Permit a reservation that names it may replace the virtual one."""
        pods = [self._pods[uid]] if uid in self._pods else []
        if not uid:
            pods = [pod for pod in self._pods.values() if pod.name == name]
        for pod in pods:
            if pod.phase is Phase.ASSIGNED:
                continue
            before, cls = pod.cls, self._current_class(pod)
            if pod.phase is Phase.ASSUMED:
                if cls is not before:
                    self._claim_as(pod, cls)
                self._classes.release(before)
                continue
            pod.cls = cls
            self._classes.release(before)
            if self._cluster.listener is not None and not pod.deletion_pending:
                self._cluster.listener.pod_pending(pod)

    def claims_changed(self, uids: Iterable[str]) -> None:
        """Updates the classes of pending pods whose ResourceClaims changed, and queues these pods. A
        pod that has a node, or is assumed on one, keeps its class, unless it is pending again."""
        for uid in uids:
            pod = self._pods.get(uid)
            if pod is None or pod.phase is not Phase.PENDING:
                if pod is not None and pod.phase is Phase.ASSUMED:
                    self._claims.changed_meanwhile.add(uid)
                continue
            before, pod.cls = pod.cls, self._current_class(pod)
            self._classes.release(before)
            self._cluster.epoch.inputs += 1
            if self._cluster.listener is not None and not pod.deletion_pending:
                self._cluster.listener.pod_pending(pod)

    def reprioritize(self, pod: PodRecord) -> None:
        """Updates the class of a member after its PodGroup changed."""
        before, cls = pod.cls, self._current_class(pod)
        if cls is before:
            self._classes.release(cls)
            return
        if pod.row >= 0:
            self._claim_as(pod, cls)
            self._note_victim(before, cls)
        else:
            pod.cls = cls
        self._classes.release(before)
        if (
            pod.phase is Phase.PENDING
            and self._cluster.listener is not None
            and not pod.deletion_pending
        ):
            self._cluster.listener.pod_pending(pod)

    def _claim_as(self, pod: PodRecord, cls: PodClass) -> None:
        """Changes the class, and so the claim, of a pod on a node."""
        row = pod.row
        with self._ledger.transaction() as transaction:
            self._ledger.remove(pod)
            pod.cls = cls
            self._ledger.place(pod, row)
            transaction.commit()

    def _current_class(self, pod: PodRecord) -> PodClass:
        """The class a known pod has with its current traits, acquired. The pod of its class may be
        another one, which may have a node."""
        seen = pod.cls.pod
        own = msgspec.structs.replace(seen.metadata, name=pod.name, uid=pod.uid)
        one = msgspec.structs.replace(seen, metadata=own)
        traits = self._traits(one, self._jobs.of(pod), pod.job)
        if seen.spec.resource_claims:
            is_pending = pod.phase is Phase.PENDING
            claims = self._claims.traits(own) if is_pending else pod.cls.claims
            traits = traits._replace(claims=claims)
        return self._classes.acquire(one, traits)

    def _class_of(self, pod: Pod, known: PodRecord | None = None) -> PodClass:
        """The class of a pod, acquired; raises InvalidObject."""
        job, name = self._jobs.named(pod), self._jobs.name_of(pod)
        if job is None and name is None:
            traits = self._reservations.traits(pod.metadata)
        else:
            traits = self._traits(pod, job, name)
        if pod.spec.resource_claims:
            traits = self._with_claims(traits, pod, known)
        return self._classes.acquire(pod, traits)

    def _with_claims(self, traits: Traits, pod: Pod, known: PodRecord | None) -> Traits:
        """Adds the ResourceClaims of a pod that is to be scheduled. A pod on a node keeps its class
        when its claims change: what it uses is counted by claim."""
        if known is not None and known.phase is not Phase.PENDING:
            return traits._replace(claims=known.cls.claims)
        if pod.spec.node_name:
            return traits
        return traits._replace(claims=self._claims.traits(pod.metadata))

    def _traits(self, pod: Pod, job: Job | None, name: JobName | None) -> Traits:
        """The traits of its class that come from reservations and from its job."""
        traits = self._reservations.traits(pod.metadata)
        if name is not None and self._reservations.names_groups:
            traits = traits._replace(group=self._jobs.membership(name))
        if job is None:
            return traits
        # Members of a core PodGroup have its priority; a pending one of another priority is an error.
        priority = None if pod.spec.priority and job.core is None else job.priority_class
        if priority is None and not job.non_preemptible:
            return traits
        return traits._replace(priority=priority, non_preemptible=job.non_preemptible)

    def _place_or_queue(self, known: PodRecord, pod: Pod, changed: bool) -> None:
        """Applies the rest of a pod's object: places it if it has a node, otherwise notifies the
        listener. `changed` is whether it changed in a way that may affect scheduling."""
        node = pod.spec.node_name
        if node:
            started = pod.status.start_time
            before = known.started, known.bound_at
            known.started = parse_time(started) if started else None
            preempted, deleted = _is_preempted(pod), pod.metadata.deletion_timestamp is not None
            # A victim stays `being_preempted` until the decision is refused: updates of the pod may
            # arrive before its condition and its deletion are written.
            if deleted:
                known.being_preempted = preempted
            preempted = preempted and not deleted
            if preempted != known.preempted:
                known.preempted = preempted
                self._jobs.touch_job_of(known)
            known.ready = _is_ready(pod)
            if known.job is not None or known.started is None:
                known.bound_at = _bound_at(pod)
            self._update_allocation(known, pod)
            self._managers.seen(known, pod.metadata)
            self._assigned(known, node)
            if (known.started, known.bound_at) != before:
                self._cluster.epoch.pod_starts.add(known.row)
                if known.estimate is not None:
                    self._cluster.epoch.usage.add(known.row)  # its expected end is known now
            return
        known.deletion_pending = pod.metadata.deletion_timestamp is not None or known.being_preempted
        if known.uid in self._reservations.preemption_holds:
            self._reservations.preemptor_changed(known)
        if pod.status.nominated_node_name != known.nominated_in_object:
            self._see_nomination(known, pod.status.nominated_node_name)
        if known.phase is not Phase.PENDING:
            return
        gates = pod.spec.scheduling_gates
        if gates or known.gates:
            names = tuple([gate.name for gate in gates])
            changed = changed or names != known.gates
            known.gates = names
        known.pinned_node = pin_of(pod.spec) if known.cls.pinned else None
        if self._cluster.listener is None:
            return
        if known.deletion_pending:
            self._cluster.listener.pod_settled(known)
        elif changed:
            self._cluster.listener.pod_pending(known)

    def _see_nomination(self, known: PodRecord, node: str) -> None:
        """Applies a change of status.nominatedNodeName. If another component made it, it is adopted. A
        nomination that was decided here took effect then, and may be superseded by now."""
        known.nominated_in_object = node
        unseen = known.unseen_nominations
        if node in unseen:
            known.unseen_nominations = unseen[unseen.index(node) + 1 :]
            if known.phase is Phase.PENDING and node != known.nominated:
                # It may have taken effect after the one that superseded it, and would stay.
                self._cluster.decide(Nominate(known.ref, known.nominated))
            return
        known.unseen_nominations = ()
        if known.phase is Phase.PENDING:
            self._nominate(known, node)

    def _update_allocation(self, known: PodRecord, pod: Pod) -> None:
        """Allocates the pod from the reservation its annotation names."""
        text = pod.metadata.annotations.get(RESERVATION_ALLOCATED)
        if not text and not known.reservation_uid:
            return
        reservation = (
            self._reservations.known.get(known.reservation_uid)
            if text and known.reservation_uid
            else None
        )
        if reservation is None or reservation.mark != text:
            self._ledger.allocate_from(known, _allocated_from(text))

    def _assigned(self, known: PodRecord, node: str) -> None:
        """Places a pod on the node its object names; this or another scheduler bound it."""
        row = self._nodes.row(node)
        if known.row >= 0 and known.row == row:
            self._confirm(known)
            return
        if self._cluster.listener is not None:
            self._cluster.listener.pod_settled(known)
        if known.row >= 0:
            self._vacate(known)
        self._nominate(known, "")
        self._cluster.epoch.inputs += 1
        row = self._cluster.open_row(node)
        known.phase = Phase.ASSIGNED  # nominated pods have no units yet that it may have
        self._ledger.place(known, row)
        if known.reservation_uid:
            self._reservations.pod_confirmed(known)
        if known.uid in self._reservations.preemption_holds:
            self._reservations.preemptor_changed(known)
        self._cluster.changed(Change.POD_PLACED)
        self._chronicle.note(self._cluster.now, known.ref, "assigned", node)

    def _vacate(self, pod: PodRecord) -> None:
        """Removes a pod from its row."""
        self._ledger.remove(pod)
        self._cluster.changed(Change.POD_LEFT)
        if self._volumes.release(pod.uid):
            self._cluster.changed(Change.ASSUMED_VOLUMES)

    def _forget(self, pod: PodRecord, why: str) -> None:
        """Removes a pod from the state, with everything kept for it."""
        self._virtuals.requirements.forget_pod(pod.uid)
        self._cluster.epoch.inputs += 1
        if self._cluster.listener is not None:
            self._cluster.listener.pod_settled(pod)
        if pod.row >= 0:
            self._vacate(pod)
        self._nominate(pod, "")
        pod.gone = True
        if self._jobs.estimates.ignored:
            self._jobs.estimates.forget(pod.uid)
        self._managers.forget(pod.uid)
        self._claims.pods.forget(pod.uid)
        self._claims.changed_meanwhile.discard(pod.uid)
        del self._pods[pod.uid]
        if pod.uid in self._reservations.preemption_holds:
            self._reservations.preemptor_changed(pod)
        if self._uid.get((pod.namespace, pod.name)) == pod.uid:
            del self._uid[pod.namespace, pod.name]
        if pod.job is not None:
            self._jobs.leave(pod)
        self._jobs.leave_group(pod)
        self._classes.release(pod.cls)
        self._chronicle.note(self._cluster.now, pod.ref, why)


def _allocated_from(text: str | None) -> str:
    """The uid in the annotation of the reservation a pod is allocated from; empty if it is invalid."""
    if text is None:
        return ""
    try:
        return decode_json(text, ReservationAllocated).uid
    except InvalidObject:
        return ""


def _is_preempted(pod: Pod) -> bool:
    """Whether the pod's condition says that it is a victim of preemption; it may not be deleted yet."""
    found = condition(pod.status.conditions, "DisruptionTarget")
    return found is not None and found.status == "True" and found.reason == "PreemptionByScheduler"


def _bound_at(pod: Pod) -> float | None:
    """When the pod was bound, by its PodScheduled condition."""
    found = condition(pod.status.conditions, "PodScheduled")
    if found is None or found.status != "True" or not found.last_transition_time:
        return None
    try:
        return parse_time(found.last_transition_time)
    except TimeError:
        return None


def _is_ready(pod: Pod) -> bool:
    """Whether the pod's condition Ready is True."""
    found = condition(pod.status.conditions, "Ready")
    return found is not None and found.status == "True"


def _releases_capacity(before: PodClass, after: PodClass) -> bool:
    """Whether a pod on a node that changed its class may leave other pods more than before. A pod that
    is being deleted keeps its claim until it is gone."""
    now = dict(after.usage)
    return (
        any(now.get(slot, 0) < amount for slot, amount in before.usage)
        or before.ports != after.ports
        or before.volumes != after.volumes
        or before.annotations != after.annotations
    )
