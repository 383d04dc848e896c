"""Explains an object of a snapshot by its kind."""

from collections.abc import Iterable
from contextlib import nullcontext

from holdfast.api.kinds import KindInfo
from holdfast.api.names import SIGS_PODGROUP_API
from holdfast.explanation.facts.created_claims import claims_created
from holdfast.explanation.facts.expected_plans import all_planned
from holdfast.explanation.report import Report
from holdfast.explanation.subjects.claims import explain_device_claim, explain_volume_claim
from holdfast.explanation.subjects.cron_jobs import explain_cron_job
from holdfast.explanation.subjects.groups import explain_group
from holdfast.explanation.subjects.migrations import explain_migration
from holdfast.explanation.subjects.nodes import explain_node
from holdfast.explanation.subjects.pods import explain_pod
from holdfast.explanation.subjects.queues import explain_queue
from holdfast.explanation.subjects.reservations import explain_reservation
from holdfast.explanation.subjects.schedules import explain_schedule
from holdfast.explanation.subjects.workloads import explain_workload
from holdfast.kube.object_client import Raw
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_EXPLAINERS = {
    "Pod": explain_pod,
    "Reservation": explain_reservation,
    "ReservationSchedule": explain_schedule,
    "PodGroup": explain_group,
    "PodMigrationJob": explain_migration,
    "CronJob": explain_cron_job,
    "PersistentVolumeClaim": explain_volume_claim,
    "ResourceClaim": explain_device_claim,
    "Node": explain_node,
    "Queue": explain_queue,
}
_WITHOUT_PLANS = ("Reservation", "ReservationSchedule", "PodMigrationJob", "Node", "Queue")
"""Kinds that are explained with the plans that their reservations have at the moment."""
_EXPLAINERS |= dict.fromkeys(
    ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"), explain_workload
)


def explain(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    """Why the object is pending, or why it is where it is. Its events are not part of the snapshot; the
    caller adds them. Raises KeyError for a kind that is not among those of `explained_kinds`.
    """
    plans = nullcontext() if raw["kind"] in _WITHOUT_PLANS else all_planned(snapshot)
    with claims_created(snapshot), plans:
        return _EXPLAINERS[raw["kind"]](snapshot, raw)


def find(snapshot: ClusterSnapshot, infos: Iterable[KindInfo], name: str, namespace: str) -> Raw | None:
    """The object of that name of one of these kinds."""
    for info in infos:
        at = namespace if info.namespaced else ""
        if (raw := snapshot.find(info, name, at)) is not None:
            return raw
        if info is POD and (namespace, name) in snapshot.ended_pods:
            return snapshot.ended_pods[namespace, name]
    return None


def declared_gang(snapshot: ClusterSnapshot, name: str, namespace: str) -> Raw | None:
    """An object for a gang that has none, because only annotations of its pods declare it."""
    job = snapshot.cluster.jobs.get(namespace, name)
    if job is None or job.group is not None or not job.is_declared:
        return None
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": SIGS_PODGROUP_API, "kind": "PodGroup", "metadata": metadata}
