"""The Reservations that the scheduler makes for one pod on one node, and the pod template of a pod.

A preemption hold keeps the capacity that victims leave for their preemptor; a starvation hold keeps the
capacity that a starving job waits for. Both are waiting reservations (pre-allocation) without expiry,
for one owner, who is named by uid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any
from zlib import crc32

import msgspec

from holdfast.api import names
from holdfast.api.meta import ObjectMeta, ObjectReference
from holdfast.api.plurals import number_of
from holdfast.api.pod import Container, PodSpec
from holdfast.api.reservation import Reservation, ReservationOwner, ReservationSpec
from holdfast.scheduler.cluster.class_key import allocation_annotations
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord

_LONGEST_LABEL = 63
HELD_FOR_PREFIX = "held-for-"
"""What the names of starvation holds begin with."""
_LONGEST = 200
"""The length to which a pod's name is cut in the name of its hold, which can have 253 characters."""
_NEVER = "0s"
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._-]")


def pod_spec(cls: PodClass, **changes: Any) -> PodSpec:
    """The spec of a reserve pod that is scheduled as pods of the class are, on any node."""
    fields = {
        "node_name": "",
        "scheduling_gates": [],
        "affinity": cls.affinity,
        "volumes": list(cls.volumes),
    }
    return msgspec.structs.replace(cls.pod.spec, **{**fields, **changes})


def _without_claims(container: Container) -> Container:
    """A container that uses no entries of `resourceClaims`, which are left out or named otherwise."""
    resources = container.resources
    if not resources.claims:
        return container
    return msgspec.structs.replace(container, resources=msgspec.structs.replace(resources, claims=()))


def hold_template(cls: PodClass) -> dict[str, Any]:
    """The pod template of holds for pods of the class: what scheduling reads. It has no priority, as
    holds are never preempted, and no claims: the devices of a pod may be in use as long as it waits."""
    given = cls.pod.spec
    spec = pod_spec(
        cls,
        resource_claims=[],
        containers=[_without_claims(each) for each in given.containers],
        init_containers=[_without_claims(each) for each in given.init_containers],
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
    return {"metadata": metadata, "spec": msgspec.to_builtins(spec)}


def with_claims(template: dict[str, Any], claims: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """A `hold_template` for a pod with these ResourceClaims, by namespace and name."""
    entries = [
        {"name": f"claim-{at}", "resourceClaimName": name} for at, (_, name) in enumerate(claims)
    ]
    return {**template, "spec": {**template["spec"], "resourceClaims": entries}}


def preemption_hold(
    pod: PodRecord, template: dict[str, Any], node: str, victims: int, taken: Callable[[str], bool]
) -> Reservation:
    """The Reservation that keeps what so many victims leave on a node. `template` is the class's
    `hold_template`; `taken` returns whether a name belongs to another reservation."""
    owner = f"{pod.namespace}/{pod.name}"
    what = number_of(victims, "pod")
    meta = ObjectMeta(
        name=next(name for name in _preemption_hold_names(pod, node) if not taken(name)),
        labels={names.PREEMPTOR_UID: pod.uid},
        annotations={
            names.HELD_FOR: owner,
            names.HELD_BECAUSE: f"{what} on {node} preempted for {owner}",
        },
    )
    return _hold(meta, pod, template, node)


def starvation_hold(pod: PodRecord, node: str, name: str) -> Reservation:
    """The Reservation that keeps capacity on a node for a pod of a starving job."""
    job = pod.job_name or str(pod.ref)
    meta = ObjectMeta(
        name=name,
        labels={names.HOLD_LABEL: names.STARVATION, names.HOLD_JOB: _label(job.rpartition("/")[2])},
        annotations={names.HOLD_JOB: job},
    )
    return _hold(meta, pod, hold_template(pod.cls), node)


def starvation_hold_name(pod: PodRecord, taken: Callable[[str], bool]) -> str:
    """A name that is not `taken`: the pod may have had a hold before."""
    mark = crc32(f"{pod.namespace}/{pod.name}".encode())
    base = f"{HELD_FOR_PREFIX}{pod.name[:_LONGEST]}-{mark:08x}"
    name, number = base, 1
    while taken(name):
        number += 1
        name = f"{base}-{number}"
    return name


def _hold(meta: ObjectMeta, pod: PodRecord, template: dict[str, Any], node: str) -> Reservation:
    owner = ObjectReference(
        api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid
    )
    on_node = {**template["spec"], "schedulerName": pod.scheduler, "nodeName": node}
    return Reservation(
        api_version=names.RESERVATION_API,
        kind="Reservation",
        metadata=meta,
        spec=ReservationSpec(
            template={**template, "spec": on_node},
            owners=[ReservationOwner(object=owner)],
            ttl=_NEVER,
            pre_allocation=True,
            allocate_once=True,
        ),
    )


def _preemption_hold_names(pod: PodRecord, node: str) -> Iterator[str]:
    """The first one is the same for the same pod and node, so that there are never two."""
    shown = pod.name[:_LONGEST].rstrip("-.")
    for more in count():
        mark = crc32(f"{pod.namespace}/{pod.name}/{node}".encode()) + more
        yield f"preempted-for-{shown}-{mark & 0xFFFFFFFF:08x}"


def _label(text: str) -> str:
    return _NOT_IN_LABELS.sub("-", text)[:_LONGEST_LABEL].strip("-._")
