"""The nodes that the demo uses, and amounts of CPU relative to their size.

Chapters show what happens on full nodes, so their amounts are eighths of what is free on a node. On the
demo's own cluster that is 1 CPU on each of three nodes. On another cluster it is one node: the one with
the most free CPU.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.api.names import CPU, HOSTNAME_LABEL, NO_EXECUTE, NO_SCHEDULE
from holdfast.api.quantity import format_amount
from holdfast.cli.client import NODE, Raw
from holdfast.cli.options import Failure
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, node_amounts

PARTS = 8
LEAST_PART = 10
"""Millicores. Amounts below are no use to see."""


class Site(NamedTuple):
    nodes: tuple[str, ...]
    part: int
    """An eighth of the free CPU of each node, in millicores."""
    selector: dict[str, str]
    """Node labels that keep objects of the demo on these nodes; empty on its own cluster."""
    own: bool
    """Whether the demo created the cluster."""

    def cpu(self, eighths: int) -> str:
        return format_amount(CPU, eighths * self.part)


def own_site(snapshot: ClusterSnapshot) -> Site:
    free = _free_cpu(snapshot)
    return Site(tuple(sorted(free)), min(free.values()) // PARTS, {}, own=True)


def find_site(snapshot: ClusterSnapshot) -> Site:
    """Raises Failure if no node has enough free CPU."""
    free = {
        name: amount
        for name, amount in _free_cpu(snapshot).items()
        if _is_usable(snapshot.find(NODE, name) or {})
    }
    if not free:
        raise Failure(1, ["no node is ready, schedulable and without taints, as this demo needs one"])
    name = max(free, key=lambda each: (free[each], each))
    part = free[name] // PARTS
    if part < LEAST_PART:
        most = format_amount(CPU, max(0, free[name]))
        raise Failure(1, [f"no node has enough free CPU for this demo: the most is {most}, on {name}"])
    labels = (snapshot.find(NODE, name) or {})["metadata"]["labels"]
    return Site((name,), part, {HOSTNAME_LABEL: labels[HOSTNAME_LABEL]}, own=False)


def _free_cpu(snapshot: ClusterSnapshot) -> dict[str, int]:
    names = [raw["metadata"]["name"] for raw in snapshot.all(NODE)]
    return {name: node_amounts(snapshot.cluster, name)[CPU].free for name in names}


def _is_usable(node: Raw) -> bool:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    effects = {taint.get("effect") for taint in spec.get("taints") or ()}
    ready = any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in status.get("conditions") or ()
    )
    return (
        ready
        and not spec.get("unschedulable")
        and not effects & {NO_SCHEDULE, NO_EXECUTE}
        and HOSTNAME_LABEL in (node["metadata"].get("labels") or {})
    )
