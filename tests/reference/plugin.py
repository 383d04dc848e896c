"""What a plugin is to the reference scheduler."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.state import ReferenceState


class Unfit(NamedTuple):
    """Why a node will not do."""

    reasons: tuple[str, ...]
    resolvable: bool
    """Whether it might if pods were removed from it."""


class Nowhere(NamedTuple):
    """No node will do, whatever it is like."""

    reason: str


class ReferencePlugin:
    name: ClassVar[str]

    def only(self, pod: Pod, world: ReferenceState) -> set[str] | Nowhere | None:
        """The names of the only nodes worth looking at; None for all."""
        return None

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        return None

    def score(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        return 0

    def score_all(self, pod: Pod, nodes: list[Node], world: ReferenceState) -> dict[str, int]:
        """The raw scores of the nodes that passed all filters."""
        return {node.metadata.name: self.score(pod, node, world) for node in nodes}

    def normalize(self, scores: dict[str, int]) -> dict[str, int]:
        return scores


def by_maximum(scores: dict[str, int], *, reverse: bool = False) -> dict[str, int]:
    most = max(scores.values(), default=0)
    if most == 0:
        return dict.fromkeys(scores, 100 if reverse else 0)
    scaled = {name: 100 * score // most for name, score in scores.items()}
    return {name: 100 - score for name, score in scaled.items()} if reverse else scaled
