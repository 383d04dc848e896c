"""What labels of nodes say about CPUs is kept up to date, and not read from all nodes for every pod."""

from typing import Any

import pytest

from harness.objects import node, pod
from harness.scenarios import play
from holdfast.scheduler.cluster import node_labels as labels


def test_columns_of_labels_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Counted(labels.LabelColumn):
        def __init__(self, key: str, *rest: Any) -> None:
            made.append(key)
            super().__init__(key, *rest)

    monkeypatch.setattr(labels, "LabelColumn", Counted)
    pods = [pod(f"p{i}", f"{100 + i}m", at=f"{i}s") for i in range(10)]
    played = play([node("n1", 2), node("n2", 2)], pods)
    assert len(played.bound()) == len(pods)
    about_cpus = [key for key in made if key.startswith("node.koordinator.sh/")]
    assert len(about_cpus) == len(set(about_cpus))
