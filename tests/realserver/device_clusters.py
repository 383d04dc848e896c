"""Random small clusters with devices, device classes and claims, the pods that come one after the
other, and what changes between them.

All names of a cluster begin with its prefix, and its pods can only go to its own nodes, so that several
clusters live on one server. Pools that spoil claims for nodes of others (incomplete or invalid ones of
all nodes) are only in clusters that are `alone`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.builders import make_node
from harness.choices import Chooser, rarely, sometimes
from realserver.device_demands import DemandMaker, cel
from realserver.device_pools import API, CLUSTER, ZONE, PoolMaker

Json = dict[str, Any]

NAMESPACE = "devices"
HOST = "kubernetes.io/hostname"
ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_NODE_COUNTS = (2, 2, 3, 4, 5)


@dataclass
class ClusterChange:
    """`end` is of a pod, with its claims."""

    verb: Literal["put", "delete", "end"]
    raw: Json


@dataclass
class PodOfCluster:
    raw: Json
    templates: dict[str, Json] = field(default_factory=dict)
    """The specs of claims that are generated for the pod, by the name the pod has for them."""
    before: list[ClusterChange] = field(default_factory=list)
    """What changes before it comes."""


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
        self.alone = choose((False,) * 9 + (True,))
        self.drivers = tuple(f"{prefix}-{letter}.example.com" for letter in "ab")
        self.nodes = [f"{prefix}-n{i}" for i in range(choose(_NODE_COUNTS))]
        self.classes = [f"{prefix}-{name}" for name in ("any", "a", "b")]
        self.resource = f"{prefix}.example.com/gpu"
        self.has_plugin = False
        """Whether a node has the extended resource itself."""
        self.pools = PoolMaker(choose, prefix, self.nodes, self.alone)
        self.demands = DemandMaker(choose, self.drivers, self.classes)
        self.rules: list[Json] = []
        self.allocated: list[Json] = []

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
                self.pools.pool(driver, number)
        made.objects += self.pools.slices
        made.objects += self._device_classes()
        for _ in range(choose((0, 0, 0, 1, 2))):
            made.objects.append(self._rule())
        shared = [f"{self.prefix}-shared-{i}" for i in range(choose((0, 1, 2)))]
        for name in shared:
            made.objects.append(claim(name, self.demands.spec()))
        for i in range(choose((0, 0, 1, 2))):
            if (allocated := self._allocated(f"{self.prefix}-allocated-{i}")) is not None:
                made.objects.append(allocated)
                shared.append(allocated["metadata"]["name"])
        for number in range(choose((2, 3, 4, 5, 6))):
            pod = self._pod(number, shared)
            if number and sometimes(choose):
                pod.before = self._changes(made.pods)
            made.pods.append(pod)
        return made

    def _rule(self) -> Json:
        rule = self.pools.rule(len(self.rules), self.drivers)
        self.rules.append(rule)
        return rule

    def _changes(self, pods: list[PodOfCluster]) -> list[ClusterChange]:
        choose = self.choose
        match choose(("end", "end", "slice", "slice", "rule", "no rule", "node", "class")):
            case "end":
                return [ClusterChange("end", choose(pods).raw)]
            case "slice":
                changed = self.pools.republished()
                return [ClusterChange("put", changed)] if changed is not None else []
            case "rule":
                return [ClusterChange("put", self._rule())]
            case "no rule":
                return [ClusterChange("delete", self.rules.pop(0))] if self.rules else []
            case "node":
                labels = {ZONE: choose(("z0", "z1"))}
                meta = {"name": choose(self.nodes), "labels": labels}
                return [ClusterChange("put", {"apiVersion": "v1", "kind": "Node", "metadata": meta})]
            case _:
                return [ClusterChange("put", choose(self._device_classes()))]

    # Classes and claims

    def _device_classes(self) -> list[Json]:
        a, b = self.drivers
        driver = f"(device.driver == '{a}' || device.driver == '{b}')"
        anything = ["true"] if self.alone and sometimes(self.choose) else [driver]
        of_a = [f"device.driver == '{a}'"]
        of_b = [f"device.driver == '{b}'"]
        if sometimes(self.choose):
            of_a.append(self.demands.selector(a))
        found = []
        for name, selectors in zip(self.classes, (anything, of_a, of_b), strict=True):
            spec: Json = {"selectors": [cel(each) for each in selectors]}
            if rarely(self.choose):
                opaque = {"driver": a, "parameters": {"of": name}}
                spec["config"] = [{"opaque": opaque}]
            if name.endswith("-any"):
                spec["extendedResourceName"] = self.resource
            metadata = {"name": name}
            found.append({"apiVersion": API, "kind": "DeviceClass", "metadata": metadata, "spec": spec})
        return found

    def _allocated(self, name: str) -> Json | None:
        """A claim that has a device from the start, with or without a consumer that nobody knows."""
        choose = self.choose
        chosen = choose(self.pools.slices)["spec"]
        if not chosen.get("devices"):
            return None
        device = choose(chosen["devices"])
        is_shared = device.get("allowMultipleAllocations", False)
        of = {"driver": chosen["driver"], "pool": chosen["pool"]["name"], "device": device["name"]}
        if of in self.allocated and not is_shared:
            return None
        self.allocated.append(of)
        result: Json = {"request": "r0", **of}
        if is_shared:
            result["shareID"] = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
            if "capacity" in device:
                result["consumedCapacity"] = {"memory": choose(("1Gi", "4Gi"))}
        node = chosen.get("nodeName") or device.get("nodeName") or choose(("", *self.nodes))
        allocation: Json = {"devices": {"results": [result]}}
        if node:
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            allocation["nodeSelector"] = {"nodeSelectorTerms": [term]}
        request = {"name": "r0", "exactly": {"deviceClassName": self.classes[0]}}
        made = claim(name, {"devices": {"requests": [request]}})
        # kube-scheduler 1.37 cannot use an allocated claim without a time: it would set one, which the
        # server refuses.
        made["status"] = {"allocation": {**allocation, "allocationTimestamp": "2026-01-01T00:00:00Z"}}
        if rarely(choose):
            made["status"]["reservedFor"] = [{"resource": "pods", "name": "x", "uid": f"{name}-x"}]
        return made

    # Pods

    def _pod(self, number: int, shared: list[str]) -> PodOfCluster:
        choose = self.choose
        name = f"{self.prefix}-p{number}"
        container: Json = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
        spec: Json = {"containers": [container], "schedulerName": "default-scheduler"}
        spec["nodeSelector"] = {CLUSTER: self.prefix}
        if choose((True, True, True, False)):
            spec["nodeSelector"][HOST] = choose(self.nodes)
        made = PodOfCluster({"apiVersion": "v1", "kind": "Pod", "spec": spec})
        made.raw["metadata"] = {"name": name, "namespace": NAMESPACE, "labels": {CLUSTER: self.prefix}}
        entries: list[Json] = []
        # kube-scheduler 1.37 cannot bind a pod that names a claim twice: it reserves it twice.
        left = list(shared)
        for i in range(choose((0, 1, 1, 1, 1, 2, 2))):
            if left and sometimes(choose):
                entries.append({"name": f"c{i}", "resourceClaimName": choose(left)})
                left.remove(entries[-1]["resourceClaimName"])
            else:
                entries.append({"name": f"c{i}", "resourceClaimTemplateName": "template"})
                made.templates[f"c{i}"] = self.demands.spec()
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
        _request(spec["containers"][0], resource, choose(("1", "1", "2", "3")))
        if rarely(choose):
            spec["containers"].append({"name": "d", "image": "i"})
            _request(spec["containers"][1], choose((self.resource, implicit)), "1")
        if sometimes(choose):
            init: Json = {"name": "i", "image": "i"}
            _request(init, resource, choose(("1", "2", "4")))
            if sometimes(choose):
                init["restartPolicy"] = "Always"
            spec["initContainers"] = [init]


def _request(container: Json, resource: str, amount: str) -> None:
    resources = container.setdefault("resources", {})
    resources.setdefault("requests", {})[resource] = amount
    resources["limits"] = {resource: amount}


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
