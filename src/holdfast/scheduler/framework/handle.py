"""The handle of a plugin: what it may read of the cluster.

Every plugin is created with a `Handle` of its own. It provides rows and node objects, columns that
follow the nodes, and counts of pods per row; it cannot change the scheduler's state. The columns are as
long as the node table at any time and are kept up to date for as long as the plugin keeps them.

Rows without a node are part of every view: a node may be deleted while pods are still there, or its
object may not have arrived yet. Their cells have the `missing` value of a column, and a plugin's
answers about them are ignored.

    column                     follows                                   use it under
    nodes.label(key)           the values of a label, as codes           Scope.NODE
    nodes.annotation(key, …)   an annotation, as a number                Scope.NODE
    nodes.column(of, …)        any function of the node                  Scope.NODE
    nodes.new_column(…)        what the plugin writes to it              Scope.USAGE
    nodes.by_taints(of)        any function of the node's taints         Scope.NODE
    nodes.image(name)          which nodes have an image                 Scope.NODE
    nodes.matching_labels(…)   a node selector, as a formula             Scope.NODE
    nodes.matching_terms(…)    node affinity, as a formula               Scope.NODE
    count_pods(matches)        pods of certain classes on each row       Scope.USAGE
    taken_ports(cls)           uses of the class's host ports            Scope.USAGE

In-tree plugins that maintain a part of the cluster's state reach it by `cluster_of`, which is not part
of the contract.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any
from weakref import ref

import numpy as np

from holdfast.api.affinity import NodeSelectorTerm
from holdfast.api.raw_objects import ObjectKind
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.node_selectors import Mask, compile_labels, compile_terms
from holdfast.scheduler.cluster.node_table import NodeInfo, TaintSet
from holdfast.scheduler.cluster.plugin_errors import RAISED, words_of
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.node_columns import (
    DerivedColumn,
    NodeColumn,
    NodeImage,
    NodeLabel,
    OwnColumn,
    PodCounts,
    TaintColumn,
    TakenPorts,
    Unreadable,
)
from holdfast.scheduler.framework.read_only_records import real, shown, shown_pods
from holdfast.scheduler.state.cluster import Cluster

UNREADABLE = "UnreadableByPlugin"
"""The reason of the event on a node that a plugin fails to read."""
_LABELS_KEPT = 32


class Nodes:
    """The nodes, by row."""

    def __init__(self, cluster: Cluster, plugin: str) -> None:
        self._cluster = cluster
        self._table = cluster.nodes
        self.name = cluster.nodes.name
        """The name of a row's node: `nodes.name(row)`. Bound here, since every bind asks for it."""
        self._plugin = plugin
        self._labels: dict[str, NodeLabel] = {}
        self._derived: list[ref[DerivedColumn]] = []
        self._listens = False
        self._problems: dict[int, ObjectRef] = {}
        """The nodes that the plugin failed to read, by row."""

    def __len__(self) -> int:
        """How many nodes there are."""
        return self._table.count

    def rows(self) -> list[int]:
        """The rows that have a node."""
        found: list[int] = np.flatnonzero(self._table.alive[: self._table.size]).tolist()
        return found

    def row(self, name: str) -> int | None:
        """The row of a node's name, whether or not the node exists."""
        return self._table.row(name)

    def node(self, row: int) -> NodeInfo | None:
        """The node of a row, read-only and not to be kept; None if there is none."""
        return self._table.info.get(row)

    def label(self, key: str) -> NodeLabel:
        """A label of nodes; cheap to call repeatedly."""
        label = self._labels.pop(key, None)
        if label is None:
            label = NodeLabel(self._table.labels.column(key))
            if len(self._labels) >= _LABELS_KEPT:
                del self._labels[next(iter(self._labels))]
        self._labels[key] = label
        return label

    def annotation(
        self,
        key: str,
        read: Callable[[str], Any],
        missing: Any,
        dtype: type[Any] = np.int64,
    ) -> NodeColumn:
        """An annotation of nodes, read whenever it changes. Nodes without it have the `missing` value;
        so have nodes for which `read` raises, which get an event."""

        def of(info: NodeInfo) -> Any:
            text = info.annotations.get(key)
            return missing if text is None else read(text)

        return self._follow(of, missing, dtype, f"metadata.annotations[{key}]")

    def column(
        self,
        of: Callable[[NodeInfo], Any],
        missing: Any,
        dtype: type[Any] = np.int64,
    ) -> NodeColumn:
        """A function of the node object, computed whenever the node changes. Rows without a node have
        the `missing` value; so have nodes for which `of` raises, which get an event."""
        return self._follow(of, missing, dtype, "")

    def by_taints(self, of: Callable[[TaintSet], int]) -> TaintColumn:
        """A number that follows from a node's taints, computed once for each distinct set of them."""
        return TaintColumn(self._table, of)

    @property
    def taint_effects(self) -> frozenset[str]:
        """The effects of the taints that nodes have."""
        return self._table.taints.effects

    def image(self, name: str) -> NodeImage | None:
        """Which nodes have an image, by a name as `cls.images` has it; None if no node has it."""
        image = self._table.images.get(name)
        return None if image is None else NodeImage(image)

    @property
    def images_version(self) -> int:
        """Changes when an image appears on a node or disappears from one; 0 until there are any."""
        return self._table.images.version

    def matching_labels(self, labels: Mapping[str, str]) -> Mask:
        """A formula: the rows whose node has all these labels, as for a pod's `nodeSelector`."""
        masks = compile_labels(self._table, labels)

        def matches(view: View) -> Cells:
            found = view.full(True)
            for mask in masks:
                found = found & mask(view)
            return found

        return matches

    def matching_terms(self, terms: Sequence[NodeSelectorTerm]) -> Mask:
        """A formula: the rows whose node matches one of these terms, as for required node affinity."""
        return compile_terms(self._table, terms)

    def _follow(
        self, of: Callable[[NodeInfo], Any], missing: Any, dtype: type[Any], what: str
    ) -> NodeColumn:
        made = DerivedColumn(self._table.columns.new(dtype, missing), of, missing, what)
        if not self._listens:
            self._listens = True
            self._cluster.node_listeners.append(self._node_changed)
        self._derived.append(ref(made))
        for row in self.rows():
            if made.follow(row, self._table.info[row]) is not None:
                self._node_changed(row)
        return made

    def new_column(self, dtype: type[Any] = np.int64, fill: Any = 0) -> OwnColumn:
        """A column of the plugin's own values."""
        column = self._table.columns.new(dtype, fill, starts_over=True)
        return OwnColumn(column, self._cluster.epoch.usage)

    def _node_changed(self, row: int) -> None:
        info = self._table.info.get(row)
        columns = [column for each in self._derived if (column := each()) is not None]
        if len(columns) < len(self._derived):
            self._derived = [ref(column) for column in columns]
        problems = [error for column in columns if (error := column.follow(row, info)) is not None]
        known = self._problems.pop(row, None)
        if info is not None and problems:
            about = ObjectRef("Node", "", info.name, info.uid)
            self._problems[row] = about
            for error in problems:
                if not isinstance(error, Unreadable):
                    self._cluster.plugin_errors.note(self._plugin, "NodeColumn", error)
            texts = "; ".join(words_of(error) or type(error).__name__ for error in problems)
            message = f"plugin {self._plugin}: {texts}"
            self._cluster.warn_once(about, UNREADABLE, message, self._plugin)
        if known is not None and self._problems.get(row) != known:
            self._cluster.warn_once(known, UNREADABLE, "", self._plugin)


class Handle:
    """What a plugin is created with."""

    def __init__(
        self,
        cluster: Cluster,
        plugin: str,
        scheduler_name: str,
        reads_objects: tuple[ObjectKind, ...] = (),
    ) -> None:
        self._cluster = cluster
        self._plugin = plugin
        self._reads_objects = reads_objects
        self._has_time = False
        self.nodes = Nodes(cluster, plugin)
        self.scheduler_name = scheduler_name
        """The scheduler name of the plugin's profile."""

    @property
    def now(self) -> float:
        """The scheduler's time in seconds since 1970; simulated time in a simulation. Raises while the
        plugin is being created."""
        if not self._has_time:
            raise LookupError("handle.now is not available in __init__")
        return self._cluster.now

    def slot(self, resource: str) -> int:
        """The number of a resource in a view: `view.free(handle.slot("cpu"))`. Amounts are in base
        units: thousandths of a CPU, bytes, and one for everything else."""
        return self._cluster.nodes.pinned_slot(resource)

    def count_pods(
        self, matches: Callable[[PodClass], bool], with_reserve_pods: bool = False
    ) -> PodCounts:
        """Counts the pods on each row whose class matches. Reserve pods are left out unless requested.
        Matching may depend on the class alone."""

        def counts(cls: PodClass) -> bool:
            if cls.owner_spec_id >= 0 and not with_reserve_pods:
                return False
            try:
                return bool(matches(shown(cls)))
            except RAISED as error:
                self._cluster.plugin_errors.note(self._plugin, "CountPods", error)
                return False

        return PodCounts(self._cluster.topology.counter(object(), counts), self._cluster.reservations)

    def taken_ports(self, cls: PodClass) -> TakenPorts:
        """How often the host ports of the class are in use on each row, by pods and by reservations
        that its pods cannot be allocated from."""
        return TakenPorts(self._cluster.nodes, self._cluster.reservations, real(cls))

    def pods(self, row: int) -> list[PodRecord]:
        """The pods on a row, assumed ones included, read-only and not to be kept."""
        return shown_pods(self._cluster.ledger.pods.get(row, {}).values())

    def objects(self, kind: ObjectKind) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        """The objects of a kind that the plugin declares in `reads_objects`, by namespace (empty for
        cluster-scoped kinds) and name, sorted by both; decoded JSON, read-only all the way down. The
        plugin is asked again about every class when one of them changes."""
        if kind not in self._reads_objects:
            raise LookupError(f"plugin {self._plugin} does not declare {kind.kind} in reads_objects")
        return self._cluster.raw_objects.of(kind)

    def version_of(self, *kinds: ObjectKind) -> Callable[[], Hashable]:
        """A function whose value changes whenever an object of one of these kinds does."""
        return self._cluster.raw_objects.version_of(kinds)


def plugin_made(handle: Handle) -> None:
    """Called when the plugin is created: from now on `now` can be read."""
    handle._has_time = True


def cluster_of(handle: Handle) -> Cluster:
    """The cluster, for in-tree plugins that maintain a part of its state."""
    return handle._cluster
