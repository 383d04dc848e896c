"""Preempt: less important pods make room for a job, if that makes all of it ready.

A pod that is a job by itself preempts when it is tried and found no node; this is for jobs of several.
Victims are found for one member after the other, each with those before it taken for granted. Only if
the whole job would then be ready is anyone asked to go.
"""

from holdfast.actions.round import Action, Round
from holdfast.core.decisions import Decision, Nominate
from holdfast.core.decisions import Preempt as PreemptPod
from holdfast.core.jobs import Job
from holdfast.core.pods import PodRecord


class Preempt(Action):
    name = "preempt"

    def run(self, round_: Round) -> None:
        if not round_.gangs.refused or round_.cluster.has_changes() or round_.pods_left <= 0:
            return
        refused, round_.gangs.refused = round_.gangs.refused, {}
        leaders = [pod for pod in refused.values() if pod.job is not None and not pod.job.is_ready]
        for leader in sorted(leaders, key=round_.queue.sort_key):
            job = leader.job
            assert job is not None
            if not self._is_under_way(round_, job):
                self._make_room(round_, leader, job)

    def _is_under_way(self, round_: Round, job: Job) -> bool:
        """Whether some are still on their way out to make room for it."""
        nodes, pods = round_.cluster.nodes, round_.cluster.ledger.pods
        rows = (nodes.row(member.nominated) for member in job.waiting() if member.nominated)
        return any(p.disrupted for row in rows if row is not None for p in pods.get(row, {}).values())

    def _make_room(self, round_: Round, leader: PodRecord, job: Job) -> None:
        cluster, gangs = round_.cluster, round_.gangs
        jobs, members = cluster.jobs.partners(job), gangs.waiting(leader)
        reserving = [pod for pod in members if pod.promise is not None]
        if reserving:
            self._have_reservations_go(round_, reserving, jobs)
            return
        if gangs.hindrance(jobs, members) is not None:
            return
        before = {
            pod: pod.nominated for there in cluster.nominations.values() for pod in there.values()
        }
        found: list[tuple[PodRecord, str, tuple[Decision, ...]]] = []
        victims: dict[str, PodRecord] = {}
        with cluster.ledger.transaction():
            for pod in members:
                self._place(round_, pod, found, victims)
            ready = all(each.is_ready for each in jobs)
        if ready and victims:
            self._decide(round_, found, victims)
            return
        for victim in victims.values():
            victim.disrupted = False
        for pod, node in before.items():
            cluster.nominate(pod, node)

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
        found: list[tuple[PodRecord, str, tuple[Decision, ...]]],
        victims: dict[str, PodRecord],
    ) -> None:
        """Puts the pod where it fits, or would if others went, who then do."""
        cluster, cycle = round_.cluster, round_.cycle
        profile = round_.profiles[pod.scheduler]
        column = cycle.column(profile, pod.cls)
        row = cycle.find_row(profile, pod, column)
        if row >= 0:
            cluster.ledger.place(pod, row)
            return
        if cluster.jobs.queues.refusal(pod):
            return
        nomination = cycle.post_filter(profile, pod, column)
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

    def _decide(
        self,
        round_: Round,
        found: list[tuple[PodRecord, str, tuple[Decision, ...]]],
        victims: dict[str, PodRecord],
    ) -> None:
        decisions = round_.cycle.decisions
        asked = set()
        for pod, node, made in found:
            for decision in made:
                # Who goes with his job may be named more than once.
                if isinstance(decision, PreemptPod):
                    if decision.pod.uid in asked:
                        continue
                    asked.add(decision.pod.uid)
                decisions.append(decision)
            if pod.nominated != node:
                round_.cluster.nominate(pod, node)
                decisions.append(Nominate(pod.ref, node))
            round_.cluster.chronicle.note(round_.now, pod.ref, "preempts", node)
