"""The figures of what really happened in a recording, counted as those of a simulation are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from holdfast.api.kinds import KINDS
from holdfast.api.node import Device, Node
from holdfast.api.pod import Pod
from holdfast.api.reservation import Reservation
from holdfast.local.timeline import BOUND, CREATED, DELETED, EVICTED, PREEMPTED, TimelineEntry
from holdfast.recording.lives import PREEMPTION, ObjectLife, PodLife, RecordedLives
from holdfast.scheduler.framework.gang_permit import READY
from holdfast.scheduler.jobs.job import named_by
from holdfast.sim.node_usage import NodeUsage
from holdfast.sim.simulation import Result
from holdfast.sim.summary import RunFigures, summary

Raw = dict[str, Any]

AS_RECORDED = "as recorded"
_COUNTED = {"Node": Node, "Reservation": Reservation, "Device": Device}
_FIRST, _BOUND, _LAST = range(3)
"""The order of what happens at one time."""


class RecordedRun:
    def __init__(self, lives: RecordedLives) -> None:
        self._lives = lives
        self._usage = NodeUsage()
        self._figures = RunFigures(lives.begin)
        self._timeline: list[TimelineEntry] = []
        self._moments: list[tuple[float, int, Callable[[float], None]]] = []
        self._objects: dict[int, Raw] = {}
        self._members: dict[str, int] = {}
        """How many pods of each group got a node."""
        self._needed: dict[str, int] = {}

    def result(self) -> Result:
        """Without a history, since there is no simulation."""
        for number, life in enumerate(self._lives.objects):
            self._object(number, life)
        for number, pod in enumerate(self._lives.pods, len(self._lives.objects)):
            self._pod(number, pod)
        end = self._lives.end
        for t, _, happen in sorted(self._moments, key=lambda each: each[:2]):
            if t <= end:
                happen(t)
        self._timeline.sort(key=lambda each: each.t)
        objects = list(self._objects.values())
        # Nothing in a recording says that a job starved.
        figures = summary(
            _Kept(objects), self._usage, self._figures, self._timeline, end, detects_starvation=False
        )
        return Result(
            seed=0,
            end=end,
            timeline=self._timeline,
            objects=objects,
            summary=figures,
            unmet=[],
            node_usage=self._usage,
            waits=self._figures.waits,
            created_before=self._figures.created_before,
        )

    def _at(self, t: float, rank: int, happen: Callable[[float], None]) -> None:
        self._moments.append((t, rank, happen))

    # Pods

    def _pod(self, number: int, life: PodLife) -> None:
        raw = life.first
        phase = (raw.get("status") or {}).get("phase")
        if phase in ("Succeeded", "Failed"):
            return
        name = _name(raw)
        was_bound = life.was_there and life.bound is not None and life.bound <= 0
        view = _view(raw, life.node if was_bound else "")
        if view is None:
            return
        group = named_by(view)
        self._at(life.arrived, _FIRST, lambda t: self._created(number, life, view, name, was_bound))
        if life.bound is not None and not was_bound:
            bound = _view(raw, life.node)
            assert bound is not None
            job = f"PodGroup/{group.namespace}/{group.name}" if group is not None else ""
            self._at(life.bound, _BOUND, lambda t: self._bound(t, number, life, bound, name, job))
        # A pod that ends makes room for those that get a node at that moment, unless it is one of them.
        if life.ended is not None:
            rank = _BOUND if life.ended == life.bound else _FIRST
            self._at(life.ended, rank, lambda t: self._ended(t, number, life, name))
        if life.deleted is not None:
            rank = _BOUND if life.deleted in (life.bound, life.ended) else _FIRST
            self._at(life.deleted, rank, lambda t: self._deleted(t, number, life, name))

    def _created(self, number: int, life: PodLife, view: Pod, name: str, was_bound: bool) -> None:
        t = life.arrived
        node = life.node if was_bound else ""
        raw = self._objects[number] = _with_phase(life.first, node, "Running" if node else "Pending")
        if life.bound is None and life.pending_reason:
            condition = {"type": "PodScheduled", "status": "False", "reason": life.pending_reason}
            raw["status"]["conditions"] = [condition]
        self._timeline.append(TimelineEntry(t, name, CREATED, node))
        self._figures.pod_created(view, t)
        self._usage.put_pod(view, t)

    def _bound(self, t: float, number: int, life: PodLife, view: Pod, name: str, job: str) -> None:
        self._objects[number] = _with_phase(life.first, life.node, "Running")
        self._timeline.append(TimelineEntry(t, name, BOUND, life.node))
        self._figures.pod_bound(view.metadata.uid, t)
        self._usage.put_pod(view, t)
        if job:
            self._members[job] = self._members.get(job, 0) + 1
            if self._members[job] == self._needed.get(job, 1):
                self._timeline.append(TimelineEntry(t, job, READY))

    def _ended(self, t: float, number: int, life: PodLife, name: str) -> None:
        if number in self._objects:
            self._objects[number] = _with_phase(life.first, life.node, life.phase)
            self._timeline.append(TimelineEntry(t, name, life.phase, life.node))
            self._usage.drop_pod(_uid(life.first), t)

    def _deleted(self, t: float, number: int, life: PodLife, name: str) -> None:
        if self._objects.pop(number, None) is None:
            return
        if life.disruption and life.ended is None:
            event = PREEMPTED if life.disruption == PREEMPTION else EVICTED
            self._timeline.append(TimelineEntry(t, name, event, life.node, message=life.disruption))
        self._timeline.append(TimelineEntry(t, name, DELETED, life.node))
        self._usage.drop_pod(_uid(life.first), t)

    # Other objects

    def _object(self, number: int, life: ObjectLife) -> None:
        first = life.versions[0][1]
        kind = first["kind"]
        if kind == "PodGroup":
            spec = first.get("spec") or {}
            gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
            self._needed[_name(first)] = int(spec.get("minMember") or gang.get("minCount") or 1)
        for t, raw in life.versions:
            self._at(t, _FIRST, partial(self._put, number, raw))
        if life.deleted is not None:
            self._at(life.deleted, _LAST, lambda t: self._drop(t, number, first))

    def _put(self, number: int, raw: Raw, t: float) -> None:
        self._objects[number] = raw
        if raw["kind"] not in _COUNTED or (raw["apiVersion"], raw["kind"]) not in KINDS:
            return
        try:
            view = msgspec.convert(raw, _COUNTED[raw["kind"]])
        except msgspec.ValidationError:
            return
        match view:
            case Node():
                self._usage.put_node(view, t)
            case Reservation():
                self._usage.put_reservation(view, t)
            case Device():
                self._usage.put_device(view, t)

    def _drop(self, t: float, number: int, raw: Raw) -> None:
        self._objects.pop(number, None)
        match raw["kind"]:
            case "Node":
                self._usage.drop_node(raw["metadata"]["name"], t)
            case "Reservation":
                self._usage.drop_reservation(_uid(raw), t)
            case "Device":
                self._usage.drop_device(raw["metadata"]["name"], t)


class _Kept:
    """The objects at the end, as a summary reads them."""

    def __init__(self, objects: list[Raw]) -> None:
        self._objects = objects

    def all(self) -> Iterator[Raw]:
        return iter(self._objects)

    def scan(self, group: str, kind: str) -> list[Raw]:
        return [raw for raw in self._objects if raw["kind"] == kind]


def _view(raw: Raw, node: str) -> Pod | None:
    spec = {**(raw.get("spec") or {}), "nodeName": node}
    try:
        view: Pod = msgspec.convert({**raw, "spec": spec, "status": {}}, Pod)
    except msgspec.ValidationError:
        return None
    return view


def _with_phase(raw: Raw, node: str, phase: str) -> Raw:
    """The pod as it is at the end; its conditions are those with which it was first seen."""
    status = {**(raw.get("status") or {}), "phase": phase}
    return {**raw, "spec": {**(raw.get("spec") or {}), "nodeName": node}, "status": status}


def _uid(raw: Raw) -> str:
    return str(raw["metadata"].get("uid") or "")


def _name(raw: Raw) -> str:
    metadata = raw["metadata"]
    namespace = metadata.get("namespace") or ("default" if raw["kind"] == "Pod" else "")
    return "/".join(filter(None, (raw["kind"], namespace, metadata["name"])))
