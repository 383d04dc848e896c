"""What is preempted is held for those it is for, and for no longer than they need it."""

from hypothesis import given
from hypothesis import strategies as st

from harness.choices import Chooser, choosing, seeded
from harness.objects import node, pod, reservation
from harness.strategies import examples
from harness.world import World

UID = "holdfast.io/preemptor-uid"


class Life:
    def __init__(self, choose: Chooser) -> None:
        self.choose = choose
        self.world = World(node("n0", cpu="8"), node("n1", cpu="4"), node("n2", cpu="6"))
        self.made = 0

    def live(self, steps: int) -> None:
        actions = (self.come, self.come, self.come, self.go, self.end, self.reservation, self.edit)
        for _ in range(steps):
            self.world.graceful = self.choose((True, False))
            writes = self.choose((-1, -1, 1, 2, 3, 5))
            self.world.restart_after = self.world.writes + writes if writes > 0 else -1
            self.choose(actions)()
            self.world.wait(self.choose((0, 0, 3, 20)))

    def come(self) -> None:
        self.made += 1
        made = pod(
            f"p{self.made}",
            app=self.choose(("", "", "", "a")),
            cpu=self.choose(("1", "2", "4")),
            priority=self.choose((0, 0, 5, 10, 100)),
            ports=self.choose(((), (), (), (80,))),
        )
        if self.choose((True, False, False)):
            self.world.refuse.add(f"pod-p{self.made}")
        self.world.put(made)

    def go(self) -> None:
        there = sorted(key for key in self.world.objects if key[0] in ("Pod", "Reservation"))
        if there:
            self.world.delete(*self.choose(there))

    def end(self) -> None:
        """Pods that are on their way out are gone."""
        for (kind, name), raw in list(self.world.objects.items()):
            if kind == "Pod" and "deletionTimestamp" in raw["metadata"]:
                self.world.delete("Pod", name)

    def reservation(self) -> None:
        self.made += 1
        made = reservation(f"r{self.made}", cpu=self.choose(("1", "2")), allocateOnce=False)
        self.world.put(made)

    def edit(self) -> None:
        """Somebody writes on a room, or closes a node."""
        rooms = sorted(self.rooms())
        if self.choose((True, False)) and rooms:
            self.world.edit("Reservation", self.choose(rooms), metadata__labels__note="x")
        else:
            name, closed = self.choose(("n0", "n1", "n2")), self.choose((True, False))
            self.world.edit("Node", name, spec__unschedulable=closed)

    def rooms(self) -> list[str]:
        """Those that are not finished."""
        return [
            name
            for (kind, name), raw in self.world.objects.items()
            if kind == "Reservation"
            and UID in raw["metadata"].get("labels", {})
            and raw.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def rest(self) -> None:
        """In the end only a pod that still waits has room held for it, on the node it is to go to."""
        self.world.restart_after = -1
        for name in ("n0", "n1", "n2"):
            self.world.edit("Node", name, spec__unschedulable=False)
        for _ in range(6):
            self.end()
            self.world.wait(30)
        cluster = self.world.scheduler.cluster
        for name in self.rooms():
            room = cluster.reservations.get(name)
            assert room is not None
            owner = cluster.pods.get(room.preemptor)
            assert owner is not None, name
            assert owner.row < 0 and owner.nominated == room.wants_node, name


@examples(20)
@given(st.data())
def test_nothing_is_held_for_nobody(data: st.DataObject) -> None:
    life = Life(choosing(data.draw))
    life.live(20)
    life.rest()


def test_nothing_is_held_for_nobody_in_many_lives() -> None:
    for seed in range(examples(25).max_examples):
        life = Life(seeded(seed))
        life.live(30)
        life.rest()
