"""What every part of the state builds on: time, node table, ledger, pod classes, pods, indexes.

Managers, reservations and jobs are given a `ClusterBase`; the whole state, `Cluster`, extends it by
them (`holdfast.scheduler.state`).
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from holdfast.api.errors import InvalidObject
from holdfast.api.meta import Object
from holdfast.scheduler.cluster.decisions import Decision, Emit, ObjectRef, SetPodScheduled
from holdfast.scheduler.cluster.domain_counts import DomainCounts
from holdfast.scheduler.cluster.epoch import Epoch
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.ledger import Ledger
from holdfast.scheduler.cluster.limit_sums import LimitSums
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.cluster.nominator import Nominator
from holdfast.scheduler.cluster.pod_classes import PodClass, PodClasses
from holdfast.scheduler.cluster.records import PodRecord

_LINES_KEPT = 10_000
"""The number of lines kept, of about 200 bytes each."""
_LONGEST = 1024
"""The maximum length of a detail, in characters."""


class ClusterSettings(msgspec.Struct, frozen=True):
    """The part of the configuration that the cluster state depends on, fixed at construction."""

    scheduler_names: frozenset[str] = frozenset()
    """The scheduler names whose pods are scheduled here."""
    without_gangs: frozenset[str] = frozenset()
    """Scheduler names whose profile does not enable Coscheduling: their pods are in no job."""
    gang_timeouts: Mapping[str, float] = {}
    """By scheduler name, the default timeout of gangs in seconds."""
    holds_nodes: bool = False
    """Whether a starvation hold keeps other pods off its whole node (the reserve action's `hold`)."""
    backfills: bool = False
    """Whether pods expected to end in time may use starvation holds (the reserve action's
    `backfill`)."""
    backfills_easily: bool = False
    """Whether only the first starving job is protected from backfilled pods, and not all of them (EASY
    instead of conservative backfill)."""
    learns_run_times: bool = False
    """Whether jobs that often exceed their estimates are planned with their real length (the backfill
    action's `learnRunTimes`)."""


class PodListener(Protocol):
    """Receives the changes of pods that are, or were, pending."""

    def pod_pending(self, pod: PodRecord) -> None:
        """A pod is to be scheduled: it is new, it changed in a way that may affect scheduling, or its
        bind failed."""

    def pod_settled(self, pod: PodRecord) -> None:
        """A pod is no longer to be scheduled: it has a node, is being deleted, or is gone. A pod that
        was assumed is still on its row."""

    def bind_confirmed(self, pod: PodRecord) -> None:
        """A decided bind was carried out."""

    def bind_failed(self, pod: PodRecord, message: str) -> bool:
        """A decided bind failed and may succeed later. True if the pod stays assumed until its bind is
        decided again."""

    def bind_refused(self, pod: PodRecord, row: int, message: str) -> None:
        """The bind to the node of this row was refused; the pod is pending again."""


class Line(NamedTuple):
    """One entry of a story."""

    time: float
    object: str
    what: str
    detail: str

    def __str__(self) -> str:
        tail = f": {self.detail}" if self.detail else ""
        return f"{self.time:10.3f}  {self.what}{tail}"


class Chronicle:
    """The story of each object: its recent events and decisions, in order.

    A failing invariant prints it, and the log has it for an object whose decisions do not converge.
    The number and the length of entries are bounded, so memory does not grow with the age of the
    scheduler."""

    def __init__(self, keep: int = _LINES_KEPT) -> None:
        self._lines: deque[tuple[float, object, str, str]] = deque(maxlen=keep)

    def note(self, time: float, about: object, what: str, detail: str = "") -> None:
        """Adds an entry. `str(about)` names the object, and is called only when a story is read."""
        if detail:
            detail = detail[:_LONGEST]
        self._lines.append((time, about, what, detail))

    def story(self, name: str) -> list[Line]:
        """The entries about `Pod/namespace/name` or `Kind/name`, oldest first."""
        return [
            Line(time, name, what, detail)
            for time, about, what, detail in self._lines
            if str(about) == name
        ]


class ClusterBase:
    """Nodes and pods with their claims, as of the events fed so far; and what has changed since it was
    last asked."""

    def __init__(
        self, settings: ClusterSettings | None = None, listener: PodListener | None = None
    ) -> None:
        self.settings = settings or ClusterSettings()
        self.listener = listener
        self.now = 0.0
        self.nodes = NodeTable()
        self.epoch = Epoch()
        self.ledger = Ledger(self.nodes, self.epoch.usage, self._allowed, self._row_emptied)
        self.classes = PodClasses(self.nodes.slot, slots_left=self.nodes.slots.left)
        self.topology = DomainCounts(self.classes, self.nodes.labels, self.nodes.columns)
        self.ledger.listeners.append(self.topology.pod_moved)
        self.classes.on_added.append(self._classes_changed)
        self.classes.on_dropped.append(self._classes_changed)
        self.limits = LimitSums(self.nodes, self.classes, self.ledger)
        self.pods: dict[str, PodRecord] = {}
        """By uid."""
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        """Objects of kinds that have no part of the state of their own, by kind (see `kind_of`) and
        then by (namespace, name)."""
        self.nominator = Nominator(self.nodes, self.epoch)
        self.chronicle = Chronicle()
        self.on_row_opened: list[Callable[[int], None]] = []
        """Called with a new row of the node table."""
        self.on_row_closed: list[Callable[[int], None]] = []
        """Called with a row that is about to be released."""
        self._changes = Change.NONE
        self._reports: list[Decision] = []
        self._warnings: dict[tuple[str, str, str], str] = {}

    # Changes that wake up pending pods

    def changed(self, changes: int) -> None:
        """Notes kinds of change that may make pending pods schedulable."""
        self._changes |= changes

    def take_changes(self) -> int:
        """The kinds of change since the last call."""
        changes, self._changes = self._changes, Change.NONE
        return changes

    def has_changes(self) -> bool:
        return bool(self._changes)

    @property
    def changes(self) -> int:
        """The kinds of change since the last `take_changes`."""
        return self._changes

    def undo_changes(self, before: int) -> None:
        """Restores the value `changes` had before a dry run, so that the dry run wakes up no pod."""
        self._changes = before

    # Reports and stories

    def take_reports(self) -> list[Decision]:
        """The events and conditions that report invalid objects, and other decisions that events called
        for, since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def decide(self, decision: Decision) -> None:
        """Adds a decision to those reports."""
        self._reports.append(decision)

    def report(self, ref: ObjectRef, error: InvalidObject) -> None:
        """Reports an invalid object: by an event, and a pod by its condition too."""
        message = f"{error.field}: {error.message}" if error.field else error.message
        self.chronicle.note(self.now, ref, "invalid", message)
        if ref.kind == "Pod":
            self._reports.append(SetPodScheduled(ref, "SchedulerError", message))
            self._reports.append(Emit(ref, "Warning", "FailedScheduling", message, "Scheduling"))
        else:
            self._reports.append(Emit(ref, "Warning", f"Invalid{ref.kind}", message, "Scheduling"))

    def warn_once(self, about: ObjectRef, reason: str, message: str, source: str = "") -> None:
        """Emits a Warning event about an object, unless it is the same as the last of this reason and
        source. An empty message ends the warning."""
        known = self._warnings.pop((about.uid, reason, source), "")
        if message:
            self._warnings[about.uid, reason, source] = message
            if message != known:
                self.chronicle.note(self.now, about, reason, message)
                self._reports.append(Emit(about, "Warning", reason, message, "Scheduling"))

    def story(self, name: str) -> list[Line]:
        """The recent history of an object; see `Chronicle`."""
        return self.chronicle.story(name)

    # Rows

    def open_row(self, name: str) -> int:
        """The row of a node name, a new one if it has none; the node object may be seen later."""
        known = self.nodes.row(name)
        if known is not None:
            return known
        row = self.nodes.open_row(name)
        for notify in self.on_row_opened:
            notify(row)
        return row

    def _row_emptied(self, row: int) -> None:
        """Closes a row without pods and reservations if it has no node object either."""
        if not self.nodes.alive[row]:
            for notify in self.on_row_closed:
                notify(row)
            self.nodes.close_row(row)

    def _allowed(self, slot: int, row: int) -> tuple[str, int]:
        return self.limits.allowed(slot, row)

    def _classes_changed(self, cls: PodClass) -> None:
        self.epoch.objects += 1
