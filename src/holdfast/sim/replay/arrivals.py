"""The scenario of a recording: the lives of its objects as actions.

pods that were on nodes at the beginning    are there again, and end when they did
pods that arrived                           arrive again without a node, and run as long as they did
pods of services                            are deleted when they were, whenever they start
pods deleted before they started            are deleted then
pods of one owner deleted in one cascade    are deleted at the moment when it began
pods that are evicted or deleted            take as long to stop as they did
pods of schedulers that are not played      get the node that they got, when they got it
pods that were created with a node          are created there again
nodes, reservations, queues, and so on      come, change and go when they did
holds, and claims made for pods and these   are left out, since they are remade
bindings of volumes and claims              are decided again, unless they were there at first

A pod that was preempted or evicted and the pod that its controller created for it are one piece of
work: the first one arrives and runs as long as the second did, and the second does not arrive. Where no
run time is known (a pod that was evicted for good, or never started), it is the median of the runs of
the same owner; failing that, the pod runs to the end.

The deletion of an owner reaches its pods one after another, within milliseconds or seconds, and the
recorded scheduler took its time. Played as recorded, pods that end would let in siblings that are
deleted a moment later.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from holdfast.api import names
from holdfast.api.documents import Document
from holdfast.api.kinds import KINDS
from holdfast.api.raw_objects import ObjectKind
from holdfast.api.times import format_duration
from holdfast.local.clock import STATED, STATED_FIRST
from holdfast.local.setup import SchedulerFactory
from holdfast.recording.lives import ObjectLife, PodLife, RecordedLives, ended_pods
from holdfast.sim.forecast.run_times import (
    MEDIAN,
    DurationHistory,
    controller_in,
    is_endless,
    time_or_none,
)
from holdfast.sim.scenario_actions import (
    Action,
    Apply,
    Create,
    Delete,
    Patch,
    Scenario,
    ScenarioAction,
    Target,
)
from holdfast.sim.scenario_objects import ScenarioObject

Raw = dict[str, Any]

_FIRST = ("Namespace", "PriorityClass", "RuntimeClass", "StorageClass")
_LEFT_OUT = frozenset(
    {"Deployment", "CronJob", "ReservationSchedule", "VolumeAttachment", "Event", "Lease"}
)
"""Kinds that make what the recording has itself, or follow from placements."""
_WORKLOADS = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController"})
_BOUND_LATER = frozenset({"PersistentVolume", "PersistentVolumeClaim", "ResourceClaim"})
"""Kinds whose changes are decisions."""
_STATUS_DECIDED = frozenset({"PodGroup", "Queue", "PodDisruptionBudget", "PodMigrationJob", "Job"})
_DECISIONS = (names.RESERVATION_ALLOCATED, names.DEVICE_ALLOCATED, names.RESOURCE_STATUS)
_BINDINGS = (
    names.BIND_COMPLETED_ANNOTATION,
    names.BOUND_BY_CONTROLLER_ANNOTATION,
    names.SELECTED_NODE_ANNOTATION,
)
_ENDED = ("Succeeded", "Failed")
_RECREATED_WITHIN = 300.0
"""Seconds within which a controller creates another pod for one that was evicted."""
_CASCADE = 1.0
"""Seconds within which the deletions of one owner's pods follow each other."""
_GROUPS = frozenset({*names.POD_GROUP_KEYS, names.LIGHT_GROUP_NAME, names.GANG_NAME})


class ReplayScenario:
    """Builds the scenario for one configuration."""

    def __init__(self, lives: RecordedLives, setup: SchedulerFactory, source: str) -> None:
        self._lives = lives
        self._setup = setup
        self._origin = Document(source, 1, 1, None)
        self._actions: list[ScenarioAction] = []
        self._refused: Counter[str] = Counter()
        self.pods: dict[str, PodLife] = {}
        """By the name of the object."""
        self._work = _Work(lives)
        self._cascades = _cascades(lives)

    def scenario(self, kinds: tuple[ObjectKind, ...] = ()) -> Scenario:
        for life in self._lives.objects:
            self._object(life)
        for pod in self._lives.pods:
            if not self._work.is_successor(pod):
                self._pod(pod)
        notes = [*self._lives.notes]
        notes += [f"{count} objects left out: {why}" for why, count in self._refused.most_common(5)]
        return Scenario(tuple(self._actions), (), self._lives.begin, tuple(notes), kinds)

    def _add(self, t: float, action: Action, *, first: bool = False) -> None:
        order = (STATED_FIRST if first else STATED, len(self._actions) + 1)
        self._actions.append(ScenarioAction(t, order, self._origin, action))

    def _read(self, raw: Raw) -> Raw | None:
        """The object as a scenario has it; None if it is invalid."""
        read = ScenarioObject(raw)
        if read.errors:
            self._refused[f"{raw['kind']}: {read.errors[0].field}: {read.errors[0].message}"] += 1
            return None
        return read.raw

    # Pods

    def _pod(self, life: PodLife) -> None:
        raw = life.first
        phase = (raw.get("status") or {}).get("phase")
        if phase in _ENDED and not (life.was_there and _is_of_group(raw)):
            return
        if life.was_there and life.bound is not None and life.bound <= 0:
            self._create(life, self._running(life), 0.0)
        elif _is_created_on_a_node(raw):
            self._create(life, self._placed(life), life.arrived)
        elif self._is_scheduled(raw):
            self._create(life, self._arriving(life), life.arrived)
            if life.ungated is not None:
                self._add(life.ungated, Patch(_target(raw), {"spec": {"schedulingGates": None}}))
        elif life.bound is not None:
            self._create(life, self._placed(life), life.bound)

    def _create(self, life: PodLife, raw: Raw, t: float) -> None:
        read = self._read(raw)
        if read is not None:
            metadata = read["metadata"]
            self.pods[f"Pod/{metadata.get('namespace') or 'default'}/{metadata['name']}"] = life
            self._add(t, Create(read))

    def _is_scheduled(self, raw: Raw) -> bool:
        """Whether the scheduler is to find a node for the pod."""
        annotations = raw["metadata"].get("annotations") or {}
        if names.MIRROR_POD_ANNOTATION in annotations:
            return False
        return self._setup.serves((raw.get("spec") or {}).get("schedulerName") or "default-scheduler")

    def _running(self, life: PodLife) -> Raw:
        """A pod that has its node from the beginning. It ends as long after as it did; a kubelet counts
        from the start of the pod, which may be a while after it got its node."""
        seconds, ran = self._work.run_time(life), -(life.bound or 0.0)
        if seconds is not None:
            seconds = max(0.0, seconds - ran) + ran_before(life.first, self._lives.begin)
        return self._annotated(life, seconds, keep_status=True)

    def _arriving(self, life: PodLife) -> Raw:
        raw = self._annotated(life, self._work.run_time(life), keep_status=False)
        return {**raw, "spec": {k: v for k, v in raw["spec"].items() if k != "nodeName"}}

    def _placed(self, life: PodLife) -> Raw:
        raw = self._annotated(life, life.run_time, keep_status=False)
        return {**raw, "spec": {**raw["spec"], "nodeName": life.node or raw["spec"]["nodeName"]}}

    def _annotated(self, life: PodLife, runs_for: float | None, *, keep_status: bool) -> Raw:
        """The pod with its times as annotations, without finalizers, which no controller would
        remove, and without the decisions of the recorded scheduler, unless it is kept where it was."""
        raw = life.first
        metadata = {
            key: value
            for key, value in raw["metadata"].items()
            if key not in ("finalizers", "deletionTimestamp", "deletionGracePeriodSeconds")
        }
        annotations = {
            key: value
            for key, value in (metadata.get("annotations") or {}).items()
            if not key.startswith(names.SIM_PREFIX) and (keep_status or key not in _DECISIONS)
        }
        cascade = self._cascades.get(id(life))
        was_kept = not life.disruption
        if life.stop_time:
            annotations[names.SIM_STOPS_IN] = _text(life.stop_time)
        if cascade is not None:
            annotations[names.SIM_DELETE_AT] = _text(cascade)
        elif life.deleted is not None and was_kept and (life.bound is None or is_endless(raw)):
            annotations[names.SIM_DELETE_AT] = _text(_deletion_began(life))
        elif runs_for is not None and not is_endless(raw):
            annotations[names.SIM_RUNS_FOR] = _text(runs_for)
        found = {**raw, "metadata": {**metadata, "annotations": annotations}}
        if not keep_status:
            found.pop("status", None)
        return found

    # Other objects

    def _object(self, life: ObjectLife) -> None:
        raw = life.versions[0][1]
        if raw["kind"] in _LEFT_OUT or _is_remade(raw, life):
            return
        before: Raw | None = None
        for t, version in life.versions:
            if before is not None and raw["kind"] in _BOUND_LATER:
                break
            given = _as_given(version, was_there=life.was_there and t == 0)
            if raw["kind"] == "PodMigrationJob":
                given = _without_its_reservation(given, raw)
            if given == before:
                continue
            read = self._read(given)
            if read is not None:
                self._add(
                    t, Create(read) if before is None else Apply(read), first=raw["kind"] in _FIRST
                )
                before = given
        if life.deleted is not None and before is not None:
            self._add(life.deleted, Delete(_target(raw)))


class _Work:
    """How long pods run whose recorded run time is not their own."""

    def __init__(self, lives: RecordedLives) -> None:
        self._history = DurationHistory()
        for pod, seconds in ended_pods(lives):
            self._history.add(pod, seconds)
        self._successor: dict[int, PodLife] = {}
        self._successors: set[int] = set()
        by_owner: dict[str, list[PodLife]] = {}
        for life in lives.pods:
            controller = controller_in(life.first)
            if controller is not None:
                by_owner.setdefault(str(controller.get("uid")), []).append(life)
        for members in by_owner.values():
            self._pair(members)

    def _pair(self, members: list[PodLife]) -> None:
        """Each pod that was evicted with the first that its controller created then."""
        for life in sorted(members, key=lambda each: each.deleted or 0.0):
            if not life.disruption or life.deleted is None:
                continue
            created = [
                each
                for each in members
                if not each.was_there
                and id(each) not in self._successors
                and -1.0 <= each.arrived - _evicted_at(life) <= _RECREATED_WITHIN
                and each is not life
            ]
            if created:
                found = min(created, key=lambda each: each.arrived)
                self._successor[id(life)] = found
                self._successors.add(id(found))

    def is_successor(self, life: PodLife) -> bool:
        return id(life) in self._successors

    def run_time(self, life: PodLife) -> float | None:
        """None if it runs to the end."""
        while (successor := self._successor.get(id(life))) is not None:
            life = successor
        if life.run_time is not None and not life.disruption:
            return life.run_time
        if life.bound is not None and life.left is None:
            return None
        known = self._history.of(life.first)
        return known[1].quantile(MEDIAN, life.run_time or 0.0) if known is not None else None


def _evicted_at(life: PodLife) -> float:
    """Its controller creates another when the eviction begins, at the latest when it is gone."""
    if life.stopping is not None:
        return life.stopping
    grace = float((life.first.get("spec") or {}).get("terminationGracePeriodSeconds") or 0.0)
    assert life.deleted is not None
    return life.deleted - grace


def _cascades(lives: RecordedLives) -> dict[int, float]:
    """By the identity of a pod that was deleted with others of its owner before it came to an end: when
    the first of these deletions began. Only of cascades with pods that had no node."""
    above = {
        str(life.versions[0][1]["metadata"].get("uid")): controller
        for life in lives.objects
        if (controller := controller_in(life.versions[0][1])) is not None
    }
    by_owner: dict[str, list[PodLife]] = {}
    for pod in lives.pods:
        controller = controller_in(pod.first)
        if controller is not None and _was_deleted(pod):
            while (upper := above.get(str(controller.get("uid")))) is not None:
                controller = upper
            by_owner.setdefault(str(controller.get("uid")), []).append(pod)
    found: dict[int, float] = {}
    for pods in by_owner.values():
        cascades: list[list[PodLife]] = []
        for pod in sorted(pods, key=_deletion_began):
            if cascades and _deletion_began(pod) - _deletion_began(cascades[-1][-1]) <= _CASCADE:
                cascades[-1].append(pod)
            else:
                cascades.append([pod])
        for cascade in cascades:
            if len(cascade) > 1 and any(each.bound is None for each in cascade):
                found |= {id(each): _deletion_began(cascade[0]) for each in cascade}
    return found


def _was_deleted(life: PodLife) -> bool:
    """Whether the pod was deleted before it came to an end, and not evicted."""
    had_ended = life.ended is not None and (life.stopping is None or life.ended < life.stopping)
    return life.deleted is not None and not had_ended and not life.disruption


def _deletion_began(life: PodLife) -> float:
    assert life.deleted is not None
    return life.stopping if life.stop_time and life.stopping is not None else life.deleted


def ran_before(pod: Raw, begin: float) -> float:
    """Seconds from its start to the beginning."""
    status = pod.get("status") or {}
    started = time_or_none(status.get("startTime")) if status.get("phase") == "Running" else None
    return max(0.0, begin - started) if started is not None else 0.0


def _text(seconds: float) -> str:
    return format_duration(round(seconds, 3))


def _is_created_on_a_node(pod: Raw) -> bool:
    """Whether the author of a pod gave it its node: no scheduler had said so when it was first seen."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_scheduled = any(each.get("type") == "PodScheduled" for each in conditions)
    return bool((pod.get("spec") or {}).get("nodeName")) and not is_scheduled


def _is_of_group(pod: Raw) -> bool:
    metadata = pod["metadata"]
    named = {*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})}
    return bool(named & _GROUPS) or bool((pod.get("spec") or {}).get("schedulingGroup"))


def _is_remade(raw: Raw, life: ObjectLife) -> bool:
    """Whether the scheduler or a controller made the object, and will again."""
    metadata = raw["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    match raw["kind"]:
        case "Reservation":
            made = (names.HOLD_LABEL, names.PREEMPTOR_UID, names.MIGRATION_JOB)
            return any(each in labels or each in annotations for each in made)
        case "ResourceClaim":
            owners = metadata.get("ownerReferences") or ()
            return any(each.get("kind") in ("Pod", "Reservation") for each in owners)
        case "PersistentVolume":
            return not life.was_there and names.PROVISIONED_BY_ANNOTATION in annotations
    return False


def _as_given(raw: Raw, *, was_there: bool) -> Raw:
    """The object as its author gave it, without what the cluster made of it."""
    kind = raw["kind"]
    drop = ("finalizers", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
    metadata = {key: value for key, value in raw["metadata"].items() if key not in drop}
    found = {**raw, "metadata": metadata}
    spec = dict(raw.get("spec") or {})
    if kind in _WORKLOADS and "batch.volcano" not in raw["apiVersion"]:
        found["spec"] = {key: spec[key] for key in ("selector",) if key in spec}
        found.pop("status", None)
    elif kind in _STATUS_DECIDED or (not was_there and kind in ("Reservation", *_BOUND_LATER)):
        found.pop("status", None)
    if kind == "PersistentVolumeClaim" and not was_there:
        found["spec"] = {key: value for key, value in spec.items() if key != "volumeName"}
        annotations = metadata.get("annotations") or {}
        metadata["annotations"] = {k: v for k, v in annotations.items() if k not in _BINDINGS}
    if kind == "PersistentVolume" and not was_there and "claimRef" in spec:
        found["spec"] = {key: value for key, value in spec.items() if key != "claimRef"}
    return found


def _without_its_reservation(job: Raw, first: Raw) -> Raw:
    """A PodMigrationJob without the name of the Reservation that was made for it: another will be."""
    options = {**(job.get("spec") or {}).get("reservationOptions", {})}
    named = ((first.get("spec") or {}).get("reservationOptions") or {}).get("reservationRef")
    options.pop("reservationRef", None)
    if named is not None:
        options["reservationRef"] = named
    spec = {key: value for key, value in job["spec"].items() if key != "reservationOptions"}
    return {**job, "spec": {**spec, "reservationOptions": options} if options else spec}


def _target(raw: Raw) -> Target:
    metadata, group = raw["metadata"], raw["apiVersion"].rpartition("/")[0]
    info = KINDS.get((raw["apiVersion"], raw["kind"]))
    namespaced = info.namespaced if info is not None else bool(metadata.get("namespace"))
    namespace = (metadata.get("namespace") or names.DEFAULT_NAMESPACE) if namespaced else ""
    return Target(raw["kind"], namespace, metadata["name"], (group,))
