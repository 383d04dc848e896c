"""Pods of a workload that its controller cannot create: what the API server answered, and
PriorityClasses that do not exist."""

from collections.abc import Iterable

from holdfast.api.kinds import KINDS
from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.preemption_limits import PRIORITY_CLASS
from holdfast.explanation.repairs.repair import Repair, repair
from holdfast.explanation.report import Advice
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.snapshot.cluster_changes import ObjectChange, create, patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

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


def consider_priority_class(snapshot: ClusterSnapshot, workload: Raw, name: str) -> list[Advice]:
    """Another PriorityClass, or a new one, if a pod of the template would then be scheduled."""
    pod = pod_of_template(workload)
    del pod["spec"]["priorityClassName"]
    info = KINDS[workload["apiVersion"], workload["kind"]]
    advisor = Advisor(snapshot, Subject(POD, pod["metadata"]["name"], pod["metadata"]["namespace"]))

    def proposed(text: str, action: str, change: ObjectChange) -> Repair:
        return repair(text, action, [change, create(POD, pod, follows=True)])

    known = [each["metadata"]["name"] for each in snapshot.all(PRIORITY_CLASS)]
    for near in nearest(name, [*known, *_BUILT_IN]):
        body = {"spec": {"template": {"spec": {"priorityClassName": near}}}}
        text = f"name the PriorityClass {near} instead of {name}"
        advisor.propose(proposed(text, "UsePriorityClass", patch(info, workload, body)))
    made = {
        "apiVersion": PRIORITY_CLASS.api_version,
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 0,
    }
    text = f"create the PriorityClass {name} (tried with value 0)"
    advisor.propose(proposed(text, "CreatePriorityClass", create(PRIORITY_CLASS, made)))
    return advisor.advice


def pod_of_template(workload: Raw) -> Raw:
    """A pod as the controller of the workload would create it."""
    metadata, template = workload["metadata"], (workload.get("spec") or {}).get("template") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **(template.get("metadata") or {}),
            "name": f"{metadata['name']}-new",
            "namespace": metadata.get("namespace") or "",
            "uid": f"{metadata.get('uid')}-new",
        },
        "spec": dict(_template(workload)),
        "status": {"phase": "Pending"},
    }


def _template(workload: Raw) -> Raw:
    found: Raw = ((workload.get("spec") or {}).get("template") or {}).get("spec") or {}
    return found
