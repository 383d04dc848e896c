"""The reservation that holds room for a task: made ahead of time, for one pod, on one node."""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

import msgspec

from holdfast.api import names
from holdfast.api.meta import ObjectMeta, ObjectReference
from holdfast.api.pod import PodSpec
from holdfast.api.reservation import Reservation, ReservationOwner, ReservationSpec
from holdfast.scheduler.cluster.class_key import allocation_annotations
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.jobs.starvation_holds import STARVATION
from holdfast.scheduler.reservations.reservation_cache import ReservationCache

_LONGEST_LABEL = 63
_LONGEST_NAME = 200
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9._-]")


def hold_name(pod: PodRecord, reservations: ReservationCache) -> str:
    """One no reservation has: there may have been a hold for the pod before."""
    mark = crc32(f"{pod.namespace}/{pod.name}".encode())
    base = f"held-for-{pod.name[:_LONGEST_NAME]}-{mark:08x}"
    name, number = base, 1
    while reservations.get(name) is not None:
        number += 1
        name = f"{base}-{number}"
    return name


def hold_for(pod: PodRecord, node: str, name: str) -> Reservation:
    """Its template is the pod, as far as placing it goes."""
    job = str(pod.job.name) if pod.job is not None else str(pod.ref)
    owner = ObjectReference(
        api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid
    )
    return Reservation(
        api_version=names.RESERVATION_API,
        kind="Reservation",
        metadata=ObjectMeta(
            name=name,
            labels={names.HOLD_LABEL: STARVATION, names.HOLD_JOB: _label(job.rpartition("/")[2])},
            annotations={names.HOLD_JOB: job},
        ),
        spec=ReservationSpec(
            template=_template(pod, node),
            owners=[ReservationOwner(object=owner)],
            ttl="0s",
            pre_allocation=True,
            allocate_once=True,
        ),
    )


def _template(pod: PodRecord, node: str) -> dict[str, Any]:
    seen = pod.cls.pod
    spec: PodSpec = msgspec.structs.replace(
        seen.spec,
        node_name=node,
        scheduler_name=pod.scheduler,
        priority=None,
        priority_class_name="",
        preemption_policy=None,
        scheduling_gates=[],
        affinity=pod.cls.affinity,
        # Their claims are made for pods; they cannot be found for a reserve pod.
        volumes=[volume for volume in pod.cls.volumes if volume.ephemeral is None],
    )
    raw: dict[str, Any] = msgspec.to_builtins(spec)
    metadata: dict[str, Any] = {"namespace": pod.namespace, "labels": dict(seen.metadata.labels)}
    if annotations := allocation_annotations(seen.metadata.annotations):
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": raw}


def _label(text: str) -> str:
    return _NOT_IN_LABELS.sub("-", text)[:_LONGEST_LABEL].strip("-._")
