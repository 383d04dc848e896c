"""Reservations whose owners miss a pod by a misspelt name or label, another namespace, or the kind of
its controller; and the owners that were probably meant."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.api.similar_names import nearest
from holdfast.explanation.facts.holders import held_for
from holdfast.explanation.facts.near_owners import (
    NearOwner,
    has_pods,
    near_owner,
    other_namespaces,
)
from holdfast.explanation.facts.pod_owners import PodOwner, controller_of, workload_of
from holdfast.explanation.facts.workload_dry_runs import REPLICA_SET
from holdfast.explanation.repairs.repair import Repair, repair
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord, ReservationInfo
from holdfast.snapshot.cluster_changes import patch
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot

_TEMPLATE_HASH = "pod-template-hash"


class OwnerCorrection(NamedTuple):
    fact: str
    """Empty if it is among those of `near_owners`."""
    repair: Repair
    row: int
    """Of its node; negative if it has none."""


class _CorrectedOwner(NamedTuple):
    """What an owner should say."""

    why: str
    text: str
    owner: Raw


def owner_corrections(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[OwnerCorrection]:
    """For the reservations that do not have the pod among their owners, and probably should."""
    reservations = snapshot.cluster.reservations
    matching = reservations.matching(pod.cls)
    for each in sorted(reservations.known.values(), key=lambda each: each.name):
        raw = snapshot.find(RESERVATION, each.name)
        if raw is None or each.finished or pod.reservation or each.owner_spec_id in matching:
            continue
        owners = (raw.get("spec") or {}).get("owners") or []
        near = near_owner(snapshot, pod, each)
        for at, owner in enumerate(owners):
            right = _corrected_owner(snapshot, pod, owner)
            if right is None and near is not None and near.at == at and not near.has_pods:
                right = _labels(pod, owner, near)
            if right is not None:
                body = {"spec": {"owners": [*owners[:at], right.owner, *owners[at + 1 :]]}}
                merged = json.dumps(body, separators=(",", ":"))
                command = f"kubectl patch reservation {each.name} --type=merge -p '{merged}'"
                text = f"{right.text} in spec.owners of reservation {each.name} ({command})"
                fact = f"reservation {each.name} is for {held_for(snapshot, each)}; {right.why}"
                made = repair(text, "CorrectOwner", [patch(RESERVATION, raw, body)])
                row = each.pod.row if each.pod is not None else -1
                yield OwnerCorrection(fact if right.why else "", made, row)
                break
        else:
            yield from _other_namespace(snapshot, pod, each, raw)


def _other_namespace(
    snapshot: ClusterSnapshot, pod: PodRecord, reservation: ReservationInfo, raw: Raw
) -> Iterator[OwnerCorrection]:
    """The reservation also for pods of the pod's namespace, if it is for pods with its labels in one
    that has no such pods."""
    owners, name = raw["spec"]["owners"], reservation.name
    for at, namespace in other_namespaces(pod, reservation).items():
        labels = owners[at]["labelSelector"]["matchLabels"]
        if has_pods(snapshot, pod, labels, namespace):
            continue
        owner = {**owners[at], "object": {**owners[at]["object"], "namespace": pod.namespace}}
        body = {"spec": {"owners": [*owners, owner]}}
        merged = json.dumps(body, separators=(",", ":"))
        command = f"kubectl patch reservation {name} --type=merge -p '{merged}'"
        text = f"add such pods of namespace {pod.namespace} to spec.owners of reservation {name}"
        made = repair(f"{text} ({command})", "CorrectOwner", [patch(RESERVATION, raw, body)])
        yield OwnerCorrection("", made, reservation.pod.row if reservation.pod is not None else -1)
        return


def _corrected_owner(snapshot: ClusterSnapshot, pod: PodRecord, owner: Raw) -> _CorrectedOwner | None:
    object_, controller = owner.get("object") or {}, owner.get("controller") or {}
    if object_.get("name") and not object_.get("uid") and not controller:
        return _object(snapshot, pod, owner, object_)
    if controller.get("name") and not controller.get("uid") and not object_:
        return _controller(snapshot, pod, owner, controller)
    return None


def _labels(pod: PodRecord, owner: Raw, near: NearOwner) -> _CorrectedOwner:
    """The labels that the pod has in place of those that no pod has."""
    has = {key: pod.cls.labels[key] for key, _ in near.labels.values()}
    selector = dict(owner["labelSelector"])
    labels, added = dict(selector.get("matchLabels") or {}), dict[str, str]()
    for key, (own, value) in near.labels.items():
        if labels.pop(key, None) is not None:
            added[own] = pod.cls.labels[own]
            continue
        selector["matchExpressions"] = [
            {
                **each,
                "key": own,
                "values": [pod.cls.labels[own] if v == value else v for v in each["values"]],
            }
            if each["key"] == key
            else each
            for each in selector["matchExpressions"]
        ]
    if labels or added:
        selector["matchLabels"] = labels | added
    right = ",".join(f"{key}={value}" for key, value in has.items())
    wrong = ",".join(f"{key}={value}" for key, (_, value) in near.labels.items())
    text = f"name pods with {right} instead of {wrong}"
    return _CorrectedOwner("", text, {**owner, "labelSelector": selector})


def _object(
    snapshot: ClusterSnapshot, pod: PodRecord, owner: Raw, given: Raw
) -> _CorrectedOwner | None:
    """A pod or PodGroup by name."""
    kind = given.get("kind") or "Pod"
    group = pod.cls.group
    if kind == "PodGroup" and group is not None:
        own = group.name
    elif kind == "Pod":
        own = pod.name
    else:
        return None
    name, namespace = given["name"], given.get("namespace") or pod.namespace
    if _exists(snapshot, kind, namespace, name):
        return None
    if name == own and namespace != pod.namespace:
        why = f"the pod is in namespace {pod.namespace}, and there is no {kind} {name} in {namespace}"
    elif namespace == pod.namespace and nearest(name, [own]):
        why = f"there is no such {kind}; did you mean {own}?"
    else:
        return None
    right = {**given, "name": own, "namespace": pod.namespace}
    text = f"name {kind} {pod.namespace}/{own} instead of {namespace}/{name}"
    return _CorrectedOwner(why, text, {**owner, "object": right})


def _exists(snapshot: ClusterSnapshot, kind: str, namespace: str, name: str) -> bool:
    if kind == "Pod":
        return snapshot.cluster.pod(namespace, name) is not None
    jobs = snapshot.cluster.jobs.known.values()
    return any(each.is_known and each.name[1:] == (namespace, name) for each in jobs)


def _controller(
    snapshot: ClusterSnapshot, pod: PodRecord, owner: Raw, given: Raw
) -> _CorrectedOwner | None:
    """A controller by name. Pods of a Deployment are controlled by its ReplicaSets, of which there is a
    new one for every template: its labels are meant."""
    own = next((each for each in pod.cls.owners if each.controller), None)
    raw = snapshot.find(POD, pod.name, pod.namespace)
    if own is None or raw is None or given.get("namespace") not in (None, "", pod.namespace):
        return None
    above = workload_of(snapshot, raw)
    if given.get("kind") == own.kind and nearest(given["name"], [own.name]):
        why = f"the pod is controlled by {own.kind} {own.name}; did you mean that?"
        text = f"name {own.kind} {own.name} instead of {given['name']}"
        return _CorrectedOwner(why, text, {**owner, "controller": {**given, "name": own.name}})
    if own.kind == "ReplicaSet" and above is not None and above.info.kind == "Deployment":
        labels = {key: value for key, value in pod.cls.labels.items() if key != _TEMPLATE_HASH}
        if labels and (why := _missed_deployment(snapshot, given, own.name, above)):
            shown = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            text = f"name pods with {shown} instead of {given['kind']} {given['name']}"
            right = {"object": {"namespace": pod.namespace}, "labelSelector": {"matchLabels": labels}}
            return _CorrectedOwner(why, text, right)
    return None


def _missed_deployment(
    snapshot: ClusterSnapshot, given: Raw, replica_set: str, deployment: PodOwner
) -> str:
    """Why an owner that seems to mean the pods of a Deployment matches none; empty if it means
    others."""
    name, own = given["name"], f"controlled by its ReplicaSet {replica_set}"
    sets = {raw["metadata"]["name"]: raw for raw in snapshot.all(REPLICA_SET)}
    if given.get("kind") == "Deployment":
        if name == deployment.name:
            return f"its pods are {own}, so this matches none"
        is_other = any(controller_of(raw).get("name") == name for raw in sets.values())
        if is_other or not nearest(name, [deployment.name]):
            return ""
        return f"did you mean {deployment.name}? Its pods are {own}, so that would match none either"
    above = controller_of(sets[name]).get("name") if name in sets else deployment.name
    is_named_so = deployment.name in (name, name.rpartition("-")[0]) and above == deployment.name
    if given.get("kind") != "ReplicaSet" or name == replica_set or not is_named_so:
        return ""
    whose = f"the pods of Deployment {deployment.name}"
    return f"{whose} are {own} now, and by another one after every change of its template"
