"""How a PersistentVolumeClaim gets a volume: made by a storage class, which serves all claims of a
workload, or created by hand for this claim."""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.names import DEFAULT_STORAGE_CLASS_ANNOTATION
from holdfast.explanation.facts.pod_owners import controller_of
from holdfast.explanation.repairs.claim_volumes import (
    NO_PROVISIONER,
    is_provisioned,
    missing_class,
)
from holdfast.explanation.repairs.repair import CLAIM, STORAGE_CLASS, bound_claim
from holdfast.kube.object_client import Raw
from holdfast.local.workloads.replica_set import wanted_replicas
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import ObjectChange, applied, create, patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_PROVISIONER, _DEFAULT = "PROVISIONER", "standard"
"""What stands for the provisioner of a storage class, and the name of a default class."""
_STATEFUL_SET = KINDS["apps/v1", "StatefulSet"]
_MOST_REPLICAS = 500
_WAITS = "WaitForFirstConsumer"


class ClaimBinding(NamedTuple):
    """How a claim gets a volume."""

    text: str
    action: str
    objects: list[ObjectChange]


def ways_to_a_volume(
    snapshot: ClusterSnapshot, pod: PodRecord, claim: str, spec: Raw
) -> list[ClaimBinding]:
    """How a claim gets a volume: made by its storage class, if that can, or by hand."""
    kind, by_hand = spec.get("storageClassName"), bound_claim(snapshot, claim, pod.namespace)
    if kind and missing_class(snapshot, kind) is not None:
        made = [create(STORAGE_CLASS, _storage_class(kind))]
        text = f"create StorageClass {kind}, with a provisioner"
        return [
            ClaimBinding(text, "CreateStorageClass", made),
            ClaimBinding(
                f"create a volume of storage class {kind} for claim {claim}", "BindClaims", by_hand
            ),
        ]
    if kind == "":
        text = f"create a volume without a storage class for claim {claim}"
        return [ClaimBinding(text, "BindClaims", by_hand)]
    if not kind:
        by_class = _default_class(snapshot, pod)
        text = f"name a storage class in claim {claim}, or create a volume for it"
        return [*by_class, ClaimBinding(text, "BindClaims", by_hand)]
    if not is_provisioned(snapshot, spec):
        text = f"create a volume of storage class {kind} for claim {claim}"
        return [ClaimBinding(text, "BindClaims", by_hand)]
    provisioner = (snapshot.find(STORAGE_CLASS, kind) or {}).get("provisioner")
    text = (
        f"wait until {provisioner} has made a volume for claim {claim} (kubectl describe pvc {claim})"
    )
    return [ClaimBinding(text, "BindClaims", [*by_hand, *_bound_replicas(snapshot, pod, claim)])]


def bound_at_once(
    snapshot: ClusterSnapshot, pod: PodRecord, claim: str, made: list[ObjectChange]
) -> list[ObjectChange]:
    """The claim once these changes are made, and those of the other pods of its StatefulSet, bound, if
    its storage class makes volumes at once and not for pods."""
    with applied(snapshot, made):
        spec = (snapshot.find(CLAIM, claim, pod.namespace) or {}).get("spec") or {}
        kind = snapshot.find(STORAGE_CLASS, spec.get("storageClassName") or "") or {}
        if kind.get("volumeBindingMode") == _WAITS:
            return []
        own = [each._replace(follows=True) for each in bound_claim(snapshot, claim, pod.namespace)]
        return [*own, *_bound_replicas(snapshot, pod, claim)]


def _storage_class(name: str, annotations: Raw | None = None) -> Raw:
    return {
        "apiVersion": STORAGE_CLASS.api_version,
        "kind": STORAGE_CLASS.kind,
        "metadata": {"name": name, "uid": f"class-{name}", "annotations": annotations or {}},
        "provisioner": _PROVISIONER,
        "volumeBindingMode": _WAITS,
    }


def _default_class(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[ClaimBinding]:
    """A default storage class, which the API server sets in claims without one, also in those that
    exist."""
    annotated: Raw = {DEFAULT_STORAGE_CLASS_ANNOTATION: "true"}
    usable = [raw for raw in snapshot.all(STORAGE_CLASS) if _makes_volumes(raw)]
    if usable:
        name = usable[0]["metadata"]["name"]
        made = patch(STORAGE_CLASS, usable[0], {"metadata": {"annotations": annotated}})
        text = f"make StorageClass {name} the default one ({DEFAULT_STORAGE_CLASS_ANNOTATION}=true)"
    else:
        name, text = _DEFAULT, "create a default StorageClass, with a provisioner"
        made = create(STORAGE_CLASS, _storage_class(_DEFAULT, annotated))
    named: Raw = {"spec": {"storageClassName": name}}
    follows = [
        patch(CLAIM, raw, named, follows=True)
        for raw in snapshot.all(CLAIM)
        if (raw.get("spec") or {}).keys().isdisjoint(("storageClassName", "volumeName"))
    ]
    if (owner := _claiming_set(snapshot, pod)) is not None:
        templates = [
            {**each, "spec": {"storageClassName": name, **each["spec"]}}
            for each in owner["spec"].get("volumeClaimTemplates") or ()
        ]
        follows.append(
            patch(_STATEFUL_SET, owner, {"spec": {"volumeClaimTemplates": templates}}, follows=True)
        )
    yield ClaimBinding(text, "CreateStorageClass", [made, *follows])


def _makes_volumes(raw: Raw) -> bool:
    """Whether the storage class makes a volume for a claim once its pod has a node."""
    is_made = raw.get("provisioner") not in (None, "", NO_PROVISIONER)
    return is_made and raw.get("volumeBindingMode") == _WAITS


def _claiming_set(snapshot: ClusterSnapshot, pod: PodRecord) -> Raw | None:
    """The StatefulSet of the pod."""
    owner = controller_of(snapshot.find(POD, pod.name, pod.namespace) or {"metadata": {}})
    if owner.get("kind") != _STATEFUL_SET.kind:
        return None
    return snapshot.find(_STATEFUL_SET, owner["name"], pod.namespace)


def _bound_replicas(snapshot: ClusterSnapshot, pod: PodRecord, claim: str) -> Iterator[ObjectChange]:
    """The claims of the other pods of the StatefulSet from the same template, bound."""
    owner = _claiming_set(snapshot, pod) or {"metadata": {"name": ""}}
    name, spec = owner["metadata"]["name"], owner.get("spec") or {}
    for template in spec.get("volumeClaimTemplates") or ():
        prefix = f"{template['metadata']['name']}-{name}-"
        first = int((spec.get("ordinals") or {}).get("start") or 0)
        count = min(wanted_replicas(owner), _MOST_REPLICAS)
        others = (
            [f"{prefix}{at}" for at in range(first, first + count)] if claim.startswith(prefix) else []
        )
        for other in others:
            known = snapshot.find(CLAIM, other, pod.namespace) or {}
            if other != claim and not (known.get("spec") or {}).get("volumeName"):
                made = bound_claim(snapshot, other, pod.namespace, spec=template.get("spec"))
                yield from (each._replace(follows=True) for each in made)
