"""DynamicResources: filters nodes by the ResourceClaims of a pod, and allocates devices to them.

An allocated claim allows the nodes that its allocation's node selector allows. The claims that are not
allocated get devices together, all of them or none; which node can serve them is computed for a class
of pods at once. Devices are allocated when the pod is reserved, and written to the claims before the
pod is bound. Devices with binding conditions must be ready before that: the pod waits in Permit.

`holdfast.scheduler.managers.claims` keeps the claims and the devices in use.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.api.meta import Condition
from holdfast.api.resource_claims import (
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimSpec,
)
from holdfast.api.times import TimeError, parse_time
from holdfast.scheduler.cluster.decisions import (
    DeallocateClaim,
    Decision,
    DeleteClaim,
    Emit,
)
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_selectors import Mask, compile_terms
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import NONZERO_MEMORY
from holdfast.scheduler.cluster.view import All, Cells, View
from holdfast.scheduler.framework.config import DynamicResourcesArgs
from holdfast.scheduler.framework.config.plugin_sets import DYNAMIC_RESOURCES
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    FINE,
    ByMaximum,
    ClusterPlugin,
    Filter,
    Nomination,
    Outcome,
    Reason,
    Rejected,
    Scope,
    Score,
    Settled,
    Trial,
    Version,
    everywhere,
)
from holdfast.scheduler.managers.claims.allocation import CANNOT_ALLOCATE, INVALID_POOLS
from holdfast.scheduler.managers.claims.allocator import FEASIBLE, INVALID, NO_DEVICES, PROBLEM
from holdfast.scheduler.managers.claims.claim_reservations import claim_ref
from holdfast.scheduler.managers.claims.claim_state import DeviceWait
from holdfast.scheduler.managers.claims.claims_request import MAX_ALTERNATIVES
from holdfast.scheduler.managers.claims.extended_resources import is_extended_claim

NO_CLASS = "request {}: device class {} does not exist"
NOT_AVAILABLE = "resourceclaim not available on the node"
DEALLOCATED = "deallocation of ResourceClaim completed"
DELETED = "deletion of ResourceClaim completed"
NOT_READY = "waiting for binding conditions for device on node {}"
BINDING_FAILED = 'device binding failed: claim={}, reason={}, message="{}"'
_TIMED_OUT = "device binding timeout"
BINDING_TIMEOUT = _TIMED_OUT + ": claim={}"

_HOLDER_PATIENCE = 600.0
"""How long an owner waits for the claims of its reservation to be written, in seconds."""
_NOTHING = Nomination()


class DynamicResources(ClusterPlugin):
    name = DYNAMIC_RESOURCES
    wakes_on = (
        Change.NODE_ADDED
        | Change.NODE_LABELS
        | Change.NODE_ALLOCATABLE
        | Change.DEVICES
        | Change.DEVICE_CLASSES
    )

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        self._args = args if isinstance(args, DynamicResourcesArgs) else DynamicResourcesArgs()
        self._claims = self.cluster.claims
        self._claims.serves_extended = True

    def pre_enqueue(self, pod: PodRecord) -> str:
        for claim in pod.cls.claims:
            if claim.problem:
                return claim.problem
        return ""

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        claims, nodes = self._claims, self.cluster.nodes
        if not claims.concerns(cls):
            return self._until_served(cls)
        needs, version = claims.of_class(cls), self._version(cls)
        if needs.problem:
            return Rejected(needs.problem, version=version)
        for request in needs.requests():
            if request.missing_class is not None:
                return Rejected(NO_CLASS.format(*request.missing_class), version=version)
        allocated = [need for need in needs.claims if need.allocation is not None]
        masks = [self._usable_from(need.allocation, need.claim) for need in allocated]
        masks = [mask for mask in masks if mask is not everywhere]
        if not needs.needs_devices and not masks:
            return Filter.nothing(version)

        def passes(view: View) -> Cells:
            ok = claims.codes(needs, view, cls.pre_allocation) == FEASIBLE
            for mask in masks:
                ok = ok & mask(view)
            return ok

        def reasons(view: View) -> list[Reason]:
            found, here = claims.codes(needs, view, cls.pre_allocation), view.full(True)
            for mask in masks:
                here = here & mask(view)
            lowest = nodes.lowest_held if cls.is_reserve_pod else claims.lowest_consumers()
            helped = here & (view.take(lowest) < cls.priority)
            listed = [
                Reason(CANNOT_ALLOCATE, found == NO_DEVICES, resolvable=helped),
                Reason(INVALID_POOLS, found == INVALID, resolvable=helped),
                Reason(NOT_AVAILABLE, (found == FEASIBLE) & view.negate(here), resolvable=False),
            ]
            problem = found == PROBLEM
            if np.any(problem):
                text = claims.why_invalid(cls, needs, _first_row(view, problem))
                listed.append(Reason(text, problem, resolvable=False, error=True))
            return listed

        return Filter(passes, reasons, Scope.USAGE, version=version, lasting=everywhere)

    def _until_served(self, cls: PodClass) -> Filter | None:
        """Nothing to check for a class without claims, until a device class serves a resource that it
        requests."""
        claims, slots = self._claims, self.cluster.nodes.slots
        resources = [slots.name(slot) for slot, _ in cls.requests if slot > NONZERO_MEMORY]
        if not resources:
            return None
        return Filter.nothing(
            Settled(lambda: any(resource in claims.extended for resource in resources))
        )

    def _version(self, cls: PodClass) -> Version:
        """Changes with device classes, slices and, where devices are shared by nodes, their use; and
        with the claims of the class that count by name."""
        claims, catalogue = self._claims, self._claims.catalogue
        if not any(claim.name for claim in cls.claims):
            return lambda: (catalogue.class_version, catalogue.structure, claims.shared_changes)
        timed = [need for need in claims.of_class(cls).claims if _awaits_devices(need.claim)]

        def version() -> tuple[Any, ...]:
            late = [self._has_timed_out(need.claim) for need in timed]
            return catalogue.structure, claims.shared_changes, claims.version(cls), *late

        return version

    def _usable_from(self, allocation: AllocationResult | None, claim: ResourceClaim | None) -> Mask:
        """The nodes that an allocated claim can be used from; none if its devices failed to get
        ready."""
        if claim is not None and (binding_failure(claim) or self._has_timed_out(claim)):
            return lambda view: view.full(False)
        if allocation is None or allocation.node_selector is None:
            return everywhere
        return compile_terms(self.cluster.nodes, allocation.node_selector.node_selector_terms)

    def score(self, cls: PodClass) -> Score | None:
        """Nodes where earlier alternatives of prioritized lists can be allocated score higher."""
        if not cls.claims:
            return None
        claims = self._claims
        needs, version = claims.of_class(cls), self._version(cls)
        if needs.problem or not any(request.prioritized for request in needs.requests()):
            return Score.same(0, version)
        given = sum(_list_score(need.spec, need.allocation) for need in needs.claims if need.allocation)

        def score(view: View) -> Cells:
            return given + needs.scores(view, claims.use)

        return Score(score, Scope.USAGE, ByMaximum(), version)

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        """Deallocates a claim that keeps the pod from nodes and that nobody else uses. Nodes that the
        pod could not use without it do not count."""
        if not pod.cls.claims:
            return _NOTHING
        missed = trial.rows_with(NOT_AVAILABLE)
        if not missed.any():
            return _NOTHING
        view = All(self.cluster.nodes)
        for need in self._claims.of_class(pod.cls).claims:
            claim = self._claims.claim(need.key) if need.key is not None else None
            if claim is None or claim.status.allocation is None:
                continue
            if not np.any(missed & view.negate(self._usable_from(need.allocation, claim)(view))):
                continue
            group = self._claims.group_of(pod.uid, need.key) if need.key is not None else None
            decision = DeallocateClaim(claim_ref(claim), pod.ref, group)
            if not all(decision.is_consumer(each.uid) for each in claim.status.reserved_for):
                continue
            if group is not None and need.key is not None and self._claims.is_needed(need.key):
                continue
            return Nomination(message=DEALLOCATED, decisions=(decision,))
        return _NOTHING

    def can_preempt_for(self, cls: PodClass) -> bool:
        """Each pod that names a claim itself may have one to deallocate."""
        return any(claim.name for claim in cls.claims)

    # Reserving, and what is written before the pod is bound

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        if not self._claims.active or not self._claims.concerns(pod.cls):
            return FINE
        problem = self._claims.reserve(pod, row)
        if problem:
            return Outcome(problem)
        reservation = pod.reservation
        if reservation is not None and not reservation.waiting and self._claims.lacking(pod):
            self.cluster.reservations.make_waiting(reservation)
        return FINE

    def unreserve(self, pod: PodRecord, row: int) -> None:
        if not self._claims.active:
            return
        for claim in self._claims.created_for(pod):
            self._claims.decisions.append(DeleteClaim(claim_ref(claim)))
        for claim in self._claims.reserved_for(pod):
            if not is_extended_claim(claim):
                self._claims.drop_consumer(claim, pod)
        if self._claims.unreserve(pod):
            self.cluster.changed(Change.DEVICES)

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        """Has the pod wait until its reservation's claims are written, and its devices are ready if
        they have binding conditions. A reservation does not wait for its devices: drivers prepare
        them for the claims of its owners, which wait then."""
        if self._claims.held and self._claims.is_writing_holders(pod):
            return Outcome(wait=_HOLDER_PATIENCE)
        return self._await_devices(pod, row) if pod.cls.claims and pod.reservation is None else FINE

    def pre_bind(self, pod: PodRecord, row: int) -> list[Decision]:
        return self._claims.to_write(pod) if self._claims.active else []

    # Binding conditions

    def _await_devices(self, pod: PodRecord, row: int) -> Outcome:
        claims = self._claims
        if not any(map(_has_binding_conditions, claims.allocations(pod))):
            return FINE
        if refusal := claims.refused.pop(pod.uid, ""):
            self._note_wait(pod, "error")
            return Outcome(refusal, retry=True)
        started = claims.waiting.get(pod.uid)
        if started is None:
            claims.waiting[pod.uid] = self.cluster.now
            claims.decisions += claims.to_write(pod, waits=True)
            text = NOT_READY.format(self.cluster.nodes.name(row))
            claims.decisions.append(
                Emit(pod.ref, "Normal", "BindingConditionsPending", text, "Scheduling")
            )
            return Outcome(wait=self._args.binding_timeout)
        if claims.is_in_flight(pod):  # not written yet
            outcome = Outcome(wait=self._args.binding_timeout)
        else:
            outcome = self._readiness(pod)
        if outcome.wait and self.cluster.now >= started + self._args.binding_timeout:
            outcome = Outcome(_TIMED_OUT, retry=True)
        if not outcome.wait:
            has_timed_out = outcome.message.startswith(_TIMED_OUT)
            failure = "timeout" if has_timed_out else "failure"
            self._note_wait(pod, failure if outcome.message else "success")
        if outcome is FINE:
            claims.waiting.pop(pod.uid, None)
        return outcome

    def _note_wait(self, pod: PodRecord, status: str) -> None:
        """Records the end of a pod's wait for its devices, for metrics."""
        claims = self._claims
        started = claims.waiting.get(pod.uid, self.cluster.now)
        results = [each for found in claims.allocations(pod) for each in found.devices.results]
        claims.counts.waits.append(
            DeviceWait(
                pod.scheduler,
                status,
                self.cluster.now - started,
                Counter(each.driver for each in results),
                Counter(each.driver for each in results if each.binding_conditions),
            )
        )

    def _readiness(self, pod: PodRecord) -> Outcome:
        for claim in self._claims.consumed_by(pod):
            failure = binding_failure(claim)
            if failure:
                return Outcome(failure, retry=True)
            if not is_ready(claim):
                if self._has_timed_out(claim):
                    return Outcome(BINDING_TIMEOUT.format(claim.metadata.name), retry=True)
                return Outcome(wait=self._args.binding_timeout)
        return FINE

    def _has_timed_out(self, claim: ResourceClaim | None) -> bool:
        """Whether devices with binding conditions are not ready in time."""
        if claim is None or not _awaits_devices(claim):
            return False
        allocation = claim.status.allocation
        if allocation is None or allocation.allocation_timestamp is None:
            return False
        try:
            allocated = parse_time(allocation.allocation_timestamp)
        except TimeError:
            return False
        return allocated + self._args.binding_timeout < self.cluster.now


def binding_failure(claim: ResourceClaim) -> str:
    """Why a device of an allocated claim will not get ready; empty if it may."""
    for result in claim.status.allocation.devices.results if claim.status.allocation else ():
        if not result.binding_conditions:
            continue
        for name in result.binding_failure_conditions:
            found = _condition(claim, result, name)
            if found is not None and found.status == "True":
                return BINDING_FAILED.format(claim.metadata.name, found.reason, found.message)
    return ""


def is_ready(claim: ResourceClaim) -> bool:
    """Whether all binding conditions of the devices of an allocated claim are true."""
    return claim.status.allocation is not None and all(
        (found := _condition(claim, result, name)) is not None and found.status == "True"
        for result in claim.status.allocation.devices.results
        for name in result.binding_conditions
    )


def _first_row(view: View, cells: Cells) -> int:
    """The first row of the view where something is true."""
    return view.rows if view.single else int(view.rows[np.flatnonzero(cells)[0]])


def _list_score(spec: ResourceClaimSpec, allocation: AllocationResult) -> int:
    """The score of the alternatives that an allocated claim has."""
    chosen = {result.request for result in allocation.devices.results}
    return sum(
        MAX_ALTERNATIVES - at
        for request in spec.devices.requests
        for at, each in enumerate(request.first_available)
        if f"{request.name}/{each.name}" in chosen
    )


def _awaits_devices(claim: ResourceClaim | None) -> bool:
    """Whether an allocated claim has devices that are not ready."""
    if claim is None or not _has_binding_conditions(claim.status.allocation):
        return False
    return not is_ready(claim)


def _has_binding_conditions(allocation: AllocationResult | None) -> bool:
    return allocation is not None and any(
        result.binding_conditions for result in allocation.devices.results
    )


def _condition(
    claim: ResourceClaim, result: DeviceRequestAllocationResult, type: str
) -> Condition | None:
    """A condition that the driver reports of an allocated device."""
    for device in claim.status.devices:
        if device.device_id == result.device_id:
            return next((each for each in device.conditions if each.type == type), None)
    return None
