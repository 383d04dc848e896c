"""A victim that waits in Permit is not deleted: it gives up its place, and is tried again later."""

from typing import Any

import pytest

from harness.permit_gate import Gate
from holdfast.metrics.scheduler_metrics import SchedulingMetrics
from holdfast.plugin import Outcome, PodRecord
from holdfast.plugin.testing import Cluster, node, pod
from holdfast.scheduler.framework.interface import ClusterPlugin

GANG = "gang.scheduling.koordinator.sh/"
PREEMPTED = "0/1 nodes are available: 1 preempted."


def stage(*objects: Any) -> Cluster:
    return Cluster(Gate).add(*objects)


def member(name: str, least: int, gang: str = "g", **more: Any) -> dict[str, Any]:
    says = {GANG + "name": gang, GANG + "min-available": str(least)}
    return pod(name, cpu=2, annotations=says, **more)


def uids(cluster: Cluster) -> dict[str, str]:
    pods = [raw["metadata"] for raw in cluster.objects() if raw["kind"] == "Pod"]
    return {metadata["name"]: metadata["uid"] for metadata in pods}


def reservations(cluster: Cluster) -> list[str]:
    return [raw["metadata"]["name"] for raw in cluster.objects() if raw["kind"] == "Reservation"]


def test_the_preemptor_takes_the_place_at_once_and_the_victim_keeps_its_object() -> None:
    cluster = stage(node("a", cpu=2), pod("low", cpu=2))
    cluster.schedule()
    before = uids(cluster)
    cluster.add(pod("free-high", cpu=2, priority=10))
    assert cluster.schedule() == {"free-high": "a"}
    assert cluster.waiting() == {} and cluster.pending() == ["low"]
    assert uids(cluster)["low"] == before["low"]
    assert cluster.plugin().held == {"free-high"}
    (low,) = [raw for raw in cluster.objects() if raw["metadata"]["name"] == "low"]
    (condition,) = low["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    assert condition["message"] == PREEMPTED
    events = {event.reason: event.message for event in cluster.events()}
    assert events["Preempted"].startswith("Preempted by pod ")


def test_the_victim_is_tried_again_after_its_back_off() -> None:
    cluster = stage(node("a", cpu=2), pod("low", cpu=2))
    cluster.schedule()
    cluster.add(pod("free-high", cpu=2, priority=10), node("b", cpu=2, taints=["t:NoSchedule"]))
    cluster.schedule()
    cluster.update(node("b", cpu=2)).schedule()
    assert cluster.waiting() == {}
    cluster.advance(2)
    assert cluster.waiting() == {"low": "b"}
    cluster.plugin().is_open = True
    assert cluster.add(node("c", cpu=1)).schedule() == {"low": "b"}


def test_nothing_of_a_hold_is_left() -> None:
    cluster = stage(node("a", cpu=2), pod("low", cpu=2))
    cluster.schedule()
    cluster.add(pod("free-high", cpu=2, priority=10)).advance(30)
    assert cluster.placed() == {"free-high": "a"}
    assert reservations(cluster) == []


def test_a_preemptor_may_wait_in_permit_itself() -> None:
    cluster = stage(node("a", cpu=2), pod("low", cpu=2))
    cluster.schedule()
    cluster.add(pod("high", cpu=2, priority=10)).advance(30)
    assert cluster.waiting() == {"high": "a"} and "low" in cluster.pending()
    assert cluster.plugin().held == {"high"}


class GateOfHolds(Gate, ClusterPlugin):
    """Makes preemption holds wait as well, as plugins of the cluster's own state can."""

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        is_hold = pod.name.startswith("preempted-for-")
        return Outcome(wait=5.0) if is_hold and not self.is_open else super().permit(pod, row)


@pytest.mark.parametrize("is_permitted", [True, False])
def test_no_more_victims_are_sought_while_the_hold_waits_in_permit(is_permitted: bool) -> None:
    """The hold takes the place of the victim that is gone, so the preemptor does not fit there yet."""
    slow = {"sim.holdfast.io/stops-in": "3s"}
    lows = [pod(f"free-low-{name}", cpu=2, nodeName=name, annotations=slow) for name in "ab"]
    cluster = Cluster(GateOfHolds).add(node("a", cpu=2), node("b", cpu=2), *lows)
    cluster.add(pod("free-high", cpu=2, priority=10)).schedule()
    assert len(reservations(cluster)) == 1
    cluster.advance(4)
    cluster.plugin().is_open = is_permitted
    cluster.advance(30)
    assert len(uids(cluster)) == 2, "one victim is enough"
    assert "free-high" in cluster.placed()


class Register(Gate):
    """Notes about which pods it is asked."""

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        self.held.add(f"asked about {pod.name}")
        return super().permit(pod, row)


def test_plugins_are_asked_about_the_preemptor_not_about_its_hold() -> None:
    """A plugin that makes each new pod wait would refuse every hold, and the preemptor with it."""
    slow = {"sim.holdfast.io/stops-in": "3s"}
    low = pod("free-low", cpu=2, nodeName="a", annotations=slow)
    cluster = Cluster(Register).add(node("a", cpu=2), low)
    cluster.add(pod("free-high", cpu=2, priority=10)).schedule()
    assert len(reservations(cluster)) == 1
    cluster.advance(10)
    assert cluster.placed() == {"free-high": "a"}
    asked = [each for each in cluster.plugin().held if each.startswith("asked")]
    assert asked == ["asked about free-high"]


def test_of_two_victims_only_the_one_that_runs_is_deleted() -> None:
    cluster = stage(node("a", cpu=4), pod("free-runs", cpu=2), pod("low", cpu=2))
    cluster.schedule()
    cluster.add(pod("free-high", cpu=4, priority=10)).advance(60)
    assert cluster.placed() == {"free-high": "a"}
    assert sorted(uids(cluster)) == ["free-high", "low"]


def test_a_victim_that_waits_no_more_is_deleted() -> None:
    cluster = stage(node("a", cpu=2), pod("low", cpu=2))
    cluster.schedule()
    cluster.plugin().is_open = True
    cluster.add(pod("free-high", cpu=2, priority=10)).advance(60)
    assert sorted(uids(cluster)) == ["free-high"]


@pytest.mark.parametrize("cpu", [2, 4])
def test_a_gang_that_waits_gives_up_all_its_places(cpu: int) -> None:
    cluster = stage(node("a", cpu=2), node("b", cpu=2), member("free-0", 2), member("g-1", 2))
    cluster.schedule()
    before = uids(cluster)
    assert len(cluster.waiting()) == 2
    cluster.add(pod("free-high", cpu=2, priority=10))
    assert sorted(cluster.schedule()) == ["free-high"]
    assert cluster.waiting() == {} and cluster.plugin().held == {"free-high"}
    assert {name: uids(cluster)[name] for name in before} == before
    cluster.plugin().is_open = True
    cluster.add(node("c", cpu=cpu)).advance(20)
    assert sorted(cluster.placed()) == ["free-0", "free-high", "g-1"]


def test_a_member_beyond_those_its_gang_needs_gives_up_its_place_alone() -> None:
    cluster = stage(node("a", cpu=2), node("b", cpu=2), member("free-0", 1), member("g-1", 1))
    assert sorted(cluster.schedule()) == ["free-0"]
    ((name, where),) = cluster.waiting().items()
    cluster.add(pod("free-high", cpu=2, priority=10))
    assert cluster.schedule() == {"free-high": where}
    assert sorted(uids(cluster)) == ["free-0", "free-high", name]
    assert cluster.messages()[name] == PREEMPTED
    cluster.add(node("c", cpu=2)).advance(2)
    assert cluster.waiting() == {name: "c"}


def test_members_that_run_go_with_one_that_waits_and_that_they_need() -> None:
    """A part of a gang is of no use; the one that never ran keeps its object all the same."""
    cluster = stage(node("a", cpu=2), node("b", cpu=2))
    cluster.add(member("free-0", 2), member("free-1", 2)).schedule()
    assert sorted(cluster.placed()) == ["free-0", "free-1"]
    cluster.delete("Pod/free-1").add(member("g-1", 2)).advance(5)
    assert list(cluster.waiting()) == ["g-1"]
    cluster.add(pod("free-high", cpu=2, priority=10), pod("free-higher", cpu=2, priority=10))
    cluster.advance(60)
    assert sorted(cluster.placed()) == ["free-high", "free-higher"]
    assert "g-1" in uids(cluster) and "free-0" not in uids(cluster)


def test_a_gang_preempts_pods_that_wait_and_pods_that_run() -> None:
    cluster = stage(node("a", cpu=2), node("b", cpu=2), pod("free-runs", cpu=2), pod("low", cpu=2))
    cluster.schedule()
    assert list(cluster.waiting()) == ["low"]
    cluster.add(member("free-0", 2, priority=10), member("free-1", 2, priority=10)).advance(60)
    assert sorted(cluster.placed()) == ["free-0", "free-1"]
    assert sorted(uids(cluster)) == ["free-0", "free-1", "low"]


def test_a_gang_preempts_a_gang_that_waits_on_both_nodes() -> None:
    low = [member(f"low-{i}", 2) for i in range(2)]
    cluster = stage(node("a", cpu=2), node("b", cpu=2), *low)
    cluster.schedule()
    assert sorted(cluster.waiting()) == ["low-0", "low-1"]
    high = [member(f"free-{i}", 2, priority=10, gang="h") for i in range(2)]
    cluster.add(*high).advance(60)
    assert sorted(cluster.placed()) == ["free-0", "free-1"]
    assert sorted(uids(cluster)) == ["free-0", "free-1", "low-0", "low-1"]


def test_a_pod_that_waits_for_its_reservation_to_be_created_frees_capacity_for_another_owner() -> None:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "dynamicReservation": {"provisioner": "external", "provisionTimeout": "60s"},
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "Gate"}]}}}],
    }
    cluster = Cluster(Gate, config=config).add(node("a", cpu=2))
    cluster.plugin().is_open = True
    template = '{"owners": [{"labelSelector": {"matchLabels": {"team": "b"}}}]}'
    asks = {"scheduling.koordinator.sh/reservation-template": template}
    cluster.add(pod("low", cpu=2, labels={"team": "b"}, annotations=asks)).schedule()
    assert cluster.waiting() == {"low": "a"}
    before = uids(cluster)
    cluster.add(pod("high", cpu=2, priority=10, labels={"team": "b"}))
    assert cluster.schedule() == {"high": "a"}
    assert uids(cluster)["low"] == before["low"] and cluster.messages()["low"] == PREEMPTED
    cluster.delete("Pod/high").advance(10)
    assert cluster.waiting() == {"low": "a"}


QUEUE = "scheduling.volcano.sh/queue-name"


def queue(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": metadata,
        "spec": {"weight": 1, **spec},
    }


def queued(name: str, of: str, **more: Any) -> dict[str, Any]:
    annotations = {QUEUE: of, **more.pop("annotations", {})}
    return pod(name, cpu=2, annotations=annotations, **more)


def borrowed(*pods: Any) -> Cluster:
    """A queue has more than its share, which another one reclaims."""
    cluster = stage(node("a", cpu=4), queue("one"), queue("two"), *pods)
    cluster.schedule()
    return cluster


def test_a_victim_of_reclaim_that_waits_is_not_evicted() -> None:
    cluster = borrowed(queued("free-0", "one"), queued("one-1", "one"))
    assert cluster.waiting() == {"one-1": "a"}
    before = uids(cluster)
    cluster.add(queued("free-two", "two"))
    assert cluster.schedule() == {"free-two": "a"}
    assert {name: uids(cluster)[name] for name in before} == before
    assert cluster.messages()["one-1"] == PREEMPTED
    assert cluster.plugin().held == {"free-0", "free-two"}
    cluster.add(node("b", cpu=2)).advance(20)
    assert cluster.waiting() == {"one-1": "b"}


def test_a_victim_of_reclaim_that_runs_is_evicted() -> None:
    cluster = borrowed(queued("free-0", "one"), queued("free-1", "one"))
    cluster.add(queued("free-two", "two")).advance(60)
    assert "free-two" in cluster.placed() and len(cluster.placed()) == 2
    assert len(uids(cluster)) == 2


def test_a_gang_that_waits_gives_up_all_its_places_to_reclaim() -> None:
    members = [
        queued(name, "one", annotations={GANG + "name": "g", GANG + "min-available": "2"})
        for name in ("free-0", "g-1")
    ]
    cluster = borrowed(*members)
    assert len(cluster.waiting()) == 2
    before = uids(cluster)
    cluster.add(queued("free-two", "two")).advance(20)
    assert cluster.placed() == {"free-two": "a"}
    assert {name: uids(cluster)[name] for name in before} == before
    assert cluster.plugin().held == {"free-two"}


def test_victims_that_wait_are_counted_as_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = stage(node("a", cpu=4), pod("free-runs", cpu=2), pod("low", cpu=2))
    cluster.schedule()
    metrics, round_ = SchedulingMetrics(cluster.scheduler), cluster.scheduler.round

    def counted(*args: Any, **more: Any) -> Any:
        decisions = round_(*args, **more)
        metrics.round_done(0.0, decisions)
        return decisions

    monkeypatch.setattr(cluster.scheduler, "round", counted)
    cluster.add(pod("free-high", cpu=4, priority=10)).advance(10)
    text = metrics.text().decode()
    assert "scheduler_preemption_victims_count 1.0" in text
    assert "scheduler_preemption_victims_sum 2.0" in text


@pytest.mark.parametrize(("least", "stay"), [(1, ["free-0"]), (2, [])])
def test_a_member_that_waits_does_not_stand_in_for_one_that_is_bound(
    least: int, stay: list[str]
) -> None:
    """It may be refused, which would leave the gang half bound."""
    nodes = [node(name, cpu=2, labels={"name": name}) for name in "abc"]
    members = [
        member(name, least, nodeSelector={"name": at})
        for name, at in (("free-0", "a"), ("free-1", "b"), ("g-2", "c"))
    ]
    cluster = stage(*nodes, *members)
    assert sorted(cluster.schedule()) == ["free-0", "free-1"]
    assert cluster.waiting() == {"g-2": "c"}
    cluster.add(pod("free-high", cpu=2, priority=10, nodeSelector={"name": "b"})).advance(60)
    placed = cluster.placed()
    assert placed.pop("free-high") == "b"
    assert sorted(placed) == stay
