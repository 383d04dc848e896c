"""The volume manager: claims, volumes, classes and drivers, kept in line with objects and pods.

Everything that a plugin's answer can depend on has a stamp, a counter that changes with it: each claim,
volume, class and driver, and the available volumes and the storage capacity of each class. What does
not exist has the stamp 0.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from typing import Any

from holdfast.api.meta import Object, ObjectReference
from holdfast.api.names import SELECTED_NODE_ANNOTATION
from holdfast.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from holdfast.scheduler.cluster.epoch import Epoch
from holdfast.scheduler.cluster.ledger import Ledger
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.object_index import set_indexed
from holdfast.scheduler.cluster.pod_classes import PodClass, PodClasses
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry
from holdfast.scheduler.managers.volumes.assume_cache import Assumed, RowUse
from holdfast.scheduler.managers.volumes.attach_limits import Attached, CountedVolumes, Reserved, settle
from holdfast.scheduler.managers.volumes.csi_translation import (
    DRIVERS,
    NOT_COUNTED,
    Migrated,
    migrated_volume,
)
from holdfast.scheduler.managers.volumes.queueing_hints import (
    DEFAULT_CLASS,
    of_capacities,
    of_claim,
    of_class,
    of_driver,
    of_pool,
    of_volume,
)
from holdfast.scheduler.managers.volumes.storage_capacity import Capacities
from holdfast.scheduler.managers.volumes.volume_objects import (
    ONE_POD,
    ClaimKey,
    DiskUse,
    ReservedUse,
    WantedVolume,
    claim_class,
    default_class,
    is_free,
    reference,
    volume_class,
    wanted,
)
from holdfast.scheduler.managers.volumes.volume_pool import Pool

STORAGE_KINDS: tuple[type[Object], ...] = (
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CSINode,
    CSIDriver,
    CSIStorageCapacity,
    VolumeAttachment,
)

_NO_CLAIMS: frozenset[ClaimKey] = frozenset()


class VolumeManager:
    """All storage objects, the volumes in use on each row, and the assumed bindings."""

    def __init__(self, nodes: NodeTable, ledger: Ledger, classes: PodClasses, epoch: Epoch) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._epoch = epoch
        self._stamps: dict[Hashable, int] = {}
        self._stamped = 0
        self._wanted: dict[int, WantedVolume] = {}
        self._claims: dict[ClaimKey, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._drivers: dict[str, CSIDriver] = {}
        self._pools: dict[str, Pool] = {}
        self._capacities: dict[str, Capacities] = {}
        self._claims_of: dict[str, set[ClaimKey]] = {}
        """The claims that name a volume."""
        self._volumes_by_claim: dict[ClaimKey, set[str]] = {}
        """The volumes that name a claim."""
        self._identities: dict[ClaimKey, Migrated | None] = {}
        self.assumed = Assumed()
        self.touched: set[Hashable] = set()
        """Stamps that changed in a way that can help pending pods, until they are read."""
        self.claim_uses: RowUse[ClaimKey] = RowUse(nodes)
        self.disk_uses: RowUse[DiskUse] = RowUse(nodes)
        self._inline_uses: RowUse[Migrated] = RowUse(nodes)
        self._users: dict[int, dict[str, PodRecord]] = {}
        """Pods and reserve pods with volumes, by row and uid."""
        self._reserving: dict[int, dict[str, PodRecord]] = {}
        """The reserve pods among them."""
        self.attached = Attached(nodes, epoch.nodes, self._volumes_on, self.volume)
        self._put: dict[type, Callable[[Any, Any], None]] = {
            PersistentVolumeClaim: self._put_claim,
            PersistentVolume: self._put_volume,
            StorageClass: self._put_class,
            CSINode: self._put_csi_node,
            CSIDriver: self._put_driver,
            CSIStorageCapacity: self._put_capacity,
            VolumeAttachment: self._put_attachment,
        }
        ledger.listeners.append(self.pod_moved)
        classes.on_dropped.append(self._class_dropped)

    # Queries

    def wanted(self, cls: PodClass) -> WantedVolume:
        found = self._wanted.get(cls.id)
        if found is None:
            found = self._wanted[cls.id] = wanted(cls)
        return found

    def claim(self, key: ClaimKey) -> PersistentVolumeClaim | None:
        return self._claims.get(key)

    def volume(self, name: str) -> PersistentVolume | None:
        return self._volumes.get(name)

    def storage_class(self, name: str) -> StorageClass | None:
        return self._classes.get(name)

    def driver(self, name: str) -> CSIDriver | None:
        return self._drivers.get(name)

    def pool(self, storage_class: str) -> Pool:
        """The available volumes of a class. Callers do not keep it: it can be replaced."""
        pool = self._pools.get(storage_class)
        return pool if pool is not None else Pool(self._nodes, self._epoch.nodes)

    def capacities(self, storage_class: str) -> Capacities:
        """The storage capacity of a class."""
        found = self._capacities.get(storage_class)
        return found if found is not None else Capacities(self._nodes)

    def volumes_of_claim(self, key: ClaimKey) -> list[PersistentVolume]:
        """The volumes whose claimRef is the claim, assumed bindings included."""
        return [self._volumes[name] for name in sorted(self._volumes_by_claim.get(key, ()))]

    def claim_ref(self, volume: PersistentVolume) -> ObjectReference | None:
        """The claim that a volume is bound to, or assumed to be."""
        binding = self.assumed.volumes.get(volume.metadata.name)
        return volume.spec.claim_ref if binding is None else binding.claim

    def selected_node(self, claim: PersistentVolumeClaim) -> str | None:
        """The node selected for the provisioning of a claim's volume, or assumed to be."""
        binding = self.assumed.claims.get(_key(claim))
        if binding is not None:
            return binding.node
        return claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION)

    def identity(self, key: ClaimKey) -> Migrated | None:
        """The driver and handle of a claim's volume; for an unbound claim, a handle of its own to count
        by."""
        claim = self._claims.get(key)
        if claim is None:
            return None
        if key not in self._identities:
            self._identities[key] = self._identify(key, claim)
        return self._identities[key]

    def exclusive_claims(self, cls: PodClass) -> frozenset[ClaimKey]:
        """The ReadWriteOncePod claims of a class: only one pod of the cluster can use each."""
        if not cls.volumes:
            return _NO_CLAIMS
        used = (use.key for use in self.wanted(cls).claims)
        known = ((key, self.claim(key)) for key in used)
        return frozenset(key for key, claim in known if claim and ONE_POD in claim.spec.access_modes)

    def is_claimed(self, cls: PodClass, row: int, ours: Sequence[PodClass]) -> bool:
        """Whether a reserve pod on the row cannot have its volumes: another pod uses a disk that cannot
        be shared or a ReadWriteOncePod claim, or an attach limit is exceeded. `ours` are the classes of
        pods on the row that do not count, its own included."""
        wanted, alive = self.wanted(cls), self._nodes.alive
        others = [self.wanted(each) for each in ours]
        for use in wanted.claims:
            claim = self.claim(use.key)
            if claim is None or ONE_POD not in claim.spec.access_modes:
                continue
            uses = sum(count for at, count in self.claim_uses.rows(use.key).items() if alive[at])
            uses -= sum(theirs.key == use.key for each in others for theirs in each.claims)
            if uses > 0:
                return True
        for mine in wanted.disks:
            for read_only in (False, True)[: 1 if mine.read_only else 2]:
                disk = DiskUse(mine.disk, read_only)
                uses = self.disk_uses.rows(disk).get(row, 0)
                uses -= sum(theirs == disk for each in others for theirs in each.disks)
                if uses > 0:
                    return True
        found = [*wanted.inline, *(self.identity(use.key) for use in wanted.claims)]
        drivers = dict.fromkeys(volume.driver for volume in found if volume is not None)
        drivers |= dict.fromkeys(self.driver_of(self.class_of(use)) for use in wanted.reserved)
        self.attached.refresh()
        for driver in drivers:
            left = self.attached.left(driver)
            if left is not None and left.item(row) < 0:
                return True
        return False

    def stamps(self, keys: Iterable[Hashable]) -> Callable[[], Hashable]:
        """A version that changes with any of these stamps."""
        watched = tuple(keys)
        stamps = self._stamps
        return lambda: tuple([stamps.get(key, 0) for key in watched])

    # Stamps

    def _stamp(self, key: Hashable, there: object = True) -> None:
        if there:
            self._stamped += 1
            self._stamps[key] = self._stamped
        else:
            self._stamps.pop(key, None)

    def take_touched(self) -> set[Hashable]:
        touched, self.touched = self.touched, set()
        return touched

    # Objects and pods

    def put(self, before: Object | None, after: Object | None) -> None:
        """Follows an object of one of `STORAGE_KINDS` that was added, changed or deleted."""
        self._put[type(after if after is not None else before)](before, after)

    def pod_moved(self, pod: PodRecord, row: int, sign: int) -> None:
        """Follows the ledger: a pod or reserve pod was added to a row (sign 1) or removed (-1)."""
        if not pod.cls.volumes:
            return
        uses = self.wanted(pod.cls)
        for claim in uses.claims:
            self.claim_uses.add(claim.key, row, sign)
        for disk in uses.disks:
            self.disk_uses.add(disk, row, sign)
        for volume in uses.inline:
            self._inline_uses.add(volume, row, sign)
        if uses.claims or uses.inline or uses.reserved:
            _index_pod(self._users, row, pod, sign)
            if pod.reservation is not None:
                _index_pod(self._reserving, row, pod, sign)
            self.attached.stale((row,))

    def pod_allocated(self, pod: PodRecord) -> None:
        """Counts the row of a pod again: it is allocated from another reservation than before."""
        if pod.cls.volumes and pod.row in self._reserving:
            self.attached.stale((pod.row,))

    def waiting_changed(self, row: int) -> None:
        """Counts a row again: a reservation on it became Waiting, or is no longer."""
        if row in self._reserving:
            self.attached.stale((row,))

    def _volumes_on(self, row: int, attached: Iterable[Migrated]) -> CountedVolumes:
        """The volumes of pods and reservations on a row, and what is left of the latter for owners."""
        reserving = self._reserving.get(row)
        if not reserving:
            known = (self.identity(key) for key in self.claim_uses.on(row))
            found = {volume for volume in known if volume is not None}
            found.update(self._inline_uses.on(row))
            return CountedVolumes(found, {})
        used: set[Migrated] = set()
        allocated: dict[str, set[Migrated]] = {uid: set() for uid in reserving}
        for uid, pod in self._users[row].items():
            if uid not in reserving:
                volumes = self._volumes_of(pod)
                used |= volumes
                if pod.reservation_uid in allocated:
                    allocated[pod.reservation_uid] |= volumes
        return settle(
            used,
            attached,
            [
                Reserved(
                    uid,
                    frozenset(self._volumes_of(pod)),
                    frozenset(allocated[uid]),
                    pod.reservation is not None and pod.reservation.waiting,
                )
                for uid, pod in reserving.items()
            ],
        )

    def _volumes_of(self, pod: PodRecord) -> set[Migrated]:
        """The volumes of a pod or reserve pod that count towards attach limits."""
        uses = self.wanted(pod.cls)
        known = (self.identity(use.key) for use in uses.claims)
        found = {volume for volume in known if volume is not None}
        found.update(uses.inline)
        for use in uses.reserved:
            driver = self.driver_of(self.class_of(use))
            if driver:
                # No handle a driver gives looks like this.
                found.add(Migrated(driver, f"reserved:{pod.uid}/{use.volume}"))
        return found

    def class_of(self, use: ReservedUse) -> str:
        """The storage class of an ephemeral volume."""
        if use.storage_class is not None:
            return use.storage_class
        return default_class(self._classes.values())

    def driver_of(self, storage_class: str) -> str:
        """The driver for which volumes of the class count; empty if they do not count."""
        known = self._classes.get(storage_class)
        if known is None or known.provisioner in NOT_COUNTED:
            return ""
        return DRIVERS.get(known.provisioner, known.provisioner)

    def spare(self, row: int, entry: int, driver: str, besides: Container[Migrated]) -> int:
        """How many attachments of a driver are left of the reservation with this entry index for
        volumes of its owners, `besides` these."""
        for each in self._ledger.reservations.on(row) if row in self.attached.spare else ():
            if each.index == entry:
                left = self.attached.spare[row].get(each.pod.uid, ())
                return sum(v.driver == driver and v not in besides for v in left)
        return 0

    def serves(self, cls: PodClass, entry: ReservationEntry) -> bool:
        """Whether an attachment is left of the reservation for a volume of a pod of the class."""
        if entry.row not in self._reserving:
            return False
        self.attached.refresh()
        left = self.attached.spare.get(entry.row, {}).get(entry.pod.uid)
        if not left:
            return False
        uses, drivers = self.wanted(cls), {volume.driver for volume in left}
        asked = [*uses.inline, *(self.identity(use.key) for use in uses.claims)]
        return any(volume is not None and volume.driver in drivers for volume in asked)

    def _class_dropped(self, cls: PodClass) -> None:
        self._wanted.pop(cls.id, None)

    def _put_claim(
        self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None
    ) -> None:
        for claim, there in ((before, False), (after, True)):
            if claim is not None and claim.spec.volume_name:
                set_indexed(self._claims_of, claim.spec.volume_name, _key(claim), there)
        some = after if after is not None else before
        assert some is not None
        key = _key(some)
        if after is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = after
        if key in self.assumed.claims and (
            after is None
            or after.spec.volume_name
            or SELECTED_NODE_ANNOTATION in after.metadata.annotations
        ):
            del self.assumed.claims[key]
        self._stamp(of_claim(key), after)
        self._identity_changed(key)

    def _put_volume(self, before: PersistentVolume | None, after: PersistentVolume | None) -> None:
        some = after if after is not None else before
        assert some is not None
        name = some.metadata.name
        if before is not None:
            self._index_volume(before, False)
        binding = self.assumed.volumes.get(name)
        if binding is not None and (after is None or after.spec.claim_ref is not None):
            del self.assumed.volumes[name]
        if after is None:
            self._volumes.pop(name, None)
        else:
            self._volumes[name] = after
            self._index_volume(after, True)
        self._stamp(of_volume(name), after)
        for key in sorted(self._claims_of.get(name, ())):
            self._identity_changed(key)
        self._rows_changed(self.attached.put_volume(name))

    def _index_volume(self, volume: PersistentVolume, there: bool) -> None:
        """Indexes a volume, or removes it: by its claim, and in the pool if it is available."""
        name, storage_class = volume.metadata.name, volume_class(volume)
        ref = self.claim_ref(volume)
        if ref is not None:
            key = ClaimKey(ref.namespace, ref.name)
            set_indexed(self._volumes_by_claim, key, name, there)
            if key in self._claims:
                self._stamp(of_claim(key))
        elif is_free(volume):
            pool = self.pool(storage_class)
            if there:
                pool.put(volume)
                self._pools[storage_class] = pool
            else:
                pool.take(name)
                if not len(pool):
                    del self._pools[storage_class]
            self._stamp(of_pool(storage_class), len(pool))

    def _put_class(self, before: StorageClass | None, after: StorageClass | None) -> None:
        some = after if after is not None else before
        assert some is not None
        name = some.metadata.name
        if after is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = after
        self._stamp(of_class(name), after)
        self._stamp(DEFAULT_CLASS, self._classes)
        for row, reserving in self._reserving.items():
            if any(self.wanted(pod.cls).reserved for pod in reserving.values()):
                self.attached.stale((row,))
                self._rows_changed((row,))
        if before is None or after is None or before.provisioner != after.provisioner:
            for key, claim in self._claims.items():
                if claim_class(claim) == name:
                    self._identity_changed(key)

    def _put_driver(self, before: CSIDriver | None, after: CSIDriver | None) -> None:
        some = after if after is not None else before
        assert some is not None
        name = some.metadata.name
        if after is None:
            self._drivers.pop(name, None)
        else:
            self._drivers[name] = after
        self._stamp(of_driver(name), after)

    def _put_capacity(
        self, before: CSIStorageCapacity | None, after: CSIStorageCapacity | None
    ) -> None:
        for capacity, there in ((before, False), (after, True)):
            if capacity is None:
                continue
            storage_class = capacity.storage_class_name
            meta = capacity.metadata
            capacities = self._capacities.setdefault(storage_class, Capacities(self._nodes))
            capacities.put((meta.namespace, meta.name), capacity if there else None)
            if not len(capacities):
                del self._capacities[storage_class]
            self._stamp(of_capacities(storage_class), len(capacities))

    def _put_csi_node(self, before: CSINode | None, after: CSINode | None) -> None:
        some = after if after is not None else before
        assert some is not None
        row = self.attached.put_csi_node(some.metadata.name, after)
        if row is not None:
            self._epoch.nodes.add(row)

    def _put_attachment(self, before: VolumeAttachment | None, after: VolumeAttachment | None) -> None:
        self._rows_changed(self.attached.put_attachment(before, after))

    # Assumed bindings

    def assume_volume(self, volume: PersistentVolume, claim: PersistentVolumeClaim, pod: str) -> None:
        """Assumes that the volume is bound to the claim, for a pod."""
        name = volume.metadata.name
        if name not in self.assumed.volumes:
            self._index_volume(volume, False)
            self.assumed.assume_volume(name, reference(claim), pod)
            self._index_volume(volume, True)
        else:
            self.assumed.assume_volume(name, reference(claim), pod)

    def assume_node(self, claim: PersistentVolumeClaim, node: str, pod: str) -> None:
        """Assumes that the claim's volume is provisioned for the node, for a pod."""
        if claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION) == node:
            return
        key = _key(claim)
        self.assumed.assume_node(key, node, pod)
        self._stamp(of_claim(key))

    def release(self, pod: str) -> bool:
        """Drops the assumed bindings of a pod. Returns whether there were any."""
        if pod not in self.assumed:
            return False
        volumes, claims = self.assumed.kept_for(pod)
        for name in volumes:
            self._index_volume(self._volumes[name], False)
        self.assumed.release(pod)
        for name in volumes:
            self._index_volume(self._volumes[name], True)
            self.touched.add(of_pool(volume_class(self._volumes[name])))
        for key in claims:
            self._stamp(of_claim(key), key in self._claims)
            self.touched.add(of_claim(key))
        return bool(volumes or claims)

    # Identities

    def _identify(self, key: ClaimKey, claim: PersistentVolumeClaim) -> Migrated | None:
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is None:
            return self._identify_by_class(key, claim)
        csi = volume.spec.csi
        if csi is None:
            return migrated_volume(volume)
        return Migrated(csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None

    def _identify_by_class(self, key: ClaimKey, claim: PersistentVolumeClaim) -> Migrated | None:
        storage_class = self._classes.get(claim_class(claim))
        if storage_class is None:
            return None
        driver = self.driver_of(storage_class.metadata.name)
        if not driver:
            return None
        # No handle a driver gives looks like this.
        return Migrated(driver, f"claim:{key}")

    def _identity_changed(self, key: ClaimKey) -> None:
        known = self._identities.pop(key, None)
        rows = self.claim_uses.rows(key)
        if rows and known != self.identity(key):
            self.attached.stale(rows)
            self._rows_changed(rows)

    def _rows_changed(self, rows: Iterable[int]) -> None:
        """Marks these rows as changed for all caches."""
        for row in rows:
            self._epoch.usage.add(row)

    # Self-check

    def problems(self, pods: dict[str, PodRecord]) -> list[str]:
        """The differences between what is kept here and a computation from scratch, as messages."""
        found = []
        epoch = Epoch()
        recount = VolumeManager(
            self._nodes, Ledger(self._nodes, epoch.usage), PodClasses(lambda _: 0), epoch
        )
        objects = (
            *self._claims.values(),
            *self._volumes.values(),
            *self._classes.values(),
            *self.attached.attachments(),
        )
        for obj in objects:
            recount.put(None, obj)
        for pod in pods.values():
            if pod.row >= 0:
                recount.pod_moved(pod, pod.row, 1)
        for what, uses, right in (
            ("claims", self.claim_uses.counts(), recount.claim_uses.counts()),
            ("disks", self.disk_uses.counts(), recount.disk_uses.counts()),
        ):
            if uses != right:
                found.append(f"{what} in use are {uses}, should be {right}")
        self.attached.refresh()
        for row in range(self._nodes.size):
            here, should = set(self.attached.volumes.on(row)), recount.attached.expected(row)
            if here != should:
                found.append(f"row {row} has volumes {here}, should have {should}")
        stray = self.assumed.pods() - set(pods)
        found.extend(f"assumed bindings of pod {uid}, which is gone" for uid in sorted(stray))
        for name, binding in self.assumed.volumes.items():
            if binding.claim is not None:
                recount.assume_volume(recount._volumes[name], _as_claim(binding.claim), "recount")
        free = {name: pool.names() for name, pool in self._pools.items() if len(pool)}
        right_free = {name: pool.names() for name, pool in recount._pools.items() if len(pool)}
        if free != right_free:
            found.append(f"free volumes are {free}, should be {right_free}")
        if self._volumes_by_claim != recount._volumes_by_claim:
            found.append(
                f"volumes of claims are {self._volumes_by_claim}, should be {recount._volumes_by_claim}"
            )
        return found


def _key(claim: PersistentVolumeClaim) -> ClaimKey:
    return ClaimKey(claim.metadata.namespace, claim.metadata.name)


def _as_claim(ref: ObjectReference) -> PersistentVolumeClaim:
    claim = PersistentVolumeClaim()
    claim.metadata.namespace, claim.metadata.name = ref.namespace, ref.name
    claim.metadata.uid = ref.uid
    return claim


def _index_pod(table: dict[int, dict[str, PodRecord]], row: int, pod: PodRecord, sign: int) -> None:
    there = table.setdefault(row, {})
    if sign > 0:
        there[pod.uid] = pod
    else:
        there.pop(pod.uid, None)
        if not there:
            del table[row]
