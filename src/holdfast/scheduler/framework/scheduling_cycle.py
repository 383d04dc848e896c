"""One pod from the queue to a decision.

A pod's class has a column: which nodes will do, and how well. The best node is claimed in the ledger
at once, so that the next pod sees it taken; the bind is decided, and carried out elsewhere.
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
_JUDGED_BY = {"ports": "NodePorts", "volumes": "VolumeRestrictions"}
"""The longest message an Event may carry; the condition has it in full."""
NO_BINDER = "no Bind plugin binds the pod"
PINNING = "NodeAffinity"
"""The plugin by whose rule a DaemonSet's pod goes to one node only."""


class Refused(NamedTuple):
    """Why a pod cannot have the place it was to have."""

    plugin: str
    message: str
    has_failed: bool = False
    """The plugin failed, rather than refusing."""


class Cycle:
    def __init__(
        self, cluster: Cluster, queue: SchedulingQueue, profiles: Mapping[str, Profile]
    ) -> None:
        self.cluster = self._cluster = cluster
        self._table = cluster.nodes
        self._queue = queue
        self._preemption_holds = cluster.reservations.preemption_holds
        self._errors = cluster.plugin_errors
        self._failed_places: dict[str, Refused] = {}
        """Of pods that a plugin kept from a place, and who were not told so yet."""
        self._failed_dry_runs: dict[str, tuple[PodRecord, Verdict]] = {}
        """Pods for which a plugin failed in this round while they were tried, by uid."""
        self.column = ColumnStore(cluster).column
        self._provisioning = Provisioning(self, cluster)
        self.gang_permit = GangPermit(self)
        self.profiles = profiles
        """By scheduler name."""
        self.waiting: dict[str, WaitingPod] = {}
        cluster.node_listeners.append(self._node_changed)
        self.decisions: list[Decision] = []
        self.rejected_victims: list[Preempt] = []
        """What was not carried out in the last round, since the victims waited in Permit."""
        self.terse = False
        """Whether so many pods were woken that those without luck are not told the latest reasons."""

    def schedule(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """Tries to find a node for the pod; whether one was found."""
        if not self._table.count:
            self._nominate(pod, "")
            self.fail(profile, pod, NO_NODES, (), now)
            return False
        if pod.reservation is not None and pod.reservation.preemptor:
            return self._hold_room(profile, pod, pod.reservation, now)
        if profile.provisions and self._provisioning.concerns(pod):
            return self._provisioning.schedule(profile, pod, now)
        return self.place(profile, pod, now)

    def place(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """The same with the nodes and reservations there are."""
        column = self.column(profile, pod.cls)
        row = self.find_row(profile, pod, column)
        if row < 0:
            self._no_node(profile, pod, column, now)
            return False
        self.nominate_reservation(profile, pod, column, row)
        return self.claim(profile, pod, row, now)

    def nominate_reservation(
        self, profile: Profile, pod: PodRecord, column: ClassColumn, row: int
    ) -> None:
        """Which reservation the pod draws on, if it goes there."""
        if column.owned:
            pod.reservation_uid = column.reservation_uid(row)
        if self._preemption_holds and (room := self._preemption_holds.of(pod, row)) is not None:
            pod.reservation_uid = self._nominated_reservation(profile, pod, row, column, room)

    def take(self, pod: PodRecord) -> bool:
        """Takes a pod out of its turn; whether it was waiting for one."""
        if self._queue.place(pod.uid) not in ("active", "backoff", "unschedulable"):
            return False
        self._queue.take(pod)
        return True

    def _hold_room(self, profile: Profile, pod: PodRecord, room: ReservationInfo, now: float) -> bool:
        """Room that was preempted is held where it is, whatever else is there still."""
        row = self._table.row(room.wants_node)
        owner = self._cluster.pods.get(room.preemptor)
        placed = owner is not None and owner.phase is not Phase.PENDING
        if placed or room.released or room.deleting or row is None or not self._table.alive[row]:
            self._queue.forget(pod)
            return False
        if owner is not None and self._goes_ahead(owner, room, row, now):
            return True
        self._queue.take(pod)  # the owner may have come back at once, and its room with it
        return self.claim(profile, pod, row, now)

    def _goes_ahead(self, owner: PodRecord, room: ReservationInfo, row: int, now: float) -> bool:
        """Where victims were gone before their room could be held, there is no need to: the pod it is
        for takes it. Once, for it may have to wait before it tries again."""
        if room.taken_early or owner.nominated != room.wants_node:
            return False
        profile = self.profiles.get(owner.scheduler)
        if profile is None or owner.job is not None or owner.queue or self._cluster.jobs.queues:
            return False  # there is more than a place to wait for
        if profile.provisions and self._provisioning.concerns(owner):
            return False
        column = self.column(profile, owner.cls)
        dry_run = DryRun(self._cluster, column, owner, self._is_pinned(profile, owner))
        if column.rejected is not None or not dry_run.fits(row) or not self.take(owner):
            return False
        room.taken_early = True
        self.nominate_reservation(profile, owner, column, row)
        owner.reservation_uid = owner.reservation_uid or room.uid
        return self.claim(profile, owner, row, now)

    def _nominated_reservation(
        self, profile: Profile, pod: PodRecord, row: int, column: ClassColumn, room: ReservationInfo
    ) -> str:
        """What a pod draws on where room is held for it: that, unless it is not enough and the pod fits
        by another reservation. Of what is not there yet nobody draws anything."""
        enough = all(room.amounts.get(slot, 0) >= amount for slot, amount in pod.cls.requests)
        if not room.waiting and (enough or not column.owned):
            return room.uid
        dry_run = DryRun(self._cluster, column, pod, self._is_pinned(profile, pod))
        return dry_run.reservation_uid(row, ()) or ("" if room.waiting else room.uid)

    def find_row(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> int:
        """The best row for the pod, or -1. A node being cleared for it comes before all others."""
        if not self._cluster.nominator and pod.pinned_node is None:
            return column.best()
        if column.rejected is not None:
            return -1
        row = self._find_row_in_turn(profile, pod, column)
        if column.fails():
            self._note_failed_dry_run(pod, column.verdict())
            return -1
        return row

    def _find_row_in_turn(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> int:
        """The same where nodes are being cleared for pods, or the pod names its node."""
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
            # A row that is being cleared for the pod itself was looked at before.
            passing = column.diagnosis.feasible()
            passing[dry_run.rows_of_other_queues()] = False
            return column.best_of(passing)
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
        """Plugins that failed may be asked again."""
        self._errors.round += 1
        self._failed_places.clear()

    def _note_failed_dry_run(self, pod: PodRecord, why: Verdict) -> None:
        """A plugin failed while the pod was tried, perhaps by an action that tells pods nothing."""
        self._failed_dry_runs[pod.uid] = pod, why

    def propose(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Nomination:
        """As `post_filter`, on behalf of an action that tells pods nothing."""
        found = self.post_filter(profile, pod, column)
        if found.has_failed and not column.fails():
            failed = frozenset(plugin.name for plugin in profile.post_filters)
            self._note_failed_dry_run(pod, Verdict(found.message, failed, error=True, has_failed=True))
        return found

    def report_failed_dry_runs(self, now: float) -> None:
        """Pods for which plugins failed in this round are told so, and tried again after a back-off."""
        failed, self._failed_dry_runs = self._failed_dry_runs, {}
        for uid, (pod, why) in failed.items():
            if (
                self._cluster.pods.get(uid) is not pod
                or pod.phase is not Phase.PENDING
                or pod.deletion_pending
            ):
                continue
            stands = pod if pod.job is None else pod.job.leader
            if stands is not None and self._queue.place(stands.uid) == "unschedulable":
                self._queue.take(stands)
                self._queue.retry_later(stands, now)
            pod.rejected_by = why.plugins
            self.set_unschedulable(pod, why.reasons, now, "SchedulerError")

    def note_failure(self, pod: PodRecord, column: ClassColumn) -> None:
        """If a plugin failed to judge the pod's class that is why the pod has no place, even if the
        plugin is not asked any more by the time the pod is told."""
        if column.has_failed() and (why := column.verdict()).has_failed:
            self._failed_places[pod.uid] = Refused(min(why.plugins), why.reasons, True)

    def was_refused(self, pod: PodRecord) -> bool:
        """Whether a plugin kept the pod from a place, and the pod was not told so yet."""
        return pod.uid in self._failed_places

    def verdict(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Verdict:
        """Why there is no row for the pod."""
        failed = self._failed_places.pop(pod.uid, None) if self._failed_places else None
        if failed is not None:
            plugins, error = frozenset((failed.plugin,)), failed.has_failed
            text = failed.message if error else with_name(failed.plugin, failed.message)
            return Verdict(text, plugins, error=error, has_failed=error)
        found = self._verdict(profile, pod, column)
        if column.has_failed():
            column.judge()  # perhaps by the reasons just asked for
            return column.verdict() if column.rejected is not None else found
        return found

    def _verdict(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Verdict:
        if column.rejected is not None:
            return column.verdict()
        dry_run = DryRun(self._cluster, column, pod, self._is_pinned(profile, pod))
        if self._is_pinned(profile, pod):
            # Only the named node was looked at; the others are told off in one go.
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
        """What can help pods of the class, whichever of its filters turns out to be to blame."""
        if column.rejected is not None:
            return profile.wakes_on((column.rejected_by,))
        names = {name for name, _ in column.filters}
        if column.owned:
            names.add(profile.reservation_plugin)
        return profile.wakes_on(names)

    def rejections(
        self, profile: Profile, pod: PodRecord, column: ClassColumn
    ) -> dict[str, NodeRejection]:
        """What stands against each node by its name, for whoever asks about one pod."""
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
        """Asks again for the permission of pods that wait for it."""
        for waiting in list(self.waiting.values()):
            pod = waiting.pod
            if pod.job is not None:
                continue  # it is asked about with its job
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
                self._give_back(pod, waiting.row, profile.reserve)
                why = f"node {self._table.name(waiting.row)}: {short} by the time the pod was permitted"
                self.fail(profile, pod, why, {NODE_RESOURCES_FIT}, now)
                self._cluster.changed(Change.POD_LEFT)
            else:
                rest = profile.permit[profile.permit.index(waiting.plugin) + 1 :]
                if not self._permit(profile, pod, waiting.row, rest, now):
                    self._cluster.changed(Change.POD_LEFT)

    def short_of(self, profile: Profile, pod: PodRecord, row: int) -> str:
        """Of what the node of a pod that waited has too little for the pods there: others may have put
        some there meanwhile, or made the node smaller."""
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
            if _JUDGED_BY[what] in profile.filter_names
        ]
        return f"Insufficient {lost[0]}" if lost else ""

    def withdraw(self, pod: PodRecord, message: str, now: float) -> None:
        """A pod that waits for permission gives its place up, and tries again later."""
        waiting = self.waiting.pop(pod.uid, None)
        if waiting is not None:
            outcome = Outcome(message, retry=True)
            self._refuse(self.profiles[pod.scheduler], pod, waiting.row, waiting.plugin, outcome, now)
            self._cluster.changed(Change.POD_LEFT)

    def lost_place(self, waiting: WaitingPod) -> Stop | None:
        """Why a pod that waits in Permit has to give its place up, whatever the plugin says: its node
        was deleted, or the reservation it is allocated from ends."""
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

    def claim(self, profile: Profile, pod: PodRecord, row: int, now: float) -> bool:
        before = self._cluster.changes
        refused = self.occupy(profile, pod, row)
        if refused is None:
            if self._permit(profile, pod, row, profile.permit, now):
                return True
        else:
            self._failed_places.pop(pod.uid, None)
            if refused.has_failed:
                self.fail_for_now(pod, refused.message, {refused.plugin}, now)
            else:
                self.fail(profile, pod, refused.message, {refused.plugin}, now, next_scout=True)
        # What was taken and given back helps nobody, least of all the pod itself.
        self._cluster.undo_changes(before)
        return False

    def occupy(self, profile: Profile, pod: PodRecord, row: int) -> Refused | None:
        """The pod claims its place there. If a plugin will not have it: which, and why."""
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
                self._give_back(pod, row, profile.reserve[: profile.reserve.index(plugin) + 1])
                self._cluster.undo_changes(before)
                refused = self._failed_places[pod.uid] = Refused(plugin.name, message, has_failed)
                return refused
        return None

    def give_back(self, profile: Profile, pod: PodRecord) -> None:
        """The pod gives up a place it has taken."""
        self._give_back(pod, pod.row, profile.reserve)

    def bind(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """The pod is to be bound to the place it has taken, once all plugins permit it."""
        return self._permit(profile, pod, pod.row, profile.permit, now)

    def _permit(
        self, profile: Profile, pod: PodRecord, row: int, plugins: list[Plugin], now: float
    ) -> bool:
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
        """The first of the plugins that makes the pod wait or refuses it."""
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
        """Adds what is to be decided before the pod is bound; the plugin that fails, if one does."""
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
        """Adds the pod's bind, by the first plugin that has one."""
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
        """Adds the pod's bind, which says from which reservation, and which devices and CPUs, are
        allocated to it: whichever plugin binds it, that is found on the pod after a restart."""
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
        """The bind is decided."""
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
        """The pod keeps its place until the plugin permits it."""
        self.waiting[pod.uid] = WaitingPod(pod, pod.row, plugin, deadline, permitted)
        pod.bind_decided = False
        self._queue.placed(pod, now)
        self._cluster.changed(Change.POD_PLACED)

    def refuse_member(self, pod: PodRecord, stop: Stop, now: float) -> None:
        """A pod that gave its place back is told why, and tried again later."""
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
        """A plugin does not permit the pod where it is."""
        self._give_back(pod, row, profile.reserve)
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

    def _give_back(self, pod: PodRecord, row: int, reserved: list[Plugin]) -> None:
        self.unreserve(pod, row, reserved)
        self._cluster.unassume(pod)

    def unreserve(self, pod: PodRecord, row: int, reserved: Sequence[Plugin]) -> None:
        """All of them are told, whatever one of them raises."""
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
        # Siblings fare the same, unless this pod has a node of its own in view.
        next_scout = bool(pod.nominated) or pod.pinned_node is not None
        nomination = Nomination("") if why.error else self.post_filter(profile, pod, column)
        if column.fails():  # by now, in the dry run
            why = column.verdict()
            self._nominate(pod, "")
            self.fail_for_now(pod, why.reasons, why.plugins, now)
            return
        self._warn(nomination)
        if nomination.claims:
            self._take_all(profile, nomination, now)
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
        """Takes note of the reservation that a pod will be allocated from on its nominated node once
        those have left that are on their way out: until then others leave that capacity to it."""
        row = self._table.row(pod.nominated) if pod.nominated else None
        if row is None:
            return
        profile = self.profiles[pod.scheduler]
        column = self.column(profile, pod.cls)
        if not column.owned:
            return
        there = list(self._cluster.ledger.pods.get(row, {}).values())
        leaving = [each for each in there if each.being_preempted or each.cls.terminating]
        found = self._dry_run_of(profile, pod, column).reservation_uid(row, leaving) or ""
        if found != pod.nominated_reservation:
            pod.nominated_reservation = found
            self._cluster.epoch.usage.add(row)

    def apply(self, decisions: Sequence[Decision]) -> None:
        """What was proposed is decided: victims count as on their way out, so that nothing is decided
        of them again before that is seen, and nominations that end are forgotten. Victims that wait
        in Permit are neither deleted nor evicted; see `_reject_waiting`. All victims of one preemptor
        or reclaimer come together, since jobs of which some members wait give up their places as a
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
        """Those of the victims that wait for permission give their places up at once, with the members
        of their jobs that wait and cannot do without them. They keep their objects, and are tried
        again after a back-off. Returns the uids of those that did."""
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
                self._give_back(pod, waiting.row, self.profiles[pod.scheduler].reserve)
                self._preempted(pod, now)
        self.gang_permit.reject([pod for pod in found.values() if pod.job is not None], now)
        self._cluster.changed(Change.POD_LEFT)
        return found.keys()

    def _preempted(self, pod: PodRecord, now: float) -> None:
        """The pod has lost its place before it was bound."""
        if pod.deletion_pending:
            self._queue.forget(pod)
            return
        self._queue.retry_later(pod, now, is_error=False)
        self.set_unschedulable(pod, PREEMPTED, now, "Unschedulable")

    def _warn(self, nomination: Nomination) -> None:
        for warning in nomination.warnings:
            self._cluster.warn_once(*warning)

    def make_room(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """Whether a reserve pod, with others of its job, was given a place at the cost of others."""
        nomination = self.post_filter(profile, pod, self.column(profile, pod.cls))
        self._warn(nomination)
        if nomination.claims:
            self._take_all(profile, nomination, now)
        return bool(nomination.claims)

    def _take_all(self, profile: Profile, nomination: Nomination, now: float) -> None:
        """Reserve pods take their places, all of them or none."""
        taken: list[PodRecord] = []
        before = self._cluster.changes
        for pod, row, clears in nomination.claims:
            assert pod.reservation is not None
            self._queue.forget(pod)
            pod.reservation.victims = clears
            refused = self.occupy(profile, pod, row)
            if refused is None:
                taken.append(pod)
                continue
            for other in taken:
                self.give_back(profile, other)
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
        # Those in the way are asked to go before their places are given away.
        binds = self.decisions[decided:]
        del self.decisions[decided:]
        self.apply(nomination.decisions)
        self.decisions += binds

    def _needs_free_node(self, profile: Profile, pod: PodRecord) -> bool:
        """Whether nothing but a free node could help the pod, which has been told so before."""
        if (
            pod.deletion_pending
            or pod.nominated
            or pod.pinned_node is not None
            or not pod.condition_message
        ):
            return False
        return not self.can_preempt_for(profile, pod.cls)

    def can_preempt_for(self, profile: Profile, cls: PodClass) -> bool:
        """Whether `post_filter` of some plugin could find something for the class."""
        for plugin in profile.post_filters:
            try:
                if plugin.can_preempt_for(cls):
                    return True
            except RAISED as error:
                self._errors.note(plugin.name, "PostFilter", error)
                return True
        return False

    def post_filter(self, profile: Profile, pod: PodRecord, column: ClassColumn) -> Nomination:
        """What can be done for a pod no node is feasible for. Nothing is decided here; see `apply`."""
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
        """What decides in which order victims are deleted, and which a plugin need not know."""

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
        """No node will do for the pod, for these plugins."""
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
        """A plugin failed: the pod is tried again after a back-off, whatever happens."""
        if pod.deletion_pending:
            self._queue.forget(pod)
            return
        pod.rejected_by = plugins
        self._queue.retry_later(pod, now)
        self.set_unschedulable(pod, message, now, "SchedulerError")

    def group_key(self, profile: Profile, pod: PodRecord) -> Key:
        """Pods with the same key fare alike; those of another queue may not."""
        if not pod.queue or pod.job is not None:
            return (profile.index, pod.cls.id)
        return (profile.index, self._queue.number((pod.cls.id, pod.queue)))

    def refuse(self, profile: Profile, pod: PodRecord, message: str, now: float) -> None:
        """The pod may not be placed now, whatever room there is."""
        self.fail(profile, pod, message, (), now, next_scout=bool(pod.nominated))

    def set_unschedulable(self, pod: PodRecord, message: str, now: float, reason: str) -> None:
        """Says on the pod why it has no node, unless it says so already."""
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
