"""Explains a pod: why it is pending, or why it runs where it does."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.api.names import MIRROR_POD_ANNOTATION
from holdfast.api.similar_names import did_you_mean
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.misspellings import served_schedulers
from holdfast.explanation.advice.overdue_pods import is_overdue, overdue_text, removal
from holdfast.explanation.advice.reclaim_repairs import consider_reclaim
from holdfast.explanation.advice.repair_search import consider_nodes
from holdfast.explanation.advice.waits import consider_wait_on
from holdfast.explanation.facts.awaited_terminations import (
    awaited_terminations,
    start_after_terminations,
)
from holdfast.explanation.facts.capacity import missing_node
from holdfast.explanation.facts.expected_ends import deletion_deadline, ignored_estimate, overrun_text
from holdfast.explanation.facts.holders import kind_of_holder, kind_text
from holdfast.explanation.facts.ignored_annotations import ignored_annotations
from holdfast.explanation.facts.matching_reservations import matching_reservations
from holdfast.explanation.facts.other_pods import siblings
from holdfast.explanation.facts.own_starts import (
    NO_START,
    following_text,
    lost_text,
    own_victims,
    taken_text,
)
from holdfast.explanation.facts.reclaimed_capacity import reclaiming
from holdfast.explanation.facts.requested_reservations import (
    awaiting_reservations,
    awaiting_text,
    request_text,
    unknown_capacity,
)
from holdfast.explanation.facts.running_pods import note_resize, note_waiting_containers
from holdfast.explanation.phrases import ENDS_EARLY, NO_ALLOCATE, in_time, job_text, pods_text
from holdfast.explanation.repairs.details import details_of, terminating_on
from holdfast.explanation.repairs.gang_changes import (
    waiting_members,
)
from holdfast.explanation.repairs.mistaken_units import corrected_units
from holdfast.explanation.repairs.repair import gates_text, remove_gates, template_without_gates
from holdfast.explanation.report import Report
from holdfast.explanation.subjects.gang_members import explain_beside_gates, explain_member
from holdfast.explanation.subjects.missing_nodes import (
    consider_other_node,
    named_node,
)
from holdfast.explanation.subjects.no_node import (
    explain_no_node,
    explain_unserved,
    nothing_helps,
    takers_details,
)
from holdfast.explanation.subjects.plain_reasons import no_node_summary, plain_on
from holdfast.explanation.subjects.queue_changes import consider_queue, consider_queue_after
from holdfast.explanation.subjects.queue_limits import not_admitted, queue_details
from holdfast.explanation.verdicts import (
    NodeVerdicts,
    Subject,
    expected_message,
    place,
    preempts,
    rank,
    starts_on,
)
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.config.plugin_sets import CALENDAR_FILTER, NODE_RESOURCES_FIT
from holdfast.scheduler.framework.diagnosis import FITS, NodeRejection
from holdfast.scheduler.framework.placements import TopologyPlacement
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_changes import applied, patch, patch_status
from holdfast.snapshot.cluster_snapshot import POD, RESOURCE_CLAIM, ClusterSnapshot

_TERMINATIONS = 3


def explain_pod(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    metadata = raw["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace") or ""
    status, spec = raw.get("status") or {}, raw.get("spec") or {}
    report = Report(f"Pod {namespace}/{name}", str(status.get("phase") or "Pending"), "")
    report.node = str(spec.get("nodeName") or "")
    report.told = condition_message(raw, "PodScheduled")
    pod = snapshot.cluster.pod(namespace, name)
    if pod is None:
        report.summary = _not_known(raw)
    elif report.node:
        _placed(snapshot, pod, report)
        if missing_node(snapshot, report.node) is None:
            note_waiting_containers(raw, report)
            note_resize(snapshot, pod, raw, report)
    else:
        explain_pending(snapshot, pod, raw, report)
    return report


def _not_known(raw: Raw) -> str:
    status, node = raw.get("status") or {}, (raw.get("spec") or {}).get("nodeName")
    phase = status.get("phase")
    if phase in ("Succeeded", "Failed"):
        where = f", on {node}" if node else ""
        state = ", ".join(filter(None, (phase, status.get("reason"))))
        why = f": {status['message']}" if status.get("message") else ""
        return f"It has ended ({state}){where}{why}".rstrip(".") + "."
    return "It is invalid for the scheduler; see its condition."


def _placed(snapshot: ClusterSnapshot, pod: PodRecord, report: Report) -> None:
    """Ranks the nodes as if the pod were not bound yet."""
    cluster = snapshot.cluster
    reservation = cluster.reservations.known.get(pod.reservation_uid)
    report.reservation = reservation.name if reservation is not None else ""
    through = ""
    if reservation is not None:
        through = f", through the {kind_text(kind_of_holder(snapshot, reservation))} {reservation.name}"
    stopping = "; it is being deleted" if pod.cls.terminating else ""
    report.summary = f"It is on {report.node}{through}{stopping}."
    if missing_node(snapshot, report.node) is not None:
        report.summary = f"It is assigned to {report.node}{through}, which does not exist{stopping}."
        raw = Subject.of(pod).raw(snapshot)
        named = named_node(snapshot, raw)
        if named is not None and named.name == report.node:
            report.details.append(named.text(snapshot))
            report.advice = list(consider_other_node(snapshot, named, raw["metadata"], 1, [raw]))
            return
        report.details.append(
            "no scheduler looks for another node once spec.nodeName is set: delete the pod, and create "
            "it without nodeName if its controller does not"
        )
        if near := missing_node(snapshot, report.node):
            report.details.append(f"its spec.nodeName is {report.node}{near}")
        return
    if MIRROR_POD_ANNOTATION in pod.cls.pod.metadata.annotations:
        report.details.append(
            f"it is a static pod: the kubelet of {report.node} runs it, and no scheduler places it"
        )
        return
    if overrun := overrun_text(snapshot, pod):
        report.details.append(f"it {overrun}")
    if ignored := ignored_estimate(snapshot, pod):
        report.details.append(f"its {ignored}")
    with _unbound(snapshot, pod) as pod:
        placing = place(snapshot.scheduler, pod)
        report.ranked = rank(snapshot.scheduler, placing)
        own = placing.rejections.pop(report.node, FITS)
        if own.texts:
            report.details.append(_own_node_text(snapshot, pod, report.node, own))
        report.nodes = placing.reasons
        report.reservations = matching_reservations(cluster, placing.column)
    report.details += ignored_annotations(pod.cls)


@contextmanager
def _unbound(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[PodRecord]:
    """Takes a pod off its node until the end of the block. The class of a bound pod does not have its
    ResourceClaims: one with claims is tried as a new pod, for which the claims that only it uses are
    allocated again."""
    cluster, subject = snapshot.cluster, Subject.of(pod)
    claims = cluster.claims.claims_of(pod) if not pod.reservation_uid else []
    if not claims:
        with cluster.ledger.transaction():
            cluster.ledger.remove(pod)
            yield pod
        return
    changes = [patch(POD, subject.raw(snapshot), {"spec": {"nodeName": None}})]
    for claim in claims:
        raw = snapshot.find(RESOURCE_CLAIM, claim.metadata.name, claim.metadata.namespace)
        consumers = ((raw or {}).get("status") or {}).get("reservedFor") or ()
        others = [each for each in consumers if each.get("uid") != pod.uid]
        if raw is not None:
            unused = {} if others else {"allocation": None, "devices": None}
            changes.append(patch_status(RESOURCE_CLAIM, raw, {"reservedFor": others, **unused}))
    with applied(snapshot, changes):
        yield subject.record(snapshot) or pod


def _own_node_text(
    snapshot: ClusterSnapshot, pod: PodRecord, node: str, rejection: NodeRejection
) -> str:
    """Why the pod is on a node that would be rejected for it now."""
    held = (NODE_RESOURCES_FIT, CALENDAR_FILTER)
    estimate = snapshot.cluster.jobs.estimates.of(pod)
    if rejection.plugin in held and estimate is not None:
        return f"it was backfilled on {node}: it should end before others need what is kept for them"
    reasons = ", ".join(plain_on(snapshot, pod, node, text) for text in rejection.texts)
    return f"{node} would be rejected for it now: {reasons}"


def explain_pending(snapshot: ClusterSnapshot, pod: PodRecord, raw: Raw, report: Report) -> None:
    scheduler, subject = snapshot.scheduler, Subject.of(pod)
    advisor = Advisor(snapshot, subject)
    report.details += ignored_annotations(pod.cls)
    if ignored := ignored_estimate(snapshot, pod):
        report.details.append(f"its {ignored}")
    report.details += snapshot.cluster.jobs.queues.missing_parents(snapshot.cluster.jobs.queues.of(pod))
    job = snapshot.cluster.jobs.of(pod)
    domain = _own_domain(snapshot, job) if job is not None and job.topology_key else None
    with scheduler.search.within(domain.rows if domain is not None else None):
        placing = place(scheduler, pod)
    report.would_say, report.nodes = expected_message(snapshot, pod, placing), placing.reasons
    report.ranked = rank(scheduler, placing)
    report.reservations = matching_reservations(snapshot.cluster, placing.column)
    if domain is not None and job is not None:
        where = f"{job.topology_key}={domain.domain}"
        report.details.append(f"only nodes with {where} are considered: {job_text(job)} is there")
    nominated = str((raw.get("status") or {}).get("nominatedNodeName") or "")
    if nominated and scheduler.cluster.nodes.row(nominated) is None:
        report.details.append(f"{nominated} was nominated for it, but no longer exists")
        nominated = ""
    terminating = terminating_on(snapshot, nominated) if nominated else []
    if pod.deletion_pending:
        report.summary = "It is being deleted and will not be scheduled."
        return
    if scheduler.profile_of(pod.scheduler) is None:
        report.summary = (
            f"Its schedulerName is {pod.scheduler}, but this configuration serves "
            f"{', '.join(served_schedulers(scheduler))} (see --config)"
            f"{did_you_mean(pod.scheduler, served_schedulers(scheduler)) or '.'}"
        )
        report.details.append(
            f"only a scheduler that serves {pod.scheduler} places it; whether one runs is not known"
        )
        explain_unserved(snapshot, subject, pod, placing, advisor, report)
        report.advice = advisor.advice
        return
    if not scheduler.allocates:
        report.summary = f"{NO_ALLOCATE} (see --config)."
        report.details += details_of(snapshot, pod, placing) if placing.message else []
        return
    refusal = snapshot.cluster.jobs.queue_limits.admission_error(pod)
    if pod.gates:
        _gated(snapshot, subject, pod, placing, advisor, report)
        if placing.message:
            report.details += details_of(snapshot, pod, placing)
    elif terminating and placing.message and not starts_on(snapshot, subject):
        _nominated(snapshot, nominated, terminating, advisor, report)
    elif job is not None:
        if explain_member(snapshot, job, pod, placing, advisor, report):
            report.summary = request_text(snapshot, pod) or report.summary
    elif refusal:
        report.summary = not_admitted(snapshot, pod, refusal)
        report.details += queue_details(snapshot, [pod])
        if victims := own_victims(snapshot, subject):
            whom = f"{pods_text(victims)} of lower priority in its queue"
            report.summary += f" It can preempt {whom}, and will if it is tried."
        elif following := following_text(snapshot, subject):
            report.summary += f" {following[0].upper()}{following[1:]}."
        elif not _explain_reclaim(snapshot, pod, advisor, report):
            consider_queue(snapshot, subject, [pod], advisor)
            if placing.message and not preempts(scheduler, pod, placing):
                besides = no_node_summary(snapshot, placing, pod)
                report.summary += f" Even if it were admitted: {besides[0].lower()}{besides[1:]}"
                report.details += details_of(snapshot, pod, placing)
            report.details += takers_details(advisor)
            if not (advisor.advice or advisor.takers):
                report.details.append(nothing_helps(report))
    elif placing.message:
        report.summary = no_node_summary(snapshot, placing, pod)
        evicts = preempts(scheduler, pod, placing) and not lost_text(snapshot, subject)
        following = "" if evicts else following_text(snapshot, subject)
        if not evicts and not following and _explain_reclaim(snapshot, pod, advisor, report):
            report.details += details_of(snapshot, pod, placing)
        elif following := following or _after_terminations(snapshot, subject):
            report.summary += f" {following[0].upper()}{following[1:]}."
            report.details += details_of(snapshot, pod, placing)
        else:
            explain_no_node(snapshot, pod, placing, advisor, report)
    else:
        _fitting(snapshot, pod, placing, report)
    report.advice = advisor.advice


def _explain_reclaim(
    snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor, report: Report
) -> bool:
    """Says what the pod reclaims from other queues, or why it does not and what would change that;
    returns whether it does."""
    found = reclaiming(snapshot, pod)
    if found.text:
        report.summary += f" {found.text[0].upper()}{found.text[1:]}."
    else:
        consider_reclaim(advisor, pod, found.protected)
    report.details += found.details
    return bool(found.text)


def _after_terminations(snapshot: ClusterSnapshot, subject: Subject) -> str:
    """`once default/low has ended (in 30s) and default/high has started, it preempts default/high on
    n1`, if it evicts pods then; empty if it does not."""
    awaited = awaited_terminations(snapshot, subject)
    start = start_after_terminations(snapshot, subject, awaited) if awaited else NO_START
    if not start.evicts:
        return ""
    first = " and ".join(each.start_text(snapshot.now) for each in awaited[:_TERMINATIONS])
    return f"once {first}, {start.text}"


def _own_domain(snapshot: ClusterSnapshot, job: Job) -> TopologyPlacement | None:
    """The topology domain of the job's members that are on nodes; None if it may be placed in any."""
    placements = snapshot.scheduler.gangs.placements.of(job)
    return placements[0] if placements and job.placed() else None


def _gated(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
    report: Report,
) -> None:
    report.summary = "It is blocked by scheduling gates."
    report.details.append(f"scheduling gates to remove: {gates_text([pod])}")
    job = snapshot.cluster.jobs.of(pod)
    others = waiting_members(snapshot, job) if job is not None and not job.is_ready else []
    needed = [each for each in others if each.gates and each is not pod]
    replicas = [each.record(snapshot) for each in siblings(snapshot, subject)]
    gated = [pod, *(each for each in replicas if each is not None and each.gates)]
    template = template_without_gates(snapshot, subject, pod)
    options = [*([template] if template is not None else []), remove_gates(snapshot, gated)]
    if [each for each in options if advisor.propose(each)]:
        return
    gates = remove_gates(snapshot, [*gated, *needed])
    if advisor.propose(gates):
        return
    if job is None and snapshot.cluster.jobs.queue_limits.admission_error(pod):
        report.details += queue_details(snapshot, [pod])
        units = list(corrected_units(snapshot, subject, pod))
        for before in (*((template or gates, each) for each in units), (template or gates,)):
            if not advisor.advice and not advisor.propose(*before):
                consider_queue_after(snapshot, subject, [pod], before, advisor)
        return
    if placing.message:
        with advisor.about(subject, template or gates):
            consider_nodes(advisor, placing)
    if job is not None and not advisor.advice:
        report.summary += explain_beside_gates(snapshot, job, gates, advisor)


def _nominated(
    snapshot: ClusterSnapshot, node: str, victims: list[PodRecord], advisor: Advisor, report: Report
) -> None:
    """A node is nominated: which pods it waits for. If none terminates there, the scheduler tries the
    pod again, as if no node were nominated: the eviction may have been refused."""
    consider_wait_on(advisor, node)
    report.summary = f"{node} is nominated for it; it waits until pods there have terminated."
    for victim in victims:
        raw = snapshot.find(POD, victim.name, victim.namespace)
        deadline = deletion_deadline(raw)
        if is_overdue(snapshot, victim):
            late = overdue_text(snapshot, victim)
            report.details.append(f"{victim.namespace}/{victim.name} on {node} {late}")
            advisor.propose(removal(snapshot, [victim], f" on {node}"))
            continue
        when = f", grace period ends {in_time(deadline, snapshot.now)}" if deadline is not None else ""
        report.details.append(f"terminating on {node}: {victim.namespace}/{victim.name}{when}")


def _fitting(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, report: Report) -> None:
    """The pod fits a node."""
    if requested := request_text(snapshot, pod):
        report.summary = requested
        return
    node = report.ranked[0].node if report.ranked else placing.backfilled_on or pod.nominated
    best = f": {node}" if node else ""
    early = ENDS_EARLY if placing.backfilled_on else ""
    report.summary = f"It fits now{best}{early}. It is queued, or the scheduler is not running."
    if takers := taken_text(snapshot, Subject.of(pod)):
        report.summary = f"It would fit now{best}, but {takers}."
    if report.told.startswith("0/") and (others := awaiting_reservations(snapshot)):
        report.summary = f"It would fit now{best}, but {awaiting_text(others)}."
        report.details += unknown_capacity(snapshot, others)
    elif report.told.startswith("0/") and not early:
        report.details.append(
            "its condition has reasons that this configuration does not give; if they persist, the "
            "scheduler runs with another configuration: pass it with --config"
        )


def condition_message(raw: Raw, type: str) -> str:
    """The message of the condition of that type, if it is not true."""
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == type and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "")
    return ""
