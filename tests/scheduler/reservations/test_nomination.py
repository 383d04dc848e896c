"""Which reservation is used where several would do, and where reservations that are alike may be."""

import pytest

from harness.objects import Raw, node, pod, reservation
from harness.scenarios import play
from harness.world import World

ZONES = [node(f"n{i}", labels={"zone": f"z{i}"}) for i in (1, 2, 3)]


def test_owner_goes_where_its_reservation_is() -> None:
    world = World(node("n1", cpu="64"), node("n2"), pod("filler", cpu="40"))
    world.put(reservation("r", cpu="4", pod={"nodeName": "n2"}))
    assert world.status("r")["nodeName"] == "n2"
    world.put(pod("owner", app="a", cpu="4"))
    assert (world.node_of("owner"), world.reservation_of("owner")) == ("n2", "r")


def test_reservation_that_ends_up_fullest_is_used() -> None:
    world = World(node("n1", cpu="64"))
    world.put(reservation("big", cpu="16"), reservation("small", cpu="5"))
    world.put(pod("owner", app="a", cpu="4"))
    assert world.reservation_of("owner") == "small"


def test_reservation_that_serves_more_of_the_request_is_used() -> None:
    world = World(node("n1"), node("n2"))
    world.put(reservation("part", cpu="2", pod={"nodeName": "n1"}))
    world.put(reservation("whole", cpu="4", pod={"nodeName": "n2"}))
    world.put(pod("owner", app="a", cpu="4"))
    assert (world.node_of("owner"), world.reservation_of("owner")) == ("n2", "whole")


@pytest.mark.parametrize(
    ("asked", "drawn"),
    [
        pytest.param("4", "small", id="fills the small one"),
        pytest.param("6", "large", id="more than the small one has"),
        pytest.param("12", "large", id="more than either, and more of it"),
    ],
)
def test_what_exceeds_a_reservation_does_not_count_as_filling_it(asked: str, drawn: str) -> None:
    world = World(node("n1"), reservation("small", cpu="4"), reservation("large", cpu="8"))
    world.put(pod("p", app="a", cpu=asked))
    assert world.reservation_of("p") == drawn


def test_order_comes_before_everything() -> None:
    world = World(node("n1"), node("n2"))
    order = "scheduling.koordinator.sh/reservation-order"
    world.put(reservation("fits", cpu="4", pod={"nodeName": "n1"}, labels={order: "7"}))
    world.put(reservation("first", cpu="1", pod={"nodeName": "n2"}, labels={order: "3"}))
    world.put(pod("owner", app="a", cpu="4"))
    assert world.reservation_of("owner") == "first"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(-5, 1, id="below zero"),
        pytest.param(10, 20, id="small"),
        pytest.param(1767225600000, 1767225660000, id="milliseconds since 1970"),
        pytest.param(20, 1767225600000, id="small before large"),
        pytest.param(1767225600000, 2**62, id="large before enormous"),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "one after the other"])
def test_orders_of_any_size_are_told_apart(first: int, second: int, late: bool) -> None:
    label = "scheduling.koordinator.sh/reservation-order"
    world = World(*ZONES)
    rooms = [
        reservation("second", cpu="2", labels={label: str(second)}, pod={"nodeName": "n1"}),
        reservation("first", cpu="8", labels={label: str(first)}, pod={"nodeName": "n2"}),
        reservation("unordered", cpu="2", pod={"nodeName": "n3"}),
    ]
    owners = [pod(f"p{i}", app="a", cpu="2") for i in range(3)]
    if late:
        world.put(pod("early", app="a", cpu="1"))
    for room in rooms:
        world.put(room)
    for owner in owners:
        world.put(owner)
    assert [world.reservation_of(f"p{i}") for i in range(3)] == ["first", "second", "unordered"]


_APP_A = {"matchLabels": {"app": "a"}}
_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
_APART = {"labelSelector": _APP_A, "topologyKey": "zone"}


@pytest.mark.parametrize("order", ["1", "1767225600000"])
@pytest.mark.parametrize("policy", ["", "Restricted"])
@pytest.mark.parametrize(
    "constraint",
    [
        pytest.param(
            {"topologySpreadConstraints": [{**_SPREAD, "labelSelector": _APP_A}]}, id="spread"
        ),
        pytest.param(
            {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_APART]}
                }
            },
            id="anti-affinity",
        ),
    ],
)
def test_an_order_does_not_outweigh_a_topology_constraint(
    constraint: Raw, policy: str, order: str
) -> None:
    world = World(*ZONES[:2], pod("other", app="a", nodeName="n1"))
    label = "scheduling.koordinator.sh/reservation-order"
    where: Raw = {"pod": {"nodeName": "n1"}, "allocatePolicy": policy}
    world.put(reservation("r", cpu="2", labels={label: order}, **where))
    assert world.status("r")["phase"] == "Available"
    world.put(pod("owner", app="a", cpu="2", **constraint))
    assert (world.node_of("owner"), world.reservation_of("owner")) == ("n2", "")


@pytest.mark.parametrize("weight", [1, 5000, 5001, 10000, 1_000_000])
def test_orders_are_told_apart_whatever_the_weight_of_reservations(weight: int) -> None:
    enabled = [{"name": "Reservation", "weight": weight}]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"disabled": enabled, "enabled": enabled}}}],
    }
    label = "scheduling.koordinator.sh/reservation-order"
    orders = {"n1": "0", "n2": "1767225600000", "n3": "20"}
    made = [
        reservation(f"on-{name}", cpu="2", labels={label: order}, pod={"nodeName": name})
        for name, order in orders.items()
    ]
    owners = [pod(f"p{i}", app="a", cpu="2") for i in range(3)]
    for owner in owners:
        owner["metadata"]["annotations"] = {"sim.holdfast.io/at": "5s"}
    bound = play(*ZONES, *made, *owners, config=config).bound()
    assert [bound[f"p{i}"][1] for i in range(3)] == ["n3", "n2", "n1"]


def test_oldest_of_reusable_reservations_on_a_node_is_used() -> None:
    world = World(node("n1"), reservation("old", cpu="8", allocateOnce=False)).wait(1)
    owners = [{"labelSelector": {"matchLabels": {"app": "a"}}}, {"object": {"name": "nobody"}}]
    world.put(reservation("young", cpu="4", allocateOnce=False, owners=owners))
    world.put(pod("p1", app="a", cpu="4"))
    assert world.reservation_of("p1") == "old"


def test_same_reusable_reservation_does_not_go_to_the_same_node_twice() -> None:
    world = World(node("n1"), reservation("r1", cpu="1", allocateOnce=False))
    world.put(reservation("r2", cpu="1", allocateOnce=False))
    assert world.phase("r2") == "Pending"
    assert world.condition("r2", "Scheduled")["message"] == (
        "0/1 nodes are available: 1 node(s) only one same reusable reservation can be scheduled on a "
        "same node."
    )
    world.put(node("n2"))
    assert world.status("r2")["nodeName"] == "n2"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(["app=a", "app=b"], ["app=b", "app=a"], True, id="another order"),
        pytest.param(["app=a"], ["app=a", "app=a"], True, id="one twice"),
        pytest.param(["app=a"], ["app in (a)"], True, id="as an expression"),
        pytest.param(["app in (b, a)", "x=y"], ["x=y", "app in (a, b, b)"], True, id="values"),
        pytest.param(["app=a"], ["app=a", "app=b"], False, id="one more"),
        pytest.param(["app in (a)"], ["app notin (a)"], False, id="another operator"),
    ],
)
def test_owners_that_mean_the_same_are_the_same(one: list[str], other: list[str], same: bool) -> None:
    def owners(texts: list[str]) -> list[Raw]:
        return [{"labelSelector": _selector(text)} for text in texts]

    first = reservation("r1", cpu="1", allocateOnce=False, owners=owners(one))
    world = World(node("n1"), first)
    world.put(reservation("r2", cpu="1", allocateOnce=False, owners=owners(other)))
    assert world.phase("r2") == ("Pending" if same else "Available")


def _selector(text: str) -> Raw:
    if "=" in text:
        key, _, value = text.partition("=")
        return {"matchLabels": {key: value}}
    key, operator, values = text.split(" ", 2)
    listed = [value.strip() for value in values.strip("()").split(",")]
    named = {"in": "In", "notin": "NotIn"}[operator]
    return {"matchExpressions": [{"key": key, "operator": named, "values": listed}]}
