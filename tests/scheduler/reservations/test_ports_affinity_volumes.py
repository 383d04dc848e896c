"""Ports, affinity, spread and volumes of reservations, for owners and for everyone else."""

from typing import Any

import pytest

from harness.objects import node, pod, reservation
from harness.world import World
from holdfast.scheduler.reservations.reserved_ports import ReservedPorts

Raw = dict[str, Any]
HOST = "kubernetes.io/hostname"
NO_FREE_PORTS = "1 node(s) didn't have free ports for the requested pod ports"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
TAINT = {"key": "team", "value": "b", "effect": "NoSchedule"}


def anti_affinity(app: str) -> Raw:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def affinity(app: str) -> Raw:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(app: str) -> list[Raw]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": HOST,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }
    ]


class TestPorts:
    def test_owners_take_different_ports_of_one_reservation(self) -> None:
        world = World(node("n1"))
        world.put(reservation("r", cpu="4", allocateOnce=False, pod={"ports": [7777, 8888, 9999]}))
        world.put(pod("p1", app="a", ports=[7777]), pod("p2", app="a", ports=[8888]))
        assert [world.reservation_of("p1"), world.reservation_of("p2")] == ["r", "r"]
        world.put(pod("p3", app="a", ports=[7777]))
        assert world.node_of("p3") == ""

    def test_owners_take_ports_of_two_reservations(self) -> None:
        world = World(node("n1"))
        world.put(reservation("ra", cpu="1", pod={"ports": [7777]}))
        world.put(reservation("rb", cpu="1", pod={"ports": [8888]}))
        world.put(pod("p1", app="a", cpu="1", ports=[7777]))
        world.put(pod("p2", app="a", cpu="1", ports=[8888]))
        assert [world.node_of("p1"), world.node_of("p2")] == ["n1", "n1"]
        assert {world.reservation_of("p1"), world.reservation_of("p2")} == {"ra", "rb"}

    def test_reserved_ports_are_closed_to_others(self) -> None:
        world = World(node("n1"), reservation("r", pod={"ports": [7777, 8888, 9999]}))
        world.put(pod("stranger", ports=[7777]))
        assert NO_FREE_PORTS in world.message("stranger")
        world.put(pod("owner", app="a", ports=[6666]))
        assert world.node_of("owner") == "n1"

    @pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside an Available one"])
    @pytest.mark.parametrize("restarts", [False, True])
    def test_the_port_of_a_waiting_reservation_is_closed_until_it_is_available(
        self, restarts: bool, beside: bool
    ) -> None:
        world = World(node("n1", memory="8G")).put(pod("tenant", requests={"memory": "6G"}))
        if beside:
            world.put(reservation("other", cpu="1"))
        world.put(
            reservation("r", requests={"memory": "4G"}, preAllocation=True, pod={"ports": [7777]})
        )
        assert world.phase("r") == "Waiting"
        world.put(pod("owner", app="a", ports=[7777]))
        if restarts:
            world.restart()
            world.settle()
        assert NO_FREE_PORTS in world.message("owner")
        world.delete("Pod", "tenant").wait(15)
        assert world.reservation_of("owner") == ("other" if beside else "r")

    @pytest.mark.parametrize(
        ("closed", "opened"),
        [
            ({"spec__unschedulable": True}, {"spec__unschedulable": False}),
            ({"spec__taints": [TAINT]}, {"spec__taints": []}),
        ],
        ids=["unschedulable", "tainted"],
    )
    def test_the_port_of_a_reservation_that_is_closed_to_its_owners(
        self, closed: Raw, opened: Raw
    ) -> None:
        world = World(node("n1"), reservation("r", pod={"ports": [7777]}))
        world.edit("Reservation", "r", **closed)
        world.put(pod("owner", app="a", ports=[7777]))
        assert NO_FREE_PORTS in world.message("owner")
        world.edit("Reservation", "r", **opened).wait(15)
        assert world.reservation_of("owner") == "r"

    def test_an_owner_that_tolerates_the_taint_of_a_reservation_uses_its_port(self) -> None:
        world = World(node("n1"), reservation("r", taints=[TAINT], pod={"ports": [7777]}))
        world.put(pod("owner", app="a", ports=[7777], tolerations=[{"operator": "Exists"}]))
        assert world.reservation_of("owner") == "r"

    def test_the_port_of_a_reservation_that_the_affinity_of_its_owner_excludes(self) -> None:
        world = World(node("n1"), reservation("one", pod={"ports": [7777]}), reservation("two"))
        other = {AFFINITY: '{"name": "two"}'}
        world.put(pod("owner", app="a", ports=[7777], annotations=other))
        assert world.node_of("owner") == ""
        world.delete("Reservation", "one").wait(15)
        assert world.reservation_of("owner") == "two"

    def test_a_rolled_back_transaction_leaves_reserved_ports_as_they_were(self) -> None:
        world = World(node("n1"), reservation("r", pod={"ports": [7777]}))
        world.put(pod("owner", app="a", cpu="17", ports=[7777]))
        cluster = world.scheduler.cluster
        (owner,) = cluster.pods.values()
        reserved = ReservedPorts(cluster.reservations, owner.cls)
        info = cluster.reservations.get("r")
        assert info is not None and info.pod is not None and reserved.on(0) == 1
        cluster.epoch.reservations.add(info.uid)
        with cluster.ledger.transaction():
            cluster.ledger.release(info.pod)
            assert (reserved.on(0), list(reserved.everywhere())) == (0, [])
        assert (reserved.on(0), list(reserved.everywhere())) == (1, [(0, 1)])

    def test_an_owner_leaves_the_port_of_a_used_up_reservation_until_it_has_succeeded(self) -> None:
        world = World(node("n1"), reservation("r", cpu="4", pod={"ports": [7777]}))
        world.put(pod("first", app="a", cpu="4"), pod("second", app="a", ports=[7777]))
        assert world.reservation_of("first") == "r"
        world.wait(15)
        assert (world.phase("r"), world.node_of("second")) == ("Succeeded", "n1")
        assert world.reservation_of("second") == ""


class TestInterPodAffinity:
    def test_owner_with_the_same_anti_affinity(self) -> None:
        world = World(node("n1"), node("n2"))
        rules: Raw = {"affinity": anti_affinity("a")}
        world.put(reservation("r", cpu="4", pod=rules))
        world.put(pod("owner", app="a", cpu="4", **rules))
        assert world.reservation_of("owner") == "r"

    def test_several_owners_with_the_same_anti_affinity(self) -> None:
        world = World(node("n1"), node("n2"), node("n3"))
        rules: Raw = {"affinity": anti_affinity("a")}
        world.put(*(reservation(f"r{i}", cpu="4", pod=rules) for i in (1, 2)))
        assert len({world.status(f"r{i}")["nodeName"] for i in (1, 2)}) == 2
        world.put(*(pod(f"p{i}", app="a", cpu="4", **rules) for i in (1, 2)))
        assert {world.reservation_of("p1"), world.reservation_of("p2")} == {"r1", "r2"}

    def test_others_see_the_reserve_pod_as_a_pod(self) -> None:
        world = World(node("n1"), reservation("r", cpu="4", pod={"affinity": anti_affinity("b")}))
        world.put(pod("kept-off", app="b"))
        assert "1 node(s) didn't satisfy existing pods anti-affinity rules" in world.message("kept-off")
        world.put(pod("away", app="c", affinity=anti_affinity("a")))
        assert "1 node(s) didn't match pod anti-affinity rules" in world.message("away")

    def test_affinity(self) -> None:
        world = World(node("n1"), node("n2"), pod("base", app="base", nodeName="n2"))
        rules: Raw = {"affinity": affinity("base")}
        world.put(reservation("r", cpu="8", allocateOnce=False, pod=rules))
        assert world.status("r")["nodeName"] == "n2"
        world.put(*(pod(f"p{i}", app="a", cpu="4", **rules) for i in (1, 2)))
        assert [world.reservation_of("p1"), world.reservation_of("p2")] == ["r", "r"]
        world.put(pod("stranger", app="c", cpu="9", **rules))
        assert world.node_of("stranger") == ""

    def test_affinity_to_itself_counts_the_reserve_pod_for_others_only(self) -> None:
        world = World(node("n1"), node("n2"))
        rules: Raw = {"affinity": affinity("a")}
        world.put(reservation("r", cpu="4", pod={**rules, "nodeName": "n2"}))
        world.put(pod("stranger", app="c", affinity=affinity("a")))
        assert world.node_of("stranger") == "n2"
        world.put(pod("owner", app="a", cpu="4", **rules))
        assert world.reservation_of("owner") == "r"


def test_owners_spread_like_their_reservations() -> None:
    world = World(*(node(f"n{i}") for i in (1, 2, 3)))
    rules: Raw = {"topologySpreadConstraints": spread("a")}
    world.put(*(reservation(f"r{i}", cpu="4", pod=rules) for i in (1, 2, 3)))
    assert len({world.status(f"r{i}")["nodeName"] for i in (1, 2, 3)}) == 3
    world.put(*(pod(f"p{i}", app="a", cpu="4", **rules) for i in (1, 2, 3)))
    assert {world.reservation_of(f"p{i}") for i in (1, 2, 3)} == {"r1", "r2", "r3"}


def claim(name: str, mode: str = "ReadWriteOncePod", volume: str = "") -> Raw:
    bound: Raw = {"volumeName": volume} if volume else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"claim-{name}",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"} if volume else {},
        },
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, **bound},
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(name: str, for_claim: str) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": f"volume-{name}"},
        "spec": {
            "accessModes": ["ReadWriteOncePod"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": for_claim, "uid": f"claim-{for_claim}"},
            "csi": {"driver": "disk.example.com", "volumeHandle": name},
        },
        "status": {"phase": "Bound"},
    }


def csi_node(name: str, count: int) -> Raw:
    driver = {"name": "disk.example.com", "nodeID": name, "allocatable": {"count": count}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "uid": f"csinode-{name}"},
        "spec": {"drivers": [driver]},
    }


def with_claim(name: str) -> Raw:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


DISK: Raw = {"volumes": [{"name": "disk", "gcePersistentDisk": {"pdName": "disk"}}]}
READ_ONLY_DISK: Raw = {
    "volumes": [{"name": "disk", "gcePersistentDisk": {"pdName": "disk", "readOnly": True}}]
}


class TestVolumes:
    def test_claim_for_one_pod_is_kept_for_the_owner(self) -> None:
        world = World(node("n1"), volume("v", "data"), claim("data", volume="v"))
        world.put(reservation("r", cpu="4", pod=with_claim("data")))
        assert world.phase("r") == "Available"
        world.put(pod("stranger", app="b", **with_claim("data")))
        assert "ReadWriteOncePod access mode already in-use by another pod" in world.message("stranger")
        world.put(pod("owner", app="a", cpu="4", **with_claim("data")))
        assert world.reservation_of("owner") == "r"

    def test_a_disk_is_kept_for_owners_one_after_the_other(self) -> None:
        world = World(node("n1"), node("n2", cpu="1"))
        world.put(reservation("r", cpu="4", pod=DISK, allocateOnce=False))
        world.put(pod("stranger", app="b", cpu="2", **DISK))
        assert "1 node(s) had no available disk" in world.message("stranger")
        world.put(pod("owner", app="a", cpu="2", **DISK))
        assert world.reservation_of("owner") == "r"
        world.put(pod("second", app="a", cpu="2", **DISK))
        assert "1 node(s) had no available disk" in world.message("second")
        world.delete("Pod", "owner")
        assert world.reservation_of("second") == "r"
        assert world.node_of("stranger") == ""

    def test_a_disk_that_another_pod_uses_is_closed_to_owners(self) -> None:
        world = World(node("n1"), pod("first", app="b", nodeName="n1", **READ_ONLY_DISK))
        world.put(reservation("r", cpu="4", pod=READ_ONLY_DISK))
        assert world.phase("r") == "Available"
        world.put(pod("owner", app="a", cpu="4", **DISK))
        assert "1 node(s) had no available disk" in world.message("owner")

    def test_a_disk_of_two_reservations_is_free_for_an_owner_of_both_alone(self) -> None:
        world = World(node("n1"))
        for name, app in (("r", "a"), ("s", "b")):
            world.put(reservation(name, cpu="4", app=app, pod=READ_ONLY_DISK))
        world.put(pod("owner", app="a", cpu="4", **DISK))
        assert "1 node(s) had no available disk" in world.message("owner")
        world.delete("Reservation", "s")
        assert world.reservation_of("owner") == "r"

    def test_reserved_volumes_count_against_the_limit(self) -> None:
        world = World(node("n1"), csi_node("n1", 1))
        world.put(volume("v", "data"), claim("data", volume="v"))
        world.put(volume("w", "other"), claim("other", volume="w"))
        world.put(reservation("r", cpu="4", pod=with_claim("data")))
        world.put(pod("stranger", app="b", **with_claim("other")))
        assert "1 node(s) exceed max volume count" in world.message("stranger")
        world.put(pod("owner", app="a", cpu="4", **with_claim("data")))
        assert world.reservation_of("owner") == "r"
