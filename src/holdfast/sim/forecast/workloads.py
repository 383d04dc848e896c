"""Forecasts for Deployments, ReplicaSets, StatefulSets and DaemonSets: of their pending pods, those
that start at the same time together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.api.names import DEFAULT_NAMESPACE
from holdfast.sim.forecast.answers import StartAnswer, TimeRange
from holdfast.sim.forecast.run_times import controller_in

if TYPE_CHECKING:
    from holdfast.sim.forecast.targets import ForecastTarget

Raw = dict[str, Any]

WORKLOADS = {
    each.lower(): (each, ("apps/v1",))
    for each in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
}
"""By name of the kind on the command line, the kind and its API versions."""
_HASH = "pod-template-hash"
_NODES = 3


def pods_by_workload(objects: Sequence[Raw]) -> dict[str, list[Raw]]:
    """The pods that have not ended by the names of their workloads, `Deployment/default/web`. A pod of
    a Deployment belongs to its ReplicaSet, too."""
    above = {
        _name(raw): f"{owner['kind']}/{_namespace(raw)}/{owner['name']}"
        for raw in objects
        if raw.get("kind") == "ReplicaSet" and (owner := controller_in(raw)) is not None
    }
    found: dict[str, list[Raw]] = {}
    for raw in objects:
        owner = controller_in(raw) if raw.get("kind") == "Pod" else None
        ended = (raw.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if owner is None or ended or str(owner.get("kind")).lower() not in WORKLOADS:
            continue
        name = f"{owner['kind']}/{_namespace(raw)}/{owner['name']}"
        found.setdefault(name, []).append(raw)
        if (deployment := above.get(name) or _by_hash(raw, owner)) is not None:
            found.setdefault(deployment, []).append(raw)
    return found


def _by_hash(pod: Raw, owner: Raw) -> str | None:
    """The Deployment of a pod whose ReplicaSet is not known: the ReplicaSet is named after it."""
    value = (pod["metadata"].get("labels") or {}).get(_HASH)
    if not value or owner["kind"] != "ReplicaSet":
        return None
    return f"Deployment/{_namespace(pod)}/{str(owner['name']).removesuffix(f'-{value}')}"


def without_pods(raw: Raw) -> str:
    """Why a workload has no pods."""
    replicas = (raw.get("spec") or {}).get("replicas")
    return "spec.replicas is 0" if replicas == 0 else "it has no pods"


# Answers


def grouped(targets: Sequence[ForecastTarget], answers: Sequence[StartAnswer]) -> list[StartAnswer]:
    """The answers for these targets, with those as one that are about pods of one workload and owner
    which start alike. Of several messages the first is kept: pods that cannot start are told apart only
    by when they were tried last."""
    found: dict[object, StartAnswer] = {}
    nodes: dict[object, dict[str, None]] = {}
    for number, (target, answer) in enumerate(zip(targets, answers, strict=True)):
        workload = target.workload
        if workload is None or not target.is_single:
            found[number] = answer
            continue
        owner = controller_in(target.raw) or {}
        key = (workload.object, owner.get("name"), *_alike(answer))
        name, answer.object = answer.object.rpartition("/")[2], workload.object
        first = found.setdefault(key, answer)
        first.pods.append(name)
        first.pods_before = min(first.pods_before, answer.pods_before)
        first.starts_in = min(first.starts_in, answer.starts_in)
        nodes.setdefault(key, {})[answer.node] = None
    for group, names in nodes.items():
        found[group].node = few_nodes(names)
    return list(found.values())


def _alike(answer: StartAnswer) -> tuple[object, ...]:
    """What pods that are one answer have in common."""
    return (
        answer.status,
        _times(answer.start),
        answer.reservation,
        answer.until,
        tuple(each.object for each in answer.needs),
    )


def _times(range_: TimeRange | None) -> tuple[object, ...]:
    return () if range_ is None else (range_.earliest, range_.expected, range_.latest)


def few_nodes(nodes: Iterable[str]) -> str:
    """The names, each once; of many the first."""
    names = [each for each in dict.fromkeys(nodes) if each]
    shown = ", ".join(names[:_NODES])
    return f"{shown} and {len(names) - _NODES} more" if len(names) > _NODES else shown


def _namespace(raw: Raw) -> str:
    return str(raw["metadata"].get("namespace") or DEFAULT_NAMESPACE)


def _name(raw: Raw) -> str:
    return f"{raw['kind']}/{_namespace(raw)}/{raw['metadata']['name']}"
