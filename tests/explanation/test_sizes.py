"""Situations in which a pod asks for too much, or for an amount that is invalid."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_situations import N1, Row, check
from harness.objects import Raw, pod


def with_parts(cpu: str, *parts: tuple[str, str], **more: Any) -> Raw:
    """A pod with init containers; those whose name begins with `side` are sidecars."""
    initial = [
        {
            "name": name,
            "image": "app",
            "resources": {"requests": {"cpu": of}},
            **({"restartPolicy": "Always"} if name.startswith("side") else {}),
        }
        for name, of in parts
    ]
    return pod("p", cpu, initContainers=initial, **more)


def as_a_whole(cpu: str, of: str, **resources: Raw) -> Raw:
    """A pod with pod-level resources, and a container that requests some of it."""
    return pod("p", of, resources={"requests": {"cpu": cpu}, **resources})


SITUATIONS: dict[str, Row] = {
    "sidecar is too large": Row(
        [N1, with_parts("2", ("side", "10"))],
        ["it requests 12 cpu (its sidecar side requests 10), the most a node has is 8"],
        ["Resize"],
    ),
    "sidecars and containers are too large": Row(
        [N1, with_parts("8", ("side-a", "8"), ("side-b", "8"))],
        ["it requests 24 cpu"],
        ["Resize"],
    ),
    "init container is too large": Row(
        [N1, with_parts("1", ("setup", "12"))],
        ["it requests 12 cpu (its init container setup does), the most a node has is 8"],
        ["Resize"],
    ),
    "init container beside a sidecar is too large": Row(
        [N1, with_parts("1", ("side", "6"), ("setup", "6"))],
        ["it requests 12 cpu (its init container setup beside its sidecars)"],
        ["Resize"],
    ),
    "init container beside a sidecar that leaves it nothing": Row(
        [N1, with_parts("1", ("side", "8"), ("setup", "6"))],
        ["it requests 14 cpu"],
        ["Resize"],
    ),
    "pod as a whole is too large": Row(
        [N1, as_a_whole("12", "2")],
        ["it requests 12 cpu (spec.resources), the most a node has is 8"],
        ["Resize"],
    ),
    "pod as a whole is too large, and so is its container": Row(
        [N1, as_a_whole("12", "10")],
        ["it requests 12 cpu (spec.resources), the most a node has is 8"],
        ["Resize"],
    ),
    "pod as a whole with a limit is too large": Row(
        [N1, as_a_whole("12", "10", limits={"cpu": "12"})],
        ["it requests 12 cpu"],
        ["Resize"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            with_parts("2", ("side", "10")),
            "request at most 8 cpu instead of 12 (sidecar side 6 instead of 10)",
        ),
        (
            with_parts("1", ("setup", "12")),
            "request at most 8 cpu instead of 12 (init container setup)",
        ),
        (
            as_a_whole("12", "10"),
            "request at most 8 cpu instead of 12 (spec.resources 8 instead of 12, container main)",
        ),
        (
            as_a_whole("12", "2", limits={"cpu": "12"}),
            "request at most 8 cpu instead of 12, and limit it to that "
            "(spec.resources 8 instead of 12)",
        ),
    ],
)
def test_the_advice_says_where_to_change_what(made: Raw, said: str) -> None:
    (advice,) = check(Row([N1, made], [], ["Resize"])).advice
    assert advice.text == f"{said}; then it fits n1"
