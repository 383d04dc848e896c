"""Filters and scores, node by node."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import Nowhere, ReferencePlugin, Unfit
from reference.state import ReferenceState

Weighted = list[tuple[ReferencePlugin, int]]
"""Plugins in the order they run, with the weights of their scores."""


@dataclass
class Judgement:
    """The result for one pod."""

    unfit: dict[str, tuple[str, Unfit]] = field(default_factory=dict)
    """By node, the plugin that turned it down first and why."""
    nowhere: str = ""
    totals: dict[str, int] = field(default_factory=dict)
    """By node that fits, the weighted sum of normalised scores."""
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    """By plugin and node, normalised."""
    raw: dict[str, dict[str, int]] = field(default_factory=dict)
    message: str = ""

    @property
    def best(self) -> set[str]:
        most = max(self.totals.values(), default=0)
        return {name for name, total in self.totals.items() if total == most}


def judge(pod: Pod, world: ReferenceState, plugins: Weighted) -> Judgement:
    judgement = Judgement()
    if not world.nodes:
        judgement.message = "no nodes available to schedule pods"
        return judgement
    named, naming = _named(pod, world, plugins, judgement)
    if judgement.nowhere:
        judgement.message = f"0/{len(world.nodes)} nodes are available: {judgement.nowhere}."
        return judgement
    for name, node in world.nodes.items():
        if named is not None and name not in named:
            text = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(naming))}]"
            judgement.unfit[name] = (min(naming), Unfit((text,), False))
            continue
        rejection = against(pod, node, world, plugins)
        if rejection is None:
            judgement.totals[name] = 0
        else:
            judgement.unfit[name] = rejection
    _score(pod, world, plugins, judgement)
    if not judgement.totals:
        reasons = [reason for _, unfit in judgement.unfit.values() for reason in unfit.reasons]
        judgement.message = message(len(world.nodes), reasons)
    return judgement


def against(pod: Pod, node: Node, world: ReferenceState, plugins: Weighted) -> tuple[str, Unfit] | None:
    """The first plugin that turns the node down and why, if any does: with the pods there that it is
    being cleared for, and then without them."""
    nominated_pods = world.nominated_pods(pod, node.metadata.name)
    if nominated_pods:
        placed = dict(world.pods)
        for nominated in nominated_pods:
            world.put_pod(_on(nominated, node.metadata.name))
        rejection = _against(pod, node, world, plugins)
        world.pods = placed
        if rejection is not None:
            return rejection
    return _against(pod, node, world, plugins)


def _against(
    pod: Pod, node: Node, world: ReferenceState, plugins: Weighted
) -> tuple[str, Unfit] | None:
    for plugin, _ in plugins:
        unfit = plugin.filter(pod, node, world)
        if unfit is not None:
            return plugin.name, unfit
    return None


def _on(pod: Pod, node: str) -> Pod:
    placed = copy.deepcopy(pod)
    placed.spec.node_name = node
    return placed


def _named(
    pod: Pod, world: ReferenceState, plugins: Weighted, judgement: Judgement
) -> tuple[set[str] | None, set[str]]:
    named: set[str] | None = None
    naming: set[str] = set()
    for plugin, _ in plugins:
        only = plugin.only(pod, world)
        if isinstance(only, Nowhere):
            judgement.nowhere = only.reason
            return set(), {plugin.name}
        if only is not None:
            named = only if named is None else named & only
            naming.add(plugin.name)
    return named, naming


def _score(pod: Pod, world: ReferenceState, plugins: Weighted, judgement: Judgement) -> None:
    feasible = [world.nodes[name] for name in judgement.totals]
    for plugin, weight in plugins:
        raw = plugin.score_all(pod, feasible, world)
        scores = plugin.normalize(raw)
        judgement.raw[plugin.name] = raw
        judgement.scores[plugin.name] = scores
        for name, score in scores.items():
            judgement.totals[name] += weight * score


def message(nodes: int, reasons: list[str]) -> str:
    listed = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    return f"0/{nodes} nodes are available: {', '.join(listed)}."
