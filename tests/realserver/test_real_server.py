"""The fixture itself."""

from __future__ import annotations

import pytest

from harness.builders import make_node, make_pod
from realserver.assets import SCHEDULER, missing
from realserver.client import RefusedError
from realserver.server import RealServer


def test_objects_are_kept_watched_and_emptied(real_cluster: RealServer) -> None:
    client = real_cluster.client
    made = client.create(make_node("n1").allocatable(cpu="4", memory="8Gi", pods=110).raw())
    assert made["status"]["allocatable"]["cpu"]
    created = client.create(make_pod("p").raw())
    version = created["metadata"]["resourceVersion"]
    client.bind(created, "n1")
    event = next(client.watch("v1", "pods", f"resourceVersion={version}"))
    assert event["type"] == "MODIFIED"
    assert event["object"]["spec"]["nodeName"] == "n1"
    real_cluster.empty()
    assert client.list("v1", "pods") == client.list("v1", "nodes") == []
    with pytest.raises(RefusedError, match="404"):
        client.get(created)


@pytest.mark.skipif(bool(missing(SCHEDULER)), reason=missing(SCHEDULER) or "-")
def test_kube_scheduler_binds(real_cluster: RealServer) -> None:
    client = real_cluster.client
    client.create(make_node("n1").allocatable(cpu="4", memory="8Gi", pods=110).raw())
    version = client.create(make_pod("p").raw())["metadata"]["resourceVersion"]
    with real_cluster.kube_scheduler():
        for event in client.watch("v1", "pods", f"resourceVersion={version}"):
            if event["object"]["spec"].get("nodeName"):
                break
    assert event["object"]["spec"]["nodeName"] == "n1"
