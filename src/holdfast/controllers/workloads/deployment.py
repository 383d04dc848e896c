"""Deployments: one ReplicaSet for each template, and the way from one to the next."""

from __future__ import annotations

from holdfast.controllers.workloads.actions import (
    NORMAL,
    Create,
    Delete,
    Emit,
    Outcome,
    Raw,
    Ref,
)
from holdfast.controllers.workloads.claims import Member, claim
from holdfast.controllers.workloads.naming import short_hash
from holdfast.controllers.workloads.pods import created, ended
from holdfast.controllers.workloads.progress import complete, report
from holdfast.controllers.workloads.replica_set import wanted_replicas
from holdfast.controllers.workloads.revisions import (
    DESIRED,
    HASH_LABEL,
    MAXIMUM,
    REVISION,
    current,
    numbered,
    passed_on,
    plain,
    revision,
)
from holdfast.controllers.workloads.rollout import Sizes, first_size, limits, recreates, roll
from holdfast.controllers.workloads.scaling import share, was_scaled
from holdfast.controllers.workloads.view import (
    View,
    annotations_of,
    is_going,
    reference_to,
    with_metadata,
)

SOURCE = "deployment-controller"
HISTORY_LIMIT = 10
_REPLICA_SETS = ("apps", "ReplicaSet")


def reconcile(view: View, ref: Ref, deployment: Raw, now: float) -> Outcome:
    outcome, given, made = Outcome(), deployment, ""
    members = claim(view, deployment, _REPLICA_SETS, outcome)
    if outcome.actions:
        return outcome  # the rest follows once they are ours
    new = current(members, deployment["spec"].get("template") or {})
    if is_going(deployment):
        status = report(deployment, new, members, made, now, outcome)
        outcome.update(ref, given, {**deployment, "status": status})
        return outcome
    old = [member for member in members if new is None or member[0] != new[0]]
    if deployment["spec"].get("paused") or was_scaled(deployment, members):
        sizes = share(deployment, new, old)
    elif recreates(deployment) and _still_there(view, old):
        sizes = {member[0].name: 0 for member in old}
    elif new is None:
        deployment, made = _create(view, ref, deployment, old, outcome)
        sizes = {}
    elif recreates(deployment):
        sizes = {new[0].name: wanted_replicas(deployment)}
    else:
        sizes = roll(deployment, new, old)
    number = max((revision(each) for _, each in old), default=0) + 1
    for member in members:
        is_new = new is not None and member[0] == new[0]
        _adjust(deployment, member, sizes, number if is_new else None, outcome)
    if new is not None:
        deployment = _noting(deployment, max(number, revision(new[1])))
    status = report(deployment, new, members, made, now, outcome)
    outcome.update(ref, given, {**deployment, "status": status})
    if complete(deployment, status):
        _clean_up(deployment, old, outcome)
    return outcome


def _still_there(view: View, old: list[Member]) -> bool:
    """Whether pods of former templates run, or are asked for."""
    return any(
        wanted_replicas(each) or any(not ended(pod) for _, pod in _pods(view, each)) for _, each in old
    )


def _pods(view: View, replica_set: Raw) -> list[Member]:
    return [*view.controlled(replica_set["metadata"]["uid"], "Pod")]


def _create(
    view: View, ref: Ref, deployment: Raw, old: list[Member], outcome: Outcome
) -> tuple[Raw, str]:
    """Makes the ReplicaSet of a new template. Where its name is taken, the next attempt has another."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = plain(spec.get("template") or {})
    collisions = int((deployment.get("status") or {}).get("collisionCount") or 0)
    digest = short_hash(template, collisions)
    name = f"{metadata['name']}-{digest}"
    if view.get(Ref("apps", "ReplicaSet", ref.namespace, name)) is not None:
        status = {**(deployment.get("status") or {}), "collisionCount": collisions + 1}
        return {**deployment, "status": status}, ""
    number = max((revision(each) for _, each in old), default=0) + 1
    labels = {**(template["metadata"].get("labels") or {}), HASH_LABEL: digest}
    selector = spec.get("selector") or {}
    matching = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
    size = first_size(deployment, old, None)
    replica_set: Raw = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": ref.namespace,
            "labels": labels,
            "ownerReferences": [reference_to(deployment)],
        },
        "spec": {
            "replicas": size,
            "selector": {**selector, "matchLabels": matching},
            "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
        },
    }
    if spec.get("minReadySeconds"):
        replica_set["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    annotations = passed_on(deployment, replica_set)
    annotations |= {REVISION: str(number), **_sized_for(deployment)}
    outcome.actions.append(Create(with_metadata(replica_set, annotations=annotations), ref, False))
    outcome.actions.append(_scaled(deployment, name, 0, size))
    return _noting(deployment, number), name


def _adjust(
    deployment: Raw, member: Member, sizes: Sizes, number: int | None, outcome: Outcome
) -> None:
    """Brings a ReplicaSet to its size; the newest also to its number and what it is handed down."""
    ref, before = member
    after = before
    if number is not None:
        annotations = passed_on(deployment, after)
        if annotations != annotations_of(after):
            after = with_metadata(after, annotations=annotations)
        after = numbered(after, number)
        min_ready = deployment["spec"].get("minReadySeconds") or 0
        if (after["spec"].get("minReadySeconds") or 0) != min_ready:
            after = {**after, "spec": {**after["spec"], "minReadySeconds": min_ready}}
    own = wanted_replicas(before)
    size = sizes.get(ref.name, own)
    if ref.name in sizes and (size or own):
        annotations = {**annotations_of(after), **_sized_for(deployment)}
        if annotations != annotations_of(after):
            after = with_metadata(after, annotations=annotations)
    if size != own:
        after = {**after, "spec": {**after["spec"], "replicas": size}}
        outcome.actions.append(_scaled(deployment, ref.name, own, size))
    outcome.update(ref, before, after)


def _sized_for(deployment: Raw) -> dict[str, str]:
    wanted = wanted_replicas(deployment)
    return {DESIRED: str(wanted), MAXIMUM: str(wanted + limits(deployment)[0])}


def _scaled(deployment: Raw, name: str, before: int, after: int) -> Emit:
    way = "up" if after > before else "down"
    message = f"Scaled {way} replica set {name} from {before} to {after}"
    return Emit(deployment, NORMAL, "ScalingReplicaSet", message, SOURCE)


def _noting(deployment: Raw, number: int) -> Raw:
    annotations = annotations_of(deployment)
    if annotations.get(REVISION) == str(number):
        return deployment
    return with_metadata(deployment, annotations={**annotations, REVISION: str(number)})


def _clean_up(deployment: Raw, old: list[Member], outcome: Outcome) -> None:
    """Old ReplicaSets beyond those to keep for `kubectl rollout undo` go, once all is done."""
    limit = deployment["spec"].get("revisionHistoryLimit", HISTORY_LIMIT)
    if limit is None:
        return
    idle = [
        (ref, each)
        for ref, each in old
        if not wanted_replicas(each)
        and not (each.get("status") or {}).get("replicas")
        and not is_going(each)
    ]
    idle.sort(key=lambda member: (revision(member[1]), created(member[1])))
    for ref, each in idle[: max(0, len(idle) - limit)]:
        outcome.actions.append(Delete(ref, each["metadata"]["uid"]))
