"""Nodes, pods and reservations as a user would write them, with what a test mostly does not care about
filled in. Each is a plain dict: change it, or write YAML instead, where more is needed."""

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.api import names

Raw = dict[str, Any]
Texts = Mapping[str, str]


def node(
    name: str,
    *,
    cpu: str | int = "8",
    memory: str = "32Gi",
    pods: int = 110,
    resources: Mapping[str, str | int] | None = None,
    labels: Texts | None = None,
    annotations: Texts | None = None,
    taints: Iterable[str] = (),
    unschedulable: bool = False,
) -> Raw:
    """`resources` are those beside the usual ones, `taints` are written `key=value:NoSchedule`."""
    spec: Raw = {"unschedulable": True} if unschedulable else {}
    if listed := [_taint(each) for each in taints]:
        spec["taints"] = listed
    capacity = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    labels = {"kubernetes.io/hostname": name, **(labels or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(name, labels, annotations),
        "spec": spec,
        "status": {"capacity": capacity},
    }


def pod(
    name: str,
    *,
    namespace: str = names.DEFAULT_NAMESPACE,
    cpu: str | int = "100m",
    memory: str = "64Mi",
    resources: Mapping[str, str | int] | None = None,
    labels: Texts | None = None,
    annotations: Texts | None = None,
    on: str | None = None,
    **spec: Any,
) -> Raw:
    """A pod of one container that requests so much; `on` a node if it runs there already. More fields
    of its spec are given by their names: `pod("p", priority=10, nodeSelector={"zone": "a"})`."""
    if on is not None:
        spec["nodeName"] = on
    requests = {"cpu": cpu, "memory": memory, **(resources or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**_metadata(name, labels, annotations), "namespace": namespace},
        "spec": {"containers": [_container(requests)], **spec},
    }


def reservation(
    name: str,
    *,
    owners: Texts,
    cpu: str | int = "1",
    memory: str = "1Gi",
    labels: Texts | None = None,
    annotations: Texts | None = None,
    **spec: Any,
) -> Raw:
    """Capacity reserved for pods with the labels `owners`. `labels` and `annotations` are those of its
    pod template, which plugins see when they are asked about the reserve pod."""
    template: Raw = {"spec": {"containers": [_container({"cpu": cpu, "memory": memory})]}}
    if metadata := {k: dict(v) for k, v in (("labels", labels), ("annotations", annotations)) if v}:
        template["metadata"] = metadata
    return {
        "apiVersion": names.RESERVATION_API,
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "template": template,
            "owners": [{"labelSelector": {"matchLabels": dict(owners)}}],
            **spec,
        },
    }


def _metadata(name: str, labels: Texts | None, annotations: Texts | None) -> Raw:
    metadata: Raw = {"name": name}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata


def _container(requests: Mapping[str, str | int]) -> Raw:
    return {"name": "main", "image": "example.com/app", "resources": {"requests": dict(requests)}}


def _taint(text: str) -> Raw:
    key, colon, effect = text.rpartition(":")
    if not colon:
        raise ValueError(f"taint {text!r}: write it key:Effect or key=value:Effect")
    name, _, value = key.partition("=")
    return {"key": name, "effect": effect, **({"value": value} if value else {})}
