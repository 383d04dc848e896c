"""A cluster at one moment, whose scheduler plays its rounds."""

from explanation.test_situations import full
from harness.objects import node, pod
from harness.world import START
from holdfast.local.timeline import BOUND
from holdfast.snapshot.played_cluster import PlayedCluster
from sim.what_if.clusters import SETUP


def test_ties_are_broken_by_the_order_of_nodes_not_of_the_pods_on_them() -> None:
    objects = [
        full("later", "2", "n1"),
        full("other", "2", "n0"),
        node("n0", cpu="4", uid="n0"),
        node("n1", cpu="4", uid="n1"),
        {**pod("p", "1", schedulerName="default-scheduler"), "status": {}},
    ]
    for raw in objects:
        raw["metadata"].setdefault("uid", raw["metadata"]["name"])
    cluster = PlayedCluster(SETUP, START)
    cluster.load(objects)
    assert [each.node for each in cluster.rest() if each.event == BOUND] == ["n0"]


def test_pods_of_manifests_have_no_status() -> None:
    running = pod("running", "2", nodeName="n0")
    objects = [node("n0", cpu="4", uid="n0"), running, pod("p", "1", schedulerName="default-scheduler")]
    for raw in objects:
        raw["metadata"].setdefault("uid", raw["metadata"]["name"])
        if raw["kind"] == "Pod":
            raw.pop("status", None)
    cluster = PlayedCluster(SETUP, START)
    cluster.load(objects)
    assert [each.node for each in cluster.rest() if each.event == BOUND] == ["n0"]
