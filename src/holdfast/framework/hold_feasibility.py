"""Where capacity can be held for a pod of a starving job.

A starvation hold is a pre-allocation made from its pod, so a node is feasible for it if such a reserve
pod passes its filters there: they look at the node as if the pods that end by themselves were gone.
This is the one rule about nodes. Choosing a node (`Search`) and keeping a hold where it is (`HoldCare`)
both ask it, the latter as if the hold, and those that come after it, were not there: so a hold that was
just made is never found to be infeasible, unless something else happened.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from holdfast.api.names import RESERVATION_IGNORED
from holdfast.core.classes import PodClass, Traits
from holdfast.core.cluster import Cluster
from holdfast.core.fills import Amounts
from holdfast.core.jobs.making import hold_for
from holdfast.core.pods import PodRecord
from holdfast.core.promises import Promise
from holdfast.core.promises.owners import OwnerSpec
from holdfast.core.promises.reserve_pod import reserve_pod
from holdfast.core.view import All, One
from holdfast.framework.column import Column
from holdfast.framework.cycle import Cycle
from holdfast.framework.points import BARRIER, ROOM
from holdfast.framework.profile import Profile

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class HoldFeasibility:
    def __init__(self, cluster: Cluster, cycle: Cycle, profiles: Mapping[str, Profile]) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._cycle = cycle
        self._profiles = profiles
        self._nobody: OwnerSpec | None = None
        self._classes: dict[int, PodClass] = {}
        """The classes of reserve pods made from pods, by the class of those."""
        cluster.classes.on_dropped.append(self._class_dropped)

    def rows(self, pod: PodRecord) -> Bools:
        """The rows that pass every filter but the one on amounts; see `takes` and `offered`."""
        if self.no_use(pod):
            return np.zeros(self._nodes.size, dtype=np.bool_)
        column = self._column(pod)
        rows = suitable(self._cluster, column)
        if pod.pin is not None:
            pinned = self._nodes.row(pod.pin)
            at = np.zeros(self._nodes.size, dtype=np.bool_)
            if pinned is not None and pinned < self._nodes.size:
                at[pinned] = True
            rows &= at
        return rows

    def no_use(self, pod: PodRecord) -> str:
        """Why the pod would use no hold, wherever it is; empty if it would."""
        promises = self._cluster.promises
        if pod.cls.labels.get(RESERVATION_IGNORED) == "true":
            return "ignores reservations"
        if not promises.wish(pod.cls).takes_new(promises.by_name(pod.cls.requests)):
            return "must use another reservation"
        return ""

    def takes(self, cls: PodClass) -> Amounts:
        """What a hold for a pod of the class takes of a node, by slot: resources and limits."""
        amounts = cls.amounts
        cls.limits.hold(amounts)
        scored = {each.scored for each in self._cluster.classes.counted.values()}
        limited = {each.slot for each in self._cluster.classes.counted.values()}
        return {s: amount for s, amount in amounts.items() if s not in scored or s in limited}

    def offered(self, slot: int) -> Ints:
        """How much of a slot every row has for holds and pods that never end; not to be written to."""
        if self._nodes.slots.name(slot):
            return self._nodes.allocatable[slot, : self._nodes.size]
        return self._cluster.limits.ceiling(slot)

    def obstacle(self, promise: Promise, pod: PodRecord, row: int) -> str:
        """Why a hold cannot stay on its row; empty if it can."""
        nodes = self._nodes
        name = nodes.name(row)
        if promise.node_gone or not nodes.alive[row]:
            return f"node {name} is gone"
        if why := self.no_use(pod):
            return f"its pod {why}"
        column = self._column(pod)
        behind = [other for other in self._cluster.jobs.holds.on(row) if promise.is_before(other)]
        with self._cluster.ledger.peek():
            self._release([promise, *behind])
            for slot, amount in self.takes(pod.cls).items():
                kept = nodes.reserved.item(slot, row) + nodes.permanent.item(slot, row)
                if kept + amount > self.offered(slot).item(row):
                    return f"node {name} will never have the room"
            if not self._passes(column, pod, row):
                return f"node {name} does not suit its pod any more"
        return ""

    def _release(self, promises: Iterable[Promise]) -> None:
        for each in promises:
            if each.pod is not None and each.pod.row >= 0:
                self._cluster.ledger.release(each.pod)

    def _passes(self, column: Column, pod: PodRecord, row: int) -> bool:
        name, view = self._nodes.name(row), One(self._nodes, row)
        return (
            column.rejected is None
            and (pod.pin is None or pod.pin == name)
            and all(
                (test.only is None or name in test.only)
                and (kind in (ROOM, BARRIER) or bool(test.passes(view)))
                for kind, test in column.guarded_filters
            )
        )

    def _column(self, pod: PodRecord) -> Column:
        return self._cycle.column(self._profiles[pod.scheduler], self._class(pod))

    def _class(self, pod: PodRecord) -> PodClass:
        """The class a hold for the pod would have, but for the node it names."""
        classes, known = self._cluster.classes, self._classes.get(pod.cls.id)
        if known is None or not classes.once_more(known):
            if self._nobody is None:
                self._nobody = self._cluster.promises.specs.acquire([])
            traits = Traits(promised_to=self._nobody.id, ahead=True)
            known = classes.acquire(reserve_pod(hold_for(pod, "", "")), traits)
            self._classes[pod.cls.id] = known
        classes.release(known)
        return known

    def _class_dropped(self, cls: PodClass) -> None:
        self._classes.pop(cls.id, None)


def suitable(cluster: Cluster, column: Column) -> Bools:
    """The rows that pass all of a column's filters, but for amounts and what is held for others."""
    nodes = cluster.nodes
    if column.rejected is not None:
        return np.zeros(nodes.size, dtype=np.bool_)
    view = All(nodes)
    rows = nodes.alive[: nodes.size].copy()
    for name, test in column.guarded_filters:
        if test.only is not None:
            rows &= np.array([nodes.name(row) in test.only for row in range(nodes.size)])
        if name not in (ROOM, BARRIER):
            rows &= np.asarray(test.passes(view) & view.full(True))
    return rows
