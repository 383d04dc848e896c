"""Whatever happens, in whatever order: no CPU is given twice, and no NUMA node is oversold.

`LittleWorld` compares what is kept with a recount after every event; here what is written on pods and
reservations is added up by itself, with refused writes and restarts mixed in.
"""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from harness.choices import Chooser, choosing, seeded
from harness.numa_objects import NUMA_SPEC, cpus, lsr, plain, reserved, topology, zones
from harness.objects import Raw, node
from harness.strategies import examples
from harness.world import ALLOCATED, World
from holdfast.api.quantity import amount

SPECS = (
    "",
    '{"requiredCPUBindPolicy": "FullPCPUs"}',
    '{"requiredCPUBindPolicy": "SpreadByPCPUs"}',
    '{"preferredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"}',
)
POLICIES = (
    "",
    '{"numaTopologyPolicy": "SingleNUMANode"}',
    '{"numaTopologyPolicy": "Restricted", "singleNUMANodeExclusive": "Preferred"}',
    '{"numaTopologyPolicy": "BestEffort"}',
)
APPS = ("a", "b", "")
PER_NUMA = {"cpu": 4000, "memory": 8 * 2**30}


class NumaLife:
    def __init__(self, choose: Chooser) -> None:
        self.choose = choose
        self.world = World(node("n0", cpu="8"), node("n1", cpu="8"), self.nrt("n0"), self.nrt("n1"))
        self.made = 0

    def nrt(self, name: str) -> Raw:
        return topology(name, cpus=8, memory=8)

    def live(self, steps: int) -> None:
        actions = (
            self.new_pod,
            self.new_pod,
            self.new_pod,
            self.new_reservation,
            self.new_reservation,
            self.goes,
            self.goes,
            self.topology_changes,
            self.world.restart,
        )
        for _ in range(steps):
            self.choose(actions)()
            self.world.settle()
            self.check()

    def new_pod(self) -> None:
        self.made += 1
        name = f"p{self.made % 9}"
        if ("Pod", name) in self.world.objects:
            return
        count, numa = self.choose(("1", "2", "3", "4")), self.choose(POLICIES)
        if self.choose((True, True, False)):
            it = lsr(name, count, self.choose(APPS), self.choose(SPECS), numa, uid=f"uid-{self.made}")
        else:
            it = plain(name, self.choose(("500m", count)), "2Gi", numa, uid=f"uid-{self.made}")
        if self.choose((True, False, False, False)):
            self.world.refuse.add(f"uid-{self.made}")
        self.world.put(it)

    def new_reservation(self) -> None:
        name = self.choose(("r0", "r1", "r2"))
        if ("Reservation", name) in self.world.objects:
            return
        self.made += 1
        policy = self.choose(POLICIES)
        it = reserved(
            name,
            self.choose(("2", "3", "4")),
            self.choose(("a", "b")),
            annotations={NUMA_SPEC: policy} if policy else {},
            allocateOnce=self.choose((True, False)),
            allocatePolicy=self.choose(("", "Aligned", "Restricted")),
            preAllocation=self.choose((True, False, False, False)),
        )
        template = it["spec"]["template"]
        if self.choose((True, False)):
            template["spec"]["containers"][0]["resources"]["requests"]["memory"] = "3Gi"
        if self.choose((True, False, False)):
            template["metadata"]["labels"] = {}  # an amount of cpu, and no CPUs of their own
        it["metadata"]["uid"] = f"uid-{self.made}"
        if self.choose((True, False, False, False)):
            self.world.refuse.add(f"uid-{self.made}")
        self.world.put(it)

    def goes(self) -> None:
        kind = self.choose(("Pod", "Pod", "Reservation"))
        names = sorted(name for k, name in self.world.objects if k == kind)
        if names:
            self.world.delete(kind, self.choose(names))

    def topology_changes(self) -> None:
        name = self.choose(("n0", "n1"))
        if ("NodeResourceTopology", name) in self.world.objects:
            self.world.delete("NodeResourceTopology", name)
        else:
            self.world.put(self.nrt(name))

    def amounts(self, name: str, kind: str = "Pod") -> Counter[tuple[int, str]]:
        """What an object has, by NUMA node and resource; of CPUs of its own that is their number."""
        found: Counter[tuple[int, str]] = Counter()
        for numa, resources in zones(self.world, name, kind).items():
            for resource, quantity in resources.items():
                found[numa, resource] += amount(resource, quantity)
        if not found:
            for cpu in cpus(self.world, name, kind):
                found[cpu // 4, "cpu"] += 1000
        return found

    def check(self) -> None:
        world = self.world
        given: dict[str, Counter[int]] = {}
        sums: dict[str, Counter[tuple[int, str]]] = {}
        owned: dict[str, set[int]] = {}
        drawn: dict[str, Counter[tuple[int, str]]] = {}
        for (kind, name), raw in world.objects.items():
            where = raw["spec"].get("nodeName") if kind == "Pod" else None
            if not where:
                continue
            own = cpus(world, name)
            given.setdefault(where, Counter()).update(own)
            sums.setdefault(where, Counter()).update(self.amounts(name))
            text = (raw["metadata"].get("annotations") or {}).get(ALLOCATED)
            if text:
                uid = msgspec.json.decode(text)["uid"]
                owned.setdefault(uid, set()).update(own)
                drawn.setdefault(uid, Counter()).update(self.amounts(name))
        for (kind, name), raw in world.objects.items():
            if kind == "Reservation" and world.phase(name) == "Available":
                uid, where = raw["metadata"]["uid"], world.status(name)["nodeName"]
                left = cpus(world, name, "Reservation") - owned.get(uid, set())
                given.setdefault(where, Counter()).update(left)
                rest = self.amounts(name, "Reservation")
                rest.subtract(drawn.get(uid, Counter()))
                sums.setdefault(where, Counter()).update(+rest)
        for where, count in given.items():
            twice = [cpu for cpu, times in count.items() if times > 1]
            assert not twice, f"{where}: CPUs {twice} are given twice"
        for where, amounts in sums.items():
            for (numa, resource), value in amounts.items():
                said = f"{where}: {resource} of NUMA node {numa} is oversold: {value}"
                assert value <= PER_NUMA[resource], said
        self.check_what_is_free(given, sums)

    def check_what_is_free(
        self, given: dict[str, Counter[int]], sums: dict[str, Counter[tuple[int, str]]]
    ) -> None:
        """Where everybody says what it has, the rest is free: neither more nor less."""
        cluster = self.world.scheduler.cluster
        manager = cluster.managers.cpus
        if any(reservation.waiting for reservation in cluster.reservations.known.values()):
            return
        for kind, where in self.world.objects:
            row = cluster.nodes.row(where) if kind == "NodeResourceTopology" else None
            if row is None or manager.tentative.keys() & manager.there.get(row, {}):
                continue
            free, taken = manager.free(row), sums.get(where, Counter())
            for numa, amounts in free.zones.items():
                for resource, value in amounts.items():
                    should = PER_NUMA[resource] - taken[numa, resource]
                    said = f"{where}: of {resource} of NUMA node {numa} {should} should be free"
                    assert value == should, said
            assert not free.cpus & given.get(where, Counter()).keys()


@examples(12)
@given(st.data())
def test_no_cpu_is_given_twice(data: st.DataObject) -> None:
    NumaLife(choosing(data.draw)).live(15)


def test_no_cpu_is_given_twice_in_many_lives() -> None:
    for seed in range(examples(12).max_examples):
        NumaLife(seeded(seed)).live(30)
