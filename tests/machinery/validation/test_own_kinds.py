"""Queues and PodGroups that contradict themselves, in the words of an API server."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.api.crds import definitions
from holdfast.machinery.schema.catalogue import Catalogue
from holdfast.machinery.validation.kinds import check_values

GROUP, VERSION = "scheduling.volcano.sh", "v1beta1"
BOTH = {"mode": "hard", "highestTierAllowed": 1, "highestTierName": "rack"}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    found = Catalogue()
    for crd in definitions():
        found.add_crd(crd)
    return found


@pytest.mark.parametrize(
    ("kind", "spec", "complaints"),
    [
        ("Queue", {}, []),
        ("Queue", {"guarantee": {"resource": {"cpu": "2"}}}, []),
        ("Queue", {"deserved": {"cpu": 2}, "capability": {"cpu": "2000m"}}, []),
        (
            "Queue",
            {"deserved": {"cpu": "1"}, "guarantee": {"resource": {"cpu": "2"}}},
            ['spec.deserved.cpu: Invalid value: "1": deserved[cpu]=1 must be >= guarantee[cpu]=2'],
        ),
        (
            "Queue",
            {"deserved": {"cpu": "5"}, "capability": {"cpu": "4"}},
            ['spec.deserved.cpu: Invalid value: "5": deserved[cpu]=5 must be <= capability[cpu]=4'],
        ),
        (
            "Queue",
            {"parent": "x"},
            ['spec.parent: Invalid value: "x": queue x cannot use itself as parent'],
        ),
        ("Queue", {"parent": "y"}, []),
        ("PodGroup", {"minMember": 2, "networkTopology": {"highestTierAllowed": 1}}, []),
    ],
)
def test_contradictions(
    catalogue: Catalogue, kind: str, spec: dict[str, Any], complaints: list[str]
) -> None:
    type = catalogue.kind(GROUP, VERSION, kind)
    assert type is not None
    raw = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    assert [f"{each.field}: {each.message}" for each in check_values(type, raw)] == complaints


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"networkTopology": BOTH}, "spec.networkTopology"),
        ({"subGroupPolicy": [{"networkTopology": BOTH}]}, "spec.subGroupPolicy[0].networkTopology"),
    ],
)
def test_a_tier_is_named_in_one_way(catalogue: Catalogue, spec: dict[str, Any], field: str) -> None:
    type = catalogue.kind(GROUP, VERSION, "PodGroup")
    assert type is not None
    raw = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "PodGroup", "metadata": {"name": "x"}}
    [problem] = check_values(type, raw | {"spec": spec})
    assert problem.field == field
    assert "simultaneously" in problem.message
