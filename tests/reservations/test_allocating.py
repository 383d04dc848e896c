"""Allocating reserved resources: who may, how much comes from where, which reservation is used."""

import pytest

from holdfast.framework.config import API_VERSION, KIND
from jobs.stage import play
from reservations.little_world import LittleWorld, Raw, node, pod, reservation

ZONES = [node(f"n{i}", labels={"zone": f"z{i}"}) for i in (1, 2, 3)]


def free(world: LittleWorld, name: str = "n1") -> dict[str, int]:
    """What anyone can still have of a node."""
    cluster = world.scheduler.cluster
    row = cluster.nodes.row(name)
    assert row is not None
    left = cluster.ledger.free(row)
    return {resource: int(left[slot]) for slot, resource in cluster.nodes.slots.resources()}


RESERVED = {"cpu": "4", "memory": "4Gi"}
GI = 1024**3


@pytest.mark.parametrize(
    ("reserved", "asked", "cpu_left", "memory_left"),
    [
        pytest.param(RESERVED, RESERVED, 12000, 32 * 10**9 - 4 * GI, id="the same"),
        pytest.param(RESERVED, {"cpu": "4"}, 12000, 32 * 10**9, id="only the cpu of it"),
        pytest.param(RESERVED, {"cpu": "4", "memory": "1Gi"}, 12000, 32 * 10**9 - GI, id="less memory"),
        pytest.param(
            {"cpu": "4"}, {"cpu": "4", "memory": "1Gi"}, 12000, 32 * 10**9 - GI, id="memory too"
        ),
        pytest.param({"cpu": "4"}, {"cpu": "6"}, 10000, 32 * 10**9, id="more than is reserved"),
    ],
)
def test_an_owner_takes_what_is_reserved_and_the_rest_from_the_node(
    reserved: dict[str, str], asked: dict[str, str], cpu_left: int, memory_left: int
) -> None:
    world = LittleWorld(node("n1"), reservation("r", requests=reserved))
    assert world.phase("r") == "Available"
    world.put(pod("owner", "a", requests=asked))
    assert (world.node_of("owner"), world.drawn("owner")) == ("n1", "r")
    assert world.phase("r") == "Succeeded"
    assert world.owners("r") == ["owner"]
    assert (free(world)["cpu"], free(world)["memory"]) == (cpu_left, memory_left)


def test_two_owners_share_a_reusable_reservation() -> None:
    world = LittleWorld(node("n1"), reservation("r", cpu="8", allocateOnce=False))
    world.put(pod("p1", "a", cpu="4"), pod("p2", "a", cpu="4"))
    assert [world.drawn(name) for name in ("p1", "p2")] == ["r", "r"]
    assert world.status("r")["allocated"] == {"cpu": "8"}
    assert world.owners("r") == ["p1", "p2"]
    assert free(world)["cpu"] == 8000


def test_what_two_owners_ask_beyond_the_reservation_comes_from_the_node() -> None:
    world = LittleWorld(node("n1"), reservation("r", cpu="6", allocateOnce=False))
    world.put(pod("p1", "a", cpu="4"), pod("p2", "a", cpu="4"))
    assert [world.drawn(name) for name in ("p1", "p2")] == ["r", "r"]
    assert world.status("r")["allocated"] == {"cpu": "8"}
    assert free(world)["cpu"] == 8000


def test_non_owner_cannot_take_reserved_room() -> None:
    world = LittleWorld(node("n1"), reservation("r", cpu="4"), pod("stranger", cpu="13"))
    assert world.node_of("stranger") == ""
    assert world.message("stranger").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    world.put(pod("modest", cpu="4"))
    assert (world.node_of("modest"), world.drawn("modest")) == ("n1", "")
    assert free(world)["cpu"] == 8000


def test_what_an_owner_leaves_of_a_reservation_used_once_is_for_everyone() -> None:
    world = LittleWorld(node("n1"), reservation("r", cpu="4"), pod("big", cpu="11"))
    world.put(pod("owner", "a", cpu="2"))
    assert (world.drawn("owner"), world.phase("r")) == ("r", "Succeeded")
    world.put(pod("stranger", cpu="2"))
    assert world.node_of("stranger") == "n1"
    assert free(world)["cpu"] == 1000


def test_reservation_used_once_stays_used_when_its_owner_goes() -> None:
    world = LittleWorld(node("n1"), reservation("r", cpu="4"), pod("owner", "a", cpu="4"))
    world.delete("Pod", "owner")
    assert (world.phase("r"), world.owners("r")) == ("Succeeded", ["owner"])
    assert free(world)["cpu"] == 16000
    world.put(pod("owner", "a", uid="another", cpu="4"))
    assert (world.node_of("owner"), world.drawn("owner")) == ("n1", "")


def test_reusable_reservation_gets_back_what_an_owner_leaves() -> None:
    world = LittleWorld(node("n1"), reservation("r", cpu="8", allocateOnce=False))
    world.put(pod("p1", "a", cpu="4"))
    assert world.status("r")["allocated"] == {"cpu": "4"}
    world.delete("Pod", "p1")
    assert (world.phase("r"), world.owners("r")) == ("Available", [])
    assert world.status("r").get("allocated", {}) == {}
    assert free(world)["cpu"] == 8000


def test_owner_goes_where_its_reservation_is() -> None:
    world = LittleWorld(node("n1", cpu="64"), node("n2"), pod("filler", cpu="40"))
    world.put(reservation("r", cpu="4", pod={"nodeName": "n2"}))
    assert world.status("r")["nodeName"] == "n2"
    world.put(pod("owner", "a", cpu="4"))
    assert (world.node_of("owner"), world.drawn("owner")) == ("n2", "r")


def test_reservation_that_ends_up_fullest_is_used() -> None:
    world = LittleWorld(node("n1", cpu="64"))
    world.put(reservation("big", cpu="16"), reservation("small", cpu="5"))
    world.put(pod("owner", "a", cpu="4"))
    assert world.drawn("owner") == "small"


def test_reservation_that_serves_more_of_the_request_is_used() -> None:
    world = LittleWorld(node("n1"), node("n2"))
    world.put(reservation("part", cpu="2", pod={"nodeName": "n1"}))
    world.put(reservation("whole", cpu="4", pod={"nodeName": "n2"}))
    world.put(pod("owner", "a", cpu="4"))
    assert (world.node_of("owner"), world.drawn("owner")) == ("n2", "whole")


@pytest.mark.parametrize(
    ("asked", "drawn"),
    [
        pytest.param("4", "small", id="fills the small one"),
        pytest.param("6", "large", id="more than the small one has"),
        pytest.param("12", "large", id="more than either, and more of it"),
    ],
)
def test_what_exceeds_a_reservation_does_not_count_as_filling_it(asked: str, drawn: str) -> None:
    world = LittleWorld(node("n1"), reservation("small", cpu="4"), reservation("large", cpu="8"))
    world.put(pod("p", "a", cpu=asked))
    assert world.drawn("p") == drawn


def test_order_comes_before_everything() -> None:
    world = LittleWorld(node("n1"), node("n2"))
    order = "scheduling.koordinator.sh/reservation-order"
    world.put(reservation("fits", cpu="4", pod={"nodeName": "n1"}, labels={order: "7"}))
    world.put(reservation("first", cpu="1", pod={"nodeName": "n2"}, labels={order: "3"}))
    world.put(pod("owner", "a", cpu="4"))
    assert world.drawn("owner") == "first"


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
    world = LittleWorld(*ZONES)
    rooms = [
        reservation("second", cpu="2", labels={label: str(second)}, pod={"nodeName": "n1"}),
        reservation("first", cpu="8", labels={label: str(first)}, pod={"nodeName": "n2"}),
        reservation("unordered", cpu="2", pod={"nodeName": "n3"}),
    ]
    owners = [pod(f"p{i}", "a", cpu="2") for i in range(3)]
    if late:
        world.put(pod("early", "a", cpu="1"))
    for room in rooms:
        world.put(room)
    for owner in owners:
        world.put(owner)
    assert [world.drawn(f"p{i}") for i in range(3)] == ["first", "second", "unordered"]


def test_oldest_of_reusable_reservations_on_a_node_is_used() -> None:
    world = LittleWorld(node("n1"), reservation("old", cpu="8", allocateOnce=False)).wait(1)
    owners = [{"labelSelector": {"matchLabels": {"app": "a"}}}, {"object": {"name": "nobody"}}]
    world.put(reservation("young", cpu="4", allocateOnce=False, owners=owners))
    world.put(pod("p1", "a", cpu="4"))
    assert world.drawn("p1") == "old"


def test_same_reusable_reservation_does_not_go_to_the_same_node_twice() -> None:
    world = LittleWorld(node("n1"), reservation("r1", cpu="1", allocateOnce=False))
    world.put(reservation("r2", cpu="1", allocateOnce=False))
    assert world.phase("r2") == "Pending"
    assert world.condition("r2", "Scheduled")["message"] == (
        "0/1 nodes are available: 1 node(s) only one same reusable reservation can be scheduled on a "
        "same node."
    )
    world.put(node("n2"))
    assert world.status("r2")["nodeName"] == "n2"


@pytest.mark.parametrize("policy", ["", "Aligned"])
def test_owner_that_finds_nothing_left_is_an_ordinary_pod(policy: str) -> None:
    world = LittleWorld(
        node("n1"), reservation("r", cpu="4", allocateOnce=False, allocatePolicy=policy)
    )
    world.put(pod("p1", "a", cpu="4"), pod("p2", "a", cpu="4"))
    assert [world.drawn("p1"), world.drawn("p2")] == ["r", ""]
    assert world.node_of("p2") == "n1"


class TestRestricted:
    def test_reserved_resources_come_only_from_the_reservation(self) -> None:
        world = LittleWorld(node("n1"), reservation("r", cpu="4", allocatePolicy="Restricted"))
        world.put(pod("owner", "a", cpu="6"))
        assert world.node_of("owner") == ""
        assert "1 Reservation(s) Insufficient cpu" in world.message("owner")

    def test_other_resources_come_from_the_node(self) -> None:
        world = LittleWorld(node("n1"), reservation("r", cpu="4", allocatePolicy="Restricted"))
        world.put(pod("owner", "a", requests={"cpu": "4", "memory": "1Gi"}))
        assert world.drawn("owner") == "r"

    def test_other_nodes_stay_open(self) -> None:
        world = LittleWorld(
            node("n1"), reservation("r", cpu="4", allocatePolicy="Restricted"), node("n2")
        )
        world.put(pod("owner", "a", cpu="6"))
        assert (world.node_of("owner"), world.drawn("owner")) == ("n2", "")

    def test_when_it_is_used_up_owners_stay_out(self) -> None:
        world = LittleWorld(
            node("n1"), reservation("r", cpu="4", allocatePolicy="Restricted", allocateOnce=False)
        )
        world.put(pod("p1", "a", cpu="4"), pod("p2", "a", cpu="4"))
        assert [world.node_of("p1"), world.node_of("p2")] == ["n1", ""]
        world.delete("Pod", "p1").wait(11)
        assert world.drawn("p2") == "r"


OWNERS = [
    ({"object": {"name": "p", "namespace": "default"}}, True),
    ({"object": {"uid": "pod-p"}}, True),
    ({"object": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}, True),
    ({"object": {"kind": "Deployment", "name": "p"}}, False),
    ({"object": {"name": "p", "namespace": "other"}}, False),
    ({"object": {"name": "q"}}, False),
    ({"controller": {"kind": "ReplicaSet", "name": "web", "uid": "rs-1"}}, True),
    ({"controller": {"kind": "ReplicaSet", "name": "web", "namespace": "default"}}, True),
    ({"controller": {"name": "web", "namespace": "other"}}, False),
    ({"controller": {"uid": "rs-2"}}, False),
    ({"labelSelector": {"matchLabels": {"app": "a"}}}, True),
    (
        {
            "labelSelector": {
                "matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]
            }
        },
        True,
    ),
    ({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, False),
    ({"labelSelector": {}}, True),
    ({"object": {"name": "p"}, "labelSelector": {"matchLabels": {"app": "b"}}}, False),
    ({"object": {"name": "p"}, "controller": {"name": "web"}, "labelSelector": {}}, True),
]


@pytest.mark.parametrize(("owner", "matches"), OWNERS)
@pytest.mark.parametrize("pod_first", [True, False])
def test_owner_selectors(owner: dict[str, object], matches: bool, pod_first: bool) -> None:
    references = [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "web",
            "uid": "rs-1",
            "controller": True,
        }
    ]
    it = pod("p", "a", meta={"ownerReferences": references})
    world = LittleWorld()
    if pod_first:
        world.put(it)
    world.put(reservation("r", owners=[{"object": {"name": "nobody"}}, owner]))
    if not pod_first:
        world.put(it)
    world.put(node("n1", cpu="4")).wait(11)
    assert world.drawn("p") == ("r" if matches else "")


AFFINITY = "scheduling.koordinator.sh/reservation-affinity"


class TestReservationAffinity:
    def test_pod_must_use_a_reservation(self) -> None:
        world = LittleWorld(node("n1"))
        world.put(pod("p", "a", meta={"annotations": {AFFINITY: "{}"}}))
        assert world.message("p").startswith(
            "0/1 nodes are available: 1 node(s) no reservations match reservation affinity."
        )
        world.put(reservation("r", cpu="1")).wait(11)
        assert world.drawn("p") == "r"

    @pytest.mark.parametrize(
        ("affinity", "drawn"),
        [
            ('{"name": "two"}', "two"),
            ('{"reservationSelector": {"tier": "gold"}}', "two"),
            (
                '{"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": '
                '[{"matchExpressions": [{"key": "tier", "operator": "In", "values": ["tin"]}]}]}}',
                "one",
            ),
            (
                '{"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": '
                '[{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z2"]}]}]}}',
                "two",
            ),
            ('{"name": "three"}', ""),
        ],
    )
    def test_which_one(self, affinity: str, drawn: str) -> None:
        world = LittleWorld(*ZONES)
        world.put(reservation("one", cpu="2", labels={"tier": "tin"}, pod={"nodeName": "n1"}))
        world.put(reservation("two", cpu="2", labels={"tier": "gold"}, pod={"nodeName": "n2"}))
        world.put(pod("p", "a", meta={"annotations": {AFFINITY: affinity}}))
        assert world.drawn("p") == drawn

    def test_an_annotation_that_makes_no_sense_is_told(self) -> None:
        world = LittleWorld(node("n1"), reservation("r"))
        world.put(pod("p", "a", meta={"annotations": {AFFINITY: "{"}}))
        assert AFFINITY in world.message("p")


def test_pod_that_ignores_reservations_sees_only_free_room() -> None:
    world = LittleWorld(node("n1", cpu="4"), reservation("r", cpu="4"))
    ignoring = {"labels": {"app": "a", "scheduling.koordinator.sh/reservation-ignored": "true"}}
    world.put(pod("p", meta=ignoring, cpu="1"))
    assert world.node_of("p") == ""


@pytest.mark.parametrize(("asked", "drawn"), [("4", "r"), ("3", "")])
def test_exact_match(asked: str, drawn: str) -> None:
    world = LittleWorld(node("n1"), reservation("r", cpu="4"))
    exact = {"scheduling.koordinator.sh/exact-match-reservation": '{"resourceNames": ["cpu"]}'}
    world.put(pod("p", "a", cpu=asked, meta={"annotations": exact}))
    assert (world.node_of("p"), world.drawn("p")) == ("n1", drawn)


def test_taints_of_a_reservation_keep_pods_out_unless_tolerated() -> None:
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    world = LittleWorld(node("n1", cpu="4"), reservation("r", cpu="4", taints=[taint]))
    world.put(pod("p", "a", cpu="1"))
    assert world.node_of("p") == ""
    world.put(pod("q", "a", cpu="1", tolerations=[{"key": "team", "operator": "Exists"}]))
    assert world.drawn("q") == "r"


def test_reservation_closed_by_its_user_takes_no_owners() -> None:
    world = LittleWorld(node("n1", cpu="4"), reservation("r", cpu="4", unschedulable=True))
    world.put(pod("p", "a", cpu="1"))
    assert world.node_of("p") == ""
    world.edit("Reservation", "r", spec__unschedulable=False).wait(11)
    assert world.drawn("p") == "r"


def test_only_one_of_two_owners_gets_a_reservation_used_once() -> None:
    world = LittleWorld(node("n1", cpu="4"), reservation("r", cpu="4"))
    world.put(pod("p1", "a", cpu="4"), pod("p2", "a", cpu="4"))
    assert sorted(filter(None, (world.drawn("p1"), world.drawn("p2")))) == ["r"]


def test_a_refused_bind_gives_the_reservation_back() -> None:
    world = LittleWorld(node("n1", cpu="4"), reservation("r", cpu="4"))
    world.refuse.add("pod-p1")
    world.put(pod("p1", "a", cpu="4"))
    assert (world.phase("r"), world.node_of("p1")) == ("Available", "")
    world.wait(11)
    assert (world.phase("r"), world.drawn("p1")) == ("Succeeded", "r")


AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
MUST = {"annotations": {AFFINITY: "{}"}}


@pytest.mark.parametrize("requests", [{}, {"memory": "1Gi"}], ids=["nothing", "something else"])
@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_who_must_use_a_reservation_may_ask_for_nothing_of_it(
    requests: dict[str, str], policy: str
) -> None:
    world = LittleWorld(node("n1"), node("n2"))
    world.put(
        reservation("r", cpu="4", allocateOnce=False, allocatePolicy=policy, pod={"nodeName": "n2"})
    )
    world.put(pod("must", "a", meta=MUST, requests=requests), pod("may", "a", requests=requests))
    assert (world.node_of("must"), world.drawn("must")) == ("n2", "r")
    assert world.drawn("may") == ""
    assert world.owners("r") == ["must"]
    assert "allocated" not in world.status("r")


@pytest.mark.parametrize("text", ["", "null", "{}", '{"unknown": 1, "tolerations": null}'])
def test_an_affinity_that_says_nothing_wants_some_reservation(text: str) -> None:
    world = LittleWorld(node("n1"), pod("must", "a", meta={"annotations": {AFFINITY: text}}))
    assert "node(s) no reservations match reservation affinity" in world.message("must")
    world.put(reservation("r"))
    assert world.drawn("must") == "r"


@pytest.mark.parametrize("text", ["", "null", "{}", '{"resourceNames": []}'])
def test_an_exact_match_that_says_nothing_asks_for_nothing(text: str) -> None:
    exact = {"annotations": {"scheduling.koordinator.sh/exact-match-reservation": text}}
    world = LittleWorld(node("n1"), reservation("r", cpu="4")).put(pod("p", "a", meta=exact, cpu="1"))
    assert world.drawn("p") == "r"


def test_a_reserved_number_of_pods_is_kept_even_if_it_is_one() -> None:
    world = LittleWorld(node("n1"))
    strict: Raw = {"allocateOnce": False, "allocatePolicy": "Restricted"}
    world.put(reservation("r", requests={"cpu": "4", "pods": "1"}, **strict))
    world.put(pod("p", "a"), pod("q", "a", meta=MUST))
    assert world.drawn("p") == "r"
    assert "1 Reservation(s) Too many pods" in world.message("q")
    assert world.status("r")["allocatable"] == {"cpu": "4", "pods": "1"}
    assert world.status("r")["allocated"] == {"cpu": "1"}
    world.restart()
    world.settle().delete("Pod", "p")
    assert world.drawn("q") == "r"


def test_allocated_lists_what_owners_ask_for() -> None:
    world = LittleWorld(node("n1"), reservation("r", requests=RESERVED, allocateOnce=False))
    world.put(pod("p", "a", cpu="1"))
    assert world.status("r")["allocated"] == {"cpu": "1"}
    world.put(pod("q", "a", requests={"memory": "1Gi", "example.com/fpga": "0"}))
    assert world.status("r")["allocated"] == {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("listed", "drawn"),
    [
        pytest.param('["cpu"]', "r", id="memory may come from the node"),
        pytest.param('["cpu", "memory"]', "", id="neither may"),
        pytest.param('["example.com/other"]', "", id="of nothing it holds, so of all"),
        pytest.param("[]", "", id="of nothing, so of all"),
    ],
)
def test_restricted_may_be_about_some_resources(listed: str, drawn: str) -> None:
    options = {"scheduling.koordinator.sh/reservation-restricted-options": f'{{"resources": {listed}}}'}
    world = LittleWorld(node("n1"))
    world.put(
        reservation("r", requests=RESERVED, allocatePolicy="Restricted", annotations=options),
        pod("p", "a", requests={"cpu": "1", "memory": "5Gi"}),
    )
    assert world.drawn("p") == drawn


@pytest.mark.parametrize(
    ("arguments", "drawn"),
    [
        pytest.param({}, False, id="all that is reserved"),
        pytest.param({"ignoredResources": ["example.com/card"]}, True, id="but this one"),
        pytest.param({"ignoredResourceGroups": ["example.com"]}, True, id="but such"),
        pytest.param({"ignoredResourceGroups": ["example.org"]}, False, id="but others"),
    ],
)
def test_restricted_leaves_out_what_the_arguments_say(arguments: Raw, drawn: bool) -> None:
    profile = {
        "schedulerName": "holdfast-scheduler",
        "pluginConfig": [{"name": "Reservation", "args": arguments}],
    }
    config = {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}
    card = "example.com/card"
    played = play(
        node("n1", allocatable={card: "10"}),
        reservation("r", requests={"cpu": "4", card: "2"}, allocatePolicy="Restricted"),
        pod("p", "a", requests={"cpu": "1", card: "3"}),
        config=config,
    )
    assert ("p" in played.bound()) is drawn
