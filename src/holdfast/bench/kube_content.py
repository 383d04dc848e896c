"""What a benchmark creates on a real API server: a plan's objects by their role in the run."""

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.api.meta import Object
from holdfast.api.resource_claims import ResourceClaim
from holdfast.bench.plan import CREATED, BenchPlan, Churning, PlannedObjects, Pods
from holdfast.bench.workload import BenchError

Raw = dict[str, Any]

LABEL = "holdfast.io/bench"
"""A label of every object that the benchmark creates; only these, and claims of these pods, are deleted
afterwards."""
DEVICE_KINDS = ("DeviceClass", "DeviceTaintRule", "ResourceSlice", "ResourceClaim")
_SERVERS_OWN = ("uid", "resourceVersion", "creationTimestamp", "generation")


class Content(msgspec.Struct):
    """The objects of a plan by their role in the run."""

    nodes: list[Raw] = []
    namespaces: list[str] = []
    devices: list[Raw] = []
    """Objects of `DEVICE_KINDS`, in the order in which they are created."""
    before: list[Raw] = []
    """Pods that have a node from the start."""
    measured: list[Raw] = []
    claims: dict[str, list[Raw]] = {}
    """By the name of a pod: the ResourceClaims that come with it."""
    claim_statuses: dict[str, Raw] = {}
    """By the name of a pod: its status, which names the claims generated for it."""


def content_of(plan: BenchPlan) -> Content:
    """Assigns existing pods to nodes in turn, and devices to their claims, so that every scheduler
    finds the same state.

    Raises BenchError if the plan needs more than an API server provides.
    """
    content = Content()
    for step in plan.steps:
        if isinstance(step, PlannedObjects):
            for obj in step.objects:
                _sort_in(content, obj, plan.name)
        elif isinstance(step, Pods):
            content.namespaces += [ns for ns in step.maker.namespaces if ns not in content.namespaces]
            pods = list(_pods(step, plan.name, content))
            (content.measured if step.measured else content.before).extend(pods)
        elif isinstance(step, Churning):
            raise BenchError(
                f"{plan.name} changes objects while it runs; --mode kube does not support that"
            )
    for number, pod in enumerate(content.before):
        node = content.nodes[number % len(content.nodes)]
        pod["spec"]["nodeName"] = node["metadata"]["name"]
    _allocate(content, plan.name)
    return content


def _sort_in(content: Content, obj: Object, plan: str) -> None:
    if obj.kind == "Node":
        content.nodes.append(raw(obj))
    elif obj.kind == "Namespace":
        if obj.metadata.name not in content.namespaces:
            content.namespaces.append(obj.metadata.name)
    elif obj.kind in DEVICE_KINDS:
        content.devices.append(raw(obj))
        if isinstance(obj, ResourceClaim) and obj.metadata.namespace not in content.namespaces:
            content.namespaces.append(obj.metadata.namespace)
    else:
        raise BenchError(f"{plan} needs a {obj.kind}; --mode kube does not support that")


def _pods(step: Pods, plan: str, content: Content) -> Iterator[Raw]:
    if step.at_once:
        raise BenchError(f"{plan} deletes pods while it runs; --mode kube does not support that")
    for number in range(step.count):
        *along, pod = step.maker.arriving(number)
        for each in along:
            if not isinstance(each, ResourceClaim):
                raise BenchError(f"{plan} needs a {each.kind}; --mode kube does not support that")
            content.claims.setdefault(pod.metadata.name, []).append(raw(each))
        made = raw(pod)
        made["spec"].pop("priority", None)
        status = made.pop("status", {})
        if generated := status.get("resourceClaimStatuses"):
            content.claim_statuses[pod.metadata.name] = {"resourceClaimStatuses": generated}
        yield made


def _allocate(content: Content, plan: str) -> None:
    """Gives the claims of existing pods devices of their nodes, one after the other."""
    free: dict[str, list[Raw]] = {}
    for obj in content.devices:
        if obj["kind"] == "ResourceSlice" and (node := obj["spec"].get("nodeName")):
            of = {"driver": obj["spec"]["driver"], "pool": obj["spec"]["pool"]["name"]}
            names = [{**of, "device": each["name"]} for each in obj["spec"].get("devices", ())]
            free.setdefault(node, []).extend(names)
    for pod in content.before:
        node = pod["spec"]["nodeName"]
        for claim in content.claims.get(pod["metadata"]["name"], ()):
            results = []
            for request in claim["spec"]["devices"]["requests"]:
                wanted = (request.get("exactly") or {}).get("count", 0)
                given, free[node] = free[node][:wanted], free[node][wanted:]
                if not wanted or len(given) < wanted:
                    raise BenchError(f"{plan}: no devices for {claim['metadata']['name']}")
                results += [{"request": request["name"], **each} for each in given]
            named = {"key": "metadata.name", "operator": "In", "values": [node]}
            claim["status"] = {
                "allocation": {
                    "devices": {"results": results},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [named]}]},
                    "allocationTimestamp": CREATED,
                }
            }


def raw(obj: Object) -> Raw:
    made: Raw = msgspec.json.decode(msgspec.json.encode(obj))
    made["metadata"] = {k: v for k, v in made["metadata"].items() if k not in _SERVERS_OWN}
    made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), LABEL: "kube"}
    return made
