"""PersistentVolumeClaims and PersistentVolumes that a pod needs and that do not exist or are not bound:
the nearest name, or the object to create. Proposed only if the pod would then be scheduled."""

import copy
import re
from collections.abc import Callable, Iterator

from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.advice import Advisor
from holdfast.explanation.claim_volumes import unsuitable_volumes, volume_repairs
from holdfast.explanation.details import claims_of
from holdfast.explanation.misspellings import missing_class
from holdfast.explanation.repairs import CLAIM, RESIZE, bound_claim, repair, spec_changes
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import NodeVerdicts, Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import ObjectChange, create, delete
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_NO_VOLUME = re.compile(r'persistentvolume "([^"]+)" not found')
_VOLUMES = 3
_BOUND = ("pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller")
"""Annotations that a bound claim has."""


def consider_missing_volumes(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, message: str, advisor: Advisor
) -> Iterator[str]:
    """Facts about the claims and volumes that a rejection is about; proposes what would help."""
    missing = _NO_CLAIM.findall(message)
    for name in missing:
        yield from _no_claim(snapshot, subject, pod, name, advisor)
    for name in _NO_VOLUME.findall(message):
        yield from _no_volume(snapshot, pod, name, advisor)
    if not missing and "unbound immediate" in message:
        yield from _not_bound(snapshot, pod, advisor)


def consider_unbound_claims(
    snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, advisor: Advisor
) -> None:
    """Claims that wait for a pod and find no volume."""
    if not any(rejection.plugin == "VolumeBinding" for rejection in placing.rejections.values()):
        return
    for each in volume_repairs(snapshot, pod):
        advisor.propose(each)


def _unbound(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[tuple[str, Raw]]:
    """The claims of the pod that have no volume, with their specs."""
    for name in claims_of(snapshot, pod):
        raw = snapshot.find(CLAIM, name, pod.namespace)
        spec = (raw or {}).get("spec") or {}
        if raw is not None and not spec.get("volumeName"):
            yield name, spec


# Claims


def _no_claim(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, name: str, advisor: Advisor
) -> Iterator[str]:
    claims = (each["metadata"] for each in snapshot.all(CLAIM))
    known = [each["name"] for each in claims if each.get("namespace") == pod.namespace]
    claim = f"PersistentVolumeClaim {pod.namespace}/{name}"
    yield f"{claim} does not exist{did_you_mean(name, known)}"
    for near in nearest(name, known):
        objects = spec_changes(snapshot, subject, _naming(name, near))
        text = f"set claimName: {near} instead of {name}"
        advisor.propose(repair(text, "UseClaim", objects))
    objects = bound_claim(snapshot, name, pod.namespace)
    advisor.propose(repair(f"create {claim} and have it bound", "CreateClaim", objects))


def _naming(name: str, near: str) -> Callable[[Raw], Raw]:
    """The volumes with another claim in place of one."""

    def edit(spec: Raw) -> Raw:
        volumes = copy.deepcopy(spec.get("volumes") or [])
        for source in (each.get("persistentVolumeClaim") or {} for each in volumes):
            if source.get("claimName") == name:
                source["claimName"] = near
        return {"volumes": volumes}

    return edit


def _not_bound(snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor) -> Iterator[str]:
    """Claims whose volumes are bound, or made, without regard to a pod."""
    objects: list[ObjectChange] = []
    for name, spec in _unbound(snapshot, pod):
        kind = spec.get("storageClassName") or ""
        known = missing_class(snapshot, kind)
        hint = "" if known is None else f", which does not exist{did_you_mean(kind, known)}"
        yield f"claim {name} is not bound yet (storage class {kind or '(none)'}{hint})"
        if unsuitable := unsuitable_volumes(snapshot, name, pod.namespace):
            yield f"of the volumes of its class, {few(unsuitable, _VOLUMES)}"
        objects += bound_claim(snapshot, name, pod.namespace)
    if objects:
        advisor.propose(repair("have its claims bound to volumes", "BindClaims", objects))


# Volumes


def _no_volume(snapshot: ClusterSnapshot, pod: PodRecord, name: str, advisor: Advisor) -> Iterator[str]:
    """A claim that is bound to a volume which is gone. A claim is never bound to another volume, so
    that it has to be created again."""
    for claim in claims_of(snapshot, pod):
        raw = snapshot.find(CLAIM, claim, pod.namespace)
        if raw is None or (raw.get("spec") or {}).get("volumeName") != name:
            continue
        yield f"claim {claim} is bound to the PersistentVolume {name}, which does not exist"
        new = copy.deepcopy(raw)
        new["spec"].pop("volumeName")
        for each in _BOUND:
            (new["metadata"].get("annotations") or {}).pop(each, None)
        new["status"] = {"phase": "Pending"}
        bound = [each._replace(follows=True) for each in bound_claim(snapshot, claim, pod.namespace)]
        objects = [delete(CLAIM, claim, pod.namespace), create(CLAIM, new), *bound]
        text = (
            f"delete claim {claim} and create it again without volumeName, to be bound to another "
            f"volume (what {name} stored is lost)"
        )
        advisor.propose(repair(text, "ReplaceClaim", objects, RESIZE))
