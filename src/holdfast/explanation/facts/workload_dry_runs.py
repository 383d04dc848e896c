"""What comes of a workload once something is changed: its controllers create and end pods, and the
scheduler places them, step by step until nothing more happens.

The controllers are those of a local cluster. They have the workload's own objects and pods only; its
pods are placed by the scheduler of the snapshot, together with others that are tried before them, and
end if it then reclaims them for other queues. If evictions count, they also preempt and reclaim. A pod
is ready once it has a node, and gone as soon as it
is deleted. Everything is undone in the end.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import RESERVATION_ALLOCATED
from holdfast.api.resource_claims import AllocationResult, ResourceClaim
from holdfast.api.times import format_time
from holdfast.explanation.facts.admitted_pods import NONE, additions
from holdfast.explanation.facts.created_claims import (
    claims_of_new_pod,
    ephemeral_claims,
    own_claims,
    provisioned,
)
from holdfast.explanation.facts.expected_ends import ended_pod
from holdfast.explanation.facts.other_pods import Fitting
from holdfast.explanation.facts.own_starts import evicting_start
from holdfast.explanation.facts.pod_owners import controller_of
from holdfast.explanation.facts.rehearsed_rounds import ended_holds, placed_among_others
from holdfast.explanation.facts.replaced_pods import hold_deletion
from holdfast.explanation.verdicts import Subject, at_time
from holdfast.kube.object_client import Raw
from holdfast.local.clock import ComponentTimers
from holdfast.local.component import ObjectWriter
from holdfast.local.store.objects import Identity, Key, SeededNames, StoreChange, pod_key
from holdfast.local.store.store import Store
from holdfast.local.workloads.completion import DumpCompletion
from holdfast.local.workloads.component import WorkloadControllers
from holdfast.local.workloads.deployment import limits, recreates
from holdfast.local.workloads.lister import Ref, labels_of, selects
from holdfast.local.workloads.replica_set import wanted_replicas
from holdfast.local.workloads.revisions import HASH_LABEL, REVISION_LABEL, current, plain
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.machinery.schema import read_object
from holdfast.machinery.status import Resource, forbidden
from holdfast.scheduler.cluster.claim_writes import consumer, written_allocation
from holdfast.scheduler.cluster.decisions import Emit
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import (
    CREATE,
    DELETE,
    PATCH,
    ClusterChange,
    ObjectChange,
    applied,
    create,
    delete,
    patch,
)
from holdfast.snapshot.cluster_snapshot import (
    NODE,
    POD,
    RESERVATION,
    RESOURCE_CLAIM,
    ClusterSnapshot,
    SnapshotObjects,
)

DEPLOYMENT, REPLICA_SET = KINDS["apps/v1", "Deployment"], KINDS["apps/v1", "ReplicaSet"]
_STATEFUL_SET, _DAEMON_SET = KINDS["apps/v1", "StatefulSet"], KINDS["apps/v1", "DaemonSet"]
_WORKLOADS = {each.kind: each for each in (DEPLOYMENT, REPLICA_SET, _STATEFUL_SET, _DAEMON_SET)}
_REVISION = ("apps/v1", "ControllerRevision")
_CLAIM = KINDS["v1", "PersistentVolumeClaim"]
_PODS = Resource("", "pods")
_RUNTIME_CLASS = ("node.k8s.io", "RuntimeClass")
_PRIORITY, _RUNTIME = "scheduling.k8s.io/v1", "node.k8s.io/v1"
_READ = (KINDS[_PRIORITY, "PriorityClass"], KINDS[_RUNTIME, "RuntimeClass"], _CLAIM)
"""Kinds that creating pods depends on."""
_MOST_PODS = 500
_MOST_CREATED = 4
"""How many pods per replica are created until controllers seem to do so forever."""
_STEPS = 2_000
"""How often pods are placed, or controllers run; they come to rest long before."""
_MORE_UNAVAILABLE = (1, 2, 4, 8)
"""By how much a higher `maxUnavailable` is tried where other pods take what all old ones free."""
_MOST_RECLAIMS = 50
"""For how many pods of other queues own pods are reclaimed."""
_MOST_EVICTING = 50
"""How many own pods preempt or reclaim."""
_SEED = 11
"""Other names than those of pods that a hypothetical cluster has made."""
_UNKNOWN: Raw = {"metadata": {}}


class WorkloadParts(NamedTuple):
    """A workload and what it owns, before a change."""

    info: KindInfo
    workload: Raw
    """As it should be; a manifest may have changed it."""
    before: Raw | None
    """As its controllers know it; None if it is yet to be created."""
    owned: list[Raw]
    """ReplicaSets and ControllerRevisions."""
    pods: list[Raw]
    now: list[Raw]
    """The pods in the snapshot: others, if these come of a manifest."""

    @property
    def running(self) -> int:
        """How many of its pods have a node, and do not terminate."""
        return sum(_has_node(raw) and not _terminates(raw) for raw in self.pods)

    @property
    def terminating(self) -> list[Raw]:
        """Its pods that are being deleted and still have the capacity of a node."""
        return [raw for raw in self.now if _has_node(raw) and _terminates(raw)]

    @property
    def is_rolling(self) -> bool:
        """Whether it replaces pods within bounds that can be changed."""
        return self.info is DEPLOYMENT and not recreates(self.workload) and not self.is_paused

    @property
    def is_paused(self) -> bool:
        return bool(self.workload["spec"].get("paused"))

    @property
    def old(self) -> list[Raw]:
        """Of a Deployment, the pods of other templates that have a node."""
        sets = [(_ref(raw), raw) for raw in self.owned if raw["kind"] == REPLICA_SET.kind]
        new = current(sets, self.workload["spec"].get("template") or {})
        uid = new[1]["metadata"].get("uid") if new is not None else None
        return [raw for raw in self.pods if _has_node(raw) and controller_of(raw).get("uid") != uid]

    @property
    def is_mixed(self) -> bool:
        """Whether its pending pods are of several templates."""
        waiting = [raw for raw in self.pods if not _has_node(raw) and not _terminates(raw)]
        made = {(controller_of(raw).get("uid"), labels_of(raw).get(REVISION_LABEL)) for raw in waiting}
        return len(made) > 1

    @property
    def replicas(self) -> int:
        """How many pods it should have; those of a DaemonSet are as many as there are."""
        return len(self.now) if self.info is _DAEMON_SET else wanted_replicas(self.workload)

    @property
    def bounds(self) -> tuple[int, int]:
        """Of a Deployment, `maxSurge` and `maxUnavailable` as numbers of pods."""
        return limits(self.workload)


def parts_of(snapshot: ClusterSnapshot, subject: Subject) -> WorkloadParts | None:
    """The workload of the pod; None if it has none whose controllers are known, or is of a gang, or
    there are too many pods."""
    pod = subject.record(snapshot) if subject.info is POD else None
    if pod is None or snapshot.cluster.jobs.of(pod) is not None:
        return None
    found = _workload_of(snapshot, subject.raw(snapshot))
    return _workload_parts(snapshot, *found) if found is not None else None


def parts_of_new(snapshot: ClusterSnapshot, pod: Raw) -> WorkloadParts | None:
    """The workload of a pod that does not exist yet."""
    found = _workload_of(snapshot, pod)
    return _workload_parts(snapshot, *found) if found is not None else None


def _workload_parts(snapshot: ClusterSnapshot, info: KindInfo, workload: Raw) -> WorkloadParts | None:
    spec = workload.get("spec") or {}
    inner = (spec.get("template") or {}).get("spec") or {}
    if not inner or wanted_replicas(workload) > _MOST_PODS:
        return None
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not selects(spec.get("selector"), labels):
        return None  # no API server has checked it
    key = workload["metadata"].get("namespace") or "", workload["metadata"]["name"]
    owned, pods = _owned(snapshot.objects, workload)
    if not snapshot.is_hypothetical:
        return WorkloadParts(info, workload, workload, owned, pods, pods)
    before = snapshot.before.get((info.api_version, info.kind), {}).get(key)
    was = _owned(snapshot.before, before) if before is not None else ([], [])
    return WorkloadParts(info, workload, before, *was, pods)


def is_replaced(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """The name of the Deployment of a pod, if the pod is of an old template of it; empty if not."""
    parts = parts_of(snapshot, Subject.of(pod))
    if parts is None or parts.info is not DEPLOYMENT:
        return ""
    owned = parts.owned if not snapshot.is_hypothetical else _owned(snapshot.objects, parts.workload)[0]
    sets = [(_ref(raw), raw) for raw in owned if raw["kind"] == REPLICA_SET.kind]
    new = current(sets, parts.workload["spec"].get("template") or {})
    own = {each.uid for each in pod.cls.owners if each.controller}
    is_new = new is None or new[1]["metadata"].get("uid") in own
    return "" if is_new else str(parts.workload["metadata"]["name"])


def _workload_of(snapshot: ClusterSnapshot, pod: Raw) -> tuple[KindInfo, Raw] | None:
    owner, namespace = controller_of(pod), pod["metadata"].get("namespace") or ""
    info = _WORKLOADS.get(owner.get("kind") or "")
    if info is None or info.api_version != owner.get("apiVersion"):
        return None
    found = snapshot.find(info, owner["name"], namespace)
    if found is None or found["metadata"].get("uid") != owner.get("uid"):
        return None
    above = controller_of(found)
    if above.get("kind") != DEPLOYMENT.kind:
        return info, found
    deployment = snapshot.find(DEPLOYMENT, above["name"], namespace)
    return DEPLOYMENT, deployment or unread_deployment(found, above)


def unread_deployment(replica_set: Raw, owner: Raw) -> Raw:
    """As its ReplicaSet says."""
    spec = replica_set.get("spec") or {}
    metadata = {**replica_set["metadata"], "name": owner["name"], "uid": owner.get("uid")}
    kept = {key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata}
    template, selector = plain(spec.get("template") or {}), dict(spec.get("selector") or {})
    labels = selector.get("matchLabels") or {}
    selector["matchLabels"] = {key: labels[key] for key in labels if key != HASH_LABEL}
    replicas = spec.get("replicas", 1)
    return {
        "apiVersion": DEPLOYMENT.api_version,
        "kind": DEPLOYMENT.kind,
        "metadata": kept,
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }


def _owned(objects: SnapshotObjects, workload: Raw) -> tuple[list[Raw], list[Raw]]:
    """What it owns, and its pods."""
    uid = workload["metadata"].get("uid")
    kinds = [(REPLICA_SET.api_version, REPLICA_SET.kind), _REVISION]
    owned = [
        raw
        for kind in kinds
        for raw in objects.get(kind, {}).values()
        if uid and controller_of(raw).get("uid") == uid
    ]
    owners = {uid, *(raw["metadata"].get("uid") for raw in owned)} - {None}
    pods = objects.get((POD.api_version, POD.kind), {}).values()
    return owned, [raw for raw in pods if controller_of(raw).get("uid") in owners]


def dry_run(
    snapshot: ClusterSnapshot, parts: WorkloadParts, change: ClusterChange, evicts: bool = False
) -> Fitting:
    """How many of the workload's pods get a node with the change; if it `evicts`, also by preempting or
    reclaiming. What follows from it for these pods is left to the controllers. Its pods that terminate
    have ended, unless the change is to wait until some time, or nothing is changed."""
    with ExitStack() as stack:
        stack.enter_context(at_time(snapshot, change.until))
        return _DryRun(snapshot, parts, change, stack, evicts).result()


def unchanged_run(snapshot: ClusterSnapshot, parts: WorkloadParts) -> Fitting:
    """How many of the workload's pods get a node if nothing is changed, once those that terminate have
    ended."""
    ended = [change for raw in parts.terminating for change in _ended(snapshot, raw)]
    return dry_run(snapshot, parts, ClusterChange((), tuple(ended)))


def edits_strategy(parts: WorkloadParts, change: ClusterChange) -> bool:
    """Whether the bounds of the workload's rolling update are changed."""
    return any(each.info is parts.info and "strategy" in _spec(each) for each in change.objects)


def edits_template(parts: WorkloadParts, change: ClusterChange) -> bool:
    """Whether the template of the workload is changed."""
    return any(each.info is parts.info and "template" in _spec(each) for each in change.objects)


def all_unavailable(parts: WorkloadParts, change: ClusterChange) -> ClusterChange:
    """A change of a Deployment's template, and all its old pods may end first."""
    if parts.info is not DEPLOYMENT or not edits_template(parts, change) or not parts.is_rolling:
        return change
    return change + ClusterChange((), (more_unavailable(parts, parts.replicas),))


def all_replaced(parts: WorkloadParts, change: ClusterChange) -> ClusterChange:
    """A change of a template, and no pod of another template is left: with some of these beside new
    ones, more pods may run than could once all are new."""
    strategy = (parts.workload["spec"].get("updateStrategy") or {}).get("type")
    is_ordered = parts.info is _STATEFUL_SET and strategy != "OnDelete"
    if not is_ordered or not edits_template(parts, change):
        return all_unavailable(parts, change)
    gone = [delete(POD, name, namespace) for namespace, name in map(_name, parts.pods)]
    return change + ClusterChange((), tuple(gone))


def _spec(change: ObjectChange) -> Raw:
    found: Raw = change.body.get("spec") or {}
    return found


def more_unavailable(parts: WorkloadParts, count: int) -> ObjectChange:
    """So many pods may be unavailable in the rolling update of a Deployment."""
    body = {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": count}}}}
    return patch(DEPLOYMENT, parts.workload, body)


def least_unavailable(
    snapshot: ClusterSnapshot, parts: WorkloadParts, change: ClusterChange, evicts: bool = False
) -> tuple[int, Fitting] | None:
    """The least `maxUnavailable` above the present one with which all pods of a Deployment get a node,
    by bisection; None if none is enough."""
    if not parts.is_rolling:
        return None

    def with_count(count: int) -> Fitting:
        more = ClusterChange((), (more_unavailable(parts, count),))
        return dry_run(snapshot, parts, change + more, evicts)

    low, high = parts.bounds[1], parts.replicas
    best = with_count(high) if low < high else None
    if best is not None and not best.is_all and others_wait(snapshot, parts):
        for count in [low + more for more in _MORE_UNAVAILABLE if low + more < high]:
            best = with_count(count)
            if best.is_all:
                high = count
                break
            low = count
    if best is None or not best.is_all:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        found = with_count(middle)
        if found.is_all:
            high, best = middle, found
        else:
            low = middle
    return high, best


def others_wait(snapshot: ClusterSnapshot, parts: WorkloadParts) -> bool:
    """Whether other pods are pending, which may take what old pods free: with more of these that end at
    once, fewer new ones may then start."""
    own = set(map(_name, parts.now))
    return any((pod.namespace, pod.name) not in own for pod in snapshot.scheduler.queue.waiting())


class _StandingClock:
    def __init__(self, now: float) -> None:
        self.t = 0.0
        self._now = now

    def epoch(self) -> float:
        return self._now

    def stamp(self, after: float = 0.0) -> str:
        return format_time(self._now + after)


class _NoEvents:
    def emit(self, event: Emit, component: str) -> None:
        pass


class _DryRun(WorkloadControllers):
    def __init__(
        self,
        snapshot: ClusterSnapshot,
        parts: WorkloadParts,
        change: ClusterChange,
        stack: ExitStack,
        evicts: bool,
    ) -> None:
        """What is done to the snapshot is undone when the stack is closed."""
        clock = _StandingClock(snapshot.cluster.now or snapshot.now)
        store = Store(keep=0)
        objects = ObjectWriter(store, Identity(SeededNames(_SEED), clock.stamp), clock)
        super().__init__(
            objects, clock, ComponentTimers(clock), self, _NoEvents(), partial=True, waits=False
        )
        self._snapshot, self._parts, self._stack = snapshot, parts, stack
        metadata = parts.workload["metadata"]
        self._namespace: str = metadata.get("namespace") or ""
        self._top = Key(parts.info.group, parts.info.kind, self._namespace, metadata["name"])
        self._names = {_name(raw) for raw in (*parts.pods, *parts.now)}
        pending = [raw for raw in parts.now if not _has_node(raw)]
        self._added = additions(snapshot, pending[0]) if pending else NONE
        self._begin(change)
        self._reclaims = _MOST_RECLAIMS
        self._evicting = _MOST_EVICTING if evicts else 0
        self._victims: list[PodRecord] = []
        self._created, self._most_created = 0, _MOST_CREATED * (parts.replicas + len(parts.pods) + 5)
        for _ in range(_STEPS):
            self._reconcile()
            if not self._place() and not self._lose() and not self._evict():
                break

    def _begin(self, change: ClusterChange) -> None:
        parts, snapshot = self._parts, self._snapshot
        others = [each for each in change.objects if not self._is_left_to_controllers(each)]
        deleted = {each.name for each in others if each.info is POD and each.operation == DELETE}
        for raw in parts.now:
            hold = list(hold_deletion(snapshot, raw))
            is_gone = raw["metadata"]["name"] in deleted
            others = [*(each for each in others if each not in hold), *(hold if is_gone else ())]
        self._stack.enter_context(applied(snapshot, others))
        known = {raw["metadata"].get("uid") for raw in parts.pods}
        is_later = bool(change.objects) and change.until is None
        ending = parts.terminating if is_later else []
        for raw in parts.now:
            if raw["metadata"].get("uid") not in known or raw in ending:
                self._apply(*_ended(snapshot, raw))
        there = {raw["metadata"].get("uid") for raw in parts.now}
        for raw in parts.pods:
            if raw["metadata"].get("uid") not in there:
                self._apply(create(POD, raw))
        loaded = [*self._read(), *(_ready(raw) for raw in parts.pods if raw not in ending)]
        loaded += [_counted(raw, parts.pods) for raw in parts.owned]
        loaded += [parts.before] if parts.before is not None else []
        self._objects.store.load((_key(raw), _versioned(raw)) for raw in loaded)
        self._objects.identity.exclude((*loaded, *parts.now))
        completion = DumpCompletion(self._objects)
        if parts.before is not None:
            completion.note(self._top)
            completion.complete()
        for raw in self._objects.all():
            super().changed(StoreChange(0, _key(raw), None, raw))
        self._objects.store.observe(self._noted)
        after = parts.workload
        for each in change.objects:
            if each.operation == PATCH and (each.info, each.name) == (parts.info, self._top.name):
                after = merge_patch(after, each.body)
        if (live := self._objects.get(self._top)) is None:
            self._objects.store.create(self._top, self._objects.identity.new(self._top, after))
        else:
            self._objects.update(self._top, {**live, "spec": after["spec"]})
        for name in deleted:
            if (key := Key("", "Pod", self._namespace, name)) in self._objects:
                self._objects.store.delete(key)

    def _is_left_to_controllers(self, change: ObjectChange) -> bool:
        is_own = (change.namespace, change.name) in self._names
        if change.info is POD and change.operation == CREATE:
            is_own |= self._is_owned(change.body)
        if change.info is not POD or not is_own:
            return change.info is self._parts.info and change.name == self._top.name
        return change.follows or self._snapshot.is_hypothetical

    def _is_owned(self, pod: Raw) -> bool:
        """Whether its controllers would create the pod."""
        owner, known = controller_of(pod), (self._parts.workload, *self._parts.owned)
        names = {(raw["kind"], *_name(raw)) for raw in known}
        namespace = pod["metadata"].get("namespace") or ""
        return (owner.get("kind"), namespace, owner.get("name")) in names

    def _read(self) -> Iterator[Raw]:
        """What the controllers and the creation of pods depend on."""
        for info in (*_READ, *([NODE] if self._parts.info is _DAEMON_SET else [])):
            for raw in self._snapshot.all(info):
                if not info.namespaced or raw["metadata"].get("namespace") == self._namespace:
                    yield raw

    # Controllers

    def _plan(self, due: float | None) -> None:
        """Nothing: they run until none is due."""

    def delete(self, key: Key) -> None:
        """A pod is gone as soon as it is deleted."""
        self._objects.store.delete(key)

    def _put(self, raw: Raw) -> Raw:
        """Raises StatusError. Which RuntimeClasses there are may not be known."""
        if raw["kind"] != "Pod":
            return super()._put(raw)
        self._created += 1
        type = self._objects.type_of(raw)
        runtime = Key(*_RUNTIME_CLASS, "", raw["spec"].get("runtimeClassName") or "")
        known = self._objects.get(runtime) is not None
        if runtime.name and not known and (_RUNTIME, runtime.kind) in self._snapshot.objects:
            why = f'pod rejected: RuntimeClass "{runtime.name}" not found'
            raise forbidden(_PODS, raw["metadata"].get("name") or "", why)
        added = self._added._replace(overhead={}) if known else self._added
        raw = {**raw, "spec": added.to(raw["spec"])}
        return self._objects.restore(read_object(type, raw)[0], type)

    def _reconcile(self) -> None:
        for _ in range(_STEPS):
            for work in self.settle():
                if work is not None:
                    work()
            due = self._workloads.next_due()
            if due is None or due > self._clock.epoch() or self._created > self._most_created:
                return

    def _noted(self, change: StoreChange) -> None:
        """Has the scheduler know the pods, and the claims that are created for them."""
        key, before, after = change.key, change.before, change.after
        if key[:2] == ("", "Pod") and after is None:
            assert before is not None
            snapshot, hold = self._snapshot, hold_deletion(self._snapshot, before)
            self._apply(*hold, *_ended(snapshot, before), *own_claims(snapshot, before))
        elif after is not None and key[:2] == ("", "Pod"):
            for claim in ephemeral_claims(self._snapshot, after):
                self._apply(*provisioned(self._snapshot, claim))
            self._apply(create(POD, after))
            self._apply(*claims_of_new_pod(self._snapshot, after))
        elif after is not None and key[:2] == ("", _CLAIM.kind):
            self._apply(*provisioned(self._snapshot, after))
        super().changed(change)

    def _apply(self, *changes: ObjectChange) -> None:
        self._stack.enter_context(applied(self._snapshot, changes))

    # Scheduling

    def _place(self) -> bool:
        """Places the pods that have a node now, and others that come first; whether some of its own
        were placed, or may be now."""
        snapshot = self._snapshot
        claims, own = snapshot.cluster.claims, self._pending()
        if not own:
            return False
        names = {record.uid for record in own}
        with placed_among_others(snapshot, own) as (others, found):
            name = snapshot.cluster.nodes.name
            places = [(pod, name(pod.row), self._written(pod)) for pod in (*others, *found)]
            used = list(self._used_up(pod for pod, _, _ in places))
            allocated = [(pod, *each) for pod, _, _ in places for each in claims.allocated_for(pod)]
            released = ended_holds(snapshot, others)
        for pod, node, annotations in places:
            if pod.reservation is not None:
                raw = snapshot.find(RESERVATION, pod.name)
                body = {"status": {"phase": "Available", "nodeName": node}}
                self._apply(*([patch(RESERVATION, raw, body)] if raw is not None else []))
                continue
            raw = snapshot.find(POD, pod.name, pod.namespace)
            assert raw is not None
            bound = _bound(raw, node, annotations)
            if pod.uid in names:
                self._objects.store.update(_key(raw), bound)
            else:
                self._apply(create(POD, bound))
        for pod, claim, allocation in allocated:
            self._reserve(claim, allocation, pod)
        self._apply(*used, *released)
        return bool(released) or any(pod.uid in names for pod, _, _ in places)

    def _pending(self) -> list[PodRecord]:
        """The own pods that the scheduler tries, in its order."""
        snapshot = self._snapshot
        own = [
            record
            for raw in self._objects.scan("", "Pod")
            if not _has_node(raw)
            and (record := snapshot.cluster.pod(*_name(raw))) is not None
            and record.row < 0
            and not record.gates
            and snapshot.scheduler.profile_of(record.scheduler) is not None
        ]
        return sorted(own, key=snapshot.scheduler.queue.sort_key)

    def _reserve(self, claim: ResourceClaim, allocation: AllocationResult, pod: PodRecord) -> None:
        """Writes the allocation of a claim and reserves it for a pod that was placed."""
        raw = self._snapshot.find(RESOURCE_CLAIM, claim.metadata.name, claim.metadata.namespace)
        status = (raw.get("status") or {}) if raw is not None else {}
        users = status.get("reservedFor") or []
        if raw is None or any(each["uid"] == pod.uid for each in users):
            return
        written = status.get("allocation") or written_allocation(allocation, self._clock.stamp())
        body = {"status": {"allocation": written, "reservedFor": [*users, consumer(pod.ref)]}}
        self._apply(patch(RESOURCE_CLAIM, raw, body, follows=True))

    def _used_up(self, pods: Iterable[PodRecord]) -> Iterator[ObjectChange]:
        """The end of the reservations for one pod that these are allocated from, which releases what
        they leave."""
        for pod in pods:
            known = self._snapshot.cluster.reservations.known.get(pod.reservation_uid)
            if known is not None and known.object.spec.once:
                raw = self._snapshot.find(RESERVATION, known.name)
                body = {"status": {"phase": "Succeeded"}}
                yield from [patch(RESERVATION, raw, body)] if raw is not None else []

    def _lose(self) -> bool:
        """Ends own pods that the scheduler then reclaims for other queues; whether there are any."""
        snapshot = self._snapshot
        if not snapshot.scheduler.reclaims or not self._reclaims:
            return False
        name = snapshot.cluster.nodes.name
        own = {raw["metadata"]["uid"] for raw in self._objects.scan("", "Pod")}
        for plan in snapshot.scheduler.reclaim_plans():
            if own.isdisjoint(victim.uid for victim in plan.victims):
                continue
            self._reclaims -= 1
            places = [(Subject.of(pod), name(row)) for pod, row in plan.places]
            for victim in plan.victims:
                if victim.uid in own:
                    self._objects.store.delete(pod_key(victim.namespace, victim.name))
                else:
                    self._apply(*ended_pod(snapshot, victim))
            for pod, node in places:
                self._apply(create(POD, _bound(pod.raw(snapshot), node, {})))
            return True
        return False

    def _evict(self) -> bool:
        """Places the first own pod that preempts others, or reclaims what they have; whether one
        does."""
        tried = set[int]()
        for pod in self._pending() if self._evicting else ():
            if pod.cls.id in tried and pod.pinned_node is None:
                continue
            tried.add(pod.cls.id)
            start = evicting_start(self._snapshot, Subject.of(pod))
            if not start.nodes:
                continue
            self._evicting -= 1
            key = pod_key(pod.namespace, pod.name)
            for victim in start.victims:
                if (own := pod_key(victim.namespace, victim.name)) in self._objects:
                    self._objects.store.delete(own)
                    continue
                self._victims.append(victim)
                self._apply(*ended_pod(self._snapshot, victim))
            if (raw := self._objects.get(key)) is not None:
                self._objects.store.update(key, _bound(raw, start.nodes[0], {}))
            return True
        return False

    def _written(self, pod: PodRecord) -> dict[str, str]:
        """The annotations with which the pod is bound."""
        cluster = self._snapshot.cluster
        known = cluster.reservations.known.get(pod.reservation_uid)
        mark = {RESERVATION_ALLOCATED: known.mark} if known is not None else {}
        return mark | cluster.managers.annotations_for(pod, pod.row)

    # The result

    def result(self) -> Fitting:
        pods, top = self._objects.scan("", "Pod"), self._objects.get(self._top)
        assert top is not None
        updated = [raw for raw in pods if is_updated(self._objects, top, raw)]
        at_first = {raw["metadata"].get("uid") for raw in self._parts.pods if _has_node(raw)}
        running = [raw for raw in updated if _has_node(raw)]
        new = [raw for raw in running if raw["metadata"]["uid"] not in at_first]
        wanted = wanted_replicas(top)
        if self._parts.info is _DAEMON_SET:
            wanted = int((top.get("status") or {}).get("desiredNumberScheduled") or 0)
        total = max(0, wanted - (len(running) - len(new)))
        others = [raw for raw in pods if _has_node(raw) and raw["metadata"]["uid"] not in at_first]
        nodes = sorted({str(raw["spec"]["nodeName"]) for raw in new or others})
        count = sum(map(_has_node, pods))
        lost = max(0, self._parts.running - count)
        started, victims = min(len(new), total), tuple(self._victims)
        return Fitting(started, total, nodes, len(running), count, lost, victims)


def is_updated(objects: ObjectWriter, top: Raw, pod: Raw) -> bool:
    """Whether the pod of a workload is as it should be: of the present template, unless its controller
    keeps it as it is."""
    spec, owner = top["spec"], controller_of(pod).get("uid")
    if top["kind"] == DEPLOYMENT.kind:
        sets = objects.scan("apps", REPLICA_SET.kind)
        new = current([(_ref(raw), raw) for raw in sets], spec["template"])
        return new is not None and new[1]["metadata"]["uid"] == owner
    strategy = spec.get("updateStrategy") or {}
    if top["kind"] == REPLICA_SET.kind or strategy.get("type") == "OnDelete":
        return True
    if top["kind"] == _STATEFUL_SET.kind and _number(pod) < int(
        (strategy.get("rollingUpdate") or {}).get("partition") or 0
    ):
        return True
    uid, known = top["metadata"].get("uid"), objects.scan("apps", "ControllerRevision")
    revisions = [raw for raw in known if controller_of(raw).get("uid") == uid]
    newest = max(revisions, key=lambda raw: int(raw["revision"]), default=_UNKNOWN)
    digest = labels_of(newest).get(REVISION_LABEL, "")
    return labels_of(pod).get(REVISION_LABEL, "").endswith(digest)


def _number(pod: Raw) -> int:
    number = pod["metadata"]["name"].rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _name(raw: Raw) -> tuple[str, str]:
    return raw["metadata"].get("namespace") or "", raw["metadata"]["name"]


def _key(raw: Raw) -> Key:
    return Key(*_ref(raw))


def _ref(raw: Raw) -> Ref:
    return Ref(str(raw["apiVersion"]).rpartition("/")[0], str(raw["kind"]), *_name(raw))


def _versioned(raw: Raw) -> Raw:
    """With what every object on a server has."""
    metadata, name = raw["metadata"], "/".join(_name(raw))
    return {**raw, "metadata": {"uid": name, "resourceVersion": "0", **metadata}}


def _has_node(raw: Raw) -> bool:
    return bool((raw.get("spec") or {}).get("nodeName"))


def _terminates(raw: Raw) -> bool:
    return "deletionTimestamp" in raw["metadata"]


def _ready(pod: Raw) -> Raw:
    """Pods that have a node are taken to become ready."""
    status = pod.get("status") or {}
    conditions = [each for each in status.get("conditions") or () if each.get("type") != "Ready"]
    if _has_node(pod):
        before = [each for each in status.get("conditions") or () if each.get("type") == "Ready"]
        since = before[0].get("lastTransitionTime") if before else None
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        status = {"phase": "Running", **status, "conditions": [*conditions, ready]}
    return {**pod, "status": {"phase": "Pending", **status}}


def _counted(owned: Raw, pods: list[Raw]) -> Raw:
    """A ReplicaSet with the counts of its pods, which those that someone wrote lack."""
    if owned["kind"] != REPLICA_SET.kind:
        return owned
    uid = owned["metadata"].get("uid")
    own = [raw for raw in pods if controller_of(raw).get("uid") == uid]
    ready = sum(map(_has_node, own))
    counts = {"replicas": len(own), "readyReplicas": ready, "availableReplicas": ready}
    return {**owned, "status": {**(owned.get("status") or {}), **counts}}


def _bound(raw: Raw, node: str, annotations: dict[str, str]) -> Raw:
    metadata = raw["metadata"]
    if annotations:
        both = {**(metadata.get("annotations") or {}), **annotations}
        metadata = {**metadata, "annotations": both}
    status = {**(raw.get("status") or {}), "phase": "Running"}
    bound = {**raw, "metadata": metadata, "spec": {**raw["spec"], "nodeName": node}, "status": status}
    return _ready(bound)


def _ended(snapshot: ClusterSnapshot, raw: Raw) -> list[ObjectChange]:
    record = snapshot.cluster.pod(*_name(raw))
    return ended_pod(snapshot, record) if record is not None else []
