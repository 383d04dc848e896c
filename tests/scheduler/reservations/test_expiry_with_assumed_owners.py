"""A reservation that ends while pods have their place through it but are not bound yet: a bind that is
under way is waited for, a pod that waits in Permit gives its place up, and nobody else gets in."""

from collections.abc import Callable
from typing import Any, Self

import pytest

from harness.objects import Raw, migration, node, pod, replica, reservation, running
from harness.permit_gate import Gate
from harness.world import World
from holdfast.plugin.testing import Cluster
from holdfast.plugin.testing import node as a_node
from holdfast.plugin.testing import pod as a_pod
from holdfast.scheduler.cluster.decisions import Bind, Decision
from holdfast.scheduler.cluster.events import BindRefused
from scheduler.controllers.migrations import RESERVATION

NOT_ACTIVE = "reservation is not active"


class SlowWorld(World):
    """Holds binds back until it is told to carry them out."""

    held: list[Bind]

    def _carry_out(self, decision: Decision) -> None:
        if not isinstance(decision, Bind):
            super()._carry_out(decision)
            return
        if not hasattr(self, "held"):
            self.held = []
        self.held.append(decision)

    def carry_on(self) -> Self:
        held, self.held = self.held, []
        for decision in held:
            super()._carry_out(decision)
        return self.settle()

    def refuse_binds(self) -> Self:
        held, self.held = self.held, []
        for decision in held:
            self._feed(BindRefused(decision.pod.uid, "no"))
        return self.settle()


def slow_world(**spec: Any) -> SlowWorld:
    """A pod is being bound through a reservation for six that ends after a minute."""
    it = SlowWorld(node("n1", cpu="8"), reservation("r", cpu="6", ttl="60s", **spec))
    it.put(pod("owner", app="a", cpu="2"))
    assert [decision.pod.name for decision in it.held] == ["owner"]
    return it


@pytest.mark.parametrize("once", [True, False])
def test_it_expires_once_the_bind_under_way_is_done(once: bool) -> None:
    it = slow_world(allocateOnce=once)
    it.wait(90)
    assert it.phase("r") == "Available"
    it.carry_on()
    assert it.reservation_of("owner") == "r"
    assert (it.phase("r"), it.owners("r")) == ("Succeeded" if once else "Failed", ["owner"])


def test_it_expires_once_the_bind_under_way_is_refused() -> None:
    it = slow_world(allocateOnce=False)
    it.wait(90)
    it.refuse_binds()
    assert it.phase("r") == "Failed"
    it.wait(20).carry_on()
    assert (it.node_of("owner"), it.reservation_of("owner")) == ("n1", "")


def test_it_expires_once_the_pod_being_bound_is_deleted() -> None:
    it = slow_world(allocateOnce=False)
    it.wait(90)
    it.delete("Pod", "owner")
    assert it.phase("r") == "Failed"


def test_after_its_time_it_takes_no_more_owners() -> None:
    it = slow_world(allocateOnce=False)
    it.wait(90).put(pod("late", app="a", cpu="4"))
    it.carry_on()
    assert (it.reservation_of("owner"), it.phase("r")) == ("r", "Failed")
    it.wait(20).carry_on()
    assert (it.node_of("late"), it.reservation_of("late")) == ("n1", "")


def test_the_reservation_of_a_move_that_fails_is_deleted_once_the_bind_under_way_is_done() -> None:
    nodes = [node("n1", cpu="4"), node("n2", cpu="4")]
    it = SlowWorld(*nodes, running(replica("web", cpu="3"), "n1"))
    it.eviction_refusal = "not yet"
    it.put(migration(ttl="60s"))
    it.put(replica("another", cpu="3"))
    assert [decision.pod.name for decision in it.held] == ["another"]
    it.wait(60)
    assert it.outcome() == ("Failed", "Timeout", "Abort job caused by timeout")
    assert it.reservation_names() == [RESERVATION]
    it.carry_on()
    assert (it.node_of("another"), it.reservation_of("another")) == ("n2", RESERVATION)
    assert it.reservation_names() == []


def test_a_move_fails_as_soon_as_its_pod_is_gone() -> None:
    """Another pod of its name, by another uid, is not the one to move."""
    nodes = [node("n1", cpu="4"), node("n2", cpu="4")]
    it = World(*nodes, running(pod("web", cpu="3"), "n1"), running(pod("full", cpu="2"), "n2"))
    it.put(migration())
    assert it.reservation_names() == [RESERVATION]
    it.delete("Pod", "web")
    assert it.outcome() == (
        "Failed",
        "MissingPod",
        'Abort job caused by missing Pod "default/web"',
    )
    assert it.reservation_names() == []
    it.put(running(pod("other", cpu="2"), "n1"), pod("web", uid="another", cpu="3"))
    it.delete("Pod", "full")
    assert (it.node_of("web"), it.reservation_of("web")) == ("n2", "")


def waiting(**spec: Any) -> Cluster:
    """A pod waits in Permit for its place in a reservation that ends after a minute."""
    cluster = Cluster(Gate).add(a_node("a", cpu=4))
    cluster.add(free_reservation("free-r", ttl="60s", **spec)).schedule()
    cluster.add(a_pod("owner", cpu=2, labels={"app": "a"})).schedule()
    assert cluster.waiting() == {"owner": "a"}
    return cluster


def free_reservation(name: str, **spec: Any) -> Raw:
    return reservation(name, cpu="2", allocateOnce=False, **spec)


def delete(cluster: Cluster) -> None:
    cluster.delete("Reservation/free-r")


def expire(cluster: Cluster) -> None:
    cluster.advance(60)


@pytest.mark.parametrize("end", [delete, expire])
def test_a_pod_that_waits_in_permit_gives_its_place_up(end: Callable[[Cluster], None]) -> None:
    cluster = waiting()
    cluster.add(a_node("b", cpu=2, taints=["t:NoSchedule"]))
    end(cluster)
    cluster.schedule()
    assert "owner" not in cluster.placed()
    events = [event.message for event in cluster.events() if event.reason == "FailedScheduling"]
    assert NOT_ACTIVE in events
    cluster.plugin().is_open = True
    cluster.add(a_node("c", cpu=1)).advance(30)
    assert "owner" in cluster.placed()
    assert "scheduling.koordinator.sh/reservation-allocated" not in annotations(cluster, "owner")


def annotations(cluster: Cluster, name: str) -> dict[str, str]:
    (found,) = [raw for raw in cluster.objects() if raw["metadata"]["name"] == name]
    return dict(found["metadata"].get("annotations") or {})


def test_a_pod_that_waits_in_permit_gives_a_preempted_reservation_up_at_once() -> None:
    cluster = waiting(labels={"koordinator.sh/priority": "1"})
    labels = {"koordinator.sh/priority": "9", "scheduling.koordinator.sh/can-preempt": "true"}
    cluster.add(free_reservation("free-high", pod={}, app="b", labels=labels, requests={"cpu": "4"}))
    cluster.advance(10)
    phases = {
        raw["metadata"]["name"]: raw["status"]["phase"]
        for raw in cluster.objects()
        if raw["kind"] == "Reservation"
    }
    assert phases == {"free-high": "Available"}
    assert cluster.waiting() == {} and cluster.pending() == ["owner"]


def test_a_pod_that_waits_in_permit_is_not_evicted_to_be_moved() -> None:
    """It has no node yet, and so is its own replacement."""
    cluster = Cluster(Gate).add(a_node("a", cpu=4), a_node("b", cpu=4), a_pod("web", cpu=2))
    cluster.schedule()
    assert list(cluster.waiting()) == ["web"]
    move = migration(pod="web", reservationOptions={"template": {"metadata": {"name": "free-room"}}})
    cluster.add(move).advance(5)
    assert list(cluster.waiting()) == ["web"]
    cluster.plugin().is_open = True
    cluster.add(a_node("c", cpu=1)).advance(30)
    assert "web" in cluster.placed()
    found = {raw["kind"]: raw for raw in cluster.objects()}
    assert found["PodMigrationJob"]["status"]["phase"] == "Succeeded"
    assert "Reservation" not in found
