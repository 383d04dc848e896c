"""Counters and histograms that are cheap on a pod's path: many observations are one addition."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

Labels = tuple[str, ...]


def exponential(start: float, factor: float, count: int) -> list[float]:
    return [start * factor**i for i in range(count)]


class Histogram:
    def __init__(
        self, name: str, about: str, buckets: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self._name = name
        self._about = about
        self._labels = list(labels)
        self._bounds = list(buckets)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, value: float, labels: Labels = (), times: int = 1) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self._bounds, value)] += times
        self._sums[labels] += value * times

    def family(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        names = [*(f"{bound:.12g}" for bound in self._bounds), "+Inf"]
        for labels, counts in self._counts.items():
            buckets = list(zip(names, accumulate(counts), strict=True))
            family.add_metric(labels, buckets, self._sums[labels])
        return family


class Counter:
    def __init__(self, name: str, about: str, labels: Sequence[str] = ()) -> None:
        self._name = name
        self._about = about
        self._labels = list(labels)
        self.values: dict[Labels, float] = {} if labels else {(): 0.0}

    def add(self, labels: Labels = (), amount: float = 1.0) -> None:
        self.values[labels] = self.values.get(labels, 0.0) + amount

    def family(self) -> CounterMetricFamily:
        family = CounterMetricFamily(self._name, self._about, labels=self._labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family
