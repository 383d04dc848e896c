"""DeviceShare: GPUs and other devices, whole or in shares.

Which devices there are and who has them is kept in `holdfast.core.devices`; here is what that means for
the choice of a node.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.core.changes import Change
from holdfast.core.classes import PodClass
from holdfast.core.devices import DeviceRequestError
from holdfast.core.devices.choosing import Ranker, least_free, most_free
from holdfast.core.pods import PodRecord
from holdfast.core.view import Cells, View
from holdfast.framework.cluster_plugin import ClusterPlugin
from holdfast.framework.config import DeviceShareArgs
from holdfast.framework.handle import Handle
from holdfast.framework.interface import (
    FINE,
    Filter,
    Outcome,
    Reason,
    Rejected,
    Scope,
    Score,
)
from holdfast.plugins.device_scores import device_score, leftover_score
from holdfast.plugins.gpu_packing import GpuPacking

NO_DEVICES = "Insufficient devices"


class DeviceShare(ClusterPlugin):
    name = "DeviceShare"
    wakes_on = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.POD_LEFT | Change.OTHER

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        self._args = args if isinstance(args, DeviceShareArgs) else DeviceShareArgs()
        self._devices = self.cluster.belongings.devices
        self._devices.alignment = not self._args.disable_device_numa_topology_alignment
        strategy = self._args.scoring_strategy.type
        self._packing = GpuPacking(self.cluster) if strategy == "LeastFragmented" else None
        self._ranker: Ranker = most_free
        if self._packing is not None:
            self._ranker = self._packing.rank
        elif strategy in ("MostAllocated", "BestFit"):
            self._ranker = least_free
        self._devices.ranker = self._ranker

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        try:
            asking = self._devices.asking(cls)
        except DeviceRequestError as error:
            return Rejected(str(error))
        if asking is None:
            return None
        if not self._devices.active:
            return Filter.nothing(self._is_active)
        later = self._devices.ahead if cls.ahead else None

        def passes(view: View) -> Cells:
            found = asking.serves(view.rows, view.holds, later)
            return bool(found) if view.single else found

        def reasons(view: View) -> list[Reason]:
            return [
                Reason(lack.text, bool(lack.rows) if view.single else lack.rows, not lack.hopeless)
                for lack in asking.lacks(view.rows, view.holds, later)
            ]

        return Filter(passes, reasons, Scope.USAGE, self._is_active)

    def score(self, cls: PodClass) -> Score | None:
        packing = self._packing
        if packing is not None:
            if not self._devices.active:
                return Score.same(0, self._is_active)
            return Score(lambda view: packing.score(cls, view), Scope.USAGE, version=packing.look)
        if self._args.scoring_strategy.type == "BestFit" and self._devices.active:
            leftover = leftover_score(self._devices, self.cluster.nodes, cls)
            return Score(leftover, Scope.USAGE, version=self._is_active)
        asking = self._devices.sensible(cls)
        if asking is None:
            return None
        if not self._devices.active:
            return Score.same(0, self._is_active)
        score = device_score(self._devices, asking, self._args.scoring_strategy)
        return Score(score, Scope.USAGE, version=self._is_active)

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        if not self._devices.active or self._devices.settle_by(pod, self._ranker):
            return FINE
        return Outcome(NO_DEVICES)

    def unreserve(self, pod: PodRecord, row: int) -> None:
        if self._devices.active:
            self._devices.unsettle(pod)

    def _is_active(self) -> bool:
        return self._devices.active
