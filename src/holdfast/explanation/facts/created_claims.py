"""Claims that controllers of Kubernetes create for pods: ResourceClaims from templates, and those of
generic ephemeral volumes."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from holdfast.api.kinds import KINDS
from holdfast.api.names import BIND_COMPLETED_ANNOTATION, RESOURCE_API
from holdfast.explanation.facts.pod_owners import controller_of
from holdfast.kube.object_client import Raw
from holdfast.snapshot.cluster_changes import ObjectChange, applied, create, delete, patch
from holdfast.snapshot.cluster_objects import is_stored
from holdfast.snapshot.cluster_snapshot import POD, RESOURCE_CLAIM, ClusterSnapshot

CLAIM_TEMPLATE = KINDS[RESOURCE_API, "ResourceClaimTemplate"]
_CLAIM, _VOLUME = KINDS["v1", "PersistentVolumeClaim"], KINDS["v1", "PersistentVolume"]
_STORAGE_CLASS = KINDS["storage.k8s.io/v1", "StorageClass"]
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


@contextmanager
def claims_created(snapshot: ClusterSnapshot) -> Iterator[None]:
    """Gives pods that no API server has stored their claims, as the controller would once they are
    created, until the end of the block. A stored pod without a claim waits for the controller."""
    changes: list[ObjectChange] = []
    for raw in snapshot.all(POD):
        spec = raw.get("spec") or {}
        if not is_stored(raw) and not spec.get("nodeName"):
            changes += claims_of_new_pod(snapshot, raw)
    with applied(snapshot, changes):
        yield


def claims_of_new_pod(snapshot: ClusterSnapshot, raw: Raw) -> list[ObjectChange]:
    """The claims of a pod from the templates that it names."""
    namespace, specs = raw["metadata"].get("namespace") or "", dict[str, Raw]()
    for entry in (raw.get("spec") or {}).get("resourceClaims") or ():
        name = entry.get("resourceClaimTemplateName") or ""
        template = snapshot.find(CLAIM_TEMPLATE, name, namespace)
        if template is not None:
            specs[name] = (template.get("spec") or {}).get("spec") or {}
    return generated_claims(raw, specs)


def created_pods(snapshot: ClusterSnapshot, pods: Iterable[Raw]) -> Iterator[ObjectChange]:
    """The creation of pods by the controller of their workload, with the claims that each gets."""
    for raw in pods:
        yield create(POD, raw, follows=True)
        yield from claims_of_new_pod(snapshot, raw)
        for claim in ephemeral_claims(snapshot, raw):
            yield from (each._replace(follows=True) for each in provisioned(snapshot, claim))


def claims_from_templates(raw: Raw) -> dict[str, str]:
    """The claims that a pod has from templates: by the name of the claim, that of the template."""
    statuses = (raw.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {each.get("name"): each.get("resourceClaimName") or "" for each in statuses}
    entries = (raw.get("spec") or {}).get("resourceClaims") or ()
    return {
        made[each["name"]]: each["resourceClaimTemplateName"]
        for each in entries
        if each.get("resourceClaimTemplateName") and made.get(each["name"])
    }


def generated_claims(raw: Raw, specs: dict[str, Raw]) -> list[ObjectChange]:
    """The claims of a pod from templates with these specs, by name, as far as it has none yet."""
    metadata, found = raw["metadata"], list[ObjectChange]()
    statuses = list((raw.get("status") or {}).get("resourceClaimStatuses") or ())
    has = {each.get("name") for each in statuses}
    for entry in (raw.get("spec") or {}).get("resourceClaims") or ():
        spec = specs.get(entry.get("resourceClaimTemplateName") or "")
        if spec is None or entry["name"] in has:
            continue
        name = f"{metadata['name']}-{entry['name']}"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "controller": True}
        about_claim = {
            "name": name,
            "namespace": metadata.get("namespace") or "",
            "uid": f"claim-{name}",
            "ownerReferences": [{**owner, "uid": metadata.get("uid") or ""}],
        }
        claim = {
            "apiVersion": RESOURCE_API,
            "kind": "ResourceClaim",
            "metadata": about_claim,
            "spec": spec,
        }
        found.append(create(RESOURCE_CLAIM, claim, follows=True))
        statuses.append({"name": entry["name"], "resourceClaimName": name})
    body = {"status": {"resourceClaimStatuses": statuses}}
    return [*found, patch(POD, raw, body)] if found else []


def ephemeral_claims(snapshot: ClusterSnapshot, pod: Raw, again: bool = False) -> list[Raw]:
    """The claims of the pod's generic ephemeral volumes, as far as they do not exist; or `again`."""
    metadata, found = pod["metadata"], []
    namespace = metadata.get("namespace") or ""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "controller": True}
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        name = f"{metadata['name']}-{volume['name']}"
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
        if not template or (not again and snapshot.find(_CLAIM, name, namespace) is not None):
            continue
        spec = dict(template.get("spec") or {})
        if spec.get("storageClassName") is None and (default := _default_class(snapshot)):
            spec["storageClassName"] = default
        about = {
            "name": name,
            "namespace": namespace,
            "uid": f"claim-{name}",
            "ownerReferences": [{**owner, "uid": metadata.get("uid") or ""}],
        }
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about}
        found.append({**claim, "spec": spec, "status": {"phase": "Pending"}})
    return found


def own_claims(snapshot: ClusterSnapshot, pod: Raw) -> list[ObjectChange]:
    """The deletion of the claims of the pod's generic ephemeral volumes, which go with it."""
    namespace, uid = pod["metadata"].get("namespace") or "", pod["metadata"].get("uid")
    names = (each["metadata"]["name"] for each in ephemeral_claims(snapshot, pod, again=True))
    found = ((name, snapshot.find(_CLAIM, name, namespace)) for name in names)
    return [
        delete(_CLAIM, name, namespace)
        for name, claim in found
        if claim is not None and controller_of(claim).get("uid") == uid
    ]


def _default_class(snapshot: ClusterSnapshot) -> str:
    """The storage class of claims that name none; empty if there is no default."""
    for raw in snapshot.all(_STORAGE_CLASS):
        if (raw["metadata"].get("annotations") or {}).get(_IS_DEFAULT) == "true":
            return str(raw["metadata"]["name"])
    return ""


def provisioned(snapshot: ClusterSnapshot, claim: Raw) -> list[ObjectChange]:
    """The creation of a claim, and of a volume if the provisioner of its class makes one at once."""
    spec, metadata = claim["spec"], claim["metadata"]
    kind = snapshot.find(_STORAGE_CLASS, spec.get("storageClassName") or "") or {}
    waits = kind.get("volumeBindingMode") == "WaitForFirstConsumer"
    if waits or spec.get("volumeName") or kind.get("provisioner") in (None, "", _NO_PROVISIONER):
        return [create(_CLAIM, claim)]
    namespace = metadata.get("namespace") or ""
    name = f"volume-for-{namespace}-{metadata['name']}"
    reference = {"kind": "PersistentVolumeClaim", "name": metadata["name"], "namespace": namespace}
    volume: Raw = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": name},
        "spec": {
            "capacity": dict((spec.get("resources") or {}).get("requests") or {}),
            "accessModes": spec.get("accessModes") or [],
            "volumeMode": spec.get("volumeMode") or "Filesystem",
            "storageClassName": spec["storageClassName"],
            "claimRef": {**reference, "uid": metadata.get("uid") or ""},
            "hostPath": {"path": f"/var/lib/{name}"},
        },
        "status": {"phase": "Bound"},
    }
    annotations = {**(metadata.get("annotations") or {}), BIND_COMPLETED_ANNOTATION: "yes"}
    bound = {
        **claim,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**spec, "volumeName": name},
        "status": {"phase": "Bound"},
    }
    return [create(_VOLUME, volume), create(_CLAIM, bound)]
