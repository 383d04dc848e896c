"""A little world in which pods can be moved: evictions are granted or not, and the scheduler can be
restarted between any two writes."""

from typing import Any

import msgspec

from harness import world as little_world
from harness.world import LittleWorld, Raw, node, pod
from holdfast.api.decode import decode
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.decisions import (
    CreateReservation,
    Evict,
    SetMigrationStatus,
    SpecifyMigration,
)
from holdfast.scheduler.cluster.events import Added, Deleted, WriteRefused
from holdfast.scheduler.controllers.migration import MigrationController
from holdfast.scheduler.controllers.reservation_lifecycle import ReservationLifecycle
from holdfast.scheduler.scheduler import Scheduler

NODES = [node("n1", cpu="4"), node("n2", cpu="4")]
ROOM = "job-move"
"""The name of a job's reservation is the job's uid."""
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."
READY = [{"type": "Ready", "status": "True"}]
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}


def job(name: str = "move", pod: str = "web", **spec: Any) -> Raw:
    meta = spec.pop("meta", {})
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": name, "uid": f"job-{name}", **meta},
        "spec": {"podRef": {"namespace": "default", "name": pod}, **spec},
    }


def replica(name: str, **spec: Any) -> Raw:
    """A pod of the ReplicaSet `web`."""
    return pod(name, "web", meta={"ownerReferences": [OWNER]}, **spec)


def running(raw: Raw, node: str) -> Raw:
    raw["spec"]["nodeName"] = node
    raw["status"] = {"phase": "Running", "conditions": READY}
    return raw


class MovingWorld(LittleWorld):
    def __init__(self, *objects: Raw) -> None:
        self.evicted: list[str] = []
        self.refusal = ""
        """Why no pod is evicted now, if none is."""
        self.no_room = ""
        """Why no reservation can be created now, if none can."""
        self.graceless = True
        """Whether an evicted pod is gone at once."""
        self.starts_well = True
        """Whether pods are ready as soon as they run."""
        self.mute = False
        """Whether no status of a job can be written now."""
        self.unwritten = 0
        self.writes = 0
        self.restart_after = -1
        """So many writes are made, and then the scheduler forgets everything, once."""
        super().__init__(*objects)

    def start(self) -> None:
        self.scheduler = Scheduler(
            little_world._CONFIGURATION,
            little_world._REGISTRY,
            {"default-scheduler": "holdfast-scheduler"},
            [MigrationController, ReservationLifecycle],
        )
        for raw in self.objects.values():
            self._feed(Added(decode(raw)))

    restart = start

    def _is_interrupted(self) -> bool:
        self.writes += 1
        if self.writes != self.restart_after:
            return False
        self.start()
        return True

    def job(self, name: str = "move") -> Raw:
        return self.objects["PodMigrationJob", name]

    def outcome(self, name: str = "move") -> tuple[str, str, str]:
        status = self.job(name).get("status", {})
        return status.get("phase", ""), status.get("reason", ""), status.get("message", "")

    def steps(self, name: str = "move") -> list[tuple[str, str, str]]:
        """The conditions, in the order they came up."""
        conditions = self.job(name).get("status", {}).get("conditions", [])
        return [(each["type"], each["status"], each.get("reason", "")) for each in conditions]

    def reservations(self) -> list[str]:
        return [name for kind, name in self.objects if kind == "Reservation"]

    def said(self, kind: str = "PodMigrationJob") -> list[tuple[str, str, str]]:
        return [(e.type, e.reason, e.message) for e in self.events if e.about.kind == kind]

    # Carrying out

    def _carry_out(self, decision: Any) -> None:
        if isinstance(decision, Evict):
            self._evict(decision)
        elif isinstance(decision, CreateReservation):
            self._create_for(decision)
        elif isinstance(decision, SetMigrationStatus):
            raw = self.objects.get(("PodMigrationJob", decision.job.name))
            if self.mute:
                self.unwritten += 1
                self._feed(WriteRefused(decision, "no"))
            elif raw is not None:
                self._store({**raw, "status": msgspec.to_builtins(decision.status)})
        elif isinstance(decision, SpecifyMigration):
            self._specify(decision)
        else:
            super()._carry_out(decision)

    def _evict(self, decision: Evict) -> None:
        ref = decision.pod
        raw = self.objects.get(("Pod", ref.name))
        if raw is None or raw["metadata"]["uid"] != ref.uid:
            return
        if self.refusal:
            self._feed(WriteRefused(decision, self.refusal))
            return
        self.evicted.append(ref.name)
        if self.graceless:
            self._gone("Pod", ref.name)
        else:
            leaving = {"deletionTimestamp": format_time(self.now + 30)}
            self._change("Pod", ref.name, {"metadata": leaving})

    def _create_for(self, decision: CreateReservation) -> None:
        raw = msgspec.to_builtins(decision.reservation)
        name = raw["metadata"]["name"]
        if self.no_room:
            self._feed(WriteRefused(decision, self.no_room))
        elif ("Reservation", name) not in self.objects:
            meta = {"uid": f"rsv-{name}", "creationTimestamp": format_time(self.now)}
            self._store({**raw, "metadata": {**raw["metadata"], **meta}})

    def _specify(self, decision: SpecifyMigration) -> None:
        raw = self.objects.get(("PodMigrationJob", decision.job.name))
        if raw is None:
            return
        spec = dict(raw["spec"])
        if decision.pod is not None:
            spec["podRef"] = msgspec.to_builtins(decision.pod)
        if decision.reservation is not None:
            reference = msgspec.to_builtins(decision.reservation)
            options = spec.get("reservationOptions") or {}
            spec["reservationOptions"] = {**options, "reservationRef": reference}
        self._store({**raw, "spec": spec})

    def _bind(self, decision: Any) -> None:
        super()._bind(decision)
        if self.starts_well and self.node_of(decision.pod.name):
            self._change("Pod", decision.pod.name, {"status": {"conditions": READY}})

    def _gone(self, kind: str, name: str) -> None:
        raw = self.objects.pop((kind, name))
        self._feed(Deleted(decode(raw)))


def world(*objects: Raw, on: str = "n1", **spec: Any) -> MovingWorld:
    """Two nodes, and a pod of a ReplicaSet on one of them."""
    return MovingWorld(*NODES, running(replica("web", cpu="3", **spec), on), *objects)
