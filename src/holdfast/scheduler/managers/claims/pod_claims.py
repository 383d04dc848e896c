"""Which ResourceClaims pods name, and what of them is part of a pod's class."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from holdfast.api.meta import ObjectMeta, controller_of
from holdfast.api.names import RESERVATION_API, WORKLOAD_GROUP
from holdfast.api.pod import Pod, PodResourceClaim
from holdfast.api.pod_groups import CorePodGroup
from holdfast.api.resource_claims import ResourceClaim, ResourceClaimSpec, pod_claim_name
from holdfast.scheduler.cluster.pod_classes import ClaimTrait

NOT_CREATED = 'pod "{}": ResourceClaim not created yet'
NOT_FOUND = 'could not find ResourceClaim "{}"'
BEING_DELETED = 'resourceclaim "{}" is being deleted'
NO_TEMPLATE = 'could not find ResourceClaimTemplate "{}"'
NOT_OWNER = "ResourceClaim {} was not created for Pod {} ({})"
OF_RESERVATION = 'resourceclaim "{}" holds devices of reservation "{}" and is not for pods'
POD_IS_NOT = "Pod is not owner"
NEITHER_IS = "neither Pod nor PodGroup {} is the owner"

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(ResourceClaimSpec).decode


class ResourceClaimKey(NamedTuple):
    """The name of a ResourceClaim."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClaimEntry(NamedTuple):
    """An entry of `resourceClaims` as a pod or a PodGroup has it."""

    name: str
    claim: str | None
    template: str | None


class PodClaim(NamedTuple):
    """An entry of a pod's `resourceClaims`, and the claim behind it."""

    name: str | None
    """None if the claim is not created yet, or not needed."""
    is_created: bool
    is_generated: bool
    """Whether it comes from a template, and so must belong to the pod or to its PodGroup."""
    entry: ClaimEntry


class NamedClaims(NamedTuple):
    """The claims that a pod names."""

    namespace: str
    claims: tuple[PodClaim, ...]
    group: str = ""
    """The PodGroup of `scheduling.k8s.io` that the pod belongs to."""

    def needed(self) -> list[ResourceClaimKey]:
        """Those that the pod needs, in order; they correspond to `PodClass.claims`."""
        return [ResourceClaimKey(self.namespace, each.name) for each in self.claims if each.name]


class PodClaimIndex:
    """The claims of each known pod, by its uid."""

    def __init__(self, claims: Mapping[ResourceClaimKey, ResourceClaim]) -> None:
        """`claims` are those that exist."""
        self._claims = claims
        self._of: dict[str, NamedClaims] = {}
        self._pods: dict[ResourceClaimKey, dict[str, None]] = {}

    def see(self, pod: Pod) -> bool:
        """Reads which claims a pod names; whether that changed."""
        meta = pod.metadata
        found = ((pod_claim_name(pod, each), _entry_of_pod(each)) for each in pod.spec.resource_claims)
        named = _distinct(
            PodClaim(each.name, each.created, each.generated, entry) for each, entry in found
        )
        group = pod.spec.scheduling_group
        claims = NamedClaims(meta.namespace, named, (group and group.pod_group_name) or "")
        before = self._of.get(meta.uid)
        if claims == before:
            return False
        self.forget(meta.uid)
        self._of[meta.uid] = claims
        for key in self.keys(meta.uid):
            self._pods.setdefault(key, {})[meta.uid] = None
        return before is not None

    def forget(self, uid: str) -> None:
        claims = self._of.pop(uid, None)
        for key in claims.needed() if claims is not None else ():
            pods = self._pods[key]
            pods.pop(uid, None)
            if not pods:
                del self._pods[key]

    def keys(self, uid: str) -> list[ResourceClaimKey]:
        """The claims that a pod needs, in order."""
        claims = self._of.get(uid)
        return claims.needed() if claims is not None else []

    def group(self, uid: str) -> str:
        """The PodGroup that a pod belongs to, if it has claims."""
        claims = self._of.get(uid)
        return claims.group if claims is not None else ""

    def entry(self, uid: str, key: ResourceClaimKey) -> ClaimEntry | None:
        """The entry by which a pod names a claim."""
        claims = self._of.get(uid)
        named = claims.claims if claims is not None else ()
        return next((each.entry for each in named if each.name == key.name), None)

    def pods(self, key: ResourceClaimKey) -> Iterable[str]:
        """The uids of the pods that name a claim, in the order they were seen."""
        return list(self._pods.get(key, ()))

    def traits(self, metadata: ObjectMeta) -> tuple[ClaimTrait, ...]:
        """The claims of a pod that is to be scheduled, as part of its class."""
        known = self._of.get(metadata.uid)
        if known is None:
            return ()
        return tuple(
            self._trait(metadata, claim, known.group)
            for claim in known.claims
            if claim.name or not claim.is_created
        )

    def _trait(self, metadata: ObjectMeta, named: PodClaim, group: str) -> ClaimTrait:
        if not named.name:
            pod = f"{metadata.namespace}/{metadata.name}"
            return ClaimTrait(problem=NOT_CREATED.format(pod))
        key = ResourceClaimKey(metadata.namespace, named.name)
        claim = self._claims.get(key)
        if claim is None:
            return ClaimTrait(named.name, problem=NOT_FOUND.format(key))
        if problem := _problem(key, claim, metadata, named.is_generated, group):
            return ClaimTrait(named.name, problem=problem)
        if named.is_generated and claim.status.allocation is None and _owner_is(claim, metadata.uid):
            return ClaimTrait(spec=encoded(claim.spec))
        return ClaimTrait(named.name)


def _entry_of_pod(entry: PodResourceClaim) -> ClaimEntry:
    return ClaimEntry(entry.name, entry.resource_claim_name, entry.resource_claim_template_name)


def entries_of_group(group: CorePodGroup) -> list[ClaimEntry]:
    """The entries of a PodGroup. A pod's claim whose entry is the same is shared by the group."""
    return [
        ClaimEntry(
            each.get("name", ""), each.get("resourceClaimName"), each.get("resourceClaimTemplateName")
        )
        for each in group.spec.resource_claims
    ]


def _distinct(entries: Iterable[PodClaim]) -> tuple[PodClaim, ...]:
    """A claim that a pod has under several names counts once; as generated if one of them is."""
    found: dict[str | int, PodClaim] = {}
    for at, each in enumerate(entries):
        key = each.name or at
        known = found.get(key)
        found[key] = known if known is not None and known.is_generated else each
    return tuple(found.values())


def encoded(spec: ResourceClaimSpec) -> bytes:
    """A spec as part of a class."""
    return _encode(spec)


def decoded(spec: bytes) -> ResourceClaimSpec:
    return _decode(spec)


def _problem(
    key: ResourceClaimKey, claim: ResourceClaim, pod: ObjectMeta, is_generated: bool, group: str
) -> str:
    """Why a pod cannot use a claim; empty if it can."""
    if claim.metadata.deletion_timestamp is not None:
        return BEING_DELETED.format(key.name)
    if problem := held_by_reservation(claim):
        return problem
    if is_generated and not _owner_is(claim, pod.uid) and not _is_owned_by_group(claim, group):
        why = NEITHER_IS.format(group) if group else POD_IS_NOT
        return NOT_OWNER.format(key, f"{pod.namespace}/{pod.name}", why)
    return ""


def held_by_reservation(claim: ResourceClaim) -> str:
    """Why no pod can use a claim with which a reservation holds devices; empty for other claims."""
    owner = controller_of(claim.metadata)
    if owner is None or (owner.api_version, owner.kind) != (RESERVATION_API, "Reservation"):
        return ""
    return OF_RESERVATION.format(claim.metadata.name, owner.name)


def _owner_is(claim: ResourceClaim, uid: str) -> bool:
    owner = controller_of(claim.metadata)
    return owner is not None and owner.uid == uid


def _is_owned_by_group(claim: ResourceClaim, group: str) -> bool:
    """Whether it was created for the PodGroup of this name. A pod does not know the group's uid."""
    owner = controller_of(claim.metadata)
    return (
        bool(group)
        and owner is not None
        and owner.kind == "PodGroup"
        and owner.name == group
        and owner.api_version.startswith(f"{WORKLOAD_GROUP}/")
    )
