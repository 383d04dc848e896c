"""NodeNUMAResource: filters and scores nodes for exclusive CPUs and NUMA alignment.

`holdfast.scheduler.managers.numa` keeps the CPUs of nodes and their allocations.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import CPU
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.config import NodeNUMAResourceArgs
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    FINE,
    ClusterPlugin,
    Filter,
    Outcome,
    Reason,
    Rejected,
    Scope,
    Score,
    Settled,
)
from holdfast.scheduler.managers.numa import CpuWantError
from holdfast.scheduler.managers.numa.numa_filter import TOO_FEW_CPUS, NumaLack
from holdfast.scheduler.plugins.resource_allocation import allocation_score


class NodeNUMAResource(ClusterPlugin):
    name = "NodeNUMAResource"
    wakes_on = (
        Change.NODE_ADDED
        | Change.NODE_ALLOCATABLE
        | Change.NODE_LABELS
        | Change.NODE_OTHER
        | Change.POD_LEFT
        | Change.OTHER
    )

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        self._args = args if isinstance(args, NodeNUMAResourceArgs) else NodeNUMAResourceArgs()
        self._cpus = self.cluster.managers.cpus
        fullest_first = self._args.numa_scoring_strategy.type == "MostAllocated"
        self._cpus.configure(self._args.default_cpu_bind_policy, fullest_first)

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        if not cls.requests:
            return None
        try:
            want = self._cpus.want(cls)
        except CpuWantError as error:
            return Rejected(str(error), error=error.error)
        numa_filter = self._cpus.numa_filter
        matters = Settled(lambda: (numa_filter.matters(want), self._cpus.active))
        if not numa_filter.matters(want):
            return Filter.nothing(matters)

        devices = self.cluster.managers.devices
        search = devices.valid_search(cls) if devices.alignment else None

        def lacks(view: View, explain: bool) -> list[NumaLack]:
            entries = None if view.entries is None else np.atleast_1d(view.entries)
            by_numa = None
            if search is not None and devices.active:
                by_numa = partial(
                    search.by_numa, later=devices.free_later if cls.pre_allocation else None
                )
            claimed = np.atleast_1d(view.claimed(CPU))
            rows = np.atleast_1d(view.rows)
            return numa_filter.lacks(want, rows, entries, claimed, by_numa, explain, cls.pre_allocation)

        def passes(view: View) -> Cells:
            ok = np.ones(len(np.atleast_1d(view.rows)), dtype=np.bool_)
            for lack in lacks(view, explain=False):
                ok &= ~lack.rows
            return bool(ok[0]) if view.single else ok

        def lasting(view: View) -> Cells:
            ok = np.ones(len(np.atleast_1d(view.rows)), dtype=np.bool_)
            for lack in lacks(view, explain=False):
                if lack.unresolvable:
                    ok &= ~lack.rows
            return bool(ok[0]) if view.single else ok

        def reasons(view: View) -> list[Reason]:
            return [
                Reason(
                    lack.text, bool(lack.rows[0]) if view.single else lack.rows, not lack.unresolvable
                )
                for lack in lacks(view, explain=True)
            ]

        return Filter(passes, reasons, Scope.USAGE, matters, lasting=lasting)

    def score(self, cls: PodClass) -> Score | None:
        """Scores nodes by allocation, only for pods that require exclusive CPUs or NUMA alignment."""
        want = self._cpus.valid_want(cls)
        if want is None or not (want.bound or want.numa):
            return None
        score = allocation_score(self.cluster.nodes, cls, self._args.scoring_strategy)
        return Score(score, Scope.USAGE)

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        if not self._cpus.active or self._cpus.settle(pod):
            return FINE
        return Outcome(TOO_FEW_CPUS)

    def unreserve(self, pod: PodRecord, row: int) -> None:
        if self._cpus.active:
            self._cpus.unsettle(pod)
