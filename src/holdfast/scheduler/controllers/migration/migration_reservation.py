"""The reservation that a job creates for the pod's replacement, on any node but the pod's.

It follows the job's template; fields that this does not set are taken from the pod.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.api import names
from holdfast.api.meta import ObjectMeta, ObjectReference, OwnerReference, controller_of
from holdfast.api.reservation import (
    PodMigrationJob,
    Reservation,
    ReservationControllerReference,
    ReservationOwner,
    ReservationSpec,
    ReservationTemplateSpec,
)
from holdfast.api.storage import PersistentVolumeClaim
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.reservations.hold_objects import pod_spec

_LONGEST_LABEL = 63
_OF_GROUPS = frozenset(
    (
        *names.POD_GROUP_KEYS,
        *names.GANG_KEYS,
        names.LIGHT_GROUP_NAME,
        names.LIGHT_GROUP_MIN_AVAILABLE,
        names.LIGHT_GROUP_MATCH_POLICY,
    )
)
"""Gang annotations and labels, which are removed: a reservation is not a member of the pod's gang."""

Claims = Mapping[tuple[str, str], Any]


def name_of(job: PodMigrationJob) -> str:
    return _given(job).metadata.name or job.metadata.uid


def maker_of(reservation: Reservation) -> str:
    """The uid of the job that created it; empty if none did."""
    owner = controller_of(reservation.metadata)
    return owner.uid if owner is not None and owner.kind == "PodMigrationJob" else ""


def reservation_for(
    job: PodMigrationJob, pod: PodRecord, node: str, claims: Claims, now: float
) -> Reservation:
    """The reservation for a job; `node` is the pod's node, empty if it has none yet."""
    given = _given(job)
    template = given.spec.template or _template_of(pod, claims)
    spec = msgspec.structs.replace(
        given.spec,
        template=_elsewhere(template, node),
        owners=given.spec.owners or _owners_for(pod),
        allocate_once=True,
    )
    if spec.ttl is None and spec.expires is None and job.spec.ttl not in (None, "0", "0s"):
        spec.ttl = job.spec.ttl
    return Reservation(
        api_version=names.RESERVATION_API,
        kind="Reservation",
        metadata=_metadata(job, given.metadata, now),
        spec=spec,
    )


def waits_for_pod(spec: ReservationSpec, uid: str) -> bool:
    """Whether its owner is the pod to be moved itself, which then has no node yet."""
    return any(
        owner.object is not None
        and owner.object.uid == uid
        and owner.controller is None
        and owner.label_selector is None
        for owner in spec.owners
    )


def _given(job: PodMigrationJob) -> ReservationTemplateSpec:
    options = job.spec.reservation_options
    template = options.template if options is not None else None
    return template if template is not None else ReservationTemplateSpec()


def _metadata(job: PodMigrationJob, given: ObjectMeta, now: float) -> ObjectMeta:
    meta = job.metadata
    short = meta.name if len(meta.name) <= _LONGEST_LABEL else meta.uid
    return ObjectMeta(
        name=name_of(job),
        labels={
            **given.labels,
            names.CREATED_BY: names.HOLDFAST_SCHEDULER,
            names.MIGRATION_JOB: short,
            names.RESERVATION_ORDER: str(int(now * 1000)),
        },
        annotations=given.annotations,
        owner_references=[
            OwnerReference(
                api_version=names.RESERVATION_API,
                kind="PodMigrationJob",
                name=meta.name,
                uid=meta.uid,
                controller=True,
            )
        ],
    )


def _owners_for(pod: PodRecord) -> list[ReservationOwner]:
    """The owners of the reservation. A pod that is not bound is its own replacement, even if it waits
    in Permit. A pod without a controller is matched by name."""
    reference = ObjectReference(kind="Pod", namespace=pod.namespace, name=pod.name)
    controller = next((owner for owner in pod.cls.owners if owner.controller), None)
    if pod.phase is not Phase.ASSIGNED:
        reference.uid = pod.uid
    elif controller is not None:
        return [
            ReservationOwner(
                controller=ReservationControllerReference(
                    api_version=controller.api_version,
                    kind=controller.kind,
                    name=controller.name,
                    uid=controller.uid,
                    controller=True,
                    namespace=pod.namespace,
                )
            )
        ]
    return [ReservationOwner(object=reference)]


def _template_of(pod: PodRecord, claims: Claims) -> dict[str, Any]:
    cls = pod.cls
    metadata = ObjectMeta(
        namespace=pod.namespace,
        labels={key: value for key, value in cls.labels.items() if key not in _OF_GROUPS},
        annotations={key: value for key, value in cls.annotations.items() if key not in _OF_GROUPS},
        owner_references=cls.owners,
    )
    spec = pod_spec(cls)
    spec.volumes = [v for v in spec.volumes if not _is_taken(pod, v.persistent_volume_claim, claims)]
    whole = {**msgspec.to_builtins(spec), "schedulerName": pod.scheduler}
    return {"metadata": msgspec.to_builtins(metadata), "spec": whole}


def _is_taken(pod: PodRecord, source: Any, claims: Claims) -> bool:
    """Whether the claim is ReadWriteOncePod: it cannot be reserved before this pod is gone."""
    claim = claims.get((pod.namespace, source.claim_name)) if source is not None else None
    return isinstance(claim, PersistentVolumeClaim) and "ReadWriteOncePod" in claim.spec.access_modes


def _elsewhere(template: dict[str, Any], node: str) -> dict[str, Any]:
    """The template with a node affinity that excludes this node."""
    spec = {key: value for key, value in (template.get("spec") or {}).items() if key != "nodeName"}
    if node:
        affinity = dict(spec.get("affinity") or {})
        node_affinity = dict(affinity.get("nodeAffinity") or {})
        required = node_affinity.get(_REQUIRED) or {}
        terms = required.get("nodeSelectorTerms")
        other = {"key": names.NODE_NAME_FIELD, "operator": "NotIn", "values": [node]}
        node_affinity[_REQUIRED] = {
            **required,
            "nodeSelectorTerms": [_with(other, term) for term in terms]
            if terms
            else [{"matchFields": [other]}],
        }
        spec["affinity"] = {**affinity, "nodeAffinity": node_affinity}
    return {**template, "spec": spec}


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _with(other: dict[str, Any], term: dict[str, Any]) -> dict[str, Any]:
    """Adds a requirement to a node selector term. An empty term matches no node, and stays empty."""
    fields = term.get("matchFields") or []
    if not fields and not term.get("matchExpressions"):
        return term
    return {**term, "matchFields": [*fields, other]}
