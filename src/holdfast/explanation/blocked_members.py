"""A gang that does not start: the member that keeps it from starting, why, and what would help."""

from holdfast.explanation.advice import Advisor
from holdfast.explanation.capacity import pods_text, row_of
from holdfast.explanation.details import details_of
from holdfast.explanation.no_node import explain_no_node, no_node_summary, note_holders, own_waiting
from holdfast.explanation.planned_reservations import consider_estimate
from holdfast.explanation.repair_search import consider_nodes
from holdfast.explanation.repairs import Repair, remove_gates
from holdfast.explanation.report import Report
from holdfast.explanation.smaller_requests import consider_smaller_members
from holdfast.explanation.verdicts import NodeVerdicts, Subject, fitting_members, place, profile_for
from holdfast.explanation.waits import consider_gang_wait
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


def explain_blocked_members(
    snapshot: ClusterSnapshot, job: Job, advisor: Advisor, report: Report
) -> str:
    """Facts and advice about members that are gated, and about the first that has no node beside the
    others; returns a sentence about them, empty if all of them fit."""
    members = [each for partner in snapshot.cluster.jobs.partners(job) for each in partner.waiting()]
    fitting = fitting_members(snapshot, members, gated_too=True)
    gated = [pod for pod in members if pod.gates]
    blocked = [pod for pod in members if pod not in fitting]
    found, gates = [], None
    if gated:
        found.append(f"Blocked by scheduling gates: {pods_text(gated)}.")
        gates = _gates(snapshot, gated, report)
        advisor.propose(gates)
    if blocked:
        with advisor.about(Subject.of(blocked[0]), *([gates] if gates is not None else [])):
            found.append(_blocked(snapshot, blocked, fitting, report, advisor))
    return " ".join(found)


def _gates(snapshot: ClusterSnapshot, gated: list[PodRecord], report: Report) -> Repair:
    names = dict.fromkeys(gate for pod in gated for gate in pod.gates)
    report.details.append(f"scheduling gates of {pods_text(gated)} to remove: {', '.join(names)}")
    return remove_gates(snapshot, gated)


def _blocked(
    snapshot: ClusterSnapshot,
    members: list[PodRecord],
    fitting: dict[PodRecord, str],
    report: Report,
    advisor: Advisor,
) -> str:
    """Explains the first of the members; it stands for those that scheduling cannot tell apart."""
    blocked = members[0]
    named = pods_text(pod for pod in members if pod.cls is blocked.cls)
    alone = place(snapshot.scheduler, blocked)
    if not alone.message:
        why = _beside(snapshot, blocked, fitting, report, advisor)
        return f"Beside the others, {named}: {why}" if why else ""
    of_member = Report("", "", "")
    explain_no_node(snapshot, blocked, alone, advisor, of_member)
    _note(report, alone)
    report.details += of_member.details
    report.holders = of_member.holders
    consider_smaller_members(advisor, blocked)
    return f"{named}: {of_member.summary}"


def _note(report: Report, placing: NodeVerdicts) -> None:
    """The verdicts for the member, in the report of a group; that of a pod has its own."""
    if not report.ranked:
        report.would_say, report.nodes = placing.message, placing.reasons


def _beside(
    snapshot: ClusterSnapshot,
    blocked: PodRecord,
    fitting: dict[PodRecord, str],
    report: Report,
    advisor: Advisor,
) -> str:
    """The member fits by itself; why it does not beside the others, empty if it does."""
    scheduler, ledger = snapshot.scheduler, snapshot.cluster.ledger
    why = ""
    with ledger.transaction():
        for pod, node in fitting.items():
            row = row_of(snapshot, node)
            column = scheduler.columns.column(profile_for(scheduler, pod), pod.cls)
            pod.reservation_uid = column.reservation_uid(row)
            ledger.place(pod, row)
        placing = place(scheduler, blocked)
        if placing.message:
            _note(report, placing)
            why = own_waiting(snapshot, blocked) or no_node_summary(snapshot, placing, blocked)
            report.details += details_of(snapshot, blocked, placing)
            note_holders(snapshot, blocked, placing, report)
    for pod in fitting:
        pod.reservation_uid = ""
    if not placing.message:
        return ""
    consider_estimate(snapshot, Subject.of(blocked), blocked, placing, advisor)
    consider_nodes(advisor, placing)
    consider_gang_wait(advisor, blocked)
    consider_smaller_members(advisor, blocked)
    return why
