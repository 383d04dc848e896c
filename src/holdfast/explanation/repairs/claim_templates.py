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
_COMPARED = ("storageClassName", "accessModes", "resources", "selector", "volumeMode")
"""Fields of a claim that are as those of the template that it was made from."""

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
    if (found := _template_of(snapshot, pod, name)) is not None:
        return _of_stateful_set(snapshot, *found, revise)
    return RevisedClaim(f"in claim {name} (delete and create it again)", _replaced(raw, revise, False))


def made_again(snapshot: ClusterSnapshot, subject: Subject, raw: Raw) -> RevisedClaim | None:
    """The claim of a pod of a StatefulSet as the set makes it now, if its volumeClaimTemplates were
    changed since; None if the claim is as they are."""
    pod = subject.raw(snapshot) if subject.info is POD else {}
    found = _template_of(snapshot, pod, raw["metadata"]["name"])
    if found is None:
        return None
    owner, template = found
    (spec,) = (each["spec"] for each in _templates(owner) if each["metadata"]["name"] == template)
    other = [field for field in spec if field in _COMPARED and spec[field] != raw["spec"].get(field)]
    if not other:
        return None
    kept, objects = _remade(snapshot, owner, template, lambda _: spec)
    name = owner["metadata"]["name"]
    text = (
        f"delete {kept}, which StatefulSet {name} makes again as its volumeClaimTemplates {template} "
    )
    return RevisedClaim(f"{text}are now (other {few(other)})", objects)


def _template_of(snapshot: ClusterSnapshot, pod: Raw, claim: str) -> tuple[Raw, str] | None:
    """The StatefulSet of the pod and the name of its volume claim template that a claim is made from;
    None if no such template exists."""
    owner = workload_of(snapshot, pod) if pod else None
    if owner is None or owner.info is not _STATEFUL_SET:
        return None
    found = snapshot.find(_STATEFUL_SET, owner.name, owner.namespace) or {}
    for template in _templates(found):
        if claim.startswith(f"{template['metadata']['name']}-{owner.name}-"):
            return found, template["metadata"]["name"]
    return None


def _templates(stateful_set: Raw) -> list[Raw]:
    return list((stateful_set.get("spec") or {}).get("volumeClaimTemplates") or ())


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
    """The template, and what was made from it and has no volume."""
    name = raw["metadata"]["name"]
    templates = [
        {**each, "spec": revise(each["spec"])} if each["metadata"]["name"] == template else each
        for each in _templates(raw)
    ]
    edit = patch(_STATEFUL_SET, raw, {"spec": {"volumeClaimTemplates": templates}})
    kept, objects = _remade(snapshot, raw, template, revise)
    where = (
        f"in volumeClaimTemplates {template} of StatefulSet {name} (immutable: kubectl delete "
        f"statefulset {name} --cascade=orphan, and create it again), then delete {kept}, which it "
        "makes again"
    )
    return RevisedClaim(where, [edit, *objects])


def _remade(
    snapshot: ClusterSnapshot, raw: Raw, template: str, revise: Revision
) -> tuple[str, list[ObjectChange]]:
    """The claims that were made from a template and have no volume, with the pods that wait for them:
    deleted, and made again by the StatefulSet, which makes claims only with pods."""
    name, namespace = raw["metadata"]["name"], raw["metadata"].get("namespace") or ""
    claims, pods, objects, made = [], [], list[ObjectChange](), list[ObjectChange]()
    for each in snapshot.all(CLAIM):
        metadata = each["metadata"]
        stem, _, ordinal = metadata["name"].rpartition("-")
        is_its = stem == f"{template}-{name}" and ordinal.isdigit()
        same_place = (metadata.get("namespace") or "") == namespace
        if not is_its or not same_place or each["spec"].get("volumeName"):
            continue
        claims.append(metadata["name"])
        deleted, created = _replaced(each, revise, True)
        objects.append(deleted._replace(follows=False))
        made.append(created)
        pod = snapshot.find(POD, f"{name}-{ordinal}", namespace)
        if pod is not None and not pod["spec"].get("nodeName"):
            pods.append(pod["metadata"]["name"])
            objects.append(delete(POD, pods[-1], namespace))
            made.append(create(POD, pod, follows=True))
    of_pods = f" and {plural(len(pods), 'pod')} {few(sorted(pods), _CLAIMS)}" if pods else ""
    return f"{_claims(claims)}{of_pods}", [*objects, *made]


def _claims(names: list[str]) -> str:
    return f"{plural(len(names), 'claim')} {few(sorted(names), _CLAIMS)}"


def _replaced(raw: Raw, revise: Revision, follows: bool) -> list[ObjectChange]:
    metadata = raw["metadata"]
    removed = delete(CLAIM, metadata["name"], metadata.get("namespace") or "")
    made = copy.deepcopy(raw) | {"spec": revise(copy.deepcopy(raw["spec"]))}
    return [removed._replace(follows=follows), create(CLAIM, made, follows)]
