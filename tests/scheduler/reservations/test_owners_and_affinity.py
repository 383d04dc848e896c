"""Who may use a reservation: by its owners, by what the pod wants, by taints."""

import pytest

from harness.objects import node, pod, reservation
from harness.world import World

ZONES = [node(f"n{i}", labels={"zone": f"z{i}"}) for i in (1, 2, 3)]
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
MUST = {"annotations": {AFFINITY: "{}"}}
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
    ({"controller": {"kind": "StatefulSet", "name": "web"}}, False),
    ({"controller": {"apiVersion": "apps/v1beta1", "name": "web"}}, False),
    ({"object": {"kind": "Pod", "namespace": "other"}}, False),
    ({"object": {"kind": "Pod", "namespace": "default"}}, True),
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
    it = pod("p", app="a", metadata={"ownerReferences": references})
    world = World()
    if pod_first:
        world.put(it)
    world.put(reservation("r", owners=[{"object": {"name": "nobody"}}, owner]))
    if not pod_first:
        world.put(it)
    world.put(node("n1", cpu="4")).wait(11)
    assert world.reservation_of("p") == ("r" if matches else "")


def test_pod_with_an_affinity_must_use_a_reservation() -> None:
    world = World(node("n1"))
    world.put(pod("p", app="a", metadata={"annotations": {AFFINITY: "{}"}}))
    assert world.message("p").startswith(
        "0/1 nodes are available: 1 node(s) no reservations match reservation affinity."
    )
    world.put(reservation("r", cpu="1")).wait(11)
    assert world.reservation_of("p") == "r"


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
def test_the_affinity_says_which_one(affinity: str, drawn: str) -> None:
    world = World(*ZONES)
    world.put(reservation("one", cpu="2", labels={"tier": "tin"}, pod={"nodeName": "n1"}))
    world.put(reservation("two", cpu="2", labels={"tier": "gold"}, pod={"nodeName": "n2"}))
    world.put(pod("p", app="a", metadata={"annotations": {AFFINITY: affinity}}))
    assert world.reservation_of("p") == drawn


def test_an_affinity_that_makes_no_sense_is_told() -> None:
    world = World(node("n1"), reservation("r"))
    world.put(pod("p", app="a", metadata={"annotations": {AFFINITY: "{"}}))
    assert AFFINITY in world.message("p")


@pytest.mark.parametrize("text", ["", "null", "{}", '{"unknown": 1, "tolerations": null}'])
def test_an_affinity_that_says_nothing_wants_some_reservation(text: str) -> None:
    world = World(node("n1"), pod("must", app="a", metadata={"annotations": {AFFINITY: text}}))
    assert "node(s) no reservations match reservation affinity" in world.message("must")
    world.put(reservation("r"))
    assert world.reservation_of("must") == "r"


@pytest.mark.parametrize("requests", [{}, {"memory": "1Gi"}], ids=["nothing", "something else"])
@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_who_must_use_a_reservation_may_ask_for_nothing_of_it(
    requests: dict[str, str], policy: str
) -> None:
    world = World(node("n1"), node("n2"))
    world.put(
        reservation("r", cpu="4", allocateOnce=False, allocatePolicy=policy, pod={"nodeName": "n2"})
    )
    world.put(
        pod("must", app="a", metadata=MUST, requests=requests), pod("may", app="a", requests=requests)
    )
    assert (world.node_of("must"), world.reservation_of("must")) == ("n2", "r")
    assert world.reservation_of("may") == ""
    assert world.owners("r") == ["must"]
    assert "allocated" not in world.status("r")


def test_pod_that_ignores_reservations_sees_only_free_capacity() -> None:
    world = World(node("n1", cpu="4"), reservation("r", cpu="4"))
    ignoring = {"labels": {"app": "a", "scheduling.koordinator.sh/reservation-ignored": "true"}}
    world.put(pod("p", metadata=ignoring, cpu="1"))
    assert world.node_of("p") == ""


@pytest.mark.parametrize(("asked", "drawn"), [("4", "r"), ("3", "")])
def test_exact_match(asked: str, drawn: str) -> None:
    world = World(node("n1"), reservation("r", cpu="4"))
    exact = {"scheduling.koordinator.sh/exact-match-reservation": '{"resourceNames": ["cpu"]}'}
    world.put(pod("p", app="a", cpu=asked, metadata={"annotations": exact}))
    assert (world.node_of("p"), world.reservation_of("p")) == ("n1", drawn)


@pytest.mark.parametrize("text", ["", "null", "{}", '{"resourceNames": []}'])
def test_an_exact_match_that_says_nothing_asks_for_nothing(text: str) -> None:
    exact = {"annotations": {"scheduling.koordinator.sh/exact-match-reservation": text}}
    world = World(node("n1"), reservation("r", cpu="4")).put(pod("p", app="a", metadata=exact, cpu="1"))
    assert world.reservation_of("p") == "r"


def test_taints_of_a_reservation_keep_pods_out_unless_tolerated() -> None:
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    world = World(node("n1", cpu="4"), reservation("r", cpu="4", taints=[taint]))
    world.put(pod("p", app="a", cpu="1"))
    assert world.node_of("p") == ""
    world.put(pod("q", app="a", cpu="1", tolerations=[{"key": "team", "operator": "Exists"}]))
    assert world.reservation_of("q") == "r"


def test_reservation_closed_by_its_user_takes_no_owners() -> None:
    world = World(node("n1", cpu="4"), reservation("r", cpu="4", unschedulable=True))
    world.put(pod("p", app="a", cpu="1"))
    assert world.node_of("p") == ""
    world.edit("Reservation", "r", spec__unschedulable=False).wait(11)
    assert world.reservation_of("p") == "r"
