"""Templates where pods wait in queues, and in gangs."""

from harness.objects import ID, Raw, node, pod, requesting, required, reservation
from harness.world import World

QUEUE = "scheduling.volcano.sh/queue-name"


def queue(name: str) -> Raw:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name, "uid": f"queue-{name}"},
        "spec": {"weight": 1},
    }


def queued(raw: Raw, name: str) -> Raw:
    raw["metadata"].setdefault("annotations", {})[QUEUE] = name
    return raw


def test_pods_in_queues_get_their_reservations() -> None:
    world = World(node("n1"), queue("q1"), queue("q2"))
    pods = [queued(requesting(f"p{i}", app=f"a{i % 2}", cpu="2"), f"q{i % 2 + 1}") for i in range(4)]
    world.put(*pods, queued(pod("plain", cpu="1"), "q1"))
    assert all(world.reservation_of(f"p{i}") for i in range(4))
    assert len(world.reservations()) == 4
    assert world.node_of("plain") == "n1"


def test_the_reservation_of_a_pod_in_a_queue_is_taken_up_after_a_restart() -> None:
    made = reservation("r", cpu="4", labels={ID: "abc"}, allocateOnce=False, allocatePolicy="Aligned")
    asked = queued(requesting("p", requirement=required("abc", cpu="4")), "q1")
    world = World(node("n1", cpu="4"), queue("q1"))
    world.put(made, asked)
    assert world.reservation_of("p") == "r"
    assert world.phase("r") == "Available"


def test_members_of_a_gang_are_placed_with_what_there_is() -> None:
    gang = {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "2",
    }
    members = [requesting(f"m{i}") for i in range(2)]
    for raw in members:
        raw["metadata"]["annotations"].update(gang)
    world = World(node("n1"), *members)
    assert [world.node_of(f"m{i}") for i in range(2)] == ["n1", "n1"]
    assert world.reservations() == []
