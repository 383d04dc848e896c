"""Permit, PreBind and Bind for the members of jobs: for as many as a job needs, or for none.

    assumed ──► permit ──► enough are permitted ──► pre_bind of all ──► bind, post_bind
                  │  └──► too few yet: permitted members wait with those that plugins make wait
                  └─────► too few are left: every member is unreserved

Members beyond those a job needs are refused, or wait, by themselves. No decision about a job is made
before every member it needs has passed `pre_bind`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from holdfast.scheduler.cluster.decisions import Decision, Emit
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.binding_cycle import BindingCycle, Stop, WaitingPod
from holdfast.scheduler.framework.config.plugin_sets import NODE_RESOURCES_FIT
from holdfast.scheduler.framework.failure_handler import PREEMPTED
from holdfast.scheduler.framework.gang_failures import GangFailureHandler, Stops, Unpermitted
from holdfast.scheduler.framework.interface import Outcome
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.jobs.job import NOTHING
from holdfast.scheduler.state.cluster import Cluster

READY = "Ready"
"""The reason of the event about a job that is ready."""

_Together = dict[tuple[str, ...], tuple[list[Job], Stops]]
"""Partner jobs and the stops of their members, by the names of the jobs."""


class GangPermit:
    """Takes the assumed members of jobs through Permit, PreBind and Bind."""

    def __init__(
        self,
        cluster: Cluster,
        profiles: Mapping[str, Profile],
        binding: BindingCycle,
        failures: GangFailureHandler,
        decisions: list[Decision],
    ) -> None:
        self._cluster = cluster
        self._jobs = cluster.jobs
        self._profiles = profiles
        self._binding = binding
        self._failures = failures
        self._decisions = decisions
        self._unreserved = 0
        """The number of pods unreserved so far."""

    def bind(
        self,
        placed: Sequence[tuple[Profile, PodRecord]],
        now: float,
        reports_ready: bool = False,
        whole: bool = False,
    ) -> Unpermitted | None:
        """Binds the assumed members of one job, or of partner jobs. If too few of them can be bound, or
        with `whole` not all, every member is unreserved, and the reasons are returned."""
        binding = self._binding
        granted: list[PodRecord] = []
        stops: Stops = []
        for profile, pod in placed:
            stop = binding.run_permit(pod, pod.row, profile.permit)
            if stop is None:
                granted.append(pod)
            elif stop.outcome.message:
                stops.append((pod, stop))
            else:
                binding.wait_on_permit(pod, stop.plugin, now + stop.outcome.wait, now)
        jobs = self._jobs_of(pod for _, pod in placed)
        return self._settle(jobs, granted, stops, now, reports_ready, whole)

    def _jobs_of(self, placed: Iterable[PodRecord]) -> list[Job]:
        """The jobs of these members, and the partners of each: a partner may not name the others."""
        members = {pod.job: pod for pod in placed}
        own = [job for pod in members.values() if (job := self._jobs.of(pod)) is not None]
        return list({each.name: each for job in own for each in self._jobs.partners(job)}.values())

    def recheck_waiting(self, now: float) -> None:
        """Asks Permit plugins again about members that wait."""
        binding = self._binding
        together: _Together = {}
        for waiting in list(binding.waiting.values()):
            pod = waiting.pod
            job = self._jobs.of(pod)
            if job is None:
                continue
            if pod.phase is not Phase.ASSUMED:
                del binding.waiting[pod.uid]
                continue
            stops = self._stops_of(job, together)
            stop = binding.lost_place(waiting) if waiting.permitted else self._recheck(waiting, now)
            if stop is not None:
                stops.append((pod, stop))
        given_back = self._unreserved
        found = [self._settle(jobs, [], stops, now) for jobs, stops in together.values()]
        if self._unreserved > given_back:
            self._cluster.changed(Change.POD_LEFT)
        for lost in found:
            if lost is not None:
                self._failures.refuse_unpermitted(lost, now)

    def preempt(self, victims: Iterable[PodRecord], now: float) -> None:
        """Rejects victims that wait in Permit (kube-scheduler's `WaitingPod.Preempt`)."""
        together: _Together = {}
        for pod in victims:
            job = self._jobs.of(pod)
            assert job is not None
            plugin = self._binding.waiting[pod.uid].plugin
            stop = Stop(plugin, Outcome(PREEMPTED), preempted=True)
            self._stops_of(job, together).append((pod, stop))
        for jobs, stops in together.values():
            lost = self._settle(jobs, [], stops, now)
            if lost is not None:
                self._failures.refuse_unpermitted(lost, now)

    def _stops_of(self, job: Job, together: _Together) -> Stops:
        jobs = self._jobs.partners(job)
        key = tuple(sorted(str(each.name) for each in jobs))
        return together.setdefault(key, (jobs, []))[1]

    def _recheck(self, waiting: WaitingPod, now: float) -> Stop | None:
        """Asks Permit plugins again about a pod that waits: the stop if it is refused now; otherwise it
        goes on waiting, or is permitted."""
        binding, pod, plugin = self._binding, waiting.pod, waiting.plugin
        outcome = binding.permit_again(waiting)
        if outcome.message:
            return Stop(plugin, outcome)
        if (lost := binding.lost_place(waiting)) is not None:
            return lost
        if outcome.wait:
            late = Outcome(f"timed out waiting for {plugin.name}")
            return None if now < waiting.deadline else Stop(plugin, late)
        permits = self._profiles[pod.scheduler].permit
        stop = binding.run_permit(pod, waiting.row, permits[permits.index(plugin) + 1 :])
        if stop is None:
            waiting.permitted, waiting.deadline = True, math.inf
        elif stop.outcome.message:
            return stop
        else:
            waiting.plugin, waiting.deadline = stop.plugin, now + stop.outcome.wait
        return None

    def _settle(
        self,
        jobs: list[Job],
        granted: list[PodRecord],
        stops: Stops,
        now: float,
        reports_ready: bool = False,
        whole: bool = False,
    ) -> Unpermitted | None:
        """Binds the permitted members if they are enough, with those that waited for them."""
        binding = self._binding
        if binding.waiting and jobs:
            names = {job.name for job in jobs}
            held = [each for each in binding.waiting.values() if each.pod.job in names]
            refused = {pod.uid for pod, _ in stops}
            held = [each for each in held if each.pod.uid not in refused]
            waits = {each.pod.uid for each in held if not each.permitted}
            granted = [each.pod for each in held if each.permitted] + granted
        else:
            held, waits = [], set()
        self._unreserve(pod for pod, _ in stops)
        if (stops or held) and ((whole and stops) or not all(job.is_ready for job in jobs)):
            return self._unreserve_all(jobs, stops, [*(each.pod for each in held), *granted])
        is_enough, decisions = False, dict[str, list[Decision]]()
        if not waits or all(job.can_do_without(waits) for job in jobs):
            for step in (self._pre_bind, self._call_bind):
                failed = step(granted, decisions)
                if not failed:
                    continue
                stops = stops + failed
                self._unreserve(pod for pod, _ in failed)
                if whole or not all(job.is_ready for job in jobs):
                    return self._unreserve_all(jobs, stops, [*(each.pod for each in held), *granted])
                granted = [pod for pod in granted if pod.uid in decisions]
                if waits and not all(job.can_do_without(waits) for job in jobs):
                    break
            else:
                is_enough = True
        for job in jobs if reports_ready else ():
            self.became_ready(job, now)
        if is_enough:
            self._bind(granted, decisions, now)
        else:
            self._wait_for_members(granted, now)
        for pod, stop in stops:
            self._failures.refuse_member(pod, stop, now)
        return None

    def became_ready(self, job: Job, now: float) -> None:
        """Records that the job is ready, and emits an event the first time."""
        job.problem = NOTHING
        self._jobs.touch(job)
        if not job.seen_ready:
            job.seen_ready = True
            job.waited = max(0.0, now - job.pending_since)
            text = f"{job.ready_members} of {job.min_member} needed pods are placed"
            self._decisions.append(Emit(job.ref, "Normal", READY, text, "Scheduling"))
            self._cluster.chronicle.note(now, job.name, "ready")
        self._jobs.wake_waiting_for(job)

    def _wait_for_members(self, pods: list[PodRecord], now: float) -> None:
        """Has permitted members wait until enough of their job are permitted."""
        binding = self._binding
        for pod in pods:
            coscheduling = self._profiles[pod.scheduler].coscheduling
            if pod.uid not in binding.waiting and coscheduling is not None:
                binding.wait_on_permit(pod, coscheduling, math.inf, now, permitted=True)

    def _pre_bind(self, pods: list[PodRecord], decisions: dict[str, list[Decision]]) -> Stops:
        """Collects the decisions of `pre_bind` for each pod and returns those that fail. A pod that
        waited also fails if it lost its place meanwhile."""
        binding = self._binding
        failed: Stops = []
        for pod in pods:
            profile = self._profiles[pod.scheduler]
            waiting = binding.waiting.get(pod.uid)
            if waiting is not None and (lost := binding.lost_place(waiting)) is not None:
                failed.append((pod, lost))
                continue
            short = binding.short_of(profile, pod, pod.row) if waiting is not None else ""
            if short:
                node = self._cluster.nodes.name(pod.row)
                why = f"node {node}: {short} by the time the pod was permitted"
                failed.append(
                    (pod, Stop(profile.plugins.get(NODE_RESOURCES_FIT, profile.bind[0]), Outcome(why)))
                )
                continue
            found: list[Decision] = []
            stop = binding.run_pre_bind(profile, pod, pod.row, found)
            if stop is not None:
                failed.append((pod, stop))
            else:
                decisions[pod.uid] = found
        return failed

    def _call_bind(self, pods: list[PodRecord], decisions: dict[str, list[Decision]]) -> Stops:
        """As `_pre_bind`, for `bind`."""
        binding = self._binding
        failed: Stops = []
        for pod in pods:
            profile = self._profiles[pod.scheduler]
            stop = binding.run_bind(profile, pod, pod.row, decisions[pod.uid])
            if stop is not None:
                del decisions[pod.uid]
                failed.append((pod, stop))
        return failed

    def _bind(self, pods: list[PodRecord], decisions: dict[str, list[Decision]], now: float) -> None:
        binding = self._binding
        for pod in pods:
            binding.waiting.pop(pod.uid, None)
            self._decisions.extend(decisions[pod.uid])
            binding.finish(self._profiles[pod.scheduler], pod, pod.row, now)

    def _unreserve(self, pods: Iterable[PodRecord]) -> None:
        for pod in pods:
            self._binding.waiting.pop(pod.uid, None)
            if pod.row >= 0:
                self._unreserved += 1
                self._binding.unreserve(self._profiles[pod.scheduler], pod)

    def _unreserve_all(self, jobs: list[Job], stops: Stops, others: list[PodRecord]) -> Unpermitted:
        lacking = next((text for job in jobs if (text := job.lacks(()))), "")
        members = {pod.uid: pod for pod in (*(pod for pod, _ in stops), *others)}
        self._unreserve(reversed(members.values()))
        return Unpermitted(jobs, stops, list(members.values()), lacking)
