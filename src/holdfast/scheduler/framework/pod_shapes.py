"""The shape of a pod class: what of it decides on which nodes its pods are feasible.

Classes differ in namespace, labels and owners, which affinity terms, spread constraints, budgets and
reservations read. Where none of them concerns a class, the same nodes are feasible for all classes of
its shape, for the same reasons, and the same victims can be preempted for them. Unschedulable pods of
one shape then are one group in the queue: thousands of pods that each have an owner of their own wait
like the replicas of one.

What can begin to concern a class moves `version`: classes with required anti-affinity, owners of
reservations, holds, planned reservations, queues. The groups are then divided anew
(`QueueingHints`).
"""

from collections.abc import Hashable

import msgspec

from holdfast.scheduler.cluster.class_key import class_key, is_class_annotation
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.state.cluster import Cluster


class PodShapes:
    """The shapes of classes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._keys: dict[int, bytes] = {}
        """By class."""
        self._anti_affinity = 0
        """Moves when a class with required anti-affinity appears or disappears."""
        for cls in cluster.classes:
            self._class_added(cls)
        cluster.classes.on_added.append(self._class_added)
        cluster.classes.on_dropped.append(self._class_dropped)

    def version(self) -> Hashable:
        """Moves when a class may cease to share its shape, or begin to."""
        cluster = self._cluster
        return (
            cluster.epoch.owners,
            self._anti_affinity,
            cluster.epoch.kinds["Namespace"],
            bool(cluster.reservations.starvation_holds),
            bool(cluster.reservations.calendar),
            bool(cluster.jobs.queues),
        )

    def of(self, profile: Profile, cls: PodClass, column: ClassColumn) -> Hashable | None:
        """The shape of the class, whose column is up to date; None if its pods are a group of their
        own."""
        if (
            profile.foreign
            or column.owned
            or column.rejected is not None
            or column.failed_in >= 0
            or not column.is_local
            or column.needs is None
            or cls.private
            or cls.owner_spec_id >= 0
            or cls.pinned
            or cls.is_daemon
            or cls.brings_template
            or cls.claims
            or cls.group is not None
            or cls.volumes
            or self._cluster.jobs.queues
            or self._cluster.reservations.starvation_holds
            or self._cluster.reservations.calendar
        ):
            return None
        key = self._keys.get(cls.id)
        if key is None:
            key = self._keys[cls.id] = _shape_key(cls)
        return key, cls.priority

    def _class_added(self, cls: PodClass) -> None:
        if _has_anti_affinity(cls):
            self._anti_affinity += 1

    def _class_dropped(self, cls: PodClass) -> None:
        self._class_added(cls)
        self._keys.pop(cls.id, None)


def _has_anti_affinity(cls: PodClass) -> bool:
    side = cls.affinity.pod_anti_affinity if cls.affinity is not None else None
    return side is not None and bool(side.required_during_scheduling_ignored_during_execution)


def _shape_key(cls: PodClass) -> bytes:
    """The class key without namespace, owners, and labels that only selectors read."""
    metadata = cls.pod.metadata
    labels = {
        key: value for key, value in metadata.labels.items() if is_class_annotation(key, frozenset())
    }
    plain = msgspec.structs.replace(metadata, namespace="", labels=labels, owner_references=[])
    return class_key(msgspec.structs.replace(cls.pod, metadata=plain))
