"""Filters and scores, node by node."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from holdfast.api.pod import Pod
from reference.plugin import Nowhere, ReferencePlugin, Unfit
from reference.world import World

Weighted = list[tuple[ReferencePlugin, int]]
"""Plugins in the order they run, with the weights of their scores."""


@dataclass
class Judgement:
    """What there is to say about one pod."""

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


def judge(pod: Pod, world: World, plugins: Weighted) -> Judgement:
    judgement = Judgement()
    if not world.nodes:
        judgement.message = "no nodes available to schedule pods"
        return judgement
    named, naming = _named(pod, plugins, judgement)
    if judgement.nowhere:
        judgement.message = f"0/{len(world.nodes)} nodes are available: {judgement.nowhere}."
        return judgement
    for name, node in world.nodes.items():
        if named is not None and name not in named:
            text = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(naming))}]"
            judgement.unfit[name] = (min(naming), Unfit((text,), False))
            continue
        for plugin, _ in plugins:
            unfit = plugin.filter(pod, node, world)
            if unfit is not None:
                judgement.unfit[name] = (plugin.name, unfit)
                break
        else:
            judgement.totals[name] = 0
    _score(pod, world, plugins, judgement)
    if not judgement.totals:
        judgement.message = _message(judgement)
    return judgement


def _named(pod: Pod, plugins: Weighted, judgement: Judgement) -> tuple[set[str] | None, set[str]]:
    named: set[str] | None = None
    naming: set[str] = set()
    for plugin, _ in plugins:
        only = plugin.only(pod)
        if isinstance(only, Nowhere):
            judgement.nowhere = only.reason
            return set(), {plugin.name}
        if only is not None:
            named = only if named is None else named & only
            naming.add(plugin.name)
    return named, naming


def _score(pod: Pod, world: World, plugins: Weighted, judgement: Judgement) -> None:
    for plugin, weight in plugins:
        raw = {name: plugin.score(pod, world.nodes[name], world) for name in judgement.totals}
        scores = plugin.normalize(raw)
        judgement.raw[plugin.name] = raw
        judgement.scores[plugin.name] = scores
        for name, score in scores.items():
            judgement.totals[name] += weight * score


def _message(judgement: Judgement) -> str:
    reasons = Counter(reason for _, unfit in judgement.unfit.values() for reason in unfit.reasons)
    listed = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{len(judgement.unfit)} nodes are available: {', '.join(listed)}."
