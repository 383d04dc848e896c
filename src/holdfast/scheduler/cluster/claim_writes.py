"""What decisions about ResourceClaims write: new versions of raw objects.

Every executor writes these, each in its own way, after it has read the current object. Whatever became
of the claim since the decision is checked here, and reported in kube-scheduler's words.
"""

from typing import Any

import msgspec

from holdfast.api.decode import convert
from holdfast.api.errors import HoldfastError
from holdfast.api.names import CLAIM_FINALIZER, WORKLOAD_GROUP
from holdfast.api.quantity import parse_exact
from holdfast.api.resource_claims import AllocationResult, ResourceClaimSpec
from holdfast.scheduler.cluster.decisions import (
    CreateClaim,
    CreateHolder,
    DeallocateClaim,
    HoldDevices,
    ObjectRef,
    ReserveClaim,
    UnreserveClaim,
)

Raw = dict[str, Any]


class ClaimConflict(HoldfastError):
    """A ResourceClaim changed since the decision, so that it cannot be carried out."""


def with_finalizer(claim: Raw) -> Raw | None:
    """The claim with the finalizer that protects its allocation; None if it has it."""
    metadata = claim["metadata"]
    finalizers = metadata.get("finalizers") or []
    if CLAIM_FINALIZER in finalizers:
        return None
    return {**claim, "metadata": {**metadata, "finalizers": [*finalizers, CLAIM_FINALIZER]}}


def without_finalizer(claim: Raw) -> Raw | None:
    """The claim without that finalizer; None if it has none."""
    metadata = claim["metadata"]
    finalizers = metadata.get("finalizers") or []
    if CLAIM_FINALIZER not in finalizers:
        return None
    rest = [each for each in finalizers if each != CLAIM_FINALIZER]
    kept = {key: value for key, value in metadata.items() if key != "finalizers"}
    return {**claim, "metadata": {**kept, "finalizers": rest} if rest else kept}


def reserved_claim(claim: Raw | None, decision: ReserveClaim, now: str) -> Raw | None:
    """The claim with the allocation and the reservation for the pod; None if it has both. Raises
    ClaimConflict."""
    ref = decision.claim
    name = f"{ref.namespace}/{ref.name}"
    if claim is None or claim["metadata"].get("uid") != ref.uid:
        raise ClaimConflict(f"claim {name} got deleted in the meantime")
    if claim["metadata"].get("deletionTimestamp"):
        raise ClaimConflict(f"claim {name} got deleted in the meantime")
    status = claim.get("status") or {}
    allocation = status.get("allocation")
    if decision.allocation is not None:
        if allocation is None:
            allocation = written_allocation(decision.allocation, now)
        elif not is_same_allocation(allocation, decision.allocation):
            raise ClaimConflict(f"claim {name} got allocated elsewhere in the meantime")
    elif allocation is None:
        raise ClaimConflict(f"claim {name} got deallocated elsewhere in the meantime")
    elif decision.expected is not None and not is_same_allocation(allocation, decision.expected):
        raise ClaimConflict(f"claim {name} got allocated elsewhere in the meantime")
    consumers = status.get("reservedFor") or []
    if any(each.get("uid") == decision.consumer.uid for each in consumers):
        if status.get("allocation") is not None:
            return None
    else:
        consumers = [*consumers, consumer(decision.consumer)]
    return {**claim, "status": {**status, "allocation": allocation, "reservedFor": consumers}}


def allocated_claim(claim: Raw, decision: CreateClaim, now: str) -> Raw:
    """A claim that was just created, with its allocation and the reservation for its pod."""
    allocation = written_allocation(decision.allocation, now)
    return {**claim, "status": {"allocation": allocation, "reservedFor": [consumer(decision.pod)]}}


def new_claim(decision: CreateClaim | CreateHolder) -> Raw:
    """The claim to create, without its status."""
    raw = as_json(decision.claim)
    raw.pop("status", None)
    return with_finalizer(raw) or raw


def unreserved_claim(claim: Raw, decision: UnreserveClaim) -> Raw | None:
    """The claim without the reservation for the pod; None if it has none."""
    status = claim.get("status") or {}
    consumers = status.get("reservedFor") or []
    left = [each for each in consumers if each.get("uid") != decision.pod.uid]
    if len(left) == len(consumers):
        return None
    rest = {key: value for key, value in status.items() if key != "reservedFor"}
    return {**claim, "status": {**rest, "reservedFor": left} if left else rest}


def deallocated_claim(claim: Raw, decision: DeallocateClaim) -> Raw | None:
    """The claim without an allocation; None if it has none. Raises ClaimConflict if others use it."""
    status = claim.get("status") or {}
    if not status.get("allocation"):
        return None
    if not all(decision.is_consumer(each.get("uid")) for each in status.get("reservedFor") or ()):
        ref = decision.claim
        raise ClaimConflict(f"claim {ref.namespace}/{ref.name} is in use")
    rest = {
        key: value
        for key, value in status.items()
        if key not in ("allocation", "reservedFor", "devices")
    }
    return {**claim, "status": rest}


def holder_metadata(claim: Raw, decision: CreateHolder) -> Raw | None:
    """An existing claim with the annotation and the finalizer of the one with which a reservation holds
    devices; None if it has both. Raises ClaimConflict if it cannot be that one."""
    wanted, meta = new_claim(decision), claim["metadata"]
    name = f"{wanted['metadata']['namespace']}/{wanted['metadata']['name']}"
    owners = meta.get("ownerReferences") or ()
    if all(owner.get("uid") != decision.reservation.uid for owner in owners):
        raise ClaimConflict(f"claim {name} exists and does not belong to {decision.reservation}")
    if meta.get("deletionTimestamp"):
        raise ClaimConflict(f"claim {name} is being deleted")
    if _without_defaults(claim.get("spec")) != _without_defaults(wanted.get("spec")):
        raise ClaimConflict(f"claim {name} exists with other requests")
    annotations = {**(meta.get("annotations") or {}), **wanted["metadata"]["annotations"]}
    changed = {**claim, "metadata": {**meta, "annotations": annotations}}
    protected = with_finalizer(changed)
    if protected is not None:
        return protected
    return None if annotations == meta.get("annotations") else changed


def _without_defaults(spec: Any) -> Any:
    """A spec as the scheduler reads it, so that defaults which the server adds make no difference."""
    return convert(spec or {}, ResourceClaimSpec)


def held_claims(claim: Raw, decision: HoldDevices | CreateHolder, now: str) -> list[Raw]:
    """The versions to write of a claim with which a reservation holds devices, one after the other;
    none if it has the allocation already, or somebody uses it."""
    status = claim.get("status") or {}
    allocation, wanted = status.get("allocation"), decision.allocation
    if status.get("reservedFor") or claim["metadata"].get("deletionTimestamp"):
        return []
    if (
        allocation
        and wanted is not None
        and is_same_allocation(allocation, wanted)
        and _consumed(allocation) == _consumed(as_json(wanted))
    ):
        return []
    versions = []
    if allocation:
        status = {key: value for key, value in status.items() if key not in ("allocation", "devices")}
        versions.append({**claim, "status": status})
    if wanted is not None:
        written = written_allocation(wanted, now)
        versions.append({**claim, "status": {**status, "allocation": written}})
    return versions


def written_allocation(allocation: AllocationResult, now: str) -> Raw:
    raw = as_json(allocation)
    raw["allocationTimestamp"] = now
    return raw


def is_same_allocation(written: Raw, decided: AllocationResult) -> bool:
    """Whether a claim has the devices that were decided on."""

    def device(result: Raw) -> tuple[Any, ...]:
        names = ("request", "driver", "pool", "device", "shareID", "adminAccess")
        return tuple(result.get(name) or None for name in names)

    results = (written.get("devices") or {}).get("results") or []
    ours = as_json(decided)["devices"].get("results") or []
    return [device(each) for each in results] == [device(each) for each in ours]


def _consumed(allocation: Raw) -> list[dict[str, int]]:
    """What an allocation consumes of devices that are shared, in nano."""
    results = (allocation.get("devices") or {}).get("results") or []
    capacities = (result.get("consumedCapacity") or {} for result in results)
    return [{name: parse_exact(value) for name, value in each.items()} for each in capacities]


def as_json(value: msgspec.Struct) -> Raw:
    """A typed value as an object has it: with lists, and never tuples."""
    raw: Raw = msgspec.json.decode(msgspec.json.encode(value))
    return raw


def consumer(of: ObjectRef) -> Raw:
    """A pod or a PodGroup as `reservedFor` has it."""
    if of.kind == "PodGroup":
        return {"apiGroup": WORKLOAD_GROUP, "resource": "podgroups", "name": of.name, "uid": of.uid}
    return {"resource": "pods", "name": of.name, "uid": of.uid}
