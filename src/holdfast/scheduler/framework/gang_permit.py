"""Permit, PreBind and Bind for the members of jobs: for as many as a job needs, or for none.

    assumed ──► permit ──► enough are permitted ──► pre_bind of all ──► bind, post_bind
                  │  └──► too few yet: permitted members wait with those that plugins make wait
                  └─────► too few are left: every member is unreserved

Members beyond those a job needs are refused, or wait, by themselves. No decision about a job is made
before every member it needs has passed `pre_bind`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.scheduler.cluster.decisions import Decision
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pods import Phase, PodRecord
from holdfast.scheduler.framework.interface import Outcome, Plugin
from holdfast.scheduler.framework.plugin_names import NODE_RESOURCES_FIT
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.jobs import Job

PREEMPTED = "0/1 nodes are available: 1 preempted."
"""The condition message of a victim that waited in Permit."""

NOT_ACTIVE = "reservation is not active"
"""The condition message of a pod whose reservation ends before it is bound."""

if TYPE_CHECKING:
    from holdfast.scheduler.framework.scheduling_cycle import Cycle


class WaitingPod:
    """An assumed pod that waits in Permit."""

    __slots__ = ("deadline", "node_gone", "permitted", "plugin", "pod", "row")

    def __init__(
        self, pod: PodRecord, row: int, plugin: Plugin, deadline: float, permitted: bool = False
    ) -> None:
        self.pod = pod
        self.row = row
        self.plugin = plugin
        self.deadline = deadline
        self.permitted = permitted
        """Whether every plugin permitted it, and it waits only for other members of its job."""
        self.node_gone = False
        """Whether its node was deleted, even if it was recreated since."""


class Stop(NamedTuple):
    """A plugin's outcome that makes a pod wait or keeps it from being bound."""

    plugin: Plugin
    outcome: Outcome
    preempted: bool = False
    """Whether the pod was preempted while it waited for the plugin, rather than refused by it."""

    def text(self) -> str:
        """The message, with the name of the plugin."""
        if self.preempted:
            return self.outcome.message
        return with_name(self.plugin.name, self.outcome.message)


def with_name(plugin: str, message: str) -> str:
    return message if plugin in message else f"plugin {plugin} refuses: {message}"


Stops = list[tuple[PodRecord, Stop]]
_Together = dict[tuple[str, ...], tuple[list[Job], Stops]]
"""Partner jobs and the stops of their members, by the names of the jobs."""


class Unpermitted(NamedTuple):
    """Members that were unreserved because too few of their job can be bound."""

    jobs: list[Job]
    stops: Stops
    """The members that plugins refused."""
    members: list[PodRecord]
    """All members that were unreserved."""
    lacking: str
    """How many members the job has without the refused ones, of how many it needs."""


def nothing(about: Job | Unpermitted, now: float) -> None:
    return None


class GangPermit:
    """Takes the assumed members of jobs through Permit, PreBind and Bind."""

    def __init__(self, cycle: "Cycle") -> None:
        self._cycle = cycle
        self._jobs = cycle.cluster.jobs
        self.on_ready: Callable[[Job, float], None] = nothing
        """Called for each job that has as many placed members as it needs."""
        self.on_lost: Callable[[Unpermitted, float], None] = nothing
        """Called with members that were unreserved because some of them were preempted."""
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
        cycle = self._cycle
        granted: list[PodRecord] = []
        stops: Stops = []
        for profile, pod in placed:
            stop = cycle.run_permit(pod, pod.row, profile.permit)
            if stop is None:
                granted.append(pod)
            elif stop.outcome.message:
                stops.append((pod, stop))
            else:
                cycle.wait_on_permit(pod, stop.plugin, now + stop.outcome.wait, now)
        first = placed[0][1].job if placed else None
        jobs = self._jobs.partners(first) if first is not None else []
        return self._settle(jobs, granted, stops, now, reports_ready, whole)

    def recheck(self, now: float) -> list[Unpermitted]:
        """Asks Permit plugins again about members that wait."""
        cycle = self._cycle
        together: _Together = {}
        for waiting in list(cycle.waiting.values()):
            pod = waiting.pod
            if pod.job is None:
                continue
            if pod.phase is not Phase.ASSUMED:
                del cycle.waiting[pod.uid]
                continue
            stops = self._stops_of(pod.job, together)
            stop = cycle.lost_place(waiting) if waiting.permitted else self._recheck(waiting, now)
            if stop is not None:
                stops.append((pod, stop))
        given_back = self._unreserved
        found = [self._settle(jobs, [], stops, now) for jobs, stops in together.values()]
        if self._unreserved > given_back:
            cycle.cluster.changed(Change.POD_LEFT)
        return [each for each in found if each is not None]

    def reject(self, victims: Iterable[PodRecord], now: float) -> None:
        """Rejects victims that wait in Permit (kube-scheduler's `WaitingPod.Preempt`)."""
        together: _Together = {}
        for pod in victims:
            assert pod.job is not None
            plugin = self._cycle.waiting[pod.uid].plugin
            stop = Stop(plugin, Outcome(PREEMPTED), preempted=True)
            self._stops_of(pod.job, together).append((pod, stop))
        for jobs, stops in together.values():
            lost = self._settle(jobs, [], stops, now)
            if lost is not None:
                self.on_lost(lost, now)

    def _stops_of(self, job: Job, together: _Together) -> Stops:
        jobs = self._jobs.partners(job)
        key = tuple(sorted(str(each.name) for each in jobs))
        return together.setdefault(key, (jobs, []))[1]

    def _recheck(self, waiting: WaitingPod, now: float) -> Stop | None:
        """Asks Permit plugins again about a pod that waits: the stop if it is refused now; otherwise it
        goes on waiting, or is permitted."""
        cycle, pod, plugin = self._cycle, waiting.pod, waiting.plugin
        outcome = cycle.permission(plugin, pod, waiting.row)
        if outcome.message:
            return Stop(plugin, outcome)
        if (lost := cycle.lost_place(waiting)) is not None:
            return lost
        if outcome.wait:
            late = Outcome(f"timed out waiting for {plugin.name}")
            return None if now < waiting.deadline else Stop(plugin, late)
        permits = cycle.profiles[pod.scheduler].permit
        stop = cycle.run_permit(pod, waiting.row, permits[permits.index(plugin) + 1 :])
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
        cycle = self._cycle
        if cycle.waiting and jobs:
            held = [each for each in cycle.waiting.values() if any(each.pod.job is job for job in jobs)]
            refused = {pod.uid for pod, _ in stops}
            waits = {each.pod.uid for each in held if not each.permitted} - refused
            granted = [each.pod for each in held if each.permitted] + granted
        else:
            held, waits = [], set()
        self._unassume(pod for pod, _ in stops)
        if (stops or held) and ((whole and stops) or not all(job.is_ready for job in jobs)):
            return self._unreserve_all(jobs, stops, [*(each.pod for each in held), *granted])
        is_enough, decisions = False, dict[str, list[Decision]]()
        if not waits or all(job.can_do_without(waits) for job in jobs):
            for step in (self._pre_bind, self._call_bind):
                failed = step(granted, decisions)
                if not failed:
                    continue
                stops = stops + failed
                self._unassume(pod for pod, _ in failed)
                if whole or not all(job.is_ready for job in jobs):
                    return self._unreserve_all(jobs, stops, [*(each.pod for each in held), *granted])
                granted = [pod for pod in granted if pod.uid in decisions]
                if waits and not all(job.can_do_without(waits) for job in jobs):
                    break
            else:
                is_enough = True
        for job in jobs if reports_ready else ():
            self.on_ready(job, now)
        if is_enough:
            self._bind(granted, decisions, now)
        else:
            self._wait_for_members(granted, now)
        for pod, stop in stops:
            cycle.refuse_member(pod, stop, now)
        return None

    def _wait_for_members(self, pods: list[PodRecord], now: float) -> None:
        """Has permitted members wait until enough of their job are permitted."""
        cycle = self._cycle
        for pod in pods:
            coscheduling = cycle.profiles[pod.scheduler].coscheduling
            if pod.uid not in cycle.waiting and coscheduling is not None:
                cycle.wait_on_permit(pod, coscheduling, math.inf, now, permitted=True)

    def _pre_bind(self, pods: list[PodRecord], decisions: dict[str, list[Decision]]) -> Stops:
        """Collects the decisions of `pre_bind` for each pod and returns those that fail. A pod that
        waited also fails if it lost its place meanwhile."""
        cycle = self._cycle
        failed: Stops = []
        for pod in pods:
            profile = cycle.profiles[pod.scheduler]
            waiting = cycle.waiting.get(pod.uid)
            if waiting is not None and (lost := cycle.lost_place(waiting)) is not None:
                failed.append((pod, lost))
                continue
            short = cycle.short_of(profile, pod, pod.row) if waiting is not None else ""
            if short:
                node = cycle.cluster.nodes.name(pod.row)
                why = f"node {node}: {short} by the time the pod was permitted"
                failed.append(
                    (pod, Stop(profile.plugins.get(NODE_RESOURCES_FIT, profile.bind[0]), Outcome(why)))
                )
                continue
            found: list[Decision] = []
            stop = cycle.pre_bind(profile, pod, pod.row, found)
            if stop is not None:
                failed.append((pod, stop))
            else:
                decisions[pod.uid] = found
        return failed

    def _call_bind(self, pods: list[PodRecord], decisions: dict[str, list[Decision]]) -> Stops:
        """As `_pre_bind`, for `bind`."""
        cycle = self._cycle
        failed: Stops = []
        for pod in pods:
            profile = cycle.profiles[pod.scheduler]
            stop = cycle.binding(profile, pod, pod.row, decisions[pod.uid])
            if stop is not None:
                del decisions[pod.uid]
                failed.append((pod, stop))
        return failed

    def _bind(self, pods: list[PodRecord], decisions: dict[str, list[Decision]], now: float) -> None:
        cycle = self._cycle
        for pod in pods:
            cycle.waiting.pop(pod.uid, None)
            cycle.decisions += decisions[pod.uid]
            cycle.bound(cycle.profiles[pod.scheduler], pod, pod.row, now)

    def _unassume(self, pods: Iterable[PodRecord]) -> None:
        for pod in pods:
            self._cycle.waiting.pop(pod.uid, None)
            if pod.row >= 0:
                self._unreserved += 1
                self._cycle.unassume(self._cycle.profiles[pod.scheduler], pod)

    def _unreserve_all(self, jobs: list[Job], stops: Stops, others: list[PodRecord]) -> Unpermitted:
        lacking = next((text for job in jobs if (text := job.lacks(()))), "")
        members = {pod.uid: pod for pod in (*(pod for pod, _ in stops), *others)}
        self._unassume(reversed(members.values()))
        return Unpermitted(jobs, stops, list(members.values()), lacking)
