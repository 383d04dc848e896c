"""Pods that wait for permission on a node that is deleted give up the place, and are tried again."""

from typing import Any

import pytest

from harness.permit_gate import Gate
from holdfast.plugin.testing import Cluster, node, pod

GANG = "gang.scheduling.koordinator.sh/"


def stage(*objects: Any) -> Cluster:
    return Cluster(Gate).add(*objects)


def member(name: str, least: int) -> dict[str, Any]:
    return pod(name, cpu=2, annotations={GANG + "name": "g", GANG + "min-available": str(least)})


@pytest.mark.parametrize("cpu", [2, 0])
def test_a_pod_is_tried_on_another_node(cpu: int) -> None:
    cluster = stage(node("a", cpu=2), pod("p", cpu=cpu))
    cluster.schedule()
    assert cluster.waiting() == {"p": "a"}
    cluster.add(node("b", cpu=2)).delete("Node/a")
    cluster.advance(2)
    assert cluster.waiting() == {"p": "b"}
    assert cluster.plugin().held == {"p"}
    cluster.plugin().is_open = True
    assert cluster.add(node("c")).schedule() == {"p": "b"}


def test_without_another_node_it_is_told_so_and_waits_for_one() -> None:
    cluster = stage(node("a", cpu=2), pod("p", cpu=2))
    cluster.schedule()
    cluster.delete("Node/a").schedule()
    assert cluster.waiting() == {} and cluster.plugin().held == set()
    told = [event.message for event in cluster.events() if event.reason == "FailedScheduling"]
    assert told == ["node a was deleted while the pod waited for Gate"]
    cluster.advance(2)
    assert cluster.messages() == {"p": "no nodes available to schedule pods"}
    cluster.add(node("b", cpu=2)).advance(10)
    assert cluster.waiting() == {"p": "b"}


@pytest.mark.parametrize("cpu", [2, 0])
def test_it_is_not_bound_to_a_node_that_is_gone_when_it_is_permitted(cpu: int) -> None:
    cluster = stage(node("a", cpu=2), pod("p", cpu=cpu))
    cluster.schedule()
    cluster.plugin().is_open = True
    cluster.add(node("b", cpu=2)).delete("Node/a")
    assert cluster.advance(2) == {"p": "b"}


def test_another_node_of_the_same_name_is_looked_at_anew() -> None:
    cluster = stage(node("a", cpu=2), pod("p", cpu=2))
    cluster.schedule()
    cluster.plugin().is_open = True
    cluster.delete("Node/a").add(node("a", cpu=4, taints=["new:NoSchedule"]))
    assert cluster.advance(2) == {}
    assert "untolerated taint" in cluster.messages()["p"]


def test_a_node_that_only_changes_keeps_its_pods_waiting() -> None:
    cluster = stage(node("a", cpu=2), pod("p", cpu=2))
    cluster.schedule()
    cluster.update(node("a", cpu=2, labels={"zone": "z"})).add(node("b", cpu=2)).advance(2)
    assert cluster.waiting() == {"p": "a"}


@pytest.mark.parametrize("gone", ["a", "b"])
def test_a_gang_is_tried_again_as_a_whole(gone: str) -> None:
    """The one permitted, which waits for the other, is as good as the other."""
    cluster = stage(node("a", cpu=2), node("b", cpu=2), member("free-0", 2), member("g-1", 2))
    cluster.schedule()
    assert sorted(cluster.waiting().values()) == ["a", "b"]
    cluster.delete(f"Node/{gone}").schedule()
    assert cluster.waiting() == {} and cluster.plugin().held == set()
    cluster.add(node("c", cpu=2)).advance(10)
    assert len(cluster.waiting()) == 2 and gone not in cluster.waiting().values()
    cluster.plugin().is_open = True
    assert sorted(cluster.add(node("d")).schedule()) == ["free-0", "g-1"]


def test_a_member_beyond_those_its_gang_needs_is_tried_again_alone() -> None:
    free = [member("free-0", 1), member("g-1", 1)]
    cluster = stage(node("a", cpu=2), node("b", cpu=2), *free)
    assert sorted(cluster.schedule()) == ["free-0"]
    ((name, where),) = cluster.waiting().items()
    cluster.add(node("c", cpu=2)).delete(f"Node/{where}").advance(2)
    assert cluster.waiting() == {name: "c"}


def test_a_reservation_does_not_fail_with_a_node_it_never_had() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": "r"}}}],
            "template": {"spec": {"containers": [container]}},
        },
    }
    cluster = stage(node("a", cpu=2), reservation)
    cluster.schedule()
    cluster.add(node("b", cpu=2)).delete("Node/a").advance(2)
    cluster.plugin().is_open = True
    cluster.add(node("c", cpu=1)).advance(2)
    (status,) = [raw["status"] for raw in cluster.objects() if raw["kind"] == "Reservation"]
    assert (status["phase"], status["nodeName"]) == ("Available", "b")
