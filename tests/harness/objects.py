"""Kubernetes objects as a user writes them, for tests that give them to a scheduler or to a server.

`harness.builders` makes typed ones fluently, for tests that are about single fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Raw = dict[str, Any]
Amount = int | str

HOLDFAST = "scheduling.koordinator.sh/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"
SIGS = "scheduling.sigs.k8s.io/v1alpha1"
WORKLOAD = "scheduling.k8s.io/v1beta1"
GROUP = "scheduling.k8s.io/group-name"
SIM = "sim.holdfast.io/"

PREFIX = "scheduling.koordinator.sh/"
TEMPLATE = f"{PREFIX}reservation-template"
REQUIREMENT = f"{PREFIX}new-reservation-requirement"
ERROR = f"{PREFIX}reservation-provision-error"
ID = f"{PREFIX}reservation-id"

READY = [{"type": "Ready", "status": "True"}]
_REPLICA_SET = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "rs",
    "controller": True,
}

_TIMES = ("at", "runs_for", "delete_at", "stops_in")
"""Annotations of scenarios: when something happens to a pod."""


def node(name: str, cpu: Amount = "16", memory: str = "32G", **more: Any) -> Raw:
    """`labels`, `annotations`, `metadata` and `allocatable` are added; the rest is its spec."""
    labels = {"kubernetes.io/hostname": name, **more.pop("labels", {})}
    metadata = {"name": name, "labels": labels, **_metadata(more)}
    allocatable = {"cpu": str(cpu), "memory": memory, "pods": "110", **more.pop("allocatable", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": more,
        "status": {"allocatable": allocatable},
    }


def container(requests: Mapping[str, Amount], ports: Sequence[int] = (), **more: Any) -> Raw:
    made: Raw = {"name": "main", "image": "app", "resources": {"requests": dict(requests)}, **more}
    if ports:
        made["ports"] = [{"containerPort": port, "hostPort": port} for port in ports]
    return made


def pod_spec(requests: Mapping[str, Amount], ports: Sequence[int] = (), **more: Any) -> Raw:
    return {"containers": [container(requests, ports)], **more}


def pod(name: str, cpu: Amount = "1", app: str = "", **more: Any) -> Raw:
    """One container that requests `cpu` and `memory`, or `requests`, and has `ports` of the host.

    `group` is its PodGroup; `at`, `runs_for`, `delete_at` and `stops_in` are a scenario's; `labels`,
    `annotations`, `uid` and `metadata` are its metadata; the rest is its spec.
    """
    requests = _requests(cpu, more)
    annotations = {
        SIM + key.replace("_", "-"): str(more.pop(key)) for key in _TIMES if more.get(key) is not None
    }
    if group := more.pop("group", ""):
        annotations[GROUP] = group
    metadata: Raw = {"name": name}
    if app:
        metadata["labels"] = {"app": app}
    if annotations or "annotations" in more:
        metadata["annotations"] = {**annotations, **more.pop("annotations", {})}
    metadata |= _metadata(more)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(requests, **more)}


def own_pod(name: str, cpu: Amount = "100m", **more: Any) -> Raw:
    """A pod for holdfast-scheduler, where another scheduler may run too."""
    metadata = {"namespace": "default", **more.pop("metadata", {})}
    return pod(name, cpu, metadata=metadata, **{"schedulerName": "holdfast-scheduler", **more})


def reservation(name: str, cpu: Amount = "4", app: str = "a", **more: Any) -> Raw:
    """For pods labelled with the app, unless `owners` says otherwise.

    `pod` is the spec of its template, `template` all of it; the rest but metadata is its own spec.
    """
    requests = _requests(cpu, more)
    template = more.pop("template", None) or {
        "metadata": {"labels": {"app": app}},
        "spec": pod_spec(requests, **more.pop("pod", {})),
    }
    owners = more.pop("owners", [{"labelSelector": {"matchLabels": {"app": app}}}])
    annotations = {SIM + "at": more.pop("at")} if "at" in more else {}
    if annotations or "annotations" in more:
        more["annotations"] = {**annotations, **more.get("annotations", {})}
    return {
        "apiVersion": HOLDFAST,
        "kind": "Reservation",
        "metadata": {"name": name, **_metadata(more)},
        "spec": {"template": template, "owners": owners, **more},
    }


def config_map(name: str, **metadata: Any) -> Raw:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def workload(api_version: str, kind: str, name: str, app: str, **spec: Any) -> Raw:
    container = {
        "name": "main",
        "image": "i",
        "env": [{"name": "PASSWORD", "value": "secret"}],
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}},
    }
    template = {
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [container], "nodeSelector": {"disk": "ssd"}, **spec.pop("pod", {})},
    }
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template, **spec},
    }


def deployment(name: str, app: str, replicas: int) -> Raw:
    selector = {"matchLabels": {"app": app}}
    return workload("apps/v1", "Deployment", name, app, selector=selector, replicas=replicas)


def replica(name: str, cpu: Amount = "1", **more: Any) -> Raw:
    """A pod of the ReplicaSet `web`."""
    return pod(name, cpu, "web", metadata={"ownerReferences": [_REPLICA_SET]}, **more)


def running(raw: Raw, on: str) -> Raw:
    """The pod, running and ready on a node."""
    raw["spec"]["nodeName"] = on
    raw["status"] = {"phase": "Running", "conditions": READY}
    return raw


def migration(name: str = "move", pod: str = "web", **more: Any) -> Raw:
    return {
        "apiVersion": HOLDFAST,
        "kind": "PodMigrationJob",
        "metadata": {"name": name, **_metadata(more)},
        "spec": {"podRef": {"namespace": "default", "name": pod}, **more},
    }


def pod_group(name: str, min_member: int, api: str = VOLCANO, at: str = "0s", **spec: Any) -> Raw:
    return {
        "apiVersion": api,
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": {SIM + "at": at}},
        "spec": {"minMember": min_member, **spec},
    }


def core_group(name: str, min_count: int | None = None, at: str = "0s", **spec: Any) -> Raw:
    """A PodGroup of `scheduling.k8s.io`: a gang, or with the policy basic without a count. `topology`
    is a node label, `whole` whether it is disrupted as a whole."""
    policy: Raw = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    if key := spec.pop("topology", ""):
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    if spec.pop("whole", False):
        spec["disruptionMode"] = {"all": {}}
    return {
        "apiVersion": WORKLOAD,
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": {SIM + "at": at, **spec.pop("annotations", {})}},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def core_pods(name: str, count: int, cpu: Amount = 1, **more: Any) -> list[Raw]:
    """The pods of a PodGroup of `scheduling.k8s.io`."""
    group = {"podGroupName": name}
    return [pod(f"{name}-{i}", cpu, schedulingGroup=group, **more) for i in range(count)]


def gang(name: str, count: int, cpu: Amount = 1, **more: Any) -> list[Raw]:
    """The pods of a PodGroup."""
    return [pod(f"{name}-{i}", cpu, group=name, **more) for i in range(count)]


def queue(name: str, weight: int = 1, at: str = "0s", state: str = "", **spec: Any) -> Raw:
    raw: Raw = {
        "apiVersion": VOLCANO,
        "kind": "Queue",
        "metadata": {"name": name, "annotations": {SIM + "at": at}},
        "spec": {"weight": weight, **{name: value for name, value in spec.items() if value != ""}},
    }
    if state:
        raw["status"] = {"state": state}
    return raw


def in_queue(name: str) -> Raw:
    """The annotation of a pod in a queue."""
    return {"scheduling.volcano.sh/queue-name": name}


def reservation_template(app: str = "a", **sizes: Raw) -> str:
    """The annotation of a pod that asks for a reservation."""
    owners = sizes.pop("owners", [{"labelSelector": {"matchLabels": {"app": app}}}])
    return msgspec.json.encode({"owners": owners, **sizes}).decode()


def requesting(name: str, cpu: Amount = "1", app: str = "a", **more: Any) -> Raw:
    """A pod that asks for a reservation; `requirement` is what was requested on its behalf so far."""
    sizes = {key: more.pop(key) for key in ("recommendedSize", "roundup", "owners") if key in more}
    annotations = {TEMPLATE: more.pop("template", None) or reservation_template(app, **sizes)}
    requirement = more.pop("requirement", None)
    if requirement is not None:
        annotations[REQUIREMENT] = msgspec.json.encode(requirement).decode()
    labels = more.pop("labels", {"app": app})
    return pod(name, cpu, annotations=annotations, labels=labels, **more)


def required(id: str, **resources: str) -> Raw:
    return {"labels": {ID: id}, "resources": resources}


def _requests(cpu: Amount, more: Raw) -> dict[str, Amount]:
    usual = {"cpu": str(cpu) if cpu else "", "memory": more.pop("memory", "")}
    given: dict[str, Amount] = more.pop(
        "requests", {name: amount for name, amount in usual.items() if amount}
    )
    return given


def _metadata(more: Raw) -> Raw:
    """Takes what is metadata out of the rest."""
    given = {key: more.pop(key) for key in ("uid", "labels", "annotations") if key in more}
    return {**given, **more.pop("metadata", {})}
