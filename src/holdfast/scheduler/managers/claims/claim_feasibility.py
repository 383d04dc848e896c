"""Which devices a class of pods can get on each node.

A part of the claim manager (`claim_manager`).
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import takewhile

from holdfast.api.resource_claims import AllocationResult
from holdfast.api.resource_slices import DeviceID
from holdfast.scheduler.cluster.node_selectors import compile_terms
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry
from holdfast.scheduler.cluster.view import Cells, One, View
from holdfast.scheduler.managers.claims.allocation import (
    CANNOT_ALLOCATE,
    ClaimName,
    ClaimsAllocation,
    ClaimsRefusal,
)
from holdfast.scheduler.managers.claims.allocator import FEASIBLE
from holdfast.scheduler.managers.claims.claim_state import ServedPod
from holdfast.scheduler.managers.claims.claims_in_use import ClaimsInUse, is_going
from holdfast.scheduler.managers.claims.claims_request import ClaimsRequest
from holdfast.scheduler.managers.claims.class_claims import ClaimNeed, ClassClaims, DevicesSeen
from holdfast.scheduler.managers.claims.device_use import UseSnapshot
from holdfast.scheduler.managers.claims.extended_resources import ExtendedClaim, extended_claim
from holdfast.scheduler.managers.claims.pod_claims import (
    NOT_FOUND,
    ResourceClaimKey,
    decoded,
)

PREEMPTED = 'resourceclaim "{}" has devices that a pod with higher priority preempts'
EXTENDED_RESOURCES = "<extended-resources>"
"""Stands for the name of a claim that is yet to be created; no object can have it."""
_NOBODY: frozenset[str] = frozenset()
_NO_STAMP = 0, None


class ClaimFeasibility(ClaimsInUse):
    """Finds devices for classes of pods."""

    def of_class(self, cls: PodClass) -> ClassClaims:
        """The claims of a class, as of now."""
        version = self.version(cls)
        known = self._of_class.get(cls.id)
        if known is None or known[0] != version:
            known = self._of_class[cls.id] = version, self._resolve(cls)
        return known[1]

    def version(self, cls: PodClass) -> Hashable:
        """Changes with device classes, and with the claims of the class that count by name."""
        stamps, namespace = self._stamps, cls.namespace
        named = [each.name for each in cls.claims if each.name]
        preempted = self._preempted(cls) if named else ""
        return (
            self.catalogue.class_version,
            preempted,
            *[stamps.get(ResourceClaimKey(namespace, name), _NO_STAMP)[0] for name in named],
        )

    def _preempted(self, cls: PodClass) -> str:
        """The allocated claim that the class names and of which a pod with higher priority preempts the
        consumers; empty if there is none. A further consumer would keep the devices from it."""
        if not self.held and not self._cluster.nominator:
            return ""
        for name in [each.name for each in cls.claims if each.name]:
            key = ResourceClaimKey(cls.namespace, name)
            preemptors = (*self._waiting_preemptors(key), *self._nominated_preemptors(key))
            if any(pod.cls.priority > cls.priority for pod in preemptors):
                return name
        return ""

    def _waiting_preemptors(self, claim: ResourceClaimKey) -> Iterator[PodRecord]:
        """The pods whose preemption holds wait for devices of an allocated claim."""
        for key in self.held.holding((self.allocation(claim),)):
            holder = self.held.get(key)
            entry = self._ledger.reservations.get(holder.reservation) if holder else None
            if entry is not None and entry.reservation.waiting:
                preemptor = self._cluster.pods.get(entry.reservation.preemptor)
                if preemptor is not None:
                    yield preemptor

    def _nominated_preemptors(self, claim: ResourceClaimKey) -> Iterator[PodRecord]:
        """The pods with other claims that are nominated to nodes of an allocated claim of which all
        consumers are being preempted or deleted."""
        nodes, nominator = self._cluster.nodes, self._cluster.nominator
        if not nominator or claim not in self._consumers or not self._is_released(claim, is_going):
            return
        rows = self._rows_of(self._used[claim])
        for node, there in nominator.items():
            row = nodes.row(node)
            if row is not None and (rows is None or row in rows):
                nominated = (pod for pod in there.values() if self.concerns(pod.cls))
                yield from (pod for pod in nominated if claim not in self.pods.keys(pod.uid))

    def concerns(self, cls: PodClass) -> bool:
        """Whether pods of the class have claims, or request resources that device classes serve."""
        return bool(cls.claims) or (bool(self.extended) and bool(self.delegated(cls)))

    def delegated(self, cls: PodClass) -> list[tuple[int, str]]:
        """The slots and names of the resources of a class that device classes serve, on nodes that have
        none of them."""
        if not self.extended or not self.serves_extended or cls.is_reserve_pod:
            return []  # a reservation holds devices by `resourceClaims` only
        found = self._delegated.get(cls.id)
        if found is None:
            name = self._cluster.nodes.slots.name
            named = [(slot, name(slot)) for slot, _ in cls.requests]
            found = self._delegated[cls.id] = [each for each in named if each[1] in self.extended]
        return found

    def _resolve(self, cls: PodClass) -> ClassClaims:
        preempted = self._preempted(cls)
        problem, needs = PREEMPTED.format(preempted) if preempted else "", []
        for trait in cls.claims:
            if trait.problem:
                problem = trait.problem
            elif trait.spec:
                needs.append(ClaimNeed(None, decoded(trait.spec), None, None))
            else:
                key = ResourceClaimKey(cls.namespace, trait.name)
                claim = self._claims.get(key)
                if claim is None:
                    problem = NOT_FOUND.format(key)
                else:
                    needs.append(ClaimNeed(key, claim.spec, claim, self.allocation(key)))
            if problem:
                break

        def extended(resources: list[str]) -> ExtendedClaim:
            return extended_claim(cls.pod, resources, self.extended)

        delegated = self.delegated(cls)
        nodes = self._cluster.nodes
        return ClassClaims(problem, needs, delegated, extended, self.allocator, nodes)

    def why_invalid(self, cls: PodClass, needs: ClassClaims, row: int) -> str:
        """Why allocation for a class is given up with an error on the node of a row."""
        request = needs.on(row).request
        assert request is not None
        keys = self.pods.keys(cls.pod.metadata.uid)
        names = [ClaimName(*key) for key in keys if self.allocation(key) is None]
        names += [ClaimName(cls.namespace, EXTENDED_RESOURCES)] * (len(request.claims) - len(names))
        found = self.allocator.allocate(request, row, self.use, names)
        return found.message if isinstance(found, ClaimsRefusal) else CANNOT_ALLOCATE

    def codes(self, claims: ClassClaims, view: View, pre_allocation: bool = False) -> Cells:
        """For each row of a view whether devices can be allocated there: FEASIBLE, or why not. An owner
        of a reservation there may get those that it holds; a pre-allocation those that pods will
        release."""
        if pre_allocation:
            return claims.codes(view, self.use_once_pods_end())
        if view.entries is None or not self.held:
            return claims.codes(view, self.use)
        rows = [view.rows] if view.single else view.rows.tolist()
        entries = [view.entries] if view.single else view.entries.tolist()
        seen = [self._seen_by_owner(row, at) for row, at in zip(rows, entries, strict=True)]
        return claims.codes_with(view, seen)

    def _seen_by_owner(self, row: int, index: int) -> DevicesSeen:
        """The devices in use, for a pod that is allocated from the reservation with this entry
        index."""
        for entry in self._ledger.reservations.on(row):
            if entry.index == index and (holders := self.unreserved_holders(entry.pod.uid)):
                is_strict = entry.reservation.restricted is not None
                only = self._held_by(holders) if is_strict else None
                return DevicesSeen(self.use.without(holders), only)
        return DevicesSeen(self.use)

    def serves(self, cls: PodClass, entry: ReservationEntry) -> bool:
        """Whether a pod of the class would get a device that the reservation holds."""
        holders = self.unreserved_holders(entry.pod.uid)
        claims = self.of_class(cls) if holders else None
        if claims is None or claims.problem:
            return False
        request = claims.on(entry.row).request
        if request is None:
            return False
        held = self._held_by(holders)
        names = [ClaimName(cls.namespace, "")] * len(request.claims)
        found = self._allocate_from(entry, request, names)
        return not isinstance(found, ClaimsRefusal) and not held.isdisjoint(found.devices)

    # Devices once others are gone

    def forecast(
        self, cls: PodClass, row: int, gone: Collection[str], taken: Iterable[DeviceID]
    ) -> list[DeviceID] | None:
        """The devices that a pod of the class would get on the row without these pods and reservations,
        by uid, and with those devices in use; None if it would not get all it needs. An allocated claim
        is used where it is, unless all its consumers are gone."""
        claims, uids = self.of_class(cls), frozenset(gone)
        going = {
            key
            for uid in uids
            for key in self._consumed.get(uid, ())
            if self._consumers.get(key, _NOBODY) <= uids
        }
        kept = [need.allocation for need in claims.claims if need.key not in going]
        if claims.problem or not all(each is None or self._is_usable(each, row) for each in kept):
            return None
        request = claims.on(row, going).request
        if request is None:
            return []
        reduced = self._without(going, except_for=uids, taken=taken)
        names = [ClaimName(cls.namespace, "")] * len(request.claims)
        found = self.allocator.allocate(request, row, reduced, names)
        return None if isinstance(found, ClaimsRefusal) else found.devices

    def taken_by(self, pods: Sequence[tuple[PodRecord, int]]) -> list[DeviceID]:
        """The devices that these pods would get one after the other on these rows, each for itself
        alone. What a claim gets that pods share is counted once; those get nothing that would not get
        all they need. Kept for the next sequence, as far as it begins with the same pods."""
        epoch, catalogue = self._cluster.epoch, self.catalogue
        version = (
            (self.use.version, catalogue.version, catalogue.structure, catalogue.class_version),
            (epoch.kinds.total(), epoch.nodes.end),
        )
        # Whether claims are being preempted depends on more.
        if version != self._served_at or self.held or self._cluster.nominator:
            self._served, self._served_at = [], version
        served = self._served
        alike = (
            (pod.uid, pod.cls.id, row) == known.of
            for (pod, row), known in zip(pods, served, strict=False)
        )
        same = sum(takewhile(bool, alike))
        if same < len(pods):
            del served[same:]
            self._serve(pods[same:])
        return [device for known in served[: len(pods)] for device in known.devices]

    def _serve(self, pods: Iterable[tuple[PodRecord, int]]) -> None:
        """Adds what further pods would get to what is kept by `taken_by`."""
        served = self._served
        use = self.use.without((), (device for known in served for device in known.devices))
        shared = {key for known in served for key in known.keys}
        for pod, row in pods:
            claims, keys = self.of_class(pod.cls), self.pods.keys(pod.uid)
            request = None if claims.problem else claims.on(row).request
            if request is None or not shared.isdisjoint(keys):
                keys, request = [], None
            devices: list[DeviceID] = []
            if request is not None:
                names = [ClaimName(pod.namespace, "")] * len(request.claims)
                found = self.allocator.allocate(request, row, use, names)
                if not isinstance(found, ClaimsRefusal):
                    devices = list(found.exclusive_devices)
            shared.update(keys)
            use.take(devices)
            served.append(ServedPod((pod.uid, pod.cls.id, row), keys, devices))

    def has_devices_beside(self, cls: PodClass, view: View, taken: Iterable[DeviceID]) -> Cells:
        """Whether devices can be allocated on each row of a view if these are in use too."""
        claims = self.of_class(cls)
        if claims.problem:
            return view.full(False)
        return claims.codes(view, self.use.without((), taken)) == FEASIBLE

    def _is_usable(self, allocation: AllocationResult, row: int) -> bool:
        """Whether the devices of an allocation can be used from the node of a row."""
        if allocation.node_selector is None:
            return True
        nodes = self._cluster.nodes
        matches = compile_terms(nodes, allocation.node_selector.node_selector_terms)
        return bool(matches(One(nodes, row)))

    def use_once_pods_end(self) -> UseSnapshot:
        """The devices in use once pods that can end have ended, for classes of pre-allocations."""
        return self._without(self._releasable())

    def _without(
        self,
        going: set[ResourceClaimKey],
        except_for: frozenset[str] = _NOBODY,
        taken: Iterable[DeviceID] = (),
    ) -> UseSnapshot:
        """The use without these claims, with the devices for which reservations wait, not those of the
        reservations `except_for`, and with those `taken`."""
        waited_for = [
            device
            for device, keys in self.held.by_device()
            for key in keys
            if (holder := self.held.get(key)) is not None and holder.reservation not in except_for
        ]
        return self.use.without(going, [*waited_for, *taken])

    def _releasable(self) -> set[ResourceClaimKey]:
        """The claims that are deallocated when pods that can end have ended."""
        pods, found = self._cluster.pods, set()
        for key, consumers in self._consumers.items():
            if key not in self._used or self.held.get(key) is not None:
                continue
            claim, users = self._claims.get(key), [pods.get(uid) for uid in consumers]
            if claim is not None and any(c.resource != "pods" for c in claim.status.reserved_for):
                continue
            if not any(pod is not None and pod.cls.is_daemon for pod in users):
                found.add(key)
        return found

    def _allocate_from(
        self, entry: ReservationEntry, request: ClaimsRequest, names: list[ClaimName]
    ) -> ClaimsAllocation | ClaimsRefusal:
        """Allocates devices for a pod that is allocated from a reservation: those that it holds first,
        and no others if its policy is Restricted."""
        holders = self.unreserved_holders(entry.pod.uid)
        held, use = self._held_by(holders), self.use.without(holders)
        only = held if entry.reservation.restricted is not None else None
        return self.allocator.allocate(request, entry.row, use, names, prefer=held, only=only)
