"""Random ResourceSlices: pools that are complete, in parts, outdated or invalid, of one node or of
several, with devices that have taints, counters, and capacity to share."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from harness.choices import Chooser, rarely, sometimes

Json = dict[str, Any]

API = "resource.k8s.io/v1"
ZONE, CLUSTER = "topology.kubernetes.io/zone", "cluster"
RACK = "example.com/rack"
TAINTS = ("health", "load")
_EFFECTS = ("NoSchedule", "NoSchedule", "NoExecute", "None")
_SIZES = ("10Gi", "20Gi", "40Gi")
_MEMORY_POLICIES: tuple[Json | None, ...] = (
    None,
    {"default": "5Gi", "validValues": ["5Gi", "8Gi", "20Gi"]},
    {"default": "4Gi", "validRange": {"min": "2Gi", "max": "16Gi", "step": "2Gi"}},
    {"default": "1Gi", "validRange": {"min": "1Gi"}},
)
_CORE_POLICIES: tuple[Json | None, ...] = (
    None,
    {"default": "1", "validRange": {"min": "1", "step": "1"}},
    {"default": "2", "validValues": ["2", "4"]},
)
_STATES = (
    ("complete",) * 6
    + ("split", "split", "counted", "counted", "counted in parts")
    + (
        "per device",
        "counted per device",
    )
)
_BROKEN = (
    "incomplete",
    "newer",
    "newer elsewhere",
    "duplicate",
    "unknown counter",
    "duplicate counters",
)


class PoolMaker:
    """The slices of one cluster."""

    def __init__(self, choose: Chooser, prefix: str, nodes: Sequence[str], alone: bool) -> None:
        self.choose = choose
        self.prefix = prefix
        self.nodes = nodes
        self.alone = alone
        self.slices: list[Json] = []
        self._shareable: dict[tuple[str, str, str], bool] = {}
        """Whether a device allows several allocations. That does not change: if it does, kube-scheduler
        1.37 gives a device of which there are shares to another claim."""

    def pool(self, driver: str, number: int) -> None:
        """A pool of all nodes of the cluster, or one for each of them."""
        choose = self.choose
        zone = {"key": ZONE, "operator": "In", "values": [choose(("z0", "z1"))]}
        ours = {"key": CLUSTER, "operator": "In", "values": [self.prefix]}
        selector: Json = {"nodeSelector": _terms(ours, *([zone] if sometimes(choose) else []))}
        at = choose((0, 0, 0, 1, 1, 2))
        broken = choose((False,) * 4 + (True,)) and (self.alone or at != 2)
        state = choose(_BROKEN if broken else _STATES)
        for node in self.nodes if at == 0 else [""]:
            where = {"nodeName": node} if at == 0 else selector if at == 1 else {"allNodes": True}
            self._pool_of(driver, f"{node or self.prefix}-{number}", where, state)

    def _pool_of(self, driver: str, name: str, where: Json, state: str) -> None:
        choose = self.choose
        generation = choose((1, 2))
        counted = "counter" in state or "counted" in state
        parts = 2 if state in ("split", "duplicate", "incomplete", "counted in parts") else 1
        count = parts + counted + (state == "duplicate counters")

        def add(content: Json, where: Json = where, generation: int = generation) -> None:
            pool = {"name": name, "generation": generation, "resourceSliceCount": count}
            self._slice({"driver": driver, "pool": pool, **where, **content})

        devices = self.devices(driver, name, counted)
        if "per device" in state:
            for each in devices:
                each |= choose(({"allNodes": True}, {"nodeName": choose(self.nodes)}))
            where = {"perDeviceNodeSelection": True}
        add({"devices": devices}, where)
        if parts == 2 and state != "incomplete":
            offset = 0 if state == "duplicate" else len(devices)
            other = {"nodeName": choose(self.nodes)} if rarely(choose) and self.alone else where
            add({"devices": self.devices(driver, name, counted, offset)}, other)
        if state == "newer":
            add({"devices": self.devices(driver, name, False)}, generation=generation + 1)
        if state == "newer elsewhere":
            elsewhere = {"nodeName": choose(self.nodes)}
            add({"devices": self.devices(driver, name, False)}, elsewhere, generation + 1)
        if counted:
            sets = self._counter_sets("other" if state == "unknown counter" else "shared")
            for _ in range(1 + (state == "duplicate counters")):
                add({"sharedCounters": sets}, where)

    def _counter_sets(self, name: str) -> list[Json]:
        choose = self.choose
        shared = {"slots": {"value": choose(("2", "3", "5"))}, "memory": {"value": "50Gi"}}
        links = {"links": {"value": choose(("1", "2", "500m"))}}
        return [{"name": name, "counters": shared}, {"name": "links", "counters": links}]

    def _slice(self, spec: Json) -> None:
        name = f"{self.prefix}-{len(self.slices):02}"
        self.slices.append(
            {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
        )

    def republished(self) -> Json | None:
        """A slice as its driver publishes it next: with other devices, perhaps of the next generation.
        None if the chosen one has no devices of its own."""
        choose = self.choose
        changed = copy.deepcopy(choose(self.slices))
        spec = changed["spec"]
        if "devices" not in spec or spec.get("perDeviceNodeSelection"):
            return None
        counted = any("consumesCounters" in each for each in spec["devices"])
        first = min((int(each["name"][1:]) for each in spec["devices"]), default=0)
        spec["devices"] = self.devices(spec["driver"], spec["pool"]["name"], counted, first)
        if spec["pool"]["resourceSliceCount"] == 1 or self.alone or spec.get("nodeName"):
            spec["pool"]["generation"] += choose((0, 0, 1))
        self.slices = [changed if changed["metadata"] == s["metadata"] else s for s in self.slices]
        return changed

    # Devices

    def devices(self, driver: str, pool: str, counted: bool, offset: int = 0) -> list[Json]:
        return [
            self._device(driver, pool, f"d{i}", counted)
            for i in range(offset, offset + self.choose((1, 2, 3, 4, 5, 6)))
        ]

    def _device(self, driver: str, pool: str, name: str, counted: bool) -> Json:
        choose = self.choose
        attributes: Json = {"numa": {"int": choose((0, 1))}}
        if choose((True,) * 12 + (False,)):
            attributes["model"] = {"string": choose(("x", "y"))}
        if sometimes(choose):
            attributes["version"] = {"version": choose(("1.2.0", "2.0.0", "2.1.0-rc.1"))}
        if choose((True, True, False)):
            attributes[RACK] = choose(({"string": "r0"}, {"string": "r1"}, {"int": 1}))
        if sometimes(choose):
            attributes["ready"] = {"bool": choose((True, False))}
        if rarely(choose):
            attributes[f"{driver}/numa"] = attributes.pop("numa")  # the same attribute, spelt in full
        device: Json = {"name": name, "attributes": attributes}
        if choose((True, True, True, False)):
            device["capacity"] = {"memory": {"value": choose(_SIZES)}}
            if sometimes(choose):
                device["capacity"]["cores"] = {"value": choose(("2", "4", "2500m"))}
        if choose((False,) * 7 + (True,)):
            device["taints"] = [self.taint() for _ in range(choose((1, 1, 2)))]
            if device["taints"][0] == device["taints"][-1]:
                device["taints"] = device["taints"][:1]
        if self._shareable.setdefault((driver, pool, name), sometimes(choose)):
            device["allowMultipleAllocations"] = True
            capacity = device.get("capacity", {})
            if "memory" in capacity and (policy := choose(_MEMORY_POLICIES)) is not None:
                capacity["memory"] = {"value": "20Gi", "requestPolicy": policy}
            if "cores" in capacity and (policy := choose(_CORE_POLICIES)) is not None:
                capacity["cores"] = {"value": "4", "requestPolicy": policy}
        if counted and choose((True, True, False)):
            used = {"slots": {"value": choose(("1", "2"))}}
            if sometimes(choose):
                used["memory"] = {"value": choose(_SIZES)}
            device["consumesCounters"] = [{"counterSet": "shared", "counters": used}]
            if sometimes(choose):
                links = {"links": {"value": choose(("1", "250m"))}}
                device["consumesCounters"].append({"counterSet": "links", "counters": links})
        return device

    def taint(self) -> Json:
        choose = self.choose
        return {
            "key": choose(TAINTS),
            "value": choose(("bad", "high")),
            "effect": choose(_EFFECTS),
        }

    def rule(self, number: int, drivers: Sequence[str]) -> Json:
        """A DeviceTaintRule for devices of the cluster; without a selector only where it is alone."""
        choose = self.choose
        chosen = choose(self.slices)["spec"]
        selector: Json = {"driver": choose(drivers)}
        if choose((True, False)):
            selector = {"driver": chosen["driver"], "pool": chosen["pool"]["name"]}
            if chosen.get("devices") and choose((True, True, False)):
                selector["device"] = choose(chosen["devices"])["name"]
        spec: Json = {"taint": self.taint(), "deviceSelector": selector}
        if self.alone and rarely(choose):
            del spec["deviceSelector"]
        meta = {"name": f"{self.prefix}-rule-{number}"}
        return {"apiVersion": API, "kind": "DeviceTaintRule", "metadata": meta, "spec": spec}


def _terms(*expressions: Json) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
