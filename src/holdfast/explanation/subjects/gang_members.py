"""Explains a pending member of a gang, a pod or a reservation: whether it starts now together with the
others, which of them keep it from starting, and what would help.
"""

from holdfast.api.names import GANG_GROUPS
from holdfast.api.plurals import number_of
from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.gang_repairs import consider_all_smaller, consider_steps
from holdfast.explanation.advice.largest_requests import improve_members
from holdfast.explanation.facts.own_starts import (
    following_text,
    gang_victims,
    member_evictions,
    taken_text,
)
from holdfast.explanation.facts.reclaimed_capacity import (
    Reclaiming,
    not_for_further_members,
    reclaiming,
)
from holdfast.explanation.phrases import ENDS_EARLY, job_text, pods_text
from holdfast.explanation.repairs.details import details_of
from holdfast.explanation.repairs.gang_changes import (
    create_group,
    create_members,
    lacking_pods,
    missing_partners,
    misspelt_priority_class,
    preemption_text,
    same_names,
    without_partners,
    without_task,
)
from holdfast.explanation.repairs.repair import Repair, metadata_changes, repair, spec_changes
from holdfast.explanation.report import Report
from holdfast.explanation.subjects.blocked_members import (
    consider_fewer,
    explain_beside,
    explain_blocked_members,
    note_nothing_helps,
    uncounted_members,
)
from holdfast.explanation.subjects.min_resources import (
    consider_min_resources,
    lacking_min_resources,
    min_resources_repairs,
)
from holdfast.explanation.subjects.no_node import explain_no_node
from holdfast.explanation.subjects.plain_reasons import no_node_summary
from holdfast.explanation.subjects.queue_changes import consider_queue, queue_repairs
from holdfast.explanation.subjects.queue_limits import (
    job_over_capability,
    needed_members,
    not_admitted,
    queue_details,
    too_large,
)
from holdfast.explanation.verdicts import NodeVerdicts, Subject, attempt, place
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import GangName, PodRecord
from holdfast.scheduler.jobs import Job, JobName
from holdfast.scheduler.jobs.job import CORE, KEYS
from holdfast.snapshot.cluster_changes import applied
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


def explain_member(
    snapshot: ClusterSnapshot,
    job: Job,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
    report: Report,
) -> bool:
    """Explains a member that is not gated, of which `placing` has the verdicts by itself. Returns
    whether it starts now."""
    subject, limits = Subject.of(pod), snapshot.cluster.jobs.queue_limits
    report.details += same_names(snapshot, job)
    with attempt(snapshot, job) as tried:
        starts, is_placed = tried.is_ready, any(each is pod for each in tried.placed)
        node = snapshot.cluster.nodes.name(pod.row) if is_placed else ""
    if starts and node:
        rest = "" if job.is_ready else f", together with the rest of {job_text(job)}"
        if takers := taken_text(snapshot, subject):
            report.summary = f"It would fit now: {node}{rest}, but {takers}."
            return True
        early = ENDS_EARLY if placing.backfilled_on else ""
        report.summary = (
            f"It fits now: {node}{rest}{early}. It is queued, or the scheduler is not running."
        )
        return True
    if not job.is_ready and not starts and (victims := gang_victims(snapshot, job)):
        report.summary = (
            "It starts only together with the rest of its job. "
            f"{job_text(job)}: {preemption_text(victims)}."
        )
        return False
    if job.is_ready and (preempts := _preempts_for_further(snapshot, job, pod)):
        report.summary = f"{no_node_summary(snapshot, placing, pod)} {preempts}"
        report.details += details_of(snapshot, pod, placing)
        return False
    found = reclaiming(snapshot, pod) if not job.is_ready and not starts else Reclaiming()
    report.details += found.details
    if found.text:
        report.summary = (
            f"It starts only together with the rest of its job. {job_text(job)}: {found.text}."
        )
        return False
    if following := following_text(snapshot, subject):
        report.summary = f"It does not start now; {following}."
        return False
    consider_priority_class(snapshot, job, advisor, report)
    refusal = limits.admission_error(pod)
    if job.is_ready and not refusal and (why := gang_refusal(snapshot, job)):
        report.summary = f"{job_text(job)} is running, but its further members are not tried: {why}."
        return False
    lacks = job.lacks(job.waiting()) or not job.is_known
    if not job.is_ready and (lacks or not refusal) and (why := gang_refusal(snapshot, job)):
        report.summary = f"It starts only together with the rest of its job: {why}."
        if not job.is_known:
            known = [each.name.name for each in snapshot.cluster.jobs.known.values() if each.is_known]
            near = did_you_mean(job.name.name, [each for each in known if each != job.name.name])
            report.details.append(f"there is no PodGroup {job.name.namespace}/{job.name.name}{near}")
        consider_job(snapshot, subject, job, advisor, report)
    elif refusal:
        report.summary = not_admitted(snapshot, pod, refusal)
        report.details += queue_details(snapshot, [pod] if job.is_ready else needed_members(job, pod))
        if job.is_ready:
            consider_queue(snapshot, subject, [pod], advisor)
        else:
            consider_queue_of_gang(snapshot, subject, job, advisor, report)
    elif full := job_over_capability(snapshot, job, pod):
        report.summary = f"Its queue does not admit the whole of {job_text(job)}."
        report.details.append(full)
        if placing.message:
            report.details += details_of(snapshot, pod, placing)
        consider_queue_of_gang(snapshot, subject, job, advisor, report)
    elif placing.message:
        explain_no_node(snapshot, pod, placing, advisor, report)
        if job.is_ready:
            report.details += not_for_further_members(snapshot, job, pod)
        _no_node_in_gang(snapshot, job, starts, advisor, report)
    elif starts:
        why = explain_beside(snapshot, job, pod, [], report, advisor)
        without = "" if job.is_ready else f"{job_text(job)} starts without it. "
        report.summary = f"{without}Beside the others: {why}"
        if not advisor.is_harmless:
            consider_steps(snapshot, job, advisor, [])
        if not advisor.is_harmless:
            consider_all_smaller(snapshot, job, advisor, [])
        note_nothing_helps(advisor, report)
    else:
        report.summary = f"It fits, but starts only together with the rest of {job_text(job)}."
        report.details.append(f"see: holdfast explain podgroup {job.name.name} -n {job.name.namespace}")
        if never := too_large(snapshot, job):
            report.details.append(never)
        if blocked := explain_blocked_members(snapshot, job, advisor, report).text:
            report.summary += f" {blocked}"
    return False


def _preempts_for_further(snapshot: ClusterSnapshot, job: Job, pod: PodRecord) -> str:
    """What is preempted for a member beyond those that its gang needs, or for another one before it;
    empty if nothing is."""
    evictions = member_evictions(snapshot, pod) if pod.reservation is None else []
    if not evictions:
        return ""
    first = evictions[0]
    if first.pod is pod:
        text = preemption_text(first.victims)
        return f"{text[0].upper()}{text[1:]}."
    return (
        f"{job_text(job)} preempts for its further members one after the other: "
        f"{pods_text(first.victims)} of lower priority for another one first."
    )


def _no_node_in_gang(
    snapshot: ClusterSnapshot, job: Job, starts: bool, advisor: Advisor, report: Report
) -> None:
    """More facts and advice about a member that fits no node."""
    if starts and not job.is_ready:
        report.details.insert(0, f"{job_text(job)} starts without it")
    elif not starts and not advisor.is_harmless:
        blocked = explain_blocked_members(snapshot, job, advisor, Report("", "", ""))
        if not blocked.are_counted:
            report.summary += f" {blocked.text}"
    if not advisor.is_harmless:
        consider_steps(snapshot, job, advisor, [])
    if not advisor.is_harmless:
        consider_all_smaller(snapshot, job, advisor, [])
    improve_members(advisor)
    if advisor.advice:
        note_nothing_helps(advisor, report)


def explain_beside_gates(snapshot: ClusterSnapshot, job: Job, gates: Repair, advisor: Advisor) -> str:
    """What else keeps a gang with a gated member from starting."""
    with applied(snapshot, gates.change.objects):
        job = snapshot.cluster.jobs.known[job.name]
        why = gang_refusal(snapshot, job)
        missing = create_members(snapshot, job)
        repairs = min_resources_repairs(snapshot, job)
    if missing is not None:
        advisor.propose(gates, missing)
    for before in ([gates], *([gates, each] for each in repairs)):
        if not advisor.advice and (repairs or not why):
            consider_steps(snapshot, job, advisor, before)
    return f" Besides, {why}." if why else ""


def gang_refusal(snapshot: ClusterSnapshot, job: Job) -> str:
    """Why the job cannot start whatever the nodes are like, even if all its members counted; empty if
    it may."""
    _, repairs = uncounted_members(snapshot, job, Report("", "", ""))
    with applied(snapshot, [change for each in repairs for change in each.change.objects]):
        job = snapshot.cluster.jobs.known[job.name]
        gangs, partners = snapshot.scheduler.gangs, snapshot.cluster.jobs.partners(job)
        refusal = gangs.admission.early_refusal(partners, gangs.admission.tried_members(partners))
    if refusal is None:
        return ""
    return refusal.problem.message.replace(str(job.name), job_text(job))


def consider_priority_class(
    snapshot: ClusterSnapshot, job: Job, advisor: Advisor, report: Report
) -> None:
    """A PriorityClass of the PodGroup that does not exist: with another one it may preempt."""
    text, repairs = misspelt_priority_class(snapshot, job)
    if text:
        report.details.append(text)
    for each in repairs:
        advisor.propose(each)


def _why_missing(snapshot: ClusterSnapshot, partner: GangName) -> str:
    """Why there is no partner of this name."""
    if JobName(CORE, *partner) in snapshot.cluster.jobs.known:
        return f"is a PodGroup of {CORE}, which cannot be listed"
    return "does not exist and no pod names it"


def _consider_partners(
    snapshot: ClusterSnapshot, job: Job, advisor: Advisor, report: Report
) -> Repair | None:
    """Gangs that must start together with it and do not exist; returns it without them."""
    report.details += [
        f"{each} {_why_missing(snapshot, each)}: {job_text(job)} starts only together with it "
        f"(annotation {GANG_GROUPS})"
        for each in missing_partners(snapshot, job)
    ]
    fewer = without_partners(snapshot, job)
    if fewer is not None:
        advisor.propose(fewer)
    return fewer


def consider_partners(snapshot: ClusterSnapshot, job: Job, advisor: Advisor, report: Report) -> None:
    """The same, with what else keeps its members off the nodes."""
    fewer = _consider_partners(snapshot, job, advisor, report)
    if fewer is not None and not advisor.advice:
        _consider_besides(snapshot, job, [fewer], advisor, report)


def consider_job(
    snapshot: ClusterSnapshot, subject: Subject, job: Job, advisor: Advisor, report: Report
) -> None:
    """A job that lacks pods or other gangs, or that its queue does not admit."""
    waiting = job.waiting()
    _consider_partners(snapshot, job, advisor, report)
    if job.is_known and job.lacks(waiting):
        if lacking := lacking_pods(job):
            report.details.append(
                f"{job_text(job)} needs {number_of(job.min_member, 'pod')}; {lacking} more must be "
                "created"
            )
        texts, before = uncounted_members(snapshot, job, report)
        report.details += texts
        missing = create_members(snapshot, job)
        if missing is not None:
            advisor.propose(*before, missing)
        fewer = without_task(snapshot, job)
        if fewer is None or not advisor.propose(*before, fewer):
            consider_fewer(snapshot, job, before, advisor)
        if missing is not None and not advisor.advice:
            _consider_besides(snapshot, job, [*before, missing], advisor, report)
    elif not job.is_known:
        if not _consider_similar_group(snapshot, subject, job, advisor):
            created = create_group(job)
            if not advisor.propose(created) and not advisor.advice:
                _consider_besides(snapshot, job, [created], advisor, report)
    elif waiting:
        report.details += [each.text for each in lacking_min_resources(snapshot, job)]
        consider_min_resources(snapshot, job, advisor)
        report.details += queue_details(snapshot, needed_members(job))
        consider_queue_of_gang(snapshot, subject, job, advisor, report)


def _consider_besides(
    snapshot: ClusterSnapshot, job: Job, before: list[Repair], advisor: Advisor, report: Report
) -> None:
    """What else keeps the members off the nodes after changes that the job needs in any case."""
    consider_steps(snapshot, job, advisor, before)
    if not advisor.advice:
        consider_all_smaller(snapshot, job, advisor, before)
    with applied(snapshot, [change for each in before for change in each.change.objects]):
        known = snapshot.cluster.jobs.known[job.name]
        with attempt(snapshot, known) as tried:
            left = tried.left[0] if tried.left and not tried.is_ready else None
            placing = place(snapshot.scheduler, left) if left is not None else None
            if left is not None and placing is not None and placing.message:
                besides = no_node_summary(snapshot, placing, left)
                report.details.append(f"even then: {besides[0].lower()}{besides[1:]}")
                report.details += details_of(snapshot, left, placing)
    note_nothing_helps(advisor, report)


def consider_queue_of_gang(
    snapshot: ClusterSnapshot, subject: Subject, job: Job, advisor: Advisor, report: Report
) -> None:
    """Changes of the queue that does not admit the members that the job needs, if need be together with
    others; smaller requests, or fewer members."""
    own = advisor.goal.record(snapshot) if isinstance(advisor.goal, Subject) else None
    needed = needed_members(job, own)
    consider_queue(snapshot, subject, needed, advisor)
    _, before = uncounted_members(snapshot, job, report)
    for each in queue_repairs(snapshot, subject, needed):
        if not advisor.advice and before:
            advisor.propose(*before, each)
        if not advisor.advice:
            consider_steps(snapshot, job, advisor, [*before, each])
    if not advisor.advice:
        consider_all_smaller(snapshot, job, advisor, [])
        consider_fewer(snapshot, job, [], advisor)


def _consider_similar_group(
    snapshot: ClusterSnapshot, subject: Subject, job: Job, advisor: Advisor
) -> bool:
    """Joining the group of the pod's namespace whose name is most like the one that does not exist;
    whether that helps."""
    wrong, jobs = job.name.name, snapshot.cluster.jobs.known.values()
    known = sorted(
        each.name.name
        for each in jobs
        if each.is_known and each.name.namespace == job.name.namespace and each is not job
    )
    metadata, helps = subject.raw(snapshot)["metadata"], False
    for near in nearest(wrong, known):
        body = {
            field: changed
            for field in ("annotations", "labels")
            if (changed := _named(metadata.get(field), wrong, near))
        }
        if job.name.family == CORE:
            group = {"schedulingGroup": {"podGroupName": near}}
            objects = spec_changes(snapshot, subject, lambda spec: group)  # noqa: B023
        else:
            objects = metadata_changes(snapshot, subject, body)
        if objects:
            text = f"name the PodGroup {near} instead of {wrong}"
            helps = advisor.propose(repair(text, "JoinGroup", objects)) or helps
    return helps


def _named(given: Raw | None, wrong: str, near: str) -> Raw:
    """The annotations or labels by which a pod joins a group, with another name."""
    return {key: near for key in KEYS if (given or {}).get(key) == wrong}
