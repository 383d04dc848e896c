"""The Deployment controller: one ReplicaSet per template, rollouts, and the status."""

from __future__ import annotations

from holdfast.api.errors import MalformedText
from holdfast.api.selectors import as_integer
from holdfast.api.times import format_time
from holdfast.api.workloads import scaled_value
from holdfast.local.workloads.lister import (
    NORMAL,
    ActionOutcome,
    CreateDependent,
    DeleteDependent,
    EmitEvent,
    Lister,
    Member,
    Raw,
    Ref,
    annotations_of,
    claim,
    is_going,
    reference_to,
    with_metadata,
)
from holdfast.local.workloads.pods import condition, created, ended, moment, without_condition
from holdfast.local.workloads.replica_set import FAILURE, wanted_replicas
from holdfast.local.workloads.revisions import (
    DESIRED,
    HASH_LABEL,
    MAXIMUM,
    REVISION,
    current,
    numbered,
    passed_on,
    plain,
    revision,
    short_hash,
)

SOURCE = "deployment-controller"
HISTORY_LIMIT = 10
_REPLICA_SETS = ("apps", "ReplicaSet")


def reconcile(view: Lister, ref: Ref, deployment: Raw, now: float) -> ActionOutcome:
    outcome, given, made = ActionOutcome(), deployment, ""
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


def _still_there(view: Lister, old: list[Member]) -> bool:
    """Whether pods of old templates run or are requested."""
    return any(
        wanted_replicas(each) or any(not ended(pod) for _, pod in _pods(view, each)) for _, each in old
    )


def _pods(view: Lister, replica_set: Raw) -> list[Member]:
    return [*view.controlled(replica_set["metadata"]["uid"], "Pod")]


def _create(
    view: Lister, ref: Ref, deployment: Raw, old: list[Member], outcome: ActionOutcome
) -> tuple[Raw, str]:
    """Creates the ReplicaSet of a new template. If its name is taken, the next attempt uses another."""
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
    outcome.actions.append(
        CreateDependent(with_metadata(replica_set, annotations=annotations), ref, False)
    )
    if size:
        outcome.actions.append(_scaled(deployment, name, 0, size))
    return _noting(deployment, number), name


def _adjust(
    deployment: Raw, member: Member, sizes: Sizes, number: int | None, outcome: ActionOutcome
) -> None:
    """Scales a ReplicaSet; sets the newest one's revision and inherited annotations too."""
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


def _scaled(deployment: Raw, name: str, before: int, after: int) -> EmitEvent:
    way = "up" if after > before else "down"
    message = f"Scaled {way} replica set {name} from {before} to {after}"
    return EmitEvent(deployment, NORMAL, "ScalingReplicaSet", message, SOURCE)


def _noting(deployment: Raw, number: int) -> Raw:
    annotations = annotations_of(deployment)
    if annotations.get(REVISION) == str(number):
        return deployment
    return with_metadata(deployment, annotations={**annotations, REVISION: str(number)})


def _clean_up(deployment: Raw, old: list[Member], outcome: ActionOutcome) -> None:
    """Deletes old ReplicaSets over the revision history limit once the rollout is complete."""
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
        outcome.actions.append(DeleteDependent(ref, each["metadata"]["uid"]))


# Status


AVAILABLE, PROGRESSING = "Available", "Progressing"
NEW_AVAILABLE = "NewReplicaSetAvailable"
DEADLINE = 600


def report(
    deployment: Raw,
    new: Member | None,
    members: list[Member],
    made: str,
    now: float,
    outcome: ActionOutcome,
) -> Raw:
    """The current status; the outcome gets the time of the next check. `made` names the ReplicaSet
    that is created at the same time, if any.
    """
    before = deployment.get("status") or {}
    status = _counts(deployment, new[1] if new is not None else None, members)
    if before.get("collisionCount"):
        status["collisionCount"] = before["collisionCount"]
    stamp = format_time(now)
    conditions = _set(before.get("conditions") or [], _availability(deployment, status), stamp)
    conditions = _failure(conditions, members, stamp)
    if made:
        text = f'Created new replica set "{made}"'
        conditions = _set(conditions, _progressing("True", "NewReplicaSetCreated", text), stamp)
    conditions = _progress(deployment, new, before, status, conditions, now, outcome)
    status["conditions"] = conditions
    return {key: value for key, value in status.items() if value}


def complete(deployment: Raw, status: Raw) -> bool:
    wanted = wanted_replicas(deployment)
    counts = (status.get(f, 0) for f in ("replicas", "updatedReplicas", "availableReplicas"))
    return all(count == wanted for count in counts)


def _counts(deployment: Raw, new: Raw | None, members: list[Member]) -> Raw:
    def total(field: str) -> int:
        return sum((each.get("status") or {}).get(field) or 0 for _, each in members)

    available = total("availableReplicas")
    asked = sum(wanted_replicas(each) for _, each in members if not is_going(each))
    return {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        "replicas": total("replicas"),
        "updatedReplicas": ((new or {}).get("status") or {}).get("replicas") or 0,
        "readyReplicas": total("readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, asked - available),
    }


def _availability(deployment: Raw, status: Raw) -> Raw:
    least = wanted_replicas(deployment) - limits(deployment)[1]
    if status["availableReplicas"] >= least:
        return {
            "type": AVAILABLE,
            "status": "True",
            "reason": "MinimumReplicasAvailable",
            "message": "Deployment has minimum availability.",
        }
    return {
        "type": AVAILABLE,
        "status": "False",
        "reason": "MinimumReplicasUnavailable",
        "message": "Deployment does not have minimum availability.",
    }


def _failure(conditions: list[Raw], members: list[Member], stamp: str) -> list[Raw]:
    for _, each in members:
        found = condition(each, FAILURE)
        if found is not None and found.get("status") == "True":
            kept = {key: found.get(key, "") for key in ("type", "status", "reason", "message")}
            return _set(conditions, kept, stamp)
    return without_condition(conditions, FAILURE)


def _progress(
    deployment: Raw,
    new: Member | None,
    before: Raw,
    status: Raw,
    conditions: list[Raw],
    now: float,
    outcome: ActionOutcome,
) -> list[Raw]:
    deadline = deployment["spec"].get("progressDeadlineSeconds", DEADLINE)
    known = next((each for each in conditions if each["type"] == PROGRESSING), None)
    stamp, name = format_time(now), new[0].name if new is not None else deployment["metadata"]["name"]
    paused = bool(deployment["spec"].get("paused"))
    reason = known.get("reason") if known is not None else ""
    if paused:
        if reason != "ProgressDeadlineExceeded" and reason != "DeploymentPaused":
            text = "Deployment is paused"
            conditions = _set(conditions, _progressing("Unknown", "DeploymentPaused", text), stamp)
        return conditions
    if reason == "DeploymentPaused":
        text = "Deployment is resumed"
        conditions = _set(conditions, _progressing("Unknown", "DeploymentResumed", text), stamp)
        known = condition({"status": {"conditions": conditions}}, PROGRESSING)
    if new is None or (reason == NEW_AVAILABLE and status["replicas"] == status["updatedReplicas"]):
        return conditions
    if complete(deployment, status):
        text = f'ReplicaSet "{name}" has successfully progressed.'
        return _set(conditions, _progressing("True", NEW_AVAILABLE, text), stamp)
    if known is None:
        text = f'Found new replica set "{name}"'
        conditions = _set(conditions, _progressing("True", "FoundNewReplicaSet", text), stamp)
    elif _moved(before, status):
        text = f'ReplicaSet "{name}" is progressing.'
        conditions = _set(conditions, _progressing("True", "ReplicaSetUpdated", text), stamp)
    if deadline is None or deadline >= 2**31 - 1:
        return conditions
    known = condition({"status": {"conditions": conditions}}, PROGRESSING)
    assert known is not None
    if known.get("status") == "False" or known.get("reason") == NEW_AVAILABLE:
        return conditions
    until = (moment(known.get("lastUpdateTime")) or now) + deadline
    if now < until:
        outcome.sync_again(until)
        return conditions
    text = f'ReplicaSet "{name}" has timed out progressing.'
    return _set(conditions, _progressing("False", "ProgressDeadlineExceeded", text), stamp)


def _moved(before: Raw, status: Raw) -> bool:
    def grew(field: str) -> bool:
        return bool(status[field] > (before.get(field) or 0))

    old_before = (before.get("replicas") or 0) - (before.get("updatedReplicas") or 0)
    old = status["replicas"] - status["updatedReplicas"]
    return (
        grew("updatedReplicas")
        or old < old_before
        or grew("readyReplicas")
        or grew("availableReplicas")
    )


def _progressing(status: str, reason: str, message: str) -> Raw:
    return {"type": PROGRESSING, "status": status, "reason": reason, "message": message}


def _set(conditions: list[Raw], new: Raw, stamp: str) -> list[Raw]:
    """Sets a condition. Progressing is updated with every step, the others only on transitions."""
    before = next((each for each in conditions if each.get("type") == new["type"]), None)
    if before is not None:
        same = all(before.get(key) == new[key] for key in ("status", "reason"))
        if same and new["type"] != PROGRESSING:
            return conditions
        same_status = before.get("status") == new["status"]
        since = (before.get("lastTransitionTime") if same_status else None) or stamp
    else:
        since = stamp
    placed = {**new, "lastUpdateTime": stamp, "lastTransitionTime": since}
    if before is None:
        return [*conditions, placed]
    return [placed if each is before else each for each in conditions]


# Rolling updates: how many pods each ReplicaSet should have next


Sizes = dict[str, int]
"""ReplicaSet name to the replicas it is to have."""


def recreates(deployment: Raw) -> bool:
    return bool((deployment["spec"].get("strategy") or {}).get("type") == "Recreate")


def limits(deployment: Raw) -> tuple[int, int]:
    """How many pods over the replica count may exist (maxSurge), and how many fewer available
    (maxUnavailable).
    """
    if recreates(deployment):
        return 0, 0
    replicas = wanted_replicas(deployment)
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    surge = _scaled_rollout(rolling.get("maxSurge", "25%"), replicas, round_up=True)
    unavailable = _scaled_rollout(rolling.get("maxUnavailable", "25%"), replicas, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1  # or nothing could ever move
    return surge, min(unavailable, replicas)


def first_size(deployment: Raw, members: list[Member], new: Raw | None) -> int:
    """The number of replicas that the newest ReplicaSet may have now."""
    wanted, own = wanted_replicas(deployment), wanted_replicas(new) if new is not None else 0
    if recreates(deployment):
        return wanted
    surge = wanted + limits(deployment)[0] - sum(wanted_replicas(each) for _, each in members)
    return own + max(0, min(surge, wanted - own))


def roll(deployment: Raw, new: Member, old: list[Member]) -> Sizes:
    """One step of a rolling update: scales the new ReplicaSet up, then the old ones down."""
    wanted, own = wanted_replicas(deployment), wanted_replicas(new[1])
    if own > wanted:
        return {new[0].name: wanted}
    grown = first_size(deployment, [new, *old], new[1])
    if grown != own:
        return {new[0].name: grown}
    return _shrink(deployment, new[1], old)


def _shrink(deployment: Raw, new: Raw, old: list[Member]) -> Sizes:
    everyone = [new, *(each for _, each in old)]
    least = wanted_replicas(deployment) - limits(deployment)[1]
    missing = wanted_replicas(new) - _available(new)
    may_go = sum(map(wanted_replicas, everyone)) - least - missing
    if may_go <= 0 or not any(wanted_replicas(each) for _, each in old):
        return {}
    sizes: Sizes = {}
    by_age = sorted(old, key=lambda each: (created(each[1]), each[0].name))
    # Those that do no good anyway go first: they could block the way for ever.
    for ref, each in by_age:
        sick = wanted_replicas(each) - _available(each)
        gone = max(0, min(sick, may_go))
        sizes[ref.name] = wanted_replicas(each) - gone
        may_go -= gone
    spare = sum(map(_available, everyone)) - least
    for ref, _ in by_age:
        gone = max(0, min(sizes[ref.name], spare, may_go))
        sizes[ref.name] -= gone
        spare -= gone
        may_go -= gone
    return sizes


def _available(replica_set: Raw) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas") or 0)


def _scaled_rollout(value: int | str, total: int, *, round_up: bool) -> int:
    try:
        return scaled_value(value, total, round_up=round_up)
    except MalformedText:
        return 0


# Proportional scaling during a rollout


def was_scaled(deployment: Raw, members: list[Member]) -> bool:
    """Whether a ReplicaSet was sized for another number of replicas."""
    wanted = wanted_replicas(deployment)
    for _, each in members:
        noted = as_integer(annotations_of(each).get(DESIRED, ""))
        if wanted_replicas(each) and noted is not None and noted != wanted:
            return True
    return False


def share(deployment: Raw, new: Member | None, old: list[Member]) -> Sizes:
    wanted = wanted_replicas(deployment)
    everyone = [*([new] if new is not None else []), *old]
    live = [each for each in everyone if wanted_replicas(each[1])]
    if len(live) <= 1:
        only = live[0] if live else new or _latest(old)
        return {only[0].name: wanted} if only is not None else {}
    if new is not None and _saturated(deployment, new[1]):
        return {ref.name: 0 for ref, _ in old}
    if recreates(deployment):
        return {}
    return _in_proportion(deployment, live)


def _in_proportion(deployment: Raw, live: list[Member]) -> Sizes:
    wanted, total = wanted_replicas(deployment), sum(wanted_replicas(each) for _, each in live)
    allowed = wanted + limits(deployment)[0] if wanted else 0
    to_add = allowed - total
    # The largest gets what is left over; of equal ones the newer when growing, the older otherwise.
    sign = -1 if to_add > 0 else 1
    live = sorted(live, key=lambda e: (-wanted_replicas(e[1]), sign * created(e[1]), e[0].name))
    sizes: Sizes = {}
    added = 0
    for ref, each in live:
        part = _portion(deployment, each, allowed, to_add - added) if to_add else 0
        sizes[ref.name] = wanted_replicas(each) + part
        added += part
    first = live[0][0].name
    sizes[first] = max(0, sizes[first] + to_add - added)
    return sizes


def _portion(deployment: Raw, replica_set: Raw, allowed: int, left: int) -> int:
    own = wanted_replicas(replica_set)
    if not wanted_replicas(deployment):
        fraction = -own
    else:
        noted = as_integer(annotations_of(replica_set).get(MAXIMUM, ""))
        before = noted or int((deployment.get("status") or {}).get("replicas") or 0)
        fraction = _rounded(own * allowed, before) - own if before else 0
    return min(fraction, left) if left > 0 else max(fraction, left)


def _rounded(part: int, whole: int) -> int:
    return (2 * part + whole) // (2 * whole)


def _latest(old: list[Member]) -> Member | None:
    return max(old, key=lambda each: (created(each[1]), each[0].name), default=None)


def _saturated(deployment: Raw, new: Raw) -> bool:
    wanted = wanted_replicas(deployment)
    noted = as_integer(annotations_of(new).get(DESIRED, ""))
    available = (new.get("status") or {}).get("availableReplicas") or 0
    return wanted_replicas(new) == noted == available == wanted
