"""ResourceClaims that the controller of Kubernetes creates from ResourceClaimTemplates for pods."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.api.kinds import KINDS
from holdfast.api.names import RESOURCE_API
from holdfast.kube.object_client import Raw
from holdfast.snapshot.cluster_changes import ObjectChange, applied, create, patch
from holdfast.snapshot.cluster_objects import is_stored
from holdfast.snapshot.cluster_snapshot import POD, RESOURCE_CLAIM, ClusterSnapshot

CLAIM_TEMPLATE = KINDS[RESOURCE_API, "ResourceClaimTemplate"]


@contextmanager
def claims_created(snapshot: ClusterSnapshot) -> Iterator[None]:
    """Gives pods that no API server has stored their claims, as the controller would once they are
    created, until the end of the block. A stored pod without a claim waits for the controller."""
    changes: list[ObjectChange] = []
    for raw in snapshot.all(POD):
        spec, metadata = raw.get("spec") or {}, raw["metadata"]
        if is_stored(raw) or spec.get("nodeName") or not spec.get("resourceClaims"):
            continue
        specs = dict[str, Raw]()
        for name in {each.get("resourceClaimTemplateName") or "" for each in spec["resourceClaims"]}:
            template = snapshot.find(CLAIM_TEMPLATE, name, metadata.get("namespace") or "")
            if template is not None:
                specs[name] = (template.get("spec") or {}).get("spec") or {}
        changes += generated_claims(raw, specs)
    with applied(snapshot, changes):
        yield


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
