"""Random lives of claims: after every write the state is what the objects say, no device is used twice,
and the audit finds nothing wrong with devices."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from harness.claim_objects import (
    claim_template,
    claiming_pod,
    device,
    device_class,
    devices_of,
    generated,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, node, pod, reservation
from harness.world import World
from holdfast.plugin import FINE, Handle, Outcome, Plugin, PodRecord
from holdfast.scheduler.cluster.decisions import Decision
from holdfast.sim.audit.claims import ClaimAudit

NODES = ("n1", "n2", "n3")
HELD = "holdfast.io/held-devices"
_TAINT = {"key": "sick", "effect": "NoSchedule"}
_AUDITED = ("ResourceClaim", "ResourceSlice", "DeviceClass", "Reservation")


class SlowPermit(Plugin):
    """Has pods and reservations wait in Permit while a life says so."""

    name = "SlowPermit"
    is_open = True

    def __init__(self, handle: Handle, args: Mapping[str, Any]) -> None:
        super().__init__(handle, args)

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        return FINE if SlowPermit.is_open else Outcome(wait=100.0)


class AuditedWorld(World):
    """In which every write of the scheduler about devices is audited."""

    def start(self) -> None:
        if not hasattr(self, "audit"):
            self.pods: dict[str, Raw] = {}
            self.audit = ClaimAudit(self.pods)
            self.is_writing = False
            self.problems: list[str] = []
        super().start()

    restart = start

    def _changed(self, kind: str, name: str, before: Raw | None, after: Raw | None) -> None:
        some = after or before
        assert some is not None
        if kind == "Pod":
            self.pods.pop(some["metadata"]["uid"], None)
            if after is not None:
                self.pods[some["metadata"]["uid"]] = after
        elif kind in _AUDITED:
            key = some["metadata"].get("namespace", ""), name
            found = list(self.audit.changed(kind, key, before, after))
            self.problems += found if self.is_writing else ()

    def _store(self, raw: Raw) -> None:
        key = raw["kind"], raw["metadata"]["name"]
        self._changed(*key, self.objects.get(key), raw)
        super()._store(raw)

    def _remove(self, kind: str, name: str) -> None:
        self._changed(kind, name, self.objects[kind, name], None)
        super()._remove(kind, name)

    def _carry_out(self, decision: Decision) -> None:
        self.is_writing = True
        try:
            super()._carry_out(decision)
        finally:
            self.is_writing = False


class ClaimLife:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0
        objects: list[Raw] = [
            device_class(extendedResourceName="example.com/gpu"),
            claim_template("two", request("r", 2)),
        ]
        for name in NODES:
            objects += [node(name, cpu="8"), resource_slice(name, 3)]
        SlowPermit.is_open = True
        self.world = AuditedWorld(*objects, plugins=(SlowPermit,))
        self.world.after_each = self.check

    def check(self) -> None:
        """No device has two claims."""
        claims = [raw for (kind, _), raw in self.world.objects.items() if kind == "ResourceClaim"]
        used = [device for raw in claims for device in devices_of(raw)]
        assert len(used) == len(set(used)), sorted(used)
        assert self.world.problems == []

    def step(self) -> None:
        steps = (
            self.add_pod,
            self.add_pod,
            self.add_pod,
            self.add_sharing_pod,
            self.add_extended_pod,
            self.add_reservation,
            self.end_pod,
            self.end_pod,
            self.end_reservation,
            self.refuse,
            self.restart,
            self.wait,
            self.lose_node,
            self.break_holder,
            self.break_holder,
            self.refuse_claims,
            self.restart_later,
            self.let_pods_end_slowly,
            self.publish,
            self.publish,
            self.publish,
            self.change_class,
            self.slow_down,
            self.slow_down,
            self.name_holder,
        )
        self.rng.choice(steps)()
        self.collect()
        self.check()

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def more(self) -> dict[str, Any]:
        app = self.rng.choice(("a", "b"))
        return {"priority": self.rng.choice((0, 0, 5, 10)), "app": app}

    def add_pod(self) -> None:
        made, its_claim = generated(
            self.name("p"), request("r", self.rng.choice((1, 1, 2))), **self.more()
        )
        self.world.put(its_claim, made)

    def add_sharing_pod(self) -> None:
        if ("ResourceClaim", "shared") not in self.world.objects:
            self.world.put(resource_claim("shared", metadata={"uid": self.name("shared-")}))
        self.world.put(claiming_pod(self.name("s"), "shared", **self.more()))

    def add_extended_pod(self) -> None:
        requests = {"cpu": "1", "example.com/gpu": self.rng.choice((1, 2))}
        self.world.put(pod(self.name("e"), requests=requests, **self.more()))

    def add_reservation(self) -> None:
        entries = [{"name": "gpu", "resourceClaimTemplateName": "two"}]
        if self.rng.random() < 0.3:
            entries.append({"name": "shared", "resourceClaimName": "shared"})
        labels = {"koordinator.sh/priority": str(self.rng.choice((1, 2, 3)))}
        if self.rng.random() < 0.5:
            labels["scheduling.koordinator.sh/can-preempt"] = "true"
        made = reservation(
            self.name("r"),
            cpu="1",
            app=self.rng.choice(("a", "b")),
            allocateOnce=self.rng.random() < 0.3,
            preAllocation=self.rng.random() < 0.3,
            labels=labels,
            pod={"resourceClaims": entries},
        )
        if self.rng.random() < 0.3:
            made["spec"]["allocatePolicy"] = "Restricted"
        self.world.put(made)

    def end_pod(self) -> None:
        pods = [name for kind, name in self.world.objects if kind == "Pod"]
        if pods:
            self.world.delete("Pod", self.rng.choice(pods))

    def end_reservation(self) -> None:
        names = self.world.reservation_names()
        if names:
            self.world.delete("Reservation", self.rng.choice(names))

    def break_holder(self) -> None:
        """A user deletes or edits a claim with which a reservation holds devices."""
        found = [
            name
            for (kind, name), raw in self.world.objects.items()
            if kind == "ResourceClaim" and HELD in raw["metadata"].get("annotations", {})
            if not (raw.get("status") or {}).get("reservedFor")
        ]
        if not found:
            return
        name, how = self.rng.choice(found), self.rng.choice(("delete", "annotations", "status"))
        if how == "delete":
            self.world.delete("ResourceClaim", name)
        elif how == "annotations":
            self.world.edit("ResourceClaim", name, metadata__annotations={})
        else:
            self.world.edit("ResourceClaim", name, status={})

    def publish(self) -> None:
        """A driver publishes other devices, taints, an incomplete pool, or nothing for a moment."""
        name = self.rng.choice(NODES)
        listed = [
            device(f"gpu-{i}", taints=[_TAINT] if self.rng.random() < 0.1 else [])
            for i in range(3)
            if self.rng.random() < 0.8
        ]
        made = resource_slice(name, listed)
        pool = made["spec"]["pool"]
        pool["generation"] = self.rng.choice((1, 2))
        pool["resourceSliceCount"] = self.rng.choice((1, 1, 1, 1, 2))
        if self.rng.random() < 0.3 and ("ResourceSlice", f"{name}-slice") in self.world.objects:
            self.world.delete("ResourceSlice", f"{name}-slice")
        if self.rng.random() < 0.9:
            self.world.put(made)

    def change_class(self) -> None:
        """An administrator has the class select no device, or all again."""
        selectors = ['device.driver == "none.example.com"'] if self.rng.random() < 0.4 else []
        self.world.put(device_class("gpu", *selectors, extendedResourceName="example.com/gpu"))

    def slow_down(self) -> None:
        SlowPermit.is_open = not SlowPermit.is_open
        self.world.settle()

    def name_holder(self) -> None:
        """A user puts a pod that names a claim of a reservation."""
        found = [name for kind, name in self.world.objects if kind == "ResourceClaim"]
        if found:
            self.world.put(claiming_pod(self.name("n"), self.rng.choice(found), **self.more()))

    def refuse_claims(self) -> None:
        self.world.claim_refusal = "" if self.world.claim_refusal else "no"

    def restart_later(self) -> None:
        self.world.restart_after = self.world.writes + self.rng.randrange(1, 12)

    def let_pods_end_slowly(self) -> None:
        self.world.graceful = not self.world.graceful

    def settled(self) -> None:
        """In the end every reservation on a node holds its devices, or says why not; no claim is left
        of any other."""
        self.world.claim_refusal, self.world.graceful = "", False
        SlowPermit.is_open = True
        for name in NODES:
            self.world.put(resource_slice(name, 3))
        self.world.put(device_class(extendedResourceName="example.com/gpu"))
        for kind, name in list(self.world.objects):
            raw = self.world.objects.get((kind, name))
            if kind == "Pod" and raw is not None and raw["metadata"].get("deletionTimestamp"):
                self.world.delete(kind, name)
        for _ in range(6):
            self.collect()
            self.world.wait(70)
        held: dict[str, list[Raw]] = {}
        for (kind, _), raw in self.world.objects.items():
            if kind == "ResourceClaim" and HELD in raw["metadata"].get("annotations", {}):
                held.setdefault(raw["metadata"]["ownerReferences"][0]["uid"], []).append(raw)
        for raw in self.world.reservations():
            name, claims = raw["metadata"]["name"], held.pop(raw["metadata"]["uid"], [])
            condition = self.world.condition(name, "DevicesHeld").get("status", "True")
            if self.world.phase(name) in ("Available", "Waiting"):
                assert claims or condition == "False", (name, self.world.status(name))
            else:
                assert not claims, (name, self.world.phase(name), claims)
        assert not held, held
        assert list(self.world.audit.at_rest()) == []
        self.end_everything()

    def end_everything(self) -> None:
        """Once all pods have ended, no reservation waits, unless others have the devices."""
        for kind, name in list(self.world.objects):
            if kind == "Pod" and (kind, name) in self.world.objects:
                self.world.delete(kind, name)
        for _ in range(6):
            self.collect()
            self.world.wait(70)
        for raw in self.world.reservations():
            name = raw["metadata"]["name"]
            if self.world.phase(name) == "Waiting":
                uid, where = raw["metadata"]["uid"], self.world.status(name)["nodeName"]
                assert not self.world.audit.certainly_gets(uid, where), (name, self.world.status(name))
        assert list(self.world.audit.at_rest()) == []

    def refuse(self) -> None:
        pods = [
            raw["metadata"]["uid"] for (kind, _), raw in self.world.objects.items() if kind == "Pod"
        ]
        self.world.refuse |= {*pods[-1:], f"pod-p{self.count + 1}", f"pod-s{self.count + 1}"}

    def restart(self) -> None:
        self.world.restart()
        self.world.settle()

    def wait(self) -> None:
        self.world.wait(self.rng.choice((1, 12, 40)))

    def lose_node(self) -> None:
        if self.rng.random() < 0.5:
            return
        name = self.rng.choice(NODES)
        self.world.delete("Node", name)
        there = [p for kind, p in self.world.objects if kind == "Pod" and self.world.node_of(p) == name]
        for each in there:
            self.world.delete("Pod", each)
        self.world.put(node(name, cpu="8"))

    def collect(self) -> None:
        """As the claim controller: drops consumers that are gone, deallocates and deletes claims."""
        pods = {
            raw["metadata"]["uid"] for (kind, _), raw in self.world.objects.items() if kind == "Pod"
        }
        for (kind, name), raw in list(self.world.objects.items()):
            if kind != "ResourceClaim" or (kind, name) not in self.world.objects:
                continue
            owner = raw["metadata"].get("ownerReferences", [{}])[0]
            if owner.get("kind") == "Pod" and owner["uid"] not in pods:
                self.world.delete("ResourceClaim", name)
                continue
            status = raw.get("status") or {}
            before = status.get("reservedFor") or []
            left = [each for each in before if each["uid"] in pods]
            if len(left) < len(before):
                changed = {**status, "reservedFor": left} if left else {}
                self.world.edit("ResourceClaim", name, status=changed)


@pytest.mark.parametrize("seed", range(12))
def test_a_random_life(seed: int) -> None:
    life = ClaimLife(seed)
    for _ in range(40):
        life.step()
    life.settled()
