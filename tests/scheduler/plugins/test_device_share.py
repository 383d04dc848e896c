"""DeviceShare as a whole: which node, which devices, and what is written."""

from typing import Any

import pytest

from harness.device_objects import (
    CORE,
    GIB,
    MEMORY,
    RATIO,
    allocated,
    card,
    device,
    gpu,
    minors,
    with_gpus,
)
from harness.objects import Raw, node, pod, reservation
from harness.world import World

GPU = "koordinator.sh/gpu"


def asks(name: str, app: str = "", meta: Raw | None = None, **requests: Any) -> Raw:
    return pod(
        name,
        app=app,
        metadata=meta,
        requests={key.replace("__", "/"): v for key, v in requests.items()},
    )


def wants(name: str, percent: int, app: str = "", **meta: Any) -> Raw:
    return pod(name, app=app, metadata=meta, requests={GPU: str(percent)})


# What is written


@pytest.mark.parametrize(
    ("requests", "resources"),
    [
        ({"nvidia.com/gpu": "1"}, {CORE: "100", MEMORY: "16Gi", RATIO: "100"}),
        ({GPU: "25"}, {CORE: "25", MEMORY: "4Gi", RATIO: "25"}),
        ({MEMORY: "4Gi"}, {MEMORY: "4Gi", RATIO: "25"}),
        ({MEMORY: "1Gi"}, {MEMORY: "1Gi", RATIO: "6"}),
        ({RATIO: "50"}, {MEMORY: "8Gi", RATIO: "50"}),
        ({CORE: "10", MEMORY: "8Gi"}, {CORE: "10", MEMORY: "8Gi", RATIO: "50"}),
        ({CORE: "10", RATIO: "50"}, {CORE: "10", MEMORY: "8Gi", RATIO: "50"}),
    ],
)
def test_each_form_of_request_is_given_one_gpu(
    requests: dict[str, str], resources: dict[str, str]
) -> None:
    world = with_gpus(2).put(pod("p", requests=requests))
    assert allocated(world, "p") == {"gpu": [{"minor": 0, "resources": resources, "id": "GPU-0"}]}


def test_several_gpus_come_one_by_one() -> None:
    world = with_gpus(4).put(
        wants("p", 200), pod("q", requests={"koordinator.sh/gpu.shared": "2", RATIO: "80"})
    )
    assert minors(world, "p") == [0, 1]
    assert minors(world, "q") == [2, 3]
    assert allocated(world, "q")["gpu"][0]["resources"] == {MEMORY: "6871947673", RATIO: "40"}


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ({GPU: "150"}, "invalid resource unit koordinator.sh/gpu: 150"),
        (
            {GPU: "100", "nvidia.com/gpu": "1"},
            "invalid resource device requests: [nvidia.com/gpu koordinator.sh/gpu]",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(requests: dict[str, str], message: str) -> None:
    world = with_gpus(2).put(pod("p", requests=requests))
    assert world.node_of("p") == ""
    assert world.message("p").startswith(f"0/1 nodes are available: {message}.")


# Which node


def test_a_partial_request_stays_on_one_gpu() -> None:
    """Of two GPUs 40 % each are left: 80 % in all, but not for one pod."""
    world = with_gpus(2).put(wants("a", 60), wants("b", 60))
    assert sorted(minors(world, "a") + minors(world, "b")) == [0, 1]
    world.put(wants("c", 50))
    assert world.node_of("c") == ""
    assert world.message("c").startswith("0/1 nodes are available: 1 Insufficient GPU Devices.")
    world.put(wants("d", 40)).delete("Pod", "a")
    assert world.node_of("c") == "n1"


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([], "Insufficient gpu devices"),
        ([card("rdma", 0)], "Insufficient gpu devices"),
        ([gpu(0, numa=None)], "Insufficient gpu devices"),
        ([gpu(0, health=False)], "Insufficient GPU Devices"),
        ([gpu(0)], "Insufficient GPU Devices"),
    ],
)
def test_why_there_are_no_gpus(devices: list[Raw], message: str) -> None:
    offered = {"nvidia.com/gpu": "8"}
    world = World(node("n1", allocatable=offered), device("n1", *devices))
    world.put(pod("p", requests={"nvidia.com/gpu": "2"}))
    assert world.message("p").startswith(f"0/1 nodes are available: 1 {message}.")


def test_a_node_without_a_device_object_is_left_to_its_kubelet() -> None:
    world = World(node("n1", allocatable={"nvidia.com/gpu": "2"}))
    world.put(pod("p", requests={"nvidia.com/gpu": "1"}))
    assert world.node_of("p") == "n1"
    assert allocated(world, "p") == {}


def test_what_a_node_offers_follows_from_its_device_unless_it_says_so_itself() -> None:
    world = with_gpus(2).put(pod("p", requests={"nvidia.com/gpu": "2"}))
    assert world.node_of("p") == "n1"
    other = with_gpus(4, allocatable={"nvidia.com/gpu": "1"}).put(
        pod("p", requests={"nvidia.com/gpu": "2"})
    )
    assert other.message("p").startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")


def test_percent_and_bytes_of_memory_are_one_memory() -> None:
    """Each alone would fit: 51 % in bytes and half of it in percent are too much together."""
    world = with_gpus(1).put(pod("a", requests={MEMORY: str(16 * GIB * 51 // 100)}))
    world.put(pod("b", requests={RATIO: "50"}))
    assert world.node_of("b") == ""


# Which devices of a node


def test_gpus_of_one_pod_are_near_each_other() -> None:
    world = with_gpus(8).put(wants("one", 100)).put(wants("four", 400))
    assert minors(world, "one") == [0]
    assert minors(world, "four") == [4, 5, 6, 7]
    world.put(wants("three", 300))
    assert minors(world, "three") == [1, 2, 3]


def test_a_switch_in_use_comes_before_an_untouched_one() -> None:
    world = with_gpus(8).put(wants("a", 100)).put(wants("b", 200))
    assert minors(world, "b") == [1, 2]


@pytest.mark.parametrize(("scope", "node_found"), [("PCIe", ""), ("NUMANode", "n1"), ("Node", "n1")])
def test_gpus_may_be_required_to_be_together(scope: str, node_found: str) -> None:
    gpus = [gpu(i, numa=i // 2, pcie=f"s{i}") for i in range(4)]
    world = World(node("n1"), device("n1", *gpus))
    hint = f'{{"gpu": {{"requiredTopologyScope": "{scope}"}}}}'
    annotations = {"scheduling.koordinator.sh/device-allocate-hint": hint}
    world.put(wants("p", 200, annotations=annotations))
    assert world.node_of("p") == node_found
    if not node_found:
        assert "1 Insufficient Topology Scoped GPU Devices" in world.message("p")


def test_devices_are_selected_by_their_labels() -> None:
    world = World(node("n1"), device("n1", gpu(0), gpu(1, labels={"kind": "fast"})))
    hint = '{"gpu": {"selector": {"matchLabels": {"kind": "fast"}}}}'
    annotations = {"scheduling.koordinator.sh/device-allocate-hint": hint}
    world.put(wants("p", 100, annotations=annotations), wants("q", 100, annotations=annotations))
    assert minors(world, "p") == [1]
    assert world.node_of("q") == ""


def test_a_hint_that_makes_no_sense_is_refused() -> None:
    annotations = {"scheduling.koordinator.sh/device-allocate-hint": "{"}
    world = with_gpus(1).put(wants("p", 100, annotations=annotations))
    assert "invalid DeviceAllocateHint annotation, err: " in world.message("p")


def test_gpus_and_cards_may_belong_together() -> None:
    devices = [gpu(0, pcie="s0"), gpu(1, numa=0, pcie="s1")]
    devices += [card("rdma", 0, pcie="s1"), card("rdma", 1, pcie="s2")]
    world = World(node("n1"), device("n1", *devices))
    joint = '{"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}'
    annotations = {"scheduling.koordinator.sh/device-joint-allocate": joint}
    requests = {GPU: "100", "koordinator.sh/rdma": "50"}
    world.put(pod("p", metadata={"annotations": annotations}, requests=requests))
    assert (minors(world, "p"), minors(world, "p", of="rdma")) == ([1], [0])
    world.put(pod("q", metadata={"annotations": annotations}, requests=requests))
    assert "1 node(s) Device Joint-Allocate rules violation" in world.message("q")


def test_cards_may_be_asked_for_by_number_or_all_at_once() -> None:
    cards = [card("rdma", i) for i in range(3)]
    world = World(node("n1"), device("n1", *cards))
    key = "scheduling.koordinator.sh/device-allocate-hint"
    count = {key: '{"rdma": {"allocateStrategy": "RequestsAsCount"}}'}
    world.put(pod("two", metadata={"annotations": count}, requests={"koordinator.sh/rdma": "2"}))
    every = {key: '{"rdma": {"allocateStrategy": "ApplyForAll"}}'}
    world.put(pod("all", metadata={"annotations": every}, requests={"koordinator.sh/rdma": "10"}))
    assert len(minors(world, "two", of="rdma")) == 2
    assert minors(world, "all", of="rdma") == [0, 1, 2]


# Faults


def test_an_unhealthy_gpu_is_given_to_nobody_and_its_users_keep_it() -> None:
    world = with_gpus(1).put(wants("a", 50))
    world.shrinking = True
    world.put(device("n1", gpu(0, health=False)), wants("b", 50))
    assert (world.node_of("a"), world.node_of("b")) == ("n1", "")
    world.put(device("n1", gpu(0)))
    assert world.node_of("b") == "n1"
    world.put(device("n1", gpu(0, health=False)), device("n1", gpu(0)), wants("c", 10))
    assert world.node_of("c") == ""


def test_a_device_object_may_come_after_its_pods() -> None:
    world = with_gpus(2).put(wants("a", 100), wants("b", 60))
    pods = {key: raw for key, raw in world.objects.items() if key[0] == "Pod"}
    later = World()
    later.shrinking = True
    later.put(node("n1"), *pods.values())
    later.put(wants("c", 50))
    assert later.node_of("c") == ""
    later.put(device("n1", gpu(0), gpu(1)))
    assert later.node_of("c") == ""
    later.put(wants("d", 40))
    assert minors(later, "d") == minors(later, "b")


def test_pods_that_do_not_say_what_they_have_still_have_something() -> None:
    old = World(node("n1", allocatable={"nvidia.com/gpu": "2"}))
    old.put(pod("old", requests={"nvidia.com/gpu": "1"}))
    old.put(device("n1", gpu(0), gpu(1))).put(wants("a", 100)).put(wants("b", 10))
    assert (old.node_of("a"), old.node_of("b")) == ("n1", "")


def test_a_minor_that_vanishes_stays_its_users_until_they_go() -> None:
    world = with_gpus(2).put(wants("a", 100), wants("b", 100))
    world.shrinking = True
    world.put(device("n1", gpu(1)), wants("c", 100))
    assert world.node_of("c") == ""
    gone, stays = ("a", "b") if minors(world, "a") == [0] else ("b", "a")
    world.delete("Pod", gone)
    assert world.node_of("c") == ""
    world.delete("Pod", stays)
    assert minors(world, "c") == [1]


def test_a_node_that_lost_its_device_object_offers_nothing_while_its_pods_are_there() -> None:
    world = with_gpus(2).put(wants("a", 50))
    world.shrinking = True
    world.delete("Device", "n1").put(wants("b", 10))
    assert (world.node_of("a"), world.node_of("b")) == ("n1", "")


def test_a_restart_knows_who_has_what() -> None:
    world = with_gpus(4).put(wants("a", 30), wants("b", 200), wants("c", 80))
    before = world.scheduler.cluster.managers.devices
    free = {kind: table.free.tolist() for kind, table in before.tables.items()}
    world.restart()
    world.settle()
    after = world.scheduler.cluster.managers.devices
    assert {kind: table.free.tolist() for kind, table in after.tables.items()} == free


def test_a_refused_bind_gives_the_devices_back() -> None:
    world = with_gpus(1)
    world.refuse.add("pod-a")
    world.put(wants("a", 100))
    assert world.node_of("a") == ""
    world.put(wants("b", 100))
    assert world.node_of("b") == "n1"


# Reservations


def test_owners_get_the_reserved_gpu_and_strangers_do_not() -> None:
    world = with_gpus(2).put(reservation("r", app="own", requests={GPU: "100"}))
    reserved = minors(world, "r", "Reservation")
    world.put(wants("stranger", 100)).put(wants("late", 10))
    assert minors(world, "stranger") != reserved
    assert world.node_of("late") == ""
    world.put(wants("owner", 100, "own"))
    assert (minors(world, "owner"), world.reservation_of("owner")) == (reserved, "r")


@pytest.mark.parametrize(
    ("policy", "second", "drawn"),
    [("", "n1", ""), ("Aligned", "n1", ""), ("Restricted", "", "")],
)
def test_what_a_reservation_cannot_serve_comes_from_the_node_if_the_policy_allows(
    policy: str, second: str, drawn: str
) -> None:
    world = with_gpus(2).put(
        reservation("r", app="own", requests={GPU: "100"}, allocateOnce=False, allocatePolicy=policy)
    )
    world.put(wants("sixty", 60, "own")).put(wants("fifty", 50, "own"))
    assert (world.node_of("sixty"), world.reservation_of("sixty")) == ("n1", "r")
    assert (world.node_of("fifty"), world.reservation_of("fifty")) == (second, drawn)


@pytest.mark.parametrize(("policy", "third"), [("", "n1"), ("Restricted", "")])
def test_owners_of_a_restricted_reservation_get_no_other_gpu_though_enough_is_left_in_all(
    policy: str, third: str
) -> None:
    """40 % are left of each of two reserved GPUs: together as much as is asked for, on neither."""
    world = with_gpus(3).put(
        reservation("r", app="own", requests={GPU: "200"}, allocateOnce=False, allocatePolicy=policy)
    )
    world.put(wants("a", 60, "own")).put(wants("b", 60, "own"))
    assert [world.reservation_of("a"), world.reservation_of("b")] == ["r", "r"]
    assert minors(world, "a") != minors(world, "b")
    world.put(wants("c", 80, "own"))
    assert world.node_of("c") == third


def test_a_share_may_be_part_reserved_and_part_free() -> None:
    world = with_gpus(1).put(reservation("r", app="own", requests={GPU: "50"}, allocateOnce=False))
    world.put(wants("stranger", 60))
    assert world.node_of("stranger") == ""
    world.put(wants("owner", 80, "own"))
    assert (world.node_of("owner"), world.reservation_of("owner")) == ("n1", "r")


def test_more_gpus_than_are_reserved_are_those_and_others() -> None:
    world = with_gpus(4).put(reservation("r", app="own", requests={GPU: "100"}))
    reserved = minors(world, "r", "Reservation")
    world.put(wants("owner", 300, "own"))
    assert world.reservation_of("owner") == "r"
    assert len(minors(world, "owner")) == 3
    assert set(reserved) < set(minors(world, "owner"))


def test_reserved_gpus_survive_a_restart_to_the_last_share() -> None:
    world = with_gpus(2).put(reservation("r", app="own", requests={GPU: "100"}, allocateOnce=False))
    world.put(wants("a", 30, "own"))
    world.restart()
    world.settle()
    world.put(wants("stranger", 100)).put(wants("other", 10))
    assert world.node_of("other") == ""
    world.put(wants("b", 70, "own"))
    assert minors(world, "a") == minors(world, "b") == minors(world, "r", "Reservation")


def test_a_reservation_made_ahead_waits_for_its_gpu() -> None:
    world = with_gpus(1).put(wants("a", 60))
    world.put(reservation("r", app="own", requests={GPU: "100"}, preAllocation=True))
    assert world.phase("r") == "Waiting"
    world.put(wants("b", 10))
    assert world.node_of("b") == ""
    world.delete("Pod", "a")
    assert world.phase("r") == "Available"
    assert minors(world, "r", "Reservation") == [0]


def test_a_reservation_that_ends_gives_its_gpu_back() -> None:
    world = with_gpus(1).put(
        reservation("r", app="own", requests={GPU: "100"}, ttl="10s"), wants("a", 50)
    )
    assert world.node_of("a") == ""
    world.wait(11)
    assert world.node_of("a") == "n1"


@pytest.mark.parametrize(
    ("size", "owners", "resized"),
    [
        ("100", 0, "True"),
        ("200", 0, "True"),
        ("400", 0, "False"),
        ("100", 1, "False"),
        ("50", 1, "True"),
    ],
)
def test_a_reservation_of_another_size_holds_other_gpus(size: str, owners: int, resized: str) -> None:
    """Not while an owner has some of them."""
    it = reservation("r", app="own", requests={GPU: "50"}, allocateOnce=False)
    world = with_gpus(2).put(it)
    if owners:
        world.put(wants("owner", 20, "own"))
    template = reservation("r", app="own", requests={GPU: size, "cpu": "1"})["spec"]["template"]
    world.edit("Reservation", "r", spec__template=template)
    assert world.condition("r", "Resized")["status"] == resized
    held = sum(int(each["resources"][RATIO]) for each in allocated(world, "r", "Reservation")["gpu"])
    assert held == (int(size) if resized == "True" else 50)
    world.restart()
    world.settle()
    world.put(wants("rest", 200 - held if held == 100 else 50))
    assert world.node_of("rest") == ("n1" if held < 200 else "")


def test_a_pod_that_must_use_a_reservation_is_told_what_it_lacks() -> None:
    """Half of each of two GPUs is left to it, which is not one GPU."""
    it = reservation(
        "r", app="own", requests={GPU: "200"}, allocateOnce=False, allocatePolicy="Restricted"
    )
    world = with_gpus(2).put(it).put(wants("a", 50, "own")).put(wants("b", 60, "own"))
    affinity = {"scheduling.koordinator.sh/reservation-affinity": "{}"}
    world.put(wants("c", 60, "own", annotations=affinity))
    assert "1 Reservation(s) Insufficient GPU Devices" in world.message("c")


# Preemption


def test_a_gpu_is_taken_from_those_less_important() -> None:
    world = with_gpus(2).put(
        pod("low", requests={GPU: "100"}, priority=1), pod("mid", requests={GPU: "60"}, priority=5)
    )
    world.put(pod("high", requests={GPU: "100"}, priority=10)).wait(30)
    assert world.node_of("high") == "n1"
    assert ("Pod", "low") not in world.objects
    assert world.node_of("mid") == "n1"
