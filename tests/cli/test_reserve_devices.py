"""`holdfast reserve --device-class`: the ResourceClaimTemplate that is created lives as long as its
reservations."""

from __future__ import annotations

from pathlib import Path

from harness.claim_objects import claim_template, device_class, devices_of, request, resource_slice
from harness.served_cluster import RESERVATION, ServedCluster

TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
FLAGS = ("--device-class", "gpu", "--count", "2", "--owner", "app=train")


def names(cluster: ServedCluster, path: str) -> list[str]:
    return [raw["metadata"]["name"] for raw in cluster.server.get(path).body["items"]]


def reserve(cluster: ServedCluster, *more: str) -> None:
    done = cluster("reserve", *FLAGS, *more)
    assert done.status == 0, done.err
    cluster.settle()


def delete(cluster: ServedCluster, name: str) -> None:
    cluster.server.delete(f"/apis/{RESERVATION}/reservations/{name}")
    cluster.settle()


def test_a_template_is_deleted_after_the_last_of_its_reservations(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, nodes=2) as cluster:
        cluster.create(
            device_class(), resource_slice("node-1", 4), resource_slice("node-2", 4)
        ).settle()
        reserve(cluster, "--replicas", "2", "--name", "train")
        assert names(cluster, TEMPLATES) == ["train-devices"]
        claims = cluster.server.get(CLAIMS).body["items"]
        assert sorted(len(devices_of(each)) for each in claims) == [2, 2]
        delete(cluster, "train-1")
        assert names(cluster, TEMPLATES) == ["train-devices"]
        delete(cluster, "train-2")
        assert (names(cluster, TEMPLATES), names(cluster, CLAIMS)) == ([], [])
        reserve(cluster, "--name", "train")
        assert names(cluster, TEMPLATES) == ["train-devices"]


def test_a_template_of_somebody_else_stays(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, nodes=1) as cluster:
        cluster.create(
            device_class(),
            resource_slice("node-1", 4),
            claim_template("train-devices", request("devices", 2)),
        ).settle()
        reserve(cluster, "--name", "train")
        delete(cluster, "train")
        assert names(cluster, TEMPLATES) == ["train-devices"]
