"""A scheduler on virtual time, and the API server, kubelets and users around it.

    world = World(node("n1", cpu="4"), reservation("r", cpu="2"))
    world.put(pod("p", app="a")).wait(30)
    assert world.reservation_of("p") == "r"

Objects are raw, and known by kind and name. Every decision is carried out at once, unless the world was
told to refuse it. Time stands still unless `wait` moves it. After every event and every write the state
is compared with a recount, and no node may have more claimed than it offers, except by Waiting
reservations.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import msgspec

from harness.objects import ID, READY, REQUIREMENT, Raw
from holdfast.api.decode import decode
from holdfast.api.times import format_time, parse_time
from holdfast.scheduler.assembly import controllers
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    Bind,
    CreateReservation,
    DeleteReservation,
    Emit,
    Evict,
    Nominate,
    Preempt,
    PreemptReservation,
    SetMigrationStatus,
    SetPodScheduled,
    SetReservationStatus,
    SpecifyMigration,
)
from holdfast.scheduler.cluster.events import (
    Added,
    BindConfirmed,
    BindRefused,
    Deleted,
    Event,
    Updated,
    write_refused,
)
from holdfast.scheduler.controllers.provisioner import Provisioner
from holdfast.scheduler.framework.config import API_VERSION, KIND, Configuration, load
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import IN_TREE
from holdfast.scheduler.reservations.provisioning_requests import Requirements
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.recount import validate_state

START = parse_time("2026-01-01T00:00:00Z")
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."

_UIDS = {"Pod": "pod", "Node": "node", "Reservation": "rsv", "PodMigrationJob": "job"}

_loaded: dict[str, tuple[Configuration, Registry]] = {}


def _configured(plugins: tuple[type[Plugin], ...], preemption: Raw | None, dynamic: Raw) -> Any:
    profile: Raw = {"schedulerName": "holdfast-scheduler"}
    if plugins:
        enabled = [{"name": plugin.name} for plugin in plugins]
        profile["plugins"] = {"multiPoint": {"enabled": enabled}}
    if preemption is not None:
        profile["pluginConfig"] = [{"name": "ReservationPreemption", "args": preemption}]
    mapping: Raw = {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}
    mapping["dynamicReservation"] = dynamic
    key = repr((plugins, mapping))
    if key not in _loaded:
        registry = Registry([*IN_TREE, *plugins])
        _loaded[key] = load(mapping, registry.implements()), registry
    return _loaded[key]


class World:
    def __init__(
        self,
        *objects: Raw,
        plugins: tuple[type[Plugin], ...] = (),
        preemption: Raw | None = None,
        provisioner: str = "builtin",
        **dynamic: Any,
    ) -> None:
        """`plugins` run beside those in tree; `preemption` are ReservationPreemption's arguments.

        With `provisioner="builtin"` the scheduler's own creates the reservations that pods ask for,
        with "apart" one that can be restarted by itself, with "external" only the test. `dynamic` is
        the rest of that section of the configuration.
        """
        self._apart = provisioner == "apart"
        section = {"provisioner": "builtin" if provisioner == "builtin" else "external", **dynamic}
        self.configuration, self._registry = _configured(plugins, preemption, section)
        self.now = START
        self.objects: dict[tuple[str, str], Raw] = {}
        self.events: list[Emit] = []
        self.eviction_requests: list[str] = []
        """The pods whose eviction was requested, as often as it was."""
        self.evicted: list[str] = []
        self.preempted: list[tuple[str, str]] = []
        """Which reservation was preempted for which: preemptor and victim, by uid."""

        self.graceful = False
        """Whether evicted and preempted pods take their time to end."""
        self.pods_become_ready = True
        """Whether pods are ready as soon as they run."""
        self.shrinking = False
        """Whether nodes come to offer less than is in use, which the scheduler cannot help."""

        self.refuse: set[str] = set()
        """The uids of which the next bind, or write of status or annotations, is refused."""
        self.eviction_refusal = ""
        """Why no pod can be evicted now, if none can."""
        self.protected: set[str] = set()
        """The pods a disruption budget protects."""
        self.creation_refusal = ""
        """Why no reservation can be created now, if none can."""
        self.refuses_migration_status = False
        self.refused_migration_statuses = 0

        self.writes = 0
        self.restart_after = -1
        """After so many writes the scheduler restarts, once; the rest of what it decided is lost."""
        self.after_each: Callable[[], None] = lambda: None
        """Called after each decision is carried out."""
        self._numbers = 0
        self.start()
        self.put(*objects)

    def start(self) -> None:
        """A new scheduler, which knows the objects there are and nothing else."""
        self.scheduler = Scheduler(
            self.configuration,
            self._registry,
            {"default-scheduler": "holdfast-scheduler"},
            controllers(self.configuration),
        )
        for raw in self.objects.values():
            self.scheduler.feed(Added(decode(raw)), self.now)
            self.check()
        if self._apart and not hasattr(self, "provisioner"):
            self.restart_provisioner()

    restart = start

    def restart_provisioner(self) -> None:
        self.provisioner = Provisioner(Requirements())
        for raw in self.objects.values():
            self.provisioner.feed(Added(decode(raw)))

    def number(self) -> int:
        """One that was not given before, for names and uids."""
        self._numbers += 1
        return self._numbers

    # What happens

    def put(self, *objects: Raw) -> Self:
        """Creates or replaces objects; what an API server fills in is filled in."""
        for raw in objects:
            kind, metadata = raw["kind"], raw["metadata"]
            metadata.setdefault("uid", f"{_UIDS.get(kind, kind.lower())}-{metadata['name']}")
            metadata.setdefault("creationTimestamp", format_time(self.now))
            if kind == "Pod":
                metadata.setdefault("namespace", "default")
                raw["spec"].setdefault("schedulerName", "default-scheduler")
                raw.setdefault("status", {"phase": "Pending"})
            self._store(raw)
        return self.settle()

    def delete(self, kind: str, name: str) -> Self:
        self._remove(kind, name)
        return self.settle()

    def edit(self, kind: str, name: str, **changes: Any) -> Self:
        """Changes named by their path, parts joined by two underscores."""
        raw = msgspec.json.decode(msgspec.json.encode(self.objects[kind, name]))
        for path, value in changes.items():
            *parts, last = path.split("__")
            at = raw
            for part in parts:
                at = at.setdefault(part, {})
            at[last] = value
        self._store(raw)
        return self.settle()

    def wait(self, seconds: float) -> Self:
        end = self.now + seconds
        while (due := self.scheduler.next_timer()) is not None and due <= end:
            self.now = max(self.now, due)
            self.settle()
        self.now = end
        return self.settle()

    def settle(self) -> Self:
        """Rounds of the scheduler, and of a provisioner apart from it, until nothing is decided."""
        while True:
            self._settle_scheduler()
            decisions = self.provisioner.run(self.now) if self._apart else []
            if not decisions:
                return self
            with ExitStack() as stack:  # all are carried out, whatever becomes of the scheduler
                for decision in reversed(decisions):
                    stack.callback(self._carry_out, decision)

    def _settle_scheduler(self) -> None:
        for _ in range(200):
            decisions = self.scheduler.round(self.now)
            self.check()
            if not decisions:
                return
            for decision in decisions:
                self._carry_out(decision)
                self.check()
                self.writes += 1
                if self.writes == self.restart_after:
                    self.restart()
                    break
        raise AssertionError("no end of decisions")

    def check(self) -> None:
        cluster = self.scheduler.cluster
        problems = validate_state(cluster)
        assert not problems, problems
        waiting: dict[int, dict[int, int]] = {}
        for reservation in cluster.reservations.known.values():
            hold = cluster.reservations.hold(reservation)
            if reservation.waiting and hold is not None:
                for slot in hold.amounts:
                    there = waiting.setdefault(hold.row, {})
                    there[slot] = there.get(slot, 0) + hold.left(slot)
        table = cluster.nodes
        for name, row in table.names():
            for slot, resource in table.slots.resources():
                claimed = int(table.claimed[slot, row]) - waiting.get(row, {}).get(slot, 0)
                offered = int(table.allocatable[slot, row])
                gone = self.shrinking or not table.alive[row]
                assert claimed <= offered or gone, f"{name}: {resource} is oversold"

    # Questions about pods

    def node_of(self, name: str) -> str:
        return str(self.objects["Pod", name]["spec"].get("nodeName", ""))

    def annotation(self, name: str, key: str) -> str:
        return str((self.objects["Pod", name]["metadata"].get("annotations") or {}).get(key, ""))

    def reservation_of(self, name: str) -> str:
        """The reservation a pod was bound through."""
        text = self.annotation(name, ALLOCATED)
        return str(msgspec.json.decode(text)["name"]) if text else ""

    def message(self, name: str) -> str:
        """Of the PodScheduled condition."""
        for condition in self.objects["Pod", name]["status"].get("conditions", ()):
            if condition["type"] == "PodScheduled":
                return str(condition["message"])
        return ""

    def requirement(self, name: str) -> dict[str, str]:
        """The resources of the reservation that is requested on a pod's behalf."""
        text = self.annotation(name, REQUIREMENT)
        return dict(msgspec.json.decode(text)["resources"]) if text else {}

    def requirement_id(self, name: str) -> str:
        return str(msgspec.json.decode(self.annotation(name, REQUIREMENT))["labels"][ID])

    def provisioning_events(self, name: str) -> list[str]:
        """The reasons of events about provisioning for a pod."""
        return [e.reason for e in self.events if e.about.name == name and e.action == "Provisioning"]

    # Questions about reservations

    def reservations(self) -> list[Raw]:
        return [raw for (kind, _), raw in self.objects.items() if kind == "Reservation"]

    def reservation_names(self) -> list[str]:
        return [name for kind, name in self.objects if kind == "Reservation"]

    def status(self, name: str) -> Raw:
        return dict(self.objects["Reservation", name].get("status") or {})

    def phase(self, name: str) -> str:
        return str(self.status(name).get("phase", ""))

    def condition(self, name: str, type: str) -> Raw:
        found = [c for c in self.status(name).get("conditions", ()) if c["type"] == type]
        return found[0] if found else {}

    def owners(self, name: str) -> list[str]:
        return [owner["name"] for owner in self.status(name).get("currentOwners", ())]

    def reserved(self, node: str) -> int:
        """Milli-CPUs of a node that live and virtual reservations have."""
        cluster = self.scheduler.cluster
        row = cluster.nodes.row(node)
        return int(cluster.nodes.held[0, row]) if row is not None else 0

    # Questions about migrations

    def migration(self, name: str = "move") -> Raw:
        return self.objects["PodMigrationJob", name]

    def outcome(self, name: str = "move") -> tuple[str, str, str]:
        status = self.migration(name).get("status", {})
        return status.get("phase", ""), status.get("reason", ""), status.get("message", "")

    def steps(self, name: str = "move") -> list[tuple[str, str, str]]:
        """The conditions, in the order they were added."""
        conditions = self.migration(name).get("status", {}).get("conditions", [])
        return [(each["type"], each["status"], each.get("reason", "")) for each in conditions]

    def events_about(self, kind: str = "PodMigrationJob") -> list[tuple[str, str, str]]:
        return [(e.type, e.reason, e.message) for e in self.events if e.about.kind == kind]

    # Writes

    def _store(self, raw: Raw) -> None:
        key = (raw["kind"], raw["metadata"]["name"])
        known = key in self.objects
        self.objects[key] = raw
        self._feed((Updated if known else Added)(decode(raw)))

    def _remove(self, kind: str, name: str) -> None:
        self._feed(Deleted(decode(self.objects.pop((kind, name)))))

    def _feed(self, event: Event) -> None:
        self.scheduler.feed(event, self.now)
        self.check()
        if self._apart and hasattr(self, "provisioner"):
            self.provisioner.feed(event)

    def _change(self, kind: str, name: str, changes: Raw) -> None:
        """Merges changes of metadata, spec and status into an object, if it is there."""
        raw = self.objects.get((kind, name))
        if raw is None:
            return
        merged = dict(raw)
        for part, values in changes.items():
            inner = dict(merged.get(part) or {})
            for key, value in values.items():
                before = inner.get(key)
                inner[key] = {**before, **value} if isinstance(before, dict) else value
            merged[part] = inner
        self._store(merged)

    def _carry_out(self, decision: Any) -> None:
        carry_out = _CARRIED_OUT.get(type(decision))
        if carry_out is not None:
            getattr(self, carry_out)(decision)
        self.after_each()

    # Decisions about pods

    def _bind(self, decision: Bind) -> None:
        uid, raw = decision.pod.uid, self.objects.get(("Pod", decision.pod.name))
        if raw is None or raw["metadata"]["uid"] != uid or uid in self.refuse:
            self.refuse.discard(uid)
            self._feed(BindRefused(uid, "no"))
            return
        self._feed(BindConfirmed(uid))
        changes: Raw = {
            "spec": {"nodeName": decision.node},
            "metadata": {"annotations": dict(decision.annotations)},
            "status": {"phase": "Running", **({"conditions": READY} if self.pods_become_ready else {})},
        }
        self._change("Pod", decision.pod.name, changes)

    def _set_pod_scheduled(self, decision: SetPodScheduled) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": decision.reason,
            "message": decision.message,
        }
        self._change("Pod", decision.pod.name, {"status": {"conditions": [condition]}})

    def _nominate(self, decision: Nominate) -> None:
        self._change("Pod", decision.pod.name, {"status": {"nominatedNodeName": decision.node}})

    def _annotate(self, decision: AnnotatePod) -> None:
        raw = self.objects.get(("Pod", decision.pod.name))
        if raw is None or decision.pod.uid in self.refuse:
            self.refuse.discard(decision.pod.uid)
            self._feed(write_refused(decision, "no"))
            return
        annotations = {**(raw["metadata"].get("annotations") or {}), **decision.annotations}
        kept = {key: value for key, value in annotations.items() if value is not None}
        self._store({**raw, "metadata": {**raw["metadata"], "annotations": kept}})

    def _preempt(self, decision: Preempt) -> None:
        if ("Pod", decision.pod.name) in self.objects:
            self._end(decision.pod.name, "PreemptionByScheduler")

    def _evict(self, decision: Evict) -> None:
        ref = decision.pod
        raw = self.objects.get(("Pod", ref.name))
        if raw is None or raw["metadata"]["uid"] != ref.uid:
            return
        self.eviction_requests.append(ref.name)
        refusal = self.eviction_refusal or (BUDGET if ref.name in self.protected else "")
        if refusal:
            self._feed(write_refused(decision, refusal))
            return
        self.evicted.append(ref.name)
        self._end(ref.name, "EvictionByEvictionAPI")

    def _end(self, name: str, reason: str) -> None:
        if not self.graceful:
            self._remove("Pod", name)
            return
        condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": ""}
        deletion = {"deletionTimestamp": format_time(self.now + 30)}
        self._change("Pod", name, {"metadata": deletion, "status": {"conditions": [condition]}})

    # Decisions about reservations

    def _create_reservation(self, decision: CreateReservation) -> None:
        raw = msgspec.to_builtins(decision.reservation)
        if self.creation_refusal:
            self._feed(write_refused(decision, self.creation_refusal))
        elif ("Reservation", raw["metadata"]["name"]) not in self.objects:
            raw["metadata"]["uid"] = f"created-{self.number()}"
            raw["metadata"]["creationTimestamp"] = format_time(self.now)
            self._store(raw)

    def _delete_reservation(self, decision: DeleteReservation) -> None:
        if ("Reservation", decision.reservation.name) in self.objects:
            self._remove("Reservation", decision.reservation.name)

    def _preempt_reservation(self, decision: PreemptReservation) -> None:
        self.preempted.append((decision.preemptor.uid, decision.reservation.uid))
        marks = {"labels": decision.labels, "annotations": decision.annotations}
        self._change("Reservation", decision.reservation.name, {"metadata": marks})

    def _set_reservation_status(self, decision: SetReservationStatus) -> None:
        ref = decision.reservation
        raw = self.objects.get(("Reservation", ref.name))
        if raw is None or raw["metadata"]["uid"] != ref.uid or ref.uid in self.refuse:
            self.refuse.discard(ref.uid)
            binds = decision.binds
            self._feed(BindRefused(ref.uid, "no") if binds else write_refused(decision, "no"))
            return
        if decision.binds:
            self._feed(BindConfirmed(ref.uid))
        status = msgspec.to_builtins(decision.status)
        metadata = raw["metadata"]
        annotations = {**metadata.get("annotations", {}), **decision.annotations}
        annotations = {key: value for key, value in annotations.items() if value}
        self._store({**raw, "metadata": {**metadata, "annotations": annotations}, "status": status})

    # Decisions about migrations

    def _set_migration_status(self, decision: SetMigrationStatus) -> None:
        raw = self.objects.get(("PodMigrationJob", decision.job.name))
        if self.refuses_migration_status:
            self.refused_migration_statuses += 1
            self._feed(write_refused(decision, "no"))
        elif raw is not None:
            self._store({**raw, "status": msgspec.to_builtins(decision.status)})

    def _specify_migration(self, decision: SpecifyMigration) -> None:
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

    def _record(self, decision: Emit) -> None:
        self.events.append(decision)


_CARRIED_OUT: dict[type, str] = {
    Bind: "_bind",
    SetPodScheduled: "_set_pod_scheduled",
    Nominate: "_nominate",
    AnnotatePod: "_annotate",
    Preempt: "_preempt",
    Evict: "_evict",
    CreateReservation: "_create_reservation",
    DeleteReservation: "_delete_reservation",
    PreemptReservation: "_preempt_reservation",
    SetReservationStatus: "_set_reservation_status",
    SetMigrationStatus: "_set_migration_status",
    SpecifyMigration: "_specify_migration",
    Emit: "_record",
}
