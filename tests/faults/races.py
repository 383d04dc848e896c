"""Races of two schedulers for devices on one API server.

By the seed, two Holdfast schedulers with different names, or Holdfast beside a model of kube-scheduler.
Each knows the claims of the other by a watch that lags, and is killed at random steps.

The API server accepts two claims with one device. What is checked:

* Holdfast binds no pod while another claim has a device of the pod's claims that was allocated before.
* So two pods that Holdfast schedulers have bound never have the same device.
* At rest no device is in two claims, unless kube-scheduler allocated it last; nothing is leaked, and no
  pod waits for devices that are free.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from faults.audit import Audit, Violation, has_ended
from faults.kube_scheduler import NAME, KubeScheduler
from faults.life import NAMES, Life, Trouble, node_of, pod_of
from faults.model import CLAIMS, CLASSES, NODES, PODS, SLICES, TEMPLATES, Model, Raw
from faults.network import Network, Sent
from faults.simulation import Outcome, Simulation
from harness.claim_objects import claim_template, device_class, request, resource_slice

_RACING = 8.0
_SCHEDULERS = ("scheduler-a", "scheduler-b")

Device = tuple[str, str, str]


def draw_race(seed: int) -> Life:
    rng = random.Random(seed * 31 + 13)
    beside_kube = seed % 2 == 1
    life = Life(seed, replicas=1 if beside_kube else 2, claims=True, troubled=_RACING)
    life.retry_period = "5s"
    life.schedulers = dict(zip(NAMES[: life.replicas], _SCHEDULERS, strict=False))
    names = [*life.schedulers.values(), NAME] if beside_kube else list(_SCHEDULERS)
    for i in range(rng.randint(1, 2)):
        life.first.append((NODES, node_of(f"n{i}", 64000)))
        life.first.append((SLICES, resource_slice(f"n{i}", rng.randint(1, 3))))
    life.first.append((CLASSES, device_class("gpu", 'device.driver == "gpu.example.com"')))
    for name, count in (("one", 1), ("two", 2)):
        life.first.append((TEMPLATES, claim_template(name, request("r", count))))
    moments = [rng.uniform(1.0, _RACING * 0.8) for _ in range(rng.randint(1, 3))]
    for i in range(rng.randint(3, 7)):
        made = pod_of(f"p{i}", 100)
        made["spec"]["schedulerName"] = names[i % 2]
        template = rng.choice(("one", "one", "one", "two"))
        made["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimTemplateName": template}]
        at = rng.choice(moments) + rng.choice((0.0, rng.uniform(0.0, 0.05)))
        life.acts.append((at, "create", (PODS, made)))
        if rng.random() < 0.4:
            ends_at = at + rng.uniform(0.5, 5.0)
            what = rng.choice(("end", "delete"))
            args = (PODS, f"p{i}") if what == "end" else (PODS, f"p{i}", "default")
            life.acts.append((ends_at, what, args))
    life.acts.sort(key=lambda act: act[0])
    for name in life.schedulers:
        if rng.random() < 0.7:
            life.troubles.append(
                Trouble("watch", 0.5, _RACING, name, CLAIMS, "lag", amount=rng.uniform(0.01, 1.0))
            )
        if rng.random() < 0.4:
            at, steps = rng.choice(moments) - 0.001, rng.randint(1, 60)
            life.troubles.append(Trouble("kill", at, rng.uniform(0.2, 6.0), name, steps=steps))
        if rng.random() < 0.2:
            how = rng.choice(("error", "error after", "cut", "cut after", "unanswered", "slow", "any"))
            at, chance = rng.choice(moments), rng.choice((0.2, 0.5))
            what = rng.choice(("write", "bind"))
            life.troubles.append(
                Trouble("storm", at, 2.0, name, what, how, chance, rng.uniform(0.1, 3.0))
            )
    return life


class RaceAudit(Audit):
    def __init__(self, model: Model, network: Network) -> None:
        super().__init__(model, network)
        self._allocated: dict[str, int] = {}
        """When each claim got its allocation, by uid: the version."""

    def _check_devices(self, path: str, old: Raw | None, new: Raw | None, sent: Sent | None) -> None:
        if path == CLAIMS and new is not None:
            if not _devices(new):
                self._allocated.pop(new["metadata"]["uid"], None)
            elif old is None or not _devices(old):
                self._allocated[new["metadata"]["uid"]] = int(new["metadata"]["resourceVersion"])
        try:
            super()._check_devices(path, old, new, sent)
        except Violation as error:
            if not str(error).startswith("device allocated twice"):
                raise

    def _check_pod(self, old: Raw | None, new: Raw | None) -> None:
        super()._check_pod(old, new)
        if new is None or not new["spec"].get("nodeName") or self._network.accepting is None:
            return
        if old is not None and old["spec"].get("nodeName"):
            return
        for mine, other in self._doubles():
            if self._user(mine) == new["metadata"]["uid"] and self._is_before(other, mine):
                names = [each["metadata"]["name"] for each in (mine, other)]
                raise Violation(
                    f"pod {new['metadata']['name']} is bound with claim {names[0]} though claim "
                    f"{names[1]} had its device before"
                )

    def _doubles(self) -> Iterator[tuple[Raw, Raw]]:
        claims = self._model.all(CLAIMS)
        for mine in claims:
            for other in claims:
                if mine is not other and _devices(mine) & _devices(other):
                    yield mine, other

    def _user(self, claim: Raw) -> str:
        consumers = claim["status"].get("reservedFor") or [{"uid": ""}]
        return str(consumers[0]["uid"])

    def _is_before(self, one: Raw, other: Raw) -> bool:
        return self._allocated[one["metadata"]["uid"]] < self._allocated[other["metadata"]["uid"]]

    def _scheduler(self, claim: Raw) -> str:
        pod = self._pods.get(claim["metadata"]["ownerReferences"][0]["uid"])
        return str(pod["spec"]["schedulerName"]) if pod is not None else ""

    def twice(self) -> list[tuple[Raw, Raw]]:
        """Claims with one device, the later one first."""
        return [(mine, other) for mine, other in self._doubles() if self._is_before(other, mine)]

    def at_rest(self) -> Iterator[str]:
        yield from self.devices.at_rest()
        for late, early in self.twice():
            if self._scheduler(late) != NAME:
                names = [each["metadata"]["name"] for each in (late, early)]
                yield f"claims {names[0]} and {names[1]} have one device"
        nodes = [node["metadata"]["name"] for node in self._model.all(NODES)]
        for pod in self._model.all(PODS):
            if (
                pod["spec"].get("nodeName")
                or has_ended(pod)
                or pod["metadata"].get("deletionTimestamp")
            ):
                continue
            for name in nodes:
                if self.devices.certainly_fits(pod, name):
                    yield f"pod {pod['metadata']['name']} has no node though {name} has what it needs"


class Race(Simulation):
    def __init__(self, life: Life, keep_log: bool = True) -> None:
        super().__init__(life, keep_log)
        rng = random.Random(life.seed * 37 + 17)
        crashes = rng.choice((0.0, 0.0, 0.05, 0.2))
        self.kube: KubeScheduler | None = None
        if len(life.schedulers) == 1:
            self.kube = KubeScheduler(self.model, self.timeline, rng, crashes)
            self.timeline.call_at(0.5, self.kube.start)

    def new_audit(self) -> Audit:
        return RaceAudit(self.model, self.network)

    def _written(self, path: str, old: Raw | None, new: Raw | None) -> None:
        super()._written(path, old, new)
        if self.kube is not None:
            self.kube.written(path, old, new)

    def _heal(self) -> None:
        super()._heal()
        if self.kube is not None:
            self.kube.stop_crashing()

    def run(self) -> Outcome:
        outcome = super().run()
        assert isinstance(self.audit, RaceAudit)
        outcome.doubles = len(self.audit.twice())
        return outcome


def _devices(claim: Raw) -> set[Device]:
    allocation = claim.get("status", {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return {(each["driver"], each["pool"], each["device"]) for each in results}
