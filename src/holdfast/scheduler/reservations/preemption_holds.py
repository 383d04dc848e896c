"""Room that was preempted, held for the pod it was made for by a reservation of its own.

Such a reservation names the preemptor by its uid, in a label and as its only owner, and the node it is
for. Only that pod draws on it, so no class of pods is told apart because of it: where the pod looks at
that node, what is held there for it counts as free.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api import names
from holdfast.api.meta import ObjectMeta, ObjectReference
from holdfast.api.reservation import AllocatePolicy, Reservation, ReservationOwner, ReservationSpec
from holdfast.scheduler.cluster.class_key import allocation_annotations
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.pods import PodRecord

if TYPE_CHECKING:
    from holdfast.scheduler.reservations.reservation_info import ReservationInfo

_LONGEST = 200
"""Of a pod's name in the name of a reservation, which may have 253 characters."""
_FOR_EVER = "0s"


def template_of(cls: PodClass) -> dict[str, Any]:
    """What pods of the class ask of a node, as a pod template without a node; nor has it a priority,
    since it comes before everything and is nobody's victim."""
    asked = msgspec.structs.replace(
        cls.pod.spec,
        affinity=cls.affinity,
        volumes=list(cls.volumes),
        node_name="",
        scheduling_gates=[],
        active_deadline_seconds=None,
        termination_grace_period_seconds=None,
        restart_policy="",
        preemption_policy=None,
        priority=None,
        priority_class_name="",
    )
    metadata: dict[str, Any] = {"namespace": cls.namespace, "labels": dict(cls.labels)}
    if annotations := allocation_annotations(cls.annotations):
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": msgspec.to_builtins(asked)}


def room_for(
    pod: PodRecord, template: dict[str, Any], node: str, victims: int, taken: Callable[[str], bool]
) -> Reservation:
    """The reservation that holds the room made for a pod on a node by so many victims; `taken` says
    whether a name is another's."""
    owner = f"{pod.namespace}/{pod.name}"
    what = "1 pod" if victims == 1 else f"{victims} pods"
    return Reservation(
        api_version=names.RESERVATION_API,
        kind="Reservation",
        metadata=ObjectMeta(
            name=next(name for name in _names(pod, node) if not taken(name)),
            labels={names.PREEMPTOR_UID: pod.uid},
            annotations={
                names.HELD_FOR: owner,
                names.HELD_BECAUSE: f"{what} on {node} had to make room for {owner}",
            },
        ),
        spec=ReservationSpec(
            template={
                **template,
                "spec": {**template["spec"], "schedulerName": pod.scheduler, "nodeName": node},
            },
            owners=[
                ReservationOwner(
                    object=ObjectReference(
                        api_version="v1",
                        kind="Pod",
                        namespace=pod.namespace,
                        name=pod.name,
                        uid=pod.uid,
                    )
                )
            ],
            ttl=_FOR_EVER,
            pre_allocation=True,
            allocate_once=True,
        ),
    )


def _names(pod: PodRecord, node: str) -> Iterator[str]:
    """The first is the same for the same pod and node, so that there are never two."""
    shown = pod.name[:_LONGEST].rstrip("-.")
    for more in count():
        mark = zlib.crc32(f"{pod.namespace}/{pod.name}/{node}".encode()) + more
        yield f"preempted-for-{shown}-{mark & 0xFFFFFFFF:08x}"


def preemptor_of(reservation: Reservation) -> str:
    """The uid of the pod whose preempted room this holds; empty if it is no such reservation, or was
    made into something else."""
    uid, spec = reservation.metadata.labels.get(names.PREEMPTOR_UID, ""), reservation.spec
    if not uid or len(spec.owners) != 1 or not spec.once:
        return ""
    (owner,) = spec.owners
    if owner.controller is not None or owner.label_selector is not None or owner.object is None:
        return ""
    plain = spec.allocate_policy == AllocatePolicy.DEFAULT and spec.pre_allocation
    return uid if plain and owner.object.uid == uid else ""


class PreemptionHolds(dict[str, dict[str, "ReservationInfo"]]):
    """Those there are, by the uid of the preemptor and their own. A plain dictionary, since every pod
    asks whether there is one for it."""

    def add(self, reservation: ReservationInfo) -> None:
        self.setdefault(reservation.preemptor, {})[reservation.uid] = reservation

    def remove(self, reservation: ReservationInfo) -> None:
        there = self.get(reservation.preemptor)
        if there is not None and there.pop(reservation.uid, None) is not None and not there:
            del self[reservation.preemptor]

    def of(self, pod: PodRecord, row: int) -> ReservationInfo | None:
        """What is held for the pod on this row."""
        there = self.get(pod.uid)
        for reservation in there.values() if there else ():
            if reservation.pod is not None and reservation.pod.row == row:
                return reservation
        return None
