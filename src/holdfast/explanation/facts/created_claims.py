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
