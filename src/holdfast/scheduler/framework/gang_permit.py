"""Permission to bind for the members of jobs: for as many as a job needs, or for none.

    places taken ──► permit ──► enough are permitted ──► pre_bind of all ──► bind, post_bind
                       │  └──► too few yet: those permitted wait with those that plugins make wait
                       └─────► too few are left: every member gives its place back

Members beyond those a job needs may be refused alone, and wait alone. Nothing of a job is decided
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
"""What a victim is told that waited for permission to be bound."""

NOT_ACTIVE = "reservation is not active"
"""What a pod is told whose reservation ends before it is bound."""

if TYPE_CHECKING:
    from holdfast.scheduler.framework.scheduling_cycle import Cycle


class WaitingPod:
    """A pod that has its node but must wait for a plugin's permission."""

    __slots__ = ("deadline", "node_gone", "permitted", "plugin", "pod", "row")

    def __init__(
        self, pod: PodRecord, row: int, plugin: Plugin, deadline: float, permitted: bool = False
    ) -> None:
        self.pod = pod
        self.row = row
        self.plugin = plugin
        self.deadline = deadline
        self.permitted = permitted
        """It waits for other members of its job only."""
        self.node_gone = False
        """Whether its node was deleted, even if there is another of the same name by now."""


class Stop(NamedTuple):
    """A plugin that makes a pod wait, or does not let it be bound."""

    plugin: Plugin
    outcome: Outcome
    preempted: bool = False
    """The pod waited for the plugin, and has to make room for another: no plugin refuses it."""

    def text(self) -> str:
        """The reason, with the plugin that gives it."""
        if self.preempted:
            return self.outcome.message
        return with_name(self.plugin.name, self.outcome.message)


def with_name(plugin: str, message: str) -> str:
    return message if plugin in message else f"plugin {plugin} refuses: {message}"


Stops = list[tuple[PodRecord, Stop]]
_Together = dict[tuple[str, ...], tuple[list[Job], Stops]]
"""What members of jobs that belong together were refused for, by the names of the jobs."""


class Unpermitted(NamedTuple):
    """Members that gave their places back because the job cannot be bound as a whole."""

    jobs: list[Job]
    stops: Stops
    """Those that were refused themselves, and by whom."""
    members: list[PodRecord]
    """All of them."""
    lacking: str
    """What the job has of what it needs without those refused."""


def nothing(about: Job | Unpermitted, now: float) -> None:
    return None


class GangPermit:
    def __init__(self, cycle: "Cycle") -> None:
        self._cycle = cycle
        self._jobs = cycle.cluster.jobs
        self.on_ready: Callable[[Job, float], None] = nothing
        """Told of each job of which as many have their places as it needs."""
        self.on_lost: Callable[[Unpermitted, float], None] = nothing
        """Told of members that had to give their places back to make room for others."""
        self._given_back = 0
        """How many places were given back."""

    def bind(
        self,
        placed: Sequence[tuple[Profile, PodRecord]],
        now: float,
        reports_ready: bool = False,
        whole: bool = False,
    ) -> Unpermitted | None:
        """Members of one job, or of jobs that belong together, have taken places and are to be bound.
        If that cannot be, or with `whole` not of all, they have given their places back."""
        cycle = self._cycle
        granted: list[PodRecord] = []
        stops: Stops = []
        for profile, pod in placed:
            stop = cycle.ask_permit(pod, pod.row, profile.permit)
            if stop is None:
                granted.append(pod)
            elif stop.outcome.message:
                stops.append((pod, stop))
            else:
                cycle.have_wait(pod, stop.plugin, now + stop.outcome.wait, now)
        first = placed[0][1].job if placed else None
        jobs = self._jobs.partners(first) if first is not None else []
        return self._settle(jobs, granted, stops, now, reports_ready, whole)

    def recheck(self, now: float) -> list[Unpermitted]:
        """Asks again for the permission of members that wait for it."""
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
            stop = cycle.lost_place(waiting) if waiting.permitted else self._ask_again(waiting, now)
            if stop is not None:
                stops.append((pod, stop))
        given_back = self._given_back
        found = [self._settle(jobs, [], stops, now) for jobs, stops in together.values()]
        if self._given_back > given_back:
            cycle.cluster.changed(Change.POD_LEFT)
        return [each for each in found if each is not None]

    def reject(self, victims: Iterable[PodRecord], now: float) -> None:
        """Members that wait give their places back to make room for others."""
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

    def _ask_again(self, waiting: WaitingPod, now: float) -> Stop | None:
        """Who refuses the pod, if anybody does; it may go on waiting, or be permitted by now."""
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
        stop = cycle.ask_permit(pod, waiting.row, permits[permits.index(plugin) + 1 :])
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
        """Binds those that are permitted if they are enough, with those that waited for them."""
        cycle = self._cycle
        if cycle.waiting and jobs:
            held = [each for each in cycle.waiting.values() if any(each.pod.job is job for job in jobs)]
            refused = {pod.uid for pod, _ in stops}
            waits = {each.pod.uid for each in held if not each.permitted} - refused
            granted = [each.pod for each in held if each.permitted] + granted
        else:
            held, waits = [], set()
        self._give_back(pod for pod, _ in stops)
        if (stops or held) and ((whole and stops) or not all(job.is_ready for job in jobs)):
            return self._lose(jobs, stops, [*(each.pod for each in held), *granted])
        is_enough, decisions = False, dict[str, list[Decision]]()
        if not waits or all(job.can_do_without(waits) for job in jobs):
            for step in (self._prepare, self._ask_binds):
                failed = step(granted, decisions)
                if not failed:
                    continue
                stops = stops + failed
                self._give_back(pod for pod, _ in failed)
                if whole or not all(job.is_ready for job in jobs):
                    return self._lose(jobs, stops, [*(each.pod for each in held), *granted])
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
            self._have_wait(granted, now)
        for pod, stop in stops:
            cycle.refuse_alone(pod, stop, now)
        return None

    def _have_wait(self, pods: list[PodRecord], now: float) -> None:
        """They are permitted, and wait until enough of their job are."""
        cycle = self._cycle
        for pod in pods:
            coscheduling = cycle.profiles[pod.scheduler].coscheduling
            if pod.uid not in cycle.waiting and coscheduling is not None:
                cycle.have_wait(pod, coscheduling, math.inf, now, permitted=True)

    def _prepare(self, pods: list[PodRecord], decisions: dict[str, list[Decision]]) -> Stops:
        """What `pre_bind` of the plugins decides of each; the refused are returned. What has waited may
        have lost its place."""
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

    def _ask_binds(self, pods: list[PodRecord], decisions: dict[str, list[Decision]]) -> Stops:
        """The same for `bind`."""
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

    def _give_back(self, pods: Iterable[PodRecord]) -> None:
        for pod in pods:
            self._cycle.waiting.pop(pod.uid, None)
            if pod.row >= 0:
                self._given_back += 1
                self._cycle.give_back(self._cycle.profiles[pod.scheduler], pod)

    def _lose(self, jobs: list[Job], stops: Stops, others: list[PodRecord]) -> Unpermitted:
        lacking = next((text for job in jobs if (text := job.lacks(()))), "")
        members = {pod.uid: pod for pod in (*(pod for pod, _ in stops), *others)}
        self._give_back(reversed(members.values()))
        return Unpermitted(jobs, stops, list(members.values()), lacking)
