"""Whatever happens, reservations that make others go come to rest."""

from hypothesis import given
from hypothesis import strategies as st

from harness.choices import Chooser, choosing, seeded
from harness.objects import Raw, node, pod
from harness.strategies import examples
from harness.world import World
from scheduler.reservations.preempting_reservations import GANG, SOFT_EVICTOR, SOFT_MODE, names, rsv


class Life:
    def __init__(self, choose: Chooser) -> None:
        self.choose = choose
        mode = (None, SOFT_MODE, SOFT_EVICTOR)[choose((0, 1, 2))]
        self.world = World(node("n0", cpu="8"), node("n1", cpu="6"), preemption=mode)
        self.world.graceful = choose((True, False))
        self.soft = mode == SOFT_MODE
        self.priority: dict[str, int] = {}
        self.may: dict[str, bool] = {}
        self.made = 0

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.choose((self.reserve, self.reserve, self.own, self.end, self.restart, self.go))()
            self.check()

    def reserve(self) -> None:
        self.made += 1
        more: Raw = {}
        if self.choose((True, False, False)):
            gang = {"name": self.choose(("g0", "g1")), "min-available": 2}
            more["annotations"] = {f"{GANG}{key}": str(value) for key, value in gang.items()}
        priority, can = self.choose((1, 2, 3, None, "x")), self.choose(("true", "true", ""))
        self.priority[f"rsv-r{self.made}"] = priority if isinstance(priority, int) else 2**31 - 1
        self.may[f"rsv-r{self.made}"] = can == "true"
        made = rsv(
            f"r{self.made}",
            priority,
            cpu=self.choose(("2", "4", "5")),
            can=can,
            app=self.choose(("a", "b")),
            allocateOnce=self.choose((True, False, False)),
            preAllocation=self.choose((True, False, False, False)),
            **more,
        )
        if self.choose((True, False, False, False)):
            self.world.refuse.add(f"rsv-r{self.made}")
        self.world.put(made)

    def own(self) -> None:
        self.made += 1
        self.world.put(
            pod(f"p{self.made}", app=self.choose(("a", "b", "")), cpu=self.choose(("1", "3")))
        )

    def end(self) -> None:
        """Pods that are on their way out are gone."""
        for (kind, name), raw in list(self.world.objects.items()):
            if kind == "Pod" and "deletionTimestamp" in raw["metadata"]:
                self.world.delete("Pod", name)

    def restart(self) -> None:
        self.world.restart()
        self.world.settle()

    def go(self) -> None:
        there = sorted(key for key in self.world.objects if key[0] in ("Pod", "Reservation"))
        if there:
            self.world.delete(*self.choose(there))

    def check(self) -> None:
        """Nobody is preempted but by one that may, and is more important."""
        for preemptor, victim in self.world.preempted:
            assert self.may[preemptor] and self.priority[preemptor] > self.priority[victim]

    def rest(self) -> None:
        """In the end nobody waits for one that is gone, and nobody who has to go stays."""
        world = self.world
        for _ in range(4):
            self.end()
            world.wait(20)
        for name in names(world):
            reservations = world.scheduler.cluster.reservations
            reservation = reservations.get(name)
            assert reservation is not None
            gone = not reservations.awaits(reservation)
            # One made ahead of time may wait for pods besides.
            assert self.soft or not reservation.victims or (gone and reservation.pre_allocation), name


@examples(40)
@given(st.data())
def test_preemption_comes_to_an_end(data: st.DataObject) -> None:
    life = Life(choosing(data.draw))
    life.live(20)
    life.rest()


def test_preemption_comes_to_an_end_in_many_lives() -> None:
    for seed in range(examples(40).max_examples):
        life = Life(seeded(seed))
        life.live(30)
        life.rest()
