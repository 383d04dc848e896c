"""Explains a ReservationSchedule by the reservations that it has made."""

from holdfast.api.kinds import KINDS
from holdfast.api.names import HOLDFAST_API
from holdfast.explanation.report import Report
from holdfast.explanation.reservations import explain_reservation
from holdfast.kube.object_client import Raw
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
    if not reports:
        texts.append("No reservation of it is planned or in use.")
    else:
        of, first = next((each for each in reports if each[1].advice), reports[0])
        texts.append(f"Reservation {of}: {first.summary}")
        report.details, report.advice = first.details, first.advice
        report.holders, report.nodes, report.owners = first.holders, first.nodes, first.owners
        report.node, report.told, report.would_say = first.node, first.told, first.would_say
    report.members = [f"Reservation {of} is {each.phase}: {each.summary}" for of, each in reports]
    report.summary = " ".join(texts)
    return report


def _is_made_by(reservation: Raw, schedule: Raw) -> bool:
    metadata = schedule["metadata"]
    return any(
        each.get("kind") == _SCHEDULE.kind
        and each.get("name") == metadata["name"]
        and each.get("uid") in (metadata.get("uid"), None, "")
        for each in reservation["metadata"].get("ownerReferences") or ()
    )
