"""The devices that we allocate beside those that a real kube-scheduler allocates, on random clusters.

A pod is bound to one of the nodes that we score best, and if it is the one that we chose, its claims
get the same allocation; or it gets the same message.

`HOLDFAST_REAL_DEVICE_CLUSTERS` is the number of clusters (seeds from 0, or from `HOLDFAST_REAL_SEED`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest

from harness import choices
from realserver.assets import SCHEDULER, missing
from realserver.client import RefusedError
from realserver.device_clusters import ADMIN_LABEL, NAMESPACE, DeviceCluster, random_cluster
from realserver.device_comparison import Batch
from realserver.server import RealServer
from realserver.test_same_decisions import SEED
from realserver.versions import comparison

CLUSTERS = int(os.environ.get("HOLDFAST_REAL_DEVICE_CLUSTERS", "60"))
_OLDEST = 37
_TOGETHER = 30


def batches(clusters: list[DeviceCluster]) -> Iterator[list[DeviceCluster]]:
    yield from ([each] for each in clusters if each.alone)
    others = [each for each in clusters if not each.alone]
    for start in range(0, len(others), _TOGETHER):
        yield others[start : start + _TOGETHER]


@pytest.mark.skipif(bool(missing(SCHEDULER)), reason=missing(SCHEDULER) or "-")
def test_kube_scheduler_allocates_the_same_devices(real_server: RealServer) -> None:
    compared = comparison(real_server)
    if compared.minor < _OLDEST:
        pytest.skip(f"the server is 1.{compared.minor}; devices are allocated as in 1.{_OLDEST}")
    meta = {"name": NAMESPACE, "labels": {ADMIN_LABEL: "true"}}
    try:
        real_server.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    except RefusedError as error:
        assert error.status == 409, error
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
