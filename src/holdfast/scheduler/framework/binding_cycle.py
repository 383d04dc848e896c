"""The binding cycle: takes an assumed pod through Permit, PreBind and Bind to a decision.

    assumed ──► permit ──► pre_bind ──► bind ──► post_bind      the decisions are added to the round's
                  │  └──► waits in Permit, until the plugin permits or refuses it, or its time is over
                  └─────► refused: unreserved, see `FailureHandler`

The bind itself is carried out elsewhere. `gang_permit` does the same for the members of jobs, which are
bound together, with the steps of this module.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.api import names
from holdfast.scheduler.cluster.decisions import Bind, Decision
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.checked_answers import check_binds, checked_outcome, decisions_of
from holdfast.scheduler.framework.config.plugin_sets import (
    DYNAMIC_RESOURCES,
    NODE_RESOURCES_FIT,
    RESERVATION,
)
from holdfast.scheduler.framework.failure_handler import FailureHandler, with_name
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.interface import FINE, ClusterPlugin, Outcome, Plugin
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue
from holdfast.scheduler.state.cluster import Cluster

NOT_ACTIVE = "reservation is not active"
"""The condition message of a pod whose reservation ends before it is bound."""
NO_BINDER = "no Bind plugin binds the pod"
NOT_CREATED = "reservation {} is not created yet, and no Permit plugin has the pod wait for it"
_FILTERED_BY = {"ports": "NodePorts", "volumes": "VolumeRestrictions"}
"""The plugins that filter what a reservation may lose."""


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


class BindingCycle:
    """Binds assumed pods, and keeps those that wait in Permit."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        profiles: Mapping[str, Profile],
        columns: ColumnStore,
        failures: FailureHandler,
        decisions: list[Decision],
    ) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self._queue = queue
        self._profiles = profiles
        self._columns = columns
        self._failures = failures
        self._decisions = decisions
        self._errors = cluster.plugin_errors
        self.waiting: dict[str, WaitingPod] = {}
        """The pods that wait in Permit, by uid."""
        cluster.node_listeners.append(self._node_changed)

    def bind(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """Binds an assumed pod, or has it wait in Permit. False if a plugin refused it: then it was
        unreserved."""
        return self._bind_from(profile, pod, pod.row, profile.permit, now)

    def _bind_from(
        self, profile: Profile, pod: PodRecord, row: int, permits: list[Plugin], now: float
    ) -> bool:
        """As `bind`, with these Permit plugins."""
        decided: list[Decision] = []
        stop = (
            self.run_permit(pod, row, permits)
            or self.run_pre_bind(profile, pod, row, decided)
            or self.run_bind(profile, pod, row, decided)
        )
        if stop is None:
            self._decisions.extend(decided)
            self.finish(profile, pod, row, now)
            return True
        if stop.outcome.message:
            self._refuse(profile, pod, row, stop.plugin, stop.outcome, now, next_scout=True)
            return False
        self.wait_on_permit(pod, stop.plugin, now + stop.outcome.wait, now)
        return True

    # Its steps

    def run_permit(self, pod: PodRecord, row: int, plugins: Iterable[Plugin]) -> Stop | None:
        """The outcome of the first plugin that makes the pod wait or refuses it.

        Of a preemption hold only plugins of the cluster's own state are asked: others are asked about
        the preemptor, and one that waits for a hold which waits itself would preempt without end."""
        if pod.reservation is not None and pod.reservation.preemptor:
            plugins = [plugin for plugin in plugins if isinstance(plugin, ClusterPlugin)]
        for plugin in plugins:
            try:
                outcome = plugin.permit(pod, row)
                if outcome is not FINE and any((checked := checked_outcome(plugin, outcome))[:2]):
                    return Stop(plugin, checked)
            except RAISED as error:
                return self._failed(plugin, "Permit", error)
        return None

    def run_pre_bind(
        self, profile: Profile, pod: PodRecord, row: int, decided: list[Decision]
    ) -> Stop | None:
        """Adds the decisions of PreBind plugins; the stop if one of them raises."""
        for plugin in profile.pre_bind:
            try:
                if more := plugin.pre_bind(pod, row):
                    decided += decisions_of(plugin, more) if plugin.name in profile.foreign else more
            except RAISED as error:
                return self._failed(plugin, "PreBind", error)
        return None

    def run_bind(
        self, profile: Profile, pod: PodRecord, row: int, decided: list[Decision]
    ) -> Stop | None:
        """Adds the decisions of the first Bind plugin that gives any; the stop if it fails, or if none
        gives any."""
        binders = profile.bind if pod.reservation is None else profile.reservation_binders
        if pod.reservation_uid and pod.reservation_uid in self._cluster.virtuals.by_id:
            # After a restart an annotation that names a virtual reservation would mean nothing.
            text = NOT_CREATED.format(pod.reservation_uid)
            return Stop(binders[-1], Outcome(text, retry=True)) if binders else None
        for plugin in binders:
            try:
                bound: Sequence[Decision] = plugin.bind(pod, row)
                if not bound:
                    continue
                if plugin.name in profile.foreign:
                    bound = decisions_of(plugin, bound)
                    check_binds(plugin, bound, pod.ref, self._table.name(row))
                if pod.job is not None:
                    bound = [_keeping_place(each) for each in bound]
                if pod.reservation_uid or self._cluster.managers.awake:
                    self._add_allocations(bound, pod, row, decided)
                else:
                    decided += bound
                return None
            except RAISED as error:
                return self._failed(plugin, "Bind", error)
        return Stop(binders[-1], Outcome(NO_BINDER, retry=True)) if binders else None

    def _add_allocations(
        self, bound: Sequence[Decision], pod: PodRecord, row: int, decided: list[Decision]
    ) -> None:
        """Adds the pod's bind with annotations of its reservation, devices and CPUs, whichever plugin
        binds it: after a restart they are read from the pod."""
        cluster, uid = self._cluster, pod.reservation_uid
        allocated = {names.RESERVATION_ALLOCATED: cluster.reservations.known[uid].mark} if uid else {}
        if cluster.managers.awake:
            allocated |= cluster.managers.annotations_for(pod, row)
        for each in bound:
            if isinstance(each, Bind):
                written = each.annotations
                both = {**written, **allocated} if written else allocated
                each = msgspec.structs.replace(each, annotations=both)
            decided.append(each)

    def finish(self, profile: Profile, pod: PodRecord, row: int, now: float) -> None:
        """The bind is decided: runs PostBind and wakes up pods that wait for the pod."""
        pod.bind_decided = True
        for plugin in profile.post_bind:
            try:
                if more := plugin.post_bind(pod, row):
                    is_foreign = plugin.name in profile.foreign
                    self._decisions.extend(decisions_of(plugin, more) if is_foreign else more)
            except RAISED as error:
                self._errors.note(plugin.name, "PostBind", error)
        self._queue.placed(pod, now)
        self._cluster.changed(Change.POD_PLACED)
        self._cluster.chronicle.note(now, pod.ref, "decided", self._table.name(row))

    def _failed(self, plugin: Plugin, point: str, error: BaseException) -> Stop:
        return Stop(plugin, Outcome(self._errors.note(plugin.name, point, error), retry=True))

    # Refusals

    def _refuse(
        self,
        profile: Profile,
        pod: PodRecord,
        row: int,
        plugin: Plugin,
        outcome: Outcome,
        now: float,
        next_scout: bool = False,
    ) -> None:
        """Unreserves an assumed pod that a plugin refused, and queues it again."""
        self._unreserve(pod, row, profile.reserve)
        self._failures.handle_outcome(profile, pod, plugin, outcome, now, next_scout)

    def unreserve(self, profile: Profile, pod: PodRecord) -> None:
        """Undoes `SchedulingCycle.reserve`."""
        self._unreserve(pod, pod.row, profile.reserve)

    def _unreserve(self, pod: PodRecord, row: int, plugins: Sequence[Plugin]) -> None:
        self.run_unreserve(pod, row, plugins)
        self._cluster.unassume(pod)

    def run_unreserve(self, pod: PodRecord, row: int, plugins: Sequence[Plugin]) -> None:
        """Runs `unreserve` of all these plugins in reverse order, even if one of them raises."""
        for plugin in reversed(plugins):
            try:
                plugin.unreserve(pod, row)
            except RAISED as error:
                self._errors.note(plugin.name, "Unreserve", error)

    # Pods that wait in Permit

    def wait_on_permit(
        self, pod: PodRecord, plugin: Plugin, deadline: float, now: float, permitted: bool = False
    ) -> None:
        """Has an assumed pod wait in Permit for the plugin."""
        self.waiting[pod.uid] = WaitingPod(pod, pod.row, plugin, deadline, permitted)
        pod.bind_decided = False
        self._queue.placed(pod, now)
        self._cluster.changed(Change.POD_PLACED)

    def next_deadline(self) -> float | None:
        """When the first of the waiting pods has waited long enough."""
        return min((w.deadline for w in self.waiting.values() if not w.permitted), default=None)

    def recheck_waiting(self, now: float) -> None:
        """Asks Permit plugins again about pods that wait; for members of jobs see `GangPermit`."""
        for waiting in list(self.waiting.values()):
            pod = waiting.pod
            if pod.job is not None:
                continue
            profile = self._profiles[pod.scheduler]
            if pod.phase is not Phase.ASSUMED:
                del self.waiting[pod.uid]
                continue
            plugin, outcome = waiting.plugin, self.permit_again(waiting)
            if not outcome.message and (lost := self.lost_place(waiting)) is not None:
                plugin, outcome = lost.plugin, lost.outcome
            if outcome.wait and now < waiting.deadline and not outcome.message:
                continue
            del self.waiting[pod.uid]
            if outcome.message or outcome.wait:
                if not outcome.message:
                    outcome = Outcome(f"timed out waiting for {plugin.name}")
                self._refuse(profile, pod, waiting.row, plugin, outcome, now)
                self._cluster.changed(Change.POD_LEFT)
            elif short := self.short_of(profile, pod, waiting.row):
                self._unreserve(pod, waiting.row, profile.reserve)
                why = f"node {self._table.name(waiting.row)}: {short} by the time the pod was permitted"
                self._failures.handle_unschedulable(profile, pod, why, {NODE_RESOURCES_FIT}, now)
                self._cluster.changed(Change.POD_LEFT)
            else:
                rest = profile.permit[profile.permit.index(waiting.plugin) + 1 :]
                if not self._bind_from(profile, pod, waiting.row, rest, now):
                    self._cluster.changed(Change.POD_LEFT)

    def permit_again(self, waiting: WaitingPod) -> Outcome:
        """The outcome of the plugin that the pod waits for, asked again."""
        plugin = waiting.plugin
        try:
            outcome = plugin.permit(waiting.pod, waiting.row)
            return outcome if outcome is FINE else checked_outcome(plugin, outcome)
        except RAISED as error:
            return Outcome(self._errors.note(plugin.name, "Permit", error), retry=True)

    def short_of(self, profile: Profile, pod: PodRecord, row: int) -> str:
        """The reason if the node of a pod that waited has become too small for its pods: others may
        have placed pods there or shrunk the node meanwhile. Empty if it has not."""
        if pod.reservation is not None:
            return ""
        allocatable, ledger = self._table.allocatable, self._cluster.ledger
        for name, test in self._columns.column(profile, pod.cls).filters:
            for slot, _, text in (test.needs or ()) if name == NODE_RESOURCES_FIT else ():
                if ledger.of_pods(slot, row) > allocatable.item(slot, row):
                    return text
        lost = self._cluster.managers.lost(pod)
        lost += [
            what
            for what in self._cluster.reservations.taken_from(pod)
            if _FILTERED_BY[what] in profile.filter_names
        ]
        return f"Insufficient {lost[0]}" if lost else ""

    def lost_place(self, waiting: WaitingPod) -> Stop | None:
        """Why a pod that waits in Permit is rejected whatever the plugin's answer is: its node or one
        of its ResourceClaims was deleted, its devices were withdrawn, or the reservation it is
        allocated from ends. None if none of these."""
        if waiting.node_gone:
            node = self._table.name(waiting.row)
            text = f"node {node} was deleted while the pod waited for {waiting.plugin.name}"
            return Stop(waiting.plugin, Outcome(text, retry=True))
        pod = waiting.pod
        if not self._cluster.reservations.can_be_bound(pod):
            plugin = self._profiles[pod.scheduler].plugins.get(RESERVATION, waiting.plugin)
            return Stop(plugin, Outcome(NOT_ACTIVE))
        claims = self._cluster.claims
        serves_claims = self._profiles[pod.scheduler].plugins.get(DYNAMIC_RESOURCES)
        if serves_claims is not None and claims.active:
            if gone := claims.gone(pod):
                return Stop(serves_claims, Outcome(gone))
            if lost := claims.lost_devices(pod, waiting.row):
                return Stop(serves_claims, Outcome(lost, retry=True))
        return None

    def reject_waiting(self, pod: PodRecord, message: str, now: float) -> None:
        """Rejects a pod that waits in Permit; it is tried again after a back-off."""
        waiting = self.waiting.pop(pod.uid, None)
        if waiting is not None:
            outcome = Outcome(message, retry=True)
            self._refuse(self._profiles[pod.scheduler], pod, waiting.row, waiting.plugin, outcome, now)
            self._cluster.changed(Change.POD_LEFT)

    def preempt_waiting(self, pod: PodRecord, now: float) -> None:
        """Rejects a victim that waits in Permit (kube-scheduler's `WaitingPod.Preempt`)."""
        waiting = self.waiting.pop(pod.uid)
        self._unreserve(pod, waiting.row, self._profiles[pod.scheduler].reserve)
        self._failures.handle_preempted(pod, now)

    def _node_changed(self, row: int) -> None:
        if self.waiting and not self._table.alive[row]:
            for waiting in self.waiting.values():
                waiting.node_gone = waiting.node_gone or waiting.row == row


def _keeping_place(decision: Decision) -> Decision:
    """The decision, as one about a pod that other pods are bound with."""
    is_bind = isinstance(decision, Bind)
    return msgspec.structs.replace(decision, keeps_place=True) if is_bind else decision
