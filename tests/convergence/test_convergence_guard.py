"""Whatever a plugin or controller does, a round ends, and nothing is decided without end."""

from collections.abc import Iterator
from typing import ClassVar

import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver
from harness.scenarios import NODE, documents, joined, pod_text
from holdfast.local.setup import SchedulerFactory as Embedded
from holdfast.scheduler.actions.convergence import NOT_CONVERGING
from holdfast.scheduler.cluster.decisions import AnnotatePod, Decision, Emit, Nominate, ObjectRef
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.interface import FINE, ClusterPlugin, Nomination, Outcome, Trial
from holdfast.scheduler.state.cluster import Cluster
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulated_cluster import InvariantBroken
from holdfast.sim.simulation import Simulation
from reference.setup import Setup, document


class Refuser(ClusterPlugin):
    """Lets every node pass its filters, then refuses it, and reports that this may change any time."""

    name = "Refuser"
    wakes_on = Change.ANY
    asked: ClassVar[int] = 0

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        Refuser.asked += 1
        self.cluster.changed(Change.POD_LEFT)
        return Outcome("not here") if "fine" not in pod.cls.labels else FINE


class Wavering(ClusterPlugin):
    """Nominates one node after the other, whatever it is asked."""

    name = "Wavering"
    asked: ClassVar[int] = 0

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        Wavering.asked += 1
        self.cluster.changed(Change.ANY)
        return Nomination(f"n{Wavering.asked % 2}")


class Waking(ClusterPlugin):
    """Does nothing for a pod, and wakes everybody up each time it is asked."""

    name = "Waking"
    asked: ClassVar[int] = 0
    broken: ClassVar[bool] = True

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        Waking.asked += 1
        if Waking.broken:
            self.cluster.changed(Change.POD_LEFT)
        return Nomination()


class Flipping:
    """A controller that cannot make up its mind."""

    def __init__(self, about: ObjectRef) -> None:
        self._about, self._flips = about, 0

    def run(self, now: float) -> list[Decision]:
        self._flips += 1
        return [AnnotatePod(self._about, {"flip": "up" if self._flips // 2 % 2 else None})]

    def next_timer(self) -> float | None:
        return None


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    Refuser.asked = Wavering.asked = Waking.asked = 0
    Waking.broken = True
    yield


def with_plugins(*plugins: type[ClusterPlugin]) -> Driver:
    config = document([Setup()])
    config["profiles"][0]["plugins"]["multiPoint"]["enabled"] += [{"name": p.name} for p in plugins]
    driver = Driver((Setup(),), *plugins, config=config)
    return driver.add(*(make_node(f"n{i}").allocatable(cpu="2").obj() for i in range(2)))


def settle(driver: Driver, rounds: int = 300) -> list[Decision]:
    """Rounds at one instant until nothing is decided any more."""
    found = []
    for _ in range(rounds):
        decisions = driver.round()
        found += decisions
        if not decisions:
            return found
    raise AssertionError(f"decides without end: {decisions}")


def reported(decisions: list[Decision]) -> list[str]:
    return [d.about.name for d in decisions if isinstance(d, Emit) and d.reason == NOT_CONVERGING]


def test_a_plugin_that_refuses_what_its_filter_lets_pass() -> None:
    """The others are placed all the same; the pod is not lost, and tried again later."""
    driver = with_plugins(Refuser)
    driver.add(make_pod("p").cpu("1").obj(), make_pod("q").label("fine").cpu("1").obj())
    settle(driver)
    assert Refuser.asked < 200
    known = {pod.name: pod for pod in driver.scheduler.cluster.pods.values()}
    assert known["q"].row >= 0
    assert driver.queue.place(known["p"].uid) in ("backoff", "unschedulable")
    before = Refuser.asked
    for second in range(1, 60):
        driver.at(float(second))
        driver.scheduler.cluster.changed(Change.ANY)
        settle(driver)
    assert before < Refuser.asked < 10_000


def test_a_plugin_that_nominates_another_node_each_time() -> None:
    driver = with_plugins(Wavering).add(make_pod("p").cpu("5").obj())
    decisions = settle(driver)
    assert Wavering.asked < 200
    assert sum(isinstance(d, Nominate) for d in decisions) < 200
    assert set(reported(decisions)) == {"p"}
    due = driver.scheduler.next_timer()
    assert due is not None and 0 < due <= 10
    settle(driver.at(due))
    assert Wavering.asked < 400


def test_a_plugin_that_wakes_everybody_up() -> None:
    """The round ends; what changed is looked at again later."""
    pending = make_pod("p").cpu("5").obj()
    driver = with_plugins(Waking).add(pending)
    decisions = driver.round()
    assert Waking.asked < 100
    assert reported(decisions) == ["p"]
    (report,) = driver.scheduler.guard.take_reports()
    assert str(report.about) == "Pod/default/p" and "in one round" in report.message
    assert NOT_CONVERGING in driver.story(pending)
    assert driver.queued_in(pending) in ("backoff", "unschedulable")
    assert driver.scheduler.next_timer() == 1.0
    Waking.broken = False
    driver.update(make_node("n0").allocatable(cpu="8").obj())
    assert driver.binds(1.0) == {"p": "n0"}


def test_a_controller_that_flips() -> None:
    """What it decides is delayed, for longer and longer, and never dropped."""
    driver = Driver().add(make_node("n").obj())
    about = ObjectRef("Pod", "default", "p", "uid-p")
    driver.scheduler._controllers.append(Flipping(about))
    sent = []
    for _ in range(200):
        sent += [d for d in driver.round() if isinstance(d, AnnotatePod)]
    assert 8 < len(sent) < 60
    assert driver.scheduler.guard.found == {"Pod": 1}
    due = driver.scheduler.next_timer()
    assert due == 1.0
    late = [d for d in driver.round(due) if isinstance(d, AnnotatePod)]
    assert len(late) > 100
    gaps = []
    for _ in range(6):
        for _ in range(60):
            driver.round()
        due = driver.scheduler.next_timer()
        assert due is not None
        gaps.append(due - driver.now)
        driver.at(due)
    assert gaps == [2, 4, 8, 10, 10, 10]


def test_a_large_round_is_not_stopped() -> None:
    """Many pods come and go at one instant; each decision is another one."""
    driver = Driver().add(*(make_node(f"n{i}").allocatable(cpu="4").obj() for i in range(10)))
    pods = [make_pod(f"p{i}").cpu("1").obj() for i in range(400)]
    driver.add(*pods)
    settle(driver)
    for one in pods[:200]:
        driver.delete(one)
        driver.round()
    assert not driver.scheduler.guard.found


def test_simulate_names_the_objects_of_a_livelock() -> None:
    simulation = Simulation(read_scenario(documents(joined(NODE, pod_text("p", "9")))), Embedded.of())
    scheduler = simulation.world.scheduler

    class Flips(Flipping):
        def __init__(self, cluster: Cluster) -> None:
            self._cluster, self._flips = cluster, 0

        def run(self, now: float) -> list[Decision]:
            known = self._cluster.pod("default", "p")
            if known is None:
                return []
            self._about = known.ref
            return super().run(now)

    scheduler._controllers.append(Flips(scheduler.cluster))
    with pytest.raises(InvariantBroken) as broken:
        simulation.run()
    assert broken.value.problems[0].startswith(
        "livelock: Pod/default/p: AnnotatePod was decided repeatedly"
    )
    assert any("story of Pod/default/p" in line for line in broken.value.stories)
