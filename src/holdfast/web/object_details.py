"""One node, pod or reservation in full, read from the scheduler's state when somebody asks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.managers.claims.device_counts import devices_resource
from holdfast.scheduler.managers.devices.requests import GPU
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.cluster import Cluster
from holdfast.snapshot.cluster_snapshot import used_reservation
from holdfast.web.node_columns import taint_text
from holdfast.web.row_tables import ReservationRows, gate_message, phase_of, reservation_row

_MAX_STORY = 50
_FIELDS = ReservationRows.FIELDS

Json = dict[str, Any]


def node_details(scheduler: Scheduler, name: str) -> Json | None:
    """The node with its pods and reservations; None if there is no such node."""
    cluster = scheduler.cluster
    row = cluster.nodes.row(name)
    if row is None:
        return None
    info = cluster.nodes.info.get(row)
    pods = sorted(cluster.ledger.pods.get(row, {}).values(), key=lambda pod: (pod.namespace, pod.name))
    return {
        "name": name,
        "labels": dict(info.labels) if info is not None else {},
        "taints": [taint_text(taint) for taint in info.taints] if info is not None else [],
        "pods": [_placed(cluster, pod) for pod in pods],
        "reservations": [entry.reservation.name for entry in cluster.ledger.reservations.on(row)],
        "planned": [each.reservation.name for each in cluster.reservations.calendar.on(row)],
        "nominated": [f"{pod.namespace}/{pod.name}" for pod in cluster.nominated_pods(row)],
        "gpus": _gpus(cluster, row),
        "story": _story(cluster, f"Node/{name}"),
    }


def pod_details(scheduler: Scheduler, namespace: str, name: str) -> Json | None:
    cluster = scheduler.cluster
    pod = cluster.pod(namespace, name)
    if pod is None:
        return None
    reservation = used_reservation(cluster, pod)
    queues = cluster.jobs.queues
    return {
        **_placed(cluster, pod),
        "node": cluster.nodes.name(pod.row) if pod.row >= 0 else "",
        "phase": pod.phase.value,
        "place": _place(scheduler, pod),
        "reservation": reservation.name if reservation is not None else "",
        "message": pod.condition_message,
        "gated": gate_message(scheduler, pod),
        "rejectedBy": sorted(pod.rejected_by),
        "attempts": pod.attempts,
        "nominated": pod.nominated,
        "queue": queues.of(pod) if queues else pod.queue,
        "controller": next(
            (f"{each.kind}/{each.name}" for each in pod.cls.owners if each.controller), ""
        ),
        "scheduler": pod.scheduler,
        "gates": list(pod.gates),
        "labels": dict(pod.cls.labels),
        "story": _story(cluster, str(pod.ref)),
    }


def reservation_details(scheduler: Scheduler, name: str) -> Json | None:
    cluster = scheduler.cluster
    found = next((r for r in cluster.reservations.known.values() if r.name == name), None)
    if found is None:
        return None
    meta, spec = found.object.metadata, found.object.spec
    return {
        **dict(zip(_FIELDS, reservation_row(cluster, found), strict=True)),
        "uid": found.uid,
        "phase": phase_of(found),
        "labels": dict(meta.labels),
        "annotations": dict(meta.annotations),
        "ttl": spec.ttl,
        "preAllocation": spec.pre_allocation,
        "devices": _held_devices(cluster, found.uid),
        "unschedulable": spec.unschedulable,
        "taints": [taint_text(taint) for taint in spec.taints],
        "conditions": [
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason,
                "message": each.message,
                "since": each.last_transition_time,
            }
            for each in found.object.status.conditions
        ],
        "story": _story(cluster, str(found.ref)),
    }


def _place(scheduler: Scheduler, pod: PodRecord) -> str:
    if pod.row < 0 and scheduler.profile_of(pod.scheduler) is None:
        return "notServed"
    return scheduler.queue.place(pod.uid) or ""


def _placed(cluster: Cluster, pod: PodRecord) -> Json:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "priority": pod.cls.priority,
        "since": pod.since,
        "requests": named(cluster, dict(pod.cls.requests)) | _devices(cluster, pod),
        "job": pod.job.name if pod.job is not None else "",
        "reservationUid": pod.reservation_uid,
        "preempted": pod.being_preempted,
        "daemon": pod.cls.is_daemon,
    }


def named(cluster: Cluster, amounts: Amounts) -> dict[str, int]:
    """Amounts by resource, without the pod itself."""
    slots = cluster.nodes.slots
    return {
        name: amount for slot, amount in amounts.items() if slot != PODS and (name := slots.name(slot))
    }


def _devices(cluster: Cluster, pod: PodRecord) -> dict[str, int]:
    """How many devices the claims of a pod have, by driver."""
    return Counter(
        devices_resource(result.driver)
        for allocation in cluster.claims.allocations(pod)
        for result in allocation.devices.results
    )


def _held_devices(cluster: Cluster, reservation: str) -> list[str]:
    """The devices that a reservation holds by its claims, those included that owners use."""
    held = cluster.claims.held
    holders = filter(None, map(held.get, held.of(reservation)))
    return [str(each.device_id) for holder in holders for each in holder.held.devices.results]


def _gpus(cluster: Cluster, row: int) -> list[Json]:
    """The GPUs of the Device object of the node."""
    table = cluster.managers.devices.tables.get(GPU)
    infos = table.infos.get(row, {}) if table is not None else {}
    return [{"minor": minor, "healthy": bool(info.health)} for minor, info in sorted(infos.items())]


def _story(cluster: Cluster, name: str) -> list[Json]:
    """What the scheduler did with the object lately."""
    return [
        {"time": line.time, "what": line.what, "detail": line.detail}
        for line in cluster.story(name)[-_MAX_STORY:]
    ]
