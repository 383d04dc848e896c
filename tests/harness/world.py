"""A cluster of raw objects around a scheduler, where every decision is carried out at once.

Time stands still unless `wait` moves it. After every event the state is checked against a recount, and
no node may have more claimed than it offers, but by reservations that wait.
"""

from typing import Any, Self

import msgspec

from holdfast.api.decode import decode
from holdfast.api.times import format_time, parse_time
from holdfast.scheduler.assembly import controllers
from holdfast.scheduler.cluster.decisions import (
    Bind,
    CreateReservation,
    DeleteReservation,
    Emit,
    Evict,
    Nominate,
    Preempt,
    PreemptReservation,
    SetPodScheduled,
    SetReservationStatus,
)
from holdfast.scheduler.cluster.events import (
    Added,
    BindConfirmed,
    BindRefused,
    Deleted,
    Event,
    Updated,
    WriteRefused,
)
from holdfast.scheduler.cluster.recount import validate_state
from holdfast.scheduler.framework.config import API_VERSION, KIND, load
from holdfast.scheduler.plugins import registry as installed
from holdfast.scheduler.scheduler import Scheduler

START = parse_time("2026-01-01T00:00:00Z")
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"

Raw = dict[str, Any]

_REGISTRY = installed()
_CONFIGURATION = load({"apiVersion": API_VERSION, "kind": KIND}, _REGISTRY.implements())


def node(name: str, cpu: str = "16", memory: str = "32G", **more: Any) -> Raw:
    labels = {"kubernetes.io/hostname": name, **more.get("labels", {})}
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110", **more.get("allocatable", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", "labels": labels},
        "spec": more.get("spec", {}),
        "status": {"allocatable": allocatable},
    }


def pod_spec(requests: dict[str, str], **more: Any) -> Raw:
    container: Raw = {"name": "main", "image": "app", "resources": {"requests": requests}}
    if "ports" in more:
        container["ports"] = [{"containerPort": p, "hostPort": p} for p in more.pop("ports")]
    return {"containers": [container], **more}


def pod(name: str, app: str = "", uid: str = "", meta: Raw | None = None, **spec: Any) -> Raw:
    requests = spec.pop("requests", {"cpu": spec.pop("cpu", "1")})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"pod-{name}",
            "labels": {"app": app} if app else {},
            **(meta or {}),
        },
        "spec": {"schedulerName": "default-scheduler", **pod_spec(requests, **spec)},
        "status": {"phase": "Pending"},
    }


def reservation(name: str, app: str = "a", template: Raw | None = None, **spec: Any) -> Raw:
    requests = spec.pop("requests", {"cpu": spec.pop("cpu", "4")})
    labels = spec.pop("labels", {})
    annotations = spec.pop("annotations", {})
    body = template or {
        "metadata": {"labels": {"app": app}},
        "spec": pod_spec(requests, **spec.pop("pod", {})),
    }
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "uid": f"rsv-{name}", "labels": labels, "annotations": annotations},
        "spec": {
            "template": body,
            "owners": spec.pop("owners", [{"labelSelector": {"matchLabels": {"app": app}}}]),
            **spec,
        },
    }


class LittleWorld:
    def __init__(self, *objects: Raw, preemption: Raw | None = None) -> None:
        """`preemption`: the arguments of ReservationPreemption, where they are not the usual ones."""
        self.configuration = _CONFIGURATION
        if preemption is not None:
            plugin = {"name": "ReservationPreemption", "args": preemption}
            profile = {"schedulerName": "holdfast-scheduler", "pluginConfig": [plugin]}
            self.configuration = load(
                {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}, _REGISTRY.implements()
            )
        self.evictions: list[str] = []
        """The pods that were asked to go, as often as they were."""
        self.preempted: list[tuple[str, str]] = []
        """Which reservation had to go for which: preemptor and victim, by uid."""
        self.guarded: set[str] = set()
        """The pods a disruption budget does not let go."""
        self.now = START
        self.objects: dict[tuple[str, str], Raw] = {}
        self.events: list[Emit] = []
        self.graceful = False
        """Whether pods that have to make room take their time."""
        self.knows_reservations = True
        """Whether one can be created."""
        self.made = 0
        self.refuse: set[str] = set()
        """The uids of which the next bind is refused."""
        self.shrinking = False
        """Whether nodes come to offer less than is in use, which nobody here can help."""
        self.start()
        self.put(*objects)

    def start(self) -> None:
        """A new scheduler, which knows what objects there are and nothing else."""
        self.scheduler = Scheduler(
            self.configuration,
            _REGISTRY,
            {"default-scheduler": "holdfast-scheduler"},
            controllers(self.configuration),
        )
        for raw in self.objects.values():
            self._feed(Added(decode(raw)))

    restart = start

    # What happens

    def put(self, *objects: Raw) -> Self:
        for raw in objects:
            raw["metadata"].setdefault("creationTimestamp", format_time(self.now))
            self._store(raw)
        return self.settle()

    def delete(self, kind: str, name: str) -> Self:
        raw = self.objects.pop((kind, name))
        self._feed(Deleted(decode(raw)))
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
        for _ in range(200):
            decisions = self.scheduler.round(self.now)
            self.check()
            if not decisions:
                return self
            for decision in decisions:
                self._carry_out(decision)
                self.check()
                if self._is_interrupted():
                    break
        raise AssertionError("no end of decisions")

    def _is_interrupted(self) -> bool:
        """Whether the scheduler is lost after this write, and with it the rest of what it decided."""
        return False

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

    # What is asked

    def node_of(self, name: str) -> str:
        return str(self.objects["Pod", name]["spec"].get("nodeName", ""))

    def reservation_of(self, name: str) -> str:
        """The reservation a pod was bound through."""
        text = (self.objects["Pod", name]["metadata"].get("annotations") or {}).get(ALLOCATED)
        return str(msgspec.json.decode(text)["name"]) if text else ""

    def status(self, name: str) -> Raw:
        return dict(self.objects["Reservation", name].get("status") or {})

    def phase(self, name: str) -> str:
        return str(self.status(name).get("phase", ""))

    def condition(self, name: str, type: str) -> Raw:
        found = [c for c in self.status(name).get("conditions", ()) if c["type"] == type]
        return found[0] if found else {}

    def message(self, name: str) -> str:
        conditions = self.objects["Pod", name]["status"].get("conditions", [])
        return str(conditions[0]["message"]) if conditions else ""

    def owners(self, name: str) -> list[str]:
        return [owner["name"] for owner in self.status(name).get("currentOwners", ())]

    # Carrying out

    def _store(self, raw: Raw) -> None:
        key = (raw["kind"], raw["metadata"]["name"])
        known = key in self.objects
        self.objects[key] = raw
        self._feed((Updated if known else Added)(decode(raw)))

    def _feed(self, event: Event) -> None:
        self.scheduler.feed(event, self.now)
        self.check()

    def _carry_out(self, decision: Any) -> None:
        if isinstance(decision, Bind):
            self._bind(decision)
        elif isinstance(decision, SetReservationStatus):
            self._set_status(decision)
        elif isinstance(decision, CreateReservation):
            self._create(msgspec.to_builtins(decision.reservation))
        elif isinstance(decision, DeleteReservation):
            if ("Reservation", decision.reservation.name) in self.objects:
                self.delete("Reservation", decision.reservation.name)
        elif isinstance(decision, PreemptReservation):
            self.preempted.append((decision.preemptor.uid, decision.reservation.uid))
            if ("Reservation", decision.reservation.name) in self.objects:
                marks = {"labels": decision.labels, "annotations": decision.annotations}
                self._change("Reservation", decision.reservation.name, {"metadata": marks})
        elif isinstance(decision, Evict):
            self.evictions.append(decision.pod.name)
            if decision.pod.name not in self.guarded and ("Pod", decision.pod.name) in self.objects:
                self._preempt(decision.pod.name)
        elif isinstance(decision, SetPodScheduled):
            if ("Pod", decision.pod.name) in self.objects:
                condition = {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": decision.reason,
                    "message": decision.message,
                }
                self._change("Pod", decision.pod.name, {"status": {"conditions": [condition]}})
        elif isinstance(decision, Preempt):
            if ("Pod", decision.pod.name) in self.objects:
                self._preempt(decision.pod.name)
        elif isinstance(decision, Nominate):
            if ("Pod", decision.pod.name) in self.objects:
                self._change("Pod", decision.pod.name, {"status": {"nominatedNodeName": decision.node}})
        elif isinstance(decision, Emit):
            self.events.append(decision)

    def _create(self, raw: Raw) -> None:
        key = ("Reservation", raw["metadata"]["name"])
        if key in self.objects or not self.knows_reservations:
            return
        self.made += 1
        raw["metadata"]["uid"] = f"made-{self.made}"
        raw["metadata"]["creationTimestamp"] = format_time(self.now)
        self._store(raw)

    def _preempt(self, name: str) -> None:
        if not self.graceful:
            raw = self.objects.pop(("Pod", name))
            self._feed(Deleted(decode(raw)))
            return
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "",
        }
        leaving = {"deletionTimestamp": format_time(self.now)}
        self._change("Pod", name, {"metadata": leaving, "status": {"conditions": [condition]}})

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
            "status": {"phase": "Running"},
        }
        self._change("Pod", decision.pod.name, changes)

    def _set_status(self, decision: SetReservationStatus) -> None:
        ref = decision.reservation
        raw = self.objects.get(("Reservation", ref.name))
        if raw is None or raw["metadata"]["uid"] != ref.uid or ref.uid in self.refuse:
            self.refuse.discard(ref.uid)
            binds = decision.binds
            self._feed(BindRefused(ref.uid, "no") if binds else WriteRefused(decision, "no"))
            return
        if decision.binds:
            self._feed(BindConfirmed(ref.uid))
        status = msgspec.to_builtins(decision.status)
        metadata = raw["metadata"]
        annotations = {**metadata.get("annotations", {}), **decision.annotations}
        annotations = {key: value for key, value in annotations.items() if value}
        self._store({**raw, "metadata": {**metadata, "annotations": annotations}, "status": status})

    def _change(self, kind: str, name: str, changes: Raw) -> None:
        raw = self.objects[kind, name]
        merged = dict(raw)
        for part, values in changes.items():
            inner = dict(merged.get(part) or {})
            for key, value in values.items():
                before = inner.get(key)
                inner[key] = {**before, **value} if isinstance(before, dict) else value
            merged[part] = inner
        self._store(merged)
