"""Whatever happens, in whatever order: no share of a GPU is given twice.

`LittleWorld` compares what is kept with a recount after every event; here what is written on pods and
reservations is added up by itself, with refused writes, restarts, and devices that come and go.
"""

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from harness.choices import Chooser, choosing, seeded
from harness.device_objects import ALLOCATED, CORE, GIB, MEMORY, RATIO, device, gpu
from harness.objects import Raw, node, pod, reservation
from harness.random_events import RandomLife
from harness.strategies import examples
from harness.world import ALLOCATED as RESERVATION_ALLOCATED
from harness.world import World
from holdfast.api.quantity import amount

FULL = {CORE: 100, RATIO: 100, MEMORY: 16 * GIB}
APPS = ("a", "b", "")


def shares(raw: Raw) -> Counter[tuple[int, str]]:
    """What is written on an object, by minor and line."""
    text = (raw["metadata"].get("annotations") or {}).get(ALLOCATED)
    found: Counter[tuple[int, str]] = Counter()
    for each in msgspec.json.decode(text).get("gpu", ()) if text else ():
        for line, quantity in each["resources"].items():
            found[each["minor"], line] += amount(line, quantity)
    return found


class DeviceLife(RandomLife):
    def __init__(self, choose: Chooser) -> None:
        super().__init__(choose)
        self.world = World(node("n0"), node("n1"), self.devices("n0", 2), self.devices("n1", 3))
        self.world.shrinking = True

    def devices(self, name: str, count: int, sick: int = -1) -> Raw:
        return device(name, *(gpu(i, health=i != sick, numa=i // 2) for i in range(count)))

    def live(self, steps: int) -> None:
        actions = (
            self.new_pod,
            self.new_pod,
            self.new_pod,
            self.new_reservation,
            self.new_reservation,
            self.goes,
            self.goes,
            self.devices_change,
            self.node_comes_or_goes,
            self.world.restart,
        )
        for _ in range(steps):
            self.choose(actions)()
            self.world.settle()
            self.check()

    def requests(self) -> dict[str, str]:
        forms: tuple[dict[str, str], ...] = (
            {"koordinator.sh/gpu": self.choose(("20", "50", "60", "100", "200"))},
            {"nvidia.com/gpu": self.choose(("1", "2"))},
            {CORE: self.choose(("10", "70")), MEMORY: self.choose(("3Gi", "9Gi"))},
            {RATIO: self.choose(("33", "50"))},
            {"koordinator.sh/gpu.shared": "2", RATIO: self.choose(("60", "100"))},
        )
        return {"cpu": "1", **forms[self.choose(range(len(forms)))]}

    def new_pod(self) -> None:
        self.made += 1
        name = f"p{self.made % 9}"
        if ("Pod", name) in self.world.objects:
            return
        it = pod(name, app=self.choose(APPS), uid=f"uid-{self.made}", requests=self.requests())
        it["spec"]["priority"] = self.choose((0, 0, 10))
        if self.choose((True, False, False, False)):
            self.world.refuse.add(f"uid-{self.made}")
        self.world.put(it)

    def new_reservation(self) -> None:
        name = self.choose(("r0", "r1", "r2"))
        if ("Reservation", name) in self.world.objects:
            return
        self.made += 1
        it = reservation(
            name,
            app=self.choose(("a", "b")),
            requests=self.requests(),
            allocateOnce=self.choose((True, False)),
            allocatePolicy=self.choose(("", "Aligned", "Restricted")),
            preAllocation=self.choose((True, False, False, False)),
        )
        it["metadata"]["uid"] = f"uid-{self.made}"
        if self.choose((True, False, False, False)):
            self.world.refuse.add(f"uid-{self.made}")
        self.world.put(it)

    def goes(self) -> None:
        self.one_goes(self.choose(("Pod", "Pod", "Reservation")))

    def devices_change(self) -> None:
        name = self.choose(("n0", "n1"))
        if ("Device", name) in self.world.objects and self.choose((True, False, False)):
            self.world.delete("Device", name)
            return
        self.world.put(self.devices(name, self.choose((1, 2, 3)), self.choose((-1, -1, 0, 1))))

    def check(self) -> None:
        objects = self.world.objects
        given: dict[str, Counter[tuple[int, str]]] = {}
        taken: dict[str, Counter[tuple[int, str]]] = {}
        for (kind, _), raw in objects.items():
            where = raw["spec"].get("nodeName") if kind == "Pod" else None
            if where:
                given.setdefault(where, Counter()).update(shares(raw))
                text = (raw["metadata"].get("annotations") or {}).get(RESERVATION_ALLOCATED)
                if text:
                    drawn: Any = msgspec.json.decode(text)["uid"]
                    taken.setdefault(f"{where} {drawn}", Counter()).update(shares(raw))
        for (kind, name), raw in objects.items():
            if kind != "Reservation" or self.world.phase(name) != "Available":
                continue
            where = self.world.status(name)["nodeName"]
            owned = taken.get(f"{where} {raw['metadata']['uid']}", Counter())
            for key, value in shares(raw).items():
                given.setdefault(where, Counter())[key] += max(0, value - owned[key])
        for where, sums in given.items():
            for (minor, line), value in sums.items():
                assert value <= FULL[line], f"{where}: {line} of {minor} is given twice: {value}"
        self.check_what_is_free(given)

    def check_what_is_free(self, given: dict[str, Counter[tuple[int, str]]]) -> None:
        """On nodes where everybody says what it has, the rest is free: neither more nor less."""
        cluster = self.world.scheduler.cluster
        devices = cluster.managers.devices
        for (kind, where), raw in self.world.objects.items():
            row = cluster.nodes.row(where)
            if kind != "Device" or row is None or devices.tentative.keys() & devices.there.get(row, {}):
                continue
            if any(reservation.waiting for reservation in cluster.reservations.known.values()):
                continue
            table = devices.tables["gpu"]
            for each in raw["spec"]["devices"]:
                at = table.minors[row].index(each["minor"])
                for place, line in enumerate((CORE, MEMORY, RATIO)):
                    offered = FULL[line] if each["health"] else 0
                    free = offered - given.get(where, Counter())[each["minor"], line]
                    found = int(table.free[place, row, at])
                    assert found == free, f"{where}: of {line} of {each['minor']} {free} should be free"


@examples(12)
@given(st.data())
def test_no_share_of_a_gpu_is_given_twice(data: st.DataObject) -> None:
    DeviceLife(choosing(data.draw)).live(15)


def test_no_share_of_a_gpu_is_given_twice_in_many_lives() -> None:
    for seed in range(examples(12).max_examples):
        DeviceLife(seeded(seed)).live(30)
