"""The ReplicaSet controller: keeps the requested number of pods."""

from __future__ import annotations

from collections.abc import Iterable
from math import log2

from holdfast.api.names import DELETION_COST_ANNOTATION
from holdfast.api.selectors import as_integer
from holdfast.api.times import format_time
from holdfast.local.workloads.lister import (
    BURST,
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
    controller_uid,
    is_going,
    labels_of,
)
from holdfast.local.workloads.pods import (
    active,
    available_at,
    created,
    ended,
    from_template,
    phase,
    ready,
    ready_since,
    with_condition,
    without_condition,
)

SOURCE = "replicaset-controller"
FAILURE = "ReplicaFailure"


def reconcile(view: Lister, ref: Ref, owner: Raw, now: float, failure: str = "") -> ActionOutcome:
    """`failure` is the error of the last failed pod creation."""
    outcome = ActionOutcome()
    members = claim(view, owner, ("", "Pod"), outcome, may_adopt=lambda pod: not ended(pod))
    present = [member for member in members if active(member[1])]
    if not is_going(owner):
        _manage(view, ref, owner, present, now, outcome)
    _report(view, ref, owner, present, now, failure, outcome)
    return outcome


def wanted_replicas(owner: Raw) -> int:
    replicas = (owner.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def _manage(
    view: Lister, ref: Ref, owner: Raw, present: list[Member], now: float, outcome: ActionOutcome
) -> None:
    difference = wanted_replicas(owner) - len(present)
    template = (owner.get("spec") or {}).get("template") or {}
    now_made = min(difference, BURST)
    outcome.actions += [CreateDependent(from_template(owner, template), ref) for _ in range(now_made)]
    if difference >= 0:
        return
    for pod_ref, pod in first_to_go(present, _related(view, owner, present), now)[:-difference]:
        outcome.actions.append(DeleteDependent(pod_ref, pod["metadata"]["uid"]))
        outcome.actions.append(
            EmitEvent(owner, NORMAL, "SuccessfulDelete", f"Deleted pod: {pod_ref.name}", SOURCE)
        )


def _related(view: Lister, owner: Raw, present: list[Member]) -> list[Raw]:
    """The pods of all ReplicaSets of the same Deployment, for spreading deletions over nodes."""
    manager = controller_uid(owner)
    if manager is None:
        return [pod for _, pod in present]
    return [
        pod
        for _, sibling in view.controlled(manager, owner["kind"])
        for _, pod in view.controlled(sibling["metadata"]["uid"], "Pod")
        if active(pod)
    ]


def _report(
    view: Lister,
    ref: Ref,
    owner: Raw,
    present: list[Member],
    now: float,
    failure: str,
    outcome: ActionOutcome,
) -> None:
    spec, status = owner.get("spec") or {}, owner.get("status") or {}
    min_ready = view.min_ready(owner)
    template_labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    labelled = are_ready = available = 0
    for _, pod in present:
        labelled += template_labels.items() <= labels_of(pod).items()
        at = available_at(pod, min_ready)
        are_ready += at is not None
        if at is not None and at <= now:
            available += 1
        else:
            outcome.sync_again(at)
    conditions = status.get("conditions") or []
    if failure:
        new = {"type": FAILURE, "status": "True", "reason": "FailedCreate", "message": failure}
        conditions = with_condition(conditions, new, format_time(now))
    else:
        conditions = without_condition(conditions, FAILURE)
    reported = {
        "replicas": len(present),
        "fullyLabeledReplicas": labelled,
        "readyReplicas": are_ready,
        "availableReplicas": available,
        "observedGeneration": owner["metadata"].get("generation", 1),
        "conditions": conditions,
    }
    kept = {key: value for key, value in reported.items() if value or key == "replicas"}
    outcome.update(ref, owner, {**owner, "status": kept})


# Scale-down order


_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
Rank = tuple[object, ...]


def first_to_go(members: Iterable[Member], related: Iterable[Raw], now: float) -> list[Member]:
    """Kubernetes's order: unassigned before assigned, pending before running, not ready before
    ready, lower deletion cost first, more related pods on the node first, ready for a shorter time
    first, more restarts first, younger first.
    """
    crowd: dict[str, int] = {}
    for pod in related:
        node = pod["spec"].get("nodeName")
        if node:
            crowd[node] = crowd.get(node, 0) + 1

    def rank(member: Member) -> Rank:
        _, pod = member
        node = pod["spec"].get("nodeName") or ""
        is_ready = ready(pod)
        return (
            bool(node),
            _PHASES.get(phase(pod), 2),
            is_ready,
            _cost(pod),
            -crowd.get(node, 0),
            _magnitude(now, ready_since(pod)) if is_ready else 0,
            -_restarts(pod),
            _magnitude(now, created(pod)),
            pod["metadata"]["uid"],
        )

    return sorted(members, key=rank)


def _cost(pod: Raw) -> int:
    return as_integer(annotations_of(pod).get(DELETION_COST_ANNOTATION, "0")) or 0


def _magnitude(now: float, since: float | None) -> int:
    """The age in powers of two, so that among pods of about equal age none is always deleted first."""
    age = now - (since or 0.0)
    return int(log2(age)) if age >= 1 else -1


def _restarts(pod: Raw) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((each.get("restartCount") or 0 for each in statuses), default=0)
