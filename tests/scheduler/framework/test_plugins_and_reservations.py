"""How reservations meet plugins: reserve pods and owners are seen as the manual says."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from harness.objects import node, pod, reservation
from harness.world import World
from holdfast.plugin import (
    FINE,
    Cells,
    Filter,
    Handle,
    Outcome,
    Plugin,
    PodClass,
    PodRecord,
    Reason,
    Scope,
    View,
)


class Watching(Plugin):
    """Allows one core and one pod of a kind on a node, and notes whom it is asked about."""

    name = "Watching"
    log: ClassVar[list[str]] = []
    with_reserve_pods: ClassVar[bool] = False

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self._cpu = handle.slot("cpu")
        self._count = handle.count_pods(
            lambda cls: "kind" in cls.labels, with_reserve_pods=self.with_reserve_pods
        )

    def filter(self, cls: PodClass) -> Filter | None:
        if "kind" not in cls.labels:
            return None

        def passes(view: View) -> Cells:
            return (view.free(self._cpu) >= 1000) & (view.take(self._count) < 1)

        return Filter(passes, lambda view: [Reason("node(s) were full", view.full(True))], Scope.USAGE)

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self.log.append(f"reserve {pod.name}")
        return FINE

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        self.log.append(f"permit {pod.name}")
        return FINE


@pytest.fixture
def world() -> World:
    Watching.log, Watching.with_reserve_pods = [], False
    return made()


def made() -> World:
    return World(node("n1", cpu="2"), plugins=(Watching,))


def test_reserve_pods_are_asked_about_as_pods_are(world: World) -> None:
    world.put(reservation("r", app="o", cpu="1", labels={"kind": "a"}))
    assert world.phase("r") == "Available"
    assert [line.split()[0] for line in Watching.log] == ["reserve", "permit"]
    world.put(pod("stranger", cpu="500m"))
    world.put(pod("late", cpu="500m", metadata={"labels": {"kind": "a"}}))
    assert world.node_of("late") == ""


def test_an_owner_sees_what_is_reserved_for_it_as_free(world: World) -> None:
    world.put(reservation("r", app="o", cpu="2", labels={"app": "x"}))
    world.put(pod("stranger", cpu="1", metadata={"labels": {"kind": "a"}}))
    assert world.node_of("stranger") == ""
    world.put(pod("o", cpu="1", metadata={"labels": {"app": "o", "kind": "a"}}))
    assert world.node_of("o") == "n1"


@pytest.mark.parametrize("counted", [False, True])
def test_reserve_pods_are_counted_if_asked_for(counted: bool) -> None:
    Watching.with_reserve_pods = counted
    world = made()
    world.put(reservation("r", app="nobody", cpu="500m", labels={"kind": "a"}))
    world.put(pod("p", cpu="500m", metadata={"labels": {"kind": "a"}}))
    assert world.node_of("p") == ("" if counted else "n1")
