"""Which ResourceClaims pods and PodGroups name, who owns a claim, and for whom it is reserved.

Functions of raw objects. A pod names claims by entries of `resourceClaims`. If its PodGroup has the
same entry, the claim is the group's: one for all members, owned by the group and reserved for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.api import names
from holdfast.api.raw_objects import Key, Raw
from holdfast.local.store.objects import POD

GROUP = names.RESOURCE_API.partition("/")[0]
CLAIM = (GROUP, "ResourceClaim")
TEMPLATE = (GROUP, "ResourceClaimTemplate")
SLICE = (GROUP, "ResourceSlice")
RULE = (GROUP, "DeviceTaintRule")
POD_GROUP = (names.WORKLOAD_GROUP, "PodGroup")
_OWNER_API = {POD: "v1", POD_GROUP: names.WORKLOAD_API}
_ENTRY = ("name", "resourceClaimName", "resourceClaimTemplateName")


def claim_key(namespace: str, name: str) -> Key:
    return Key(*CLAIM, namespace, name)


def entries(user: Raw) -> list[Raw]:
    """The entries of `resourceClaims` of a pod or PodGroup."""
    return user["spec"].get("resourceClaims") or []


def has_claims(pod: Raw) -> bool:
    return bool(entries(pod)) or "extendedResourceClaimStatus" in pod["status"]


def claim_names(user: Raw) -> Iterator[tuple[Raw, str | None, bool]]:
    """The entries of a pod or PodGroup with the name of the claim, and whether it is known: one of a
    template is created later, or is not needed and then has no name."""
    made = {
        each["name"]: each.get("resourceClaimName")
        for each in (user.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    for entry in entries(user):
        name = entry.get("resourceClaimName")
        if name is not None:
            yield entry, name, True
        else:
            yield entry, made.get(entry["name"]), entry["name"] in made


def used_claims(user: Raw) -> Iterator[tuple[str, bool]]:
    """The names of the claims of a pod or PodGroup, and whether each must be owned by it, or by the
    group of the pod."""
    for entry, name, _ in claim_names(user):
        if name is not None:
            yield name, entry.get("resourceClaimName") is None
    extended = (user.get("status") or {}).get("extendedResourceClaimStatus")
    if extended is not None:
        yield extended.get("resourceClaimName", ""), True


def references(user: Raw) -> tuple[Key, ...]:
    """The claims and templates that a pod or PodGroup names."""
    namespace = user["metadata"]["namespace"]
    claims = [claim_key(namespace, name) for name, _ in used_claims(user)]
    templates = [
        Key(*TEMPLATE, namespace, entry["resourceClaimTemplateName"])
        for entry in entries(user)
        if entry.get("resourceClaimTemplateName") is not None
    ]
    return tuple(dict.fromkeys((*claims, *templates)))


# PodGroups


def group_key(pod: Raw) -> Key | None:
    """The PodGroup of `scheduling.k8s.io` that a pod belongs to."""
    name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return Key(*POD_GROUP, pod["metadata"]["namespace"], name) if name else None


def is_shared(entry: Raw, group: Raw | None) -> bool:
    """Whether the claim of a pod's entry is that of the pod's PodGroup."""
    if group is None:
        return False
    wanted = [entry.get(field) for field in _ENTRY]
    return any([each.get(field) for field in _ENTRY] == wanted for each in entries(group))


# Owners and consumers


def owner_reference(kind: tuple[str, str], owner: Raw) -> Raw:
    """The reference of a claim to the pod or PodGroup that it was created for."""
    metadata = owner["metadata"]
    return {
        "apiVersion": _OWNER_API[kind],
        "kind": kind[1],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def owner_of(claim: Raw | None) -> Raw | None:
    """The reference of a claim to a pod or PodGroup that it was created for."""
    for owner in (claim or {}).get("metadata", {}).get("ownerReferences") or ():
        if owner.get("controller") and _owner_kind(owner) is not None:
            found: Raw = owner
            return found
    return None


def owner_key(namespace: str, owner: Raw) -> Key:
    kind = _owner_kind(owner)
    assert kind is not None
    return Key(*kind, namespace, owner.get("name", ""))


def _owner_kind(owner: Raw) -> tuple[str, str] | None:
    group = owner.get("apiVersion", "").rpartition("/")[0]
    kind = (group, owner.get("kind", ""))
    if kind == POD and owner.get("apiVersion") == "v1":
        return POD
    return POD_GROUP if kind == POD_GROUP else None


def is_owned_by(claim: Raw, pod: Raw) -> bool:
    """Whether a claim was created for a pod, or for its PodGroup: which, a pod knows by name only."""
    owner = owner_of(claim)
    if owner is None:
        return False
    if owner.get("uid") == pod["metadata"]["uid"]:
        return True
    return owner_key(pod["metadata"]["namespace"], owner) == group_key(pod)


def is_reserved_for(claim: Raw, pod: Raw) -> bool:
    """Whether a pod may use a claim: it is reserved for the pod or for its PodGroup."""
    group = group_key(pod)
    return any(
        each.get("uid") == pod["metadata"]["uid"]
        or (is_group(each) and group is not None and each.get("name") == group.name)
        for each in (claim.get("status") or {}).get("reservedFor") or ()
    )


def is_group(consumer: Raw) -> bool:
    """Whether a consumer of a claim is a PodGroup of `scheduling.k8s.io`."""
    return (consumer.get("apiGroup"), consumer.get("resource")) == (names.WORKLOAD_GROUP, "podgroups")
