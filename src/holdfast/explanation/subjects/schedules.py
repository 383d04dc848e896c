"""Explains a ReservationSchedule by the reservations that it has made, or would make."""

import msgspec

from holdfast.api.cron import CronError, never_due_text
from holdfast.api.errors import DurationError
from holdfast.api.kinds import KINDS
from holdfast.api.names import HOLDFAST_API
from holdfast.api.reservation_schedules import ReservationSchedule, starts_of
from holdfast.api.times import format_time
from holdfast.explanation.report import Report
from holdfast.explanation.subjects.reservations import explain_reservation
from holdfast.kube.object_client import Raw
from holdfast.scheduler.controllers.reservation_schedules import occurrence
from holdfast.snapshot.cluster_changes import applied, create
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot

_SCHEDULE = KINDS[HOLDFAST_API, "ReservationSchedule"]


def explain_schedule(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    """Of several reservations, the one that advice exists for is explained, otherwise the first."""
    name, spec, status = raw["metadata"]["name"], raw.get("spec") or {}, raw.get("status") or {}
    report = Report(f"ReservationSchedule {name}", "Suspended" if spec.get("suspend") else "Active", "")
    made = [each for each in snapshot.all(RESERVATION) if _is_made_by(each, raw)]
    made.sort(key=lambda each: str(each["metadata"]["name"]))
    known = snapshot.cluster.reservations
    going = [
        (each, found)
        for each in made
        if (found := known.get(each["metadata"]["name"])) is not None and not found.finished
    ]
    texts = []
    if spec.get("suspend"):
        texts.append("spec.suspend is true: it makes no more reservations.")
    elif status.get("nextStart"):
        texts.append(f"Its next start is {status['nextStart']}.")
    texts += [
        f"{str(each['message']).rstrip('.')}."
        for each in status.get("conditions") or ()
        if each.get("status") == "False" and each.get("message")
    ]
    reports = [(found.name, explain_reservation(snapshot, each)) for each, found in going]
    if (never := _never_due(snapshot, raw)) and not spec.get("suspend"):
        texts = [*(each for each in texts if never not in each), f"It makes no reservations: {never}."]
        report.phase = "NeverDue"
    elif not reports and not status and not spec.get("suspend"):
        texts.append("No scheduler has seen it yet: it has no status.")
        _first_occurrence(snapshot, raw, report, texts)
    elif not reports:
        texts.append("No reservation of it is planned or in use.")
    if reports:
        of, first = next((each for each in reports if each[1].advice), reports[0])
        texts.append(f"Reservation {of}: {first.summary}")
        report.details, report.advice = first.details, first.advice
        report.holders, report.nodes, report.owners = first.holders, first.nodes, first.owners
        report.node, report.told, report.would_say = first.node, first.told, first.would_say
    report.members = [f"Reservation {of} is {each.phase}: {each.summary}" for of, each in reports]
    report.summary = " ".join(texts)
    return report


def _never_due(snapshot: ClusterSnapshot, raw: Raw) -> str:
    """That the schedule has no start; empty if it has one, or is invalid."""
    try:
        schedule = msgspec.convert(raw, ReservationSchedule)
        is_due = starts_of(schedule).next_after(snapshot.now) is not None
    except (CronError, msgspec.ValidationError):
        return ""
    return "" if is_due else never_due_text(schedule.spec.schedule)


def _first_occurrence(snapshot: ClusterSnapshot, raw: Raw, report: Report, texts: list[str]) -> None:
    """When a schedule that no scheduler has seen would first start, and why that would not work. What
    would help is not advised: there is no reservation to change."""
    try:
        schedule = msgspec.convert(raw, ReservationSchedule)
        starts = starts_of(schedule)
        start = starts.next_after(snapshot.now)
        assert start is not None
        made: Raw = msgspec.to_builtins(occurrence(schedule, start, starts))
    except (CronError, DurationError, msgspec.ValidationError) as error:
        texts.append(f"It is invalid: {error}.")
        return
    texts.append(f"Its first start would be {format_time(start)}.")
    made["metadata"]["uid"] = made["metadata"]["name"]
    with applied(snapshot, [create(RESERVATION, made)]):
        report.details = explain_reservation(snapshot, made).details


def _is_made_by(reservation: Raw, schedule: Raw) -> bool:
    metadata = schedule["metadata"]
    return any(
        each.get("kind") == _SCHEDULE.kind
        and each.get("name") == metadata["name"]
        and each.get("uid") in (metadata.get("uid"), None, "")
        for each in reservation["metadata"].get("ownerReferences") or ()
    )
