"""The work queue of the workload controllers: which object to reconcile next.

    workloads.changed(ref, before, after)    of every change, as it happens
    while (actions := workloads.step(now)) is not None:
        …carry them out; the resulting changes go to `changed` in turn
    workloads.next_due()                     when to call again even if nothing happens

A step reconciles one object. Its actions are carried out before the next step, so every controller sees
the results of the one before it.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.local.workloads import cron_job, daemon_set, deployment, job, replica_set, stateful_set
from holdfast.local.workloads import garbage_collector as garbage
from holdfast.local.workloads.lister import (
    WARNING,
    Action,
    ActionOutcome,
    CreateDependent,
    EmitEvent,
    Lister,
    Raw,
    Ref,
    WorkloadObjects,
    controller_of,
    labels_of,
    owner_ref,
    selects,
)
from holdfast.scheduler.cluster.timer_queue import TimerQueue

Controller = Callable[[Lister, Ref, Raw, float], ActionOutcome]
_CONTROLLERS: dict[tuple[str, str], Controller] = {
    ("apps", "Deployment"): deployment.reconcile,
    ("apps", "ReplicaSet"): replica_set.reconcile,
    ("apps", "StatefulSet"): stateful_set.reconcile,
    ("apps", "DaemonSet"): daemon_set.reconcile,
    ("batch", "Job"): job.reconcile,
    ("batch", "CronJob"): cron_job.reconcile,
}
_SOURCES = {
    "Deployment": deployment.SOURCE,
    "ReplicaSet": replica_set.SOURCE,
    "StatefulSet": stateful_set.SOURCE,
    "DaemonSet": daemon_set.SOURCE,
    "Job": job.SOURCE,
    "CronJob": cron_job.SOURCE,
}
_ADOPTERS = {
    "Pod": (("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("apps", "DaemonSet")),
    "ReplicaSet": (("apps", "Deployment"),),
    "Job": (),
}
"""By kind of dependent, the kinds whose controllers adopt one without a controller."""
_RETRY = 10.0
"""Seconds to wait after a failed creation."""


class Sync:
    """One reconciliation of one object."""

    def __init__(
        self,
        view: Lister,
        ref: Ref,
        now: float,
        why: str = "",
        until: float = 0.0,
        *,
        collects: bool = False,
    ) -> None:
        self._view, self.ref, self._now = view, ref, now
        self.why, self.until = why, until
        """The error of a failed creation, and when it is retried."""
        self.collects = collects
        """Whether it is done by the garbage collector, not by the controller of the kind."""
        self.outcome: ActionOutcome | None = None

    @property
    def is_long(self) -> bool:
        """Whether the object has so many dependents that this takes more than a few milliseconds."""
        raw = self._view.get(self.ref)
        return raw is not None and self._view.has_many_dependents(raw["metadata"]["uid"])

    def compute(self) -> None:
        """Only reads, so it may run in another thread. Writes meanwhile queue the object again."""
        raw = self._view.get(self.ref)
        if raw is None:
            return
        if self.collects:
            self.outcome = garbage.collect(self._view, self.ref, raw)
            return
        controller = _CONTROLLERS.get((self.ref.group, self.ref.kind))
        if controller is replica_set.reconcile:
            self.outcome = replica_set.reconcile(self._view, self.ref, raw, self._now, self.why)
        elif controller is not None:
            self.outcome = controller(self._view, self.ref, raw, self._now)


class Workloads:
    def __init__(self, objects: WorkloadObjects, *, partial: bool = False, waits: bool = True) -> None:
        self.view = Lister(objects, partial=partial, waits=waits)
        self._to_sync: dict[Ref, None] = {}
        self._to_collect: dict[Ref, None] = {}
        self._timers: TimerQueue[Ref] = TimerQueue()
        self._failures: dict[Ref, tuple[str, float]] = {}
        """Objects that failed to create a dependent: the reason, and when it is retried."""
        self._workloads: dict[tuple[str, str, str], dict[Ref, None]] = {}
        """By group, kind and namespace."""

    # Events

    def changed(self, key: tuple[str, str, str, str], before: Raw | None, after: Raw | None) -> None:
        ref = Ref(*key)
        self.view.changed(ref, before, after)
        kind = (ref.group, ref.kind)
        if kind in _CONTROLLERS:
            self._note_workload(ref, after)
        elif kind == ("", "Node"):
            self._node_changed(before, after)
        if ref.kind in _ADOPTERS:
            self._wake_owners(ref, before, after)
        self._note_garbage(ref, before, after)

    def adopt(self, key: tuple[str, str, str, str], raw: Raw) -> None:
        """An object that other controllers have taken care of: its owners exist, and only workloads
        that are not as they should be are reconciled."""
        ref = Ref(*key)
        self.view.changed(ref, None, raw)
        if (ref.group, ref.kind) in _CONTROLLERS:
            self._note_workload(ref, raw)
            if _is_settled(ref.kind, raw):
                del self._to_sync[ref]

    def _note_workload(self, ref: Ref, after: Raw | None) -> None:
        known = self._workloads.setdefault((ref.group, ref.kind, ref.namespace), {})
        if after is not None:
            known[ref] = None
            self._to_sync[ref] = None
        else:
            known.pop(ref, None)
            self._failures.pop(ref, None)
            self._timers.set(ref, None)

    def _node_changed(self, before: Raw | None, after: Raw | None) -> None:
        if before is not None and after is not None:
            same = before.get("spec") == after.get("spec") and labels_of(before) == labels_of(after)
            if same:
                return
        for (_, kind, _), refs in self._workloads.items():
            if kind == "DaemonSet":
                self._to_sync.update(refs)

    def _wake_owners(self, ref: Ref, before: Raw | None, after: Raw | None) -> None:
        for raw in (before, after):
            owner = controller_of(raw) if raw is not None else None
            if owner is not None:
                above = owner_ref(owner, ref.namespace)
                self._to_sync[above] = None
                manager = self.view.get(above) if after is None and ref.kind == "Pod" else None
                top = controller_of(manager) if manager is not None else None
                if top is not None:  # a Deployment may wait for the pod to be gone
                    self._to_sync[owner_ref(top, ref.namespace)] = None
        if after is None or controller_of(after) is not None:
            return
        if (
            before is not None
            and labels_of(before) == labels_of(after)
            and controller_of(before) is None
        ):
            return
        for group, kind in _ADOPTERS[ref.kind]:
            for each in self._workloads.get((group, kind, ref.namespace), ()):
                workload = self.view.get(each)
                if workload is not None and selects(workload["spec"].get("selector"), labels_of(after)):
                    self._to_sync[each] = None

    def _note_garbage(self, ref: Ref, before: Raw | None, after: Raw | None) -> None:
        if after is not None:
            owners = after["metadata"].get("ownerReferences")
            if garbage.waits(after):
                self._to_collect[ref] = None
                uid = after["metadata"]["uid"]
                self._to_collect.update(dict.fromkeys(self.view.dependents(uid)))
            elif owners and (before is None or before["metadata"].get("ownerReferences") != owners):
                self._to_collect[ref] = None
            if before is not None and before["metadata"].get("ownerReferences") != owners:
                self._wake_waiting_owners(ref, before)
        else:
            assert before is not None
            self._to_collect.pop(ref, None)
            uid = before["metadata"]["uid"]
            self._to_collect.update(dict.fromkeys(self.view.dependents(uid)))
            self._wake_waiting_owners(ref, before)

    def _wake_waiting_owners(self, ref: Ref, before: Raw) -> None:
        """The owners of an object that is gone, or no longer theirs, may be waiting for that."""
        for reference in before["metadata"].get("ownerReferences") or ():
            found = self.view.owner(ref, reference)
            if found is not None and garbage.waits(found[1]):
                self._to_collect[found[0]] = None

    # Reconciling

    def step(self, now: float) -> list[Action] | None:
        """Reconciles the next object; None if there is none."""
        sync = self.next_sync(now)
        if sync is None:
            return None
        sync.compute()
        return self.finish_sync(sync)

    def next_sync(self, now: float) -> Sync | None:
        """The next object to reconcile; None if there is none. The caller computes the result and
        passes it to `finish_sync`, which returns the actions, before it takes the next."""
        while (due := self._timers.pop(now)) is not None:
            self._to_sync[due] = None
        # Garbage comes first: a workload that never stops creating pods is always queued.
        if self._to_collect:
            ref = next(iter(self._to_collect))
            del self._to_collect[ref]
            return Sync(self.view, ref, now, collects=True)
        if self._to_sync:
            ref = next(iter(self._to_sync))
            del self._to_sync[ref]
            why, until = self._failures.get(ref, ("", 0.0))
            if until <= now:
                self._failures.pop(ref, None)
                why = ""
            return Sync(self.view, ref, now, why, until)
        return None

    def finish_sync(self, sync: Sync) -> list[Action]:
        outcome = sync.outcome
        if outcome is None:
            return []
        if sync.why:
            outcome.actions = [
                each for each in outcome.actions if not isinstance(each, CreateDependent)
            ]
            outcome.sync_again(sync.until)
        if not sync.collects:
            self._timers.set(sync.ref, outcome.again_at)
        return outcome.actions

    def next_due(self) -> float | None:
        """When to reconcile again; at once while objects are queued."""
        if self._to_sync or self._to_collect:
            return 0.0
        return self._timers.next_time()

    def retry(self) -> None:
        """Tries at once to create what was refused."""
        self._to_sync.update(dict.fromkeys(self._failures))
        self._failures.clear()

    # Results of actions

    def created(self, action: CreateDependent, raw: Raw) -> EmitEvent | None:
        """The event for a successful creation."""
        about = self.view.get(action.by)
        if about is None or not action.announce:
            return None
        what = raw["kind"].lower() if raw["kind"] == "Pod" else raw["kind"]
        message = f"Created {what}: {raw['metadata']['name']}"
        if action.by.kind == "CronJob":
            message = f"Created job {raw['metadata']['name']}"
        if action.by.kind == "StatefulSet":
            name = raw["metadata"]["name"]
            message = f"create {raw['kind']} {name} in StatefulSet {action.by.name} successful"
        source = _SOURCES[action.by.kind]
        return EmitEvent(about, "Normal", "SuccessfulCreate", message, source)

    def refused(self, action: CreateDependent, why: str, now: float) -> EmitEvent | None:
        """Something could not be created: it is tried again later."""
        self._failures[action.by] = why, now + _RETRY
        self._to_sync[action.by] = None
        about = self.view.get(action.by)
        if about is None:
            return None
        what = " job" if action.by.kind == "CronJob" else ""
        message = f"Error creating{what}: {why}"
        return EmitEvent(about, WARNING, "FailedCreate", message, _SOURCES[action.by.kind])


def _is_settled(kind: str, raw: Raw) -> bool:
    """Whether a ReplicaSet or Deployment has all its pods, by its status."""
    wanted = (raw.get("spec") or {}).get("replicas", 1)
    status = raw.get("status") or {}
    counts = [status.get("replicas", 0), status.get("availableReplicas", 0)]
    if kind == "Deployment":
        counts.append(status.get("updatedReplicas", 0))
    elif kind != "ReplicaSet":
        return False
    is_current = status.get("observedGeneration", 0) == raw["metadata"].get("generation", 0)
    return is_current and all(count == wanted for count in counts)
