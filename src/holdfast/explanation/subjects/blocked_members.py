"""A gang that does not start: the members that keep it from starting, why, and what would help.

The scheduler is asked to place the gang (`Scheduler.attempt`): it tries the members in order of
priority and age, without those that are gated or another scheduler's. A member that found no node is
explained beside the members that did.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice, product
from typing import NamedTuple

from holdfast.api.similar_names import did_you_mean
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.gang_repairs import (
    consider_all_smaller,
    consider_steps,
    first_of_each_class,
)
from holdfast.explanation.advice.largest_requests import consider_smaller_members
from holdfast.explanation.advice.misspellings import served_schedulers
from holdfast.explanation.advice.planned_reservations import consider_estimate
from holdfast.explanation.advice.repair_search import consider_nodes
from holdfast.explanation.advice.reservation_repairs import consider_owners
from holdfast.explanation.advice.waits import consider_gang_wait
from holdfast.explanation.facts.near_owners import near_owners
from holdfast.explanation.phrases import job_text, pods_text
from holdfast.explanation.repairs.details import details_of
from holdfast.explanation.repairs.gang_changes import (
    label_keys,
    lower_min_member,
    needing_one,
    set_scheduler,
    topology_repairs,
    waiting_members,
)
from holdfast.explanation.repairs.repair import Repair, gates_text, remove_gates, repair
from holdfast.explanation.report import Report
from holdfast.explanation.subjects.no_node import (
    NOTHING_HELPS,
    explain_no_node,
    note_holders,
    nothing_helps,
    own_waiting,
    takers_details,
)
from holdfast.explanation.subjects.plain_reasons import no_node_summary
from holdfast.explanation.verdicts import (
    NodeVerdicts,
    Subject,
    attempt,
    expected_message,
    place,
    preempts,
    starts_on,
)
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.gang_failures import member_order
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_changes import ObjectChange, applied, patch
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot

_FEWER = 4
"""How many values of minMember are tried."""
_CLASSES = 3
"""Of how many kinds of members changes are considered one by one."""
_MOST_CLASSES = 6
"""Of how many kinds of members changes are combined."""
_OPTIONS = 3
"""How many changes of one member are combined with those of others."""
_COMBINATIONS = 12


class BlockedMembers(NamedTuple):
    text: str
    """Sentences about them; empty if no member is blocked."""
    fitting: int
    """How many of the pending members fit, were all of them counted."""
    are_counted: bool
    """Whether the job needs no member that is gated or another scheduler's."""


def explain_blocked_members(
    snapshot: ClusterSnapshot, job: Job, advisor: Advisor, report: Report
) -> BlockedMembers:
    """Facts and advice about a job that does not start now: members that do not count, and the first
    that has no node beside the others."""
    found, before = uncounted_members(snapshot, job, report)
    if before:
        advisor.propose(*before)
    with applied(snapshot, _objects(before)):
        job = snapshot.cluster.jobs.known[job.name]
        with attempt(snapshot, job) as tried:
            left, count = tried.left, len(tried.placed)
            is_ready, refusal = tried.is_ready, tried.refusal
    if refusal is not None:
        message = refusal.problem.message.replace(str(job.name), job_text(job))
        found.append(f"It is not tried: {message}.")
    elif job.topology_key and not snapshot.scheduler.gangs.placements.of(job):
        near = did_you_mean(job.topology_key, label_keys(snapshot))
        found.append(f"No node has the label {job.topology_key}, which all members need{near or '.'}")
        _consider_topology(snapshot, job, before, advisor)
    elif left and not is_ready:
        found.append(_blocked(snapshot, job, left, before, report, advisor))
        if not advisor.is_harmless:
            consider_steps(snapshot, job, advisor, before)
        if not advisor.is_harmless:
            _consider_each(snapshot, job, before, advisor)
        if not advisor.is_harmless:
            consider_all_smaller(snapshot, job, advisor, before)
        if not advisor.advice:
            consider_fewer(snapshot, job, before, advisor)
            _consider_topology(snapshot, job, before, advisor)
        note_nothing_helps(advisor, report)
    return BlockedMembers(" ".join(found), count, not before)


def _consider_topology(
    snapshot: ClusterSnapshot, job: Job, before: list[Repair], advisor: Advisor
) -> None:
    for each in topology_repairs(snapshot, job):
        if advisor.propose(*before, each) and each.change.actions != ("LabelNode",):
            return


def consider_fewer(snapshot: ClusterSnapshot, job: Job, before: list[Repair], advisor: Advisor) -> None:
    """The highest minMember with which the gang starts, also by preempting or reclaiming: as it is, or
    after these changes."""
    for made in ([], before) if before else ([],):
        with applied(snapshot, _objects(made)):
            known = snapshot.cluster.jobs.known[job.name]
            most = known.ready_members
            for rows in snapshot.scheduler.gangs.attempts.placements_of([known]):
                with snapshot.scheduler.gangs.attempts.attempt_within(known, rows):
                    most = max(most, known.ready_members)  # with those that would be placed
        least_tried = list(range(min(most, job.min_member - 1), max(0, most - _FEWER), -1))
        if advisor.counts_evictions:
            all_members = min(known.ready_members + len(known.waiting()), job.min_member - 1)
            least_tried = [*range(all_members, most, -1)][:_FEWER] + least_tried
        for least in least_tried:
            lower = lower_min_member(snapshot, job, least)
            if lower is not None and advisor.propose(*made, lower):
                return


def note_nothing_helps(advisor: Advisor, report: Report) -> None:
    """Says so if there is no advice, and only then; or who takes the capacity that changes free."""
    report.details = [each for each in report.details if not each.startswith(NOTHING_HELPS)]
    taken = takers_details(advisor)
    report.details += [each for each in taken if each not in report.details]
    if not advisor.advice and not advisor.takers:
        report.details.append(nothing_helps(report))


def uncounted_members(
    snapshot: ClusterSnapshot, job: Job, report: Report
) -> tuple[list[str], list[Repair]]:
    """Members that are gated or another scheduler's, if the job needs them: sentences about them, and
    changes after which they count."""
    scheduler, partners = snapshot.scheduler, snapshot.cluster.jobs.partners(job)
    waiting, counted = waiting_members(snapshot, job), scheduler.gangs.admission.tried_members(partners)
    foreign = [pod for pod in waiting if scheduler.profile_of(pod.scheduler) is None]
    gated = [pod for pod in waiting if pod.gates]
    texts: list[str] = []
    repairs: list[Repair] = []
    if foreign and _lack(partners, [*counted, *(pod for pod in gated if pod not in foreign)]):
        own = next((pod.scheduler for pod in (*counted, *gated) if pod not in foreign), "")
        own = own or served_schedulers(scheduler)[0]
        names = ", ".join(dict.fromkeys(pod.scheduler for pod in foreign))
        texts.append(f"Of another scheduler ({names}), and so not counted: {pods_text(foreign)}.")
        report.details.append(
            f"this configuration serves {', '.join(served_schedulers(scheduler))} (see --config)"
        )
        repairs.append(set_scheduler(snapshot, foreign, own))
    more = [pod for pod in foreign if repairs and not pod.gates]
    if gated and _lack(partners, [*counted, *more]):
        texts.append(f"Blocked by scheduling gates: {pods_text(gated)}.")
        report.details.append(f"scheduling gates of {pods_text(gated)} to remove: {gates_text(gated)}")
        repairs.append(remove_gates(snapshot, gated))
    return texts, repairs


def _lack(jobs: list[Job], members: Iterable[PodRecord]) -> bool:
    """Whether one of the jobs has fewer members than it needs among these."""
    members = list(members)
    return any(job.lacks(pod for pod in members if pod.job == job.name) for job in jobs)


def _objects(repairs: Iterable[Repair]) -> list[ObjectChange]:
    return [each for repair in repairs for each in repair.change.objects]


def _blocked(
    snapshot: ClusterSnapshot,
    job: Job,
    members: list[PodRecord],
    before: list[Repair],
    report: Report,
    advisor: Advisor,
) -> str:
    """Explains the first of the members that have no node; it stands for those that scheduling cannot
    tell apart."""
    blocked = _without_node(snapshot, members)
    named = pods_text(pod for pod in members if pod.cls is blocked.cls)
    alone = place(snapshot.scheduler, blocked)
    with advisor.about(Subject.of(blocked), *before):
        if not alone.message:
            why = explain_beside(snapshot, job, blocked, before, report, advisor)
            text = f"Beside the others, {named}: {why}"
        else:
            of_member = Report("", "", "")
            explain_no_node(snapshot, blocked, alone, advisor, of_member)
            _note(snapshot, blocked, report, alone)
            report.details += of_member.details
            report.holders = of_member.holders
            consider_smaller_members(advisor, blocked)
            text = f"{named}: {of_member.summary}"
    others = [each for each in first_of_each_class(members) if each.cls is not blocked.cls]
    for other in others[: _CLASSES - 1]:
        with advisor.about(Subject.of(other), *before):
            verdicts = place(snapshot.scheduler, other)
            if verdicts.message:
                consider_nodes(advisor, verdicts)
            consider_smaller_members(advisor, other)
    return text


def _consider_each(snapshot: ClusterSnapshot, job: Job, before: list[Repair], advisor: Advisor) -> None:
    """Changes of members that have different obstacles: for each of them one with which it would start
    if the gang needed no others, all together."""
    alone = needing_one(snapshot, job)
    if alone is None:
        return
    options: list[list[list[Repair]]] = []
    with applied(snapshot, _objects([*before, alone])):
        members = snapshot.cluster.jobs.known[job.name].waiting()
        for pod in first_of_each_class(sorted(members, key=member_order))[:_MOST_CLASSES]:
            subject = Subject.of(pod)
            if starts_on(snapshot, subject):
                continue
            sub = Advisor(snapshot, subject, counts_evictions=False)
            placing = place(snapshot.scheduler, pod)
            if placing.message:
                explain_no_node(snapshot, pod, placing, sub, Report("", "", ""))
            if sub.helpful:
                options.append([list(each.parts or (each,)) for each in sub.helpful[:_OPTIONS]])
    if not options:
        return
    for made in islice(product(*options), _COMBINATIONS):
        if advisor.propose(*before, *chain.from_iterable(made)):
            return
    first = [*before, *chain.from_iterable(each[0] for each in options)]
    consider_steps(snapshot, job, advisor, first)
    if not advisor.is_harmless:
        consider_all_smaller(snapshot, job, advisor, first)


def _without_node(snapshot: ClusterSnapshot, members: list[PodRecord]) -> PodRecord:
    """The first that would have no node even if pods were preempted for it, otherwise the first."""
    for pod in first_of_each_class(members):
        alone = place(snapshot.scheduler, pod)
        if alone.message and not preempts(snapshot.scheduler, pod, alone):
            return pod
    return members[0]


def same_domain(key: str) -> str:
    return f"all members must be on nodes with the same {key}"


def _note(snapshot: ClusterSnapshot, pod: PodRecord, report: Report, placing: NodeVerdicts) -> None:
    """The verdicts for the member, in the report of a group; that of a pod has its own."""
    if not report.ranked:
        report.would_say, report.nodes = expected_message(snapshot, pod, placing), placing.reasons


def explain_beside(
    snapshot: ClusterSnapshot,
    job: Job,
    blocked: PodRecord,
    before: list[Repair],
    report: Report,
    advisor: Advisor,
) -> str:
    """The member fits by itself; why it does not beside the others."""
    with applied(snapshot, _objects(before)), attempt(snapshot, job) as tried:
        placing = place(snapshot.scheduler, blocked)
        _note(snapshot, blocked, report, placing)
        if placing.message:
            why = own_waiting(snapshot, blocked) or no_node_summary(snapshot, placing, blocked)
            report.details += details_of(snapshot, blocked, placing)
            note_holders(snapshot, blocked, placing, report)
        else:
            why = f"no node with the same {job.topology_key} has enough left."
        report.details += near_owners(snapshot, blocked)
        used = list(_used_once(snapshot, blocked))
        earlier = tried.members.index(blocked) if blocked in tried.members else 0
        first = [] if tried.is_ready else tried.members[:earlier]
    if job.topology_key:
        report.details.append(same_domain(job.topology_key))
    if first and snapshot.scheduler.gangs.attempts.is_ready_in(job, [blocked, *first]):
        report.details.append(
            "members are placed in order of priority and age: "
            f"{pods_text(first)} before {blocked.namespace}/{blocked.name}; in another order they fit"
        )
    report.details += consider_owners(snapshot, blocked, advisor)
    for fact, shared in used:
        report.details.append(fact)
        advisor.propose(*before, shared)
    if blocked.reservation is not None:
        consider_all_smaller(snapshot, job, advisor, before)
    if job.topology_key:  # less may be needed in another domain than in that of the nodes below
        consider_smaller_members(advisor, blocked)
    if placing.message:
        consider_estimate(snapshot, Subject.of(blocked), blocked, placing, advisor)
        consider_nodes(advisor, placing)
    consider_gang_wait(advisor, blocked)
    consider_smaller_members(advisor, blocked)
    return why


def _used_once(snapshot: ClusterSnapshot, blocked: PodRecord) -> Iterator[tuple[str, Repair]]:
    """The reservations for the member that another one takes alone, and that might serve both."""
    reservations = snapshot.cluster.reservations
    matching = reservations.matching(blocked.cls)
    for each in sorted(reservations.known.values(), key=lambda each: each.name):
        raw = snapshot.find(RESERVATION, each.name)
        if each.owner_spec_id not in matching or each.entry is None or raw is None:
            continue
        users = reservations.allocated_pods(each)
        if users and not reservations.is_usable(each) and each.object.spec.once:
            fact = f"reservation {each.name} serves one pod only (allocateOnce): {pods_text(users)}"
            change = patch(RESERVATION, raw, {"spec": {"allocateOnce": False}})
            text = f"set allocateOnce: false in reservation {each.name}"
            yield fact, repair(text, "ShareReservation", [change])
