"""A model of kube-scheduler as far as it allocates devices.

It knows claims by a watch that lags, and counts its own allocations from the moment it decides on them.
It writes the finalizer, then allocation and consumer, each for the version it knows; on a conflict it
reads the claim again and gives up if it was allocated meanwhile. It does not look at other claims again
before it binds the pod. When it crashes it forgets what it has not written.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec.json import encode

from faults.claim_controller import FINALIZER
from faults.model import CLAIMS, PODS, SLICES, Model, Raw, Refused
from faults.process import Timeline

NAME = "kube-scheduler"
Device = tuple[str, str, str]
_MERGE = "application/merge-patch+json"


class KubeScheduler:
    def __init__(self, model: Model, timeline: Timeline, rng: random.Random, crashes: float) -> None:
        """`crashes` is the chance to crash at each write."""
        self._model = model
        self._timeline = timeline
        self._rng = rng
        self._crashes = crashes
        self._claims: dict[str, Raw] = {}
        """Claims as the watch has delivered them, by uid."""
        self._assumed: dict[str, set[Device]] = {}
        """Devices that it has decided on, by the uid of the claim."""
        self._delivered_at = 0.0
        self._life = 0
        self._not_before: dict[str, float] = {}

    def start(self) -> None:
        self._claims = {raw["metadata"]["uid"]: raw for raw in self._model.all(CLAIMS)}
        self._assumed.clear()
        self._life += 1
        self._cycle(self._life)

    def stop_crashing(self) -> None:
        self._crashes = 0.0

    def written(self, path: str, old: Raw | None, new: Raw | None) -> None:
        if path == CLAIMS:
            lag = self._rng.choice((0.002, self._rng.uniform(0.0, 0.4)))
            self._delivered_at = max(self._delivered_at, self._timeline.now + lag)
            self._timeline.call_at(self._delivered_at, self._deliver, self._life, old, new)

    def _deliver(self, life: int, old: Raw | None, new: Raw | None) -> None:
        if life != self._life:
            return
        some = new or old
        assert some is not None
        uid = some["metadata"]["uid"]
        if new is None:
            self._claims.pop(uid, None)
        else:
            self._claims[uid] = new

    def _cycle(self, life: int) -> None:
        if life != self._life:
            return
        for pod in self._model.all(PODS):
            if self._is_due(pod) and self._schedule(pod):
                break
        self._timeline.call_later(self._rng.uniform(0.01, 0.2), self._cycle, life)

    def _is_due(self, pod: Raw) -> bool:
        meta, spec = pod["metadata"], pod["spec"]
        if spec["schedulerName"] != NAME or spec.get("nodeName") or meta.get("deletionTimestamp"):
            return False
        return self._not_before.get(meta["uid"], 0.0) <= self._timeline.now

    def _schedule(self, pod: Raw) -> bool:
        named = [each["resourceClaimName"] for each in pod["status"].get("resourceClaimStatuses") or ()]
        claim = next((c for c in self._claims.values() if c["metadata"]["name"] in named), None)
        if claim is None or claim["metadata"]["uid"] in self._assumed:
            return False
        uid = claim["metadata"]["uid"]
        allocation = claim.get("status", {}).get("allocation")
        if allocation is None:
            allocation = self._allocation(claim)
            if allocation is None:
                return False
        self._assumed[uid] = set(_devices(allocation))
        self._not_before[pod["metadata"]["uid"]] = self._timeline.now + 5.0
        self._later(self._protect, pod, claim, allocation)
        return True

    def _allocation(self, claim: Raw) -> Raw | None:
        request = claim["spec"]["devices"]["requests"][0]
        count = request["exactly"].get("count", 1)
        taken = {device for devices in self._assumed.values() for device in devices}
        for each in self._claims.values():
            taken.update(_devices(each.get("status", {}).get("allocation") or {}))
        for made in self._model.all(SLICES):
            spec = made["spec"]
            driver, pool = spec["driver"], spec["pool"]["name"]
            free = [d["name"] for d in spec["devices"] if (driver, pool, d["name"]) not in taken]
            if len(free) >= count:
                results = [
                    {"request": request["name"], "driver": driver, "pool": pool, "device": name}
                    for name in free[:count]
                ]
                field = {"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}
                terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
                return {"devices": {"results": results}, "nodeSelector": terms}
        return None

    # The binding cycle, step by step

    def _later(self, step: Any, *args: Any) -> None:
        delay = self._rng.choice((0.002, self._rng.uniform(0.0, 0.1)))
        self._timeline.call_later(delay, self._step, self._life, step, *args)

    def _step(self, life: int, step: Any, *args: Any) -> None:
        if life != self._life:
            return
        if self._rng.random() < self._crashes:
            if self._rng.random() < 0.5:
                step(*args)  # and never hears of it
            self._life += 1
            self._timeline.call_later(self._rng.uniform(0.1, 5.0), self.start)
            return
        step(*args)

    def _protect(self, pod: Raw, claim: Raw, allocation: Raw) -> None:
        if FINALIZER in (claim["metadata"].get("finalizers") or ()):
            self._later(self._allocate, pod, claim, allocation)
            return
        self._patch(self._allocate, pod, claim, allocation, {"metadata": {"finalizers": [FINALIZER]}})

    def _allocate(self, pod: Raw, claim: Raw, allocation: Raw) -> None:
        meta = pod["metadata"]
        there = claim.get("status", {}).get("allocation")
        if there is not None and list(_devices(there)) != list(_devices(allocation)):
            self._give_up(pod, claim)
            return
        consumer = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
        status = {"allocation": there or allocation, "reservedFor": [consumer]}
        self._patch(self._bind, pod, claim, allocation, {"status": status}, "/status")

    def _patch(
        self, then: Any, pod: Raw, claim: Raw, allocation: Raw, patch: Raw, subresource: str = ""
    ) -> None:
        meta = claim["metadata"]
        version = {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"]}
        body = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
        prefix, kind = CLAIMS.rsplit("/", 1)
        url = f"{prefix}/namespaces/default/{kind}/{meta['name']}{subresource}"
        try:
            self._model.handle("PATCH", url, encode(body), _MERGE)
        except Refused:
            current = self._model.find(CLAIMS, meta["name"])
            if current is None or current["metadata"]["uid"] != meta["uid"]:
                self._give_up(pod, claim)
            else:
                self._later(self._protect, pod, current, allocation)
            return
        current = self._model.find(CLAIMS, meta["name"])
        assert current is not None
        self._later(then, pod, current, allocation)

    def _bind(self, pod: Raw, claim: Raw, allocation: Raw) -> None:
        [term] = allocation["nodeSelector"]["nodeSelectorTerms"]
        meta = pod["metadata"]
        metadata = {"name": meta["name"], "namespace": "default", "uid": meta["uid"]}
        body = {"metadata": metadata, "target": {"name": term["matchFields"][0]["values"][0]}}
        try:
            url = f"/api/v1/namespaces/default/pods/{meta['name']}/binding"
            self._model.handle("POST", url, encode(body), "application/json")
        except Refused:
            self._give_up(pod, claim)
            return
        self._timeline.call_later(2.0, self._assumed.pop, claim["metadata"]["uid"], None)

    def _give_up(self, pod: Raw, claim: Raw) -> None:
        self._assumed.pop(claim["metadata"]["uid"], None)
        self._not_before[pod["metadata"]["uid"]] = self._timeline.now + 1.0


def _devices(allocation: Raw) -> list[Device]:
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(each["driver"], each["pool"], each["device"]) for each in results]
