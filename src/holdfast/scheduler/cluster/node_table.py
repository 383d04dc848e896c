"""The node table: a row per node, a column per quantity; with the nodes' taints, images and host ports.

A row belongs to a node's *name*. It exists while the node object does, or while pods are known to be on
a node of that name: a pod may be seen before its node, and may outlive it. A row without a node object
is not `alive` and has nothing allocatable. Rows are given out lowest first, so nodes that were seen
earlier have lower rows, and ties between nodes are broken by row.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.api import quantity
from holdfast.api.affinity import Taint
from holdfast.api.errors import InvalidObject
from holdfast.api.node import Node
from holdfast.scheduler.cluster.columns import RowColumn, RowColumns, cells_of
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_labels import LabelColumns
from holdfast.scheduler.cluster.read_only import ReadOnlyDict, read_only
from holdfast.scheduler.cluster.slots import CPU, MEMORY, MOST, NONZERO_CPU, NONZERO_MEMORY, Slots

TaintSet = tuple[Taint, ...]
Key = tuple[tuple[str, str, str], ...]
EMPTY = 0
_MAX_RESOURCES = 512
_MAX_IMAGES = 500
_MAX_IMAGE_NAMES = 16


class TaintSets:
    """Sets of taints, interned: tolerations are evaluated once per distinct set, not per node.

    Set 0 is the empty one. A set keeps its code as long as a node has it; then the code may be given to
    another set, which `reused` counts."""

    def __init__(self) -> None:
        self._sets: list[TaintSet] = [()]
        self._code: dict[Key, int] = {(): EMPTY}
        self._users: list[int] = [1]
        self._free: list[int] = []
        self.reused = 0
        self._effects: Counter[str] = Counter()
        """In how many sets each effect occurs."""

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, code: int) -> TaintSet:
        return self._sets[code]

    def hold(self, taints: list[Taint]) -> int:
        """The code of a set, with one node more that has it."""
        key = _key(taints)
        code = self._code.get(key)
        if code is None:
            if self._free:
                code = heapq.heappop(self._free)
                self._sets[code] = tuple(taints)
                self.reused += 1
            else:
                code = len(self._sets)
                self._sets.append(tuple(taints))
                self._users.append(0)
            self._code[key] = code
            self._effects.update({taint.effect for taint in taints})
        self._users[code] += 1
        return code

    def let_go(self, code: int) -> None:
        """Counts one node less that has the set; its code is released with the last one."""
        self._users[code] -= 1
        if not self._users[code]:
            gone = self._sets[code]
            self._effects -= Counter({taint.effect for taint in gone})
            del self._code[_key(gone)]
            self._sets[code] = ()
            heapq.heappush(self._free, code)

    @property
    def effects(self) -> frozenset[str]:
        """The effects of all taints of nodes."""
        return frozenset(self._effects)

    def in_use(self) -> int:
        return len(self._code)


def _key(taints: Sequence[Taint]) -> Key:
    return tuple((taint.key, taint.value, taint.effect) for taint in taints)


class Image:
    """A container image on nodes. As in kube-scheduler it has one size, that of the first node seen
    with it, as long as any node has it."""

    __slots__ = ("column", "nodes", "size")

    present: NDArray[np.bool_] = cells_of("column")
    """The rows whose nodes have it."""

    def __init__(self, size: int, columns: RowColumns) -> None:
        self.size = size
        self.nodes = 0
        self.column = columns.new(np.bool_)


class Images:
    """The images on nodes. `version` moves when an image is added to or removed from a node."""

    def __init__(self, columns: RowColumns) -> None:
        self._columns = columns
        self._images: dict[str, Image] = {}
        self._on_row: dict[int, frozenset[str]] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._images)

    def get(self, name: str) -> Image | None:
        return self._images.get(name)

    def on(self, row: int) -> frozenset[str]:
        return self._on_row.get(row, frozenset())

    def set(self, row: int, sizes: Mapping[str, int]) -> None:
        names = frozenset(sizes)
        before = self._on_row.get(row, frozenset())
        # If no other node has the image, its size is the one this node reports now.
        resized = [
            name
            for name in sorted(names & before)
            if self._images[name].nodes == 1 and self._images[name].size != sizes[name]
        ]
        if names == before and not resized:
            return
        self.version += 1
        for name in resized:
            self._images[name].size = sizes[name]
        for name in sorted(before - names):
            image = self._images[name]
            image.present[row] = False
            image.nodes -= 1
            if image.nodes == 0:
                del self._images[name]
        for name in sizes:
            if name in before:
                continue
            found = self._images.get(name)
            if found is None:
                found = self._images[name] = Image(sizes[name], self._columns)
            found.present[row] = True
            found.nodes += 1
        if names:
            self._on_row[row] = names
        else:
            self._on_row.pop(row, None)


def normalized(name: str) -> str:
    """An image name with its tag, `latest` if none is given."""
    return name if name.rfind(":") > name.rfind("/") else name + ":latest"


WILDCARD = "0.0.0.0"


class HostPort(NamedTuple):
    """A port of a node, on one address or the wildcard."""

    ip: str
    protocol: str
    port: int


Counts = NDArray[np.int32]


def conflict(one: HostPort, other: HostPort) -> bool:
    """Whether two host ports conflict on one node: protocol and number are equal, and the addresses are
    equal or one is the wildcard."""
    if (one.protocol, one.port) != (other.protocol, other.port):
        return False
    return WILDCARD in (one.ip, other.ip) or one.ip == other.ip


class PortUse:
    """How many pods of each row use a host port, per address and over all addresses. Counts of a port
    that is no longer used are dropped, so callers must not keep them."""

    def __init__(self, columns: RowColumns) -> None:
        self._columns = columns
        self._by_address: dict[HostPort, RowColumn[np.int32]] = {}
        self._by_port: dict[tuple[str, int], RowColumn[np.int32]] = {}
        self._totals: dict[HostPort | tuple[str, int], int] = {}
        self._none = columns.new(np.int32)

    def __len__(self) -> int:
        return len(self._by_port)

    def add(self, row: int, port: HostPort, count: int) -> None:
        self._add(self._by_address, port, row, count)
        self._add(self._by_port, (port.protocol, port.port), row, count)

    def _add(self, uses: dict[Any, RowColumn[np.int32]], key: Any, row: int, count: int) -> None:
        counts = uses.get(key)
        if counts is None:
            counts = uses[key] = self._columns.new(np.int32)
        counts.cells[row] += count
        total = self._totals[key] = self._totals.get(key, 0) + count
        if not total:
            del uses[key], self._totals[key]

    def uses(self, port: HostPort) -> Counts:
        """How many pods of each row use this port on exactly this address."""
        return self._by_address.get(port, self._none).cells

    def uses_anywhere(self, port: HostPort) -> Counts:
        """How many pods of each row use this port on any address."""
        return self._by_port.get((port.protocol, port.port), self._none).cells

    def conflicts(self, port: HostPort) -> tuple[Counts, ...]:
        """The counts of conflicting ports: a row has a conflict where one of them is not zero."""
        if port.ip == WILDCARD:
            return (self.uses_anywhere(port),)
        return (self.uses(port), self.uses(port._replace(ip=WILDCARD)))

    def in_use(self, row: int) -> dict[HostPort, int]:
        return {port: int(c.cells[row]) for port, c in self._by_address.items() if c.cells[row]}


Matrix = NDArray[np.int64]

NO_PODS = 2**62
"""The lowest priority on a row without pods."""

_FIRST_CAPACITY = 64
_FIRST_SLOTS = 8
_MORE_SLOTS = 4
"""How many slots are added at a time: few, since placing a pod costs time for each slot."""


@dataclass(slots=True, frozen=True)
class NodeInfo:
    """What the scheduler reads of a node object, with quantities as integers. It is read-only, because
    plugins see it."""

    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: list[Taint]
    unschedulable: bool
    allocatable: Mapping[str, int]
    images: Mapping[str, int]
    features: frozenset[str] = frozenset()
    """The features that the node's kubelet declares."""
    derived: frozenset[str] = frozenset()
    """The resources in `allocatable` that are not the node's own but follow from its devices."""


def node_info(node: Node) -> NodeInfo:
    """What scheduling reads of a node; raises InvalidObject if a quantity is invalid or there are too
    many resources. Only the first few hundred images count; a kubelet lists fifty."""
    meta, status = node.metadata, node.status
    field = "allocatable" if status.allocatable else "capacity"
    offered = {}
    listed = status.allocatable or status.capacity
    if len(listed) > _MAX_RESOURCES:
        why = f"{len(listed)} resources exceed the limit of {_MAX_RESOURCES}"
        raise InvalidObject(f"Node/{meta.name}", f"status.{field}", why)
    for name, given in listed.items():
        try:
            offered[name] = min(quantity.amount(name, given), MOST)
        except ValueError as error:
            raise InvalidObject(f"Node/{meta.name}", f"status.{field}[{name}]", str(error)) from error
    return NodeInfo(
        name=meta.name,
        uid=meta.uid,
        labels=ReadOnlyDict(meta.labels),
        annotations=read_only(meta.annotations),
        taints=read_only(node.spec.taints),
        unschedulable=node.spec.unschedulable,
        allocatable=ReadOnlyDict(offered),
        images=ReadOnlyDict(
            {
                name: image.size_bytes
                for image in reversed(status.images[:_MAX_IMAGES])
                for name in image.names[:_MAX_IMAGE_NAMES]
            }
        ),
        features=frozenset(status.declared_features),
    )


def with_devices(info: NodeInfo, offered: Mapping[str, int]) -> NodeInfo:
    """The node with the resources of its devices, as far as its own allocatable does not have them."""
    if not offered and not info.derived:
        return info
    own = {name: value for name, value in info.allocatable.items() if name not in info.derived}
    more = {name: value for name, value in offered.items() if name not in own}
    return replace(info, allocatable=ReadOnlyDict(own | more), derived=frozenset(more))


def difference(before: NodeInfo, after: NodeInfo) -> int:
    """The kinds of change between two versions of a node, as a `Change`."""
    changes = Change.NONE
    if before.allocatable != after.allocatable:
        changes |= Change.NODE_ALLOCATABLE
    if before.labels != after.labels:
        changes |= Change.NODE_LABELS
    if before.taints != after.taints or before.unschedulable != after.unschedulable:
        changes |= Change.NODE_TAINTS
    if (
        before.annotations != after.annotations
        or before.images != after.images
        or before.features != after.features
    ):
        changes |= Change.NODE_OTHER
    return changes


class Held(NamedTuple):
    """The amounts a reservation claims, by slot."""

    now: Mapping[int, int]
    in_the_end: Mapping[int, int]
    """What it claims once all pods allocated from it have ended, except daemon pods."""


class NodeTable:
    """Rows of nodes with their allocatable and claimed amounts, by slot and row."""

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self.size = 0
        """One more than the highest row ever in use: vectors are computed over `[:size]`."""
        self.count = 0
        """The number of nodes: the N of `0/N nodes are available`."""
        self.slots = Slots()
        self.allocatable = _matrix(_FIRST_SLOTS, self.capacity)
        self.claimed = _matrix(_FIRST_SLOTS, self.capacity)
        """Requests of pods, plus the remaining amounts of reservations."""
        self._held = _matrix(_FIRST_SLOTS, self.capacity)
        self._held_once_pods_end = _matrix(_FIRST_SLOTS, self.capacity)
        self.held_outdated: dict[int, None] = {}
        """Rows whose cells in `held` and `held_once_pods_end` are out of date."""
        self.held_on: Callable[[int], Collection[Held]] | None = None
        """Returns what each reservation on a row claims; set by the table's first ledger. Further
        ledgers are for recounts."""
        self.daemon_requested = _matrix(_FIRST_SLOTS, self.capacity)
        """The part of `claimed` that daemon pods claim."""
        self.lowest: NDArray[np.int64] = np.full(self.capacity, NO_PODS, dtype=np.int64)
        """The lowest priority of the pods on a row."""
        self.lowest_held: NDArray[np.int64] = np.full(self.capacity, NO_PODS, dtype=np.int64)
        """The lowest priority of the reservations on a row."""
        self.alive: NDArray[np.bool_] = np.zeros(self.capacity, dtype=np.bool_)
        self.taint_set: NDArray[np.int32] = np.zeros(self.capacity, dtype=np.int32)
        self.taints = TaintSets()
        self.columns = RowColumns(self.capacity)
        """The columns of other modules over these rows."""
        self.labels = LabelColumns(self.columns)
        self.ports = PortUse(self.columns)
        self.images = Images(self.columns)
        self.info: dict[int, NodeInfo] = {}
        self.sparse: frozenset[int] = frozenset()
        """The slots of which at least one node has nothing."""
        self._having: NDArray[np.int64] = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        """By slot, how many nodes have some of the resource."""
        self._row: dict[str, int] = {}
        self._name: list[str] = []
        self._free: list[int] = []

    def row(self, name: str) -> int | None:
        return self._row.get(name)

    def name(self, row: int) -> str:
        return self._name[row]

    def names(self) -> Iterator[tuple[str, int]]:
        return iter(self._row.items())

    def slot(self, resource: str) -> int:
        """The slot of a resource; the matrices have a line for it. It belongs to the resource as long
        as a node, a pod class or a reservation has some of it; see `Cluster.release_slots`."""
        return self._fitted(self.slots.of(resource))

    def pinned_slot(self, resource: str) -> int:
        """The slot of a resource, which is never released: for callers that keep the number."""
        slot = self.slot(resource)
        self.slots.pin(slot)
        return slot

    def derived_slot(self, sum_of: str, resource: str) -> int:
        """The slot of a derived sum; see `Slots.derived`."""
        return self._fitted(self.slots.derived(sum_of, resource))

    def _fitted(self, slot: int) -> int:
        if slot >= len(self.allocatable):
            self._resize(len(self.allocatable) + _MORE_SLOTS, self.capacity)
        return slot

    def open_row(self, name: str) -> int:
        """The row of a node name, a new one if it has none."""
        row = self._row.get(name)
        if row is not None:
            return row
        if self._free:
            row = heapq.heappop(self._free)
            self._name[row] = name
            self.columns.row_reopened(row)
        else:
            row = self.size
            if row == self.capacity:
                self._grow(self.capacity * 2)
            self.size += 1
            self._name.append(name)
        self._row[name] = row
        return row

    @property
    def held(self) -> Matrix:
        """The part of `claimed` that reservations claim. It changes with every owner that is bound and
        is read rarely, so it is brought up to date when it is read."""
        self._write_held()
        return self._held

    @property
    def held_once_pods_end(self) -> Matrix:
        """What reservations claim once all pods except daemon pods have ended: reusable reservations
        then have back what those pods used. Together with `daemon_requested` this is the part of a node
        that cannot become free while its reservations exist."""
        self._write_held()
        return self._held_once_pods_end

    def _write_held(self) -> None:
        if not self.held_outdated or self.held_on is None:
            return
        outdated, self.held_outdated = self.held_outdated, {}
        held, held_once_pods_end = self._held, self._held_once_pods_end
        for row in outdated:
            held[:, row] = 0
            holds = self.held_on(row)
            for now, _ in holds:
                for slot, amount in now.items():
                    held[slot, row] += amount
            held_once_pods_end[:, row] = held[:, row]
            for now, in_the_end in holds:
                if in_the_end is not now:
                    for slot in now.keys() | in_the_end.keys():
                        held_once_pods_end[slot, row] += in_the_end.get(slot, 0) - now.get(slot, 0)

    def close_row(self, row: int) -> None:
        """Releases a row, which must have neither a node object nor claims."""
        del self._row[self._name[row]]
        self._name[row] = ""
        heapq.heappush(self._free, row)

    def put(self, row: int, info: NodeInfo) -> None:
        """Writes a node object into its row."""
        if not self.alive[row]:
            self.alive[row] = True
            self.count += 1
        slots = {self.slot(name): amount for name, amount in info.allocatable.items()}
        column = np.zeros(len(self.allocatable), dtype=np.int64)
        for slot, amount in slots.items():
            column[slot] = amount
        column[NONZERO_CPU], column[NONZERO_MEMORY] = column[CPU], column[MEMORY]
        self._set_allocatable(row, column)
        self._taint(row, info.taints)
        self.labels.set(row, info.labels)
        self.images.set(row, info.images)
        self.info[row] = info

    def drop(self, row: int) -> None:
        """Removes a node object from its row; the claims on the row stay."""
        self.alive[row] = False
        self.count -= 1
        self._set_allocatable(row, np.zeros(len(self.allocatable), dtype=np.int64))
        self._taint(row, [])
        self.labels.clear(row)
        self.images.set(row, {})
        del self.info[row]

    def _taint(self, row: int, taints: list[Taint]) -> None:
        before = self.taint_set.item(row)
        self.taint_set[row] = self.taints.hold(taints)
        if before != EMPTY:
            self.taints.let_go(before)

    def _set_allocatable(self, row: int, column: NDArray[np.int64]) -> None:
        before = self.allocatable[:, row] > 0
        self._having -= before
        self._having += column > 0
        self.slots.left(np.flatnonzero(before & (self._having == 0)).tolist())
        self.allocatable[:, row] = column
        self.sparse = frozenset(np.flatnonzero(self._having < self.count).tolist())

    def _grow(self, capacity: int) -> None:
        more = capacity - self.capacity
        self._resize(len(self.allocatable), capacity)
        self.lowest = np.pad(self.lowest, (0, more), constant_values=NO_PODS)
        self.lowest_held = np.pad(self.lowest_held, (0, more), constant_values=NO_PODS)
        self.alive = np.pad(self.alive, (0, more))
        self.taint_set = np.pad(self.taint_set, (0, more))
        self.columns.grow(capacity)
        self.capacity = capacity

    def _resize(self, slots: int, capacity: int) -> None:
        self._having = np.pad(self._having, (0, slots - len(self._having)))
        self.sparse |= frozenset(range(len(self.allocatable), slots) if self.count else ())
        for name in ("allocatable", "claimed", "_held", "_held_once_pods_end", "daemon_requested"):
            before: Matrix = getattr(self, name)
            after = _matrix(slots, capacity)
            after[: before.shape[0], : before.shape[1]] = before
            setattr(self, name, after)


def _matrix(slots: int, capacity: int) -> Matrix:
    return np.zeros((slots, capacity), dtype=np.int64)
