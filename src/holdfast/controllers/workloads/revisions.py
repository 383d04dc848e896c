"""Which ReplicaSet holds which revision of a Deployment, as `kubectl rollout history` reads it."""

from __future__ import annotations

from holdfast.api.label_selectors import as_integer
from holdfast.api.names import LAST_APPLIED_ANNOTATION
from holdfast.controllers.workloads.actions import Raw
from holdfast.controllers.workloads.claims import Member
from holdfast.controllers.workloads.pods import created
from holdfast.controllers.workloads.view import annotations_of, with_metadata

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
_OWN = frozenset({LAST_APPLIED_ANNOTATION, REVISION, HISTORY, DESIRED, MAXIMUM})
"""Annotations that are not passed on from a Deployment to its ReplicaSets."""


def revision(replica_set: Raw) -> int:
    return as_integer(annotations_of(replica_set).get(REVISION, "0")) or 0


def plain(template: Raw) -> Raw:
    """The template as the user wrote it, without the label that tells ReplicaSets apart."""
    metadata = template.get("metadata") or {}
    labels = metadata.get("labels") or {}
    if HASH_LABEL not in labels:
        return {**template, "metadata": metadata}
    kept = {key: value for key, value in labels.items() if key != HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": kept}}


def current(members: list[Member], template: Raw) -> Member | None:
    """The ReplicaSet of this template; of several the oldest."""
    wanted = plain(template)
    same = (each for each in members if plain(each[1]["spec"].get("template") or {}) == wanted)
    return min(same, key=lambda each: (created(each[1]), each[0].name), default=None)


def passed_on(deployment: Raw, replica_set: Raw) -> dict[str, str]:
    """The annotations of a ReplicaSet, with those its Deployment hands down."""
    given = {key: value for key, value in annotations_of(deployment).items() if key not in _OWN}
    return {**annotations_of(replica_set), **given}


def numbered(replica_set: Raw, number: int) -> Raw:
    """The ReplicaSet as the given revision, and the numbers it had before noted."""
    annotations = annotations_of(replica_set)
    before = annotations.get(REVISION)
    if (as_integer(before or "0") or 0) >= number:
        return replica_set
    annotations = {**annotations, REVISION: str(number)}
    if before:
        history = annotations.get(HISTORY)
        annotations[HISTORY] = f"{history},{before}" if history else before
    return with_metadata(replica_set, annotations=annotations)
