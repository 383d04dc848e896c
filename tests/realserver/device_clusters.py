"""Random small clusters with devices, device classes and claims, and the pods that come one after the
other.

All names of a cluster begin with its prefix, and its pods can only go to its own nodes, so that several
clusters live on one server. Pools that spoil claims for nodes of others (incomplete or invalid ones of
all nodes) are only in clusters that are `alone`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.builders import make_node
from harness.choices import Chooser, rarely, sometimes

Json = dict[str, Any]

API = "resource.k8s.io/v1"
NAMESPACE = "devices"
HOST, ZONE, CLUSTER = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "cluster"
ADMIN_LABEL = "resource.kubernetes.io/admin-access"
RACK = "example.com/rack"
_NODE_COUNTS = (2, 2, 3, 4, 5)
_EFFECTS = ("NoSchedule", "NoSchedule", "NoExecute", "None")
_SIZES = ("10Gi", "20Gi", "40Gi")
_POLICIES: tuple[Json | None, ...] = (
    None,
    {"default": "5Gi", "validValues": ["5Gi", "8Gi", "20Gi"]},
    {"default": "4Gi", "validRange": {"min": "2Gi", "max": "16Gi", "step": "2Gi"}},
    {"default": "1Gi", "validRange": {"min": "1Gi"}},
)
_STATES = ("complete",) * 6 + ("split", "split", "counted", "counted", "per device")
_BROKEN = ("incomplete", "newer", "newer elsewhere", "duplicate", "unknown counter")


@dataclass
class PodOfCluster:
    raw: Json
    templates: dict[str, Json] = field(default_factory=dict)
    """The specs of claims that are generated for the pod, by the name the pod has for them."""


@dataclass
class DeviceCluster:
    prefix: str
    alone: bool
    objects: list[Json] = field(default_factory=list)
    pods: list[PodOfCluster] = field(default_factory=list)


def random_cluster(choose: Chooser, prefix: str) -> DeviceCluster:
    return _Maker(choose, prefix).cluster()


class _Maker:
    def __init__(self, choose: Chooser, prefix: str) -> None:
        self.choose = choose
        self.prefix = prefix
        self.alone = choose((False,) * 5 + (True,))
        self.drivers = tuple(f"{prefix}-{letter}.example.com" for letter in "ab")
        self.nodes = [f"{prefix}-n{i}" for i in range(choose(_NODE_COUNTS))]
        self.classes = [f"{prefix}-{name}" for name in ("any", "a", "b")]
        self.resource = f"{prefix}.example.com/gpu"
        self.has_plugin = False
        """Whether a node has the extended resource itself."""
        self.slices: list[Json] = []

    def cluster(self) -> DeviceCluster:
        choose = self.choose
        made = DeviceCluster(self.prefix, self.alone)
        for i, name in enumerate(self.nodes):
            node = make_node(name).allocatable(cpu="16", memory="64Gi", pods=110)
            node.label(CLUSTER, self.prefix).zone(f"z{i % 2}")
            if rarely(choose):
                node.allocatable({self.resource: "2"})
                self.has_plugin = True
            made.objects.append(node.raw())
        for driver in self.drivers[: choose((1, 1, 2))]:
            for number in range(choose((1, 1, 2, 3))):
                self._pool(driver, number)
        made.objects += self.slices
        made.objects += self._device_classes()
        shared = [f"{self.prefix}-shared-{i}" for i in range(choose((0, 1, 2)))]
        for name in shared:
            made.objects.append(claim(name, self._claim_spec()))
        for number in range(choose((1, 2, 2, 3, 4))):
            made.pods.append(self._pod(number, shared))
        return made

    # Slices

    def _pool(self, driver: str, number: int) -> None:
        choose = self.choose
        everywhere: Json = {"allNodes": True}
        zone = {"key": ZONE, "operator": "In", "values": [choose(("z0", "z1"))]}
        ours = {"key": CLUSTER, "operator": "In", "values": [self.prefix]}
        selector: Json = {"nodeSelector": _terms(ours, *([zone] if sometimes(choose) else []))}
        at = choose((0, 0, 0, 1, 1, 2))
        broken = choose((False,) * 4 + (True,)) and (self.alone or at != 2)
        state = choose(_BROKEN if broken else _STATES)
        nodes = self.nodes if at == 0 else [""]
        for node in nodes:
            pool = f"{node or self.prefix}-{number}"
            where = {"nodeName": node} if at == 0 else selector if at == 1 else everywhere
            self._pool_of(driver, pool, where, state)

    def _pool_of(self, driver: str, pool: str, where: Json, state: str) -> None:
        choose = self.choose
        generation = choose((1, 2))
        split = state in ("split", "duplicate")
        counted = state in ("counted", "unknown counter")
        count = 2 if split or counted or state == "incomplete" else 1

        def add(devices: list[Json], where: Json = where, generation: int = generation) -> None:
            spec: Json = {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
                **where,
            }
            self._slice({**spec, "devices": devices})

        devices = self._devices(driver, counted)
        if state == "per device":
            for each in devices:
                each |= choose(({"allNodes": True}, {"nodeName": choose(self.nodes)}))
            add(devices, {"perDeviceNodeSelection": True})
            return
        add(devices)
        if split:
            offset = 0 if state == "duplicate" else len(devices)
            other = {"nodeName": choose(self.nodes)} if rarely(choose) and self.alone else where
            add(self._devices(driver, False, offset), other)
        if state == "newer":
            add(self._devices(driver, False), generation=generation + 1)
        if state == "newer elsewhere":
            add(
                self._devices(driver, False),
                {"nodeName": choose(self.nodes)},
                generation=generation + 1,
            )
        if counted:
            name = "other" if state == "unknown counter" else "shared"
            counters = {"slots": {"value": choose(("2", "3", "5"))}, "memory": {"value": "50Gi"}}
            pool_of = {"name": pool, "generation": generation, "resourceSliceCount": count}
            sets = [{"name": name, "counters": counters}]
            self._slice({"driver": driver, "pool": pool_of, **where, "sharedCounters": sets})

    def _slice(self, spec: Json) -> None:
        name = f"{self.prefix}-{len(self.slices):02}"
        self.slices.append(
            {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
        )

    def _devices(self, driver: str, counted: bool, offset: int = 0) -> list[Json]:
        return [
            self._device(driver, f"d{i}", counted)
            for i in range(offset, offset + self.choose((1, 2, 3, 4)))
        ]

    def _device(self, driver: str, name: str, counted: bool) -> Json:
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
        device: Json = {"name": name, "attributes": attributes}
        if choose((True, True, True, False)):
            device["capacity"] = {"memory": {"value": choose(_SIZES)}}
        if rarely(choose):
            device["taints"] = [
                {
                    "key": choose(("health", "load")),
                    "value": choose(("bad", "high")),
                    "effect": choose(_EFFECTS),
                }
            ]
        if sometimes(choose):
            device["allowMultipleAllocations"] = True
            policy = choose(_POLICIES)
            if policy is not None and "capacity" in device:
                device["capacity"]["memory"] = {"value": "20Gi", "requestPolicy": policy}
        if counted and choose((True, True, False)):
            used = {"slots": {"value": choose(("1", "2"))}}
            if sometimes(choose):
                used["memory"] = {"value": choose(_SIZES)}
            device["consumesCounters"] = [{"counterSet": "shared", "counters": used}]
        return device

    # Classes and claims

    def _device_classes(self) -> list[Json]:
        a, b = self.drivers
        driver = f"(device.driver == '{a}' || device.driver == '{b}')"
        anything = ["true"] if self.alone and sometimes(self.choose) else [driver]
        of_a = [f"device.driver == '{a}'"]
        of_b = [f"device.driver == '{b}'"]
        if sometimes(self.choose):
            of_a.append(self._selector(a))
        found = []
        for name, selectors in zip(self.classes, (anything, of_a, of_b), strict=True):
            spec: Json = {"selectors": [_cel(each) for each in selectors]}
            if rarely(self.choose):
                opaque = {"driver": a, "parameters": {"of": name}}
                spec["config"] = [{"opaque": opaque}]
            if name.endswith("-any"):
                spec["extendedResourceName"] = self.resource
            metadata = {"name": name}
            found.append({"apiVersion": API, "kind": "DeviceClass", "metadata": metadata, "spec": spec})
        return found

    def _selector(self, driver: str) -> str:
        named = f"device.attributes['{driver}']"
        memory = f"device.capacity['{driver}'].memory"
        guard = f"device.driver == '{driver}' && "
        return guard + self.choose(
            (
                f"{named}.model == 'x'",
                f"'model' in {named} && {named}.model == 'y'",
                f"{named}.numa == 0",
                f"{named}.?numa.orValue(1) > 0",
                f"'memory' in device.capacity['{driver}'] && {memory}.compareTo(quantity('20Gi')) >= 0",
                f"'version' in {named} && {named}.version.isGreaterThan(semver('1.5.0'))",
                f"'ready' in {named} && {named}.ready",
                "device.attributes['example.com'].?rack.orValue('') == 'r0'",
                f"{named}.model.matches('^[xy]$')",
                f"{memory}.isLessThan(quantity('40Gi'))" if rarely(self.choose) else "true",
                "!device.allowMultipleAllocations",
            )
        )

    def _demand(self, exact: bool) -> Json:
        choose = self.choose
        missing = choose((False,) * 40 + (True,))
        known = choose(self.classes[:2] * 3 + self.classes)
        demand: Json = {"deviceClassName": f"{self.prefix}-none" if missing else known}
        if choose((False,) * 5 + (True,)):
            demand["allocationMode"] = "All"
        else:
            demand |= {"allocationMode": "ExactCount", "count": choose((1, 1, 1, 2, 2, 3))}
        if sometimes(choose):
            demand["selectors"] = [_cel(self._selector(choose(self.drivers[:1] * 3 + self.drivers)))]
        if exact and rarely(choose):
            demand["adminAccess"] = True
        if rarely(choose):
            demand["tolerations"] = [
                choose(
                    (
                        {"operator": "Exists"},
                        {"key": "health", "operator": "Exists", "effect": "NoSchedule"},
                        {"key": "health", "operator": "Equal", "value": "bad"},
                    )
                )
            ]
        if rarely(choose):
            asked = choose(("1Gi", "5Gi", "7Gi", "12Gi", "40Gi"))
            demand["capacity"] = {"requests": {"memory": asked}}
        return demand

    def _claim_spec(self) -> Json:
        choose = self.choose
        requests: list[Json] = []
        names: list[str] = []
        for i in range(choose((1, 1, 1, 2, 2, 3))):
            name = f"r{i}"
            if choose((False, False, False, True)):
                parts = [{"name": f"s{j}", **self._demand(False)} for j in range(choose((1, 2, 2, 3)))]
                requests.append({"name": name, "firstAvailable": parts})
                names += [name, *(f"{name}/{each['name']}" for each in parts)]
            else:
                requests.append({"name": name, "exactly": self._demand(True)})
                names.append(name)
        devices: Json = {"requests": requests}
        if sometimes(choose):
            devices["constraints"] = [self._constraint(names) for _ in range(choose((1, 1, 2)))]
        if rarely(choose):
            opaque = {"driver": self.drivers[0], "parameters": {"of": "claim"}}
            config: Json = {"opaque": opaque}
            if sometimes(choose):
                config["requests"] = [choose(names)]
            devices["config"] = [config]
        return {"devices": devices}

    def _constraint(self, names: list[str]) -> Json:
        choose = self.choose
        a, b = self.drivers
        attribute = choose((f"{a}/numa", f"{a}/numa", f"{a}/model", RACK, RACK, f"{b}/numa"))
        made: Json = {choose(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
        if sometimes(choose):
            wanted = {choose(names), choose(names)}
            made["requests"] = sorted(n for n in wanted if n.partition("/")[0] not in wanted - {n})
        return made

    # Pods

    def _pod(self, number: int, shared: list[str]) -> PodOfCluster:
        choose = self.choose
        name = f"{self.prefix}-p{number}"
        container: Json = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
        spec: Json = {"containers": [container], "schedulerName": "default-scheduler"}
        spec["nodeSelector"] = {CLUSTER: self.prefix}
        pinned = choose((True, True, True, False))
        if pinned:
            spec["nodeSelector"][HOST] = choose(self.nodes)
        made = PodOfCluster({"apiVersion": "v1", "kind": "Pod", "spec": spec})
        made.raw["metadata"] = {"name": name, "namespace": NAMESPACE, "labels": {CLUSTER: self.prefix}}
        entries: list[Json] = []
        for i in range(choose((0, 1, 1, 1, 1, 2))):
            if shared and sometimes(choose):
                entries.append({"name": f"c{i}", "resourceClaimName": choose(shared)})
            else:
                entries.append({"name": f"c{i}", "resourceClaimTemplateName": "template"})
                made.templates[f"c{i}"] = self._claim_spec()
        if entries:
            spec["resourceClaims"] = entries
        if not entries or (rarely(choose) and not self.has_plugin):
            # kube-scheduler 1.37 cannot bind a pod with claims to a node that has the resource itself.
            self._extended(spec)
        return made

    def _extended(self, spec: Json) -> None:
        choose = self.choose
        implicit = f"deviceclass.resource.kubernetes.io/{self.classes[1]}"
        resource = choose((self.resource, self.resource, implicit))
        amount = choose(("1", "1", "2", "3"))
        resources = spec["containers"][0]["resources"]
        resources["requests"][resource] = amount
        resources["limits"] = {resource: amount}
        if sometimes(choose):
            amount = choose(("1", "2", "4"))
            each = {"requests": {resource: amount}, "limits": {resource: amount}}
            init: Json = {"name": "i", "image": "i", "resources": each}
            if sometimes(choose):
                init["restartPolicy"] = "Always"
            spec["initContainers"] = [init]


def claim(name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def generated(pod: Json, entry: str, spec: Json) -> Json:
    """The claim that a controller makes of a template for a pod."""
    meta = pod["metadata"]
    made = claim(f"{meta['name']}-{entry}", spec)
    made["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": entry}
    made["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    return made


def _terms(*expressions: Json) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}
