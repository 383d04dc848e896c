"""What a scheduling plugin is: the plugin author's manual.

A plugin is a class with a name and some of the methods below. It is made once per profile, with a
`Handle` and its arguments, and asked about *pod classes*, never about single pods or nodes: pods of
one class get one answer. All that a plugin may read of the cluster it reads by its handle; see
`holdfast.scheduler.framework.handle`.

**Classes.** Pods are of one class if they agree in all of this, and a plugin may rely on nothing else:

* namespace, labels, owner references, priority, preemption policy, whether the pod is being
  deleted;
* annotations of `koordinator.sh`, `volcano.sh`, `holdfast.io` and Kubernetes' own domains, less
  those that scheduling writes; others only if a plugin names them in `reads_annotations`.
  `cls.annotations` has them;
* fields that a plugin names in `reads_fields`. `cls.fields` has them;
* of containers and init containers the image, resources, ports and restart policy; the pod's
  resources and overhead; host network;
* node selector, affinity (but for the one node that pods of a DaemonSet name), tolerations,
  topology spread constraints;
* volumes, as far as they are more than local to the node.

**Filtering.** `filter(cls)` is PreFilter and Filter in one. It looks at the class and answers

* `None`: nothing to check for this class (kube-scheduler's Skip);
* a `Filter`: `passes(view)` says for the rows of a view which of them are feasible, and `reasons(view)`
  why rows are not. `reasons` is asked only about rows that did not pass;
* a `Rejected`: no node is feasible, whatever it is like.

**Scoring.** `score(cls)` is PreScore, Score and NormalizeScore in one. It answers `None` (every node
0) or a `Score`: `score(view)` gives an integer per row, higher is better, between 0 and 100 unless
`normalize` brings it there. A normalisation is told the raw scores of all nodes that passed the
filters. `Score.constant` says that all nodes score the same.

**Views.** A view is one row, some, or all; see `holdfast.scheduler.cluster.view`. What it gives are
arrays, of one cell for one row; only Holdfast's own plugins see one row as plain numbers. Write
arithmetic on them: operators (`~` included), what the view offers (`negate`, `where`, `divide`,
`minimum`, `maximum`, `clip`, `whole`, `full`) and numpy functions. A filter answers with
booleans, a score with numbers, of which the part before the point counts; anything else is an error
that names the plugin. Never loop over rows, never branch on cells, never write to them. Rows without a
node are in a view too: what is answered about them counts for nothing.

**Values per row.** What a plugin knows of nodes and pods per row it asks its handle for once, in
`__init__`, as a column (`handle.nodes.annotation`, `handle.nodes.column`, `handle.count_pods`), and
reads by `view.take(column)`. What it keeps itself, in `reserve` and `unreserve`, it keeps in
`handle.nodes.new_column(…)`.

**Scope.** Answers are kept per class and recomputed only where something changed, so each Filter and
Score says what it depends on:

* `Scope.NODE`: the node object of the row (labels, taints, allocatable…), nothing else. A plugin from
  outside that asks for more under it fails;
* `Scope.USAGE`: also what pods and reservations claim on the row;
* `Scope.TOPOLOGY`, for Holdfast's own plugins alone: only *facets*, small numbers each row has for the
  class, such as its zone or how many pods of a kind are in its rack. Rows with the same facets get the
  same answer, so the question is put once per distinct combination: use nothing of the view but
  `facet`. A score may also use `feasible`, the number of nodes of each combination that passed all
  filters;
* anything else (other rows, other objects) must be reflected in `version`: a function without
  arguments whose value changes whenever the answer may. On a new value the plugin is asked again
  for the class, and all rows are recomputed.

**Objects.** A plugin that reads objects Holdfast does not, custom resources for one, names their kinds
in `reads_objects`. They are then kept for it as they are on the server. Whatever it answered is asked
for again when one of them changes, and pods it rejected or kept out of the queue are tried again: that
needs neither `version` nor `wakes_on`.

**Volumes.** Pods of one workload often differ in the claims they name and in nothing else, so only
plugins that say `reads_volumes` are asked about each of them. The others are asked once, about a class
without volumes.

**Waking.** `wakes_on` names the kinds of change that can help a pod this plugin rejected. Nothing
else wakes the pod, so name too much rather than too little. A plugin about volumes also says by
`watches` which claims, volumes and so on its answer for a class depends on: of the kinds of change that
are about storage (`Change.ABOUT_STORAGE`), only those about one of these wake the pod.

**After a node was chosen**, in this order, per pod: `reserve` (all plugins; on a later failure
`unreserve` in reverse order), `permit`, then the decisions of `pre_bind`, `bind` (the first plugin
that gives any; never asked about reserve pods) and `post_bind`. These may keep state of their own,
and must be able to undo it.
A job's pods pass each step together: if one is refused that the job cannot do without, all are, and
while one that it cannot do without waits in `permit`, the others wait with it.

**Errors.** Whatever a plugin raises, and an invalid answer, rejects the pod with the reason
SchedulerError and a message that names the plugin; it is counted, logged and tried again after a
back-off. Other pods go on. Formulas that failed are closed for the rest of the round: no row is
feasible. See docs/plugins.md for each method.

**Starvation holds.** `node_order_on_resource(cls, offer)` says which nodes to hold for a task of a
starving job: a score for each row of the offer. The scores of all plugins are added; rows whose sum is
0 or less are not held.

`post_filter` runs when no node passed, in order until one plugin nominates a node. It proposes and
changes nothing: it may be asked for its message alone.
`pre_enqueue` may keep a pod out of the queue; `sort_key` (one plugin per profile) orders it.
"""

import enum
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from holdfast.api.raw_objects import ObjectKind
from holdfast.scheduler.cluster.decisions import Decision, ObjectRef
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.cluster.view import Cells, Facet, View
from holdfast.scheduler.framework.handle import Handle

API_VERSION = "v1"
"""Within a version names and meanings are only ever added."""
MAX_SCORE = 100


class Scope(enum.Enum):
    NODE = "node"
    USAGE = "usage"
    TOPOLOGY = "topology"


class Reason(NamedTuple):
    """Why rows are infeasible. A row may have several reasons."""

    text: str
    rows: Cells
    """Which rows of the view it holds for."""
    resolvable: Cells = True
    """Whether removing pods from the row could help; may differ from row to row."""
    times: int = 1
    """How often it counts for a row: once, or for each of several things there."""


class Need(NamedTuple):
    """So much of a slot must be free, or the text is the reason."""

    slot: int
    amount: int
    text: str


Version = Callable[[], Hashable]


class Settled:
    """A version that can change only when a node, another object or the set of classes does, never with
    pods coming and going; so it is looked at less often."""

    __slots__ = ("version",)

    def __init__(self, version: Version) -> None:
        self.version = version

    def __call__(self) -> Hashable:
        return self.version()


def everywhere(view: View) -> Cells:
    """What passes where there is nothing to check."""
    return view.full(True)


class Filter(msgspec.Struct, frozen=True):
    passes: Callable[[View], Cells]
    reasons: Callable[[View], list[Reason]]
    scope: Scope
    version: Version | None = None
    facets: tuple[Facet, ...] = ()
    needs: tuple[Need, ...] | None = None
    """Where a row passes if and only if so much of these slots is free."""
    only: frozenset[str] | None = None
    """The names of the only nodes worth looking at, where the class itself says so."""
    kind: Callable[[int], Hashable] | None = None
    """What a row's passing depends on, besides how much is allocatable and claimed there; where it
    depends on still more, None."""

    @property
    def by_amounts(self) -> bool:
        """Whether rows of the same kind fare alike if as much is allocatable and claimed there."""
        return self.needs is not None or self.kind is not None

    @classmethod
    def nothing(cls, version: Version) -> "Filter":
        """There is nothing to check, but there may be when the version changes."""
        return cls(everywhere, lambda view: [], Scope.NODE, version)


class Rejected(msgspec.Struct, frozen=True):
    message: str
    resolvable: bool = False
    error: bool = False
    """The pod spec is invalid (reported as SchedulerError), not just unschedulable."""
    version: Version | None = None


class Normalize(Protocol):
    """Brings raw scores to 0..100 in two steps, so that a change of few rows costs little."""

    def measure(self, raw: NDArray[np.int64]) -> Hashable:
        """What must be known of the raw scores of all nodes that passed (there is at least one)."""

    def apply(self, raw: Cells, measure: Any) -> Cells:
        """The scores of some rows."""


class Score(msgspec.Struct, frozen=True):
    score: Callable[[View], Cells]
    scope: Scope
    normalize: Normalize | None = None
    version: Version | None = None
    facets: tuple[Facet, ...] = ()
    constant: int | None = None
    by_amounts: bool = False
    """Whether rows on which as much is allocatable and claimed of everything score alike."""
    kind: Callable[[int], Hashable] | None = None
    """What else that depends on, if anything."""

    @classmethod
    def same(cls, value: int, version: Version | None = None) -> "Score":
        """Every node scores this."""
        return cls(lambda view: value, Scope.NODE, version=version, constant=value)


class ByMaximum:
    """kube-scheduler's default: the best raw score becomes 100, or 0 where less is better."""

    def __init__(self, reverse: bool = False) -> None:
        self._reverse = reverse

    def measure(self, raw: NDArray[np.int64]) -> int:
        return int(raw.max())

    def apply(self, raw: Cells, measure: int) -> Cells:
        if measure == 0:
            return raw * 0 + (MAX_SCORE if self._reverse else 0)
        scaled = raw * MAX_SCORE // measure
        return MAX_SCORE - scaled if self._reverse else scaled


class Range(NamedTuple):
    low: int
    high: int


class ByRange:
    """The worst raw score becomes 0 and the best 100; where all are equal, all are 0.

    A column keeps count of how many nodes have the worst and the best, so that a pod that changes
    neither costs no look at all nodes."""

    def measure(self, raw: NDArray[np.int64]) -> Range:
        return Range(int(raw.min()), int(raw.max()))

    def apply(self, raw: Cells, measure: Range) -> Cells:
        width = measure.high - measure.low
        return (raw - measure.low) * MAX_SCORE // width if width else raw * 0


class Outcome(NamedTuple):
    """What `reserve` and `permit` answer: fine if there is no message."""

    message: str = ""
    wait: float = 0.0
    """Permit only: hold the pod back until allowed, at most this long."""
    retry: bool = False
    """Permit only: where there is a message, whether to try again after a back-off whatever happens."""


FINE = Outcome()


Order = Callable[[list[PodRecord]], list[PodRecord]]
"""Puts pods in order; asked for only where the order matters."""


class Trial(Protocol):
    """What `post_filter` can try."""

    def resolvable(self) -> NDArray[np.bool_]:
        """The rows where removing pods could help."""

    def victims(
        self, row: int, pods: list[PodRecord], spared_first: Order
    ) -> list[PodRecord] | tuple[str, ...]:
        """The victims among these pods of the row, reprieved in this order; or the reasons why the pod
        does not fit even without all of them."""

    def reservation_uid(self, row: int, victims: Iterable[PodRecord]) -> str | None:
        """The uid of the reservation the pod would be allocated from there, were these gone; empty if
        from none; None if it is never allocated from any."""

    def reservations(self) -> str:
        """The reservations that match the pod, counted by the reason why they are infeasible."""

    def reservations_to_go(
        self, row: int, reserving: list[PodRecord], gone: list[PodRecord], spared_first: Order
    ) -> list[PodRecord] | tuple[str, ...]:
        """As `victims`, of reserve pods, each with the pods allocated from its reservation; those said
        to be `gone` are gone already."""

    def of(self, pod: PodRecord) -> tuple[int, "Trial"]:
        """Where another pod of the profile would go now, -1 if nowhere; and what to try for it."""

    def allowed(self) -> NDArray[np.bool_] | None:
        """The rows that topology filters allow, or may allow once others have left; None where there
        are no such filters."""

    def ruled_out(self, rows: NDArray[np.intp]) -> Counter[tuple[str, ...]]:
        """The reasons of topology filters for rows that are not `allowed`."""

    @property
    def passing(self) -> list[int]:
        """The rows whose `victims` were found by more than what is on the row itself."""

    @property
    def is_separable(self) -> bool:
        """Whether `victims` holds as long as nothing changes on the row, but for those `passing`, and
        given that the row is `allowed`."""

    @property
    def is_local(self) -> bool:
        """Whether the answers for a row depend on nothing but that row."""

    @property
    def version(self) -> int:
        """Moves when answers may change though no row did."""


class Claim(NamedTuple):
    """A reserve pod that takes its place on a row at once, though others there have still to go."""

    pod: PodRecord
    row: int
    clears: frozenset[str]
    """The uids of the reservations that have to."""


class Offer(NamedTuple):
    """Nodes whose capacity could be held for a task, whatever runs there now."""

    rows: NDArray[np.intp]
    names: list[str]
    idle: Callable[[int], NDArray[np.int64]]
    """What is idle on each of them, by slot: capacity that is held for starving jobs is."""
    held: NDArray[np.bool_]
    """Whether something is held there already."""
    more: int
    """How many of the others may come to hold something."""


class ObjectWarning(NamedTuple):
    """What is wrong with an object, said in an event once; nothing any more if the message is empty."""

    about: ObjectRef
    reason: str
    message: str


class Nomination(NamedTuple):
    """What `post_filter` proposes. It takes effect when the cycle applies it, if it does: the same is
    asked for its message alone, by `holdfast explain` and when reasons are looked into again."""

    node: str | None = None
    """Where the pod will fit once the decisions have been carried out; empty if nowhere; None if
    that was not looked into, and an earlier nomination stands."""
    message: str = ""
    """Joined to the pod's message."""
    decisions: tuple[Decision, ...] = ()
    claims: tuple[Claim, ...] = ()
    """Instead of a node: of a reserve pod, and of others that belong with it; taken all, or none."""
    warnings: tuple[ObjectWarning, ...] = ()
    has_failed: bool = False
    """Set by the cycle where a plugin raised; never by a plugin."""


class Plugin:
    """Base of all plugins. Override what applies; what is not overridden is not called."""

    name: ClassVar[str]
    api_version: ClassVar[str] = API_VERSION
    """The version of the contract the plugin was written for."""
    wakes_on: ClassVar[int] = Change.ANY
    reads_annotations: ClassVar[frozenset[str]] = frozenset()
    """The annotations of pods the plugin reads, which thereby become part of their class: names, and
    beginnings of names that end in a slash."""
    reads_fields: ClassVar[tuple[str, ...]] = ()
    """Other fields of pods it reads, by path: `"spec.hostIPC"`. `cls.fields` has their values."""
    reads_objects: ClassVar[tuple[ObjectKind, ...]] = ()
    """The kinds of objects the plugin reads that Holdfast does not: custom resources, say."""
    reads_volumes: ClassVar[bool] = False
    """Whether the plugin reads a pod's volumes; see above."""

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        self.handle = handle
        self.args = args

    def pre_enqueue(self, pod: PodRecord) -> str:
        """Why the pod must not be queued yet; empty if it may be."""
        return ""

    def sort_key(self, pod: PodRecord) -> tuple[Any, ...]:
        """Pods with a smaller key are tried first; as they came, unless a plugin says otherwise."""
        return (pod.queued_since,)

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        return None

    def watches(self, cls: PodClass) -> Collection[Hashable]:
        """What of storage the answer for the class depends on; see
        `holdfast.scheduler.managers.volumes.queueing_hints`."""
        return ()

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        return Nomination()

    def can_preempt_for(self, cls: PodClass) -> bool:
        """Whether `post_filter` could find something for pods of the class; if not, it is asked for
        its message once for all of them."""
        return True

    def score(self, cls: PodClass) -> Score | None:
        return None

    def node_order_on_resource(self, cls: PodClass, offer: Offer) -> NDArray[np.float64]:
        """A score for each node of the offer: how well it suits to be held for a pod of the class."""
        return np.zeros(len(offer.rows))

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        return FINE

    def unreserve(self, pod: PodRecord, row: int) -> None:
        return None

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        return FINE

    def pre_bind(self, pod: PodRecord, row: int) -> list[Decision]:
        return []

    def bind(self, pod: PodRecord, row: int) -> list[Decision]:
        return []

    def post_bind(self, pod: PodRecord, row: int) -> list[Decision]:
        return []


_POINTS = {
    "pre_enqueue": ("preEnqueue",),
    "sort_key": ("queueSort",),
    "filter": ("preFilter", "filter"),
    "post_filter": ("postFilter",),
    "score": ("preScore", "score"),
    "node_order_on_resource": ("nodeOrderOnResource",),
    "reserve": ("reserve",),
    "unreserve": ("reserve",),
    "permit": ("permit",),
    "pre_bind": ("preBind",),
    "bind": ("bind",),
    "post_bind": ("postBind",),
}


def extension_points(plugin: type[Plugin]) -> frozenset[str]:
    """kube-scheduler's extension points at which a plugin does something."""
    return frozenset(point for method in overridden(plugin) for point in _POINTS.get(method, ()))


def overridden(plugin: type[Plugin]) -> list[str]:
    """The methods of a plugin that are called."""
    methods = (*_POINTS, "watches", "can_preempt_for")
    return [name for name in methods if getattr(plugin, name) is not getattr(Plugin, name)]
