"""Explains a pod group: which members have a node, and why the others do not."""

from holdfast.api.names import GROUP_NAME_ANNOTATION, POD_GROUP_LABEL
from holdfast.api.plurals import number_of
from holdfast.api.pod_groups import group_state
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.gang_repairs import first_of_each_class
from holdfast.explanation.facts.own_starts import following_text, gang_victims, taken_text
from holdfast.explanation.facts.reclaimed_capacity import reclaiming
from holdfast.explanation.phrases import NO_ALLOCATE, job_text, pod_text
from holdfast.explanation.repairs.gang_changes import preemption_text, same_names, waiting_members
from holdfast.explanation.report import Report
from holdfast.explanation.subjects.blocked_members import explain_blocked_members, same_domain
from holdfast.explanation.subjects.gang_members import (
    consider_job,
    consider_partners,
    consider_priority_class,
    consider_queue_of_gang,
)
from holdfast.explanation.subjects.min_resources import (
    admission_advice,
    consider_min_resources,
    lacking_min_resources,
)
from holdfast.explanation.subjects.pods import condition_message, explain_pod
from holdfast.explanation.subjects.queue_limits import (
    needed_members,
    not_admitted,
    over_capability,
    too_large,
)
from holdfast.explanation.verdicts import GangGoal, Subject, attempt
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.controllers.pod_groups import phase_of
from holdfast.scheduler.jobs import Job, JobName
from holdfast.scheduler.jobs.job import CORE
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot

_MOST_DOMAINS = 20
_MOST_CLASSES = 3
"""How many kinds of members that the gang does not need are explained, until one does not fit."""


def explain_group(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    metadata = raw["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace") or ""
    jobs, family = snapshot.cluster.jobs, str(raw.get("apiVersion") or "").partition("/")[0]
    if family == CORE:
        phase, job = group_state(raw), jobs.known.get(JobName(CORE, namespace, name))
    else:
        job = jobs.get(namespace, name)
        known = phase_of(job) if job is not None else "Pending"
        phase = (raw.get("status") or {}).get("phase") or known
    title = f"PodGroup {namespace}/{name}" if job is None else job_text(job)
    report = Report(title, str(phase), "")
    if job is None:
        report.summary = "It is invalid for the scheduler."
        return report
    report.details += same_names(snapshot, job)
    report.members = [_member(snapshot, pod) for pod in job.members.values()]
    done = f", {number_of(len(job.done), 'has', 'have')} completed" if job.done else ""
    members = number_of(len(job.members), "member has", "members have")
    placed = f"{len(job.placed())} of {members} a node{done}"
    needed = number_of(job.min_member, "is", "are")
    report.summary = f"{placed}, {needed} needed. {_state(snapshot, job, report)}"
    if job.topology_key and job.waiting():
        report.details += [each for each in _domains(snapshot, job) if each not in report.details]
    return report


def _domains(snapshot: ClusterSnapshot, job: Job) -> list[str]:
    """How many members fit in each topology domain; the first of many."""
    gangs, key = snapshot.scheduler.gangs, job.topology_key
    if error := gangs.placements.domain_error(job):
        return [f"{same_domain(key)}, but {error}"]
    placements = gangs.placements.of(job)
    if not placements:
        return [f"{same_domain(key)}, but no node has this label"]
    found = [same_domain(key)]
    for placement in placements[:_MOST_DOMAINS]:
        with gangs.attempts.attempt_within(job, placement.rows) as tried:
            fit, of = len(tried.placed), len(tried.members)
        members = number_of(of, "pending member fits", "pending members fit")
        found.append(f"{key}={placement.domain}: {fit} of {members}")
    if len(placements) > _MOST_DOMAINS:
        found.append(f"and {number_of(len(placements) - _MOST_DOMAINS, 'more value')} of {key}")
    return found


def _state(snapshot: ClusterSnapshot, job: Job, report: Report) -> str:
    waiting = waiting_members(snapshot, job)
    if job.is_ready:
        return f"It is running. {_further_members(snapshot, job, waiting, report)}".rstrip()
    if not waiting:
        if lacking := lacking_min_resources(snapshot, job):
            report.details += [each.text for each in lacking]
            report.advice = admission_advice(snapshot, job)
        if not job.members:
            report.details.append(f"no pod belongs to it; pods join it by {_joined_by(job)}")
        return "It has too few pods."
    if not snapshot.scheduler.allocates:
        return f"{NO_ALLOCATE} (see --config)."
    with attempt(snapshot, job) as tried:
        is_ready, count = tried.is_ready, len(tried.placed)
    if is_ready:
        if takers := taken_text(snapshot, GangGoal(job.name)):
            return f"{_more_fit(count)} now, but {takers}."
        return f"{_more_fit(count)} now; it is queued."
    more = f"{_more_fit(count)} now"
    if victims := gang_victims(snapshot, job):
        return f"{more}; {preemption_text(victims)}."
    found = reclaiming(snapshot, waiting[0])
    report.details += found.details
    if found.text:
        return f"{more}; {found.text}."
    if following := following_text(snapshot, GangGoal(job.name)):
        return f"{more}; {following}."
    subject = Subject.of(waiting[0])
    advisor = Advisor(snapshot, subject, GangGoal(job.name))
    text = _hindrance(snapshot, subject, job, count, advisor, report)
    report.advice = advisor.advice
    return text


def _further_members(
    snapshot: ClusterSnapshot, job: Job, waiting: list[PodRecord], report: Report
) -> str:
    """Why a member that the gang does not need is pending: the first of those that do not fit now."""
    pods = [pod for pod in waiting if pod.job == job.name and pod.reservation is None]
    found = []
    for pod in first_of_each_class(pods)[:_MOST_CLASSES]:
        found.append((pod, explain_pod(snapshot, Subject.of(pod).raw(snapshot))))
        if not found[-1][1].ranked:
            break
    if not found:
        return ""
    pod, about = found[-1]
    report.details += [f"what follows is about {pod_text(pod)}", *about.details]
    report.advice, report.holders = about.advice, about.holders
    report.nodes, report.would_say = about.nodes, about.would_say
    members = number_of(len(pods), "further member is", "further members are")
    return f"{members} pending. {pod_text(pod)}: {about.summary}"


def _hindrance(
    snapshot: ClusterSnapshot, subject: Subject, job: Job, count: int, advisor: Advisor, report: Report
) -> str:
    """Why it does not start, if `count` more members fit."""
    consider_priority_class(snapshot, job, advisor, report)
    if missing := job.lacks(job.waiting()):
        consider_job(snapshot, subject, job, advisor, report)
        return f"It has too few pods: {missing}."
    consider_partners(snapshot, job, advisor, report)
    needed = needed_members(job)
    if (full := over_capability(snapshot, needed)) is not None:
        text, never = full
        consider_queue_of_gang(snapshot, subject, job, advisor, report)
        return f"It can never start: {text}." if never else f"It waits for its queue: {text}."
    if needed and (refusal := snapshot.cluster.jobs.queue_limits.admission_error(needed[0])):
        consider_queue_of_gang(snapshot, subject, job, advisor, report)
        return not_admitted(snapshot, needed[0], refusal)
    if lacking := lacking_min_resources(snapshot, job):
        report.details += [each.text for each in lacking[1:]]
        consider_min_resources(snapshot, job, advisor)
        return f"It waits for its {lacking[0].text}."
    blocked = explain_blocked_members(snapshot, job, advisor, report)
    if not blocked.are_counted:
        would_fit = f"{blocked.fitting} more" if blocked.fitting else "None"
        return f"{would_fit} would fit. {blocked.text}"
    if reason := too_large(snapshot, job):
        return f"{_only(count)}, and {reason}. {blocked.text}".rstrip()
    return f"{_only(count)}. {blocked.text}".rstrip()


def _more_fit(count: int) -> str:
    return number_of(count, "more fits", "more fit") if count else "None fits"


def _only(count: int) -> str:
    return f"Only {_more_fit(count)} now" if count else "None fits now"


def _joined_by(job: Job) -> str:
    """How a pod names the group, by the group's API."""
    name = job.name.name
    if job.name.family == CORE:
        return f"spec.schedulingGroup.podGroupName: {name}"
    if job.group is not None and job.group.api_version.startswith("scheduling.sigs.k8s.io/"):
        return f"the label {POD_GROUP_LABEL}={name}"
    return f"the annotation {GROUP_NAME_ANNOTATION}={name}"


def _member(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    if pod.row >= 0:
        return f"{pod.ref} is on {snapshot.cluster.nodes.name(pod.row)}"
    if pod.reservation is None:
        raw, condition = snapshot.find(POD, pod.name, pod.namespace), "PodScheduled"
    else:
        raw, condition = snapshot.find(RESERVATION, pod.name), "Scheduled"
    said = condition_message(raw, condition) if raw is not None else ""
    return f"{pod.ref} is pending: {said}" if said else f"{pod.ref} is pending"
