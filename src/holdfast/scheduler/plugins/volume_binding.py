"""VolumeBinding: filters nodes by the volumes of a pod, and binds claims that wait for their first pod.

A bound claim allows the nodes that its volume's node affinity allows. A WaitForFirstConsumer claim gets
a free volume that its node can use, the smallest that is large enough, or has one provisioned there if
its storage class can. The claims of a pod are bound together with the pod, and before it.

The score is higher the less of a volume, or of the storage capacity, the claims use.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.api.errors import SelectorError
from holdfast.api.names import NO_PROVISIONER, STORAGE
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from holdfast.scheduler.cluster.decisions import BindVolume, Decision, ObjectRef, SelectNode
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_selectors import Mask, compile_terms
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.view import Cells, One, View
from holdfast.scheduler.framework.config import VolumeBindingArgs
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    FINE,
    MAX_SCORE,
    ClusterPlugin,
    Filter,
    Outcome,
    Reason,
    Rejected,
    Scope,
    Score,
    everywhere,
)
from holdfast.scheduler.managers.volumes import ClaimKey
from holdfast.scheduler.managers.volumes import queueing_hints as stamps
from holdfast.scheduler.managers.volumes.csi_translation import migrated_terms, plugin_of
from holdfast.scheduler.managers.volumes.volume_objects import (
    LOST,
    WAIT_FOR_POD,
    claim_class,
    in_bytes,
    is_bound,
    is_for_pod,
    references_claim,
    volume_class,
)
from holdfast.scheduler.managers.volumes.volume_pool import (
    VolumeRequest,
    affinity_mask,
    affinity_terms,
    request,
    suits,
)
from holdfast.scheduler.plugins.resource_allocation import Shape


def not_found(kind: str, name: str) -> str:
    """The error text of the API machinery."""
    return f'{kind} "{name}" not found'


def not_for_pod(cls: PodClass, claim: ClaimKey) -> str:
    """The reason if a claim has the name of an ephemeral volume's claim, but was not created for it."""
    pod = f"{cls.namespace}/{cls.pod.metadata.name}"
    return f"PVC {claim} was not created for pod {pod} (pod is not owner)"


REASON_AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
REASON_NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
REASON_NO_SPACE = "node(s) did not have enough free storage"
REASON_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASON_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"


class StorageUse(NamedTuple):
    """What a claim uses of a volume, or of the storage capacity of a class."""

    storage_class: str
    requested: int
    capacity: Cells
    """In bytes; -1 in rows where there is none."""


@dataclass(slots=True)
class WaitingClaim:
    """A claim that waits for its first pod."""

    claim: PersistentVolumeClaim
    storage_class: StorageClass
    request: VolumeRequest
    selected: str | None
    """The node that a volume is being provisioned for, if any."""
    prebound: PersistentVolume | None
    """The volume whose `claimRef` names the claim, if any."""

    @property
    def class_name(self) -> str:
        return self.storage_class.metadata.name

    @property
    def bytes(self) -> int:
        """The size of the requested volume."""
        return in_bytes(self.claim.spec.resources.requests)

    @property
    def is_matched(self) -> bool:
        """Whether a free volume may be bound, rather than a new one provisioned."""
        return self.selected is None and self.prebound is None


@dataclass(slots=True)
class PodClaims:
    """The claims of a class: bound, waiting for their first pod, or with an error."""

    bound: list[PersistentVolume | None] = field(default_factory=list)
    """The volumes of bound claims; None for one that is gone."""
    waiting: list[WaitingClaim] = field(default_factory=list)
    immediate: bool = False
    """Whether some claim with immediate binding is not bound."""
    problem: str = ""
    error: bool = False
    """Whether a claim is invalid (reported as SchedulerError)."""
    watched: list[Hashable] = field(default_factory=list)

    def by_size(self) -> list[WaitingClaim]:
        """The claims without a selected node, the smallest first."""
        return sorted((w for w in self.waiting if w.selected is None), key=lambda w: w.request.size)

    def to_provide(self) -> list[WaitingClaim]:
        """The waiting claims in the order in which volumes are chosen or provisioned."""
        return [w for w in self.waiting if w.selected is not None] + self.by_size()


class VolumeBinding(ClusterPlugin):
    name = "VolumeBinding"
    wakes_on = (
        Change.NODE_ADDED
        | Change.NODE_LABELS
        | Change.CLAIMS
        | Change.PERSISTENT_VOLUMES
        | Change.STORAGE_CLASSES
        | Change.CSI_NODES
        | Change.CSI_DRIVERS
        | Change.CAPACITIES
    )
    reads_volumes = True

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        given = args.shape if isinstance(args, VolumeBindingArgs) else ()
        self._shape = Shape(given or VolumeBindingArgs().shape)

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        volumes = self.cluster.volumes
        if not volumes.wanted(cls).claims:
            return None
        claims = self._claims(cls)
        version = volumes.stamps(claims.watched)
        if claims.problem:
            return Rejected(claims.problem, error=claims.error, version=version)
        if claims.immediate:
            return Rejected(REASON_IMMEDIATE, version=version)
        bound = [None if volume is None else self._usable_from(volume) for volume in claims.bound]
        lookup = Lookup(self, claims) if claims.waiting else None
        if lookup is None and all(mask is everywhere for mask in bound):
            return Filter.nothing(version)

        def passes(view: View) -> Cells:
            ok = view.full(True)
            for mask in bound:
                ok = ok & (view.full(False) if mask is None else mask(view))
            if lookup is not None:
                no_volume, no_space = lookup.failures(view)
                ok = ok & view.negate(no_volume | no_space)
            return ok

        def reasons(view: View) -> list[Reason]:
            left, elsewhere, gone = view.full(True), view.full(False), view.full(False)
            for mask in bound:
                if mask is None:
                    gone = left
                    break
                usable = mask(view)
                elsewhere = elsewhere | (left & view.negate(usable))
                left = left & usable
            failures = (view.full(False), view.full(False))
            if lookup is not None:
                failures = lookup.failures(view)
            return [
                Reason(REASON_AFFINITY, elsewhere, resolvable=False),
                Reason(REASON_NO_VOLUME, failures[0], resolvable=False),
                Reason(REASON_NO_SPACE, failures[1], resolvable=False),
                Reason(REASON_GONE, gone, resolvable=False),
            ]

        return Filter(passes, reasons, Scope.NODE, version=version)

    def score(self, cls: PodClass) -> Score | None:
        volumes = self.cluster.volumes
        if not volumes.wanted(cls).claims:
            return None
        claims = self._claims(cls)
        version = volumes.stamps(claims.watched)
        if claims.problem or claims.immediate or not claims.waiting:
            return Score.same(0, version)
        lookup, shape = Lookup(self, claims), self._shape
        if not lookup.has_figures():
            return Score.same(0, version)
        return Score(lambda view: storage_score(lookup, shape, view), Scope.NODE, version=version)

    def watches(self, cls: PodClass) -> list[Hashable]:
        claims = self._claims(cls)
        in_tree = any(volume is not None and plugin_of(volume.spec) for volume in claims.bound)
        return [*claims.watched, stamps.MIGRATED] if in_tree else claims.watched

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        volumes = self.cluster.volumes
        if not pod.cls.volumes or pod.reservation is not None or not volumes.wanted(pod.cls).claims:
            return FINE  # a reservation neither provisions nor binds volumes
        claims = self._claims(pod.cls)
        if not claims.waiting:
            return FINE
        chosen = Lookup(self, claims).choose(row)
        for waiting, volume in zip(claims.to_provide(), chosen, strict=True):
            if volume is None:
                volumes.assume_node(waiting.claim, self.cluster.nodes.name(row), pod.uid)
            elif not _is_bound_to(volume, waiting.claim):
                volumes.assume_volume(volume, waiting.claim, pod.uid)
        return FINE

    def unreserve(self, pod: PodRecord, row: int) -> None:
        if self.cluster.volumes.release(pod.uid):
            self.cluster.changed(Change.ASSUMED_VOLUMES)

    def pre_bind(self, pod: PodRecord, row: int) -> list[Decision]:
        if not pod.cls.volumes:
            return []
        volumes = self.cluster.volumes
        reserved, made = volumes.assumed.of(pod.uid)
        decisions: list[Decision] = []
        for name in reserved:
            volume = volumes.volume(name)
            ref = volumes.assumed.volumes[name].claim
            assert volume is not None and ref is not None
            claim = ObjectRef("PersistentVolumeClaim", ref.namespace, ref.name, ref.uid)
            about = ObjectRef("PersistentVolume", "", name, volume.metadata.uid)
            decisions.append(BindVolume(about, claim))
        for key in made:
            wanted = volumes.claim(key)
            assert wanted is not None
            claim = ObjectRef("PersistentVolumeClaim", *key, wanted.metadata.uid)
            decisions.append(SelectNode(claim, volumes.assumed.claims[key].node))
        return decisions

    # Claims

    def _claims(self, cls: PodClass) -> PodClaims:
        volumes = self.cluster.volumes
        claims = PodClaims()
        for use in volumes.wanted(cls).claims:
            claims.watched.append(stamps.of_claim(use.key))
            claim = volumes.claim(use.key)
            claims.problem = claims.problem or self._problem(cls, use.key, use.ephemeral, claim)
            if claim is None or claims.problem:
                continue
            if is_bound(claim):
                claims.watched.append(stamps.of_volume(claim.spec.volume_name))
                claims.bound.append(volumes.volume(claim.spec.volume_name))
                continue
            class_name = claim_class(claim)
            claims.watched.append(stamps.of_class(class_name))
            storage_class = volumes.storage_class(class_name)
            if (
                claim.spec.volume_name
                or storage_class is None
                or storage_class.volume_binding_mode != WAIT_FOR_POD
            ):
                claims.immediate = True
            else:
                claims.watched.append(stamps.of_pool(class_name))
                claims.watched.append(stamps.of_driver(storage_class.provisioner))
                claims.watched.append(stamps.of_capacities(class_name))
                try:
                    claims.waiting.append(self._waiting(claim, storage_class))
                except SelectorError as error:
                    claims.error = True
                    claims.problem = (
                        f'running "{self.name}" filter plugin: error creating internal label selector '
                        f"for claim: {use.key}: {error}"
                    )
        return claims

    def _problem(
        self, cls: PodClass, key: ClaimKey, ephemeral: bool, claim: PersistentVolumeClaim | None
    ) -> str:
        if claim is None:
            if ephemeral:
                return (
                    "waiting for ephemeral volume controller to create the "
                    f'persistentvolumeclaim "{key.name}"'
                )
            return not_found("persistentvolumeclaim", key.name)
        if claim.status.phase == LOST:
            return (
                f'persistentvolumeclaim "{key.name}" bound to non-existent '
                f'persistentvolume "{claim.spec.volume_name}"'
            )
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{key.name}" is being deleted'
        if ephemeral and not is_for_pod(claim, cls):
            return not_for_pod(cls, key)
        return ""

    def _waiting(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> WaitingClaim:
        volumes = self.cluster.volumes
        key = ClaimKey(claim.metadata.namespace, claim.metadata.name)
        wanted = request(claim)
        prebound = next(
            (
                volume
                for volume in volumes.volumes_of_claim(key)
                if references_claim(volumes.claim_ref(volume), claim)
                and volume_class(volume) == storage_class.metadata.name
                and suits(wanted, volume)
            ),
            None,
        )
        return WaitingClaim(claim, storage_class, wanted, volumes.selected_node(claim), prebound)

    def _usable_from(self, volume: PersistentVolume) -> Mask:
        """The nodes that a bound volume can be used from. For a volume of a migrated in-tree plugin the
        translated labels count."""
        nodes, attached = self.cluster.nodes, self.cluster.volumes.attached
        terms = affinity_terms(volume)
        mask = everywhere if terms is None else affinity_mask(nodes, terms)
        plugin = plugin_of(volume.spec)
        if not plugin:
            return mask
        other_terms = migrated_terms(volume)
        if other_terms == terms:
            return mask
        other = everywhere if other_terms is None else affinity_mask(nodes, other_terms)

        def usable(view: View) -> Cells:
            attached.refresh()
            column = attached.migrated(plugin)
            if column is None:
                return mask(view)
            migrated = view.take(column) == 1
            return (migrated & other(view)) | (view.negate(migrated) & mask(view))

        return usable


class Lookup:
    """Finds volumes for the claims of a class that wait for their first pod."""

    def __init__(self, plugin: VolumeBinding, claims: PodClaims) -> None:
        self._nodes = plugin.cluster.nodes
        self._volumes = plugin.cluster.volumes
        self._selected = [w.selected for w in claims.waiting if w.selected is not None]
        self._to_provide = claims.to_provide()
        self._by_class: dict[str, list[int]] = {}
        """The positions of claims that may get a free volume, by storage class, the smallest first."""
        for position, waiting in enumerate(self._to_provide):
            if waiting.is_matched:
                name = waiting.storage_class.metadata.name
                self._by_class.setdefault(name, []).append(position)
        self._meant = {
            position: self._usable_from(waiting.prebound)
            for position, waiting in enumerate(self._to_provide)
            if waiting.prebound is not None and waiting.selected is None
        }
        self._topologies = [_allowed(self._nodes, w.storage_class) for w in self._to_provide]

    def failures(self, view: View) -> tuple[Cells, Cells]:
        """The rows where some claim has no free volume and none can be provisioned, and the rows where
        one could be provisioned but storage capacity is insufficient."""
        no_volume, no_space = view.full(False), view.full(False)
        left = view.full(True)
        for name in self._selected:
            row = self._nodes.row(name)
            elsewhere = view.rows != (-1 if row is None else row)
            no_volume = no_volume | elsewhere
            left = left & view.negate(elsewhere)
        found = self._found(view)
        for position, waiting in enumerate(self._to_provide):
            lacking = left
            if position in found:
                lacking = left & view.negate(found[position])
            cannot = lacking & view.negate(self._can_make(position, view))
            no_volume = no_volume | cannot
            left = left & view.negate(cannot)
            crowded = lacking & view.negate(cannot) & view.negate(self._has_space(waiting, view))
            no_space = no_space | crowded
            left = left & view.negate(crowded)
        return no_volume, no_space

    def choose(self, row: int) -> list[PersistentVolume | None]:
        """The volume of each waiting claim on that row; None where one is to be provisioned."""
        chosen: list[PersistentVolume | None] = [None] * len(self._to_provide)
        view = One(self._nodes, row)
        for position, usable_from in self._meant.items():
            if usable_from(view):
                chosen[position] = self._to_provide[position].prebound
        for name, positions in self._by_class.items():
            requests = [self._to_provide[position].request for position in positions]
            found = self._volumes.pool(name).choose(requests, row)
            for position, volume in zip(positions, found, strict=True):
                chosen[position] = volume
        return chosen

    def _found(self, view: View) -> dict[int, Cells]:
        """The rows with a free volume, for each claim that may get one."""
        found = {position: mask(view) for position, mask in self._meant.items()}
        for name, positions in self._by_class.items():
            requests = tuple([self._to_provide[position].request for position in positions])
            sizes = self._volumes.pool(name).matcher(requests).sizes()
            for position, rows in zip(positions, sizes, strict=True):
                found[position] = view.take(rows) >= 0
        return found

    def bindings(self, view: View) -> Iterator[StorageUse]:
        """For each claim that may get a free volume: its use of the volume, by row."""
        for position, mask in self._meant.items():
            waiting = self._to_provide[position]
            assert waiting.prebound is not None
            capacity = in_bytes(waiting.prebound.spec.capacity)
            yield StorageUse(waiting.class_name, waiting.bytes, view.where(mask(view), capacity, -1))
        for name, positions in self._by_class.items():
            requests = tuple([self._to_provide[position].request for position in positions])
            sizes = self._volumes.pool(name).matcher(requests).sizes()
            for position, rows in zip(positions, sizes, strict=True):
                yield StorageUse(name, self._to_provide[position].bytes, view.take(rows))

    def has_figures(self) -> bool:
        """Whether there are free volumes or storage capacities to score nodes by."""
        free = any(len(self._volumes.pool(name)) for name in self._by_class)
        return free or bool(self._meant) or any(map(self._is_checked, self._to_provide))

    def provisions(self, view: View) -> Iterator[StorageUse]:
        """For each claim whose driver reports storage capacity: its use of that, by row."""
        for waiting in self._to_provide:
            if self._is_checked(waiting):
                capacities = self._volumes.capacities(waiting.class_name)
                yield StorageUse(
                    waiting.class_name, waiting.bytes, capacities.capacity(waiting.bytes, view)
                )

    def _usable_from(self, volume: PersistentVolume) -> Mask:
        terms = affinity_terms(volume)
        return everywhere if terms is None else affinity_mask(self._nodes, terms)

    def _can_make(self, position: int, view: View) -> Cells:
        provisioner = self._to_provide[position].storage_class.provisioner
        if not provisioner or provisioner == NO_PROVISIONER:
            return view.full(False)
        return self._topologies[position](view)

    def _has_space(self, waiting: WaitingClaim, view: View) -> Cells:
        if not self._is_checked(waiting):
            return view.full(True)
        return self._volumes.capacities(waiting.class_name).capacity(waiting.bytes, view) >= 0

    def _is_checked(self, waiting: WaitingClaim) -> bool:
        """Whether a volume for the claim is provisioned only where there is enough storage capacity."""
        driver = self._volumes.driver(waiting.storage_class.provisioner)
        requests = waiting.claim.spec.resources.requests
        return driver is not None and bool(driver.spec.storage_capacity) and STORAGE in requests


def storage_score(lookup: Lookup, shape: Shape, view: View) -> Cells:
    """The mean over storage classes, of free volumes, or of storage capacity where none is used."""
    used, found = _mean(shape, view, lookup.bindings(view), shared=False)
    if view.single and found:
        return used
    provisioned, _ = _mean(shape, view, lookup.provisions(view), shared=True)
    return view.where(found, used, provisioned)


def _mean(shape: Shape, view: View, uses: Iterable[StorageUse], *, shared: bool) -> tuple[Cells, Cells]:
    """The score, and the rows where any storage is used. `shared`: whether the claims of a class use
    the same capacity rather than a volume each."""
    requested: dict[str, Cells] = {}
    capacity: dict[str, Cells] = {}
    present: dict[str, Cells] = {}
    for name, size, offered in uses:
        there = offered >= 0
        requested[name] = requested.get(name, 0) + there * size
        before = capacity.get(name, 0)
        capacity[name] = view.where(there, offered if shared else before + offered, before)
        present[name] = present.get(name, view.full(False)) | there
    total, count = 0, 0
    for name, there in present.items():
        offered = capacity[name]
        empty = offered == 0
        share = requested[name] * MAX_SCORE // (offered + empty) + empty * MAX_SCORE
        total = total + there * shape.at(view.minimum(share, MAX_SCORE))
        count = count + there * 1
    return (2 * total + count) // (2 * count + (count == 0)), count > 0


def _is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume's `claimRef` is complete, so that nothing has to be written to it."""
    ref = volume.spec.claim_ref
    return ref is not None and references_claim(ref, claim) and ref.uid == claim.metadata.uid


def _allowed(nodes: NodeTable, storage_class: StorageClass) -> Mask:
    """The nodes that the storage class provisions volumes for."""
    if not storage_class.allowed_topologies:
        return everywhere
    return compile_terms(nodes, storage_class.allowed_terms())
