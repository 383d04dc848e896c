"""What the proposal says of how reservations are scheduled, allocated, kept up to date and ended,
statement by statement, in the order it says it."""

import json
from typing import Any

import pytest

from harness.objects import Raw, node, pod, reservation
from harness.world import ALLOCATED, World
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.framework.config import API_VERSION, KIND
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Simulation
from holdfast.snapshot.manifests import load_text

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DAY = 24 * 3600.0


def apart(app: str) -> Raw:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOSTNAME}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def near(app: str) -> Raw:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOSTNAME}
    return {"affinity": {"podAffinity": {REQUIRED: [term]}}}


def spread(app: str) -> Raw:
    constraint = {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"topologySpreadConstraints": [constraint]}


def on_zone(zone: str) -> Raw:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: terms}}}


TAINT: Raw = {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}


class TestScheduleReservations:
    @pytest.mark.parametrize(
        ("wishes", "goes_to"),
        [
            pytest.param({"pod": {}, "cpu": "12"}, "roomy", id="NodeResources"),
            pytest.param({"pod": on_zone("z")}, "zoned", id="NodeAffinity"),
            pytest.param({"pod": near("base")}, "based", id="InterPodAffinity"),
            pytest.param(
                {"pod": {"tolerations": [{"key": "team"}], "nodeSelector": {HOSTNAME: "tainted"}}},
                "",
                id="TaintToleration: does not tolerate",
            ),
            pytest.param(
                {
                    "pod": {
                        "tolerations": [{"key": "team", "operator": "Exists"}],
                        "nodeSelector": {HOSTNAME: "tainted"},
                    }
                },
                "tainted",
                id="TaintToleration",
            ),
        ],
    )
    def test_it_is_processed_like_a_pod_by_every_plugin(self, wishes: Raw, goes_to: str) -> None:
        world = World(
            node("small", cpu="8"),
            node("roomy"),
            node("zoned", cpu="8", labels={"zone": "z"}),
            node("based", cpu="8"),
            node("tainted", cpu="8", **TAINT),
            pod("base", app="base", nodeName="based"),
        )
        world.put(reservation("r", **wishes))
        assert world.status("r").get("nodeName", "") == goes_to

    @pytest.mark.parametrize(
        "rule",
        [
            pytest.param(apart("a"), id="anti-affinity"),
            pytest.param(near("a"), id="affinity"),
            pytest.param(spread("a"), id="spread"),
        ],
    )
    def test_the_same_constraints_on_the_reservation_do_not_keep_its_owner_out(self, rule: Raw) -> None:
        world = World(node("n1"), node("n2"), reservation("r", cpu="4", pod=rule))
        world.put(pod("owner", app="a", cpu="4", **rule))
        assert world.reservation_of("owner") == "r"

    def test_pre_allocation_skips_the_filter_of_resources_and_waits(self) -> None:
        world = World(node("n1", cpu="4"), pod("busy", cpu="3"))
        world.put(reservation("r", cpu="4", preAllocation=True))
        assert (world.phase("r"), world.status("r")["nodeName"]) == ("Waiting", "n1")
        world.delete("Pod", "busy")
        assert world.phase("r") == "Available"

    def test_where_no_node_will_do_it_stays_pending_and_says_why(self) -> None:
        world = World(node("n1", cpu="1"), node("n2", cpu="8", **TAINT), reservation("r"))
        assert world.phase("r") == "Pending"
        assert world.condition("r", "Scheduled")["message"] == (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s)."
        )
        world.put(node("n3", cpu="8"))
        assert (world.phase("r"), world.status("r")["nodeName"]) == ("Available", "n3")

    def test_nobody_else_sees_the_reserve_pod(self) -> None:
        """Nothing runs for it, and what runs goes on."""
        world = World(node("n1", cpu="8"), pod("runs", cpu="4"), reservation("r", cpu="4"))
        assert [key for key in world.objects if key[0] == "Pod"] == [("Pod", "runs")]
        assert world.node_of("runs") == "n1"

    @pytest.mark.parametrize(
        ("wishes", "why"),
        [
            pytest.param({"cpu": "9"}, "Insufficient cpu", id="too large"),
            pytest.param({"pod": on_zone("z")}, "node affinity/selector", id="elsewhere by affinity"),
        ],
    )
    def test_a_node_it_names_is_checked_all_the_same(self, wishes: Raw, why: str) -> None:
        more: Raw = {"nodeName": "n1", **wishes.pop("pod", {})}
        world = World(node("n1", cpu="8"), node("n2"), reservation("r", pod=more, **wishes))
        assert world.phase("r") == "Pending"
        assert why in world.condition("r", "Scheduled")["message"]

    def test_only_one_of_the_same_reusable_reservations_goes_to_a_node(self) -> None:
        rooms = [reservation(name, cpu="2", allocateOnce=False) for name in ("r1", "r2")]
        world = World(node("n1"), *rooms)
        assert sorted(world.phase(name) for name in ("r1", "r2")) == ["Available", "Pending"]
        waits = next(name for name in ("r1", "r2") if world.phase(name) == "Pending")
        why = "node(s) only one same reusable reservation can be scheduled on a same node"
        assert why in world.condition(waits, "Scheduled")["message"]
        world.put(node("n2"))
        assert world.status(waits)["nodeName"] == "n2"


class TestAllocateReservedResources:
    def test_only_an_available_reservation_is_matched(self) -> None:
        """And only by a pod that matches its owners."""
        world = World(node("n1", cpu="8"), pod("busy", cpu="6"))
        world.put(reservation("r", cpu="4", preAllocation=True))
        world.put(pod("owner", app="a", cpu="2"), pod("other", app="b", cpu="2"))
        assert (world.phase("r"), world.reservation_of("owner"), world.reservation_of("other")) == (
            "Waiting",
            "",
            "",
        )
        world.delete("Pod", "busy").wait(11)
        assert world.reservation_of("owner") == "r"
        assert world.reservation_of("other") == ""

    @pytest.mark.parametrize("asked", ["2", "4", "6"])
    def test_what_is_reserved_first_and_the_rest_from_the_node(self, asked: str) -> None:
        world = World(node("n1", cpu="8"), reservation("r", cpu="4", allocateOnce=False))
        world.put(pod("owner", app="a", cpu=asked))
        assert (world.reservation_of("owner"), world.status("r")["allocated"]) == ("r", {"cpu": asked})
        left = 8 - max(4, int(asked))
        world.put(pod("fits", cpu=str(left)), pod("too-much", cpu="100m"))
        assert (world.node_of("fits"), world.node_of("too-much")) == ("n1", "")

    def test_what_remains_may_be_less_than_is_asked_for(self) -> None:
        """So that no fragment of a reservation is of no use."""
        world = World(node("n1", cpu="8"), reservation("r", cpu="4", allocateOnce=False))
        world.put(pod("p1", app="a", cpu="3")).put(pod("p2", app="a", cpu="3"))
        assert [world.reservation_of(name) for name in ("p1", "p2")] == ["r", "r"]

    def test_one_kind_of_resource_can_be_reserved_alone(self) -> None:
        world = World(node("n1", cpu="8", memory="8Gi"), reservation("r", cpu="4"))
        world.put(pod("owner", app="a", requests={"cpu": "4000m", "memory": "4Gi"}))
        assert world.reservation_of("owner") == "r"
        world.put(pod("other", requests={"cpu": "4", "memory": "4Gi"}))
        assert world.node_of("other") == "n1"

    def test_reserved_ports_are_open_to_owners_with_those_of_other_reservations_and_the_node(
        self,
    ) -> None:
        rooms = [reservation(f"r{port}", cpu="1", pod={"ports": [port]}) for port in (7777, 8888)]
        world = World(node("n1"), *rooms)
        world.put(pod("other", ports=[7777]), pod("owner", app="a", ports=[7777, 8888, 9999]))
        assert (world.node_of("other"), world.node_of("owner")) == ("", "n1")

    def test_owners_prefer_the_node_with_more_reserved_for_them(self) -> None:
        world = World(node("n1"), node("n2"))
        world.put(reservation("less", cpu="1", pod={"nodeName": "n1"}))
        world.put(reservation("more", cpu="4", pod={"nodeName": "n2"}))
        world.put(pod("owner", app="a", cpu="4"))
        assert (world.node_of("owner"), world.reservation_of("owner")) == ("n2", "more")

    def test_of_several_the_one_that_ends_up_most_allocated_is_picked(self) -> None:
        world = World(node("n1"))
        world.put(*(reservation(f"r{cpu}", cpu=cpu) for cpu in ("8", "2", "4")))
        world.put(pod("owner", app="a", cpu="2"))
        assert world.reservation_of("owner") == "r2"

    def test_the_pod_says_which_reservation_it_has(self) -> None:
        world = World(node("n1"), reservation("r"), pod("owner", app="a", cpu="4"))
        annotations = world.objects["Pod", "owner"]["metadata"]["annotations"]
        assert annotations[ALLOCATED] == '{"name":"r","uid":"rsv-r"}'

    def test_allocate_once_is_succeeded_and_unavailable_to_others(self) -> None:
        world = World(node("n1"), reservation("r", cpu="8")).put(pod("p1", app="a", cpu="2"))
        assert (world.phase("r"), world.reservation_of("p1")) == ("Succeeded", "r")
        world.put(pod("p2", app="a", cpu="2"))
        assert (world.node_of("p2"), world.reservation_of("p2")) == ("n1", "")

    def test_of_several_reusable_ones_the_earliest_created_is_used(self) -> None:
        world = World(node("n1"))
        for name, owners in (("first", ["a", "x"]), ("second", ["a", "y"])):
            selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": owners}]}
            room = reservation(name, cpu="4", allocateOnce=False, owners=[{"labelSelector": selector}])
            world.put(room).wait(1)
        world.put(pod("p1", app="a", cpu="3")).put(pod("p2", app="a", cpu="1"))
        assert [world.reservation_of(name) for name in ("p1", "p2")] == ["first", "first"]

    def test_a_pod_has_its_resources_of_one_reservation_never_of_two(self) -> None:
        world = World(node("n1", cpu="8"))
        world.put(*(reservation(f"r{i}", cpu="4", allocatePolicy="Aligned") for i in (1, 2)))
        world.put(pod("owner", app="a", cpu="5"))
        assert world.node_of("owner") == "", "4 of the one, and none of the other, which is reserved"


class TestSyncReservationStatus:
    def test_owners_and_amounts_follow_pods(self) -> None:
        world = World(node("n1"), reservation("r", cpu="8", allocateOnce=False))
        world.put(pod("p1", app="a", cpu="2"), pod("p2", app="a", cpu="3"))
        assert (world.owners("r"), world.status("r")["allocated"]) == (["p1", "p2"], {"cpu": "5"})
        world.delete("Pod", "p1")
        assert (world.owners("r"), world.status("r")["allocated"]) == (["p2"], {"cpu": "3"})

    def test_one_that_was_used_once_stays_so_when_the_pod_is_deleted(self) -> None:
        world = World(node("n1"), reservation("r"), pod("p1", app="a", cpu="4"))
        world.delete("Pod", "p1").put(pod("p2", app="a", cpu="4"))
        assert (world.phase("r"), world.reservation_of("p2")) == ("Succeeded", "")


class TestExpirationAndCleanup:
    @pytest.mark.parametrize("lifetime", [{"ttl": "1h"}, {"expires": "2026-01-01T01:00:00Z"}])
    def test_past_its_time_it_is_expired_and_later_collected(self, lifetime: dict[str, Any]) -> None:
        world = World(node("n1", cpu="4"), reservation("r", cpu="4", **lifetime))
        world.wait(3600)
        assert world.condition("r", "Ready")["reason"] == "Expired"
        world.put(pod("anyone", cpu="4"))
        assert world.node_of("anyone") == "n1"
        world.wait(DAY)
        assert ("Reservation", "r") not in world.objects

    @pytest.mark.parametrize("phase", ["Available", "Waiting"])
    def test_when_its_node_is_deleted_it_is_expired(self, phase: str) -> None:
        world = World(node("n1", cpu="4"), pod("busy", cpu="1"))
        cpu = "4" if phase == "Waiting" else "3"
        world.put(reservation("r", cpu=cpu, preAllocation=True))
        assert world.phase("r") == phase
        world.delete("Node", "n1")
        assert (world.phase("r"), world.condition("r", "Ready")["reason"]) == ("Failed", "Expired")


@pytest.mark.parametrize(
    ("args", "collected_at"),
    [
        pytest.param({}, 60.0 + DAY, id="a day later"),
        pytest.param({"gcDurationSeconds": 600}, 660.0, id="as configured"),
        pytest.param({"disableGarbageCollection": True}, None, id="never"),
    ],
)
def test_expired_reservations_are_cleaned_up_after_a_custom_period(
    args: Raw, collected_at: float | None
) -> None:
    profile = {"pluginConfig": [{"name": "Reservation", "args": args}]}
    config = {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}
    scenario = read_scenario(load_text(json.dumps(reservation("r", ttl="1m")), "r.yaml"))
    result = Simulation(scenario, SchedulerFactory.of(config)).run(3 * DAY)
    ends = [entry.t for entry in result.timeline if entry.event == "Collected"]
    assert ends == ([collected_at] if collected_at is not None else [])


def test_unsolved_problems_a_reservation_makes_no_volume() -> None:
    """But the place it takes counts: see volumes.yaml, where a node takes one volume only."""
    cls = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "on-demand", "uid": "sc"},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default", "uid": "data"},
        "spec": {"storageClassName": "on-demand", "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Pending"},
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    world = World(node("n1"), cls, claim, reservation("r", pod={"volumes": volumes}))
    assert world.phase("r") == "Available"
    selected = "volume.kubernetes.io/selected-node"
    assert selected not in world.objects["PersistentVolumeClaim", "data"]["metadata"].get(
        "annotations", {}
    )
