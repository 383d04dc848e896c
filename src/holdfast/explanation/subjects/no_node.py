"""No node is feasible for a pod or the reserve pod of a reservation: the summary, facts and advice."""

import re
from collections.abc import Iterable, Iterator

from holdfast.api import names
from holdfast.api.plurals import plural
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.claim_selectors import consider_selectors_of_nodes
from holdfast.explanation.advice.claim_sizes import (
    CLAIMS_PLUGIN,
    consider_fewer_devices,
    consider_outdated_claims,
)
from holdfast.explanation.advice.invalid_requests import consider_invalid_requests
from holdfast.explanation.advice.missing_claims import consider_attributes, consider_missing_claims
from holdfast.explanation.advice.missing_volumes import (
    consider_missing_volumes,
    consider_unbound_claims,
    consider_unreachable_volumes,
)
from holdfast.explanation.advice.misspellings import consider_misspellings, other_schedulers
from holdfast.explanation.advice.new_nodes import consider_new_node
from holdfast.explanation.advice.overdue_pods import consider_overdue_pods
from holdfast.explanation.advice.planned_reservations import consider_estimate, consider_own_start
from holdfast.explanation.advice.removals import consider_awaited_pods, consider_removals
from holdfast.explanation.advice.repair_search import consider_nodes
from holdfast.explanation.advice.reservation_repairs import (
    consider_owners,
    consider_reservations,
    consider_same_owners,
)
from holdfast.explanation.advice.rollouts import consider_rollout
from holdfast.explanation.advice.unused_claims import Deallocation, consider_unused_claims, deallocation
from holdfast.explanation.facts.awaited_terminations import awaited_terminations, preemptors_started
from holdfast.explanation.facts.capacity import missing_node, missing_on, plans_on, row_of, shortages
from holdfast.explanation.facts.expected_ends import ignored_estimate, overrun_text, rows_freed_first
from holdfast.explanation.facts.holders import (
    holder_text,
    holders_on,
    holds_text,
    kind_of_holder,
    kind_text,
)
from holdfast.explanation.facts.matching_reservations import (
    named_reservation,
    pending_reservations,
    unusable_reservations,
)
from holdfast.explanation.facts.near_owners import near_owners
from holdfast.explanation.facts.own_reservations import waiting_for
from holdfast.explanation.facts.own_starts import lost_text, victims_of
from holdfast.explanation.facts.preemption_limits import budget_violations, preemption_limits
from holdfast.explanation.facts.workload_dry_runs import is_replaced
from holdfast.explanation.phrases import amounts_text, job_text, pods_text
from holdfast.explanation.repairs.details import details_of, terminating_on
from holdfast.explanation.repairs.host_ports import too_few_nodes
from holdfast.explanation.repairs.pod_affinity import too_few_domains
from holdfast.explanation.repairs.repair import metadata_changes, repair
from holdfast.explanation.report import Report, few
from holdfast.explanation.subjects.plain_reasons import further_reasons, no_node_summary
from holdfast.explanation.verdicts import NodeVerdicts, Subject, at_time, place, starts_on
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.config.plugin_sets import CALENDAR_FILTER, NODE_RESOURCES_FIT
from holdfast.scheduler.framework.feasibility.compiled_class import RESERVED
from holdfast.scheduler.framework.interface import Nomination
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_changes import ClusterChange, applied, patch
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot

_HOLDERS = 3
_KEPT_BY_RESERVATIONS = (NODE_RESOURCES_FIT, CALENDAR_FILTER, "DeviceShare")
"""Plugins that reject nodes whose capacity may be kept by reservations."""
_REMOVALS = {("RemoveSelector",), ("RemoveAffinity",)}
"""Kinds of change that only its user can say whether they are right."""
_RENAMED = {("CorrectResource",)}
"""The kind of change that requests another resource than one that no node has."""
_LOOKED_AT = 20
_ANNOTATION = re.compile(r"metadata\.annotations\[([^]]+)\]")
NOTHING_HELPS = "nothing that was tried would help"
"""How the line begins that says so."""


def explain_no_node(
    snapshot: ClusterSnapshot,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
    report: Report,
) -> None:
    """No node is feasible, for a pod or the reserve pod of a reservation."""
    subject = Subject.of(pod)
    if (unused := deallocation(snapshot, pod, placing)) is not None:
        _explain_after(snapshot, pod, unused, placing, advisor, report)
        return
    rejected, preempts = placing.column.rejected, False
    report.summary = no_node_summary(snapshot, placing, pod)
    if rejected is None and (own := own_waiting(snapshot, pod)):
        report.summary = own
    if name := is_replaced(snapshot, pod):
        report.details.append(
            f"it is of an old template of Deployment {name}, whose rollout deletes it: see the new pods"
        )
        report.details += consider_rollout(snapshot, pod, advisor)
        return
    report.details += named_reservation(snapshot, pod)
    report.details += near_owners(snapshot, pod)
    report.details += consider_owners(snapshot, pod, advisor)
    consider_misspellings(snapshot, subject, pod, advisor)
    consider_outdated_claims(snapshot, subject, pod, advisor)
    if rejected is not None:
        _rejected(snapshot, subject, pod, rejected.message, advisor, report)
    else:
        nomination = snapshot.scheduler.preemption.post_filter(placing.profile, pod, placing.column)
        preempts = bool(nomination.node or nomination.reserve_pods)
        job = snapshot.cluster.jobs.of(pod)
        if preempts and job is not None and pod.reservation is None:
            preempts = False
            report.details.append(f"{job_text(job)} {_no_preemption(job)}")
        elif preempts and (lost := lost_text(snapshot, subject)):
            preempts = False
            report.details.append(lost)
        elif preempts:
            report.details += preemption_details(snapshot, nomination)
        report.details += details_of(snapshot, pod, placing)
        report.details += further_reasons(snapshot, pod, placing)
        note_holders(snapshot, pod, placing, report)
        consider_estimate(snapshot, subject, pod, placing, advisor)
        report.details += consider_own_start(snapshot, pod, advisor)
        report.details += consider_rollout(snapshot, pod, advisor)
        report.details += consider_overdue_pods(snapshot, pod, placing, advisor)
        report.details += unusable_reservations(report.reservations)
    consider_reservations(snapshot, subject, advisor)
    if rejected is None:
        consider_same_owners(snapshot, pod, placing, advisor)
    report.details += _consider_pending_reservations(snapshot, pod, advisor)
    _ignored(snapshot, subject, pod, advisor, report)
    if rejected is None:
        consider_unbound_claims(snapshot, pod, placing, advisor)
        consider_unreachable_volumes(snapshot, pod, advisor)
        consider_attributes(snapshot, subject, pod, placing, advisor)
        consider_unused_claims(snapshot, pod, placing, advisor)
    consider_fewer_devices(snapshot, subject, pod, placing, advisor)
    if rejected is None:
        consider_awaited_pods(snapshot, pod, advisor)
    protected = [] if preempts else consider_nodes(advisor, placing)
    if rejected is None and advisor.actions == _RENAMED:
        consider_new_node(snapshot, pod, placing, advisor)
    if not advisor.advice and not preempts:
        consider_removals(snapshot, subject, pod, advisor)
        if rejected is None and not advisor.advice:
            nodes = [name for name, each in placing.rejections.items() if each.plugin == CLAIMS_PLUGIN]
            consider_selectors_of_nodes(snapshot, subject, pod, nodes, advisor)
    if not preempts and rejected is None and advisor.actions <= _REMOVALS:
        consider_new_node(snapshot, pod, placing, advisor)
    report.details += takers_details(advisor)
    _note_unknown_end(snapshot, pod, placing, advisor, report)
    if pod.cls.pod.spec.preemption_policy == "Never" and pod.cls.priority > 0:
        report.details.append("its preemptionPolicy is Never: it preempts no pods of lower priority")
    if preempts:
        return
    if rejected is None:
        report.details += preemption_limits(snapshot, pod, placing, report.holders)
    report.details += protected
    is_known = (rejected is not None and report.details) or missing_node(snapshot, pod.cls.wants_node)
    replicas = advisor.replicas
    lacking = too_few_places(snapshot, pod, replicas) if replicas and not advisor.advice else []
    report.details = [*lacking, *report.details]
    if not (advisor.advice or is_known or lacking) and snapshot.cluster.nodes.count:
        report.details.append(nothing_helps(report))


def explain_unserved(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
    report: Report,
) -> None:
    """A pod or reservation with a scheduler name that no profile serves: another name; if that is not
    enough, together with what opens a node."""
    options = list(other_schedulers(snapshot, subject, pod))
    if [each for each in options if advisor.propose(each)]:
        return
    if not placing.message:
        report.details += takers_details(advisor)
        return
    besides = no_node_summary(snapshot, placing, pod)
    report.summary += f" Even with one of these: {besides[0].lower()}{besides[1:]}"
    report.details += details_of(snapshot, pod, placing)
    for each in options:
        with advisor.about(subject, each):
            consider_nodes(advisor, placing)
            if not advisor.advice:
                consider_removals(snapshot, subject, pod, advisor)
        if advisor.advice:
            return
    report.details += takers_details(advisor)
    report.details.append(nothing_helps(report))


def nothing_helps(report: Report) -> str:
    """That there is no advice; and if others have holds, how these end."""
    return "; ".join(filter(None, (NOTHING_HELPS, holds_text(report.holders))))


def too_few_places(snapshot: ClusterSnapshot, pod: PodRecord, pods: int) -> list[str]:
    """What lets one pod of a workload run on a node, or in a domain, if it has more pods than there are
    of those."""
    return [*too_few_domains(snapshot, pod, pods), *too_few_nodes(snapshot, pod, pods)]


def _no_preemption(job: Job) -> str:
    """Why nothing is preempted for a member that could preempt pods by itself."""
    if job.is_ready:
        return "has as many members as it needs: it preempts nothing for more of them"
    return "preempts nothing: not enough of its members would then have a node"


def takers_details(advisor: Advisor) -> list[str]:
    """Who takes the capacity that changes free, unless waiting for more is advised."""
    if any("Wait" in each.change["actions"] for each in advisor.advice):
        return []
    found = [*list(advisor.lost_holds)[:1]]
    when = "once capacity is free" if _lacks_capacity(advisor) else "without this obstacle"
    found += [f"{when}, {each}" for each in list(advisor.takers)[:1]]
    if advisor.never_starts and not found:
        found.append("once capacity is free, other pods take it: see `holdfast when`")
    return found


def _lacks_capacity(advisor: Advisor) -> bool:
    """Whether no node has the capacity, whatever else is in the way."""
    pod = advisor.subject.record(advisor.snapshot)
    nodes = advisor.snapshot.cluster.nodes
    alive = nodes.alive[: nodes.size]
    return pod is None or not (shortages(advisor.snapshot, pod)[: nodes.size][alive] <= 0).any()


def _explain_after(
    snapshot: ClusterSnapshot,
    pod: PodRecord,
    unused: Deallocation,
    placing: NodeVerdicts,
    advisor: Advisor,
    report: Report,
) -> None:
    """The scheduler deallocates a claim first; what keeps the pod off the nodes then."""
    report.summary = no_node_summary(snapshot, placing, pod)
    text = f"claim {unused.claim} is allocated where it does not fit, and no other pod uses it: the "
    text += "scheduler deallocates it if the pod is tried"
    with applied(snapshot, [unused.change]):
        freed = Subject.of(pod).record(snapshot) or pod
        nodes = starts_on(snapshot, Subject.of(freed))
        if nodes:
            report.details.append(f"{text}; then it fits {few(nodes, _HOLDERS)}")
            return
        report.details.append(f"{text}; then:")
        explain_no_node(snapshot, freed, place(snapshot.scheduler, freed), advisor, report)


def _consider_pending_reservations(
    snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor
) -> Iterator[str]:
    """Why a reservation that the pod requires has no node; proposes what would give it one, if the pod
    could then use it."""
    for reservation in pending_reservations(snapshot, pod)[:_HOLDERS]:
        own, raw = reservation.pod, snapshot.find(RESERVATION, reservation.name)
        assert own is not None
        placing, of = place(snapshot.scheduler, own), f"reservation {reservation.name}"
        if raw is None or not placing.message:
            yield f"{of} fits now: it is queued, or the scheduler is not running"
            continue
        about = Report(of, "Pending", "")
        sub = Advisor(snapshot, Subject.of(own), counts_evictions=False)
        explain_no_node(snapshot, own, placing, sub, about)
        yield f"{of}: {about.summary} See: holdfast explain reservation {reservation.name}"
        for each in sub.helpful:
            with applied(snapshot, each.change.objects), at_time(snapshot, each.change.until):
                nodes = starts_on(snapshot, Subject.of(own))
            body = {"status": {"phase": "Available", "nodeName": nodes[0]}}
            then = ClusterChange((), (patch(RESERVATION, raw, body, follows=True),))
            change = each.change + then
            advisor.propose(each._replace(text=f"{of}: {each.text}", change=change, parts=()))


def preemption_details(snapshot: ClusterSnapshot, nomination: Nomination) -> list[str]:
    """The pods that it would preempt, and the budgets that this violates."""
    if nomination.reserve_pods:
        return list(_preempted_reservations(snapshot, nomination))
    victims = victims_of(snapshot, nomination)
    if victims:
        whom = f"{pods_text(victims)} of lower priority"
        found = [f"it can preempt {whom} on {nomination.node}, and will if it is tried"]
    else:
        ending = terminating_on(snapshot, nomination.node or "")
        whom = f"{pods_text(ending)} of lower priority"
        terminates = plural(len(ending), "terminates", "terminate")
        where = f", where {whom} {terminates} already" if ending else ""
        found = [f"{nomination.node} is nominated for it if it is tried{where}"]
    found += budget_violations(snapshot, victims)
    return found


def _preempted_reservations(snapshot: ClusterSnapshot, nomination: Nomination) -> Iterator[str]:
    """The reservations that it, or another one of its job, would preempt."""
    known = snapshot.cluster.reservations.known
    for pod, row, victims in nomination.reserve_pods:
        names = sorted(known[uid].name for uid in victims if uid in known)
        if names:
            who = "it" if len(nomination.reserve_pods) == 1 else f"reservation {pod.name}"
            node = snapshot.cluster.nodes.name(row)
            yield f"{who} can preempt reservation {few(names)} on {node}, and will if it is tried"


def own_waiting(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """The summary for a pod whose own reservation or hold waits for capacity on its node."""
    for own in waiting_for(snapshot, pod):
        entry = own.entry
        assert entry is not None
        kind = kind_text(kind_of_holder(snapshot, own))
        # It is of no use before all of its capacity is free, however little the pod requests.
        slots = snapshot.cluster.nodes.slots
        short_of = snapshot.cluster.reservations.waiting.shortage(own)
        missing = {slot: lack for slot, lack in short_of.items() if slots.name(slot)}
        if missing:
            node, short = snapshot.cluster.nodes.name(entry.row), amounts_text(snapshot, missing)
            return f"It waits for its own {kind} {own.name} on {node}, which is short of {short}."
    return ""


def note_holders(
    snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, report: Report
) -> None:
    """Who keeps capacity on the nodes that are closest to being eligible."""
    short = shortages(snapshot, pod)
    rows = [
        row_of(snapshot, name)
        for name, rejection in placing.rejections.items()
        if rejection.plugin in _KEPT_BY_RESERVATIONS or RESERVED in rejection.texts
    ]
    rows.sort(key=lambda row: (float(short[row]), snapshot.cluster.nodes.name(row)))
    held = [
        row
        for row in rows
        if any(True for _ in snapshot.cluster.ledger.reservations.on(row))
        or plans_on(snapshot, pod, row)
    ]
    report.holders = holders_on(snapshot, pod, held[:_HOLDERS])
    report.details += [holder_text(each, snapshot.now) for each in report.holders[:_HOLDERS]]
    report.details += awaited_details(snapshot, pod, rows)
    report.details += _waiting_in_its_job(snapshot, pod)


def awaited_details(snapshot: ClusterSnapshot, pod: PodRecord, rows: Iterable[int]) -> list[str]:
    """The pods that terminate on one of these rows for others than the pod, and what it is short of
    once these have started."""
    subject, nodes = Subject.of(pod), {snapshot.cluster.nodes.name(row): row for row in rows}
    found: list[str] = []
    for each in awaited_terminations(snapshot, subject):
        if each.node not in nodes or len(found) == _HOLDERS:
            continue
        with preemptors_started(snapshot, [each]):
            then = subject.record(snapshot)
            short = missing_on(snapshot, then, nodes[each.node]) if then is not None else {}
            text = amounts_text(snapshot, short)
        found.append(f"{each.text(snapshot.now)}{f'; then it is short of {text}' if text else ''}")
    return found


def _waiting_in_its_job(snapshot: ClusterSnapshot, pod: PodRecord) -> list[str]:
    """The waiting reservations and holds of the pod, besides the one in the summary, and of the others
    of its job."""
    job = snapshot.cluster.jobs.of(pod)
    members = job.waiting() if job is not None and not job.is_ready else [pod]
    said = own_waiting(snapshot, pod)
    found = []
    for member in members:
        for own in waiting_for(snapshot, member):
            entry = own.entry
            assert entry is not None
            if member is pod and f" {own.name} " in said:
                continue
            lacking = ", ".join(snapshot.cluster.reservations.lacking(own))
            node = snapshot.cluster.nodes.name(entry.row)
            kind = kind_text(kind_of_holder(snapshot, own))
            whose = "its own" if member is pod else f"of its job, {member.name}'s"
            state = f"short of {lacking}" if lacking else "which has its capacity"
            found.append(f"{whose} {kind} {own.name} waits on {node}, {state}")
    return found


def _rejected(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    message: str,
    advisor: Advisor,
    report: Report,
) -> None:
    """The pod is rejected whatever the node: claims that do not exist or are not bound, annotations and
    requests that are invalid."""
    report.details += consider_invalid_requests(snapshot, subject, pod, message, advisor)
    report.details += consider_missing_claims(snapshot, subject, pod, message, advisor)
    for annotation in _ANNOTATION.findall(message):
        if annotation == names.RESERVATION_AFFINITY:
            continue
        objects = metadata_changes(snapshot, subject, {"annotations": {annotation: None}})
        advisor.propose(
            repair(f"fix or remove its annotation {annotation}", "RemoveAnnotation", objects)
        )
    report.details += consider_missing_volumes(snapshot, subject, pod, message, advisor)


def _ignored(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, advisor: Advisor, report: Report
) -> None:
    if pod.cls.labels.get(names.RESERVATION_IGNORED) != "true":
        return
    objects = metadata_changes(snapshot, subject, {"labels": {names.RESERVATION_IGNORED: None}})
    text = f"remove the label {names.RESERVATION_IGNORED}, so that it may use reservations"
    if advisor.propose(repair(text, "RemoveLabel", objects)):
        report.details.append(f"it ignores reservations: label {names.RESERVATION_IGNORED}=true")


def _note_unknown_end(
    snapshot: ClusterSnapshot,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
    report: Report,
) -> None:
    """Says so if nothing tells when capacity becomes free."""
    short = shortages(snapshot, pod)
    rows = [
        row_of(snapshot, name)
        for name, rejection in placing.rejections.items()
        if rejection.plugin == NODE_RESOURCES_FIT
    ]
    rows = sorted(rows, key=lambda row: float(short[row]))[:_LOOKED_AT]
    asked = dict(pod.cls.requests)
    table = snapshot.cluster.nodes
    could = [
        row
        for row in rows
        if missing_on(snapshot, pod, row)
        and all(table.allocatable.item(slot, row) >= amount for slot, amount in asked.items())
    ]
    waits = any("Wait" in each.change["actions"] for each in advisor.advice)
    if could and not waits and not rows_freed_first(snapshot, pod, could, 1):
        overdue = list(_without_end(snapshot, could))[:_HOLDERS]
        there = [each for row in could for each in snapshot.cluster.ledger.pods.get(row, {}).values()]
        others = [each for each in there if not each.cls.is_daemon and not _is_sibling(pod, each)]
        if there and not others and not overdue:
            return  # it does not fit beside its own siblings: nothing has to end
        unknown = "too few pods there have run-time estimates"
        why = "; ".join(overdue) or (unknown if others else "nothing there is known to end")
        report.details.append(f"when enough capacity becomes free is unknown: {why}")


def _is_sibling(pod: PodRecord, other: PodRecord) -> bool:
    """Whether both have the same controller, or are of one job."""
    if pod.job is not None and pod.job == other.job:
        return True
    own = {each.uid for each in pod.cls.pod.metadata.owner_references if each.controller}
    return any(each.controller and each.uid in own for each in other.cls.pod.metadata.owner_references)


def _without_end(snapshot: ClusterSnapshot, rows: list[int]) -> Iterator[str]:
    """The pods on these rows that should have ended, or whose run-time estimates are ignored."""
    for row in rows:
        for pod in snapshot.cluster.ledger.pods.get(row, {}).values():
            if pod.reservation is None and (text := overrun_text(snapshot, pod)):
                yield f"{pod.namespace}/{pod.name} {text}"
            elif text := ignored_estimate(snapshot, pod):
                yield f"{pod.namespace}/{pod.name}: its {text}"
