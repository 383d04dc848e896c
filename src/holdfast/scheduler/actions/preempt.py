"""Preempt: less important pods make room for a job, if that makes all of it ready.

A pod that is a job by itself preempts when it is tried and found no node; this is for jobs of several,
and for those whose queue is full. Victims are found for one member after the other, each with those
before it taken for granted. Only if the whole job would then be ready is anyone asked to go.
"""

from collections.abc import Callable, Collection

from holdfast.scheduler.actions.queue_victims import QueueVictimSelector, is_critical
from holdfast.scheduler.actions.round import Action, Round
from holdfast.scheduler.cluster.decisions import Decision, Nominate, preemption
from holdfast.scheduler.cluster.decisions import Preempt as PreemptPod
from holdfast.scheduler.cluster.pods import Phase, PodRecord
from holdfast.scheduler.jobs import Job

Found = list[tuple[PodRecord, str, tuple[Decision, ...]]]
"""Members, the nodes that are cleared for them, and what has to be done for that."""


class PreemptAction(Action):
    name = "preempt"

    def run(self, round_: Round) -> None:
        waiting = round_.gangs.refused or round_.turned_away
        if not waiting or round_.cluster.has_changes() or round_.pods_left <= 0:
            return
        refused, round_.gangs.refused = round_.gangs.refused, {}
        alone, round_.turned_away = round_.turned_away, []
        leaders = [pod for pod in refused.values() if pod.job is not None and not pod.job.is_ready]
        leaders += [pod for pod in alone if pod.phase is Phase.PENDING and not pod.deletion_pending]
        with round_.cluster.jobs.queues.expected_usage() as expected:
            for leader in sorted(leaders, key=round_.queue.sort_key):
                members = [leader] if leader.job is None else leader.job.waiting()
                if self._is_under_way(round_, members):
                    continue
                for pod in members:
                    if pod.nominated:
                        expected.going(pod)  # it is looked at anew
                if leader.job is not None:
                    gone = self._make_room(round_, leader, leader.job)
                else:
                    gone = self._make_room_for(round_, [leader], lambda: True)
                for victim in gone:
                    if victim.row >= 0:
                        expected.going(victim)
                for pod in members:
                    if pod.nominated:
                        expected.coming(pod)

    def _is_under_way(self, round_: Round, members: list[PodRecord]) -> bool:
        """Whether some are still on their way out to make room for these."""
        nodes, pods = round_.cluster.nodes, round_.cluster.ledger.pods
        rows = (nodes.row(member.nominated) for member in members if member.nominated)
        return any(
            p.being_preempted for row in rows if row is not None for p in pods.get(row, {}).values()
        )

    def _make_room(self, round_: Round, leader: PodRecord, job: Job) -> Collection[PodRecord]:
        """Who is asked to go."""
        cluster, gangs = round_.cluster, round_.gangs
        jobs, members = cluster.jobs.partners(job), gangs.waiting(leader)
        reserving = [pod for pod in members if pod.reservation is not None]
        if reserving:
            self._have_reservations_go(round_, reserving, jobs)
            return ()
        if gangs.early_refusal(jobs, members, may_preempt=True) is not None:
            return ()
        return self._make_room_for(round_, members, lambda: gangs.could_start(jobs))

    def _make_room_for(
        self, round_: Round, members: list[PodRecord], is_ready: Callable[[], bool]
    ) -> Collection[PodRecord]:
        cluster = round_.cluster
        found: Found = []
        victims: dict[str, PodRecord] = {}
        with cluster.ledger.transaction():
            ready = False
            for pod in members:
                self._place(round_, pod, found, victims)
                # Nobody has to go for those a job could do without.
                ready = pod.row >= 0 and is_ready()
                if ready:
                    break
        if ready and victims:
            self._decide(round_, found)
            return victims.values()
        return ()

    def _have_reservations_go(self, round_: Round, reserving: list[PodRecord], jobs: list[Job]) -> None:
        """Reservations make room together where one of them may."""
        for pod in reserving:
            if round_.cycle.make_room(round_.profiles[pod.scheduler], pod, round_.now):
                for job in jobs:
                    if job.is_ready:
                        round_.gangs.became_ready(job, round_.now)
                return

    def _place(
        self,
        round_: Round,
        pod: PodRecord,
        found: Found,
        victims: dict[str, PodRecord],
    ) -> None:
        """Puts the pod where it fits, or would if others went, who then do."""
        cluster, cycle = round_.cluster, round_.cycle
        profile = round_.profiles[pod.scheduler]
        column = cycle.column(profile, pod.cls)
        if cluster.jobs.queues.admission_error(pod):
            self._make_room_in_queue(round_, pod, found, victims)
            return
        row = cycle.find_row(profile, pod, column)
        if row >= 0:
            cluster.ledger.place(pod, row)
            return
        nomination = cycle.propose(profile, pod, column)
        at = cluster.nodes.row(nomination.node) if nomination.node else None
        if at is None:
            return
        for decision in nomination.decisions:
            victim = cluster.pods.get(decision.pod.uid) if isinstance(decision, PreemptPod) else None
            if victim is not None and victim.row >= 0:
                victims[victim.uid] = victim
                cluster.ledger.remove(victim)
        cluster.ledger.place(pod, at)
        found.append((pod, cluster.nodes.name(at), nomination.decisions))

    def _make_room_in_queue(
        self,
        round_: Round,
        pod: PodRecord,
        found: Found,
        victims: dict[str, PodRecord],
    ) -> None:
        """Puts the pod where it fits once less important ones of its queue, which is full, are gone."""
        cluster, queues = round_.cluster, round_.cluster.jobs.queues
        name = queues.of(pod)
        if not name or queues.closed(pod) or pod.cls.pod.spec.preemption_policy == "Never":
            return
        there = queues.pods_in(name)
        room = QueueVictimSelector(
            round_,
            pod,
            lambda p: queues.of(p) == name and p.uid not in victims and _is_less_important(p, pod),
            lambda: not queues.admission_error(pod),
            pod.cls.priority,
        )
        place = room.on_one_of(sorted({p.row for p in there if p.row >= 0})) or room.wherever(there)
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

    def _decide(self, round_: Round, found: Found) -> None:
        asked: set[str] = set()
        decisions: list[Decision] = []
        for pod, node, made in found:
            for decision in made:
                # Who goes with his job may be named more than once.
                if isinstance(decision, PreemptPod):
                    if decision.pod.uid in asked:
                        continue
                    asked.add(decision.pod.uid)
                decisions.append(decision)
            if pod.nominated != node:
                decisions.append(Nominate(pod.ref, node))
        round_.cycle.apply(decisions)
        for pod, node, _ in found:
            round_.cluster.chronicle.note(round_.now, pod.ref, "preempts", node)


def _is_less_important(victim: PodRecord, pod: PodRecord) -> bool:
    cls = victim.cls
    if cls.non_preemptible or cls.is_daemon or victim.being_preempted or is_critical(victim):
        return False
    return cls.priority < pod.cls.priority
