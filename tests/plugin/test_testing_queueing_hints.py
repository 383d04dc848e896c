"""`check_plugin` finds a `wakes_on` that is too narrow, whichever kind of change it forgets."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from holdfast.plugin import Cells, Change, Filter, Handle, Plugin, PodClass, Reason, Scope, View
from holdfast.plugin.testing import ContractBroken, check_plugin, node, pod

GRAMS = "example.com/grams"
MOST = "example.com/most"


class Sparing(Plugin):
    """One such pod on each node, and only on nodes with few grams."""

    name = "Sparing"
    reads_annotations = frozenset({MOST})
    wakes_on = Change.NODE_ADDED | Change.NODE_OTHER | Change.POD_LEFT

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self._grams = handle.nodes.annotation(GRAMS, int, missing=999)
        self._sparing = handle.count_pods(lambda cls: MOST in cls.annotations)

    def filter(self, cls: PodClass) -> Filter | None:
        if (most := cls.annotations.get(MOST)) is None:
            return None
        limit = int(most)

        def fails(view: View) -> Cells:
            return (view.take(self._grams) > limit) | (view.take(self._sparing) >= 1)

        return Filter(lambda view: ~fails(view), lambda view: [Reason("no", fails(view))], Scope.USAGE)


def some_node(random: Random, name: str) -> dict[str, Any]:
    grams = random.choice((None, "100", "200", "300", "400"))
    return node(name, cpu=2, annotations={} if grams is None else {GRAMS: grams})


def some_pod(random: Random, name: str) -> dict[str, Any]:
    most = random.choice((None, "150", "250", "350"))
    return pod(name, annotations={} if most is None else {MOST: most})


@pytest.mark.parametrize("forgotten", ["NODE_ADDED", "NODE_OTHER", "POD_LEFT"])
def test_a_kind_of_change_that_was_forgotten(forgotten: str) -> None:
    wakes_on = Sparing.wakes_on & ~getattr(Change, forgotten)
    narrow = type("Sparing", (Sparing,), {"wakes_on": wakes_on})
    with pytest.raises(ContractBroken, match="no event requeued it: Sparing wakes on"):
        check_plugin(narrow, seeds=range(10), node=some_node, pod=some_pod)


def test_no_kind_that_could_help() -> None:
    narrow = type("Sparing", (Sparing,), {"wakes_on": Change.OTHER})
    with pytest.raises(ContractBroken, match="no event requeued it"):
        check_plugin(narrow, seeds=range(3), node=some_node, pod=some_pod)


def test_all_that_are_needed() -> None:
    check_plugin(Sparing, seeds=range(2), node=some_node, pod=some_pod)
