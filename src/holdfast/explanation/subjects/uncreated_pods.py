"""Pods of a workload that its controller cannot create: what the API server answered, classes that do
not exist, and fields that contradict the PriorityClass."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from holdfast.api.kinds import KindInfo
from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.facts.admitted_pods import (
    LOWER,
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    admitted,
)
from holdfast.explanation.facts.pod_owners import workload_of
from holdfast.explanation.repairs.repair import Repair, repair
from holdfast.kube.object_client import Raw
from holdfast.machinery.strategies.admission import SYSTEM_CLASSES
from holdfast.snapshot.cluster_changes import ClusterChange, create
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

MOST_PODS = 500
_FAILURE = "ReplicaFailure"
_CLASSES: tuple[tuple[KindInfo, str, tuple[str, ...]], ...] = (
    (PRIORITY_CLASS, "priorityClassName", tuple(SYSTEM_CLASSES)),
    (RUNTIME_CLASS, "runtimeClassName", ()),
)
"""The kind of class, the field that names it, and those that every cluster has."""
_COMPUTED = ("preemptionPolicy", "priority")
"""What admission computes from the PriorityClass."""


def creation_failures(workloads: Iterable[Raw]) -> list[str]:
    """The messages with which pods of these Deployments and ReplicaSets were refused."""
    found: dict[str, None] = {}
    for raw in workloads:
        for each in (raw.get("status") or {}).get("conditions") or ():
            if each.get("type") == _FAILURE and each.get("status") == "True":
                found[str(each.get("message") or each.get("reason") or _FAILURE)] = None
    return list(found)


# Classes that do not exist


class MissingClass(NamedTuple):
    """A class that a template names, and without which no pod of it can be created."""

    info: KindInfo
    field: str
    name: str
    known: list[str]

    @property
    def text(self) -> str:
        """`there is no PriorityClass hihg; did you mean high?`"""
        return f"there is no {self.info.kind} {self.name}{did_you_mean(self.name, self.known)}"


def missing_classes(snapshot: ClusterSnapshot, workload: Raw) -> list[MissingClass]:
    """The PriorityClass and the RuntimeClass that the workload's template names, if they do not
    exist. Schedulers do not read RuntimeClasses: which there are may not be known."""
    found = []
    for info, field, built_in in _CLASSES:
        is_read = snapshot.is_hypothetical or (info.api_version, info.kind) in snapshot.objects
        if info is RUNTIME_CLASS and not is_read:
            continue
        name = str(_template(workload).get(field) or "")
        known = [*(each["metadata"]["name"] for each in snapshot.all(info)), *built_in]
        if name and name not in known:
            found.append(MissingClass(info, field, name, known))
    return found


# What lets pods be created


def creation_repairs(snapshot: ClusterSnapshot, workload: Raw) -> list[Repair]:
    """Changes with which nothing that is known keeps pods of the workload's template from being
    created; none if nothing does so now."""
    ways = [
        list(_other_classes(snapshot, workload, each)) for each in missing_classes(snapshot, workload)
    ]
    if (removed := _without_contradictions(snapshot, workload)) is not None:
        ways.append([removed])
    return [_together(each) for each in product(*ways)] if ways else []


def _together(repairs: tuple[Repair, ...]) -> Repair:
    if len(repairs) == 1:
        return repairs[0]
    change = sum((each.change for each in repairs), ClusterChange())
    text = " and ".join(each.text for each in repairs)
    return Repair(text, change, max(each.cost for each in repairs))


def _other_classes(snapshot: ClusterSnapshot, workload: Raw, missing: MissingClass) -> Iterator[Repair]:
    """Another class for the workload, or a new one of this name."""
    kind, name = missing.info.kind, missing.name
    for near in nearest(name, missing.known):
        text = f"name the {kind} {near} instead of {name}"
        yield from _edited(snapshot, workload, {missing.field: near}, text, f"Use{kind}")
    made: Raw = {"apiVersion": missing.info.api_version, "kind": kind, "metadata": {"name": name}}
    made |= {"value": 0} if missing.info is PRIORITY_CLASS else {"handler": name}
    tried = "value 0" if missing.info is PRIORITY_CLASS else f"handler {name} and no overhead"
    text = f"create the {kind} {name} (tried with {tried})"
    yield repair(text, f"Create{kind}", [create(missing.info, made)])


def _without_contradictions(snapshot: ClusterSnapshot, workload: Raw) -> Repair | None:
    """The template without a priority or preemption policy that no pod may have, since its
    PriorityClass has another one."""
    spec = _template(workload)
    if any(each.info is PRIORITY_CLASS for each in missing_classes(snapshot, workload)):
        return None
    plain = {key: value for key, value in spec.items() if key not in _COMPUTED}
    computed = {"priority": 0, "preemptionPolicy": LOWER} | admitted(snapshot, plain)
    fields = [each for each in _COMPUTED if spec.get(each) not in (None, computed[each])]
    if not fields:
        return None
    given = " and ".join(f"{each}: {spec[each]}" for each in fields)
    name = spec.get("priorityClassName")
    has = ", ".join(str(computed[each]) for each in fields)
    why = f"its PriorityClass {name} has {has}" if name else "only a PriorityClass sets it"
    edit, text = dict.fromkeys(fields), f"remove {given} ({why})"
    return next(_edited(snapshot, workload, edit, text, "RemovePriority"), None)


def _edited(
    snapshot: ClusterSnapshot, workload: Raw, edit: Raw, text: str, action: str
) -> Iterator[Repair]:
    """The workload with another spec in its template; nothing if that cannot be changed."""
    owner = workload_of(snapshot, pod_of_template(snapshot, workload))
    if owner is not None:
        yield repair(text, action, [owner.change({"spec": edit})])


# Pods of a template


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
    pod = pod_of_template(snapshot, workload)
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


def pod_of_template(snapshot: ClusterSnapshot, workload: Raw) -> Raw:
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
        "spec": admitted(snapshot, _template(workload)),
        "status": {"phase": "Pending"},
    }


def _template(workload: Raw) -> Raw:
    found: Raw = ((workload.get("spec") or {}).get("template") or {}).get("spec") or {}
    return found
