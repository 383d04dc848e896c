"""Changes of PersistentVolumeClaims, made where the claims come from: the spec of a claim is immutable,
and a claim that is made from a template would be made from it again as it was."""

import copy
from collections.abc import Callable
from typing import NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.plurals import plural
from holdfast.explanation.facts.pod_owners import workload_of
from holdfast.explanation.repairs.repair import CLAIM, spec_changes
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.snapshot.cluster_changes import ObjectChange, create, delete, patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_STATEFUL_SET = KINDS["apps/v1", "StatefulSet"]
_CLAIMS = 3

Revision = Callable[[Raw], Raw]
"""Returns the spec of a claim with the change."""


class RevisedClaim(NamedTuple):
    where: str
    """What the user edits."""
    objects: list[ObjectChange]


def revised_claim(
    snapshot: ClusterSnapshot, subject: Subject, raw: Raw, revise: Revision
) -> RevisedClaim:
    """The claim of a pod with another spec: by the pod's volume if it is a generic ephemeral one, by
    the volumeClaimTemplates of a StatefulSet, or else by itself."""
    pod = subject.raw(snapshot) if subject.info is POD else {}
    name = raw["metadata"]["name"]
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("ephemeral") and name == f"{pod['metadata']['name']}-{volume['name']}":
            return _ephemeral(snapshot, subject, volume["name"], revise)
    owner = workload_of(snapshot, pod) if pod else None
    if owner is not None and owner.info is _STATEFUL_SET:
        found = snapshot.find(_STATEFUL_SET, owner.name, owner.namespace) or {}
        for template in (found.get("spec") or {}).get("volumeClaimTemplates") or ():
            if name.startswith(f"{template['metadata']['name']}-{owner.name}-"):
                return _of_stateful_set(snapshot, found, template["metadata"]["name"], revise)
    return RevisedClaim(f"in claim {name} (delete and create it again)", _replaced(raw, revise, False))


def _ephemeral(
    snapshot: ClusterSnapshot, subject: Subject, name: str, revise: Revision
) -> RevisedClaim:
    """All pods that are like it, each with a claim of its own, which is made when the pod is."""

    def edit(spec: Raw) -> Raw:
        volumes = copy.deepcopy(spec.get("volumes") or [])
        for each in volumes:
            if each.get("name") == name:
                template = each["ephemeral"]["volumeClaimTemplate"]
                template["spec"] = revise(template["spec"])
        return {"volumes": volumes}

    objects = spec_changes(snapshot, subject, edit)
    for change in [each for each in objects if each.info is POD]:
        claim = snapshot.find(CLAIM, f"{change.name}-{name}", change.namespace)
        objects += _replaced(claim, revise, True) if claim is not None else []
    return RevisedClaim(f"in the volumeClaimTemplate of its volume {name}", objects)


def _of_stateful_set(
    snapshot: ClusterSnapshot, raw: Raw, template: str, revise: Revision
) -> RevisedClaim:
    """The template and the claims without a volume that were made from it."""
    name, namespace = raw["metadata"]["name"], raw["metadata"].get("namespace") or ""
    templates = [
        {**each, "spec": revise(each["spec"])} if each["metadata"]["name"] == template else each
        for each in raw["spec"]["volumeClaimTemplates"]
    ]
    objects = [patch(_STATEFUL_SET, raw, {"spec": {"volumeClaimTemplates": templates}})]
    claims = []
    for each in snapshot.all(CLAIM):
        metadata = each["metadata"]
        stem, _, ordinal = metadata["name"].rpartition("-")
        is_its = stem == f"{template}-{name}" and ordinal.isdigit()
        same_place = (metadata.get("namespace") or "") == namespace
        if is_its and same_place and not each["spec"].get("volumeName"):
            claims.append(metadata["name"])
            objects += _replaced(each, revise, False)
    where = (
        f"in volumeClaimTemplates {template} of StatefulSet {name} (immutable: kubectl delete "
        f"statefulset {name} --cascade=orphan, and create it again) and in {_claims(claims)} (delete: "
        "it makes them again)"
    )
    return RevisedClaim(where, objects)


def _claims(names: list[str]) -> str:
    return f"{plural(len(names), 'claim')} {few(sorted(names), _CLAIMS)}"


def _replaced(raw: Raw, revise: Revision, follows: bool) -> list[ObjectChange]:
    metadata = raw["metadata"]
    removed = delete(CLAIM, metadata["name"], metadata.get("namespace") or "")
    made = copy.deepcopy(raw) | {"spec": revise(copy.deepcopy(raw["spec"]))}
    return [removed._replace(follows=follows), create(CLAIM, made, follows)]
