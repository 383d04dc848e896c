"""The scheduling cycle: takes one pod from the queue to a decision.

The column of a pod's class has the feasible nodes and their scores. The pod is assumed on the best node
at once, so that the next pod sees its capacity claimed. The bind is a decision, which is carried out
elsewhere.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from holdfast.api import names
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.decisions import (
    Bind,
    Decision,
    Emit,
    Evict,
    Nominate,
    Preempt,
    SetPodScheduled,
)
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.plugin_errors import RAISED
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.pods import Phase, PodRecord
from holdfast.scheduler.framework.checked_answers import (
    check_binds,
    check_nomination,
    checked_outcome,
    decisions_of,
)
from holdfast.scheduler.framework.diagnosis import (
    NO_NODES,
    NodeRejection,
    Verdict,
    not_named_text,
    verdict,
)
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.framework.dynamic_provisioning import Provisioning
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.column_store import ColumnStore
from holdfast.scheduler.framework.gang_permit import (
    NOT_ACTIVE,
    PREEMPTED,
    GangPermit,
    Stop,
    WaitingPod,
    with_name,
)
from holdfast.scheduler.framework.interface import FINE, Nomination, ObjectWarning, Outcome, Plugin
from holdfast.scheduler.framework.plugin_names import NODE_RESOURCES_FIT, RESERVATION
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.reservation_diagnosis import about_reservations
from holdfast.scheduler.framework.scheduling_queue import Key, SchedulingQueue
from holdfast.scheduler.reservations import ReservationInfo

_EVENT_LIMIT = 1024
"""The longest message of an Event; the condition has it in full."""
_FILTERED_BY = {"ports": "NodePorts", "volumes": "VolumeRestrictions"}
"""The plugins that filter what a reservation may lose."""
NO_BINDER = "no Bind plugin binds the pod"
PINNING = "NodeAffinity"
"""The plugin whose node affinity pins a DaemonSet's pod to one node."""


class Refused(NamedTuple):
    """Why `reserve` of a plugin refused a pod on its node."""

    plugin: str
    message: str
    has_failed: bool = False
    """Whether the plugin raised, rather than refused."""


class Cycle:
    """Schedules single pods; actions and gangs use its steps."""

    def __init__(
        self, cluster: Cluster, queue: SchedulingQueue, profiles: Mapping[str, Profile]
    ) -> None:
        self.cluster = self._cluster = cluster
        self._table = cluster.nodes
        self._queue = queue
        self._preemption_holds = cluster.reservations.preemption_holds
        self._errors = cluster.plugin_errors
        self._failed_places: dict[str, Refused] = {}
        """Refusals that are not yet in the pod's condition, by uid."""
        self._failed_dry_runs: dict[str, tuple[PodRecord, Verdict]] = {}
        """Pods for which a plugin raised in a dry run of this round, by uid."""
        self.column = ColumnStore(cluster).column
        self._provisioning = Provisioning(self, cluster)
        self.gang_permit = GangPermit(self)
        self.profiles = profiles
        """By scheduler name."""
        self.waiting: dict[str, WaitingPod] = {}
        cluster.node_listeners.append(self._node_changed)
        self.decisions: list[Decision] = []
        self.rejected_victims: list[Preempt] = []
        """Preemptions of the last round that were not carried out, because the victims waited in
        Permit and were rejected there."""
        self.terse = False
        """Whether so many pods were woken up that conditions of those that stay unschedulable are not
        updated."""

    def schedule(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """Tries to place the pod on a node; whether it was placed."""
        if not self._table.count:
            self._nominate(pod, "")
            self.fail(profile, pod, NO_NODES, (), now)
            return False
        if pod.reservation is not None and pod.reservation.preemptor:
            return self._place_preemption_hold(profile, pod, pod.reservation, now)
        if profile.provisions and self._provisioning.concerns(pod):
            return self._provisioning.schedule(profile, pod, now)
        return self.place(profile, pod, now)

    def place(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """As `schedule`, on existing nodes and reservations."""
        column = self.column(profile, pod.cls)
        row = self.find_row(profile, pod, column)
        if row < 0:
            self._no_node(profile, pod, column, now)
            return False
        self.nominate_reservation(profile, pod, column, row)
        return self.assume_and_bind(profile, pod, row, now)

    def nominate_reservation(
        self, profile: Profile, pod: PodRecord, column: ClassColumn, row: int
    ) -> None:
        """Sets the reservation that the pod is allocated from on the row, if any."""
        if column.owned:
            pod.reservation_uid = column.reservation_uid(row)
        if self._preemption_holds and (hold := self._preemption_holds.of(pod, row)) is not None:
            pod.reservation_uid = self._nominated_reservation(profile, pod, row, column, hold)

    def take(self, pod: PodRecord) -> bool:
        """Removes a pod from the queue to schedule it now; whether it was queued."""
        if self._queue.place(pod.uid) not in ("active", "backoff", "unschedulable"):
            return False
        self._queue.take(pod)
        return True

    def _place_preemption_hold(
        self, profile: Profile, pod: PodRecord, hold: ReservationInfo, now: float
    ) -> bool:
        """Places a preemption hold on its node, whatever still runs there."""
        row = self._table.row(hold.wants_node)
        owner = self._cluster.pods.get(hold.preemptor)
        placed = owner is not None and owner.phase is not Phase.PENDING
        if placed or hold.released or hold.deleting or row is None or not self._table.alive[row]:
            self._queue.forget(pod)
            return False
        if owner is not None and self._place_preemptor(owner, hold, row, now):
            return True
        self._queue.take(pod)  # a failed attempt at the owner may have queued the hold again
        return self.assume_and_bind(profile, pod, row, now)

    def _place_preemptor(self, owner: PodRecord, hold: ReservationInfo, row: int, now: float) -> bool:
        """Places the preemptor instead of its hold, if the victims were gone before the hold could be
        placed. Tried once per hold, since the preemptor may have to wait in Permit."""
        if hold.taken_early or owner.nominated != hold.wants_node:
            return False
        profile = self.profiles.get(owner.scheduler)
        if profile is None or owner.job is not None or owner.queue or self._cluster.jobs.queues:
            return False  # it waits for more than a node
        if profile.provisions and self._provisioning.concerns(owner):
            return False
        column = self.column(profile, owner.cls)
        dry_run = DryRun(self._cluster, column, owner, self._is_pinned(profile, owner))
        if column.rejected is not None or not dry_run.fits(row) or not self.take(owner):
            return False
        hold.taken_early = True
        self.nominate_reservation(profile, owner, column, row)
        owner.reservation_uid = owner.reservation_uid or hold.uid
        return self.assume_and_bind(profile, owner, row, now)

    def _nominated_reservation(
        self, profile: Profile, pod: PodRecord, row: int, column: ClassColumn, hold: ReservationInfo
    ) -> str:
        """The reservation that a preemptor is allocated from on the row of its hold: the hold, unless
        it is too small and another reservation is enough. A hold that is Waiting is not used."""
        enough = all(hold.amounts.get(slot, 0) >= amount for slot, amount in pod.cls.requests)
        if not hold.waiting and (enough or not column.owned):
            return hold.uid
        dry_run = DryRun(self._cluster, column, pod, self._is_pinned(profile, pod))
        return dry_run.reservation_uid(row, ()) or ("" if hold.waiting else hold.uid)

    def find_row(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> int:
        """The best row for the pod, or -1. Its nominated node comes before all others."""
        if not self._cluster.nominator and pod.pinned_node is None:
            return column.best()
        if column.rejected is not None:
            return -1
        row = self._find_row_with_nominations(profile, pod, column)
        if column.fails():
            self._note_failed_dry_run(pod, column.verdict())
            return -1
        return row

    def _find_row_with_nominations(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> int:
        """As `find_row`, where pods have nominated nodes or the pod is pinned to a node."""
        table, nominations = self._table, self._cluster.nominator
        pinned = self._is_pinned(profile, pod)
        dry_run = DryRun(self._cluster, column, pod, pinned)
        if pod.nominated and not (pinned and pod.nominated != pod.pinned_node):
            row = table.row(pod.nominated)
            if row is not None and table.alive[row] and dry_run.fits(row):
                return row
        if pinned:
            row = table.row(pod.pinned_node or "")
            return row if row is not None and table.alive[row] and dry_run.fits(row) else -1
        row = column.best()
        if row < 0 or (column.is_absolute and table.name(row) not in nominations):
            return row
        if column.is_local and column.diagnosis.nominated_check is not None:
            # The pod's own nominated node was tried above.
            feasible = column.diagnosis.feasible()
            feasible[dry_run.rows_of_other_queues()] = False
            return column.best_of(feasible)
        left = np.ones(table.size, dtype=np.bool_)
        if column.is_absolute:
            while row >= 0 and table.name(row) in nominations and not dry_run.fits(row):
                left[row] = False
                row = column.best(left)
            return row
        nominated_rows = [at for name in nominations if (at := table.row(name)) is not None]
        left[[at for at in nominated_rows if column.fits_row(at) and not dry_run.fits(at)]] = False
        return column.best_of(left)

    def new_round(self) -> None:
        """Allows plugins that failed to be asked again."""
        self._errors.round += 1
        self._failed_places.clear()

    def _note_failed_dry_run(self, pod: PodRecord, why: Verdict) -> None:
        """Notes that a plugin raised in a dry run, for `report_failed_dry_runs`: actions that try pods
        do not write conditions."""
        self._failed_dry_runs[pod.uid] = pod, why

    def propose(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Nomination:
        """As `post_filter`, for actions, which do not write conditions: failures are noted."""
        found = self.post_filter(profile, pod, column)
        if found.has_failed and not column.fails():
            failed = frozenset(plugin.name for plugin in profile.post_filters)
            self._note_failed_dry_run(pod, Verdict(found.message, failed, error=True, has_failed=True))
        return found

    def report_failed_dry_runs(self, now: float) -> None:
        """Sets the conditions of pods for which plugins raised in dry runs of this round, and puts the
        pods in back-off."""
        failed, self._failed_dry_runs = self._failed_dry_runs, {}
        for uid, (pod, why) in failed.items():
            if (
                self._cluster.pods.get(uid) is not pod
                or pod.phase is not Phase.PENDING
                or pod.deletion_pending
            ):
                continue
            queued = pod if pod.job is None else pod.job.leader
            if queued is not None and self._queue.place(queued.uid) == "unschedulable":
                self._queue.take(queued)
                self._queue.retry_later(queued, now)
            pod.rejected_by = why.plugins
            self.set_unschedulable(pod, why.reasons, now, "SchedulerError")

    def note_failure(self, pod: PodRecord, column: ClassColumn) -> None:
        """Notes that a plugin raised for the pod's class, as the reason for its condition, even if the
        plugin's answer is dropped before the condition is set."""
        if column.has_failed() and (why := column.verdict()).has_failed:
            self._failed_places[pod.uid] = Refused(min(why.plugins), why.reasons, True)

    def was_refused(self, pod: PodRecord) -> bool:
        """Whether a plugin refused the pod, and its condition does not have the reason yet."""
        return pod.uid in self._failed_places

    def verdict(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Verdict:
        """Why no node is feasible for the pod."""
        failed = self._failed_places.pop(pod.uid, None) if self._failed_places else None
        if failed is not None:
            plugins, error = frozenset((failed.plugin,)), failed.has_failed
            text = failed.message if error else with_name(failed.plugin, failed.message)
            return Verdict(text, plugins, error=error, has_failed=error)
        found = self._verdict(profile, pod, column)
        if column.has_failed():
            column.judge()  # a formula for reasons may have raised just now
            return column.verdict() if column.rejected is not None else found
        return found

    def _verdict(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Verdict:
        if column.rejected is not None:
            return column.verdict()
        dry_run = DryRun(self._cluster, column, pod, self._is_pinned(profile, pod))
        if self._is_pinned(profile, pod):
            # Only the named node is filtered; the others share one reason.
            rejections: dict[NodeRejection, int] = {}
            others = self._table.count
            row = self._table.row(pod.pinned_node or "")
            if row is not None and self._table.alive[row]:
                others -= 1
                rejections[dry_run.rejection(row)] = 1
            if others:
                rejections[NodeRejection(PINNING, (not_named_text([PINNING]),), False)] = others
            return verdict(rejections)
        corrections = dry_run.corrections() if self._cluster.nominator else {}
        if not corrections:
            return column.verdict()
        counts = Counter(column.diagnosis.histogram())
        counts.subtract(Counter(column.diagnosis.known_rejection(row) for row in corrections))
        counts.update(corrections.values())
        return verdict(counts)

    def may_wake(self, profile: Profile, column: ClassColumn) -> int:
        """The changes that can help pods of the class, whichever of its filters rejects nodes."""
        if column.rejected is not None:
            return profile.wakes_on((column.rejected_by,))
        names = {name for name, _ in column.filters}
        if column.owned:
            names.add(profile.reservation_plugin)
        return profile.wakes_on(names)

    def rejections(
        self, profile: Profile, pod: PodRecord, column: ClassColumn
    ) -> dict[str, NodeRejection]:
        """The rejection of each node by name, for questions about one pod."""
        table = self._table
        found: dict[str, NodeRejection] = {}
        dry_run = DryRun(self._cluster, column, pod, self._is_pinned(profile, pod))
        for name, row in table.names():
            if not table.alive[row]:
                continue
            if column.rejected is not None:
                rejected = column.rejected
                found[name] = NodeRejection(
                    column.rejected_by, (rejected.message,), rejected.resolvable
                )
            elif self._is_pinned(profile, pod) and name != pod.pinned_node:
                found[name] = NodeRejection(PINNING, (not_named_text([PINNING]),), False)
            else:
                found[name] = dry_run.rejection(row)
        return found

    def _is_pinned(self, profile: Profile, pod: PodRecord) -> bool:
        return pod.pinned_node is not None and PINNING in profile.filter_names

    def recheck_waiting(self, profiles: dict[str, Profile], now: float) -> None:
        """Asks Permit plugins again about pods that wait."""
        for waiting in list(self.waiting.values()):
            pod = waiting.pod
            if pod.job is not None:
                continue  # see `Gangs.recheck_waiting`
            profile = profiles[pod.scheduler]
            if pod.phase is not Phase.ASSUMED:
                del self.waiting[pod.uid]
                continue
            plugin, outcome = waiting.plugin, self.permission(waiting.plugin, pod, waiting.row)
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
                self._unassume(pod, waiting.row, profile.reserve)
                why = f"node {self._table.name(waiting.row)}: {short} by the time the pod was permitted"
                self.fail(profile, pod, why, {NODE_RESOURCES_FIT}, now)
                self._cluster.changed(Change.POD_LEFT)
            else:
                rest = profile.permit[profile.permit.index(waiting.plugin) + 1 :]
                if not self._permit(profile, pod, waiting.row, rest, now):
                    self._cluster.changed(Change.POD_LEFT)

    def short_of(self, profile: Profile, pod: PodRecord, row: int) -> str:
        """The reason if the node of a pod that waited has become too small for its pods: others may
        have placed pods there or shrunk the node meanwhile. Empty if it has not."""
        if pod.reservation is not None:
            return ""
        allocatable, ledger = self._table.allocatable, self._cluster.ledger
        for name, test in self.column(profile, pod.cls).filters:
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

    def withdraw(self, pod: PodRecord, message: str, now: float) -> None:
        """Rejects a pod that waits in Permit; it is tried again after a back-off."""
        waiting = self.waiting.pop(pod.uid, None)
        if waiting is not None:
            outcome = Outcome(message, retry=True)
            self._refuse(self.profiles[pod.scheduler], pod, waiting.row, waiting.plugin, outcome, now)
            self._cluster.changed(Change.POD_LEFT)

    def lost_place(self, waiting: WaitingPod) -> Stop | None:
        """Why a pod that waits in Permit is rejected whatever the plugin's answer is: its node was
        deleted, or the reservation it is allocated from ends. None if neither."""
        if waiting.node_gone:
            node = self._table.name(waiting.row)
            text = f"node {node} was deleted while the pod waited for {waiting.plugin.name}"
            return Stop(waiting.plugin, Outcome(text, retry=True))
        pod = waiting.pod
        if not self._cluster.reservations.can_be_bound(pod):
            plugin = self.profiles[pod.scheduler].plugins.get(RESERVATION, waiting.plugin)
            return Stop(plugin, Outcome(NOT_ACTIVE))
        return None

    def _node_changed(self, row: int) -> None:
        if self.waiting and not self._table.alive[row]:
            for waiting in self.waiting.values():
                waiting.node_gone = waiting.node_gone or waiting.row == row

    def next_deadline(self) -> float | None:
        return min((w.deadline for w in self.waiting.values() if not w.permitted), default=None)

    # A node was found

    def assume_and_bind(self, profile: Profile, pod: PodRecord, row: int, now: float) -> bool:
        """Assumes the pod on the row and binds it, or has it wait in Permit; whether it has its
        node."""
        before = self._cluster.changes
        refused = self.assume(profile, pod, row)
        if refused is None:
            if self._permit(profile, pod, row, profile.permit, now):
                return True
        else:
            self._failed_places.pop(pod.uid, None)
            if refused.has_failed:
                self.fail_for_now(pod, refused.message, {refused.plugin}, now)
            else:
                self.fail(profile, pod, refused.message, {refused.plugin}, now, next_scout=True)
        # Undoing an assumed pod frees nothing, so it must wake no pod, least of all this one.
        self._cluster.undo_changes(before)
        return False

    def assume(self, profile: Profile, pod: PodRecord, row: int) -> Refused | None:
        """Assumes the pod on the row and runs `reserve` of the plugins; the refusal if one refuses."""
        before = self._cluster.changes
        if self._failed_places:
            self._failed_places.pop(pod.uid, None)
        self._cluster.assume(pod, row)
        for plugin in profile.reserving:
            try:
                outcome = plugin.reserve(pod, row)
                if outcome is FINE:
                    continue
                message, has_failed = checked_outcome(plugin, outcome).message, False
            except RAISED as error:
                message, has_failed = self._errors.note(plugin.name, "Reserve", error), True
            if message:
                self._unassume(pod, row, profile.reserve[: profile.reserve.index(plugin) + 1])
                self._cluster.undo_changes(before)
                refused = self._failed_places[pod.uid] = Refused(plugin.name, message, has_failed)
                return refused
        return None

    def unassume(self, profile: Profile, pod: PodRecord) -> None:
        """Undoes `assume`."""
        self._unassume(pod, pod.row, profile.reserve)

    def bind(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """Binds an assumed pod, or has it wait in Permit."""
        return self._permit(profile, pod, pod.row, profile.permit, now)

    def _permit(
        self, profile: Profile, pod: PodRecord, row: int, plugins: list[Plugin], now: float
    ) -> bool:
        """Runs Permit from these plugins on, then PreBind and Bind; whether the pod has its node."""
        decided: list[Decision] = []
        stop = (
            self.run_permit(pod, row, plugins)
            or self.pre_bind(profile, pod, row, decided)
            or self.binding(profile, pod, row, decided)
        )
        if stop is None:
            self.decisions += decided
            self.bound(profile, pod, row, now)
            return True
        if stop.outcome.message:
            self._refuse(profile, pod, row, stop.plugin, stop.outcome, now, next_scout=True)
            return False
        self.wait_on_permit(pod, stop.plugin, now + stop.outcome.wait, now)
        return True

    def run_permit(self, pod: PodRecord, row: int, plugins: Iterable[Plugin]) -> Stop | None:
        """The outcome of the first plugin that makes the pod wait or refuses it."""
        for plugin in plugins:
            try:
                outcome = plugin.permit(pod, row)
                if outcome is not FINE and any((checked := checked_outcome(plugin, outcome))[:2]):
                    return Stop(plugin, checked)
            except RAISED as error:
                return self._failed(plugin, "Permit", error)
        return None

    def pre_bind(
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

    def binding(
        self, profile: Profile, pod: PodRecord, row: int, decided: list[Decision]
    ) -> Stop | None:
        """Adds the decisions of the first Bind plugin that gives any; the stop if it fails, or if none
        gives any."""
        binders = profile.bind if pod.reservation is None else profile.reservation_binders
        for plugin in binders:
            try:
                bound: Sequence[Decision] = plugin.bind(pod, row)
                if not bound:
                    continue
                if plugin.name in profile.foreign:
                    bound = decisions_of(plugin, bound)
                    check_binds(plugin, bound, pod.ref, self._table.name(row))
                if pod.reservation_uid or self._cluster.managers.awake:
                    self._bind_with_allocations(bound, pod, row, decided)
                else:
                    decided += bound
                return None
            except RAISED as error:
                return self._failed(plugin, "Bind", error)
        return Stop(binders[-1], Outcome(NO_BINDER, retry=True)) if binders else None

    def _bind_with_allocations(
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
                each = Bind(each.pod, each.node, {**written, **allocated} if written else allocated)
            decided.append(each)

    def _failed(self, plugin: Plugin, point: str, error: BaseException) -> Stop:
        return Stop(plugin, Outcome(self._errors.note(plugin.name, point, error), retry=True))

    def bound(self, profile: Profile, pod: PodRecord, row: int, now: float) -> None:
        """Called when the bind is decided: runs PostBind and wakes up pods that wait for the pod."""
        pod.bind_decided = True
        for plugin in profile.post_bind:
            try:
                if more := plugin.post_bind(pod, row):
                    is_foreign = plugin.name in profile.foreign
                    self.decisions += decisions_of(plugin, more) if is_foreign else more
            except RAISED as error:
                self._errors.note(plugin.name, "PostBind", error)
        self._queue.placed(pod, now)
        self._cluster.changed(Change.POD_PLACED)
        self._cluster.chronicle.note(now, pod.ref, "decided", self._table.name(row))

    def wait_on_permit(
        self, pod: PodRecord, plugin: Plugin, deadline: float, now: float, permitted: bool = False
    ) -> None:
        """Has an assumed pod wait in Permit for the plugin."""
        self.waiting[pod.uid] = WaitingPod(pod, pod.row, plugin, deadline, permitted)
        pod.bind_decided = False
        self._queue.placed(pod, now)
        self._cluster.changed(Change.POD_PLACED)

    def refuse_member(self, pod: PodRecord, stop: Stop, now: float) -> None:
        """Sets the condition of a gang member that was refused by itself, and queues it again."""
        if stop.preempted:
            self._preempted(pod, now)
            return
        self._rejected(
            self.profiles[pod.scheduler], pod, stop.plugin, stop.outcome, now, next_scout=True
        )

    def permission(self, plugin: Plugin, pod: PodRecord, row: int) -> Outcome:
        try:
            outcome = plugin.permit(pod, row)
            return outcome if outcome is FINE else checked_outcome(plugin, outcome)
        except RAISED as error:
            return Outcome(self._errors.note(plugin.name, "Permit", error), retry=True)

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
        """Undoes an assumed pod that a plugin refused, and queues it again."""
        self._unassume(pod, row, profile.reserve)
        self._rejected(profile, pod, plugin, outcome, now, next_scout)

    def _rejected(
        self,
        profile: Profile,
        pod: PodRecord,
        plugin: Plugin,
        outcome: Outcome,
        now: float,
        next_scout: bool,
    ) -> None:
        if not outcome.retry or pod.deletion_pending:
            self.fail(profile, pod, outcome.message, {plugin.name}, now, next_scout=next_scout)
            return
        self._queue.retry_later(pod, now)
        self.set_unschedulable(pod, outcome.message, now, "SchedulerError")

    def _unassume(self, pod: PodRecord, row: int, reserved: list[Plugin]) -> None:
        self.unreserve(pod, row, reserved)
        self._cluster.unassume(pod)

    def unreserve(self, pod: PodRecord, row: int, reserved: Sequence[Plugin]) -> None:
        """Runs `unreserve` of all these plugins in reverse order, even if one of them raises."""
        for plugin in reversed(reserved):
            try:
                plugin.unreserve(pod, row)
            except RAISED as error:
                self._errors.note(plugin.name, "Unreserve", error)

    # No node was found

    def _no_node(self, profile: Profile, pod: PodRecord, column: ClassColumn, now: float) -> None:
        if self.terse and self._queue.is_scout(pod) and self._needs_free_node(profile, pod):
            wakes_on = pod.wakes_on | self.may_wake(profile, column)
            self._queue.reject(pod, self.group_key(profile, pod), wakes_on, now)
            return
        why = self.verdict(profile, pod, column)
        if why.has_failed:
            self._nominate(pod, "")
            self.fail_for_now(pod, why.reasons, why.plugins, now)
            return
        # Other pods of the class get the same result, unless this pod has a node of its own.
        next_scout = bool(pod.nominated) or pod.pinned_node is not None
        nomination = Nomination("") if why.error else self.post_filter(profile, pod, column)
        if column.fails():  # in the dry run
            why = column.verdict()
            self._nominate(pod, "")
            self.fail_for_now(pod, why.reasons, why.plugins, now)
            return
        self._warn(nomination)
        if nomination.claims:
            self._assume_all(profile, nomination, now)
            return
        self.apply(nomination.decisions)
        if nomination.node is not None:
            self._nominate(pod, nomination.node)
        self._note_nominated_reservation(pod)
        message = why.message(self._table.count, nomination.message)
        if nomination.has_failed and not nomination.node:
            self.fail_for_now(pod, message, why.plugins, now)
            return
        next_scout = next_scout or bool(nomination.node)
        self.fail(profile, pod, message, why.plugins, now, why.condition, next_scout)

    def _nominate(self, pod: PodRecord, node: str) -> None:
        if node != pod.nominated:
            self._cluster.nominate(pod, node)
            self.decisions.append(Nominate(pod.ref, node))

    def _note_nominated_reservation(self, pod: PodRecord) -> None:
        """Records the reservation that the pod will be allocated from on its nominated node once
        terminating pods are gone: until then that capacity counts as the pod's."""
        row = self._table.row(pod.nominated) if pod.nominated else None
        if row is None:
            return
        profile = self.profiles[pod.scheduler]
        column = self.column(profile, pod.cls)
        if not column.owned:
            return
        there = list(self._cluster.ledger.pods.get(row, {}).values())
        terminating = [each for each in there if each.being_preempted or each.cls.terminating]
        found = self._dry_run_of(profile, pod, column).reservation_uid(row, terminating) or ""
        if found != pod.nominated_reservation:
            pod.nominated_reservation = found
            self._cluster.epoch.usage.add(row)

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Adopts decisions that were proposed: victims count as being preempted from now on, so that no
        further decision is made about them, and nominations are set or cleared. Victims that wait in
        Permit are neither deleted nor evicted; see `_reject_waiting`. The caller passes all victims of
        one preemptor or reclaimer together, since a job of which members wait is rejected as a
        whole."""
        pods = self._cluster.pods
        if self.waiting:
            victims = [each.pod.uid for each in decisions if isinstance(each, Preempt | Evict)]
            rejected = self._reject_waiting(victims)
            kept: list[Decision] = []
            for each in decisions:
                if not (isinstance(each, Preempt | Evict) and each.pod.uid in rejected):
                    kept.append(each)
                elif isinstance(each, Preempt):
                    self.rejected_victims.append(each)
            decisions = kept
        self.decisions += decisions
        nominated: list[PodRecord] = []
        for decision in decisions:
            if isinstance(decision, Preempt | Evict):
                if (pod := pods.get(decision.pod.uid)) is not None:
                    pod.being_preempted = True
            elif isinstance(decision, Nominate) and (pod := pods.get(decision.pod.uid)) is not None:
                self._cluster.nominate(pod, decision.node)
                nominated.append(pod)
        for pod in nominated:
            self._note_nominated_reservation(pod)

    def _reject_waiting(self, victims: Iterable[str]) -> Collection[str]:
        """Rejects the victims that wait in Permit, with waiting members of their jobs that are then too
        few. Their objects stay, and they are tried again after a back-off. Returns the uids of these
        victims."""
        found = {
            uid: waiting.pod
            for uid in victims
            if (waiting := self.waiting.get(uid)) is not None and waiting.pod.phase is Phase.ASSUMED
        }
        if not found:
            return ()
        now = self._cluster.now
        for uid, pod in found.items():
            if pod.job is None:
                waiting = self.waiting.pop(uid)
                self._unassume(pod, waiting.row, self.profiles[pod.scheduler].reserve)
                self._preempted(pod, now)
        self.gang_permit.reject([pod for pod in found.values() if pod.job is not None], now)
        self._cluster.changed(Change.POD_LEFT)
        return found.keys()

    def _preempted(self, pod: PodRecord, now: float) -> None:
        """Queues a pod again that was preempted before it was bound."""
        if pod.deletion_pending:
            self._queue.forget(pod)
            return
        self._queue.retry_later(pod, now, is_error=False)
        self.set_unschedulable(pod, PREEMPTED, now, "Unschedulable")

    def _warn(self, nomination: Nomination) -> None:
        for warning in nomination.warnings:
            self._cluster.warn_once(*warning)

    def preempt_for_reservations(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """Preempts for a reserve pod, and for those of its gang; whether they were placed."""
        nomination = self.post_filter(profile, pod, self.column(profile, pod.cls))
        self._warn(nomination)
        if nomination.claims:
            self._assume_all(profile, nomination, now)
        return bool(nomination.claims)

    def _assume_all(self, profile: Profile, nomination: Nomination, now: float) -> None:
        """Assumes and binds the reserve pods of a nomination, all of them or none."""
        taken: list[PodRecord] = []
        before = self._cluster.changes
        for pod, row, clears in nomination.claims:
            assert pod.reservation is not None
            self._queue.forget(pod)
            pod.reservation.victims = clears
            refused = self.assume(profile, pod, row)
            if refused is None:
                taken.append(pod)
                continue
            for other in taken:
                self.unassume(profile, other)
            for each in nomination.claims:
                self._failed_places.pop(each.pod.uid, None)
                if refused.has_failed:
                    self.fail_for_now(each.pod, refused.message, {refused.plugin}, now)
                else:
                    self.fail(
                        profile, each.pod, refused.message, {refused.plugin}, now, next_scout=True
                    )
            self._cluster.undo_changes(before)
            return
        decided = len(self.decisions)
        lost = self.gang_permit.bind([(profile, pod) for pod in taken], now, whole=True)
        if lost is not None:
            stop = lost.stops[0][1]
            for pod in lost.members:
                if stop.outcome.retry:
                    self.fail_for_now(pod, stop.text(), {stop.plugin.name}, now)
                else:
                    self.fail(profile, pod, stop.text(), {stop.plugin.name}, now, next_scout=True)
            self._cluster.undo_changes(before)
            return
        # Victims are evicted before the reservations are bound.
        binds = self.decisions[decided:]
        del self.decisions[decided:]
        self.apply(nomination.decisions)
        self.decisions += binds

    def _needs_free_node(self, profile: Profile, pod: PodRecord) -> bool:
        """Whether the pod has a condition already and preemption cannot help it."""
        if (
            pod.deletion_pending
            or pod.nominated
            or pod.pinned_node is not None
            or not pod.condition_message
        ):
            return False
        return not self.can_preempt_for(profile, pod.cls)

    def can_preempt_for(self, profile: Profile, cls: PodClass) -> bool:
        """Whether `post_filter` of some plugin could nominate a node for pods of the class."""
        for plugin in profile.post_filters:
            try:
                if plugin.can_preempt_for(cls):
                    return True
            except RAISED as error:
                self._errors.note(plugin.name, "PostFilter", error)
                return True
        return False

    def post_filter(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Nomination:
        """What PostFilter plugins propose for a pod without a feasible node. Nothing is decided here;
        see `apply`."""
        dry_run = self._dry_run_of(profile, pod, column)
        messages = []
        warnings: tuple[ObjectWarning, ...] = ()
        has_failed = False
        node = None if profile.post_filters else ""
        for plugin in profile.post_filters:
            try:
                nomination = plugin.post_filter(pod, dry_run)
                if plugin.name in profile.foreign:
                    check_nomination(plugin, nomination)
                    nomination = self._with_jobs_and_reservations(nomination)
            except RAISED as error:
                nomination = Nomination(message=self._errors.note(plugin.name, "PostFilter", error))
                has_failed = True
            column.refresh()
            warnings += nomination.warnings
            if column.fails():
                self._note_failed_dry_run(pod, column.verdict())
                return Nomination("", warnings=warnings, has_failed=True)
            if nomination.node or nomination.claims:
                return nomination._replace(warnings=warnings) if warnings else nomination
            node = nomination.node if node is None else node
            if nomination.message:
                messages.append(nomination.message)
        return Nomination(node, ", ".join(messages), warnings=warnings, has_failed=has_failed)

    def _with_jobs_and_reservations(self, nomination: Nomination) -> Nomination:
        """Adds the jobs and reservations of victims, which order their deletion, to the decisions of a
        third-party plugin."""

        def known(decision: Decision) -> Decision:
            victim = self._cluster.pods.get(decision.pod.uid) if isinstance(decision, Preempt) else None
            if victim is None or not isinstance(decision, Preempt):
                return decision
            job, reservation = victim.job_name, victim.reservation_uid
            return msgspec.structs.replace(decision, job=job, reservation=reservation)

        return nomination._replace(decisions=tuple(map(known, nomination.decisions)))

    def _dry_run_of(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> DryRun:
        another = partial(self._another_dry_run, profile)
        return DryRun(self._cluster, column, pod, self._is_pinned(profile, pod), another)

    def _another_dry_run(self, profile: Profile, other: PodRecord) -> tuple[int, DryRun]:
        column = self.column(profile, other.cls)
        return self.find_row(profile, other, column), self._dry_run_of(profile, other, column)

    def fail(
        self,
        profile: Profile,
        pod: PodRecord,
        message: str,
        plugins: Collection[str],
        now: float,
        condition: str = "Unschedulable",
        next_scout: bool = False,
    ) -> None:
        """Marks the pod unschedulable, rejected by these plugins, until a change wakes it up."""
        if pod.deletion_pending:
            self._queue.forget(pod)
            return
        pod.rejected_by = plugins
        key = self.group_key(profile, pod)
        waiting = self._queue.reject(pod, key, profile.wakes_on(plugins), now, next_scout)
        self.set_unschedulable(pod, message, now, condition)
        for sibling in waiting:
            self.set_unschedulable(sibling, message, now, condition)

    def fail_for_now(self, pod: PodRecord, message: str, plugins: Collection[str], now: float) -> None:
        """Marks the pod failed because a plugin raised; it is tried again after a back-off."""
        if pod.deletion_pending:
            self._queue.forget(pod)
            return
        pod.rejected_by = plugins
        self._queue.retry_later(pod, now)
        self.set_unschedulable(pod, message, now, "SchedulerError")

    def group_key(self, profile: Profile, pod: PodRecord) -> Key:
        """The key of the pod's group in the queue: its class and, if it has one, its queue."""
        if not pod.queue or pod.job is not None:
            return (profile.index, pod.cls.id)
        return (profile.index, self._queue.number((pod.cls.id, pod.queue)))

    def refuse(self, profile: Profile, pod: PodRecord, message: str, now: float) -> None:
        """Marks a pod unschedulable that its queue does not admit."""
        self.fail(profile, pod, message, (), now, next_scout=bool(pod.nominated))

    def set_unschedulable(self, pod: PodRecord, message: str, now: float, reason: str) -> None:
        """Sets the pod's condition and emits an event, unless the message is the same as before."""
        if pod.condition_message == message:
            return
        pod.condition_message = message
        self._cluster.chronicle.note(now, pod.ref, reason, message)
        if pod.reservation is not None:
            self._cluster.reservations.refused(pod.reservation, message)
        else:
            self.decisions.append(SetPodScheduled(pod.ref, reason, message))
        self._emit(pod, "FailedScheduling", message)
        if names.RESERVATION_AFFINITY in pod.cls.annotations:
            counted = about_reservations(message)
            if counted:
                self._emit(pod, "FailedScheduling-Reservation", counted)

    def _emit(self, pod: PodRecord, reason: str, message: str) -> None:
        text = message if len(message) <= _EVENT_LIMIT else message[: _EVENT_LIMIT - 4] + " ..."
        self.decisions.append(Emit(pod.ref, "Warning", reason, text, "Scheduling"))
