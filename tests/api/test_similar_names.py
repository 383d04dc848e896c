"""Hints at the names that were probably meant."""

import itertools

import pytest

from holdfast.api.similar_names import did_you_mean, similar_names


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("trian", ["train", "serve"], "; did you mean train?"),
        ("node-9", ["node-2", "node-1"], "; did you mean node-1 or node-2?"),
        ("node-9", ["node-3", "node-2", "node-1"], "; did you mean node-1, node-2 or node-3?"),
        (
            "node-9",
            ["node-4", "node-3", "node-2", "node-1"],
            "; did you mean node-1, node-2, node-3 or another of 4?",
        ),
        ("WEB", ["web", "wep"], "; did you mean web?"),
        ("unlike", ["web"], "; known: web"),
    ],
)
def test_all_equally_near_names_are_named(word: str, known: list[str], said: str) -> None:
    for order in itertools.permutations(known):
        assert did_you_mean(word, order, "known: web") == said


def test_only_the_nearest_count() -> None:
    assert similar_names("gpu-nodes", ["gpu-node", "gpu-mode", "cpu-nodes"]) == ["gpu-node"]
