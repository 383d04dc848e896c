"""The claim manager: ResourceClaims, the devices they use, and allocations that are in flight.

Devices are in use by the allocations of all claims in all namespaces, of other schedulers too, and by
allocations that this scheduler has decided and that are not on the objects yet:

    tentative   a pod was placed in a transaction: a nominated pod, or one that is tried; undone with it
    in flight   a pod was reserved (`reserve`); ends when the claim has its allocation and names the pod
                as a consumer, or when the pod is unreserved
    allocated   the claim's object has the allocation

A claim that several pods share is allocated once: the first pod that is reserved brings the allocation,
and the others follow it while it is in flight. It stays as long as one of them does.

In a dry run pods are removed from the ledger and put back. The devices of a claim are free while every
one of its consumers is removed, as they will be once the last consumer is gone and the claim controller
has deallocated the claim. A pod that is really gone frees nothing by itself: the claim's object does.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from holdfast.api.meta import Object, ObjectMeta, controller_of
from holdfast.api.pod import Pod
from holdfast.api.resource_claims import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from holdfast.api.resource_slices import DeviceTaintRule, ResourceSlice
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.decisions import (
    Decision,
)
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import ClaimTrait, PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.managers.claims.catalogue import Rows
from holdfast.scheduler.managers.claims.claim_handlers import ClaimHandlers
from holdfast.scheduler.managers.claims.claims_in_use import is_going
from holdfast.scheduler.managers.claims.extended_resources import (
    classes_by_resource,
    is_extended_claim,
)
from holdfast.scheduler.managers.claims.pod_claims import (
    BEING_DELETED,
    NO_TEMPLATE,
    NOT_FOUND,
    ResourceClaimKey,
    encoded,
    held_by_reservation,
)

DEVICE_KINDS: tuple[type[Object], ...] = (
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceClass,
    ResourceSlice,
    DeviceTaintRule,
)

_NO_ROWS: Rows = np.array([], dtype=np.intp)


class ClaimManager(ClaimHandlers):
    """Follows objects, pods and the ledger."""

    def __init__(self, cluster: ClusterBase) -> None:
        super().__init__(cluster)
        self._is_unmoved = False
        cluster.classes.on_dropped.append(self._class_dropped)

    # Pods and classes

    def see_pod(self, pod: Pod) -> bool:
        """Reads which claims a pod names; whether that changed."""
        self._wake()
        return self.pods.see(pod)

    def traits(self, metadata: ObjectMeta) -> tuple[ClaimTrait, ...]:
        """The claims of a pod that is to be scheduled, as part of its class."""
        return self.pods.traits(metadata)

    def template_traits(self, pod: Pod) -> tuple[ClaimTrait, ...]:
        """The claims of a reserve pod, as part of its class: those that claims for its template's
        entries would be created with, and those that it names."""
        if pod.spec.resource_claims:
            self._wake()
        found = []
        for entry in pod.spec.resource_claims:
            namespace = pod.metadata.namespace
            if name := entry.resource_claim_template_name:
                key = ResourceClaimKey(namespace, name)
                template = self._templates.get(key)
                if template is None:
                    found.append(ClaimTrait(name, problem=NO_TEMPLATE.format(key)))
                else:
                    found.append(ClaimTrait(spec=encoded(template.spec.spec)))
                continue
            key = ResourceClaimKey(namespace, entry.resource_claim_name or "")
            self._named_by_reservations.setdefault(key, {})[pod.metadata.uid] = None
            claim = self._claims.get(key)
            if claim is None:
                found.append(ClaimTrait(key.name, problem=NOT_FOUND.format(key)))
            elif claim.metadata.deletion_timestamp is not None:
                found.append(ClaimTrait(key.name, problem=BEING_DELETED.format(key.name)))
            elif problem := held_by_reservation(claim):
                found.append(ClaimTrait(key.name, problem=problem))
            else:
                found.append(ClaimTrait(key.name))
        return tuple(found)

    def can_be_held(self, pod: PodRecord) -> bool:
        """Whether a preemption hold can keep the devices of a pod: all its claims belong to it. Pods
        that share a claim would each hold devices for it; and those for an extended resource are only
        known on a node."""
        if self.extended and self.delegated(pod.cls):
            return False
        claims = [self._claims.get(key) for key in self.pods.keys(pod.uid)]
        owners = [controller_of(claim.metadata) if claim is not None else None for claim in claims]
        return all(owner is not None and owner.uid == pod.uid for owner in owners)

    def _class_dropped(self, cls: PodClass) -> None:
        self._of_class.pop(cls.id, None)
        self._delegated.pop(cls.id, None)

    # The ledger

    def _wake(self) -> None:
        """Follows the ledger from now on."""
        if not self.active:
            self.active = True
            self._ledger.listeners.append(self._moved)

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """Inside, the ledger is not followed: what is moved there is moved back before the end."""
        before, self._is_unmoved = self._is_unmoved, True
        try:
            yield
        finally:
            self._is_unmoved = before

    def _moved(self, pod: PodRecord, row: int, sign: int) -> None:
        """Follows the ledger: a pod or reserve pod was added to a row (sign 1) or removed (-1)."""
        uid = pod.uid
        if self._is_unmoved:
            return
        if uid not in self._consumed and not (sign > 0 and self.concerns(pod.cls)):
            return
        if sign < 0:
            if uid in self._tentative:
                self._tentative.discard(uid)
                self._release(uid)
            elif (
                self._ledger.in_transaction or self._ledger.undoing
            ) and pod.phase is not Phase.PENDING:
                self._departed.add(uid)
                self._recount_uses_of(uid)
            elif pod.reservation is not None:
                self._recount_uses_of(uid)
        elif uid in self._departed:
            self._departed.discard(uid)
            self._recount_uses_of(uid)
        elif self._ledger.in_transaction and pod.phase is Phase.PENDING:
            self._reserve_tentatively(pod, row)
        elif pod.reservation is not None and not self._ledger.in_transaction:
            self._recount_uses_of(uid)  # its node decides which devices it can hold
        elif pod.reservation_uid and self.held and not self._ledger.in_transaction:
            self._recount_uses_of(uid)  # its claims may have been seen before it
            for key in self.held.of(pod.reservation_uid):
                self._recount_use(key)

    def _reserve_tentatively(self, pod: PodRecord, row: int) -> None:
        """Reserves the claims of a pod that was placed in a transaction. A nominated pod also gets what
        its victims leave, and so keeps the devices from others that are free already."""
        if pod.uid in self._flights_of:
            return
        self._is_dry_run = True
        try:
            if self._is_reserved_tentatively(pod, row):
                self._tentative.add(pod.uid)
        finally:
            self._is_dry_run = False

    def _is_reserved_tentatively(self, pod: PodRecord, row: int) -> bool:
        """Reserves the claims of a pod for `_reserve_tentatively`; False if that is not possible."""
        if not self.reserve(pod, row):
            return True
        if pod.nominated != self._cluster.nodes.name(row):
            return False
        going = [*self._released_on(row, is_going)]
        return bool(going) and not self._reserve_with(pod, row, self.use.without(going))

    # Decisions

    def take_decisions(self) -> list[Decision]:
        """The writes that were decided since the last call."""
        if self.held or self._broken_holders:
            self._release_holders()
        if self._ending:
            self._drop_pending_consumers()
        if self.outdated_pods:
            outdated, self.outdated_pods = self.outdated_pods, {}
            self.pods_changed(outdated)
        decisions, self.decisions = self.decisions, []
        return decisions

    @property
    def has_decisions(self) -> bool:
        """Whether `take_decisions` may have something."""
        written = self.decisions or self.outdated_pods
        return bool(written or self.held or self._broken_holders or self._ending)

    def _drop_pending_consumers(self) -> None:
        """Has claims that are being deleted given up by pods that are pending: those that an earlier
        leader reserved them for before it stopped. Such a pod cannot be scheduled with the claim, and
        the claim stays as long as it is reserved for a pod."""
        names = self._cluster.settings.scheduler_names
        for key in self._ending:
            claim = self._claims[key]
            for consumer in claim.status.reserved_for:
                pod = self._cluster.pods.get(consumer.uid)
                if pod is None or pod.phase is not Phase.PENDING or pod.scheduler not in names:
                    continue
                busy = (
                    pod.uid in self.waiting or pod.uid in self._orphans or pod.uid in self._flights_of
                )
                if not busy and (claim.metadata.uid, pod.uid) not in self._leaving:
                    self.drop_consumer(claim, pod)

    def take_holds(self) -> list[Decision]:
        """The writes that bring the claims of reservations in line. They follow those of binds, which
        may have changed the same claims."""
        outdated, self._outdated_holders = self._outdated_holders, {}
        return self._to_hold(outdated)

    # Objects, and the self-check

    def put(self, before: Object | None, after: Object | None) -> None:
        """Follows an object of one of `DEVICE_KINDS` that was added, changed or deleted."""
        some = after if after is not None else before
        self._wake()
        if isinstance(some, ResourceClaim):
            assert before is None or isinstance(before, ResourceClaim)
            assert after is None or isinstance(after, ResourceClaim)
            if before is not None and after is not None and before.metadata.uid != after.metadata.uid:
                self.put_claim(before, None)
                before = None
            self.put_claim(before, after)
            return
        if isinstance(some, ResourceClaimTemplate):
            assert after is None or isinstance(after, ResourceClaimTemplate)
            self._put_template(some.metadata, after)
            return
        rows = self._publish(some, after is not None)
        if self.held:
            self._held_changed(before, after)
        self._log(rows)
        is_class = isinstance(some, DeviceClass)
        self._cluster.changed(Change.DEVICE_CLASSES if is_class else Change.DEVICES)

    def _held_changed(self, before: Object | None, after: Object | None) -> None:
        """Brings claims of reservations up to date after a change of slices, classes or taint rules:
        held devices may be withdrawn, or published again."""
        for each in (before, after):
            if isinstance(each, ResourceSlice):
                for key in self.held.of_pool(each.spec.driver, each.spec.pool.name):
                    self._holder_outdated(key)
                    self._recount_use(key)
        if isinstance(before or after, DeviceClass | DeviceTaintRule):
            for there in self._ledger.reservations.waiting.values():
                for reservation in there:
                    self.holder_changed(reservation)

    def _publish(self, changed: Object | None, there: bool) -> Rows | None:
        """Applies an object about devices; returns the rows it may matter to, None for all."""
        catalogue = self.catalogue
        match changed:
            case ResourceSlice():
                self.use.forget_pools()
                name = changed.metadata.name
                return catalogue.put_slice(changed) if there else catalogue.remove_slice(name)
            case DeviceTaintRule():
                name = changed.metadata.name
                return catalogue.put_rule(changed) if there else catalogue.remove_rule(name)
            case DeviceClass():
                if there:
                    catalogue.put_class(changed)
                else:
                    catalogue.remove_class(changed.metadata.name)
                self.extended = classes_by_resource(catalogue.classes.values())
                self._delegated.clear()
        return _NO_ROWS

    def _put_template(self, meta: ObjectMeta, after: ResourceClaimTemplate | None) -> None:
        key = ResourceClaimKey(meta.namespace, meta.name)
        if after is None:
            self._templates.pop(key, None)
        else:
            self._templates[key] = after
        self.templates_changed()

    def node_changed(self, row: int) -> None:
        """To be called when a node object is added, changed or removed."""
        if self.catalogue.node_changed(row) and self.held:
            for entry in self._ledger.reservations.on(row):
                for key in self.held.of(entry.pod.uid):
                    self._holder_outdated(key)
                    self._recount_use(key)

    def problems(self, pods: Mapping[str, PodRecord]) -> list[str]:
        """The differences between what is kept here and a computation from scratch, as messages."""
        found = []
        if self._departed or self._tentative:
            found.append(f"dry runs left {sorted(self._departed)} and {sorted(self._tentative)}")
        consumers: dict[ResourceClaimKey, set[str]] = {}
        for key, claim in self._claims.items():
            consumers.setdefault(key, set()).update(c.uid for c in claim.status.reserved_for)
        for key, flight in self._in_flight.items():
            consumers.setdefault(key, set()).update(flight.pods)
            if flight.holder is not None and self.held.get(key) != flight.holder:
                found.append(f"ResourceClaim {key} is in flight, but not among those of reservations")
            there = self._claims.get(key)
            if flight.uid and (there is None or there.metadata.uid != flight.uid):
                found.append(f"ResourceClaim {key} is in flight, but gone")
            for uid in sorted(flight.pods):
                if key not in self._flights_of.get(uid, ()):
                    found.append(f"ResourceClaim {key} is in flight for pod {uid}, which does not know")
                pod = pods.get(uid)
                if flight.holder is None and uid not in self._orphans and (pod is None or pod.row < 0):
                    found.append(f"ResourceClaim {key} is in flight for pod {uid}, which has no node")
        found += [
            f"nothing is in flight for {uid}" for uid, keys in self._flights_of.items() if not keys
        ]
        for reservation in self.held.reservations():
            for key in self.held.of(reservation):
                consumers.setdefault(key, set()).add(reservation)
        right = {key: frozenset(uids) for key, uids in consumers.items() if uids}
        if self._consumers != right:
            found.append(f"consumers of claims are {self._consumers}, should be {right}")
        consumed: dict[str, set[ResourceClaimKey]] = {}
        for key, uids in right.items():
            for uid in uids:
                consumed.setdefault(uid, set()).add(key)
        if self._consumed != consumed:
            found.append(f"claims of consumers are {self._consumed}, should be {consumed}")
        created: dict[str, set[ResourceClaimKey]] = {}
        for key, claim in self._claims.items():
            if is_extended_claim(claim) and (owner := controller_of(claim.metadata)) is not None:
                created.setdefault(owner.uid, set()).add(key)
        if self._created_for != created:
            found.append(f"claims created for pods are {self._created_for}, should be {created}")
        known = {*self._claims, *self._in_flight}
        used = {
            key: allocation
            for key in known
            if (allocation := self._with_devices_left(key, self.allocation(key)))
        }
        if self._used != used:
            found.append(f"allocations in use are {self._used}, should be {used}")
        return found + self.use.check()
