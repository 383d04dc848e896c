"""Which devices and CPUs pods and reservations have does not change by what is only tried.

Pods that others bound without saying what they have, and virtual reservations, have what was chosen for
them here; whoever is taken off a node in a dry run and put back has the same as before.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.choices import Chooser, choosing, seeded
from harness.device_objects import device, gpu
from harness.numa_objects import QOS, topology
from harness.objects import Raw, node, pod, reservation
from harness.strategies import examples
from harness.world import World
from holdfast.scheduler.cluster.records import PodRecord

GPU = "koordinator.sh/gpu"
TEMPLATE = "scheduling.koordinator.sh/reservation-template"
NODES = ("n0", "n1")


def gpus(name: str, sick: int = -1) -> Raw:
    return device(name, *(gpu(i, health=i != sick, numa=i // 2) for i in range(4)))


def cluster() -> World:
    it = World(provisioner="external")  # so that virtual reservations stay virtual
    it.shrinking = True
    for name in NODES:
        it.put(node(name, memory="64Gi"), gpus(name), topology(name))
    return it


def asking(name: str, requests: dict[str, str], size: dict[str, str], **more: Any) -> Raw:
    """A pod that is scheduled together with a reservation of its own."""
    template = {
        "owners": [{"labelSelector": {"matchLabels": {"app": name}}}],
        "recommendedSize": {**requests, **size},
    }
    meta = {"labels": {QOS: "LSR", "app": name}, "annotations": {TEMPLATE: json.dumps(template)}}
    return pod(name, requests=requests, metadata=meta, **more)


def choices(it: World) -> dict[str, Any]:
    """What everybody has, and what of it is free and left."""
    managers = it.scheduler.cluster.managers
    found: dict[str, Any] = {}
    for manager in (managers.cpus, managers.devices):
        for there in manager.there.values():
            for uid in there:
                found[f"{type(manager).__name__} {uid}"] = manager.has(uid)
    for kind, table in managers.devices.tables.items():
        found[f"free {kind}"] = table.free.tolist()
    for row in range(len(NODES)):
        found[f"free {row}"] = managers.cpus.free(row)
    assert managers.problems() == []
    return found


class Tries:
    """Takes pods and reservations off their nodes and puts them, and others, there again."""

    def __init__(self, it: World, choose: Chooser) -> None:
        self.cluster, self.choose = it.scheduler.cluster, choose
        self.gone: dict[str, tuple[PodRecord, int, Any]] = {}

    def steps(self, count: int, depth: int = 0) -> None:
        for _ in range(count):
            match self.choose(("leave", "leave", "come back", "come back", "newcomer")):
                case "leave":
                    self.leave()
                case "come back":
                    self.come_back()
                case _:
                    self.newcomer()
            if depth < 2 and self.choose((False, False, False, True)):
                gone = dict(self.gone)
                with self.cluster.ledger.transaction() as transaction:
                    self.steps(self.choose((1, 2, 4)), depth + 1)
                    if self.choose((False, True)):
                        transaction.commit()
                        gone = self.gone
                self.gone = gone

    def leave(self) -> None:
        ledger = self.cluster.ledger
        there = {uid: each for row in ledger.pods.values() for uid, each in row.items()}
        there |= {
            entry.pod.uid: entry.pod
            for row in range(len(NODES))
            for entry in ledger.reservations.on(row)
        }
        if not there:
            return
        leaving = there[self.choose(sorted(there))]
        row = leaving.row
        if leaving.reservation is None:
            ledger.remove(leaving)
            self.gone[leaving.uid] = leaving, row, None
        else:
            entry = ledger.reservations.get(leaving.uid)
            assert entry is not None
            amounts = entry.amounts
            ledger.release(leaving)
            self.gone[leaving.uid] = leaving, row, amounts

    def come_back(self) -> None:
        if not self.gone:
            return
        uid = self.choose(sorted(self.gone))
        back, row, amounts = self.gone.pop(uid)
        if back.reservation is None:
            self.cluster.ledger.place(back, row)
        else:
            self.cluster.ledger.reserve(back, row, amounts)

    def newcomer(self) -> None:
        pending = [uid for uid, each in self.cluster.pods.items() if each.row < 0]
        pending = sorted(uid for uid in pending if uid not in self.gone)
        if pending:
            row = self.cluster.nodes.row(self.choose(NODES))
            assert row is not None
            self.cluster.ledger.place(self.cluster.pods[self.choose(pending)], row)


def random_cluster(choose: Chooser) -> World:
    it = cluster()
    for number in range(choose((4, 8, 12))):
        share = choose(("20", "40", "50", "70", "100", "200"))
        name, requests = f"p{number}", {"cpu": choose(("1", "2")), GPU: share}
        match choose(("bound", "bound", "scheduled", "asking", "reserved")):
            case "bound":
                labels = {QOS: "LSR"} if choose((False, True)) else {}
                bound = pod(
                    name, requests=requests, nodeName=choose(NODES), metadata={"labels": labels}
                )
                it.put(bound)
            case "scheduled":
                it.put(pod(name, app="a", requests=requests))
            case "asking":
                it.put(asking(name, requests, {"cpu": "4"}))
            case _:
                it.put(reservation(f"r{number}", requests=requests, allocateOnce=False))
        if choose((False, False, False, True)):
            gone = choose(sorted(name for kind, name in it.objects if kind == "Pod") or [""])
            if gone:
                it.delete("Pod", gone)
    it.put(pod("waits-0", requests={"cpu": "1", GPU: "30"}, nodeSelector={"no": "such"}))
    it.put(pod("waits-1", requests={"cpu": "1", GPU: "200"}, nodeSelector={"no": "such"}))
    return it


def check_that_nothing_changes(choose: Chooser) -> None:
    it = random_cluster(choose)
    before = choices(it)
    with it.scheduler.cluster.ledger.transaction():
        Tries(it, choose).steps(12)
    assert choices(it) == before


@examples(30)
@given(st.data())
def test_what_is_undone_changes_nothing(data: st.DataObject) -> None:
    check_that_nothing_changes(choosing(data.draw))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_undone_changes_nothing_in_many_clusters(seed: int) -> None:
    check_that_nothing_changes(seeded(seed))


@pytest.mark.parametrize("seed", range(30))
def test_those_who_leave_and_come_back_have_the_same(seed: int) -> None:
    """As victims do that are reprieved, in whatever order they come back."""
    choose = seeded(seed)
    it = random_cluster(choose)
    before, tries = choices(it), Tries(it, choose)
    with it.scheduler.cluster.ledger.transaction():
        for _ in range(6):
            tries.leave()
        while tries.gone:
            tries.come_back()
        assert choices(it) == before


def test_a_pod_that_is_relabelled_has_the_same() -> None:
    it = cluster()
    for number in range(3):
        it.put(pod(f"p{number}", requests={"cpu": "1", GPU: "100"}, nodeName="n0"))
    it.delete("Pod", "p0")
    before = choices(it)
    it.edit("Pod", "p2", metadata__labels={"tier": "a"})
    assert choices(it) == before


ON_N0 = {"kubernetes.io/hostname": "n0"}


def virtual_devices(it: World) -> list[int]:
    (virtual,) = it.scheduler.cluster.virtuals.by_id.values()
    has = it.scheduler.cluster.managers.devices.has(virtual.reservation.uid)
    return [part.minor for part in has["gpu"]]


def test_a_virtual_reservation_has_the_same_when_another_device_of_its_node_changes() -> None:
    it = cluster()
    it.put(pod("first", requests={"cpu": "1", GPU: "100"}, nodeSelector=ON_N0))
    it.put(asking("asks", {"cpu": "2", GPU: "100"}, {}, nodeSelector=ON_N0))
    it.delete("Pod", "first")
    assert virtual_devices(it) == [1]
    it.put(gpus("n0", sick=3))
    assert virtual_devices(it) == [1]


def test_a_virtual_reservation_gets_another_device_for_one_that_is_sick() -> None:
    it = cluster()
    it.put(asking("asks", {"cpu": "2", GPU: "100"}, {GPU: "200"}, nodeSelector=ON_N0))
    assert virtual_devices(it) == [0, 1]
    it.put(gpus("n0", sick=1))
    assert virtual_devices(it) == [0, 2]
