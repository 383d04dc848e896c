"""Pods of a workload that its controller cannot create: what the API server answered, and
PriorityClasses that do not exist."""

from collections.abc import Iterable, Iterator

from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.facts.pod_owners import workload_of
from holdfast.explanation.facts.preemption_limits import PRIORITY_CLASS
from holdfast.explanation.repairs.repair import Repair, repair
from holdfast.kube.object_client import Raw
from holdfast.snapshot.cluster_changes import create
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

MOST_PODS = 500
_FAILURE = "ReplicaFailure"
_BUILT_IN = ("system-node-critical", "system-cluster-critical")


def creation_failures(workloads: Iterable[Raw]) -> list[str]:
    """The messages with which pods of these Deployments and ReplicaSets were refused."""
    found: dict[str, None] = {}
    for raw in workloads:
        for each in (raw.get("status") or {}).get("conditions") or ():
            if each.get("type") == _FAILURE and each.get("status") == "True":
                found[str(each.get("message") or each.get("reason") or _FAILURE)] = None
    return list(found)


def missing_priority_class(snapshot: ClusterSnapshot, workload: Raw) -> str:
    """The PriorityClass that the workload's template names and that does not exist; otherwise empty."""
    name = str(_template(workload).get("priorityClassName") or "")
    known = {each["metadata"]["name"] for each in snapshot.all(PRIORITY_CLASS)}
    return "" if name in (*known, *_BUILT_IN) else name


def priority_class_text(snapshot: ClusterSnapshot, name: str) -> str:
    known = [each["metadata"]["name"] for each in snapshot.all(PRIORITY_CLASS)]
    return f"there is no PriorityClass {name}{did_you_mean(name, [*known, *_BUILT_IN])}"


def priority_classes(snapshot: ClusterSnapshot, workload: Raw, name: str) -> Iterator[Repair]:
    """Another PriorityClass for the workload, or a new one of this name."""
    owner = workload_of(snapshot, pod_of_template(workload))
    known = [each["metadata"]["name"] for each in snapshot.all(PRIORITY_CLASS)]
    for near in nearest(name, [*known, *_BUILT_IN]) if owner is not None else ():
        assert owner is not None
        change = owner.change({"spec": {"priorityClassName": near}})
        text = f"name the PriorityClass {near} instead of {name}"
        yield repair(text, "UsePriorityClass", [change])
    made = {
        "apiVersion": PRIORITY_CLASS.api_version,
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 0,
    }
    text = f"create the PriorityClass {name} (tried with value 0)"
    yield repair(text, "CreatePriorityClass", [create(PRIORITY_CLASS, made)])


def wanted_pods(workload: Raw, there: int = 0) -> int:
    """How many pods its controller would create beside those that are there; of a DaemonSet, one."""
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    if workload["kind"] == "DaemonSet":
        return 1
    if workload["kind"] != "Job":
        replicas = spec.get("replicas")
        return min(max(1, (1 if replicas is None else int(replicas)) - there), MOST_PODS)
    count = spec.get("parallelism")
    count = 1 if count is None else int(count)
    if (completions := spec.get("completions")) is not None:
        count = min(count, int(completions) - int(status.get("succeeded") or 0))
    return min(max(0, count - there), MOST_PODS)


def pods_of_template(snapshot: ClusterSnapshot, workload: Raw, count: int) -> list[Raw]:
    """So many pods as the controller of the workload would create them."""
    pod = pod_of_template(workload)
    name = str(pod["spec"].get("priorityClassName") or "")
    known = {each["metadata"]["name"]: each for each in snapshot.all(PRIORITY_CLASS)}
    if (priority := known.get(name)) is not None:
        policy = priority.get("preemptionPolicy") or "PreemptLowerPriority"
        pod["spec"] |= {"priority": int(priority.get("value") or 0), "preemptionPolicy": policy}
    if count == 1:
        return [pod]
    metadata = pod["metadata"]
    return [
        {
            **pod,
            "metadata": {
                **metadata,
                "name": f"{metadata['name']}-{at}",
                "uid": f"{metadata['uid']}-{at}",
            },
        }
        for at in range(count)
    ]


def pod_of_template(workload: Raw) -> Raw:
    """A pod as the controller of the workload would create it."""
    metadata, template = workload["metadata"], (workload.get("spec") or {}).get("template") or {}
    owner = {"apiVersion": workload["apiVersion"], "kind": workload["kind"], "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **(template.get("metadata") or {}),
            "name": f"{metadata['name']}-new",
            "namespace": metadata.get("namespace") or "",
            "uid": f"{metadata.get('uid')}-new",
            "ownerReferences": [{**owner, "name": metadata["name"], "uid": metadata.get("uid") or ""}],
        },
        "spec": dict(_template(workload)),
        "status": {"phase": "Pending"},
    }


def _template(workload: Raw) -> Raw:
    found: Raw = ((workload.get("spec") or {}).get("template") or {}).get("spec") or {}
    return found
