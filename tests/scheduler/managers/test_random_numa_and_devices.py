"""CPUs, NUMA nodes, GPUs in every form, sets of them, and functions of cards, all at once.

Whatever happens, what is written on pods and reservations adds up to no more than there is.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Any

import msgspec

from harness.choices import Chooser, seeded
from harness.device_objects import ALLOCATED, CORE, GIB, MEMORY, RATIO, card, device, gpu
from harness.numa_objects import NUMA_SPEC, QOS, SPEC, cpus, topology, zones
from harness.objects import Raw, node, pod, pod_spec, reservation
from harness.strategies import examples
from harness.world import ALLOCATED as RESERVATION_ALLOCATED
from harness.world import World
from holdfast.api.quantity import amount

RDMA = "koordinator.sh/rdma"
GPUS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"koordinator.sh/gpu": "50"},
    {"koordinator.sh/gpu": "100"},
    {"koordinator.sh/gpu": "200"},
    {"nvidia.com/gpu": "1"},
    {CORE: "30", MEMORY: "4Gi"},
    {RATIO: "60"},
    {"koordinator.sh/gpu.shared": "2", RATIO: "80"},
)
ANNOTATIONS: tuple[dict[str, str], ...] = (
    {},
    {},
    {NUMA_SPEC: '{"numaTopologyPolicy": "SingleNUMANode"}'},
    {NUMA_SPEC: '{"numaTopologyPolicy": "Restricted"}'},
    {NUMA_SPEC: '{"numaTopologyPolicy": "BestEffort"}'},
)
CARDS: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({}, {}),
    ({}, {}),
    ({RDMA: "50"}, {}),
    ({RDMA: "1"}, {"scheduling.koordinator.sh/device-allocate-hint": '{"rdma": {"vfSelector": {}}}'}),
)
BINDING = ("", '{"requiredCPUBindPolicy": "FullPCPUs"}', '{"preferredCPUBindPolicy": "SpreadByPCPUs"}')
SETS = {"2": [{"minors": [0, 1], "allocationScore": 1}, {"minors": [2, 3], "allocationScore": 1}]}
MOST: dict[Hashable, int] = {CORE: 100, RATIO: 100, MEMORY: 16 * GIB, RDMA: 100}
MOST |= {"cpu": 4000, "memory": 8 * GIB, "own": 1, "function": 1}


class MixedLife:
    def __init__(self, choose: Chooser) -> None:
        self.choose = choose
        self.made = 0
        self.world = World(node("n0", cpu="8"), node("n1", cpu="8"))
        self.world.shrinking = True
        for name in ("n0", "n1"):
            self.world.put(self.devices(name), topology(name, cpus=8, memory=8))

    def devices(self, name: str, sick: int = -1) -> Raw:
        functions = [{"vfs": [{"minor": i, "busID": f"bus-{i}"} for i in range(2)]}]
        gpus = (gpu(i, health=i != sick, numa=i // 2, pcie=f"s{i // 2}") for i in range(4))
        cards = (card("rdma", i, numa=i, pcie=f"s{i}", vfGroups=functions) for i in range(2))
        sets = {"scheduling.koordinator.sh/gpu-partitions": msgspec.json.encode(SETS).decode()}
        return device(name, *gpus, *cards, annotations=sets if name == "n1" else {})

    def live(self, steps: int) -> None:
        actions = [self.new_pod] * 6 + [self.new_reservation] * 3 + [self.goes] * 3
        actions += [self.devices_change, self.topology_changes, self.time_passes, self.restart]
        for _ in range(steps):
            self.choose(actions)()
            self.world.settle()
            self.check()

    def restart(self) -> None:
        self.world.restart()

    def time_passes(self) -> None:
        self.world.wait(self.choose((1, 15)))

    def wish(self, app: str) -> tuple[dict[str, str], Raw]:
        asked, told = self.choose(CARDS)
        requests = {"cpu": self.choose(("1", "2", "3", "500m")), **self.choose(GPUS), **asked}
        annotations, labels = {**told, **self.choose(ANNOTATIONS)}, {"app": app} if app else {}
        if self.choose((True, False)) and requests["cpu"] != "500m":
            labels[QOS] = "LSR"
            annotations |= {SPEC: spec} if (spec := self.choose(BINDING)) else {}
        if self.choose((True, False)):
            requests["memory"] = "3Gi"
        return requests, {"labels": labels, "annotations": annotations}

    def new_pod(self) -> None:
        self.made += 1
        name, uid = f"p{self.made % 12}", f"uid-{self.made}"
        if ("Pod", name) in self.world.objects:
            return
        requests, meta = self.wish(self.choose(("a", "b", "")))
        if self.choose((True, False, False, False)):
            self.world.refuse.add(uid)
        self.world.put(
            pod(name, uid=uid, requests=requests, metadata=meta, priority=self.choose((0, 9100)))
        )

    def new_reservation(self) -> None:
        name = self.choose(("r0", "r1", "r2", "r3"))
        if ("Reservation", name) in self.world.objects:
            return
        self.made += 1
        requests, meta = self.wish("")
        it = reservation(
            name,
            app=self.choose(("a", "b")),
            template={"metadata": meta, "spec": pod_spec(requests)},
            allocateOnce=self.choose((True, False)),
            allocatePolicy=self.choose(("", "Aligned", "Restricted")),
            preAllocation=self.choose((True, False, False, False, False)),
            ttl=self.choose(("0s", "20s")),
        )
        it["metadata"]["uid"] = f"uid-{self.made}"
        self.world.put(it)

    def goes(self) -> None:
        kind = self.choose(("Pod", "Pod", "Pod", "Reservation"))
        names = sorted(name for k, name in self.world.objects if k == kind)
        if names:
            self.world.delete(kind, self.choose(names))

    def devices_change(self) -> None:
        self.world.put(self.devices(self.choose(("n0", "n1")), self.choose((-1, -1, 0, 2))))

    def topology_changes(self) -> None:
        name = self.choose(("n0", "n1"))
        if ("NodeResourceTopology", name) in self.world.objects:
            self.world.delete("NodeResourceTopology", name)
        else:
            self.world.put(topology(name, cpus=8, memory=8))

    def has(self, kind: str, name: str) -> Counter[tuple[Any, ...]]:
        """What is written on an object; last in each key is what it is an amount of."""
        found: Counter[tuple[Any, ...]] = Counter()
        text = (self.world.objects[kind, name]["metadata"].get("annotations") or {}).get(ALLOCATED)
        for of, devices in (msgspec.json.decode(text) if text else {}).items():
            for each in devices:
                for line, value in each["resources"].items():
                    found[of, each["minor"], line] += amount(line, value)
                for function in each.get("extension", {}).get("vfs", ()):
                    found[each["minor"], function["busID"], "function"] += 1
        by_zone = zones(self.world, name, kind)
        for zone, amounts in by_zone.items():
            for resource, value in amounts.items():
                found[zone, resource] += amount(resource, value)
        for cpu in cpus(self.world, name, kind):
            found[cpu, "own"] += 1
            found[cpu // 4, "cpu"] += 0 if by_zone else 1000
        return found

    def check(self) -> None:
        given: dict[str, Counter[tuple[Any, ...]]] = {"n0": Counter(), "n1": Counter()}
        taken: dict[str, Counter[tuple[Any, ...]]] = {}
        for (kind, name), raw in self.world.objects.items():
            if kind == "Pod" and raw["spec"].get("nodeName"):
                has = self.has(kind, name)
                given[raw["spec"]["nodeName"]].update(has)
                text = (raw["metadata"].get("annotations") or {}).get(RESERVATION_ALLOCATED)
                if text:
                    taken.setdefault(msgspec.json.decode(text)["uid"], Counter()).update(has)
        for (kind, name), raw in self.world.objects.items():
            if kind == "Reservation" and self.world.phase(name) == "Available":
                left = self.has(kind, name)
                left.subtract(taken.get(raw["metadata"]["uid"], Counter()))
                given[self.world.status(name)["nodeName"]].update(+left)
        for where, sums in given.items():
            for key, value in sums.items():
                assert value <= MOST[key[-1]], f"{where}: {key} is given twice: {value}"


def test_nothing_is_given_twice_in_many_lives() -> None:
    for seed in range(examples(6).max_examples):
        MixedLife(seeded(seed)).live(30)
