"""A Deployment's status: how many pods there are, and whether it gets on."""

from __future__ import annotations

from holdfast.api.timestamps import format_time
from holdfast.controllers.workloads.actions import Outcome, Raw
from holdfast.controllers.workloads.claims import Member
from holdfast.controllers.workloads.pods import condition, moment, without_condition
from holdfast.controllers.workloads.replica_set import FAILURE, wanted_replicas
from holdfast.controllers.workloads.rollout import limits
from holdfast.controllers.workloads.view import is_going

AVAILABLE, PROGRESSING = "Available", "Progressing"
NEW_AVAILABLE = "NewReplicaSetAvailable"
DEADLINE = 600


def report(
    deployment: Raw,
    new: Member | None,
    members: list[Member],
    made: str,
    now: float,
    outcome: Outcome,
) -> Raw:
    """The status as it is now; when to look at it again goes into the outcome. `made` names the
    ReplicaSet that is being made at the same time, if one is."""
    before = deployment.get("status") or {}
    status = _counts(deployment, new[1] if new is not None else None, members)
    if before.get("collisionCount"):
        status["collisionCount"] = before["collisionCount"]
    stamp = format_time(now)
    conditions = _set(before.get("conditions") or [], _availability(deployment, status), stamp)
    conditions = _failure(conditions, members, stamp)
    if made:
        text = f'Created new replica set "{made}"'
        conditions = _set(conditions, _says("True", "NewReplicaSetCreated", text), stamp)
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
    outcome: Outcome,
) -> list[Raw]:
    deadline = deployment["spec"].get("progressDeadlineSeconds", DEADLINE)
    known = next((each for each in conditions if each["type"] == PROGRESSING), None)
    stamp, name = format_time(now), new[0].name if new is not None else deployment["metadata"]["name"]
    paused = bool(deployment["spec"].get("paused"))
    reason = known.get("reason") if known is not None else ""
    if paused:
        if reason != "ProgressDeadlineExceeded" and reason != "DeploymentPaused":
            text = "Deployment is paused"
            conditions = _set(conditions, _says("Unknown", "DeploymentPaused", text), stamp)
        return conditions
    if reason == "DeploymentPaused":
        text = "Deployment is resumed"
        conditions = _set(conditions, _says("Unknown", "DeploymentResumed", text), stamp)
        known = condition({"status": {"conditions": conditions}}, PROGRESSING)
    if new is None or (reason == NEW_AVAILABLE and status["replicas"] == status["updatedReplicas"]):
        return conditions
    if complete(deployment, status):
        text = f'ReplicaSet "{name}" has successfully progressed.'
        return _set(conditions, _says("True", NEW_AVAILABLE, text), stamp)
    if known is None:
        text = f'Found new replica set "{name}"'
        conditions = _set(conditions, _says("True", "FoundNewReplicaSet", text), stamp)
    elif _moved(before, status):
        text = f'ReplicaSet "{name}" is progressing.'
        conditions = _set(conditions, _says("True", "ReplicaSetUpdated", text), stamp)
    if deadline is None or deadline >= 2**31 - 1:
        return conditions
    known = condition({"status": {"conditions": conditions}}, PROGRESSING)
    assert known is not None
    if known.get("status") == "False" or known.get("reason") == NEW_AVAILABLE:
        return conditions
    until = (moment(known.get("lastUpdateTime")) or now) + deadline
    if now < until:
        outcome.look_again(until)
        return conditions
    text = f'ReplicaSet "{name}" has timed out progressing.'
    return _set(conditions, _says("False", "ProgressDeadlineExceeded", text), stamp)


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


def _says(status: str, reason: str, message: str) -> Raw:
    return {"type": PROGRESSING, "status": status, "reason": reason, "message": message}


def _set(conditions: list[Raw], new: Raw, stamp: str) -> list[Raw]:
    """Sets a condition. Progressing takes note of every step, the others of transitions alone."""
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
