"""The preempt action: evicts pods of lower priority if that makes a whole job ready.

A pod that is not in a gang preempts in its scheduling cycle, when no node is feasible. This action is
for gangs, and for pods whose queue is full. Victims are found for one member after the other, each with
the victims and placements of those before it. Pods are evicted only if the whole job is ready then. If
there are no victims, the ResourceClaims that keep members from nodes and that no pod uses are
deallocated.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from holdfast.scheduler.actions.queue_victims import QueueVictimSelector, is_critical
from holdfast.scheduler.actions.round import Action, Round
from holdfast.scheduler.cluster.decisions import (
    DeallocateClaim,
    Decision,
    Nominate,
    for_group,
    preemption,
)
from holdfast.scheduler.cluster.decisions import Preempt as PreemptPod
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.jobs import Job, JobProblem

GROUP_PREEMPTION = "pod group preemption"
FOUND = "found a placement for podgroup, preempting {} victims"
NO_VICTIMS = "No preemption victims found for incoming preemptor"
NEVER = "not eligible due to preemptionPolicy=Never."
ONGOING = "ongoing preemption on nominated nodes"

Found = list[tuple[PodRecord, str, tuple[Decision, ...]]]
"""Members, their nominated nodes, and the decisions that make them fit there."""


class GangPreemption(NamedTuple):
    """What would be preempted for a job."""

    places: list[tuple[PodRecord, str]]
    """The members that are nominated, and to which nodes."""
    victims: list[PodRecord]


class PreemptAction(Action):
    """Preempts for gangs, and for pods whose queue is full."""

    name = "preempt"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._deallocations: dict[str, DeallocateClaim] = {}
        """What was proposed for the members of the job that is looked at, by claim."""

    def run(self, round_: Round) -> None:
        waiting = round_.gang_failures.refused or round_.not_admitted
        if not waiting or round_.cluster.has_changes() or round_.pods_left <= 0:
            return
        refused, round_.gang_failures.refused = round_.gang_failures.refused, {}
        not_admitted, round_.not_admitted = round_.not_admitted, []
        of = round_.cluster.jobs.of
        leaders = [
            pod
            for pod in refused.values()
            if (job := of(pod)) is not None and not (job.is_ready and job.core is None)
        ]
        leaders += [
            pod for pod in not_admitted if pod.phase is Phase.PENDING and not pod.deletion_pending
        ]
        with round_.cluster.jobs.queues.expected_usage() as expected:
            for leader in sorted(leaders, key=round_.queue.sort_key):
                job = of(leader)
                members = [leader] if job is None else job.waiting()
                if self._is_under_way(round_, members):
                    if job is not None and job.core is not None and not job.is_ready:
                        _note(job, ONGOING)
                    continue
                for pod in members:
                    if pod.nominated:
                        expected.going(pod)  # its nomination is decided again
                if job is not None:
                    gone = self._preempt_for_job(round_, leader, job)
                else:
                    gone = self._preempt_for(round_, [leader], lambda: True)
                for victim in gone:
                    if victim.row >= 0:
                        expected.going(victim)
                for pod in members:
                    if pod.nominated:
                        expected.coming(pod)

    def _is_under_way(self, round_: Round, members: list[PodRecord]) -> bool:
        """Whether victims on the nominated nodes of these pods are still terminating."""
        nodes, pods = round_.cluster.nodes, round_.cluster.ledger.pods
        rows = (nodes.row(member.nominated) for member in members if member.nominated)
        return any(
            p.being_preempted for row in rows if row is not None for p in pods.get(row, {}).values()
        )

    def _preempt_for_job(self, round_: Round, leader: PodRecord, job: Job) -> Collection[PodRecord]:
        """Preempts for a job; returns the victims."""
        cluster, gangs = round_.cluster, round_.gangs
        jobs, members = cluster.jobs.partners(job), gangs.admission.pending_members(leader)
        reserving = [pod for pod in members if pod.reservation is not None]
        if reserving:
            self._preempt_for_reservations(round_, reserving, jobs)
            return ()
        if gangs.admission.early_refusal(jobs, members, may_preempt=True) is not None:
            return ()
        self._deallocations = {}
        if job.core is not None:
            victims = self._preempt_for_group(round_, job, members)
        else:
            victims = self._preempt_for(round_, members, lambda: gangs.admission.could_start(jobs))
        if not victims:
            round_.preemption.apply([*self._deallocations.values()])
        return victims

    def _preempt_for(
        self, round_: Round, members: list[PodRecord], is_ready: Callable[[], bool]
    ) -> Collection[PodRecord]:
        """Preempts for these pods if `is_ready` then; returns the victims."""
        found, victims = self._proposal(round_, members, is_ready)
        if victims:
            self._decide(round_, found)
        return victims.values()

    def _preempt_for_group(
        self, round_: Round, job: Job, members: list[PodRecord]
    ) -> Collection[PodRecord]:
        """Preempts for a PodGroup of `scheduling.k8s.io`: in the topology domain where it takes the
        fewest victims. Of one that is ready, each further member may preempt."""
        found, victims = self._proposal_for_group(round_, job, members)
        if not job.is_ready:
            never = any(pod.cls.pod.spec.preemption_policy == "Never" for pod in members)
            _note(job, FOUND.format(len(victims)) if victims else NEVER if never else NO_VICTIMS)
        if victims:
            self._decide(round_, found, job)
        return victims.values()

    def _proposal_for_group(
        self, round_: Round, job: Job, members: list[PodRecord]
    ) -> tuple[Found, dict[str, PodRecord]]:
        gangs = round_.gangs
        together = [[pod] for pod in members] if job.is_ready else [members]
        proposals = []
        for rows in gangs.attempts.placements_of([job]):
            with round_.search.within(rows):
                tried = (
                    self._proposal(round_, pods, lambda: gangs.admission.could_start([job]))
                    for pods in together
                )
                proposals += [found for found in tried if found[1]][:1]
        return min(proposals, key=lambda proposal: len(proposal[1]), default=([], {}))

    def preemption_for(self, round_: Round, job: Job) -> GangPreemption:
        """What would be preempted now for a job: for those that it needs, or, of a PodGroup of
        `scheduling.k8s.io` that is ready, for a further member. Changes nothing."""
        nothing = GangPreemption([], [])
        if job.is_ready and job.core is None:
            return nothing
        gangs, jobs = round_.gangs, round_.cluster.jobs.partners(job)
        members = gangs.admission.tried_members(jobs)
        if any(pod.reservation is not None for pod in members):
            return nothing
        if self._is_under_way(round_, members):
            return nothing
        if gangs.admission.early_refusal(jobs, members, may_preempt=True) is not None:
            return nothing
        with round_.cluster.jobs.queues.expected_usage():
            if job.core is not None:
                found, victims = self._proposal_for_group(round_, job, members)
            else:
                found, victims = self._proposal(
                    round_, members, lambda: gangs.admission.could_start(jobs)
                )
        return GangPreemption([(pod, node) for pod, node, _ in found], list(victims.values()))

    def victims_in_queue(self, round_: Round, pod: PodRecord) -> list[PodRecord]:
        """The pods that would be preempted now for a pod that its queue does not admit. Changes
        nothing."""
        if self._is_under_way(round_, [pod]):
            return []
        with round_.cluster.jobs.queues.expected_usage():
            _, victims = self._proposal(round_, [pod], lambda: True)
        return list(victims.values())

    def _proposal(
        self, round_: Round, members: list[PodRecord], is_ready: Callable[[], bool]
    ) -> tuple[Found, dict[str, PodRecord]]:
        """The decisions after which these pods fit, and the victims; none unless `is_ready` then."""
        found: Found = []
        victims: dict[str, PodRecord] = {}
        # Classes of which a member fits no node, whatever is preempted: no other member of them does.
        infeasible: set[tuple[str, int]] = set()
        with round_.cluster.ledger.transaction():
            for pod in members:
                kind = pod.scheduler, pod.cls.id
                if kind in infeasible:
                    continue
                self._place(round_, pod, found, victims)
                if pod.row < 0 and self._is_like_its_class(round_, pod):
                    infeasible.add(kind)
                # Nothing is preempted for members beyond those the job needs.
                if pod.row >= 0 and is_ready():
                    return found, victims
        return [], {}

    def _is_like_its_class(self, round_: Round, pod: PodRecord) -> bool:
        """Whether the result for the pod is that for all pods of its class, also once others are
        placed."""
        if pod.nominated or pod.pinned_node is not None or pod.cls.private:
            return False
        if round_.cluster.jobs.queue_limits.admission_error(pod):
            return False
        column = round_.columns.column(round_.profiles[pod.scheduler], pod.cls)
        return column.is_local and not column.owned

    def _preempt_for_reservations(
        self, round_: Round, reserving: list[PodRecord], jobs: list[Job]
    ) -> None:
        """Preempts for the reserve pods of a job: a proposal for one of them covers all of its gang,
        but not its partners, which must be ready."""
        if any(round_.cluster.jobs.missing_partners(each) for each in jobs):
            return
        if not all(each.is_ready for each in jobs[1:]):
            return
        for pod in reserving:
            profile = round_.profiles[pod.scheduler]
            if round_.cycle.preempt_for_reservations(profile, pod, jobs, round_.now):
                return

    def _place(
        self,
        round_: Round,
        pod: PodRecord,
        found: Found,
        victims: dict[str, PodRecord],
    ) -> None:
        """Places the pod where it fits now, or where it fits without victims, which are removed; inside
        a transaction."""
        cluster = round_.cluster
        profile = round_.profiles[pod.scheduler]
        column = round_.columns.column(profile, pod.cls)
        if cluster.jobs.queue_limits.admission_error(pod):
            self._preempt_in_queue(round_, pod, found, victims)
            return
        row = round_.search.find_row(profile, pod, column)
        if row >= 0:
            cluster.ledger.place(pod, row)
            found.append((pod, cluster.nodes.name(row), ()))  # kept for it until the victims are gone
            return
        nomination = round_.preemption.propose(profile, pod, column)
        at = cluster.nodes.row(nomination.node) if nomination.node else None
        if at is None:
            for decision in nomination.decisions:
                if isinstance(decision, DeallocateClaim):
                    self._deallocations[decision.claim.uid] = decision
            return
        for decision in nomination.decisions:
            victim = cluster.pods.get(decision.pod.uid) if isinstance(decision, PreemptPod) else None
            if victim is not None and victim.row >= 0:
                victims[victim.uid] = victim
                cluster.ledger.remove(victim)
        cluster.ledger.place(pod, at)
        found.append((pod, cluster.nodes.name(at), nomination.decisions))

    def _preempt_in_queue(
        self,
        round_: Round,
        pod: PodRecord,
        found: Found,
        victims: dict[str, PodRecord],
    ) -> None:
        """Places the pod where it fits without pods of lower priority of its own queue, which is full;
        inside a transaction."""
        cluster, queues = round_.cluster, round_.cluster.jobs.queues
        name = queues.of(pod)
        if not name or queues.closed(pod) or pod.cls.pod.spec.preemption_policy == "Never":
            return
        there = queues.pods_in(name)
        selector = QueueVictimSelector(
            round_,
            pod,
            lambda p: queues.of(p) == name and p.uid not in victims and _is_less_important(p, pod),
            lambda: not cluster.jobs.queue_limits.admission_error(pod),
            pod.cls.priority,
        )
        rows = sorted({p.row for p in there if p.row >= 0})
        place = selector.on_one_node(rows) or selector.on_any_nodes(there)
        if place is None:
            return
        node = cluster.nodes.name(place.row)
        decisions: list[Decision] = []
        for victim in place.victims:
            cluster.ledger.remove(victim)
            victims[victim.uid] = victim
            decisions += preemption(
                victim.ref, pod.ref, node, pod.scheduler, victim.job_name, victim.reservation_uid
            )
        cluster.ledger.place(pod, place.row)
        found.append((pod, node, tuple(decisions)))

    def _decide(self, round_: Round, found: Found, group: Job | None = None) -> None:
        """Applies the decisions; those for a PodGroup name it as the preemptor."""
        asked: set[str] = set()
        decisions: list[Decision] = []
        for pod, node, made in found:
            for decision in made:
                # A victim that is evicted with its job may occur more than once.
                if isinstance(decision, PreemptPod):
                    if decision.pod.uid in asked:
                        continue
                    asked.add(decision.pod.uid)
                if group is not None:
                    decision = for_group(decision, group.ref, pod.scheduler)
                decisions.append(decision)
            if pod.nominated != node:
                decisions.append(Nominate(pod.ref, node))
        round_.preemption.apply(decisions)
        for pod, node, made in found:
            if made:
                round_.cluster.chronicle.note(round_.now, pod.ref, "preempts", node)


def _note(job: Job, result: str) -> None:
    """Adds to the problem of a PodGroup what its preemption came to."""
    text = f"{job.problem.message}, {GROUP_PREEMPTION}: {result}"
    job.problem = JobProblem(job.problem.reason, text)


def _is_less_important(victim: PodRecord, pod: PodRecord) -> bool:
    cls = victim.cls
    if cls.non_preemptible or cls.is_daemon or victim.being_preempted or is_critical(victim):
        return False
    return cls.priority < pod.cls.priority
