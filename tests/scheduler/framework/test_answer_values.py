"""Values a plugin may answer with that are easily lost: fractions, NaN and infinity, no reason."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from holdfast.plugin import (
    ByMaximum,
    ByRange,
    Cells,
    Filter,
    Handle,
    Normalize,
    Plugin,
    PodClass,
    Range,
    Scope,
    Score,
    View,
)
from holdfast.plugin.testing import Cluster, ContractBroken, node, pod

SHARE = "example.com/share"


class Shares(Plugin):
    name = "Shares"
    normalize: Normalize | None = ByRange()
    scope = Scope.NODE

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self._share = handle.nodes.annotation(SHARE, float, missing=0.0, dtype=np.float64)
        self._cpu = handle.slot("cpu")

    def score(self, cls: PodClass) -> Score:
        return Score(lambda view: view.take(self._share), self.scope, self.normalize)


class SharesOfUsage(Shares):
    """The same, which may change with every pod."""

    name = "SharesOfUsage"
    scope = Scope.USAGE

    def score(self, cls: PodClass) -> Score:
        def raw(view: View) -> Cells:
            return view.take(self._share) - view.claimed(self._cpu) / 1e6

        return Score(raw, self.scope, self.normalize)


class ByLargest(Shares):
    name = "ByLargest"
    normalize = ByMaximum()


class BySmallest(Shares):
    name = "BySmallest"
    normalize = ByMaximum(reverse=True)


class ByOwnRange(Shares):
    class Own:
        def measure(self, raw: Any) -> Range:
            return Range(float(raw.min()), float(raw.max()))

        def apply(self, raw: Cells, measure: Range) -> Cells:
            return (raw - measure.low) / (measure.high - measure.low) * 100

    name = "ByOwnRange"
    normalize = Own()


def shares(plugin: type[Plugin], *values: str) -> Cluster:
    nodes = (node(f"n{i}", annotations={SHARE: value}) for i, value in enumerate(values))
    return Cluster(plugin, weight=100).add(*nodes)


@pytest.mark.parametrize(
    ("plugin", "scores"),
    [
        (Shares, [100, 0, 25]),
        (SharesOfUsage, [100, 0, 25]),
        (ByLargest, [100, 11, 33]),
        (BySmallest, [0, 89, 67]),
        (ByOwnRange, [100, 0, 25]),
    ],
)
def test_fractions_are_normalised_and_only_then_rounded(
    plugin: type[Plugin], scores: list[int]
) -> None:
    cluster = shares(plugin, "0.9", "0.1", "0.3")
    assert cluster.raw_scores(pod("p")) == {"n0": 0.9, "n1": 0.1, "n2": 0.3}
    assert cluster.scores(pod("p")) == {f"n{i}": score for i, score in enumerate(scores)}
    assert cluster.where(pod("p")) == ("n1" if plugin is BySmallest else "n0")


@pytest.mark.parametrize("plugin", [Shares, SharesOfUsage])
def test_whole_numbers_and_fractions_may_change_places(plugin: type[Plugin]) -> None:
    cluster = shares(plugin, "4", "2")
    assert cluster.scores(pod("p")) == {"n0": 100, "n1": 0}
    cluster.add(node("half", annotations={SHARE: "2.5"}))
    assert cluster.scores(pod("p")) == {"n0": 100, "n1": 0, "half": 25}
    cluster.add(*(pod(f"p{i}", cpu="500m") for i in range(6)))
    cluster.schedule()
    cluster.update(node("half", annotations={SHARE: "3"})).restart()
    cluster.schedule()


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_what_is_not_finite_counts_as_missing(text: str, dtype: Any) -> None:
    class Odd(Plugin):
        name = "Odd"

        def __init__(self, handle: Handle, args: Any) -> None:
            super().__init__(handle, args)
            self._share = handle.nodes.annotation(SHARE, float, missing=7, dtype=dtype)

        def score(self, cls: PodClass) -> Score:
            return Score(lambda view: view.take(self._share), Scope.NODE, ByRange())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cluster = Cluster(Odd).add(node("a", annotations={SHARE: text}), node("b"), pod("p"))
        assert cluster.raw_scores("p") == {"a": 7, "b": 7}
        assert len(cluster.schedule()) == 1
    (event,) = (event for event in cluster.events() if event.object == "Node/a")
    assert SHARE in event.message and "not a finite number" in event.message


def test_missing_may_be_infinite() -> None:
    class Unlimited(Shares):
        name = "Unlimited"

        def __init__(self, handle: Handle, args: Any) -> None:
            super().__init__(handle, args)
            self._share = handle.nodes.annotation(SHARE, float, missing=np.inf, dtype=np.float64)

        def score(self, cls: PodClass) -> Score:
            return Score(lambda view: (view.take(self._share) > 5) * 100, Scope.NODE)

    cluster = Cluster(Unlimited).add(node("a", annotations={SHARE: "3"}), node("b"))
    assert cluster.scores(pod("p")) == {"a": 0, "b": 100}
    cluster.schedule()
    assert cluster.events() == []


class Silent(Plugin):
    name = "Silent"

    def filter(self, cls: PodClass) -> Filter:
        def passes(view: View) -> Cells:
            return view.full(False)

        return Filter(passes, lambda view: [], Scope.NODE)


def test_a_filter_without_a_reason_is_named_in_the_message() -> None:
    """The test cluster finds it; elsewhere the plugin is named."""
    with pytest.raises(
        ContractBroken, match="plugin Silent: filter: node a: does not pass, and `reasons`"
    ):
        Cluster(Silent).add(node("a")).why_not(pod("p"))
    cluster = Cluster(Silent, config=SILENT_AND_TESTED, keep_errors=True)
    cluster.add(node("a"), node("b"))
    with pytest.raises(ContractBroken):
        cluster.add(pod("p"))
    scheduler = cluster.scheduler
    (record,) = scheduler.cluster.pods.values()
    scheduler.round(cluster.now)
    start = "0/2 nodes are available: 2 node(s) didn't satisfy plugin Silent."
    assert record.condition_message.startswith(start)


SILENT_AND_TESTED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins: {multiPoint: {enabled: [{name: Silent}]}}
"""
