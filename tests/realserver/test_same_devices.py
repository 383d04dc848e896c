"""The devices that we allocate beside those that a real kube-scheduler allocates, on random clusters.

A pod is bound to one of the nodes that we score best, and if it is the one that we chose, its claims
get the same allocation; or it gets the same message.

`HOLDFAST_REAL_DEVICE_CLUSTERS` is the number of clusters (seeds from 0, or from `HOLDFAST_REAL_SEED`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from harness import choices
from harness.builders import make_node
from harness.driver import Driver
from holdfast.api.decode import decode
from realserver.assets import SCHEDULER, missing
from realserver.client import Json, RefusedError
from realserver.device_clusters import ADMIN_LABEL, NAMESPACE, DeviceCluster, claim, random_cluster
from realserver.device_comparison import Batch, decided, shown
from realserver.device_pools import API
from realserver.server import RealServer
from realserver.test_same_decisions import SEED, node_of
from realserver.versions import comparison

CLUSTERS = int(os.environ.get("HOLDFAST_REAL_DEVICE_CLUSTERS", "60"))
_OLDEST = 37
_TOGETHER = 30


def batches(clusters: list[DeviceCluster]) -> Iterator[list[DeviceCluster]]:
    yield from ([each] for each in clusters if each.alone)
    others = [each for each in clusters if not each.alone]
    for start in range(0, len(others), _TOGETHER):
        yield others[start : start + _TOGETHER]


def _ensure_namespace(server: RealServer) -> None:
    meta = {"name": NAMESPACE, "labels": {ADMIN_LABEL: "true"}}
    try:
        server.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    except RefusedError as error:
        assert error.status == 409, error


@pytest.mark.skipif(bool(missing(SCHEDULER)), reason=missing(SCHEDULER) or "-")
def test_kube_scheduler_allocates_the_same_devices(real_server: RealServer) -> None:
    compared = comparison(real_server)
    if compared.minor < _OLDEST:
        pytest.skip(f"the server is 1.{compared.minor}; devices are allocated as in 1.{_OLDEST}")
    _ensure_namespace(real_server)
    seeds = range(SEED, SEED + CLUSTERS)
    clusters = [random_cluster(choices.seeded(seed), f"s{seed}") for seed in seeds]
    outcomes: Counter[str] = Counter()
    differences: list[str] = []
    with real_server.kube_scheduler({"percentageOfNodesToScore": 100}):
        for together in batches(clusters):
            batch = Batch(real_server, together)
            batch.play()
            outcomes += batch.outcomes
            differences += batch.differences
            print(f"{together[0].prefix} and {len(together) - 1} more: {dict(batch.outcomes)}")
            for each in batch.differences:
                print(each)
    real_server.empty()
    assert not differences, "\n".join([str(dict(outcomes)), *differences])
    assert outcomes["with devices"] > CLUSTERS // 4, outcomes
    print(dict(outcomes))


def _slice(pool: str, **device: Any) -> Json:
    spec: Json = {"driver": "a.example.com", "nodeName": "n", "devices": [{"name": "d", **device}]}
    spec["pool"] = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": pool}, "spec": spec}


def _pod(name: str) -> Json:
    entry = {"name": "c", "resourceClaimName": name}
    spec = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": [entry]}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@pytest.mark.skipif(bool(missing(SCHEDULER)), reason=missing(SCHEDULER) or "-")
def test_devices_with_binding_conditions_come_last_and_are_awaited(real_server: RealServer) -> None:
    if comparison(real_server).minor < _OLDEST:
        pytest.skip(f"devices are allocated as in 1.{_OLDEST}")
    real_server.empty()
    _ensure_namespace(real_server)
    client, ours = real_server.client, Driver(config=comparison(real_server).ours)
    selector = {"cel": {"expression": "device.driver == 'a.example.com'"}}
    request = {"name": "r", "exactly": {"deviceClassName": "a"}}
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    objects = [
        make_node("n").allocatable(cpu="4", memory="8Gi", pods=110).raw(),
        {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": "a"}, "spec": {}},
        _slice("first", **conditions),
        _slice("second"),
        *(claim(name, {"devices": {"requests": [request]}}) for name in ("p0", "p1")),
    ]
    objects[1]["spec"] = {"selectors": [selector]}
    for raw in objects:
        ours.add(decode(client.create(raw)))

    def allocated(name: str) -> Json | None:
        found: Json | None = (client.get(claim(name, {})).get("status") or {}).get("allocation")
        return found

    def is_allocated(name: str) -> bool:
        return allocated(name) is not None

    def is_bound(pod: Json) -> bool:
        return bool(node_of(client.get(pod)))

    with real_server.kube_scheduler():
        for name in ("p0", "p1"):
            pod = client.create(_pod(name))
            ours.add(decode(pod))
            decisions = ours.later()
            real_server.wait_until(partial(is_allocated, name))
            theirs = allocated(name)
            assert theirs is not None
            assert decided(name, decisions).allocations == {name: shown(theirs)}
            if name == "p0":
                assert theirs["devices"]["results"][0]["pool"] == "second"
                real_server.wait_until(partial(is_bound, pod))
                assert decided(name, decisions).node == "n"
                ours.update(decode(client.get(claim(name, {}))), decode(client.get(pod)))
        assert not is_bound(pod) and not decided("p1", decisions).node
        of = {"driver": "a.example.com", "pool": "first", "device": "d"}
        now = "2026-01-01T00:00:00Z"
        ready = {"type": "ready", "status": "True", "reason": "r", "message": ""}
        status = {"devices": [{**of, "conditions": [{**ready, "lastTransitionTime": now}]}]}
        ours.update(decode(client.patch(claim("p1", {}), {"status": status}, "status")))
        assert decided("p1", ours.later()).node == "n"
        real_server.wait_until(partial(is_bound, pod))
    real_server.empty()
