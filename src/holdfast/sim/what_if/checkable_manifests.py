"""What `check` applies in place of a manifest, so that its pods are scheduled.

    CronJob                     the Job that it starts
    ReplicationController       a ReplicaSet
    Job of Volcano              a PodGroup, and the pods of its tasks
    suspended Job               the same, resumed
    pod with a `nodeName`       the same, that only this node can take; no scheduler would be asked
    pod with scheduling gates   the same without them

A kind that has a pod template but no controller here is not checked, and says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.api.documents import Document
from holdfast.api.kinds import Kinds
from holdfast.api.names import GROUP_NAME_ANNOTATION, VOLCANO_JOB_API
from holdfast.local.store.objects import Key, Raw
from holdfast.sim.scenario_objects import ScenarioObject
from holdfast.sim.skipped_kinds import is_skipped

_TEMPLATED = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
_RESERVING = {
    "Reservation": "spec.template.spec",
    "ReservationSchedule": "spec.template.spec.template.spec",
}
_TOLERATED = ("NoSchedule", "PreferNoSchedule")
"""Effects of taints that a pod with a `nodeName` does not meet."""


@dataclass(slots=True)
class CheckableManifest:
    """A manifest, and what is applied in its place."""

    document: Document
    kind: str
    applied: list[Document]
    pod_spec: str = ""
    """The path of the (first) pod's spec in the manifest."""
    remarks: list[str] = field(default_factory=list)
    not_checked: str = ""
    """Why nothing of it is checked."""
    name: str = ""
    """Of a manifest that is not checked."""


def checkable(
    document: Document, namespace: str, live: Callable[[Key], Raw | None], declared: Kinds
) -> CheckableManifest:
    """`live` is how the cluster has an object now. A manifest that is invalid stays as it is."""
    data = document.data
    found = CheckableManifest(document, "", [document])
    if not isinstance(data, dict):
        return found
    found.kind = str(data.get("kind"))
    if is_skipped(data.get("apiVersion"), data.get("kind"), declared):
        if _has_pod_template(data):
            found.not_checked = f"pods of a {found.kind} are not simulated"
            metadata = data.get("metadata") or {}
            where, name = metadata.get("namespace") or namespace, metadata.get("name") or ""
            found.name = f"{found.kind}/{where}/{name}"
        return found
    if ScenarioObject(data, declared).errors:
        return found
    metadata = {**data["metadata"], "namespace": data["metadata"].get("namespace") or namespace}
    group = data["apiVersion"].rpartition("/")[0]
    key = Key(group, found.kind, metadata["namespace"], metadata.get("name") or "")
    is_live = live(key) is not None
    made: list[Raw] = [data]
    if found.kind == "Pod":
        found.pod_spec = "spec"
    elif found.kind in _TEMPLATED and (data.get("spec") or {}).get("template"):
        found.pod_spec = "spec.template.spec"
    elif found.kind in _RESERVING:
        found.pod_spec = _RESERVING[found.kind]
    match (group, found.kind):
        case ("batch", "CronJob"):
            found.pod_spec = "spec.jobTemplate.spec.template.spec"
            made = [_started_job(data)]
        case ("", "ReplicationController") if (data.get("spec") or {}).get("template"):
            found.pod_spec = "spec.template.spec"
            made = [_replica_set(data)]
        case ("batch.volcano.sh", "Job"):
            found.pod_spec = "spec.tasks[0].template.spec"
            made = [*_gang(data, metadata)]
    if made != [data] and is_live and found.kind != "CronJob":
        found.not_checked = f"it is there, and pods of a {found.kind} are not simulated"
        found.name = str(key)
        made = [data]
    made = [_resumed(raw, found) for raw in made]
    if found.pod_spec and found.kind not in _RESERVING:
        made = [_schedulable(raw, found, is_live=is_live) for raw in made]
    found.applied = [replace(document, data=raw) for raw in made]
    return found


def _has_pod_template(value: Any) -> bool:
    """Whether there is a list of containers somewhere in it."""
    if isinstance(value, list):
        return any(map(_has_pod_template, value))
    if not isinstance(value, dict):
        return False
    containers = value.get("containers")
    if isinstance(containers, list) and any(
        isinstance(each, dict) and "image" in each for each in containers
    ):
        return True
    return any(map(_has_pod_template, value.values()))


def _started_job(cron: Raw) -> Raw:
    job = cron["spec"]["jobTemplate"]
    metadata = {**(job.get("metadata") or {}), **cron["metadata"]}
    return {"apiVersion": "batch/v1", "kind": "Job", **job, "metadata": metadata}


def _replica_set(controller: Raw) -> Raw:
    spec = controller["spec"]
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    selector = {"matchLabels": spec.get("selector") or labels}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": controller["metadata"],
        "spec": {**spec, "selector": selector},
    }


def _gang(job: Raw, metadata: Raw) -> Iterator[Raw]:
    spec = job.get("spec") or {}
    tasks = spec.get("tasks") or ()
    name = metadata.get("name") or f"{metadata['generateName']}xxxxx"
    numbers = [1 if task.get("replicas") is None else task["replicas"] for task in tasks]
    group: Raw = {"minMember": spec.get("minAvailable") or sum(numbers)}
    if spec.get("queue"):
        group["queue"] = spec["queue"]
    where = {"namespace": metadata["namespace"]}
    yield {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, **where},
        "spec": group,
    }
    given = {k: spec[k] for k in ("schedulerName", "priorityClassName") if spec.get(k)}
    for at, (task, number) in enumerate(zip(tasks, numbers, strict=True)):
        template = task.get("template") or {}
        of_pod = template.get("metadata") or {}
        notes = {**(of_pod.get("annotations") or {}), GROUP_NAME_ANNOTATION: name}
        for i in range(number):
            made = {"name": f"{name}-{task.get('name') or f'task{at}'}-{i}", **where}
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"labels": of_pod.get("labels") or {}, **made, "annotations": notes},
                "spec": {**given, **(template.get("spec") or {})},
            }


def _resumed(raw: Raw, found: CheckableManifest) -> Raw:
    spec = raw.get("spec") or {}
    if raw["kind"] != "Job" or raw["apiVersion"] == VOLCANO_JOB_API or not spec.get("suspend"):
        return raw
    found.remarks.append("it is suspended: checked as if it were resumed")
    return {**raw, "spec": {**spec, "suspend": False}}


def _schedulable(raw: Raw, found: CheckableManifest, *, is_live: bool) -> Raw:
    """The object with a pod spec that the scheduler takes."""
    outer = raw.get("spec") or {}
    if raw["kind"] == "Pod":
        spec = _asked(outer, found, is_live=is_live)
        return raw if spec is outer else {**raw, "spec": spec}
    template = outer.get("template") or {}
    inner = template.get("spec") or {}
    spec = _asked(inner, found, is_live=is_live)
    return raw if spec is inner else {**raw, "spec": {**outer, "template": {**template, "spec": spec}}}


def _asked(spec: Raw, found: CheckableManifest, *, is_live: bool) -> Raw:
    node, gates = spec.get("nodeName"), spec.get("schedulingGates")
    if is_live or not (node or gates):
        return spec  # what is there is compared with what is applied
    made = {k: v for k, v in spec.items() if k not in ("nodeName", "schedulingGates")}
    if gates:
        _remark(found, "it has scheduling gates: checked as if they were removed")
    if node:
        _remark(found, f"nodeName: no scheduler is asked; checked for node {node} only")
        affinity = spec.get("affinity") or {}
        of_node = affinity.get("nodeAffinity") or {}
        required = of_node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        here = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms: list[Raw] = required.get("nodeSelectorTerms") or [{}]
        terms = [{**term, "matchFields": [*(term.get("matchFields") or ()), here]} for term in terms]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        made["affinity"] = {**affinity, "nodeAffinity": {**of_node, **required}}
        tolerated = [{"operator": "Exists", "effect": effect} for effect in _TOLERATED]
        made["tolerations"] = [*(spec.get("tolerations") or ()), *tolerated]
    return made


def _remark(found: CheckableManifest, text: str) -> None:
    if text not in found.remarks:
        found.remarks.append(text)
