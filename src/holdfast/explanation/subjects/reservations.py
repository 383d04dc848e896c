"""Explains a reservation: why it is pending, or what it reserves, on which node, and its owners."""

from holdfast.api.calendar import misspelt_terms
from holdfast.api.names import CAN_PREEMPT
from holdfast.api.reservation import HAS_EXPIRED
from holdfast.api.similar_names import did_you_mean
from holdfast.api.times import format_time, span_text
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.misspellings import served_schedulers
from holdfast.explanation.advice.planned_reservations import closest_at_start, consider_plan
from holdfast.explanation.advice.repair_search import consider_nodes
from holdfast.explanation.facts.claim_details import held_devices
from holdfast.explanation.facts.expected_plans import all_planned
from holdfast.explanation.facts.ignored_annotations import ignored_annotations
from holdfast.explanation.phrases import NO_ALLOCATE, duration_text, in_time, named_amounts
from holdfast.explanation.repairs.details import details_of
from holdfast.explanation.report import Report, few
from holdfast.explanation.subjects.gang_members import explain_member
from holdfast.explanation.subjects.no_node import explain_no_node, explain_unserved
from holdfast.explanation.subjects.pods import condition_message
from holdfast.explanation.subjects.waiting_reservations import explain_waiting, note_failed_resize
from holdfast.explanation.verdicts import Subject, expected_message, place, rank
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.reservations.calendar import DRAINING, FEASIBLE, PLANNED, PlannedReservation
from holdfast.scheduler.reservations.reservation_victims import labelled_priority, may_preempt
from holdfast.scheduler.state.cluster import Cluster
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, reserved_by_name

_OUTCOMES = {
    "True": "Its capacity will be free by then.",
    "False": "Its capacity will not be free by then.",
    "Unknown": "Whether its capacity will be free by then is unknown.",
}
"""By the status of the condition Feasible."""


def explain_reservation(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    name = raw["metadata"]["name"]
    status = raw.get("status") or {}
    report = Report(f"Reservation {name}", str(status.get("phase") or "Pending"), "")
    report.node = str(status.get("nodeName") or "")
    reservation = snapshot.cluster.reservations.get(name)
    if reservation is None or reservation.finished:
        told = condition_message(raw, "Ready")
        report.told = "" if told == report.phase else told
        report.summary = _ended(raw)
    elif reservation.expires is not None and reservation.expires <= snapshot.now:
        at = format_time(reservation.expires)
        report.summary = f"It has expired, at {at} (spec.ttl or spec.expires): the scheduler ends it."
        return report
    elif reservation.error or reservation.pod is None:
        report.told = condition_message(raw, "Scheduled") or reservation.error
        report.summary = f"It is invalid: {reservation.error}"
    elif reservation.pod.row >= 0:
        _holding(snapshot, reservation, report)
    elif (planned := snapshot.cluster.reservations.calendar.get(reservation.uid)) is not None:
        _planned(snapshot, planned, raw, report)
    else:
        report.told = condition_message(raw, "Scheduled")
        _waiting(snapshot, reservation, report)
        if (start := reservation.calendar.start) is not None:
            report.summary = f"{_reached(start, snapshot.now)} It is late. {report.summary}"
    for key, problem in misspelt_terms(raw["metadata"].get("annotations") or {}):
        report.details.append(f"its annotation {key} is ignored: {problem}")
    reservation = snapshot.cluster.reservations.get(name)  # advice was tried on another record
    if reservation is not None and not reservation.finished:
        report.owners = _owners(snapshot.cluster, reservation)
    return report


def _ended(raw: Raw) -> str:
    """How a reservation ended that reserves nothing."""
    status = raw.get("status") or {}
    using = status.get("currentOwners") or ()
    owners = [f"{each.get('namespace')}/{each.get('name')}" for each in using]
    if status.get("phase") == "Succeeded":
        whom = f"pod {few(owners)}" if owners else "its owner"
        return f"It was allocated to {whom} (allocateOnce) and reserves nothing more."
    for each in status.get("conditions") or ():
        if (each.get("type"), each.get("reason")) == ("Ready", "Expired"):
            why = each.get("message")
            if why and why != HAS_EXPIRED:
                return f"It has ended and reserves nothing: {why}."
            return "It has expired and reserves nothing."
    return "It has ended and reserves nothing."


def _holding(snapshot: ClusterSnapshot, reservation: ReservationInfo, report: Report) -> None:
    cluster = snapshot.cluster
    entry = reservation.entry
    assert entry is not None
    left = named_amounts(reserved_by_name(cluster, entry.amounts, entry.remaining))
    report.details += held_devices(cluster, reservation)
    if not reservation.waiting:
        report.summary = f"It reserves capacity on {report.node}; remaining: {left or 'nothing'}."
        if reservation.closed:
            report.details.append(
                "it takes no new owners: spec.unschedulable is set, or it is being deleted"
            )
        note_failed_resize(snapshot, reservation, report)
        return
    explain_waiting(snapshot, reservation, report)


def _planned(snapshot: ClusterSnapshot, planned: PlannedReservation, raw: Raw, report: Report) -> None:
    """Of a reservation that starts later: its plan, as the scheduler has written it, and what would
    make it certain."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    found = {str(each.get("type")): each for each in conditions}
    start = f"It starts at {format_time(planned.start)}"
    if planned.start <= snapshot.now:
        start = _reached(planned.start, snapshot.now)
        start += " The scheduler has not started it yet, or is not running"
    if PLANNED not in found:
        report.summary = f"{start}. No scheduler has seen it yet: its status has no plan."
        with all_planned(snapshot, before=planned):
            _to_be_planned(snapshot, planned, report)
        return
    feasible = found.get(FEASIBLE) or {}
    report.told = str(feasible.get("message") or "")
    where = f"{planned.node} is planned" if planned.node else "no node is planned"
    outcome = _OUTCOMES.get(str(feasible.get("status")), "")
    report.summary = f"{start}; {where}. {outcome}".rstrip()
    if feasible.get("status") != "True":
        _not_certain(snapshot, planned, report)
    if not planned.node:
        return
    terms = planned.reservation.calendar
    if found[PLANNED].get("reason") == DRAINING:
        report.details.append("its node is drained until then")
    elif terms.lead:
        report.details.append(f"its node is drained from {format_time(terms.drains_at)} on")
    report.details.append(f"pods on its node before the start: {terms.before}")


def _reached(start: float, now: float) -> str:
    return f"Its start, {format_time(start)}, was reached {span_text(now - start)} ago."


def _to_be_planned(snapshot: ClusterSnapshot, planned: PlannedReservation, report: Report) -> None:
    node = snapshot.scheduler.calendar_planner.questions.certain_node(planned)
    if node:
        report.details.append(f"a scheduler would plan it on {node}")
        return
    closest = closest_at_start(snapshot, planned)
    report.details.append(f"no node would certainly have its capacity by then{closest}")
    _not_certain(snapshot, planned, report)


def _not_certain(snapshot: ClusterSnapshot, planned: PlannedReservation, report: Report) -> None:
    pod = planned.reservation.pod
    assert pod is not None
    if report.told:
        report.details.append(report.told)
    advisor = Advisor(snapshot, Subject.of(pod))
    report.details += consider_plan(snapshot, planned, advisor)
    placing = place(snapshot.scheduler, pod)
    if placing.message:
        report.nodes, report.would_say = placing.reasons, placing.message
        report.details += details_of(snapshot, pod, placing)
        consider_nodes(advisor, placing)
    report.advice = advisor.advice


def _waiting(snapshot: ClusterSnapshot, reservation: ReservationInfo, report: Report) -> None:
    scheduler, pod = snapshot.scheduler, reservation.pod
    assert pod is not None
    placing = place(scheduler, pod)
    report.would_say = expected_message(snapshot, pod, placing)
    report.nodes = placing.reasons
    report.ranked = rank(scheduler, placing)
    report.details += ignored_annotations(pod.cls)
    advisor = Advisor(snapshot, Subject.of(pod))
    if pod.scheduler and scheduler.profile_of(pod.scheduler) is None:
        near = did_you_mean(pod.scheduler, served_schedulers(scheduler))
        report.summary = (
            f"The schedulerName of its template is {pod.scheduler}, which this configuration does not "
            f"serve (see --config){near or '.'}"
        )
        explain_unserved(snapshot, Subject.of(pod), pod, placing, advisor, report)
        report.advice = advisor.advice
    elif not scheduler.allocates:
        report.summary = f"{NO_ALLOCATE}, and no reservation (see --config)."
        report.details += details_of(snapshot, pod, placing) if placing.message else []
    elif (job := snapshot.cluster.jobs.of(pod)) is not None:
        explain_member(snapshot, job, pod, placing, advisor, report)
        report.details += _preemption(snapshot, reservation) if placing.message else []
        report.advice = advisor.advice
        report.details += _expiry(snapshot, advisor)
    elif placing.message:
        explain_no_node(snapshot, pod, placing, advisor, report)
        report.details += _preemption(snapshot, reservation)
        report.advice = advisor.advice
        report.details += _expiry(snapshot, advisor)
    else:
        best = f": {report.ranked[0].node}" if report.ranked else ""
        report.summary = f"It fits now{best}. It is queued, or the scheduler is not running."


def _expiry(snapshot: ClusterSnapshot, advisor: Advisor) -> list[str]:
    """Says so if the capacity becomes free when it, or another one of its job, has expired or is about
    to."""
    if not advisor.too_late or any("Wait" in each.change["actions"] for each in advisor.advice):
        return []
    free = min(advisor.too_late)
    left = advisor.expires - free
    expires = f"expires {duration_text(left)} later" if left > 0 else "expires before then"
    when = in_time(free, snapshot.now)
    return [f"capacity is expected to be free {when}, but it {expires} (spec.ttl or spec.expires)"]


def _preemption(snapshot: ClusterSnapshot, reservation: ReservationInfo) -> list[str]:
    """Says so if it does not preempt, and reservations of lower priority hold capacity."""
    own = labelled_priority(reservation.object)
    if may_preempt(reservation.object) or own is None:
        return []
    lower = sorted(
        each.name
        for each in snapshot.cluster.reservations.known.values()
        if each.entry is not None
        and (priority := labelled_priority(each.object)) is not None
        and priority < own
    )
    if not lower:
        return []
    return [
        f"reservations of lower priority than its {own} hold capacity: {few(lower)}. It preempts none "
        f"without the label {CAN_PREEMPT}=true"
    ]


def _owners(cluster: Cluster, reservation: ReservationInfo) -> list[str]:
    using = sorted(str(pod.ref) for pod in cluster.reservations.allocated_pods(reservation))
    waiting = sorted(
        str(pod.ref)
        for pod in (() if reservation.closed else cluster.pods.values())
        if pod.phase is Phase.PENDING
        and reservation.owner_spec_id in cluster.reservations.matching(pod.cls)
    )
    return [f"{name} uses it" for name in using] + [
        f"{name} is pending and may use it" for name in waiting
    ]
