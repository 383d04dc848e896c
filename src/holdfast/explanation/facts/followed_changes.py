"""What comes of changes that a user makes one after the other, on a copy of the cluster.

After each of them the scheduler, with all its actions, and the workload controllers work until nothing
more happens: other pending pods take what is free by then, starvation holds get what is released, and
pods that were started are preempted. So changes that help at one moment may not help step by step, or
only in another order.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.explanation.facts.expected_ends import expected_end
from holdfast.explanation.facts.played_rounds import SnapshotCopy, objects_of
from holdfast.explanation.facts.pod_owners import controller_of, same_workload
from holdfast.explanation.facts.workload_dry_runs import (
    REPLICA_SET,
    is_updated,
    unread_deployment,
)
from holdfast.explanation.verdicts import Goal, Subject
from holdfast.kube.object_client import Raw
from holdfast.local.component import ENDED
from holdfast.local.store.objects import AlreadyExists, Key, pod_key
from holdfast.local.timeline import TimelineEntry
from holdfast.local.workloads.lister import owner_ref, selects
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.machinery.status import StatusError
from holdfast.snapshot.cluster_changes import (
    CREATE,
    DELETE,
    ObjectChange,
    is_replaced,
)
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot
from holdfast.snapshot.dump_workloads import HypotheticalWorkloads
from holdfast.snapshot.played_cluster import NotSettled

_BETWEEN = 20.0
"""Seconds from one change to the next: back-offs are over by then."""
_MAKERS = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")
_JOB = ("batch", "Job")
_OF_JOB = ("controller-uid", "batch.kubernetes.io/controller-uid")
_SELECTING = _MAKERS[:4]
"""Kinds that need a selector; Jobs get one."""
_MOST_CREATED = 1_000
_PLACED = ("Available", "Waiting", "Succeeded")
"""Phases of reservations that have a node, or had one until their pods used them."""
_SERVER_SIDE = ("uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp")


class UserStep(NamedTuple):
    """What a user does at one moment, or the end of a pod that follows from it."""

    change: ObjectChange
    until: float | None = None
    """When it will have happened by itself, if it is waited for."""


class ExpectedOutcome(NamedTuple):
    """What the changes should come to, besides that the pod, reservation or gang has started."""

    others: tuple[Subject, ...] = ()
    """Other pods of the same workload, or that are like the pod."""
    running: int = 1
    """How many of these pods have a node then."""
    updated: int = 0
    """How many of those are of the present template of their workload."""
    top: Key | None = None
    """The workload, if its controllers are known."""


def others_compete(snapshot: ClusterSnapshot, goal: Goal) -> bool:
    """Whether others are pending than the pods of the same workload or gang."""
    own = set(_own_pods(snapshot, goal, ExpectedOutcome()))
    waiting = snapshot.scheduler.queue.waiting(with_jobs=True)
    return any(pod.row < 0 and not pod.gates and Subject.of(pod) not in own for pod in waiting)


def first_order_that_holds(
    snapshot: ClusterSnapshot,
    goal: Goal,
    orders: Iterable[Sequence[UserStep]],
    expected: ExpectedOutcome,
) -> int:
    """Which of these orders of steps is the first after which it is as expected. It is -1 if none is,
    and 0 if that is not known: it would not be so either if nothing else were pending, and all steps
    were made at one moment."""
    first: Sequence[UserStep] = ()
    for at, steps in enumerate(orders):
        first = first or steps
        by_user = [each for each in steps if not each.change.follows]
        is_reached = _is_reached(snapshot, goal, by_user, expected, _all_objects(snapshot))
        if is_reached is None:
            return 0
        if is_reached:
            return at
    alone = list(_without_others(snapshot, goal, expected))
    there = {_key(raw) for raw in alone} | {expected.top[1:] if expected.top is not None else ()}
    own = [each for each in first if each.change.operation == CREATE or _changed(each) in there]
    is_possible = any(
        _is_reached(snapshot, goal, own, expected, alone, at_once) for at_once in (False, True)
    )
    return -1 if is_possible else 0


def _is_reached(
    snapshot: ClusterSnapshot,
    goal: Goal,
    steps: Sequence[UserStep],
    expected: ExpectedOutcome,
    objects: Iterable[Raw],
    at_once: bool = False,
) -> bool | None:
    """None if it is not known, since a step cannot be made on the copy."""
    try:
        cluster = _FollowedCluster(snapshot, objects)
        cluster.follow(steps, at_once)
    except (NotSettled, StatusError, AlreadyExists):
        return None
    return cluster.is_as_expected(goal, expected)


def _all_objects(snapshot: ClusterSnapshot) -> Iterator[Raw]:
    yield from objects_of(snapshot)
    for raw in snapshot.unwatched:
        if _name(raw) not in snapshot.objects.get((raw["apiVersion"], raw["kind"]), {}):
            yield raw


def _without_others(snapshot: ClusterSnapshot, goal: Goal, expected: ExpectedOutcome) -> Iterator[Raw]:
    """The objects without other pending pods and reservations, and without what creates others."""
    own = {(each.info.kind, each.namespace, each.name) for each in _own_pods(snapshot, goal, expected)}
    record = goal.record(snapshot) if isinstance(goal, Subject) else None
    owners = same_workload(snapshot, record) if record is not None else set()
    top = expected.top[1:] if expected.top is not None else ()
    for raw in _all_objects(snapshot):
        kind, name = raw["kind"], _name(raw)
        if kind in (POD.kind, RESERVATION.kind):
            part = raw["spec"] if kind == POD.kind else raw.get("status") or {}
            if part.get("nodeName") or (kind, *name) in own:
                yield raw
        elif kind not in _MAKERS or raw["metadata"].get("uid") in owners or (kind, *name) == top:
            yield raw


def _own_pods(snapshot: ClusterSnapshot, goal: Goal, expected: ExpectedOutcome) -> Iterator[Subject]:
    """The pod or reservation, and those of the same workload or of its gang."""
    jobs = snapshot.cluster.jobs
    yield from expected.others
    if not isinstance(goal, Subject):
        job = jobs.known.get(goal.job)
    else:
        yield goal
        record = goal.record(snapshot)
        job = jobs.of(record) if record is not None else None
        owners = same_workload(snapshot, record) if record is not None else set()
        for pod in snapshot.cluster.pods.values() if owners else ():
            if any(each.controller and each.uid in owners for each in pod.cls.owners):
                yield Subject.of(pod)
    for partner in jobs.partners(job) if job is not None else ():
        yield from map(Subject.of, partner.members.values())


class _FollowedCluster(SnapshotCopy):
    """A copy with the workload controllers, in which changes are made one after the other."""

    def __init__(self, snapshot: ClusterSnapshot, objects: Iterable[Raw]) -> None:
        super().__init__(snapshot, snapshot.scheduler.configuration.actions)
        self.workloads = HypotheticalWorkloads(
            self.objects, self.clock, self.timers, self.kubelets, self.recorder, waits=False
        )
        self.workloads.adopt(self.load(raw for raw in objects if _is_checked(raw)))
        self.components.insert(-1, self.workloads)
        self._most_pods = _MOST_CREATED + 2 * self.store.count("", POD.kind)

    def rest(self) -> list[TimelineEntry]:
        self.workloads.retry()
        return super().rest()

    def is_over(self) -> bool:
        if self.store.count("", POD.kind) > self._most_pods:
            raise NotSettled("controllers keep creating pods")
        return False

    def is_due(self) -> bool:
        queued = self.workloads.next_due()
        return super().is_due() or (queued is not None and queued <= self.clock.epoch())

    def follow(self, steps: Iterable[UserStep], at_once: bool = False) -> None:
        """Makes the steps, `at_once` or so that everything comes to rest between them. Raises
        NotSettled."""
        self.rest()
        for each in steps:
            self.clock.advance(max(self.clock.t + _BETWEEN, each.until or 0.0))
            if each.until is not None:
                self._end_until(each.until)
            self._make(each.change)
            if not at_once:
                self.rest()
        self.rest()

    def _end_until(self, time: float) -> None:
        """Ends the pods that are expected to end until some time."""
        for pod in [*self._snapshot.cluster.pods.values()]:
            end = expected_end(self._snapshot, pod) if pod.row >= 0 else None
            if end is not None and end <= time:
                self._end_pod(pod_key(pod.namespace, pod.name))

    def _end_pod(self, key: Key) -> None:
        raw = self.objects.get(key)
        if raw is None:
            return
        if raw["metadata"].get("deletionTimestamp"):
            self.objects.delete(key)
        else:
            self.objects.update(key, {**raw, "status": {**raw["status"], "phase": ENDED[0]}})

    # What a user does

    def _make(self, change: ObjectChange) -> None:
        """Raises NotSettled for an object that is not there."""
        info = change.info
        key = Key(info.group, info.kind, change.namespace, change.name)
        live = self.objects.get(key)
        if change.operation == CREATE:
            if live is None:
                self._create(key, change.body)
        elif live is None:
            self._make_unread(key, change)
        elif change.operation == DELETE:
            self._delete(key, live)
        elif info is POD and is_replaced(live, change):
            self._delete(key, live)
            self.settle()
            self._create(key, _new(merge_patch(live, change.body)))
        elif key[:2] == _JOB and "template" in change.body.get("spec", {}):
            self._delete(key, live)
            self.settle()
            self.objects.submit(_new_job(merge_patch(live, change.body)))
        else:
            self.objects.update(key, merge_patch(live, change.body))

    def _create(self, key: Key, raw: Raw) -> None:
        self.store.create(key, self.objects.identity.new(key, {"status": {}, **raw}))

    def _delete(self, key: Key, live: Raw) -> None:
        if key.kind != POD.kind:
            self.objects.end(key, "Background")
        elif live["metadata"].get("deletionTimestamp"):
            self.objects.delete(key)
        else:
            self.kubelets.delete(key)

    def _make_unread(self, key: Key, change: ObjectChange) -> None:
        """Changes a Deployment that is only known from its ReplicaSets. What should be deleted may be
        gone by then."""
        if change.operation == DELETE:
            return
        for each in self.objects.scan(REPLICA_SET.group, REPLICA_SET.kind):
            owner = controller_of(each)
            names = owner.get("kind"), _name(each)[0], owner.get("name")
            if names == key[1:] and each["spec"].get("replicas") != 0:
                self.store.create(key, unread_deployment(each, owner))
                self.settle()
                self._make(change)
                return
        raise NotSettled(f"there is no {key}")

    # What came of it

    def is_as_expected(self, goal: Goal, expected: ExpectedOutcome) -> bool:
        if not isinstance(goal, Subject):
            job = self.scheduler.cluster.jobs.known.get(goal.job)
            return job is not None and job.is_ready
        if goal.info is RESERVATION:
            return self._is_reserved(goal.name)
        own = list(self._own(goal, expected))
        running = [raw for raw in own if raw["spec"].get("nodeName")]
        top = self.objects.get(expected.top) if expected.top is not None else None
        if top is not None:
            updated = sum(is_updated(self.objects, top, raw) for raw in running)
            return len(running) >= expected.running and updated >= expected.updated
        if not expected.others and expected.running <= 1:
            names = {_name(raw) for raw in running}
            return (goal.namespace, goal.name) in names or (bool(own) and len(own) == len(running))
        return len(running) >= expected.running

    def _own(self, goal: Subject, expected: ExpectedOutcome) -> Iterator[Raw]:
        """Its pod, those that are expected beside it, and those of the same workload, that have not
        ended."""
        names = {(each.namespace, each.name) for each in (goal, *expected.others)}
        record = goal.record(self._snapshot)
        owners = same_workload(self._snapshot, record) if record is not None else set()
        top = expected.top or self._controller_of(goal)
        if expected.top is not None:
            names = set()
        if top is not None and (raw := self.objects.get(top)) is not None:
            owners = owners | {raw["metadata"]["uid"]}
        for raw in self.objects.scan(REPLICA_SET.group, REPLICA_SET.kind) if owners else ():
            if controller_of(raw).get("uid") in owners:
                owners = owners | {raw["metadata"]["uid"]}
        for raw in self.objects.scan("", POD.kind):
            is_over = raw["status"].get("phase") in ENDED or raw["metadata"].get("deletionTimestamp")
            is_own = _name(raw) in names or controller_of(raw).get("uid") in owners
            if is_own and not is_over:
                yield raw

    def _controller_of(self, goal: Subject) -> Key | None:
        """The controller of the pod by its name: a Job may have been created again."""
        raw = self._snapshot.find(goal.info, goal.name, goal.namespace)
        owner = controller_of(raw) if raw is not None else {}
        return Key(*owner_ref(owner, goal.namespace)) if owner else None

    def _is_reserved(self, name: str) -> bool:
        raw = self.objects.get(Key(RESERVATION.group, RESERVATION.kind, "", name))
        reservation = self.scheduler.cluster.reservations.get(name)
        if reservation is None or raw is None:
            return False
        planned = self.scheduler.cluster.reservations.calendar.get(reservation.uid)
        if planned is not None and self.scheduler.calendar_planner.questions.certain_node(planned):
            return True
        return (raw.get("status") or {}).get("phase") in _PLACED


def _is_checked(raw: Raw) -> bool:
    """Not a workload whose pods would not be its own, which no API server accepts."""
    spec = raw.get("spec") or {}
    if raw["kind"] not in _MAKERS or "selector" not in spec:
        return raw["kind"] not in _SELECTING
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return selects(spec["selector"], labels)


def _new(raw: Raw) -> Raw:
    """The object as it is created again."""
    metadata = {key: value for key, value in raw["metadata"].items() if key not in _SERVER_SIDE}
    found = {key: value for key, value in raw.items() if key != "status"}
    return {**found, "metadata": metadata, "status": {"phase": "Pending"}}


def _new_job(raw: Raw) -> Raw:
    """The Job without the selector that the API server made, and the labels for it."""
    found, template = _new(raw), raw["spec"]["template"]
    metadata = template.get("metadata") or {}
    labels = {key: each for key, each in (metadata.get("labels") or {}).items() if key not in _OF_JOB}
    spec = {key: each for key, each in raw["spec"].items() if key != "selector"}
    spec["template"] = {**template, "metadata": {**metadata, "labels": labels}}
    return {key: each for key, each in found.items() if key != "status"} | {"spec": spec}


def _changed(step: UserStep) -> tuple[str, str, str]:
    return step.change.info.kind, step.change.namespace, step.change.name


def _key(raw: Raw) -> tuple[str, str, str]:
    return raw["kind"], *_name(raw)


def _name(raw: Raw) -> tuple[str, str]:
    return raw["metadata"].get("namespace") or "", raw["metadata"]["name"]
