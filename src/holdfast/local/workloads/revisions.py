"""Revision history: ControllerRevisions of StatefulSets and DaemonSets, ReplicaSet revisions of
Deployments.

`kubectl rollout history` lists these and `kubectl rollout undo` restores them.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from holdfast.api.names import LAST_APPLIED_ANNOTATION
from holdfast.api.selectors import as_integer
from holdfast.local.workloads.lister import (
    ActionOutcome,
    CreateDependent,
    DeleteDependent,
    Lister,
    Member,
    Raw,
    Ref,
    annotations_of,
    is_going,
    labels_of,
    reference_to,
    with_metadata,
)
from holdfast.local.workloads.pods import created

REVISION_LABEL = "controller-revision-hash"
HISTORY_LIMIT = 10
_KIND = "ControllerRevision"


@dataclass(frozen=True, slots=True)
class ControllerHistory:
    digest: str
    """The short name of the present template."""
    templates: dict[str, Raw]
    """Earlier templates that are kept, by revision name."""


def recorded(
    view: Lister, ref: Ref, owner: Raw, in_use: set[str], outcome: ActionOutcome
) -> ControllerHistory:
    """Makes the current template the latest revision and trims the history. `in_use` are the
    REVISION_LABEL values of existing pods.
    """
    template = owner["spec"].get("template") or {}
    digest = short_hash(template)
    known = [*view.controlled(owner["metadata"]["uid"], _KIND)]
    newest = max((int(each["revision"]) for _, each in known), default=0)
    present = next((each for each in known if _template(each[1]) == template), None)
    if not is_going(owner):
        if present is None:
            name = f"{ref.name}-{digest}"
            if view.get(Ref("apps", _KIND, ref.namespace, name)) is None:
                made = new_revision(owner, name, digest, template, newest + 1)
                outcome.actions.append(CreateDependent(made, ref, announce=False))
        elif int(present[1]["revision"]) < newest:
            outcome.update(present[0], present[1], {**present[1], "revision": newest + 1})
        _clean_up(owner, [each for each in known if each is not present], in_use, outcome)
    if present is not None:
        digest = labels_of(present[1]).get(REVISION_LABEL) or digest
    return ControllerHistory(digest, {each_ref.name: _template(each) for each_ref, each in known})


def new_revision(owner: Raw, name: str, digest: str, template: Raw, number: int) -> Raw:
    labels = (template.get("metadata") or {}).get("labels") or {}
    return {
        "apiVersion": "apps/v1",
        "kind": _KIND,
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**labels, REVISION_LABEL: digest},
            "ownerReferences": [reference_to(owner)],
        },
        # As a patch that brings it back: the template takes the place of the one that is there.
        "data": {"spec": {"template": {**template, "$patch": "replace"}}},
        "revision": number,
    }


def _template(revision: Raw) -> Raw:
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {key: value for key, value in template.items() if key != "$patch"}


def _clean_up(owner: Raw, old: list[tuple[Ref, Raw]], in_use: set[str], outcome: ActionOutcome) -> None:
    limit = owner["spec"].get("revisionHistoryLimit")
    limit = HISTORY_LIMIT if limit is None else int(limit)
    idle = [
        (ref, each)
        for ref, each in old
        if ref.name not in in_use and labels_of(each).get(REVISION_LABEL) not in in_use
    ]
    idle.sort(key=lambda member: int(member[1]["revision"]))
    for ref, each in idle[: max(0, len(idle) - limit)]:
        outcome.actions.append(DeleteDependent(ref, each["metadata"]["uid"]))


# Template hashes


_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, so no words."""
_ENCODER = msgspec.json.Encoder(order="deterministic")


def short_hash(template: Raw, collisions: int = 0) -> str:
    """Up to ten letters. `collisions` yields another hash if the name is taken."""
    data = _ENCODER.encode([template, collisions] if collisions else template)
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_LETTERS[ord(digit) % len(_LETTERS)] for digit in str(value))


# Revisions of Deployments


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
    """The template as the user wrote it, without the pod-template-hash label."""
    metadata = template.get("metadata") or {}
    labels = metadata.get("labels") or {}
    if HASH_LABEL not in labels:
        return {**template, "metadata": metadata}
    kept = {key: value for key, value in labels.items() if key != HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": kept}}


def current(members: list[Member], template: Raw) -> Member | None:
    """The ReplicaSet of this template; the oldest if there are several."""
    wanted = plain(template)
    same = (each for each in members if plain(each[1]["spec"].get("template") or {}) == wanted)
    return min(same, key=lambda each: (created(each[1]), each[0].name), default=None)


def passed_on(deployment: Raw, replica_set: Raw) -> dict[str, str]:
    """The annotations of a ReplicaSet, including those inherited from its Deployment."""
    given = {key: value for key, value in annotations_of(deployment).items() if key not in _OWN}
    return {**annotations_of(replica_set), **given}


def numbered(replica_set: Raw, number: int) -> Raw:
    """The ReplicaSet with the given revision, its earlier revisions noted."""
    annotations = annotations_of(replica_set)
    before = annotations.get(REVISION)
    if (as_integer(before or "0") or 0) >= number:
        return replica_set
    annotations = {**annotations, REVISION: str(number)}
    if before:
        history = annotations.get(HISTORY)
        annotations[HISTORY] = f"{history},{before}" if history else before
    return with_metadata(replica_set, annotations=annotations)
