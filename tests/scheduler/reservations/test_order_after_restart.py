"""A scheduler that is restarted keeps the order in which pods and reservations came."""

import pytest

from harness.objects import Raw, node, pod, reservation
from harness.world import World

GANG = {
    "gang.scheduling.koordinator.sh/name": "",
    "gang.scheduling.koordinator.sh/min-available": "1",
}


def _pod(name: str) -> Raw:
    return pod(name, cpu="4")


def _member(name: str) -> Raw:
    annotations = {**GANG, "gang.scheduling.koordinator.sh/name": f"gang-{name}"}
    return pod(name, cpu="4", metadata={"annotations": annotations})


def _reservation(name: str) -> Raw:
    return reservation(name, app=name, cpu="4")


def _has_a_node(world: World, raw: Raw) -> bool:
    name = raw["metadata"]["name"]
    return bool(world.node_of(name) if raw["kind"] == "Pod" else world.status(name).get("nodeName"))


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("make", [_pod, _member, _reservation])
def test_what_came_first_is_first(make: object, restarts: bool) -> None:
    assert callable(make)
    early, late = make("z-early"), make("a-late")
    world = World(node("n", cpu="4")).put(pod("full", cpu="4"))
    world.put(early).wait(60).put(late).wait(60)
    if restarts:
        world.restart()
        world.settle()
    world.delete("Pod", "full").wait(30)
    assert (_has_a_node(world, early), _has_a_node(world, late)) == (True, False)


def test_pods_that_come_at_once_are_taken_by_name() -> None:
    world = World(node("n", cpu="4")).put(pod("full", cpu="4"))
    world.put(_pod("b"), _pod("a")).delete("Pod", "full").wait(30)
    assert [world.node_of("a"), world.node_of("b")] == ["n", ""]
