"""The assume cache of volume bindings, and the rows that use a claim, a disk or a volume.

A pod that is assumed on a node can have assumed bindings: an existing volume for a claim, or the node
on which a claim's volume is to be provisioned. They count as if they were on the objects, until the
objects have them or the pod is forgotten. Several pods can share a claim: its binding stays assumed as
long as one of them has it.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from holdfast.api.meta import ObjectReference
from holdfast.scheduler.cluster.columns import cells_of
from holdfast.scheduler.cluster.node_table import NodeTable
from holdfast.scheduler.managers.volumes.volume_objects import ClaimKey


@dataclass(slots=True)
class AssumedBinding:
    """The assumed binding of one volume or claim."""

    claim: ObjectReference | None = None
    """For a volume: the claim it is assumed to be bound to."""
    node: str = ""
    """For a claim: the selected node of its provisioning."""
    pods: set[str] = field(default_factory=set)


class Assumed:
    """All assumed bindings, and the pods they are assumed for."""

    def __init__(self) -> None:
        self.volumes: dict[str, AssumedBinding] = {}
        self.claims: dict[ClaimKey, AssumedBinding] = {}
        self._volumes_of: dict[str, set[str]] = {}
        self._claims_of: dict[str, set[ClaimKey]] = {}

    def __contains__(self, pod: str) -> bool:
        """Whether the pod has assumed bindings, or had some that are on the objects now."""
        return pod in self._volumes_of or pod in self._claims_of

    def assume_volume(self, volume: str, claim: ObjectReference, pod: str) -> None:
        self.volumes.setdefault(volume, AssumedBinding(claim=claim)).pods.add(pod)
        self._volumes_of.setdefault(pod, set()).add(volume)

    def assume_node(self, claim: ClaimKey, node: str, pod: str) -> None:
        self.claims.setdefault(claim, AssumedBinding(node=node)).pods.add(pod)
        self._claims_of.setdefault(pod, set()).add(claim)

    def kept_for(self, pod: str) -> tuple[list[str], list[ClaimKey]]:
        """The volumes and claims whose bindings are assumed for this pod only."""
        return (
            sorted(n for n in self._volumes_of.get(pod, ()) if _only(self.volumes.get(n), pod)),
            sorted(key for key in self._claims_of.get(pod, ()) if _only(self.claims.get(key), pod)),
        )

    def of(self, pod: str) -> tuple[list[str], list[ClaimKey]]:
        """The volumes and claims whose bindings are assumed for the pod."""
        return (
            sorted(name for name in self._volumes_of.get(pod, ()) if name in self.volumes),
            sorted(key for key in self._claims_of.get(pod, ()) if key in self.claims),
        )

    def release(self, pod: str) -> None:
        """Drops the assumed bindings of the pod."""
        for name in sorted(self._volumes_of.pop(pod, ())):
            if _left(self.volumes.get(name), pod):
                del self.volumes[name]
        for key in sorted(self._claims_of.pop(pod, ())):
            if _left(self.claims.get(key), pod):
                del self.claims[key]

    def pods(self) -> set[str]:
        """The pods with assumed bindings, or that had some."""
        return {*self._volumes_of, *self._claims_of}


def _only(binding: AssumedBinding | None, pod: str) -> bool:
    return binding is not None and binding.pods == {pod}


def _left(binding: AssumedBinding | None, pod: str) -> bool:
    if binding is None:
        return False
    binding.pods.discard(pod)
    return not binding.pods


# The rows that use a thing: a claim, a disk or a volume.
#
# There are thousands of things, each used on one or two rows, so this is a sparse table. A reader that
# needs one thing over all rows gets a column of marks, kept up to date as long as it is referenced.


Thing = TypeVar("Thing", bound=Hashable)

_NONE: Mapping[int, int] = {}


class Marks:
    """The rows that use one thing, as a column."""

    __slots__ = ("__weakref__", "_column")

    cells: NDArray[np.bool_] = cells_of("_column")

    def __init__(self, nodes: NodeTable, rows: Mapping[int, int]) -> None:
        self._column = nodes.columns.new(np.bool_)
        for row in rows:
            self.cells[row] = True


class RowUse(Generic[Thing]):
    """A sparse table of how often each row uses each thing."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._rows: dict[Thing, dict[int, int]] = {}
        self._things: dict[int, dict[Thing, int]] = {}
        self._watched: WeakValueDictionary[Thing, Marks] = WeakValueDictionary()

    def add(self, thing: Thing, row: int, count: int) -> None:
        """Changes how often the row uses the thing by `count`."""
        things = self._things.setdefault(row, {})
        uses = things.get(thing, 0) + count
        if uses:
            things[thing] = self._rows.setdefault(thing, {})[row] = uses
        else:
            del things[thing]
            rows = self._rows[thing]
            del rows[row]
            if not rows:
                del self._rows[thing]
            if not things:
                del self._things[row]
        marks = self._watched.get(thing)
        if marks is not None:
            marks.cells[row] = uses > 0

    def rows(self, thing: Thing) -> Mapping[int, int]:
        """The rows that use the thing, and how often."""
        return self._rows.get(thing, _NONE)

    def on(self, row: int) -> Mapping[Thing, int]:
        """The things that the row uses, and how often."""
        return self._things.get(row, {})

    def marks(self, thing: Thing) -> Marks:
        marks = self._watched.get(thing)
        if marks is None:
            marks = self._watched[thing] = Marks(self._nodes, self.rows(thing))
        return marks

    def counts(self) -> dict[tuple[Thing, int], int]:
        """The whole table, for the self-check."""
        return {(thing, row): n for thing, rows in self._rows.items() for row, n in rows.items()}
