"""What the scheduler does with a pod or gang beside all others that are pending: its own rounds, played
on a copy of the objects until the pod or gang has started, or nothing more happens.

Rounds are played where queues share capacity or gangs are pending. Where there are only pods, one is
tried after the other in the order of the scheduling queue; see `rehearsed_rounds`.

Pods of the same workload are left out, other than members of its gang. The copy is in the memo of the
snapshot, so that the same question is played once.
"""

from collections.abc import Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from holdfast.explanation.facts.pod_owners import controller_of, same_workload
from holdfast.explanation.verdicts import Goal, Subject
from holdfast.kube.object_client import Raw
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Key, pod_key
from holdfast.scheduler.actions.allocate import Allocate
from holdfast.scheduler.actions.backfill import Backfill
from holdfast.scheduler.actions.reclaim import Reclaim, reclaimer_in
from holdfast.scheduler.cluster.decisions import (
    Bind,
    Decision,
    Emit,
    Evict,
    Nominate,
    Preempt,
    PreemptReservation,
    SetPodScheduled,
    SetReservationStatus,
)
from holdfast.scheduler.cluster.events import Event
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.config import ActionConfig
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot
from holdfast.snapshot.played_cluster import NotSettled, PlayedCluster

_SEED = 12
"""Other names than those of objects that a hypothetical cluster has made."""
_UNREAD = (Emit, SetPodScheduled)
"""Decisions whose outcome no scheduler reads."""
PREEMPTED, RECLAIMED = "preempted", "reclaimed"
_PLACING = (Allocate.name, Backfill.name)


class PlayedPlacement(NamedTuple):
    """A pod or reservation gets a node, or is nominated to one that is being cleared for it."""

    uid: str
    node: str
    is_nominated: bool = False


class PlayedRemoval(NamedTuple):
    """A pod is evicted, or a reservation is preempted."""

    uid: str
    by: str
    """The uid or the name of the pod, reservation or gang for which it is."""
    verb: str


PlayedStep = PlayedPlacement | PlayedRemoval


class Eviction(NamedTuple):
    """What is preempted or reclaimed for a pod, or for the gang that it leads."""

    pod: PodRecord
    verb: str
    victims: list[PodRecord]


@dataclass(slots=True)
class Play:
    """What came of the pod or gang. Records are those of the snapshot."""

    nodes: list[str] = field(default_factory=list)
    """Where it started; of a gang, the nodes of its members. Empty if it did not start."""
    is_at_once: bool = False
    """Whether it started in the first round, before anything was evicted."""
    own: list[Eviction] = field(default_factory=list)
    """What was evicted for it, in the first round in which something was."""
    own_round: int = 0
    """In which round that was first tried."""
    first: list[Eviction] = field(default_factory=list)
    """What was evicted for others before something was for it."""
    steps_before: list[PlayedStep] = field(default_factory=list)
    """What happened in the first round before it was tried."""
    others: list[tuple[PodRecord, str]] = field(default_factory=list)
    """Those that got a node before it did, or for which one is being cleared, and the node."""

    def victims(self, verb: str) -> list[PodRecord]:
        return [pod for each in self.own if each.verb == verb for pod in each.victims]


def is_played(snapshot: ClusterSnapshot) -> bool:
    """Whether queues share capacity, or gangs are pending."""
    if snapshot.cluster.jobs.queues:
        return True
    if "is_played" not in snapshot.memo:
        waiting = snapshot.scheduler.queue.waiting()
        snapshot.memo["is_played"] = any(pod.job is not None for pod in waiting)
    return bool(snapshot.memo["is_played"])


def played(snapshot: ClusterSnapshot, goal: Goal, *, reclaims: bool = False) -> Play:
    """What comes of the pod or gang; with `reclaims`, if the action `reclaim` were configured."""
    with_reclaim = reclaims and not snapshot.scheduler.reclaims
    key = _key(snapshot, goal, with_reclaim)
    if key not in snapshot.memo:
        snapshot.memo[key] = _play(snapshot, goal, with_reclaim)
    found: Play = snapshot.memo[key]
    return found


def was_played(snapshot: ClusterSnapshot, goal: Goal) -> bool:
    """Whether what comes of it is known already."""
    return _key(snapshot, goal) in snapshot.memo


def _key(snapshot: ClusterSnapshot, goal: Goal, with_reclaim: bool = False) -> Hashable:
    return ("played", goal, snapshot.cluster.now, with_reclaim)


def steps_before(snapshot: ClusterSnapshot, goal: Goal) -> list[PlayedStep]:
    """What happens in a round before the pod or gang is tried. Before a member that its gang does not
    need, other members start too."""
    if was_played(snapshot, goal):
        return played(snapshot, goal).steps_before
    key = ("steps_before", goal, snapshot.cluster.now)
    if key not in snapshot.memo:
        rounds = _Rounds(snapshot, goal, is_whole=False)
        rounds.decide()
        snapshot.memo[key] = rounds.steps_before
    found: list[PlayedStep] = snapshot.memo[key]
    return found


def steps_of_others(snapshot: ClusterSnapshot, goal: Goal) -> list[PlayedStep]:
    """What a round does for others than the pod or gang."""
    rounds = _Rounds(snapshot, goal)
    return [step for each in rounds.decide() for step in _steps_of(each) if not rounds.is_own(step)]


def steps_of_all(snapshot: ClusterSnapshot, without: Container[str] = ()) -> list[PlayedStep]:
    """Where a round places all that is pending where capacity is free, also the pods of one workload,
    and what is preempted meanwhile; without the pods with these uids."""
    return [step for each in _Placing(snapshot, without).decide() for step in _steps_of(each)]


def _play(snapshot: ClusterSnapshot, goal: Goal, with_reclaim: bool) -> Play:
    rounds = _Rounds(snapshot, goal, with_reclaim)
    try:
        rounds.rest()
    except NotSettled:
        return Play()
    return rounds.result()


class SnapshotCopy(PlayedCluster):
    """A copy of objects of the snapshot, and a scheduler with these actions."""

    def __init__(self, snapshot: ClusterSnapshot, actions: Iterable[ActionConfig]) -> None:
        configuration = snapshot.scheduler.configuration
        configuration = msgspec.structs.replace(configuration, actions=tuple(actions))
        setup = SchedulerFactory(configuration, snapshot.scheduler.registry)
        super().__init__(setup, snapshot.cluster.now, seed=_SEED)
        self._snapshot = snapshot
        self._seen_at: float | None = None
        """When the scheduler of the snapshot saw the object that is loaded: pods of one second are
        queued in the order in which they were seen."""

    def load(self, objects: Iterable[Raw]) -> list[tuple[Key, Raw]]:
        self._seen_at = self.time
        found = super().load(objects)
        self._seen_at = None
        return found

    def viewed(self, key: Key, view: Any) -> None:
        cluster = self._snapshot.cluster
        if self._seen_at is None:
            return
        self._seen_at = self.time
        if key.kind == POD.kind and (pod := cluster.pods.get(view.metadata.uid)) is not None:
            self._seen_at = min(pod.first_seen, self.time)
        elif key.kind == "PodGroup" and (job := cluster.jobs.get(key.namespace, key.name)) is not None:
            self._seen_at = min(job.queued_since, self.time)

    def feed(self, event: Event) -> None:
        self.fed = True
        self.scheduler.feed(event, self.clock.epoch() if self._seen_at is None else self._seen_at)

    def adopt_pod(self, key: Key, raw: Raw) -> None:
        """Pods that are terminating already are gone only after their grace period."""
        if "deletionTimestamp" in raw["metadata"]:
            self.kubelets.adopt_endless(raw["metadata"]["uid"])
        else:
            super().adopt_pod(key, raw)

    def emit(self, decision: Emit) -> None:
        """Nobody reads Events."""


class _Placing(SnapshotCopy):
    """A round that does not evict for pods that it could not place: no more is placed in that round."""

    def __init__(self, snapshot: ClusterSnapshot, without: Container[str]) -> None:
        actions = snapshot.scheduler.configuration.actions
        super().__init__(snapshot, (each for each in actions if each.name in _PLACING))
        objects = objects_of(snapshot)
        self.load(raw for raw in objects if raw["metadata"]["uid"] not in without)

    def decide(self) -> list[Decision]:
        return self.scheduler.round(self.clock.epoch())


class _Rounds(SnapshotCopy):
    """The rounds of the scheduler until the pod or gang has started."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        goal: Goal,
        with_reclaim: bool = False,
        *,
        is_whole: bool = True,
    ) -> None:
        """Unless it `is_whole`, the first round ends when the pod or gang was tried."""
        more = (ActionConfig(Reclaim.name, {}),) if with_reclaim else ()
        super().__init__(snapshot, (*snapshot.scheduler.configuration.actions, *more))
        self._goal = goal
        self.load(objects_of(snapshot, goal))
        self._job = self._own_job()
        self._was_ready = self._job is not None and self._job.is_ready
        self._steps: list[PlayedStep] = []
        self._round = self._own_round = self._evicting_round = 0
        self._own = self._own_names()
        """By which steps name it: uids, and names with kinds."""
        pod = self._record() if isinstance(goal, Subject) else None
        self._nominated = pod.nominated if pod is not None else ""
        self._goals = self._own if pod is None else {pod.uid}
        """The pod; or any member of the gang, of which none is bound before it is ready."""
        self._bound: list[str] = []
        """The nodes to which it, or its members, were bound."""
        self._decided: list[Decision] = []
        """The decisions of the last round, to be looked at once they are carried out."""
        """Each with its round."""
        self.steps_before: list[PlayedStep] = []
        self._attempts = [0]
        """How many steps there were after each attempt of the first round until the pod or gang was
        tried."""
        self._seen = 0
        """How many decisions were looked at for that."""
        self._is_tried = False
        self._cleared = ""
        """The node that is being cleared for a pod outside gangs since it was tried: it keeps that."""
        self._is_whole = is_whole

    def _own_job(self) -> Job | None:
        jobs = self.scheduler.cluster.jobs
        if not isinstance(self._goal, Subject):
            return jobs.known.get(self._goal.job)
        pod = self._record()
        return jobs.of(pod) if pod is not None else None

    def _record(self) -> PodRecord | None:
        goal, cluster = self._goal, self.scheduler.cluster
        assert isinstance(goal, Subject)
        if goal.info is POD:
            return cluster.pod(goal.namespace, goal.name)
        reservation = cluster.reservations.get(goal.name)
        return reservation.pod if reservation is not None else None

    # Rounds

    def decide(self) -> list[Decision]:
        self._round += 1
        made = self.scheduler.round(
            self.clock.epoch(), enough=self._note_attempt if self._round == 1 else None
        )
        self._decided = [each for each in made if not isinstance(each, _UNREAD)]
        if self._round == 1:
            steps = [step for each in made for step in _steps_of(each)]
            self.steps_before = steps[: self._attempts[-2]] if self._is_tried else steps
        return self._decided

    def _note_attempt(self) -> bool:
        """Called after each attempt; whether the round may end."""
        if not self._is_tried:
            new = self.scheduler.decisions[self._seen :]
            self._seen += len(new)
            self._attempts.append(self._attempts[-1] + sum(1 for each in new for _ in _steps_of(each)))
            self._is_tried = self._was_tried()
        return self._has_started() or (self._is_tried and not self._is_whole)

    def _has_started(self) -> bool:
        """Whether it has a node, or pods were preempted for it when it was tried."""
        if isinstance(self._goal, Subject):
            pod = self._record()
            if pod is not None and self._job is None and pod.nominated != self._nominated:
                self._cleared = pod.nominated
            return pod is not None and (pod.row >= 0 or bool(self._cleared))
        return self._job is not None and not self._was_ready and self._job.is_ready

    def _was_tried(self) -> bool:
        place = self.scheduler.queue.place
        if isinstance(self._goal, Subject) and (pod := self._record()) is not None:
            return pod.row >= 0 or place(pod.uid) in ("unschedulable", "backoff")
        first = self._job.leader if self._job is not None else None
        if first is None:
            return False
        return first.row >= 0 or place(first.uid) in ("unschedulable", "backoff")

    def is_over(self) -> bool:
        for decision in self._decided:
            for step in _steps_of(decision):
                if isinstance(step, PlayedRemoval) and step.by in self._own:
                    self._own_round = self._own_round or self._round
                if isinstance(decision, Evict) and self._is_refused(decision):
                    continue
                if isinstance(step, PlayedRemoval) and step.by in self._own:
                    self._evicting_round = self._evicting_round or self._round
                    if self._round > self._evicting_round:
                        continue
                self._steps.append(step)
                if isinstance(decision, Bind | SetReservationStatus) and step.uid in self._goals:
                    assert isinstance(step, PlayedPlacement)
                    self._bound.append(step.node)
        self._decided = []
        if self._cleared and not self._bound:
            self._bound.append(self._cleared)
        return bool(self._bound)

    def _is_refused(self, decision: Evict) -> bool:
        raw = self.objects.get(pod_key(decision.pod.namespace, decision.pod.name))
        if raw is None or raw["metadata"].get("uid") != decision.pod.uid:
            return False
        return not raw["metadata"].get("deletionTimestamp")

    def is_own(self, step: PlayedStep) -> bool:
        """Whether it is a step of the pod or gang, or for it."""
        return (step.by if isinstance(step, PlayedRemoval) else step.uid) in self._own

    # What came of it

    def result(self) -> Play:
        play = Play(sorted(set(self._bound)), own_round=self._own_round)
        play.is_at_once = self._round == 1 and bool(play.nodes) and not self._own_round
        play.steps_before = self.steps_before
        own, known = self._own, self._snapshot.cluster.pods
        placed: dict[str, tuple[PodRecord, str]] = {}
        for step in self._steps:
            record = known.get(step.uid) or self._reserve_pod(step.uid)
            if record is None:
                continue
            if isinstance(step, PlayedPlacement):
                if step.uid not in own:
                    placed[step.uid] = record, step.node
            elif step.by in own:
                _add(play.own, self._leader(step.by) or record, step.verb, record)
            elif not play.own and (leader := self._leader(step.by)) is not None:
                _add(play.first, leader, step.verb, record)
        play.others = list(placed.values())
        return play

    def _own_names(self) -> set[str]:
        if self._job is None:
            pod = self._record() if isinstance(self._goal, Subject) else None
            return {pod.uid, str(pod.ref)} if pod is not None else set()
        partners = self.scheduler.cluster.jobs.partners(self._job)
        members = [pod for job in partners for pod in job.members.values()]
        return {str(job.ref) for job in partners} | {each.uid for each in members}

    def _reserve_pod(self, uid: str) -> PodRecord | None:
        reservation = self._snapshot.cluster.reservations.known.get(uid)
        return reservation.pod if reservation is not None else None

    def _leader(self, name: str) -> PodRecord | None:
        """The pod of that name or uid in the snapshot; of a gang, the member that is queued for all."""
        cluster = self._snapshot.cluster
        if (found := cluster.pods.get(name) or self._reserve_pod(name)) is not None:
            return found
        for job in cluster.jobs.known.values():
            if str(job.ref) == name:
                return next(iter(job.waiting()), None)
        return next((pod for pod in cluster.pods.values() if str(pod.ref) == name), None)


def objects_of(snapshot: ClusterSnapshot, goal: Goal | None = None) -> Iterator[Raw]:
    """The objects without the other pending pods of its workload; all, if there is no goal."""
    jobs = snapshot.cluster.jobs
    pod = goal.record(snapshot) if isinstance(goal, Subject) else None
    owners = same_workload(snapshot, pod) if pod is not None and jobs.of(pod) is None else set()
    own = (pod.namespace, pod.name) if pod is not None else ()
    for (_, kind), of_kind in snapshot.objects.items():
        for name, raw in of_kind.items():
            if not raw["metadata"].get("uid"):
                raw = {**raw, "metadata": {**raw["metadata"], "uid": "/".join((kind, *name))}}
            if kind != POD.kind:
                yield raw
                continue
            is_pending = not raw["spec"].get("nodeName")
            if is_pending and owners and name != own and controller_of(raw).get("uid") in owners:
                continue
            yield raw if "status" in raw else {**raw, "status": {}}
    known = snapshot.objects.get((POD.api_version, POD.kind), {})
    yield from (raw for name, raw in snapshot.ended_pods.items() if name not in known)
    yield from snapshot.plugin_objects


def _steps_of(decision: Decision) -> Iterator[PlayedStep]:
    match decision:
        case Bind():
            yield PlayedPlacement(decision.pod.uid, decision.node)
        case SetReservationStatus() if decision.binds:
            yield PlayedPlacement(decision.reservation.uid, decision.status.node_name)
        case Nominate() if decision.node:
            yield PlayedPlacement(decision.pod.uid, decision.node, is_nominated=True)
        case Preempt():
            yield PlayedRemoval(decision.pod.uid, decision.preemptor.uid, PREEMPTED)
        case PreemptReservation():
            yield PlayedRemoval(decision.reservation.uid, decision.preemptor.uid, PREEMPTED)
        case Evict() if by := reclaimer_in(decision.message):
            yield PlayedRemoval(decision.pod.uid, by, RECLAIMED)


def _add(found: list[Eviction], leader: PodRecord, verb: str, victim: PodRecord) -> None:
    for each in found:
        if each.pod is leader and each.verb == verb:
            each.victims.append(victim)
            return
    found.append(Eviction(leader, verb, [victim]))
