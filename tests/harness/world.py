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
from holdfast.local.executor import DecisionExecutor
from holdfast.local.store.objects import Key
from holdfast.scheduler.assembly import controllers
from holdfast.scheduler.cluster.decisions import (
    AnnotatePod,
    Bind,
    CreateHolder,
    CreateReservation,
    Decision,
    DeleteClaim,
    DeleteReservation,
    Emit,
    Evict,
    HoldDevices,
    ObjectRef,
    PreemptReservation,
    SetMigrationStatus,
    SetReservationStatus,
)
from holdfast.scheduler.cluster.events import Added, BindRefused, Deleted, Event, Updated, write_refused
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
        """Whether the allocatable amounts of nodes fall below what is in use."""

        self.refuse: set[str] = set()
        """The uids of which the next bind, or write of status or annotations, is refused."""
        self.eviction_refusal = ""
        """Why no pod can be evicted now, if none can."""
        self.protected: set[str] = set()
        """The pods a disruption budget protects."""
        self.creation_refusal = ""
        """Why no reservation can be created now, if none can."""
        self.claim_refusal = ""
        """Why no claim of a reservation can be written or deleted now, if none can."""
        self.deletion_refusal = ""
        """Why no reservation can be deleted now, if none can."""
        self.refused_deletions = 0
        self.refuses_migration_status = False
        self.refused_migration_statuses = 0

        self.writes = 0
        self.restart_after = -1
        """After so many writes the scheduler restarts, once; the rest of what it decided is lost."""
        self.after_each: Callable[[], None] = lambda: None
        """Called after each decision is carried out."""
        self._numbers = 0
        self._executor = DecisionExecutor(WorldTarget(self))
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
            if kind in ("Pod", "ResourceClaim", "ResourceClaimTemplate"):
                metadata.setdefault("namespace", "default")
            if kind == "Pod":
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
            entry = reservation.entry
            if reservation.waiting and entry is not None:
                for slot in entry.amounts:
                    there = waiting.setdefault(entry.row, {})
                    there[slot] = there.get(slot, 0) + entry.left(slot)
        table, by_claim = cluster.nodes, cluster.claims.extended
        for name, row in table.names():
            for slot, resource in table.slots.resources():
                if resource in by_claim and not table.allocatable[slot, row]:
                    continue  # devices are allocated by a claim instead
                claimed = int(table.claimed[slot, row]) - waiting.get(row, {}).get(slot, 0)
                allocatable = int(table.allocatable[slot, row])
                gone = self.shrinking or not table.alive[row]
                assert claimed <= allocatable or gone, f"{name}: {resource} is oversold"

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
                return str(condition.get("message", ""))
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

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, PreemptReservation):
            self.preempted.append((decision.preemptor.uid, decision.reservation.uid))
        refusal = self._refusal(decision)
        if isinstance(decision, Evict) and self._is_there(decision.pod):
            self.eviction_requests.append(decision.pod.name)
            if not refusal:
                self.evicted.append(decision.pod.name)
        if not refusal:
            self._executor.carry_out(decision)
        elif isinstance(decision, Bind):
            self._feed(BindRefused(decision.pod.uid, refusal))
        elif isinstance(decision, CreateHolder) and decision.before_bind:
            self.refuse.add(decision.reservation.uid)
        elif isinstance(decision, SetReservationStatus) and decision.binds:
            self._feed(BindRefused(decision.reservation.uid, refusal))
        else:
            self._feed(write_refused(decision, refusal))
        self.after_each()

    def _is_there(self, ref: ObjectRef) -> bool:
        raw = self.objects.get((ref.kind, ref.name))
        return raw is not None and raw["metadata"]["uid"] == ref.uid

    def _refusal(self, decision: Decision) -> str:
        """Why the API server refuses a write, if it does."""
        match decision:
            case Bind() | AnnotatePod():
                return self._refused_once(decision.pod.uid)
            case SetReservationStatus():
                return self._refused_once(decision.reservation.uid)
            case Evict() if self._is_there(decision.pod):
                return self.eviction_refusal or (BUDGET if decision.pod.name in self.protected else "")
            case CreateReservation():
                return self.creation_refusal
            case CreateHolder():
                return self.claim_refusal
            case DeleteClaim() if decision.reservation:
                return self.claim_refusal
            case HoldDevices() if not decision.before_bind:  # else the bind would fail
                return self.claim_refusal
            case DeleteReservation():
                self.refused_deletions += bool(self.deletion_refusal)
                return self.deletion_refusal
            case SetMigrationStatus() if self.refuses_migration_status:
                self.refused_migration_statuses += 1
                return "no"
            case _:
                return ""

    def _refused_once(self, uid: str) -> str:
        if uid not in self.refuse:
            return ""
        self.refuse.discard(uid)
        return "no"


class WorldTarget:
    """The world as decisions are carried out on it; see `DecisionTarget`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.objects = self

    def get(self, key: Key) -> Raw | None:
        return self._world.objects.get((key.kind, key.name))

    def update(self, key: Key, raw: Raw) -> None:
        self._world._store(raw)

    def submit(self, raw: Raw) -> Raw:
        number = self._world.number()
        metadata = {**raw["metadata"], "uid": f"created-{number}", "creationTimestamp": self.now()}
        if not metadata.get("name"):
            metadata["name"] = f"{metadata['generateName']}{number}"
        made = {**raw, "metadata": metadata}
        self._world._store(made)
        return made

    def end(self, key: Key) -> None:
        self._world._remove(key.kind, key.name)

    def scan(self, group: str, kind: str) -> list[Raw]:
        return [raw for (each, _), raw in self._world.objects.items() if each == kind]

    def now(self) -> str:
        return format_time(self._world.now)

    def feed(self, event: Event) -> None:
        self._world._feed(event)

    def record(
        self, key: Key, event: str, *, node: str = "", reservation: str = "", message: str = ""
    ) -> None:
        pass

    def binding(self, key: Key, decision: Bind) -> None:
        pass

    def started(self, pod: Raw, bound: Raw) -> Raw:
        conditions = [*bound["status"]["conditions"], *(READY if self._world.pods_become_ready else ())]
        return {**bound, "status": {**bound["status"], "phase": "Running", "conditions": conditions}}

    def delete_pod(self, key: Key, grace: int | None = None) -> None:
        if not self._world.graceful:
            self._world._remove("Pod", key.name)
            return
        raw = self._world.objects["Pod", key.name]
        deletion = {"deletionTimestamp": format_time(self._world.now + 30)}
        self._world._store({**raw, "metadata": {**raw["metadata"], **deletion}})

    def emit(self, decision: Emit) -> None:
        self._world.events.append(decision)
