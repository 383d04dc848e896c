"""Scheduler or provisioner restart after every single thing that is written."""

from collections.abc import Callable
from typing import Any

import pytest

from harness.objects import ID, Raw, node, pod, requesting, required
from harness.world import World


class RestartedError(Exception):
    """Raised in the middle of carrying out a round's decisions: the rest of them is lost."""


def objects() -> list[Raw]:
    size: dict[str, Any] = {"recommendedSize": {"cpu": "4"}, "roundup": {"cpu": "2"}}
    return [
        node("n1", cpu="8"),
        node("n2", cpu="8"),
        requesting("p", cpu="1", **size),
        requesting("q", cpu="2", **size),
        requesting("alone", app="b", cpu="3", **size),
    ]


def check(world: World) -> None:
    ids = [made["metadata"]["labels"][ID] for made in world.reservations()]
    assert len(ids) == len(set(ids)) == 2
    assert world.reservation_of("p") == world.reservation_of("q") != ""
    assert world.reservation_of("alone") not in ("", world.reservation_of("p"))
    cluster = world.scheduler.cluster
    assert not cluster.virtuals.by_id and not cluster.virtuals.waits
    assert world.reserved("n1") + world.reserved("n2") == 8000 - 6000
    for made in world.reservations():
        assert made["status"]["phase"] == "Available"
    # What is left is left for everyone, and to be used to the last.
    world.put(pod("big1", cpu="4"), pod("big2", cpu="4"))
    assert {world.node_of("big1"), world.node_of("big2")} == {"n1", "n2"}


def play(provisioner: str, at: int, restart: Callable[[World], None]) -> int:
    """Restarts when so many things were written; answers how many there were before that."""
    world = World(provisioner=provisioner)
    written = 0

    def count() -> None:
        nonlocal written
        written += 1
        if written == at:
            world.after_each = lambda: None
            raise RestartedError

    world.after_each = count
    try:
        world.put(*objects())
    except RestartedError:
        restart(world)
    for raw in objects():
        if (raw["kind"], raw["metadata"]["name"]) not in world.objects:
            world.put(raw)
    world.settle()
    world.wait(60)
    world.after_each = lambda: None
    check(world)
    return written


def _both(world: World) -> None:
    world.restart()
    if hasattr(world, "provisioner"):
        world.restart_provisioner()


RESTARTS: dict[str, tuple[str, Callable[[World], None]]] = {
    "scheduler with its provisioner": ("builtin", World.restart),
    "scheduler, not the provisioner": ("apart", World.restart),
    "both": ("apart", _both),
}


@pytest.mark.parametrize("who", RESTARTS)
def test_restart_at_every_step(who: str) -> None:
    provisioner, restart = RESTARTS[who]
    steps = play(provisioner, 0, restart)
    assert steps > 10
    for step in range(1, steps + 1):
        play(provisioner, step, restart)


def test_restart_of_the_provisioner_at_every_step() -> None:
    """The scheduler goes on, and what it decided is carried out."""

    def run(at: int) -> int:
        world = World(provisioner="apart")
        written = 0

        def count() -> None:
            nonlocal written
            written += 1
            if written == at:
                world.restart_provisioner()

        world.after_each = count
        world.put(*objects()).wait(60)
        world.after_each = lambda: None
        check(world)
        return written

    steps = run(0)
    for step in range(1, steps + 1):
        run(step)


@pytest.mark.parametrize("gone", ["n1", "n2"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_node_that_goes_with_the_reservation(gone: str, restart: bool) -> None:
    world = World(node("n1"), provisioner="external")
    world.put(requesting("p", recommendedSize={"cpu": "4"}))
    id = world.requirement_id("p")
    world.put(node("n2"))
    if restart:
        world.restart()
        world.settle()
    world.delete("Node", gone).wait(60)
    world.put(
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": "r", "uid": "r", "labels": {ID: id}},
            "spec": {
                "allocateOnce": False,
                "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}],
                "template": {
                    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}
                },
            },
        }
    )
    assert world.reservation_of("p") == "r"
    assert world.node_of("p") == ({"n1", "n2"} - {gone}).pop()


def test_a_reservation_that_was_lost_with_its_node_while_nobody_led_is_asked_for_anew() -> None:
    """It is finished in the same round in which its pod is placed: its id is spent by then."""
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    lost = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "drp-x", "uid": "lost", "labels": {ID: "x"}},
        "spec": {
            "allocateOnce": False,
            "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}],
            "template": {"spec": {"containers": [container]}},
        },
        "status": {"phase": "Available", "nodeName": "gone", "allocatable": {"cpu": "1"}},
    }
    world = World(node("n1"), lost, requesting("p", cpu="1", requirement=required("x", cpu="1")))
    world.settle()
    assert world.phase("drp-x") == "Failed"
    assert world.node_of("p") == "n1"
    assert world.reservation_of("p") not in ("", "lost")
