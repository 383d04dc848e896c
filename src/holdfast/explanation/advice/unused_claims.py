"""ResourceClaims that have devices and that no pod uses: those of the pod itself, which the scheduler
deallocates, and others, deleting which may help."""

from typing import NamedTuple

from holdfast.api.plurals import plural
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.repairs.repair import DELETE_RESERVATION, Repair, repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import NodeVerdicts
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.decisions import DeallocateClaim
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey
from holdfast.snapshot.cluster_changes import ObjectChange, delete, patch
from holdfast.snapshot.cluster_snapshot import RESOURCE_CLAIM, ClusterSnapshot

_CLAIMS_PLUGIN = "DynamicResources"
_TRIED = 20


class Deallocation(NamedTuple):
    """A claim that the scheduler deallocates for a pod, so that it can have other devices."""

    claim: str
    change: ObjectChange


def deallocation(
    snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts
) -> Deallocation | None:
    """The claim that the scheduler deallocates if it tries the pod; None if there is none, or pods are
    preempted."""
    if placing.column.rejected is not None or not any(each.name for each in pod.cls.claims):
        return None
    nomination = snapshot.scheduler.preemption.post_filter(placing.profile, pod, placing.column)
    for each in nomination.decisions if not nomination.node else ():
        if isinstance(each, DeallocateClaim):
            raw = snapshot.find(RESOURCE_CLAIM, each.claim.name, each.claim.namespace)
            body = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
            if raw is not None:
                return Deallocation(_key(raw), patch(RESOURCE_CLAIM, raw, body, follows=True))
    return None


def consider_unused_claims(
    snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, advisor: Advisor
) -> None:
    """Proposes to delete one such claim, or all of them if one is not enough."""
    if not any(each.plugin == _CLAIMS_PLUGIN for each in placing.rejections.values()):
        return
    own = {str(need.key) for need in snapshot.cluster.claims.of_class(pod.cls).claims}
    unused = [each for each in unused_claims(snapshot) if _key(each) not in own][:_TRIED]
    for claims in [*([each] for each in unused), *([unused] if len(unused) > 1 else [])]:
        if advisor.propose(deletion_of(claims)):
            return


def deletion_of(claims: list[Raw]) -> Repair:
    """Claims without pods are deleted."""
    objects = [
        delete(RESOURCE_CLAIM, each["metadata"]["name"], each["metadata"].get("namespace") or "")
        for each in claims
    ]
    claim = plural(len(claims), "the ResourceClaim")
    which = plural(len(claims), "it has devices", "they have devices")
    names = few([_key(each) for each in claims], 3)
    text = f"delete {claim} {names} ({which}, and no pod)"
    return repair(text, "DeleteClaim", objects, DELETE_RESERVATION)


def unused_claims(snapshot: ClusterSnapshot) -> list[Raw]:
    """Allocated claims that are reserved for nothing, those of reservations left out."""
    held = snapshot.cluster.claims.held
    found = []
    for raw in snapshot.all(RESOURCE_CLAIM):
        status, metadata = raw.get("status") or {}, raw["metadata"]
        key = ResourceClaimKey(metadata.get("namespace") or "", metadata["name"])
        if status.get("allocation") and not status.get("reservedFor") and held.get(key) is None:
            found.append(raw)
    return sorted(found, key=_key)


def _key(raw: Raw) -> str:
    metadata = raw["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata['name']}"
