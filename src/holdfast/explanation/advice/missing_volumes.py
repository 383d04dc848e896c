"""PersistentVolumeClaims and PersistentVolumes that a pod needs and that do not exist or are not bound:
the nearest name, or the object to create. Proposed only if the pod would then be scheduled."""

import copy
import re
from collections.abc import Callable, Iterable, Iterator

from holdfast.api.names import BIND_COMPLETED_ANNOTATION, BOUND_BY_CONTROLLER_ANNOTATION
from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.advice.advisor import Advisor, actions_of
from holdfast.explanation.advice.claim_bindings import ClaimBinding, ways_to_a_volume
from holdfast.explanation.advice.misspellings import corrected_classes
from holdfast.explanation.facts.created_claims import ephemeral_claims, provisioned
from holdfast.explanation.phrases import pods_text
from holdfast.explanation.repairs.claim_volumes import (
    CREATE_VOLUME,
    is_provisioned,
    missing_class,
    nodes_gone,
    smaller_bound_claim,
    suitable_volumes,
    unsuitable,
    unsuitable_volumes,
    volume_repairs,
)
from holdfast.explanation.repairs.details import claims_of
from holdfast.explanation.repairs.repair import (
    CLAIM,
    RESIZE,
    VOLUME,
    Repair,
    bound_claim,
    repair,
    spec_changes,
)
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import NodeVerdicts, Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import ObjectChange, applied, create, delete, patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_NO_VOLUME = re.compile(r'persistentvolume "([^"]+)" not found')
_LOST = re.compile(r'bound to non-existent persistentvolume "([^"]+)"')
_DELETED = re.compile(r'persistentvolumeclaim "([^"]+)" is being deleted')
_NOT_CREATED = re.compile(r'ephemeral volume controller to create the persistentvolumeclaim "([^"]+)"')
_VOLUMES = 3
_BOUND = (BIND_COMPLETED_ANNOTATION, BOUND_BY_CONTROLLER_ANNOTATION)
"""Annotations that a bound claim has."""


def consider_missing_volumes(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, message: str, advisor: Advisor
) -> Iterator[str]:
    """Facts about the claims and volumes that a rejection is about; proposes what would help."""
    missing = _NO_CLAIM.findall(message)
    if missing:  # the message names the first one
        yield from _no_claims(snapshot, subject, pod, _missing(snapshot, pod) or missing, advisor)
    for name in (*_NO_VOLUME.findall(message), *_LOST.findall(message)):
        yield from _no_volume(snapshot, pod, name, advisor)
    for name in _DELETED.findall(message):
        yield from _deleted(snapshot, pod, name, advisor)
    for name in _NOT_CREATED.findall(message):
        yield from _not_created(snapshot, subject, name, advisor)
    if not missing and "unbound immediate" in message:
        yield from _not_bound(snapshot, pod, advisor)
        yield from _not_completed(snapshot, pod, advisor)


def consider_unbound_claims(
    snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, advisor: Advisor
) -> None:
    """Claims that wait for a pod and find no volume."""
    if not any(rejection.plugin == "VolumeBinding" for rejection in placing.rejections.values()):
        return
    for each in volume_repairs(snapshot, pod):
        if actions_of(each) == CREATE_VOLUME:
            advisor.propose_once(CREATE_VOLUME, each)
        else:
            advisor.propose(each)


def _unbound(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[tuple[str, Raw]]:
    """The claims of the pod that have no volume, with their specs."""
    for name in claims_of(snapshot, pod):
        raw = snapshot.find(CLAIM, name, pod.namespace)
        spec = (raw or {}).get("spec") or {}
        if raw is not None and not spec.get("volumeName"):
            yield name, spec


# Claims


def _missing(snapshot: ClusterSnapshot, pod: PodRecord) -> list[str]:
    """The claims of the pod that do not exist."""
    names = dict.fromkeys(claims_of(snapshot, pod))
    return [name for name in names if snapshot.find(CLAIM, name, pod.namespace) is None]


def _no_claims(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, names: list[str], advisor: Advisor
) -> Iterator[str]:
    claims = [each["metadata"] for each in snapshot.all(CLAIM)]
    known = [each["name"] for each in claims if each.get("namespace") == pod.namespace]
    right, created = dict[str, str](), list[Repair]()
    for name in names:
        claim = f"PersistentVolumeClaim {pod.namespace}/{name}"
        elsewhere = sorted(str(each.get("namespace")) for each in claims if each["name"] == name)
        where = f"; there is one of that name in namespace {few(elsewhere)}" if elsewhere else ""
        yield f"{claim} does not exist{did_you_mean(name, known) or where}"
        objects = bound_claim(snapshot, name, pod.namespace)
        made = repair(f"create {claim} and have it bound", "CreateClaim", objects)
        created.append(made)
        near = nearest(name, known)
        right |= {name: near[0]} if near else {}
        for each in near if len(names) == 1 else ():
            advisor.propose(_named(snapshot, subject, {name: each}))
    # Each of them is needed; and so is the right class of those that exist.
    named = [_named(snapshot, subject, right)] if right else []
    others = [made for name, made in zip(names, created, strict=True) if name not in right]
    with applied(snapshot, [change for each in named for change in each.change.objects]):
        then = subject.record(snapshot) or pod
        classes = [each[0] for each in corrected_classes(snapshot, subject, then) if each]
    for repairs in ([*named, *others], created):
        if not advisor.propose(*repairs) and classes:
            advisor.propose(*repairs, *classes)


def _named(snapshot: ClusterSnapshot, subject: Subject, right: dict[str, str]) -> Repair:
    """The pod with other claims in place of these."""
    text = " and ".join(f"claimName: {near} instead of {name}" for name, near in right.items())
    return repair(f"set {text}", "UseClaim", spec_changes(snapshot, subject, _naming(right)))


def _naming(right: dict[str, str]) -> Callable[[Raw], Raw]:
    """The volumes with other claims in place of these."""

    def edit(spec: Raw) -> Raw:
        volumes = copy.deepcopy(spec.get("volumes") or [])
        for source in (each.get("persistentVolumeClaim") or {} for each in volumes):
            if (name := source.get("claimName")) in right:
                source["claimName"] = right[name]
        return {"volumes": volumes}

    return edit


def _not_bound(snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor) -> Iterator[str]:
    """Claims whose volumes are bound, or made, without regard to a pod. A storage class serves all
    claims of a workload, and a volume one of them: these are different changes."""
    ways: list[list[ClaimBinding]] = []
    for name, spec in _unbound(snapshot, pod):
        kind = spec.get("storageClassName") or ""
        known = missing_class(snapshot, kind)
        hint = "" if known is None else f", which does not exist{did_you_mean(kind, known)}"
        yield f"claim {name} is not bound yet (storage class {kind or '(none)'}{hint})"
        if unsuitable := unsuitable_volumes(snapshot, name, pod.namespace):
            yield f"of the volumes of its class, {few(unsuitable, _VOLUMES)}"
        ways.append(ways_to_a_volume(snapshot, pod, name, spec))
    unbound = [name for name, _ in _unbound(snapshot, pod)]
    for name in unbound if len(unbound) == 1 else ():
        smaller = smaller_bound_claim(snapshot, Subject.of(pod), name, pod.namespace)
        if smaller is not None:
            advisor.propose(smaller)
    tried: list[list[ClaimBinding]] = []
    for at in range(max(map(len, ways), default=0)):
        together = [each[min(at, len(each) - 1)] for each in ways]
        if together not in tried:
            tried.append(together)
            text = " and ".join(dict.fromkeys(each.text for each in together))
            objects = [change for each in together for change in each.objects]
            advisor.propose(repair(text, together[0].action, list(_once(objects))))


def _once(changes: Iterable[ObjectChange]) -> Iterator[ObjectChange]:
    """The changes, each of them once: two claims may need the same storage class."""
    seen: list[ObjectChange] = []
    for each in changes:
        if each not in seen:
            seen.append(each)
            yield each


# Volumes


def _no_volume(snapshot: ClusterSnapshot, pod: PodRecord, name: str, advisor: Advisor) -> Iterator[str]:
    """A claim that is bound to a volume which is gone."""
    for claim in claims_of(snapshot, pod):
        raw = snapshot.find(CLAIM, claim, pod.namespace)
        if raw is None or (raw.get("spec") or {}).get("volumeName") != name:
            continue
        lost = " (it is Lost)" if (raw.get("status") or {}).get("phase") == "Lost" else ""
        yield f"claim {claim} is bound to the PersistentVolume {name}, which does not exist{lost}"
        text = f"what {name} stored is lost"
        advisor.propose(_unnamed(snapshot, raw, text))


def consider_unreachable_volumes(snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor) -> None:
    """Claims whose volume is on a node that is gone."""
    for claim in claims_of(snapshot, pod):
        raw = snapshot.find(CLAIM, claim, pod.namespace)
        volume = str(((raw or {}).get("spec") or {}).get("volumeName") or "")
        if raw is not None and nodes_gone(snapshot, snapshot.find(VOLUME, volume) or {}):
            advisor.propose(_unnamed(snapshot, raw, f"what {volume} stored is lost"))


def _unnamed(snapshot: ClusterSnapshot, raw: Raw, remark: str = "") -> Repair:
    """The claim created again without its volume, and bound to another one. A claim is never bound to
    another volume otherwise."""
    name, namespace = raw["metadata"]["name"], raw["metadata"].get("namespace") or ""
    new = copy.deepcopy(raw)
    new["spec"].pop("volumeName", None)
    for each in _BOUND:
        (new["metadata"].get("annotations") or {}).pop(each, None)
    for each in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        new["metadata"].pop(each, None)
    new["status"] = {"phase": "Pending"}
    is_deleted = "deletionTimestamp" in raw["metadata"]
    text = f"once claim {name} is deleted" if is_deleted else f"delete claim {name}"
    bound = bound_claim(snapshot, name, namespace)
    if is_provisioned(snapshot, new["spec"]) or suitable_volumes(snapshot, name, namespace):
        bound = [each._replace(follows=True) for each in bound]
        text += ", " if is_deleted else " and "
        text += "create it again without volumeName, to be bound to another volume"
    else:
        kind = new["spec"].get("storageClassName")
        of_class = f"of storage class {kind}" if kind else "without a storage class"
        text += f", create it again without volumeName, and create a volume {of_class} for it"
    objects = [delete(CLAIM, name, namespace), create(CLAIM, new), *bound]
    text += f" ({remark})" if remark else ""
    return repair(text, "ReplaceClaim", objects, RESIZE)


# Claims that are bound to a volume, but for the last step


def _not_completed(snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor) -> Iterator[str]:
    """Claims that name a volume, and that the volume controller has not bound to it."""
    for name in claims_of(snapshot, pod):
        raw = snapshot.find(CLAIM, name, pod.namespace)
        to = str(((raw or {}).get("spec") or {}).get("volumeName") or "")
        if (
            raw is None
            or not to
            or BIND_COMPLETED_ANNOTATION in (raw["metadata"].get("annotations") or {})
        ):
            continue
        volume = snapshot.find(VOLUME, to)
        problem = _problem(snapshot, raw, volume, to)
        text = f"claim {name} is not bound: it names the volume {to}"
        completed = {"metadata": {"annotations": {BIND_COMPLETED_ANNOTATION: "yes"}}}
        if volume is None:
            yield f"{text}, which does not exist{problem}"
            made = bound_claim(snapshot, name, pod.namespace, to)
            advisor.propose(repair(f"create the PersistentVolume {to}", "CreateVolume", made))
            advisor.propose(_unnamed(snapshot, raw))
        elif problem:
            yield f"{text}, which {problem}"
            advisor.propose(_unnamed(snapshot, raw))
        elif (raw.get("status") or {}).get("phase") == "Bound":
            yield (
                f"claim {name} is not bound: {to} is bound to it, but it lacks the annotation "
                f"{BIND_COMPLETED_ANNOTATION}, which the volume controller of Kubernetes sets last"
            )
            fix = f"annotate claim {name} (kubectl annotate pvc {name} {BIND_COMPLETED_ANNOTATION}=yes)"
            advisor.propose(repair(fix, "Annotate", [patch(CLAIM, raw, completed)]))
        else:
            yield f"{text}, which is available: the volume controller of Kubernetes binds them"
            body = completed | {"status": {"phase": "Bound"}}
            wait = f"wait until the volume controller binds claim {name} to {to}"
            objects = [patch(CLAIM, raw, body, follows=True)]
            advisor.propose(repair(wait, "BindClaims", objects))


def _is_for(volume: Raw, claim: Raw) -> bool:
    """Whether the volume is bound to the claim, or kept for it."""
    reference, metadata = (volume.get("spec") or {}).get("claimRef") or {}, claim["metadata"]
    own = metadata["name"], metadata.get("namespace") or ""
    is_same = reference.get("uid") in (None, "", metadata.get("uid"))
    return (reference.get("name"), reference.get("namespace")) == own and is_same


def _problem(snapshot: ClusterSnapshot, claim: Raw, volume: Raw | None, name: str) -> str:
    """Why the volume that a claim names cannot be bound to it; empty if it can."""
    if volume is None:
        return did_you_mean(name, [each["metadata"]["name"] for each in snapshot.all(VOLUME)])
    spec = volume.get("spec") or {}
    if (reference := spec.get("claimRef")) and not _is_for(volume, claim):
        whose = f"{reference.get('namespace')}/{reference.get('name')}"
        own = f"{claim['metadata'].get('namespace')}/{claim['metadata']['name']}"
        return f"is bound to {'an earlier claim of this name' if whose == own else f'claim {whose}'}"
    phase = (volume.get("status") or {}).get("phase") or "Available"
    if phase in ("Released", "Failed"):
        return f"is {phase}, not Available"
    wanted, has = claim["spec"].get("storageClassName") or "", spec.get("storageClassName") or ""
    if wanted != has:
        return f"has storage class {has or '(none)'}, not {wanted or '(none)'}"
    metadata = claim["metadata"]
    return unsuitable(snapshot, metadata["name"], metadata.get("namespace") or "", name)


def _deleted(snapshot: ClusterSnapshot, pod: PodRecord, name: str, advisor: Advisor) -> Iterator[str]:
    raw = snapshot.find(CLAIM, name, pod.namespace)
    if raw is None:
        return
    users = [
        other
        for other in snapshot.cluster.pods.values()
        if other.row >= 0 and other.namespace == pod.namespace and name in claims_of(snapshot, other)
    ]
    finalizers = raw["metadata"].get("finalizers") or []
    until = f" until {pods_text(users)} have ended" if users else ""
    kept = f"; its finalizers keep it{until}: {few(finalizers)}" if finalizers else ""
    yield f"claim {name} is being deleted, and no further pod may use it{kept}"
    advisor.propose(_unnamed(snapshot, raw))


def _not_created(
    snapshot: ClusterSnapshot, subject: Subject, name: str, advisor: Advisor
) -> Iterator[str]:
    """The claim of a generic ephemeral volume, which a controller makes for the pod."""
    if subject.info is not POD:
        return
    raw = subject.raw(snapshot)
    yield (
        f"claim {name} of its ephemeral volume does not exist yet: the ephemeral volume controller of "
        "Kubernetes creates it"
    )
    for claim in ephemeral_claims(snapshot, raw):
        if claim["metadata"]["name"] != name:
            continue
        made = [each._replace(follows=True) for each in provisioned(snapshot, claim)]
        text = f"wait until the ephemeral volume controller creates claim {name}"
        advisor.propose(repair(text, "CreateClaim", made))
