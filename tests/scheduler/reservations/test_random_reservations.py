"""Whatever happens, in whatever order: nothing is oversold, nothing leaks, every status is right.

`LittleWorld` compares the state with a recount, and what is claimed with what nodes offer, after every
event; here things happen at random, with refused writes and restarts among them.
"""

from hypothesis import given
from hypothesis import strategies as st

from harness.choices import Chooser, choosing, seeded
from harness.objects import Raw, node, pod, reservation
from harness.random_events import RandomLife
from harness.strategies import examples
from harness.world import ALLOCATED, World

APPS = ("a", "b", "")
CPUS = ("1", "2", "3", "5")
OWNERS = {
    "a": [{"labelSelector": {"matchLabels": {"app": "a"}}}],
    "b": [{"labelSelector": {"matchLabels": {"app": "b"}}}],
    "p1": [{"object": {"name": "p1", "namespace": "default"}}],
    "all": [{"labelSelector": {}}],
}
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
DAEMON = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]


class Life(RandomLife):
    def __init__(self, choose: Chooser) -> None:
        super().__init__(choose)
        self.world = World(node("n0", cpu="8"), node("n1", cpu="6"))
        self.world.graceful = choose((True, False))

    def live(self, steps: int) -> None:
        for _ in range(steps):
            happen = self.choose(
                (
                    self.new_pod,
                    self.new_pod,
                    self.new_pod,
                    self.new_reservation,
                    self.new_reservation,
                    self.pod_goes,
                    self.pod_goes,
                    self.reservation_goes,
                    self.reservation_changes,
                    self.node_comes_or_goes,
                    self.time_passes,
                    self.restart,
                )
            )
            happen()
            self.check_statuses()
            self.check_rooms()
            self.check_waiting()

    def new_pod(self) -> None:
        self.made += 1
        requests = {"cpu": self.choose(CPUS)} if self.choose((True, True, True, False)) else {}
        if self.choose((True, False)):
            requests["memory"] = self.choose(("1Gi", "4Gi"))
        spec: Raw = {"requests": requests, "priority": self.choose((0, 0, 5, 10))}
        if self.choose((True, False, False, False)):
            spec["ports"] = [self.choose((80, 81))]
        meta: dict[str, object] = {}
        if self.choose((True, False, False, False)):
            meta["ownerReferences"] = DAEMON
        if self.choose((True, False, False, False)):
            meta["annotations"] = {AFFINITY: self.choose(("{}", '{"name": "r1"}'))}
        it = pod(
            f"p{self.made % 7}", app=self.choose(APPS), uid=f"uid-{self.made}", metadata=meta, **spec
        )
        if self.choose((True, False, False, False, False)):
            self.world.refuse.add(f"uid-{self.made}")
        if ("Pod", it["metadata"]["name"]) not in self.world.objects:
            self.world.put(it)

    def new_reservation(self) -> None:
        name = self.choose(("r0", "r1", "r2", "r3"))
        if ("Reservation", name) in self.world.objects:
            return
        self.made += 1
        requests = {"cpu": self.choose(CPUS)}
        if self.choose((True, False)):
            requests["memory"] = "2Gi"
        if self.choose((True, False, False, False)):
            requests["pods"] = self.choose(("1", "2"))
        owners = OWNERS[self.choose(tuple(OWNERS))]
        it = reservation(
            name,
            requests=requests,
            owners=owners,
            allocateOnce=self.choose((True, False)),
            allocatePolicy=self.choose(("", "Aligned", "Restricted")),
            preAllocation=self.choose((True, False, False)),
            ttl=self.choose(("0", "30s", "1h")),
            pod={"ports": [80]} if self.choose((True, False, False)) else {},
        )
        it["metadata"]["uid"] = f"uid-{self.made}"
        if self.choose((True, False, False, False, False)):
            self.world.refuse.add(f"uid-{self.made}")
        self.world.put(it)

    def reservation_changes(self) -> None:
        name = self.some("Reservation")
        if name is None or name.startswith("preempted-for-"):
            return
        if self.choose((True, False)):
            self.world.edit("Reservation", name, spec__unschedulable=self.choose((True, False)))
        else:
            template = reservation(name, cpu=self.choose(CPUS))["spec"]["template"]
            self.world.edit("Reservation", name, spec__template=template)

    def restart(self) -> None:
        """Pods may be tried sooner after it; what was promised stays promised."""
        world = self.world
        names = [name for kind, name in world.objects if kind == "Reservation"]
        before = {name: world.status(name) for name in names}
        world.restart()
        world.settle()
        for name, was in before.items():
            if was.get("phase") not in ("Available", "Waiting"):
                continue
            if ("Reservation", name) not in world.objects:
                assert name.startswith("preempted-for-")  # its pod found another place meanwhile
                continue
            now = world.status(name)
            assert (now["nodeName"], now["allocatable"]) == (was["nodeName"], was["allocatable"])
            owners = [owner["uid"] for owner in now.get("currentOwners", ())]
            assert {owner["uid"] for owner in was.get("currentOwners", ())} <= set(owners)
            assert now["phase"] != "Failed"

    def check_statuses(self) -> None:
        """Once it is quiet each reservation's status is what its owners make it."""
        world = self.world
        for (kind, name), raw in world.objects.items():
            if kind != "Reservation" or world.phase(name) not in ("Available", "Waiting"):
                continue
            uid = raw["metadata"]["uid"]
            owners = sorted(
                each["metadata"]["uid"]
                for (k, _), each in world.objects.items()
                if k == "Pod"
                and each["spec"].get("nodeName") == world.status(name)["nodeName"]
                and f'"{uid}"' in (each["metadata"].get("annotations") or {}).get(ALLOCATED, "")
            )
            assert [owner["uid"] for owner in world.status(name).get("currentOwners", ())] == owners

    def check_rooms(self) -> None:
        """Once it is quiet preempted room is held for pods that wait for it, and for no others."""
        objects = self.world.objects
        waiting = {
            raw["metadata"]["uid"]: raw["status"].get("nominatedNodeName", "")
            for (kind, _), raw in objects.items()
            if kind == "Pod" and not raw["spec"].get("nodeName")
        }
        for (kind, name), raw in objects.items():
            if kind != "Reservation" or not name.startswith("preempted-for-"):
                continue
            if self.world.phase(name) not in ("Succeeded", "Failed"):
                uid = raw["metadata"]["labels"]["holdfast.io/preemptor-uid"]
                assert waiting.get(uid) == raw["spec"]["template"]["spec"]["nodeName"]

    def check_waiting(self) -> None:
        """Once it is quiet nobody waits for room that is there."""
        reservations = self.world.scheduler.cluster.reservations
        for info in reservations.known.values():
            assert not info.waiting or reservations.awaits(info) or reservations.lacking(info)


@examples(40)
@given(st.data())
def test_nothing_is_oversold_and_nothing_leaks(data: st.DataObject) -> None:
    Life(choosing(data.draw)).live(25)


def test_nothing_is_oversold_and_nothing_leaks_in_many_lives() -> None:
    for seed in range(examples(60).max_examples):
        Life(seeded(seed)).live(40)
