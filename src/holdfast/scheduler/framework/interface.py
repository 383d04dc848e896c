"""The plugin contract, and the plugin author's manual.

A plugin is a class with a name and some of the methods below. It is created once per profile, with a
`Handle` and its arguments, and asked about *pod classes*, never about single pods or nodes: pods of
one class get one answer. A plugin reads the cluster only by its handle; see
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

**Filtering.** `filter(cls)` is PreFilter and Filter in one. It returns

* `None`: nothing to check for this class (kube-scheduler's Skip);
* a `Filter`: `passes(view)` returns which rows of a view are feasible, and `reasons(view)` why rows are
  not. `reasons` is called only for rows that did not pass;
* a `Rejected`: no node is feasible, whatever it is like.

**Scoring.** `score(cls)` is PreScore, Score and NormalizeScore in one. It returns `None` (every node
0) or a `Score`: `score(view)` gives an integer per row, higher is better, between 0 and 100 unless
`normalize` brings it there. A normalisation gets the raw scores of all nodes that passed the filters.
`Score.constant` is set where all nodes score the same.

**Views.** A view is one row, some, or all; see `holdfast.scheduler.cluster.view`. Its values are
arrays, of one cell for one row; only in-tree plugins get one row as plain numbers. Write arithmetic on
them: operators (`~` included), methods of the view (`negate`, `where`, `divide`, `minimum`, `maximum`,
`clip`, `whole`, `full`) and numpy functions. A filter returns booleans, a score numbers, which are
truncated to integers; anything else is an error that names the plugin. Never loop over rows, never
branch on cells, never write to them. Rows without a node are in a view too: results for them are
ignored.

**Values per row.** A plugin gets values of nodes and pods per row from its handle, once, in `__init__`,
as a column (`handle.nodes.annotation`, `handle.nodes.column`, `handle.count_pods`), and reads them by
`view.take(column)`. Values that it maintains itself, in `reserve` and `unreserve`, go to a column of
`handle.nodes.new_column(…)`.

**Scope.** Answers are kept per class and recomputed only where something changed, so each Filter and
Score declares what it depends on:

* `Scope.NODE`: the node object of the row (labels, taints, allocatable…), nothing else. A third-party
  plugin that reads more under it fails;
* `Scope.USAGE`: also what pods and reservations claim on the row;
* `Scope.TOPOLOGY`, for in-tree plugins alone: only *facets*, small numbers each row has for the class,
  such as its zone or how many pods of a kind are in its rack. Rows with the same facets get the same
  answer, so it is computed once per distinct combination: use nothing of the view but `facet`. A score
  may also use `feasible`, the number of nodes of each combination that passed all filters;
* anything else (other rows, other objects) must be reflected in `version`: a function without
  arguments whose value changes whenever the answer may. On a new value the plugin is asked again
  for the class, and all rows are recomputed.

**Objects.** A plugin that reads objects which Holdfast itself does not read, such as custom resources,
names their kinds in `reads_objects`. Holdfast then watches them. When one of them changes the plugin
is asked again about every class, and pods that it rejected or kept out of the queue are tried again,
without `version` or `wakes_on`.

**Volumes.** Pods of one workload often differ in the claims they name and in nothing else, so only
plugins with `reads_volumes` are asked about each of them. The others are asked once, about a class
without volumes.

**Waking up.** `wakes_on` names the kinds of change that can help a pod this plugin rejected. Nothing
else wakes the pod up, so name too much rather than too little. A plugin about volumes also returns from
`watches` the claims, volumes and other storage objects that its answer for a class depends on: of the
changes to storage (`Change.ABOUT_STORAGE`), only those to one of these wake the pod up.

**After a node was chosen**, in this order, per pod: `reserve` (all plugins; on a later failure
`unreserve` in reverse order), `permit`, then the decisions of `pre_bind`, `bind` (the first plugin
that gives any; for reserve pods only that of the Reservation plugin) and `post_bind`. These may keep
state of their own, and must be able to undo it.
A job's pods pass each step together: if one is refused that the job needs, all are, and while one that
it needs waits in `permit`, the others wait with it.

**Errors.** Whatever a plugin raises, and an invalid answer, rejects the pod with the reason
SchedulerError and a message that names the plugin; the error is counted and logged, and the pod is
tried again after a back-off. Other pods are not affected. A formula that failed finds no row feasible
for the rest of the round. See docs/plugins.md for each method.

**Starvation holds.** `node_order_on_resource(cls, offer)` scores the rows of the offer: which nodes to
hold for a task of a starving job. The scores of all plugins are added; rows whose sum is 0 or less are
not held.

`post_filter` runs when no node passed, in order until one plugin nominates a node. It proposes and
changes nothing: it may be called for its message alone.
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
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.view import Cells, Facet, View
from holdfast.scheduler.framework.handle import Handle, cluster_of

API_VERSION = "v1"
"""Within a version names and meanings are only ever added."""
MAX_SCORE = 100


class Scope(enum.Enum):
    """What a Filter or Score depends on; see the docstring of the module."""

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
    error: bool = False
    """Whether it is an error: if no node is feasible, the pod is reported with SchedulerError and this
    text instead of the counted reasons."""


class Need(NamedTuple):
    """The amount of a slot that must be free, and the reason if it is not."""

    slot: int
    amount: int
    text: str


Version = Callable[[], Hashable]


class Settled:
    """A version that changes only when a node, another object or the set of classes does, and never
    with pods; so it is checked less often."""

    __slots__ = ("version",)

    def __init__(self, version: Version) -> None:
        self.version = version

    def __call__(self) -> Hashable:
        return self.version()


def everywhere(view: View) -> Cells:
    """The formula that all rows pass."""
    return view.full(True)


class Filter(msgspec.Struct, frozen=True):
    """The answer of `filter`: formulas for feasible rows and for reasons."""

    passes: Callable[[View], Cells]
    reasons: Callable[[View], list[Reason]]
    scope: Scope
    version: Version | None = None
    facets: tuple[Facet, ...] = ()
    needs: tuple[Need, ...] | None = None
    """If set, a row passes if and only if these amounts are free."""
    only: frozenset[str] | None = None
    """If set, the names of the only nodes that the class itself allows."""
    kind: Callable[[int], Hashable] | None = None
    """If set, whether a row passes depends only on this value of the row and on what is allocatable and
    claimed there."""
    lasting: Callable[[View], Cells] | None = None
    """For in-tree plugins alone: the rows that pass as far as it does not depend on what is in use. If
    set, it stands for `passes` where a later time is planned: what will be in use then is forecast."""

    @property
    def by_amounts(self) -> bool:
        """Whether rows of the same kind with equal allocatable and claimed amounts get the same
        result."""
        return self.needs is not None or self.kind is not None

    @classmethod
    def nothing(cls, version: Version) -> "Filter":
        """A filter that all rows pass until the version changes."""
        return cls(everywhere, lambda view: [], Scope.NODE, version)


class Rejected(msgspec.Struct, frozen=True):
    """The answer of `filter` where no node is feasible for the class."""

    message: str
    resolvable: bool = False
    error: bool = False
    """The pod spec is invalid (reported as SchedulerError), not just unschedulable."""
    version: Version | None = None


class Normalize(Protocol):
    """Brings raw scores to 0..100 in two steps, so that a change of few rows costs little."""

    def measure(self, raw: NDArray[Any]) -> Hashable:
        """What must be known of the raw scores of all nodes that passed (there is at least one). They
        are of int64, or of float64 where a plugin's scores have fractions."""

    def apply(self, raw: Cells, measure: Any) -> Cells:
        """The normalised scores of some rows."""


class Score(msgspec.Struct, frozen=True):
    """The answer of `score`: a formula for scores, and how they are normalised."""

    score: Callable[[View], Cells]
    scope: Scope
    normalize: Normalize | None = None
    version: Version | None = None
    facets: tuple[Facet, ...] = ()
    constant: int | None = None
    by_amounts: bool = False
    """Whether rows with equal allocatable and claimed amounts score the same."""
    kind: Callable[[int], Hashable] | None = None
    """With `by_amounts`, another value of the row that the score depends on, if any."""

    @classmethod
    def same(cls, value: int, version: Version | None = None) -> "Score":
        """A score that is the same for every node."""
        return cls(lambda view: value, Scope.NODE, version=version, constant=value)


class ByMaximum:
    """kube-scheduler's default: the best raw score becomes 100, or 0 where less is better."""

    def __init__(self, reverse: bool = False) -> None:
        self._reverse = reverse

    def measure(self, raw: NDArray[Any]) -> float:
        most: float = raw.max().item()
        return most

    def apply(self, raw: Cells, measure: float) -> Cells:
        if measure == 0:
            return raw * 0 + (MAX_SCORE if self._reverse else 0)
        scaled = _share(raw, measure)
        return MAX_SCORE - scaled if self._reverse else scaled


class Range(NamedTuple):
    """A measure: the lowest and the highest raw score. A change of a row between them changes no other
    row's score."""

    low: float
    high: float


def _share(part: Cells, whole: float) -> Cells:
    """A percentage, truncated to a whole number. Where numbers have fractions, a millionth
    is within what they cannot express."""
    is_whole = isinstance(part, int) or np.asarray(part).dtype.kind != "f"
    if is_whole and isinstance(whole, int):
        return part * MAX_SCORE // whole
    return np.floor(np.round(part / whole * MAX_SCORE, 6))


class ByRange:
    """The worst raw score becomes 0 and the best 100; where all are equal, all are 0.

    A column counts how many nodes have the worst and the best score, so that a pod that changes neither
    costs no pass over all nodes."""

    def measure(self, raw: NDArray[Any]) -> Range:
        return Range(raw.min().item(), raw.max().item())

    def apply(self, raw: Cells, measure: Range) -> Cells:
        width = measure.high - measure.low
        return _share(raw - measure.low, width) if width else raw * 0


class Outcome(NamedTuple):
    """The result of `reserve` and `permit`: a success if there is no message."""

    message: str = ""
    wait: float = 0.0
    """Permit only: the pod waits until it is permitted, at most this many seconds."""
    retry: bool = False
    """Permit only: with a message, whether to try again after a back-off without waiting for a
    change."""


FINE = Outcome()


Order = Callable[[list[PodRecord]], list[PodRecord]]
"""Sorts pods; called only where the order matters."""


class Trial(Protocol):
    """The dry run that `post_filter` is called with."""

    def resolvable(self) -> NDArray[np.bool_]:
        """The rows where removing pods could help."""

    def rows_with(self, reason: str) -> NDArray[np.bool_]:
        """The rows that are infeasible for this reason."""

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
        """As `victims`, for reserve pods, each with the pods allocated from its reservation; those in
        `gone` count as gone already."""

    def of(self, pod: PodRecord) -> tuple[int, "Trial"]:
        """The row that another pod of the profile would be placed on now, -1 if none; and its dry
        run."""

    def allowed(self) -> NDArray[np.bool_] | None:
        """The rows that topology filters allow, or may allow without victims; None if there are no such
        filters."""

    def ruled_out(self, rows: NDArray[np.intp]) -> Counter[tuple[str, ...]]:
        """The reasons of topology filters for rows that are not `allowed`."""

    @property
    def passing(self) -> list[int]:
        """The rows whose `victims` depend on more than the row itself."""

    @property
    def is_separable(self) -> bool:
        """Whether the result of `victims` stays valid until the row changes, for rows that are
        `allowed` and not in `passing`."""

    @property
    def is_local(self) -> bool:
        """Whether the answers for a row depend on nothing but that row."""

    @property
    def version(self) -> int:
        """Changes when results may change although no row did."""


class ReservePlacement(NamedTuple):
    """A reserve pod that is placed on a row at once, although victims there are not gone yet."""

    pod: PodRecord
    row: int
    clears: frozenset[str]
    """The uids of these victims, which are reservations."""


class Offer(NamedTuple):
    """Nodes whose capacity could be held for a task, whatever runs there now."""

    rows: NDArray[np.intp]
    names: list[str]
    idle: Callable[[int], NDArray[np.int64]]
    """The idle amount of a slot on each of them; capacity held for starving jobs counts as idle."""
    held: NDArray[np.bool_]
    """Whether each of them has a hold already."""
    more: int
    """How many of the others may get a hold."""


class ObjectWarning(NamedTuple):
    """A problem with an object, for which one event is emitted; an empty message ends the problem."""

    about: ObjectRef
    reason: str
    message: str


class Nomination(NamedTuple):
    """What `post_filter` proposes. It takes effect only when the cycle applies it: `post_filter` is
    also called for its message alone, by `holdfast explain` for one."""

    node: str | None = None
    """The node where the pod fits once the decisions have been carried out; empty if there is none;
    None if the plugin did not search, and an earlier nomination stays."""
    message: str = ""
    """Appended to the pod's condition message."""
    decisions: tuple[Decision, ...] = ()
    reserve_pods: tuple[ReservePlacement, ...] = ()
    """Instead of a node: the placements of a reserve pod and of the others of its gang, all or none."""
    warnings: tuple[ObjectWarning, ...] = ()
    has_failed: bool = False
    """Set by the cycle where a plugin raised; never by a plugin."""


class Plugin:
    """The base of all plugins. Methods that a plugin does not override are not called."""

    name: ClassVar[str]
    api_version: ClassVar[str] = API_VERSION
    """The version of the contract that the plugin was written for."""
    wakes_on: ClassVar[int] = Change.ANY
    reads_annotations: ClassVar[frozenset[str]] = frozenset()
    """The pod annotations that the plugin reads, which become part of a pod's class: names, and
    prefixes that end in a slash."""
    reads_fields: ClassVar[tuple[str, ...]] = ()
    """Other pod fields that the plugin reads, by path: `"spec.hostIPC"`. `cls.fields` has their
    values."""
    reads_objects: ClassVar[tuple[ObjectKind, ...]] = ()
    """The kinds of objects that the plugin reads and Holdfast itself does not, such as custom
    resources."""
    reads_volumes: ClassVar[bool] = False
    """Whether the plugin reads a pod's volumes; see above."""

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        self.handle = handle
        self.args = args

    def pre_enqueue(self, pod: PodRecord) -> str:
        """Why the pod must not be queued yet; empty if it may be."""
        return ""

    def sort_key(self, pod: PodRecord) -> tuple[Any, ...]:
        """Pods with a smaller key are tried first; the default is the time since when they are
        queued."""
        return (pod.queued_since,)

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        return None

    def watches(self, cls: PodClass) -> Collection[Hashable]:
        """The storage objects that the answer for the class depends on; see
        `holdfast.scheduler.managers.volumes.queueing_hints`."""
        return ()

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        return Nomination()

    def can_preempt_for(self, cls: PodClass) -> bool:
        """Whether `post_filter` could nominate a node for pods of the class; if not, it is called once
        for all of them, for its message."""
        return True

    def score(self, cls: PodClass) -> Score | None:
        return None

    def node_order_on_resource(self, cls: PodClass, offer: Offer) -> NDArray[np.float64]:
        """A score for each node of the offer, to be held for a pod of the class."""
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
    """The extension points of kube-scheduler that a plugin implements."""
    return frozenset(point for method in overridden(plugin) for point in _POINTS.get(method, ()))


def overridden(plugin: type[Plugin]) -> list[str]:
    """The methods that a plugin overrides."""
    methods = (*_POINTS, "watches", "can_preempt_for")
    return [name for name in methods if getattr(plugin, name) is not getattr(Plugin, name)]


class ClusterPlugin(Plugin):
    """The base of in-tree plugins that read the cluster itself, and not only what their handle offers.

    They follow the contract in every other respect. Most of them maintain a part of the cluster's
    state: volumes, devices, counts by topology domain, reservations. NodeResourcesFit and
    NodeResourcesBalancedAllocation only read: which resources some nodes lack, and what pods claim that
    stay as long as their node. PrioritySort reads the job of a pod."""

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self.cluster = cluster_of(handle)
