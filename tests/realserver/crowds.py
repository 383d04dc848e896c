"""Random clusters an API server accepts, and pods to be scheduled into them one by one."""

from __future__ import annotations

from typing import Any

from harness import choices
from harness.builders import PodBuilder
from harness.builders.storage import make_claim, make_class, make_csi_node, make_volume
from harness.choices import NODE_NAMES, Chooser, rarely, sometimes
from harness.strategies import NAMESPACES, ZONES
from holdfast.api.names import LIMIT_TO_ALLOCATABLE

Json = dict[str, Any]

PRIORITIES = {"least": -10, "less": 0, "more": 5, "most": 100, "polite": 100}
DRIVER = "disks.example.com"
_CLAIMS = 12


def priority_classes() -> list[Json]:
    """Pods may not name a number themselves."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "Never" if name == "polite" else "PreemptLowerPriority",
        }
        for name, value in PRIORITIES.items()
    ]


def nodes(choose: Chooser) -> list[Json]:
    made = []
    for name in NODE_NAMES[: choose((2, 3, 4, 5))]:
        node = choices.node_builder(choose, name)
        for taint in node.raw_spec.get("taints", []):
            taint.pop("timeAdded", None)
        if not rarely(choose):
            node.raw_spec.pop("taints", None)
            node.raw_spec.pop("unschedulable", None)
            node.allocatable(cpu=choose(("3", "6")), memory="6Gi", pods=choose((3, 110)))
            node.zone(choose(ZONES))
        raw = node.raw()
        raw["metadata"].get("annotations", {}).pop(LIMIT_TO_ALLOCATABLE, None)  # which kube ignores
        made.append(raw)
    return made


def storage(choose: Chooser) -> list[Json]:
    """Claims, most of them bound, some for one pod only, some to volumes in one zone; and limits."""
    made = [make_class("wait").raw(), make_class("now", DRIVER).immediate().raw()]
    for number in range(_CLAIMS):
        name = f"c{number}"
        mode = choose(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))
        claim = make_claim(name).size("1Gi").modes(mode).storage_class(choose(("wait", "now")))
        volume = make_volume(f"v{number}").size("1Gi").modes(mode).csi(DRIVER, f"handle{number}")
        volume.storage_class(claim.raw_spec["storageClassName"])
        if sometimes(choose):
            volume.on_nodes("topology.kubernetes.io/zone", choose(ZONES), choose(ZONES))
        if sometimes(choose):
            volume.label("topology.kubernetes.io/zone", choose(ZONES))
        if choose((True, True, True, False)):
            claim.bound_to(f"v{number}")
            volume.claimed_by(name)
            made.append(volume.raw())
        made.append(claim.raw())
    for name in NODE_NAMES:
        if sometimes(choose):
            csi_node = make_csi_node(name).driver(DRIVER, choose((0, 1, 2)))
            csi_node.raw_spec["drivers"][0]["topologyKeys"] = None
            made.append(csi_node.raw())
    return made


def namespace_labels(choose: Chooser) -> dict[str, Any]:
    """Of a namespace that is there already; None takes a label away."""
    return {"team": choose((None, "a", "b"))}


def others(choose: Chooser) -> list[Json]:
    """Services and controllers, by which pods are spread without their asking, and budgets."""
    made = [_service(f"s{i}", choose) for i in range(choose((0, 0, 1, 2)))]
    if sometimes(choose):
        made += [_controller(kind, choose) for kind in ("ReplicaSet", "StatefulSet")]
    return made + [_budget(f"b{i}", choose) for i in range(choose((0, 1, 2)))]


def _service(name: str, choose: Chooser) -> Json:
    selector = choose(({"app": "a"}, {"app": "b"}, {"tier": "a"}))
    spec = {"selector": selector, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(name, choose), "spec": spec}


def _controller(kind: str, choose: Chooser) -> Json:
    labels = {"app": choose(("a", "b"))}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec: Json = {"selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = "s0"
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "owner"}, "spec": spec}


def _budget(name: str, choose: Chooser) -> Json:
    """No controller updates its status, so it always allows what it does at first."""
    everybody = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    selector = choose(({"matchLabels": {"app": "a"}}, {"matchLabels": {"app": "b"}}, everybody, {}))
    status: Json = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    status["disruptionsAllowed"] = choose((0, 0, 1, 2))
    if rarely(choose):
        status["disruptedPods"] = {f"p{choose(range(1, 12))}": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(name, choose),
        "spec": {"minAvailable": 1, "selector": selector},
        "status": status,
    }


def _metadata(name: str, choose: Chooser) -> Json:
    return {"name": name, "namespace": choose(NAMESPACES)}


def random_pod(choose: Chooser, name: str) -> PodBuilder:
    made = choices.pod_builder(choose, name)
    if not sometimes(choose):
        for key in ("affinity", "nodeSelector", "topologySpreadConstraints"):
            made.raw_spec.pop(key, None)
    if choose((True, False)):
        made.requests({"cpu": choose(("500m", "1")), "memory": choose(("128Mi", "1Gi"))})
    made.spec(priorityClassName=choose(tuple(PRIORITIES)), schedulerName="default-scheduler")
    if sometimes(choose):
        made.namespace("default")
        for number in {choose(range(_CLAIMS + 1)) for _ in range(choose((1, 1, 2)))}:
            made.claim(f"c{number}")
    _acceptable(made)
    return made


def _acceptable(pod: PodBuilder) -> None:
    """Without what the server refuses, or accepts only with more objects around."""
    spec = pod.raw_spec
    for key in ("overhead", "priority"):
        spec.pop(key, None)
    if "resources" in spec:
        spec["resources"] = {"requests": {"cpu": "2500m", "memory": "2Gi"}}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        requests = container.get("resources", {}).get("requests", {})
        limits = {name: requests[name] for name in requests if "/" in name or "hugepages" in name}
        container["resources"] = {"requests": requests, "limits": limits}
        if "resources" in spec:
            container["resources"] = {}
    spec["tolerations"] = [
        toleration
        for toleration in spec.get("tolerations", ())
        if toleration.get("operator") not in ("Gt", "Lt")
        and (toleration.get("key") or toleration.get("operator") == "Exists")
    ]
