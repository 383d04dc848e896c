"""ReplicaSets: as many pods as asked for."""

from __future__ import annotations

from holdfast.api.timestamps import format_time
from holdfast.controllers.workloads.actions import (
    BURST,
    NORMAL,
    Create,
    Delete,
    Emit,
    Outcome,
    Raw,
    Ref,
)
from holdfast.controllers.workloads.claims import Member, claim
from holdfast.controllers.workloads.pods import (
    active,
    available_at,
    ended,
    from_template,
    with_condition,
    without_condition,
)
from holdfast.controllers.workloads.surplus import first_to_go
from holdfast.controllers.workloads.view import View, controller_uid, is_going, labels_of

SOURCE = "replicaset-controller"
FAILURE = "ReplicaFailure"


def reconcile(view: View, ref: Ref, owner: Raw, now: float, failure: str = "") -> Outcome:
    """`failure` is why the last pod could not be made."""
    outcome = Outcome()
    members = claim(view, owner, ("", "Pod"), outcome, may_adopt=lambda pod: not ended(pod))
    present = [member for member in members if active(member[1])]
    if not is_going(owner):
        _manage(view, ref, owner, present, now, outcome)
    _report(ref, owner, present, now, failure, outcome)
    return outcome


def wanted_replicas(owner: Raw) -> int:
    replicas = (owner.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def _manage(
    view: View, ref: Ref, owner: Raw, present: list[Member], now: float, outcome: Outcome
) -> None:
    difference = wanted_replicas(owner) - len(present)
    template = (owner.get("spec") or {}).get("template") or {}
    now_made = min(difference, BURST)
    outcome.actions += [Create(from_template(owner, template), ref) for _ in range(now_made)]
    if difference >= 0:
        return
    for pod_ref, pod in first_to_go(present, _related(view, owner, present), now)[:-difference]:
        outcome.actions.append(Delete(pod_ref, pod["metadata"]["uid"]))
        outcome.actions.append(
            Emit(owner, NORMAL, "SuccessfulDelete", f"Deleted pod: {pod_ref.name}", SOURCE)
        )


def _related(view: View, owner: Raw, present: list[Member]) -> list[Raw]:
    """The pods of all ReplicaSets of the same Deployment: they crowd a node together."""
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
    ref: Ref, owner: Raw, present: list[Member], now: float, failure: str, outcome: Outcome
) -> None:
    spec, status = owner.get("spec") or {}, owner.get("status") or {}
    min_ready = float(spec.get("minReadySeconds") or 0)
    template_labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    labelled = are_ready = available = 0
    for _, pod in present:
        labelled += template_labels.items() <= labels_of(pod).items()
        at = available_at(pod, min_ready)
        are_ready += at is not None
        if at is not None and at <= now:
            available += 1
        else:
            outcome.look_again(at)
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
