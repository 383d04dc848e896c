"""One pod from the queue to a decision.

A pod's class has a column: which nodes will do, and how well. The best node is claimed in the ledger
at once, so that the next pod sees it taken; the bind is decided, and carried out elsewhere.
"""

from holdfast.core.changes import Change
from holdfast.core.classes import PodClass
from holdfast.core.cluster import Cluster
from holdfast.core.decisions import Decision, Emit, SetPodScheduled
from holdfast.core.pods import Phase, PodRecord
from holdfast.framework.column import Column
from holdfast.framework.diagnosis import (
    FITS,
    NO_NODES,
    Blame,
    not_named_text,
    rejected_sentence,
    sentence,
)
from holdfast.framework.interface import Nomination, Plugin
from holdfast.framework.profile import Profile
from holdfast.framework.queue import SchedulingQueue

_COLUMN_BUDGET = 256 * 1024**2
_EVENT_LIMIT = 1024
"""The longest message an Event may carry; the condition has it in full."""
PINNING = "NodeAffinity"
"""The plugin by whose rule a DaemonSet's pod goes to one node only."""


class Waiting:
    """A pod that has its node but must wait for a plugin's permission."""

    __slots__ = ("deadline", "plugin", "pod", "row")

    def __init__(self, pod: PodRecord, row: int, plugin: Plugin, deadline: float) -> None:
        self.pod = pod
        self.row = row
        self.plugin = plugin
        self.deadline = deadline


class Cycle:
    def __init__(self, cluster: Cluster, queue: SchedulingQueue) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self._queue = queue
        self._columns: dict[tuple[int, int], Column] = {}
        self._bytes = 0
        self.waiting: dict[str, Waiting] = {}
        self.decisions: list[Decision] = []
        cluster.classes.on_dropped.append(self._class_dropped)

    def column(self, profile: Profile, cls: PodClass) -> Column:
        """The class's column, up to date. Columns used longest ago are dropped if there are many."""
        key = (profile.index, cls.id)
        column = self._columns.get(key)
        if column is None:
            column = Column(self._cluster, profile, cls)
            column.refresh()
            self._bytes += column.bytes()
            while self._bytes > _COLUMN_BUDGET and self._columns:
                oldest = next(iter(self._columns))
                self._bytes -= self._columns.pop(oldest).bytes()
        else:
            column.refresh()
            if self._bytes > _COLUMN_BUDGET // 2:
                del self._columns[key]  # to the end of the line
        self._columns[key] = column
        return column

    def schedule(self, profile: Profile, pod: PodRecord, now: float) -> bool:
        """Tries to find a node for the pod; whether one was found."""
        if not self._table.count:
            self._fail(profile, pod, NO_NODES, set(), now)
            return False
        column = self.column(profile, pod.cls)
        if pod.pin is not None and PINNING in profile.plugins:
            row = self._pinned_row(column, pod.pin)
        else:
            row = column.best()
        if row < 0:
            self._no_node(profile, pod, column, now)
            return False
        return self._claim(profile, pod, row, now)

    def recheck_waiting(self, profiles: dict[str, Profile], now: float) -> None:
        """Asks again for the permission of pods that wait for it."""
        for waiting in list(self.waiting.values()):
            pod = waiting.pod
            profile = profiles[pod.scheduler]
            if pod.phase is not Phase.ASSUMED:
                del self.waiting[pod.uid]
                continue
            outcome = waiting.plugin.permit(pod, waiting.row)
            if outcome.wait and now < waiting.deadline and not outcome.message:
                continue
            del self.waiting[pod.uid]
            if outcome.message or outcome.wait:
                message = outcome.message or f"timed out waiting for {waiting.plugin.name}"
                self._give_back(profile, pod, waiting.row, profile.reserve)
                self._cluster.changed(Change.POD_LEFT)
                self._fail(profile, pod, message, {waiting.plugin.name}, now)
            else:
                rest = profile.permit[profile.permit.index(waiting.plugin) + 1 :]
                self._permit(profile, pod, waiting.row, rest, now)

    def next_deadline(self) -> float | None:
        return min((w.deadline for w in self.waiting.values()), default=None)

    # A node was found

    def _claim(self, profile: Profile, pod: PodRecord, row: int, now: float) -> bool:
        self._cluster.assume(pod, row)
        for position, plugin in enumerate(profile.reserve):
            outcome = plugin.reserve(pod, row)
            if outcome.message:
                self._give_back(profile, pod, row, profile.reserve[: position + 1])
                self._fail(profile, pod, outcome.message, {plugin.name}, now)
                return False
        return self._permit(profile, pod, row, profile.permit, now)

    def _permit(
        self, profile: Profile, pod: PodRecord, row: int, plugins: list[Plugin], now: float
    ) -> bool:
        for plugin in plugins:
            outcome = plugin.permit(pod, row)
            if outcome.message:
                self._give_back(profile, pod, row, profile.reserve)
                self._fail(profile, pod, outcome.message, {plugin.name}, now)
                return False
            if outcome.wait:
                self.waiting[pod.uid] = Waiting(pod, row, plugin, now + outcome.wait)
                return True
        for plugin in profile.pre_bind:
            self.decisions.extend(plugin.pre_bind(pod, row))
        for plugin in profile.bind:
            bound = plugin.bind(pod, row)
            if bound:
                self.decisions.extend(bound)
                break
        for plugin in profile.post_bind:
            self.decisions.extend(plugin.post_bind(pod, row))
        pod.attempts = 0
        self._cluster.changed(Change.POD_PLACED)
        self._cluster.chronicle.note(now, pod.ref, "decided", self._table.name(row))
        return True

    def _give_back(self, profile: Profile, pod: PodRecord, row: int, reserved: list[Plugin]) -> None:
        for plugin in reversed(reserved):
            plugin.unreserve(pod, row)
        self._cluster.unassume(pod)

    def _pinned_row(self, column: Column, name: str) -> int:
        row = self._table.row(name)
        return row if row is not None and column.fits_row(row) else -1

    # No node was found

    def _no_node(self, profile: Profile, pod: PodRecord, column: Column, now: float) -> None:
        nomination = self._post_filter(profile, pod, column)
        self.decisions.extend(nomination.decisions)
        nodes = self._table.count
        if column.rejected is not None:
            message = rejected_sentence(nodes, column.rejected.message, nomination.message)
            plugins = {column.rejected_by}
        elif pod.pin is not None and PINNING in profile.plugins:
            blames = self._pinned_blames(column, pod.pin)
            message = sentence(nodes, blames, nomination.message)
            plugins = {blame.plugin for blame in blames}
        else:
            message = column.diagnosis.message(nomination.message)
            plugins = column.diagnosis.plugins()
        self._fail(profile, pod, message, plugins, now)

    def _post_filter(self, profile: Profile, pod: PodRecord, column: Column) -> Nomination:
        messages = []
        for plugin in profile.post_filters:
            nomination = plugin.post_filter(pod, column.diagnosis.resolvable())
            if nomination.node:
                return nomination
            if nomination.message:
                messages.append(nomination.message)
        return Nomination(message=", ".join(messages))

    def _pinned_blames(self, column: Column, name: str) -> dict[Blame, int]:
        """Only the named node was looked at; the others are told apart in one go."""
        blames: dict[Blame, int] = {}
        others = self._table.count
        row = self._table.row(name)
        if row is not None and self._table.alive[row]:
            others -= 1
            blame = column.diagnosis.blame(row)
            if blame != FITS:
                blames[blame] = 1
        if others:
            blames[Blame(PINNING, (not_named_text([PINNING]),), False)] = others
        return blames

    def _fail(
        self, profile: Profile, pod: PodRecord, message: str, plugins: set[str], now: float
    ) -> None:
        self._queue.reject(pod, (profile.index, pod.cls.id), profile.wakes_on(plugins), message, now)
        self.tell(pod, message, now)

    def tell(self, pod: PodRecord, message: str, now: float, reason: str = "Unschedulable") -> None:
        """Says on the pod why it has no node, unless it says so already."""
        if pod.told == message:
            return
        pod.told = message
        self._cluster.chronicle.note(now, pod.ref, reason, message)
        self.decisions.append(SetPodScheduled(pod.ref, reason, message))
        text = message if len(message) <= _EVENT_LIMIT else message[: _EVENT_LIMIT - 4] + " ..."
        self.decisions.append(Emit(pod.ref, "Warning", "FailedScheduling", text, "Scheduling"))

    def _class_dropped(self, cls: PodClass) -> None:
        for key in [key for key in self._columns if key[1] == cls.id]:
            self._bytes -= self._columns.pop(key).bytes()
