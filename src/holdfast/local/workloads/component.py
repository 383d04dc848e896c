"""Runs the workload controllers as a component of the local cluster: feeds changes, carries out
actions.
"""

from typing import Protocol

from holdfast.local.clock import ComponentTimers, LocalClock, Timer
from holdfast.local.component import ObjectWriter, Steps
from holdfast.local.store.objects import AlreadyExists, Key, Raw, StoreChange
from holdfast.local.workloads import (
    Action,
    CreateDependent,
    DeleteDependent,
    EmitEvent,
    Sync,
    Update,
    Workloads,
)
from holdfast.machinery.status import StatusError
from holdfast.scheduler.cluster import decisions
from holdfast.scheduler.cluster.decisions import ObjectRef

FOREGROUND = "foregroundDeletion"
_POD = ("", "Pod")
_AT_A_TIME = 100
"""Actions after which others have their turn: a Deployment may ask for two billion pods."""
_LARGE = 64 * 1024
"""Bytes of an object in memory that take milliseconds to look at."""
_MANY_NODES = 500
"""Nodes that do."""
_UNSEEN = ("", "Event")
"""Events own nothing, and go by their age."""


class PodDeleter(Protocol):
    def delete(self, key: Key) -> None:
        """Deletes the pod: at once, or when it has stopped."""


class WorkloadEvents(Protocol):
    def emit(self, event: decisions.Emit, component: str) -> None: ...


class WorkloadControllers:
    def __init__(
        self,
        objects: ObjectWriter,
        clock: LocalClock,
        timers: ComponentTimers,
        kubelets: PodDeleter,
        recorder: WorkloadEvents,
        partial: bool = False,
        waits: bool = True,
    ) -> None:
        """With `partial`, an owner that does not exist counts as existing; for `waits` see `Lister`."""
        self._objects = objects
        self._clock = clock
        self._timers = timers
        self._kubelets = kubelets
        self._recorder = recorder
        self._workloads = Workloads(objects.store, partial=partial, waits=waits)
        self._planned: Timer | None = None
        self._planned_for: float | None = None

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] != _UNSEEN:
            self._workloads.changed(key, before, after)

    def settle(self) -> Steps:
        now = self._clock.epoch()
        done = 0
        while done < _AT_A_TIME and (sync := self._workloads.next_sync(now)) is not None:
            if self._is_long(sync):
                yield sync.compute
            else:
                sync.compute()
            actions = self._workloads.finish_sync(sync)
            for action in actions:
                self._carry_out(action, now)
                yield None
            done += len(actions)
            yield None
        self._plan(self._workloads.next_due() if done < _AT_A_TIME else now)

    def _is_long(self, sync: Sync) -> bool:
        """A DaemonSet looks at every node, and of a large template a hash is made."""
        store, ref = self._objects.store, sync.ref
        return (
            sync.is_long
            or store.size(Key(*ref)) > _LARGE
            or (ref.kind == "DaemonSet" and store.count("", "Node") > _MANY_NODES)
        )

    def _plan(self, due: float | None) -> None:
        """Sets a timer for when the next object is due; it only wakes this component up."""
        if due == self._planned_for:
            return
        if self._planned is not None:
            self._timers.cancel(self._planned)
        self._planned, self._planned_for = None, due
        if due is not None:
            wait = max(0.0, due - self._clock.epoch())
            self._planned = self._timers.add(self._clock.t + wait, self._due)

    def _due(self) -> None:
        self._planned = self._planned_for = None

    def _carry_out(self, action: Action, now: float) -> None:
        if isinstance(action, CreateDependent):
            self._create(action, now)
        elif isinstance(action, Update):
            self._update(Key(*action.ref), action)
        elif isinstance(action, DeleteDependent):
            self._delete(Key(*action.ref), action)
        else:
            self._emit(action)

    def _create(self, action: CreateDependent, now: float) -> None:
        event: EmitEvent | None
        try:
            made = self._put(action.raw)
            event = self._workloads.created(action, made)
        except (StatusError, AlreadyExists) as error:
            event = self._workloads.refused(action, str(error), now)
        if event is not None:
            self._emit(event)

    def _put(self, raw: Raw) -> Raw:
        """Pods, Jobs and claims are admitted. Others are copies of parts of their owner, which was
        admitted."""
        if raw["kind"] in ("Pod", "Job", "PersistentVolumeClaim"):
            return self._objects.submit(raw)
        metadata = raw["metadata"]
        if "name" not in metadata:
            return self._objects.create(raw)
        group = raw["apiVersion"].rpartition("/")[0]
        key = Key(group, raw["kind"], metadata["namespace"], metadata["name"])
        return self._objects.store.create(key, self._objects.identity.new(key, raw))

    def _update(self, key: Key, action: Update) -> None:
        now = self._objects.get(key)
        if now is None or now["metadata"]["uid"] != action.before["metadata"]["uid"]:
            return
        raw = action.applied_to(now)
        metadata = raw["metadata"]
        let_go = bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers")
        if let_go and key[:2] != _POD:
            self._objects.delete(key)
        else:
            self._objects.update(key, raw)  # of a pod its kubelet sees to the rest

    def _delete(self, key: Key, action: DeleteDependent) -> None:
        raw = self._objects.get(key)
        if raw is None or raw["metadata"]["uid"] != action.uid:
            return
        if key[:2] == _POD:
            self._kubelets.delete(key)
            return
        finalizers = [*(raw["metadata"].get("finalizers") or ())]
        if action.propagation == "Foreground" and FOREGROUND not in finalizers:
            finalizers.append(FOREGROUND)
        if not finalizers:
            self._objects.delete(key)
            return
        metadata = {
            **raw["metadata"],
            "finalizers": finalizers,
            "deletionTimestamp": raw["metadata"].get("deletionTimestamp") or self._clock.stamp(),
            "deletionGracePeriodSeconds": 0,
        }
        self._objects.update(key, {**raw, "metadata": metadata})

    def _emit(self, event: EmitEvent) -> None:
        metadata = event.about["metadata"]
        about = ObjectRef(
            event.about["kind"],
            metadata.get("namespace", ""),
            metadata["name"],
            metadata["uid"],
            event.about["apiVersion"],
        )
        emitted = decisions.Emit(about, event.type, event.reason, event.message)
        self._recorder.emit(emitted, event.source)
