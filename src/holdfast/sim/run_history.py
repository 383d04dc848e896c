"""What a report shows over time. Recorded only for `simulate --report`.

Totals of the cluster are sampled once per moment, when everything has settled, and kept as a bounded
number of steps whose integral over time is exact. What is kept per pod and per reservation is smaller
than their entries in the timeline.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.api import names
from holdfast.api.pod import Pod
from holdfast.api.resources import Amounts
from holdfast.local.component import ENDED
from holdfast.sim.node_usage import NodeUsage
from holdfast.sim.reservation_lives import KINDS

RESOURCES = ("cpu", "memory", "gpu")
_WHOLE_GPUS = (names.NVIDIA_GPU, names.AMD_GPU, names.DCU_GPU)
_GPU_SHARES = (names.GPU_PERCENT, names.GPU_CORE, names.GPU_MEMORY_RATIO)


class Shown(NamedTuple):
    """Amounts that a report shows: thousandths of a core, bytes, and GPUs."""

    cpu: float = 0
    memory: float = 0
    gpu: float = 0


def shown(amounts: Mapping[str, float]) -> Shown:
    return Shown(amounts.get(names.CPU, 0), amounts.get(names.MEMORY, 0), gpus(amounts))


def gpus(amounts: Mapping[str, float]) -> float:
    """GPUs in any of the ways to count them: whole ones, or else percent of one."""
    whole = sum(amounts.get(name, 0) for name in _WHOLE_GPUS)
    return whole or max(amounts.get(name, 0) for name in _GPU_SHARES) / 100


@dataclass(slots=True)
class Placement:
    """A pod on a node."""

    pod: str
    node: str
    start: float
    amounts: Shown
    reservation: str
    """The reservation that it was bound through, or ""."""
    end: float | None = None


class NodeChange(NamedTuple):
    t: float
    node: str
    capacity: Shown | None
    """None if the node is gone."""


class StepSeries:
    """Values that change in steps, as a bounded number of steps.

    When there are too many, pairs of them become one with their mean, so a later value is that of an
    interval; the integral does not change.
    """

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self.times: list[float] = []
        self.values: list[tuple[float, ...]] = []
        self.merged = False

    def add(self, t: float, values: tuple[float, ...]) -> None:
        """The values from `t` on; times do not decrease."""
        times = self.times
        if times and times[-1] == t:
            self.values[-1] = values
            return
        if times and self.values[-1] == values:
            return
        times.append(t)
        self.values.append(values)
        if len(times) > self._most:
            self._merge()

    def column(self, number: int) -> list[float]:
        return [values[number] for values in self.values]

    def resampled(self, end: float, most: int) -> "StepSeries":
        """At most so many steps up to `end`: itself, or means over equal intervals."""
        if len(self.times) <= most or end <= 0:
            return self
        result = StepSeries(most + 1)
        result.merged = True
        width = len(self.values[0])
        ends = [*self.times[1:], max(end, self.times[-1])]
        i = 0
        for number in range(most):
            start, stop = end * number / most, end * (number + 1) / most
            sums, covered = [0.0] * width, 0.0
            while i < len(ends) and ends[i] <= start:
                i += 1
            k = i
            while k < len(ends) and self.times[k] < stop:
                part = min(ends[k], stop) - max(self.times[k], start)
                if part > 0:
                    covered += part
                    for column, value in enumerate(self.values[k]):
                        sums[column] += value * part
                k += 1
            if covered:
                result.times.append(start)
                result.values.append(tuple(each / covered for each in sums))
        return result

    def _merge(self) -> None:
        self.merged = True
        times, values = self.times, self.values
        last = (times.pop(), values.pop())
        ends = [*times[1:], last[0]]
        kept_times, kept = [], []
        for i in range(0, len(times) - 1, 2):
            first, second = ends[i] - times[i], ends[i + 1] - times[i + 1]
            kept_times.append(times[i])
            kept.append(
                tuple(
                    (a * first + b * second) / (first + second)
                    for a, b in zip(values[i], values[i + 1], strict=True)
                )
            )
        if len(times) % 2:
            kept_times.append(times[-1])
            kept.append(values[-1])
        self.times, self.values = [*kept_times, last[0]], [*kept, last[1]]


COLUMNS: Sequence[str] = (
    *(
        f"{resource} {what}"
        for resource in RESOURCES
        for what in ("capacity", "requested", "pending", *(f"held {kind}" for kind in KINDS))
    ),
    "pods pending",
    "pods running",
    "nodes",
)
"""What the samples of the cluster consist of."""


class RunHistory:
    """A UsageListener that keeps what it is told."""

    def __init__(self, usage: NodeUsage) -> None:
        self._usage = usage
        usage.listener = self
        usage.reservations.records_steps = True
        self.series = StepSeries()
        self.nodes: list[NodeChange] = []
        self.placements: list[Placement] = []
        self._placed: dict[str, Placement] = {}
        self._offered: dict[str, Shown] = {}
        self._pending: dict[str, Shown] = {}
        self._sums = {each: [0.0] * len(RESOURCES) for each in ("capacity", "requested", "pending")}

    # What happens on nodes

    def node_changed(self, name: str, offered: Amounts | None, t: float) -> None:
        before = self._offered.pop(name, None)
        now = shown(offered) if offered is not None else None
        if now is not None:
            self._offered[name] = now
        if now == before:
            return
        self._add("capacity", before, -1)
        self._add("capacity", now, 1)
        self.nodes.append(NodeChange(t, name, now))

    def pod_placed(self, pod: Pod, node: str, requests: Amounts, t: float) -> None:
        metadata = pod.metadata
        allocated = metadata.annotations.get(names.RESERVATION_ALLOCATED)
        placement = Placement(
            f"{metadata.namespace}/{metadata.name}",
            node,
            t,
            shown(requests),
            str(json.loads(allocated).get("name", "")) if allocated else "",
        )
        self.placements.append(placement)
        self._placed[metadata.uid] = placement
        self._add("requested", placement.amounts, 1)

    def pod_left(self, uid: str, t: float) -> None:
        placement = self._placed.pop(uid)
        placement.end = t
        self._add("requested", placement.amounts, -1)

    # Pending pods

    def put_pod(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if pod.spec.node_name or pod.status.phase in ENDED:
            self.drop_pod(uid)
        elif uid not in self._pending:
            self._pending[uid] = shown(self._usage.requests(pod))
            self._add("pending", self._pending[uid], 1)

    def drop_pod(self, uid: str) -> None:
        self._add("pending", self._pending.pop(uid, None), -1)

    def _add(self, what: str, amounts: Shown | None, sign: int) -> None:
        if amounts is not None:
            sums = self._sums[what]
            for i, amount in enumerate(amounts):
                sums[i] += sign * amount

    def sample(self, t: float) -> None:
        """Everything of the moment `t` has settled."""
        held = [shown(self._usage.reservations.held[kind]) for kind in KINDS]
        capacity, requested, pending = self._sums.values()
        values: list[float] = []
        for i in range(len(RESOURCES)):
            values += (capacity[i], requested[i], pending[i], *(each[i] for each in held))
        values += (len(self._pending), len(self._placed), len(self._offered))
        self.series.add(t, tuple(values))
