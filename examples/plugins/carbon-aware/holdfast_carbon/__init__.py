"""Keeps pods on nodes whose electricity is clean enough for them.

A node says how much carbon its electricity costs, in grams of CO2 per kWh:

    metadata: {annotations: {example.com/carbon: "240"}}

A pod says how much it accepts:

    metadata: {annotations: {example.com/max-carbon: "300"}}

Such a pod goes only to nodes that say no more than that, to the cleanest of them by preference, and at
most `podsPerNode` such pods go to one node. Other pods are none of this plugin's business.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.plugin import (
    ByRange,
    Cells,
    Change,
    Filter,
    Handle,
    Plugin,
    PodClass,
    Reason,
    Rejected,
    Scope,
    Score,
    View,
)

CARBON = "example.com/carbon"
MAX_CARBON = "example.com/max-carbon"
DEFAULT_PODS_PER_NODE = 10

UNKNOWN_CARBON = "node(s) didn't say how much carbon their electricity costs"
TOO_MUCH_CARBON = "node(s) cost more carbon than the pod accepts"
TOO_MANY_PODS = "node(s) had as many carbon-aware pods as are allowed"

_UNKNOWN = -1


class CarbonAware(Plugin):
    name = "CarbonAware"
    api_version = "v1"
    reads_annotations = frozenset({MAX_CARBON})
    wakes_on = Change.NODE_ADDED | Change.NODE_OTHER | Change.POD_LEFT

    def __init__(self, handle: Handle, args: Mapping[str, Any]) -> None:
        super().__init__(handle, args)
        self._most = _pods_per_node(args)
        self._carbon = handle.nodes.annotation(CARBON, _grams, missing=_UNKNOWN)
        self._pods = handle.count_pods(lambda cls: MAX_CARBON in cls.annotations)

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        text = cls.annotations.get(MAX_CARBON)
        if text is None:
            return None
        try:
            accepted = _grams(text)
        except ValueError as error:
            return Rejected(f"metadata.annotations[{MAX_CARBON}]: {error}", error=True)

        def is_unknown(view: View) -> Cells:
            return view.take(self._carbon) == _UNKNOWN

        def is_too_much(view: View) -> Cells:
            return view.take(self._carbon) > accepted

        def is_full(view: View) -> Cells:
            return view.take(self._pods) >= self._most

        return Filter(
            passes=lambda view: view.negate(is_unknown(view) | is_too_much(view) | is_full(view)),
            reasons=lambda view: [
                Reason(UNKNOWN_CARBON, is_unknown(view), resolvable=False),
                Reason(TOO_MUCH_CARBON, is_too_much(view), resolvable=False),
                Reason(TOO_MANY_PODS, is_full(view)),
            ],
            scope=Scope.USAGE,
        )

    def score(self, cls: PodClass) -> Score | None:
        if MAX_CARBON not in cls.annotations:
            return None
        return Score(lambda view: -view.take(self._carbon), Scope.NODE, ByRange())


def _grams(text: str) -> int:
    grams = int(text)
    if grams < 0:
        raise ValueError(f"must not be negative: {text}")
    return grams


def _pods_per_node(args: Mapping[str, Any]) -> int:
    unknown = sorted(args.keys() - {"podsPerNode"})
    if unknown:
        raise ValueError(f"unknown arguments: {', '.join(unknown)}")
    most = args.get("podsPerNode", DEFAULT_PODS_PER_NODE)
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise ValueError(f"podsPerNode must be a whole number of at least 1: {most!r}")
    return most
