"""Small clusters to ask about: objects as a user writes them, and questions in one line."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.api.documents import Document
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.what_if.answer import WhatIfAnswer
from holdfast.sim.what_if.changes import WhatIfChanges
from holdfast.sim.what_if.question import WhatIfQuestion, as_scheduled
from holdfast.snapshot.cluster_objects import ClusterObjects, of_documents, of_objects
from holdfast.snapshot.snapshot_header import SnapshotHeader
from holdfast.snapshot.stripping import Stripper

Raw = dict[str, Any]
SETUP = SchedulerFactory.of()


def node(name: str, cpu: str = "4", **more: Any) -> Raw:
    sizes = {"cpu": cpu, "memory": "32Gi", "pods": "110", **more.pop("sizes", {})}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **more.pop("labels", {})}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": more,
        "status": {"allocatable": sizes, "capacity": sizes},
    }


def template(app: str, cpu: str = "1", **spec: Any) -> Raw:
    requests = {"cpu": cpu, **spec.pop("requests", {})}
    limits = {name: value for name, value in requests.items() if "/" in name}
    resources = {"requests": requests, "limits": limits} if limits else {"requests": requests}
    container = {"name": "c", "image": "i", "resources": resources}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **spec}}


def pod(name: str, cpu: str = "1", **spec: Any) -> Raw:
    made = template(name, cpu, **spec)
    return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {"name": name, **made["metadata"]}}


def workload(
    name: str, replicas: int = 1, cpu: str = "1", kind: str = "Deployment", **spec: Any
) -> Raw:
    made: Raw = {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": template(name, cpu, **spec)},
    }
    if kind == "Job":
        made["spec"] |= {"parallelism": replicas, "completions": replicas}
        made["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        return made
    made["spec"]["selector"] = {"matchLabels": {"app": name}}
    if kind != "DaemonSet":
        made["spec"]["replicas"] = replicas
    return made


def budget(app: str, **spec: Any) -> Raw:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def priority(name: str, value: int) -> Raw:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def documents(objects: Sequence[Raw]) -> list[Document]:
    return [Document("cluster.yaml", i, 1, raw) for i, raw in enumerate(objects, 1)]


def cluster(*objects: Raw) -> ClusterObjects:
    return of_documents(documents(objects), None)


def snapshot_of(*objects: Raw) -> ClusterObjects:
    """As `holdfast snapshot` writes them once they are at rest."""
    question = WhatIfQuestion.about(SETUP, cluster(*objects))
    stripper = Stripper()
    stored = [stripper.strip(raw) for raw in question.cluster.objects.all()]
    return of_objects(stored, SnapshotHeader(time=question.time))


def ask(
    objects: ClusterObjects,
    manifests: Sequence[Raw] = (),
    plan: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    **changes: Any,
) -> WhatIfAnswer:
    setup = as_scheduled(SETUP, objects.objects) if config is None else SchedulerFactory.of(config)
    question = WhatIfQuestion.about(setup, objects)
    wanted = WhatIfChanges(manifests=documents(manifests), **changes)
    return question.ask_with_plan(wanted, plan) if plan else question.ask(wanted)
