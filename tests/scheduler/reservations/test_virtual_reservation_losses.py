"""A pod that waits for its reservation is bound with CPUs and ports that are its own, or not at all."""

import json

import pytest

from harness.numa_objects import STATUS, topology
from harness.objects import Raw, node, pod
from harness.scenarios import play, step
from holdfast.scheduler.framework.config import API_VERSION, KIND

TEMPLATE = {
    "scheduling.koordinator.sh/reservation-template": json.dumps(
        {"owners": [{"labelSelector": {"matchLabels": {"team": "b"}}}]}
    )
}
LSR = {"koordinator.sh/qosClass": "LSR"}
CONFIG = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "dynamicReservation": {
        "provisioner": "external",
        "provisionTimeout": "30s",
        "virtualRetention": "30s",
        "onFailure": "Bind",
    },
}


def _theirs(cpus: str) -> Raw:
    """A pod that a user puts on the node, on these CPUs."""
    status = {STATUS: json.dumps({"cpuset": cpus})}
    return pod("theirs", 2, at="20s", labels=LSR, annotations=status, nodeName="n1")


def _fewer() -> Raw:
    return step("20s", apply=topology(cpus=2, numa=1))


@pytest.mark.parametrize(
    ("change", "bound"),
    [(_theirs("2-3"), (30, "0-1")), (_theirs("0-1"), (60, "2-3")), (_fewer(), (30, "0-1"))],
    ids=["others are taken", "its own are taken", "others go"],
)
def test_its_cpus_are_its_own_when_it_is_bound(change: Raw, bound: tuple[float, str]) -> None:
    waits = pod("p", 2, labels=LSR, annotations=TEMPLATE)
    played = play(node("n1", 4), topology(cpus=4, numa=1), waits, change, config=CONFIG, until=300)
    annotations = played.find("Pod", "p")["metadata"]["annotations"]
    assert (played.times("p"), json.loads(annotations[STATUS])["cpuset"]) == ([bound[0]], bound[1])


def test_it_is_not_bound_with_cpus_that_are_gone() -> None:
    waits = pod("p", 4, labels=LSR, annotations=TEMPLATE)
    played = play(node("n1", 4), topology(cpus=4, numa=1), waits, _fewer(), config=CONFIG, until=300)
    assert played.times("p") == [None]


@pytest.mark.parametrize("theirs", [True, False])
def test_it_is_not_bound_with_a_port_that_others_got(theirs: bool) -> None:
    ports = [{"containerPort": 80, "hostPort": 80}]
    container = {"name": "main", "ports": ports, "resources": {"requests": {"cpu": "1"}}}
    waits = pod("p", 1, annotations=TEMPLATE, containers=[container])
    other = pod("theirs", 1, at="20s", nodeName="n1", containers=[container])
    played = play(node("n1", 4), waits, *([other] if theirs else []), config=CONFIG, until=200)
    assert played.times("p") == [None if theirs else 30]
