"""Explains a PodMigrationJob: the step that it has reached, and what that waits for."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import msgspec

from holdfast.api.kinds import KINDS
from holdfast.api.names import RESERVATION_API
from holdfast.api.reservation import (
    DEFAULT_MIGRATION_TTL,
    MigrationPhase,
    MigrationReason,
    MigrationStep,
    PodMigrationJob,
)
from holdfast.api.similar_names import did_you_mean
from holdfast.api.times import format_time, parse_time, span_text
from holdfast.explanation.advice.eviction_budgets import (
    allowing_budgets,
    budget_details,
    consider_budgets,
    forbidding_budgets,
)
from holdfast.explanation.advice.overdue_pods import is_overdue, overdue_text
from holdfast.explanation.facts.capacity import requested
from holdfast.explanation.facts.expected_ends import deletion_deadline
from holdfast.explanation.phrases import duration_text, in_time
from holdfast.explanation.report import Advice, Report, few
from holdfast.explanation.subjects.pods import explain_pod
from holdfast.explanation.subjects.reservations import explain_reservation
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.decisions import CreateReservation, Decision
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudget
from holdfast.scheduler.cluster.records import Phase, PodRecord, ReservationInfo
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.controllers.migration.migration_job import ENDED, Move
from holdfast.scheduler.controllers.migration.migration_reservation import name_of, waits_for_pod
from holdfast.scheduler.controllers.migration.migration_steps import MigrationSteps
from holdfast.snapshot.cluster_changes import applied, create, patch
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot

MIGRATION = KINDS[RESERVATION_API, "PodMigrationJob"]
_SPARE = 60.0
"""Seconds that a longer ttl leaves after what is waited for."""


def explain_migration(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    metadata, status = raw["metadata"], raw.get("status") or {}
    report = Report(f"PodMigrationJob {metadata['name']}", str(status.get("phase") or "Pending"), "")
    report.node = str(status.get("nodeName") or "")
    try:
        job = msgspec.convert(raw, PodMigrationJob)
    except msgspec.ValidationError as error:
        report.summary = f"It is invalid: {error}."
        return report
    migration = _Migration(snapshot, raw, Move(job, snapshot.now), report)
    if migration.move.ended:
        _ended(migration)
    elif metadata.get("deletionTimestamp"):
        report.summary = (
            "It is being deleted, which aborts it; the reservation that it made is deleted."
        )
    elif job.spec.paused:
        _paused(migration)
    elif not status.get("phase"):
        report.summary = "No scheduler has seen it yet: it has no status."
        _tried(migration, job, "when one does")
    else:
        report.told = str(status.get("message") or "")
        _running(migration)
        _note_deadline(migration)
    return report


class _Migration(NamedTuple):
    snapshot: ClusterSnapshot
    raw: Raw
    move: Move
    report: Report

    @property
    def pod(self) -> PodRecord | None:
        """The pod to move, if it exists."""
        cluster, reference = self.snapshot.cluster, self.move.job.spec.pod_ref
        if reference is None:
            return None
        if reference.uid:
            return cluster.pods.get(reference.uid)
        return cluster.pod(reference.namespace or "default", reference.name)

    @property
    def pod_text(self) -> str:
        return f"pod {self.move.pod_name.strip(chr(34))}"

    @property
    def where(self) -> str:
        """` on n1`: the node of the pod."""
        pod = self.pod
        return f" on {self.snapshot.cluster.nodes.name(pod.row)}" if pod and pod.row >= 0 else ""

    @property
    def reservation_name(self) -> str:
        given = self.move.reservation_ref
        return given.name if given is not None else name_of(self.move.job)

    @property
    def reservation(self) -> ReservationInfo | None:
        return self.snapshot.cluster.reservations.get(self.reservation_name)

    def take(self, found: Report) -> None:
        """Details and advice of the object that the job waits for."""
        report = self.report
        report.details += found.details
        report.advice += found.advice
        report.nodes, report.holders = found.nodes, found.holders
        report.would_say, report.ranked = found.would_say, found.ranked


# In progress


def _running(migration: _Migration) -> None:
    snapshot, move, report = migration.snapshot, migration.move, migration.report
    if move.status.pod_ref is not None:
        _awaits_ready(migration)
        return
    if move.evicts_directly:
        _evicting(migration, "it evicts without a reservation (spec.mode is EvictDirectly)")
        return
    name, reservation = migration.reservation_name, migration.reservation
    raw = snapshot.find(RESERVATION, name)
    if reservation is None or raw is None:
        created = move.condition(MigrationStep.RESERVATION_CREATED)
        report.summary = f"Its reservation {name} does not exist yet: it is created next."
        if created is not None and created.status == "False":
            report.summary = f"Its reservation {name} cannot be created: {created.message}"
        elif created is not None:
            report.summary = f"Its reservation {name} no longer exists, so it fails next."
        return
    report.reservation = name
    pod = reservation.pod
    is_held = pod is not None and pod.row >= 0 and not reservation.waiting
    if not (is_held or reservation.finished):
        found = explain_reservation(snapshot, raw)
        migration.take(found)
        budgets = _budgets_of_eviction(migration, reservation)
        also = f", and {_names(budgets)} allows it" if budgets else ""
        report.summary = (
            f"It evicts {migration.pod_text}{migration.where} once its reservation {name} has capacity"
            f"{also}. Of the reservation: {found.summary}"
        )
        _extend(migration)
        if budgets:
            _allow_eviction(migration, budgets)
    elif waits_for_pod(reservation.object.spec, move.pod):
        _awaits_pod(migration)
    elif move.is_true(MigrationStep.EVICTION):
        _awaits_replacement(migration, reservation)
    else:
        _evicting(migration, f"its reservation {name} has capacity on {report.node or 'its node'}")


def _evicting(migration: _Migration, before: str) -> None:
    """The pod is to be evicted: it is refused, or the pod still terminates."""
    snapshot, report, pod = migration.snapshot, migration.report, migration.pod
    who = migration.pod_text
    report.details.append(before)
    if pod is None:
        report.summary = f"{_capital(who)} is gone; the job takes note of that next."
        return
    if pod.cls.terminating:
        report.summary = f"It waits until {who}{migration.where}, which is being deleted, has ended."
        raw = snapshot.find(POD, pod.name, pod.namespace)
        deadline = deletion_deadline(raw)
        if is_overdue(snapshot, pod):
            report.details.append(f"{who} {overdue_text(snapshot, pod)}")
        elif deadline is not None:
            report.details.append(f"its grace period ends {in_time(deadline, snapshot.now)}")
        return
    condition = migration.move.condition(MigrationStep.EVICTION)
    budgets = forbidding_budgets(snapshot, pod)
    refused = condition is not None and condition.reason == MigrationReason.FAILED_EVICT
    if not (refused or budgets):
        report.summary = f"{_capital(who)}{migration.where} is evicted next."
        return
    why = f"{_names(budgets)} forbids it" if budgets else "the API server refuses it"
    report.summary = f"{_capital(who)}{migration.where} cannot be evicted: {why}. It is tried again."
    if refused and condition is not None and not budgets:
        report.details.append(condition.message)
    _note_budgets(migration, budgets)
    is_reserved = migration.reservation is not None
    report.advice += consider_budgets(snapshot, pod, budgets, is_reserved)


def _names(budgets: list[DisruptionBudget]) -> str:
    return "PodDisruptionBudget " + ", ".join(f"{each.namespace}/{each.name}" for each in budgets)


def _note_budgets(migration: _Migration, budgets: list[DisruptionBudget]) -> None:
    details = migration.report.details
    details += budget_details(migration.snapshot, budgets)
    if len(budgets) > 1:
        details.append("a pod with several PodDisruptionBudgets is never evicted")


def _budgets_of_eviction(migration: _Migration, reservation: ReservationInfo) -> list[DisruptionBudget]:
    """The budgets that forbid the eviction that follows once the reservation has capacity."""
    pod, is_own = migration.pod, waits_for_pod(reservation.object.spec, migration.move.pod)
    if pod is None or pod.row < 0 or pod.cls.terminating or is_own:
        return []
    return forbidding_budgets(migration.snapshot, pod)


def _allow_eviction(migration: _Migration, budgets: list[DisruptionBudget]) -> None:
    """What gives the reservation capacity is of use only if the pod can then be evicted."""
    report, pod = migration.report, migration.pod
    assert pod is not None
    _note_budgets(migration, budgets)
    wider = next(allowing_budgets(migration.snapshot, pod, budgets), None)
    found: list[Advice] = []
    for each in report.advice if wider is not None else ():
        assert wider is not None
        change = wider.change.data()
        whole = {**change, **each.change}
        whole |= {name: [*change.get(name, ()), *each.change.get(name, ())] for name in change}
        found.append(replace(each, text=f"{wider.text}, and {each.text}", change=whole))
    report.advice = found


def _awaits_pod(migration: _Migration) -> None:
    """The pod had no node: the reservation is for itself."""
    report, pod = migration.report, migration.pod
    raw = migration.snapshot.find(POD, pod.name, pod.namespace) if pod is not None else None
    if raw is None:
        report.summary = f"{_capital(migration.pod_text)} is gone; the job fails next."
        return
    found = explain_pod(migration.snapshot, raw)
    migration.take(found)
    report.summary = (
        f"It waits until {migration.pod_text} is bound through its reservation "
        f"{migration.reservation_name} on {report.node}. Of the pod: {found.summary}"
    )


def _awaits_replacement(migration: _Migration, reservation: ReservationInfo) -> None:
    """The pod was evicted, and no other one uses the reservation yet."""
    snapshot, report = migration.snapshot, migration.report
    text = f"{_capital(migration.pod_text)} was evicted"
    reserved = f"its reservation {reservation.name} on {report.node or 'its node'}"
    pending = [
        pod
        for pod in snapshot.cluster.pods.values()
        if pod.phase is Phase.PENDING
        and pod.reservation is None
        and reservation.owner_spec_id in snapshot.cluster.reservations.matching(pod.cls)
    ]
    if not pending:
        owners = reservation.object.spec.owners
        controllers = [each.controller for each in owners if each.controller is not None]
        names = [f"{each.kind} {each.namespace}/{each.name}" for each in controllers]
        report.summary = f"{text}, and no pending pod could use {reserved}."
        if elsewhere := _replaced_elsewhere(migration, reservation):
            report.details.append(elsewhere)
            return
        report.details.append(
            f"{few(names)} has not created a replacement: see holdfast explain "
            f"{controllers[0].kind.lower()} {controllers[0].name} -n {controllers[0].namespace}"
            if names
            else "the pod has no controller that creates it again: create it under the same name"
        )
        return
    first = min(pending, key=lambda pod: (pod.namespace, pod.name))
    raw = snapshot.find(POD, first.name, first.namespace)
    assert raw is not None, first.ref
    found = explain_pod(snapshot, raw)
    migration.take(found)
    report.summary = (
        f"{text}. Its replacement {first.namespace}/{first.name} is to be bound through {reserved}. "
        f"Of the replacement: {found.summary}"
    )
    _extend(migration)


def _replaced_elsewhere(migration: _Migration, reservation: ReservationInfo) -> str:
    """Names the owner that was created after the job and runs without its reservation."""
    snapshot = migration.snapshot
    cluster, created = snapshot.cluster, migration.raw["metadata"].get("creationTimestamp") or ""
    for pod in cluster.pods.values():
        is_elsewhere = pod.row >= 0 and pod.reservation_uid != reservation.uid
        if not is_elsewhere or pod.reservation is not None:
            continue
        if reservation.owner_spec_id not in cluster.reservations.matching(pod.cls):
            continue
        raw = snapshot.find(POD, pod.name, pod.namespace) or {"metadata": {}}
        if created <= (raw["metadata"].get("creationTimestamp") or ""):
            text = f"pod {pod.namespace}/{pod.name} replaces it, on {cluster.nodes.name(pod.row)}"
            nothing = "" if requested(pod).keys() - {PODS} else ": it requests no resources"
            return f"{text}, without the reservation{nothing}"
    return ""


def _awaits_ready(migration: _Migration) -> None:
    """The replacement is on its node."""
    report, owner = migration.report, migration.move.status.pod_ref
    assert owner is not None
    report.reservation = migration.reservation_name
    raw = migration.snapshot.find(POD, owner.name, owner.namespace)
    if raw is None:
        report.summary = (
            f"Its replacement, pod {owner.namespace}/{owner.name}, is gone; the job ends next."
        )
        return
    found = explain_pod(migration.snapshot, raw)
    report.details += found.details
    report.summary = (
        f"{_capital(migration.pod_text)} was evicted; it waits until its replacement "
        f"{owner.namespace}/{owner.name} is ready. Of the replacement: {found.summary}"
    )


def _note_deadline(migration: _Migration) -> None:
    move, now = migration.move, migration.snapshot.now
    if move.deadline is None:
        return
    when = "now: the scheduler is not running, or does so next"
    if move.deadline > now:
        when = in_time(move.deadline, now)
    migration.report.details.append(f"it fails {when} ({_ttl_text(move)})")


def _ttl_text(move: Move) -> str:
    ttl = move.job.spec.ttl
    return f"spec.ttl is {ttl}" if ttl is not None else f"the default ttl is {DEFAULT_MIGRATION_TTL}"


def _extend(migration: _Migration) -> None:
    """Waits that are longer than the job lasts need a longer ttl, of the job."""
    move, report = migration.move, migration.report
    deadline = move.deadline
    found: list[Advice] = []
    for each in report.advice:
        until = each.change.get("until")
        if until is None or deadline is None or parse_time(str(until)) < deadline:
            found.append(each)
            continue
        ttl = duration_text(60 * (1 + (parse_time(str(until)) + _SPARE - move.created) // 60))
        change = patch(MIGRATION, migration.raw, {"spec": {"ttl": ttl}}).data()
        whole = {**each.change, "actions": ["SetTTL", *each.change["actions"]]}
        whole["objects"] = [change, *each.change["objects"]]
        found.append(
            replace(each, text=f"set spec.ttl: {ttl} of the job and {each.text}", change=whole)
        )
    report.advice = found


# Not in progress


def _paused(migration: _Migration) -> None:
    report, name = migration.report, migration.raw["metadata"]["name"]
    report.phase = "Paused"
    report.summary = "It is paused (spec.paused): nothing is done until it is resumed."
    command = f'kubectl patch pmj {name} --type merge -p \'{{"spec":{{"paused":false}}}}\''
    body: Raw = {"spec": {"paused": False}}
    deadline, now = migration.move.deadline, migration.snapshot.now
    if deadline is not None and deadline <= now:
        late = span_text(now - deadline)
        report.details.append(
            f"if it were resumed it would fail at once: {_ttl_text(migration.move)}, over {late} ago"
        )
        ttl = duration_text(60 * (1 + (now + 5 * _SPARE - migration.move.created) // 60))
        body["spec"]["ttl"] = ttl
        command = f"kubectl patch pmj {name} --type merge -p '{msgspec.json.encode(body).decode()}'"
    job = deepcopy(migration.move.job)
    job.spec.paused = False
    job.spec.ttl = body["spec"].get("ttl", job.spec.ttl)
    if _tried(migration, job, "once it is resumed"):
        longer = f" with spec.ttl: {body['spec']['ttl']}" if "ttl" in body["spec"] else ""
        change = {"actions": ["Resume"], "objects": [patch(MIGRATION, migration.raw, body).data()]}
        report.advice.insert(0, Advice(f"resume it{longer} ({command})", change, []))
    else:
        report.details.append(f"to resume it: {command}")


def _ended(migration: _Migration) -> None:
    report, status, raw = migration.report, migration.move.status, migration.raw
    message = status.message.rstrip(".")
    if status.phase == MigrationPhase.SUCCEEDED:
        moved = status.pod_ref
        where = f" on {status.node_name}" if status.node_name else ""
        to = f", and {moved.namespace}/{moved.name}{where} replaces it" if moved is not None else ""
        report.summary = f"It has succeeded: {migration.pod_text} was evicted{to}."
        if moved is not None and moved.uid == migration.move.pod:
            report.summary = f"It has succeeded: {migration.pod_text} is{where}."
        return
    report.told = status.message
    what = "It was aborted" if status.phase == MigrationPhase.ABORTED else "It failed"
    report.summary = f"{what}{f': {message}' if message else ''}. Nothing more is done."
    if status.phase == MigrationPhase.ABORTED:
        return
    match status.reason:
        case MigrationReason.TIMEOUT:
            report.summary = (
                f"It failed: it was not done when its ttl was over ({_ttl_text(migration.move)})"
                f"{_reached(migration.move)}. Nothing more is done."
            )
        case MigrationReason.MISSING_POD:
            report.details += _missing_pod(migration)
            return
        case MigrationReason.INVALID_POD_REF:
            return
    again = deepcopy(migration.move.job)
    again.metadata.creation_timestamp = format_time(migration.snapshot.now)
    again.metadata.uid = f"{raw['metadata'].get('uid')}-again"
    again.status = PodMigrationJob().status
    options = again.spec.reservation_options
    if options is not None and migration.snapshot.find(RESERVATION, migration.reservation_name) is None:
        options.reservation_ref = None
    if again.spec.pod_ref is not None:
        again.spec.pod_ref.uid = ""
    if _tried(migration, again, "if it were created again"):
        report.details.append("a job is not tried again: delete it and create it again")


def _reached(move: Move) -> str:
    """`; its reservation had no node: 0/2 nodes …`: what a job waited for at its end."""
    for step, text in (
        (MigrationStep.BOUND_POD_READY, "the replacement was not ready"),
        (MigrationStep.POD_BOUND_RESERVATION, "no replacement was bound through the reservation"),
        (MigrationStep.POD_SCHEDULED, "the pod was not bound through the reservation"),
        (MigrationStep.EVICTION, "the pod was not evicted"),
        (MigrationStep.RESERVATION_SCHEDULED, "its reservation had no node"),
        (MigrationStep.RESERVATION_CREATED, "its reservation could not be created"),
    ):
        found = move.condition(step)
        if found is not None and found.status == "False":
            return f"; {text}{f': {found.message}'.rstrip('.') if found.message else ''}"
    return ""


def _missing_pod(migration: _Migration) -> Iterator[str]:
    reference = migration.move.job.spec.pod_ref
    if reference is None or not reference.name:
        return
    namespace = reference.namespace or "default"
    pods = migration.snapshot.cluster.pods.values()
    there = [pod.name for pod in pods if pod.namespace == namespace and pod.reservation is None]
    if reference.name in there:
        yield f"a pod {namespace}/{reference.name} exists now, but it is another one (its uid differs)"
    elif near := did_you_mean(reference.name, there):
        yield f"there is no pod {namespace}/{reference.name}{near}"


def _tried(migration: _Migration, job: PodMigrationJob, when: str) -> bool:
    """What the scheduler would do with a job: it fails, or makes a reservation, of which this says why
    it has no node. Returns whether it gets on."""
    snapshot, report = migration.snapshot, migration.report
    move, decisions = Move(job, snapshot.now), list[Decision]()
    others = [msgspec.convert(each, PodMigrationJob) for each in snapshot.all(MIGRATION)]
    moves = {
        each.metadata.uid: Move(each, snapshot.now)
        for each in others
        if each.metadata.uid != migration.raw["metadata"].get("uid") and each.status.phase not in ENDED
    }
    MigrationSteps(snapshot.cluster, moves, decisions).proceed(move, snapshot.now)
    if move.ended and move.status.phase != MigrationPhase.SUCCEEDED:
        report.details.append(f"{when}, it fails: {move.status.message}")
        if move.status.reason == MigrationReason.MISSING_POD:
            report.details += _missing_pod(migration)
        return False
    made = next((each.reservation for each in decisions if isinstance(each, CreateReservation)), None)
    pod = migration.pod or snapshot.cluster.pods.get(move.pod)
    if made is None:
        return _tried_eviction(migration, pod, when)
    raw: Raw = msgspec.to_builtins(made)
    raw["metadata"]["uid"] = raw["metadata"]["name"]
    raw["metadata"]["creationTimestamp"] = format_time(snapshot.now)
    with applied(snapshot, [create(RESERVATION, raw)]):
        found = explain_reservation(snapshot, raw)
    if found.ranked:
        report.details.append(f"{when}, a reservation for its replacement fits {found.ranked[0].node}")
        return _tried_eviction(migration, pod, when)
    report.details.append(f"{when}, a reservation for its replacement waits: {found.summary}")
    migration.take(found)
    return False


def _tried_eviction(migration: _Migration, pod: PodRecord | None, when: str) -> bool:
    budgets = forbidding_budgets(migration.snapshot, pod) if pod is not None and pod.row >= 0 else []
    if pod is None or not budgets:
        return True
    report = migration.report
    report.details.append(f"{when}, the eviction of the pod is refused:")
    report.details += budget_details(migration.snapshot, budgets)
    is_reserved = migration.reservation is not None
    report.advice += consider_budgets(migration.snapshot, pod, budgets, is_reserved)
    return False


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"
