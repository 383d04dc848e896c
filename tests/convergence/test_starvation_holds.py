"""A starvation hold is made and kept by one rule, and made once."""

import json
from typing import Any

import pytest

from harness.builders import make_node, make_pod
from harness.claim_objects import (
    claim_template,
    claiming_pod,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from harness.driver import Driver
from harness.objects import Raw, gang, node, pod, pod_group, reservation
from harness.scenarios import Played, actions, play, step
from reference.setup import Setup

LIMITS = "node.koordinator.sh/limit-to-allocatable"
SOON = {"starvingJobTimeThreshold": 10, "reservedNodePercent": 100}


def limited(name: str, cpu: int, percent: int) -> Raw:
    return node(name, cpu, metadata={"annotations": {LIMITS: json.dumps({"cpu": percent})}})


def made(played: Played) -> list[tuple[float, str]]:
    """When starvation holds were created, and for which jobs."""
    return [
        (entry.t, entry.object.removeprefix("Reservation/held-for-").rpartition("-")[0])
        for entry in played.result.timeline
        if entry.event == "Created" and entry.object.startswith("Reservation/held-for-")
    ]


def bounded(name: str, cpu: int, limit: int, **more: str) -> Raw:
    raw = pod(name, cpu, **more)
    raw["spec"]["containers"][0]["resources"]["limits"] = {"cpu": str(limit)}
    return raw


@pytest.mark.parametrize("percent", [100, 150, 200])
def test_a_hold_is_not_held_against_itself_where_limits_count(percent: int) -> None:
    there = pod("there", 4, nodeName="n1", runs_for="60s")
    config = actions(**SOON)
    played = play(limited("n1", 8, percent), there, pod("big", 5), config=config, until=100)
    assert made(played) == [(10.0, "big")]
    assert played.times("big") == [60]


def test_limits_of_pods_that_will_end_keep_no_hold_away() -> None:
    """Its limit does not fit now, as its request does not; both will."""
    there = bounded("there", 4, 10, nodeName="n1", runs_for="60s")
    given = [limited("n1", 8, 150), there, bounded("big", 5, 11)]
    played = play(given, config=actions(**SOON), until=100)
    assert made(played) == [(10.0, "big")]
    assert played.times("big") == [60]


def test_tasks_share_what_limits_leave() -> None:
    """Two tasks' requests would fit one node; their limits do not."""
    full = [pod(f"f{i}", 8, nodeName=f"n{i}", runs_for="60s") for i in (1, 2)]
    tasks = gang("g", 2, 2)
    for task in tasks:
        task["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "6"}
    nodes = [limited("n1", 8, 100), limited("n2", 8, 100)]
    played = play(nodes, full, pod_group("g", 2), tasks, config=actions(**SOON), until=100)
    assert made(played) == [(10.0, "g-0"), (10.0, "g-1")]
    assert played.times("g-0", "g-1") == [60, 60]


def test_a_hold_that_was_dropped_is_made_again_once_its_node_will_do() -> None:
    """Each time the node is cordoned the hold is dropped, once; and made again once it is not."""

    def cordon(at: str, yes: bool) -> Raw:
        merge = {"spec": {"unschedulable": yes}}
        return step(at, patch={"kind": "Node", "name": "n1", "merge": merge})

    there = pod("there", 4, nodeName="n1", runs_for="100s")
    steps = [cordon("20s", True), cordon("30s", False), cordon("40s", True), cordon("50s", False)]
    played = play(node("n1", 4), there, pod("big", 4), steps, config=actions(**SOON), until=120)
    assert made(played) == [(10.0, "big"), (30.0, "big"), (50.0, "big")]
    assert played.times("big") == [100]


HIGH = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
ALL = ("allocate", "backfill", "reserve", "preempt", "reclaim")


def everything(**reserve: object) -> Raw:
    config = actions(*ALL)
    config["actions"][2]["arguments"] = reserve
    return config


@pytest.mark.parametrize("restart", [[], [step("15s", restart="scheduler")]])
def test_nothing_more_is_held_for_a_pod_that_preempted(restart: list[Raw]) -> None:
    victims = [pod(f"v{i}", 7, stops_in="25s") for i in (1, 2)]
    urgent = pod("urgent", 5, at="1s", priorityClassName="high")
    given = [HIGH | {"value": 1000}, node("n1", 8), node("n2", 8), *victims, urgent]
    tiny = pod("tiny", 1, at="16s")
    played = play(given, tiny, restart, config=everything(**SOON), until=40)
    assert made(played) == []
    assert played.times("urgent", "tiny") == [26, 16]


def test_nothing_more_is_held_for_a_gang_that_preempted() -> None:
    victims = [pod(f"v{i}", 7, stops_in="25s") for i in (1, 2)]
    given = [HIGH | {"value": 1000}, node("n1", 8), node("n2", 8), node("n3", 2), *victims]
    urgent = [pod_group("g", 2, at="1s"), *gang("g", 2, 5, at="1s", priorityClassName="high")]
    played = play(given, urgent, config=everything(**SOON), until=40)
    assert made(played) == []
    assert played.times("g-0", "g-1") == [26, 26]


def test_nothing_more_is_held_for_a_pod_whose_own_reservation_waits() -> None:
    own = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "own"},
        "spec": {
            "preAllocation": True,
            "owners": [{"object": {"name": "big", "namespace": "default"}}],
            "template": {
                "spec": {
                    "nodeName": "n1",
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "5"}}}],
                }
            },
        },
    }
    full = [pod(f"f{i}", 7, nodeName=f"n{i}", runs_for="60s") for i in (1, 2)]
    given = [node("n1", 8), node("n2", 8), *full, own, pod("big", 5, at="1s")]
    played = play(given, pod("tiny", 1, at="20s"), config=actions(**SOON), until=100)
    assert made(played) == []
    assert played.times("big", "tiny") == [60, 20]


def test_a_hold_that_was_refused_is_made_again_once_the_cause_is_over() -> None:
    """The hold for `waits` is refused because of a reservation and a hold for its owner, both of the
    same moment; a moment later the owner starts in the reservation, without its hold."""
    grows = {"status": {"allocatable": {"cpu": "16"}}}
    given = [
        node("n1", 4),
        pod("early", 3),
        pod("owner", 6, app="a"),
        pod("small", 2),
        pod("waits", 6),
        reservation("r", 8),
        step("120s", patch={"kind": "Node", "name": "n1", "merge": grows}),
    ]
    played = play(given, config=everything(**SOON), until=300)
    assert [each for each in made(played) if each[1] == "waits"] == [(120.0, "waits")] * 2
    assert [name.rpartition("-")[0] for name in _waiting(played)] == ["held-for-waits"]


def _waiting(played: Played) -> list[str]:
    """The reservations that wait at the end."""
    return [
        raw["metadata"]["name"]
        for raw in played.result.objects
        if raw["kind"] == "Reservation" and raw["status"].get("phase") == "Waiting"
    ]


def test_a_node_that_refuses_a_hold_repeatedly_is_left_out_for_longer_each_time() -> None:
    """A single refusal has no back-off. The timer is set only while that is all that is waited for."""
    driver = Driver((Setup(extra=("Reservation",)),))
    cluster = driver.scheduler.cluster
    holds = cluster.reservations.starvation_holds
    driver.add(make_node("n1").allocatable(cpu="2").obj(), make_pod("big").cpu("4").obj())
    [big] = cluster.pods.values()
    waits = []
    for _ in range(9):
        began = cluster.now
        holds.refused(big, "n1")
        holds.released(big, "n1")
        assert holds.unfit(big) == ["n1"]
        assert holds.next_timer() is None  # until something changes
        cluster.epoch.inputs += 1
        cluster.now = holds.next_timer() or began
        waits.append(cluster.now - began)
        assert holds.unfit(big) == []
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    cluster.now += 61
    holds.refused(big, "n1")
    cluster.epoch.inputs += 1
    assert holds.unfit(big) == []


def _devices(**slice_: Any) -> list[Raw]:
    return [device_class(), resource_slice(**slice_), claim_template("one", request())]


ON_NODE = {"node": "n1"}
ON_NETWORK = {"allNodes": True}
ONE = {"templates": {"one": None}}


@pytest.mark.parametrize("slice_", [ON_NODE, ON_NETWORK])
def test_nothing_is_held_for_a_pod_whose_device_is_in_use(slice_: dict[str, Any]) -> None:
    """Its cpu is free: a hold would keep other pods off the node, for a pod that cannot start."""
    user = claiming_pod("user", **ONE, runs_for="60s")
    wants = claiming_pod("wants", **ONE, at="10s")
    given = [node("n1", 8), *_devices(**slice_), user, wants, pod("plain", at="30s")]
    played = play(given, config=everything(**SOON), until=100)
    assert made(played) == []
    assert played.times("plain", "wants") == [30, 60]
    said = [raw["message"] for raw in played.all("Event") if raw["reason"] == "CannotReserve"]
    why = "the devices for the claims of Pod/default/wants are in use; no capacity was reserved"
    assert said == [why]


@pytest.mark.parametrize("slice_", [ON_NODE, ON_NETWORK])
def test_a_hold_is_released_while_the_device_of_its_pod_is_in_use(slice_: dict[str, Any]) -> None:
    """`taker` requests no resources, which no hold keeps from it."""
    there = pod("there", 4, nodeName="n1", runs_for="100s")
    wants = claiming_pod("wants", cpu=4, **ONE)
    taker = claiming_pod("taker", requests={}, **ONE, at="20s", runs_for="30s")
    given = [node("n1", 4), *_devices(**slice_), there, wants, taker]
    played = play(given, config=everything(**SOON), until=120)
    assert made(played) == [(10.0, "wants"), (50.0, "wants")]
    assert played.times("taker", "wants") == [20, 100]
    said = [raw["message"] for raw in played.all("Event") if raw["reason"] == "Released"]
    assert [text.rpartition(": ")[2] for text in said] == [
        "node n1 has no free devices for the claims of its pod"
    ]


@pytest.mark.parametrize("slice_", [ON_NODE, ON_NETWORK])
def test_a_hold_is_released_when_the_device_of_its_pod_is_withdrawn(slice_: dict[str, Any]) -> None:
    there = pod("there", 4, nodeName="n1", runs_for="100s")
    wants = claiming_pod("wants", cpu=4, **ONE)
    withdrawn = resource_slice(**slice_)["metadata"]["name"]
    gone = step("20s", delete={"kind": "ResourceSlice", "name": withdrawn})
    given = [node("n1", 4), *_devices(**slice_), there, wants, gone]
    played = play(given, config=everything(**SOON), until=120)
    assert played.reasons("wants").count("Released") == 1
    assert _waiting(played) == []
    assert played.times("wants") == [None]


def _two_starving(devices: int, slice_: dict[str, Any], **more: Any) -> list[Raw]:
    """Each node will have capacity for one of the pods; there are so many devices."""
    there = [pod(f"there-{n}", 4, nodeName=n, runs_for="100s") for n in ("n1", "n2")]
    wants = [claiming_pod(name, cpu=3, **ONE, **more) for name in ("first", "second")]
    claims = [device_class(), claim_template("one", request())]
    slices = [resource_slice(pool=f"pool-{i}", **slice_) for i in range(devices)]
    return [node("n1", 6), node("n2", 6), *there, *claims, *slices, *wants]


@pytest.mark.parametrize("restart", [[], [step("15s", restart="scheduler")]])
@pytest.mark.parametrize("slice_", [ON_NODE, ON_NETWORK])
@pytest.mark.parametrize("devices", [1, 2])
def test_there_are_as_many_holds_as_free_devices(
    devices: int, slice_: dict[str, Any], restart: list[Raw]
) -> None:
    played = play(_two_starving(devices, slice_), restart, config=everything(**SOON), until=90)
    assert [name for _, name in made(played)] == ["first", "second"][:devices]
    said = [raw["message"] for raw in played.all("Event") if raw["reason"] == "CannotReserve"]
    text = (
        "the devices for the claims of Pod/default/second are in use, or will be by pods that capacity"
        " is held for; no capacity was reserved"
    )
    assert dict.fromkeys(said) == ({} if devices == 2 else {text: None})


@pytest.mark.parametrize("slice_", [ON_NODE, ON_NETWORK])
def test_a_device_is_for_the_next_pod_once_the_first_is_gone(slice_: dict[str, Any]) -> None:
    gone = step("20s", delete={"kind": "Pod", "name": "first"})
    played = play(_two_starving(1, slice_), gone, config=everything(**SOON), until=150)
    assert made(played) == [(10.0, "first"), (20.0, "second")]
    assert played.times("second") == [100]


@pytest.mark.parametrize("slice_", [ON_NODE, ON_NETWORK])
def test_the_younger_hold_is_released_when_one_device_of_two_is_withdrawn(
    slice_: dict[str, Any],
) -> None:
    gone = step("20s", delete={"kind": "ResourceSlice", "name": "pool-1-slice"})
    played = play(_two_starving(2, slice_), gone, config=everything(**SOON), until=90)
    assert [name for _, name in made(played)] == ["first", "second"]
    assert len(_waiting(played)) == 1


def test_pods_that_share_a_claim_need_its_device_once() -> None:
    wants = [claiming_pod(name, "shared", cpu=3) for name in ("first", "second")]
    there = pod("there", 4, nodeName="n1", runs_for="100s")
    claims = [device_class(), resource_slice("n1"), resource_claim("shared", request())]
    played = play(node("n1", 6), there, claims, wants, config=everything(**SOON), until=150)
    assert [name for _, name in made(played)] == ["first", "second"]
    assert played.times("first", "second") == [100, 100]


def test_no_capacity_is_held_for_a_gang_with_too_few_devices() -> None:
    given = _two_starving(1, ON_NETWORK, group="g")
    played = play(given, pod_group("g", 2), config=everything(**SOON), until=90)
    assert made(played) == []


def _tainted(raw: Raw, *keys: str) -> Raw:
    raw["spec"]["taints"] = [{"key": key, "value": "", "effect": "NoSchedule"} for key in keys]
    return raw


@pytest.mark.parametrize("backfill", ["conservative", "easy"])
@pytest.mark.parametrize("hold", ["node", "amount"])
def test_a_hold_that_a_member_of_its_job_is_backfilled_on_is_deleted_at_once(
    hold: str, backfill: str
) -> None:
    """`small` takes the node held for `large`, which goes to a new one. At first it could not."""
    estimate: Raw = {"annotations": {"holdfast.io/run-estimate": "20s"}, "runs_for": "20s"}
    tolerations = [{"key": key, "operator": "Exists"} for key in ("old", "new")]
    big: Raw = {"labels": {"size": "big"}}
    busy = pod("busy", 2, nodeName="n2", runs_for="100s")
    busy["metadata"]["annotations"]["holdfast.io/run-estimate"] = "100s"
    large = pod(
        "large",
        4,
        group="g",
        at="1s",
        nodeSelector={"size": "big"},
        tolerations=tolerations,
        **estimate,
    )
    given = [
        _tainted(node("n1", 4, **big), "old"),
        node("n2", 2),
        busy,
        pod_group("g", 2),
        pod("small", 2, group="g", **estimate),
        large,
        step("20s", apply=node("n1", 4, **big)),
        step("20s", apply=_tainted(node("n3", 4, **big), "new")),
    ]
    config = everything(**SOON, hold=hold, backfill=backfill)
    played = play(given, config=config, until=60)
    assert played.bound() | {"busy": (0, "n2")} == {
        "busy": (0, "n2"),
        "small": (20, "n1"),
        "large": (20, "n3"),
    }
    (name,) = {e.object for e in played.result.timeline if "held-for-large" in e.object}
    assert [event for _, event in played.events(name)] == ["Created", "Available", "Deleted"]


@pytest.mark.parametrize("kind", ["disk", "port"])
def test_nothing_is_held_where_a_reservation_is_planned_for_the_same_disk_or_port(kind: str) -> None:
    """The hold was refused, deleted, and made again at each change."""
    needs: Raw = {}
    if kind == "disk":
        needs = {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "d"}}]}
    later = reservation("q", 1, "q", annotations={"holdfast.io/starts-at": "2026-01-01T01:00:00Z"})
    starving = pod("starving", 3, at="5s", **needs)
    later["spec"]["template"]["spec"] |= needs
    if kind == "port":
        for spec in (later["spec"]["template"]["spec"], starving["spec"]):
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    others = [pod(f"x{i}", 1, at=f"{20 + 10 * i}s", runs_for="5s") for i in range(4)]
    given = [node("n1", 4), pod("busy", 2), later, starving]
    played = play(given, others, config=actions(**SOON), until=100)
    assert made(played) == []
    said = [raw["message"] for raw in played.all("Event") if raw["reason"] == "CannotReserve"]
    assert said == ["its capacity is planned for Reservation/q; no capacity was reserved"]
