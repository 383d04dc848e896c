"""Random lives of claims: after every write the state is what the objects say, and no device is used
twice."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.claim_objects import (
    claim_template,
    claiming_pod,
    device_class,
    devices_of,
    generated,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, node, pod, reservation
from harness.world import World

NODES = ("n1", "n2", "n3")


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
        self.world = World(*objects)
        self.world.after_each = self.check

    def check(self) -> None:
        """No device has two claims."""
        claims = [raw for (kind, _), raw in self.world.objects.items() if kind == "ResourceClaim"]
        used = [device for raw in claims for device in devices_of(raw)]
        assert len(used) == len(set(used)), sorted(used)

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
        made = reservation(
            self.name("r"),
            cpu="1",
            app=self.rng.choice(("a", "b")),
            allocateOnce=self.rng.random() < 0.3,
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
