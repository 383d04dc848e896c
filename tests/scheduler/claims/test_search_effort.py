"""Searches that find nothing end soon, however many ways there are to try."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.scheduler.managers.claims import ClaimsRefusal, explain
from holdfast.scheduler.managers.claims.search import MAX_STEPS
from scheduler.claims.table_format import CaseCluster

NONE = "cannot allocate all claims"


def _cluster(requests: dict[str, Any], devices: int = 30, **rules: Any) -> CaseCluster:
    listed = [
        {"device": f"dev-{n}", "attributes": {"serial": n, "board": n % 3}} for n in range(devices)
    ]
    claims = {"job": {"requests": requests, **rules}}
    slices = [{"slice": "slice-1", "pool": "gpu/rack-1", "devices": listed}]
    return CaseCluster({"case": "effort", "slices": slices, "claims": claims})


def _refused(cluster: CaseCluster) -> ClaimsRefusal:
    found = cluster.allocator.allocate(cluster.request, cluster.row, cluster.use, cluster.names)
    assert isinstance(found, ClaimsRefusal)
    return found


@pytest.mark.parametrize(
    "requests",
    [
        {"main": "gpus x 15", "side": {"class": "gpus", "count": 15, "where": ["false"]}},
        {"main": "gpus x 16", "side": "gpus x 15"},
        {"main": "gpus x 16", "side": [{"best": "gpus x 16"}, {"next": "gpus x 15"}]},
    ],
)
def test_too_few_devices_are_noticed_without_a_search(requests: dict[str, Any]) -> None:
    assert _refused(_cluster(requests, distinct=["gpu/serial"])).message == NONE


def test_interchangeable_devices_are_tried_once() -> None:
    cluster = _cluster({"main": "gpus x 10", "side": "gpus x 11"}, match=["gpu/board"])
    search = cluster.allocator._search(
        cluster.allocator._columns(cluster.request), cluster.catalogue.visible(0), cluster.use
    )
    assert search.run() is None
    assert search.steps < 100


def test_a_search_that_takes_too_long_is_given_up_with_an_error() -> None:
    requests = {"main": "gpus x 10", "side": "gpus x 11"}
    rules: dict[str, Any] = {
        "distinct": ["gpu/serial"],
        "match": [{"attribute": "gpu/board", "of": ["side"]}],
    }
    found = _refused(_cluster(requests, **rules))
    assert found == ClaimsRefusal("node alpha: timed out trying to allocate devices", True)
    assert MAX_STEPS >= 10_000


def test_claims_with_hundreds_of_devices_do_not_exhaust_the_stack() -> None:
    slices = [
        {"slice": f"slice-{n:02}", "pool": f"gpu/rack-{n:02}", "devices": "dev-1..128"}
        for n in range(5)
    ]
    claims = {f"job-{n:02}": {"requests": {"main": "gpus x 32"}} for n in range(20)}
    cluster = CaseCluster({"case": "many", "slices": slices, "claims": claims})
    found = cluster.allocator.allocate(cluster.request, cluster.row, cluster.use, cluster.names)
    assert not isinstance(found, ClaimsRefusal)
    assert len(set(found.devices)) == 640


def test_the_explanation_says_which_devices_the_pod_itself_gets() -> None:
    cluster = _cluster({"main": "gpus x 2", "side": "gpus x 2"}, devices=3)
    found = explain(cluster.allocator, cluster.request, cluster.row, cluster.use)
    assert {(each.request, each.device.device, each.detail) for each in found.devices} == {
        ("side", "dev-0", "allocated to another request of the pod"),
        ("side", "dev-1", "allocated to another request of the pod"),
    }
    assert found.visible == 3


def test_the_explanation_names_constraints_counters_and_capacity() -> None:
    slices = [
        {
            "slice": "slice-1",
            "pool": "gpu/rack-1",
            "of": 2,
            "devices": [
                {"device": "dev-1", "attributes": {"color": "red"}},
                {"device": "dev-2", "attributes": {"color": "blue"}},
                {"device": "dev-3", "consumes": {"chip": {"parts": 2}}},
                {"device": "dev-4", "shared": True, "capacity": {"memory": 2}},
                {"device": "dev-5", "at": "beta"},
            ],
        },
        {"slice": "slice-2", "pool": "gpu/rack-1", "of": 2, "counters": [{"chip": {"parts": 1}}]},
        {"slice": "slice-3", "pool": "gpu/rack-2", "of": 2, "devices": ["dev-1"]},
    ]
    claims = {"job": {"requests": {"main": "gpus x 3"}, "match": ["gpu/color"]}}
    shares = {"gpu/rack-1/dev-4": {"memory": 1}}
    cluster = CaseCluster({"case": "why", "slices": slices, "claims": claims, "shares": shares})
    found = explain(cluster.allocator, cluster.request, cluster.row, cluster.use)
    assert [(each.device.device, each.reason, each.detail) for each in found.devices] == [
        ("dev-2", "constraint", "gpu/color"),
        ("dev-3", "counters", "chip/parts"),
        ("dev-4", "capacity", ""),
        ("dev-5", "constraint", "gpu/color"),
    ]
    assert [(str(each.pool), each.reason) for each in found.pools] == [
        ("gpu/rack-2", "is being updated")
    ]
