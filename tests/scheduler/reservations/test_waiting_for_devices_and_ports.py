"""Which CPUs, devices and ports a Waiting reservation gets is decided when they are free."""

from typing import Any

import pytest

from harness.device_objects import device, gpu, minors, with_gpus
from harness.numa_objects import NUMA_SPEC, cpus, lsr, plain, reserved, topology, zones
from harness.numa_objects import world as with_cpus
from harness.objects import Raw, node, pod, reservation
from harness.scenarios import actions, play, step
from harness.world import World
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import FINE, Outcome, Plugin
from holdfast.scheduler.state.recount import validate_state
from scheduler.reservations.preempting_reservations import CAN_PREEMPT, GANG, PRIORITY, names
from scheduler.reservations.test_preemption_holds import phase_of_room, rooms

GPU = "koordinator.sh/gpu"
STATUS = "scheduling.koordinator.sh/resource-status"
HIGH = {PRIORITY: "9", CAN_PREEMPT: "true"}
LOW = {PRIORITY: "1"}
SINGLE = '{"numaTopologyPolicy": "SingleNUMANode"}'


def graceful(made: World) -> World:
    made.graceful = True
    return made


def on_gpu(name: str, percent: int = 100, app: str = "", **more: Any) -> Raw:
    return pod(name, app=app, requests={GPU: str(percent)}, **more)


def of_gpu(name: str, percent: int = 100, app: str = "own", **more: Any) -> Raw:
    return reservation(name, app=app, requests={GPU: str(percent)}, **more)


def one_numa_node(name: str, labels: dict[str, str], cpu: str = "8", **more: Any) -> Raw:
    template = {
        "metadata": {"annotations": {NUMA_SPEC: SINGLE}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
    }
    return reservation(name, app=name, template=template, labels=labels, **more)


def disjoint(made: World, *pods: str) -> bool:
    """Whether no CPU is written on two of them."""
    sets = [cpus(made, name) for name in pods]
    return all(sets) and sum(map(len, sets)) == len(set().union(*sets))


# Preemption holds


@pytest.mark.parametrize("restarts", [False, True])
def test_a_preemptor_gets_cpus_its_victim_leaves_and_no_others(restarts: bool) -> None:
    made = graceful(with_cpus(cpus=8)).put(lsr("a", "4")).put(lsr("b", "3"))
    made.put(lsr("c", "2", priority=6))
    assert phase_of_room(made, "c") == "Waiting"
    if restarts:
        made.restart()
        made.settle()
    made.delete("Pod", "b").wait(15)
    assert made.node_of("c") == "n1"
    assert disjoint(made, "a", "c")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_preemptor_gets_no_cpus_that_are_reserved_for_others(restarts: bool) -> None:
    made = graceful(with_cpus(cpus=8)).put(reserved("r", "2", "web", allocateOnce=False))
    made.put(lsr("v", "3")).put(lsr("o", "4", "web"))
    made.put(lsr("c", "4", priority=8))
    if restarts:
        made.restart()
        made.settle()
    made.delete("Pod", "v").wait(15)
    assert disjoint(made, "o", "c")
    assert not cpus(made, "c") & cpus(made, "r", "Reservation")


def test_a_hold_says_nothing_of_cpus_before_they_are_free() -> None:
    made = graceful(with_cpus(cpus=8)).put(lsr("a", "4")).put(lsr("b", "3"))
    made.put(lsr("c", "2", priority=6))
    assert STATUS not in rooms(made)["c"]["metadata"]["annotations"]


def test_a_hold_wants_its_cpus_as_the_preemptor_does() -> None:
    """Three CPUs on one NUMA node, not one here and two there."""
    made = graceful(with_cpus(cpus=8)).put(lsr("stays", "3", priority=9))
    made.put(lsr("l1", "2", priority=1)).put(lsr("l2", "2", priority=1))
    made.put(lsr("c", "3", priority=6, numa=SINGLE))
    made.delete("Pod", "l1").wait(15)
    assert phase_of_room(made, "c") == "Waiting"
    made.delete("Pod", "l2").wait(15)
    assert (made.node_of("c"), list(zones(made, "c"))) == ("n1", [1])


def test_nobody_gets_the_cpus_a_hold_waits_for() -> None:
    made = graceful(with_cpus(cpus=8)).put(lsr("a", "4")).put(lsr("b", "3"))
    made.put(lsr("c", "2", priority=6)).put(lsr("late", "1"))
    made.delete("Pod", "b").wait(15)
    assert disjoint(made, "a", "c", "late")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_preemptor_gets_the_gpu_its_victim_leaves(restarts: bool) -> None:
    made = graceful(with_gpus(2)).put(on_gpu("a", priority=5)).put(on_gpu("b", 60))
    made.put(on_gpu("c", priority=6, app="c"))
    assert phase_of_room(made, "c") == "Waiting"
    if restarts:
        made.restart()
        made.settle()
    victim = next(n for n in ("a", "b") if "deletionTimestamp" in made.objects["Pod", n]["metadata"])
    made.delete("Pod", victim).wait(15)
    stays = {"a": "b", "b": "a"}[victim]
    assert not set(minors(made, "c")) & set(minors(made, stays))


class Watched(World):
    """Takes note of the phases of each reservation as they are written."""

    phases: dict[str, list[str]]

    def _store(self, raw: Raw) -> None:
        if raw["kind"] == "Reservation":
            phase = (raw.get("status") or {}).get("phase", "Pending")
            phases = self.phases.setdefault(raw["metadata"]["name"], [])
            if phases[-1:] != [phase]:
                phases.append(phase)
        super()._store(raw)

    def start(self) -> None:
        self.phases = {}
        super().start()


def test_a_hold_is_available_before_it_has_succeeded() -> None:
    made = Watched(node("n1", cpu="4"), pod("low", cpu="4", priority=0))
    graceful(made).put(pod("high", cpu="4", priority=10))
    made.delete("Pod", "low").wait(15)
    assert list(made.phases.values()) == [["Pending", "Waiting", "Available", "Succeeded"]]


def test_a_hold_waits_for_the_port_its_victim_has() -> None:
    made = graceful(World(node("n1", cpu="8"))).put(pod("low", ports=[7777], priority=0))
    made.put(pod("high", ports=[7777], priority=10))
    assert phase_of_room(made, "high") == "Waiting"
    made.delete("Pod", "low").wait(15)
    assert (made.node_of("high"), phase_of_room(made, "high")) == ("n1", "Succeeded")


# Reservations that preempt


@pytest.mark.parametrize("eviction", ["", "Soft"])
@pytest.mark.parametrize("pre_allocation", [False, True])
@pytest.mark.parametrize("kind", ["gpu", "cpus", "numa"])
def test_a_reservation_of_particular_things_preempts(
    kind: str, pre_allocation: bool, eviction: str
) -> None:
    if kind == "gpu":
        objects = [node("n1"), device("n1", gpu(0))]
        low, high = of_gpu("low", app="low", labels=LOW), of_gpu("high", app="high", labels=HIGH)
    else:
        objects = [node("n1", cpu="8", memory="64Gi"), topology("n1", cpus=8, numa=1)]
        low, high = one_numa_node("low", LOW), one_numa_node("high", HIGH)
        if kind == "cpus":
            low, high = reserved("low", "8", labels=LOW), reserved("high", "8", labels=HIGH)
    high["spec"]["preAllocation"] = pre_allocation
    made = World(*objects, preemption={"eviction": eviction} if eviction else None)
    made.put(low).put(high)
    if eviction:
        assert made.phase("high") == "Waiting"
        made.delete("Reservation", "low")
    assert (names(made), made.phase("high")) == (["high"], "Available")
    if kind == "cpus":
        assert len(cpus(made, "high", "Reservation")) == 8
    elif kind == "numa":
        assert list(zones(made, "high", "Reservation")) == [0]
    else:
        assert minors(made, "high", "Reservation") == [0]


def test_a_gang_of_reservations_of_gpus_preempts() -> None:
    made = World(*(node(n) for n in ("n1", "n2")), *(device(n, gpu(0)) for n in ("n1", "n2")))
    made.put(of_gpu("l1", labels=LOW, app="x")).put(of_gpu("l2", labels=LOW, app="y"))
    gang = {f"{GANG}name": "g", f"{GANG}min-available": "2", f"{GANG}total-number": "2"}
    members = [of_gpu(name, labels=dict(HIGH), annotations=dict(gang)) for name in ("g1", "g2")]
    made.put(members[0]).put(members[1]).wait(30)
    assert (names(made), made.phase("g1"), made.phase("g2")) == (["g1", "g2"], *["Available"] * 2)


def test_victims_in_use_are_waited_for_on_the_node() -> None:
    made = graceful(with_gpus(1)).put(of_gpu("low", labels=LOW, app="low", allocateOnce=False))
    made.put(on_gpu("user", app="low")).put(of_gpu("high", labels=HIGH, app="high"))
    assert made.phase("high") == "Waiting"
    made.restart()
    made.settle()
    assert made.phase("high") == "Waiting"
    made.delete("Pod", "user").wait(15)
    assert (made.phase("high"), minors(made, "high", "Reservation")) == ("Available", [0])


def test_a_pre_allocating_preemptor_waits_on_its_node_at_once() -> None:
    made = World(node("n1", cpu="4")).put(pod("busy", cpu="2"))
    made.put(reservation("low", cpu="2", labels=LOW))
    made.put(reservation("high", app="h", cpu="4", labels=HIGH, preAllocation=True))
    assert (names(made), made.phase("high")) == (["high"], "Waiting")
    assert made.condition("high", "Ready").get("message", "") == ""
    made.put(pod("stranger", cpu="1")).wait(100)
    assert (made.node_of("stranger"), made.phase("high")) == ("", "Waiting")
    made.delete("Pod", "busy")
    assert made.phase("high") == "Available"


class Refusing(Plugin):
    """Lets no reservation named `high` take its place, at one step or the other."""

    name = "Refusing"
    permits = False

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self.asked = 0

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        return FINE if self.permits else self._answer(pod)

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        return self._answer(pod) if self.permits else FINE

    def _answer(self, pod: PodRecord) -> Outcome:
        if not pod.name.startswith("high"):
            return FINE
        self.asked += 1
        return Outcome("not here")


@pytest.mark.parametrize("permits", [False, True])
@pytest.mark.parametrize("gang", [False, True])
def test_a_refused_preemptor_is_not_tried_again_until_something_changes(
    gang: bool, permits: bool
) -> None:
    made = World(node("n1", cpu="4")).put(reservation("low", cpu="4", labels=LOW))
    refusing = Refusing(Handle(made.scheduler.cluster, "Refusing", ""), {})
    refusing.permits = permits
    profile = made.scheduler.profiles[0]
    profile.reserve.append(refusing)
    profile.reserving.append(refusing)
    profile.permit.append(refusing)
    terms = {f"{GANG}name": "g", f"{GANG}min-available": "2", f"{GANG}total-number": "2"}
    for name in ("high-1", "high-2") if gang else ("high",):
        it = reservation(name, app="h", cpu="2", labels=HIGH, annotations=dict(terms) if gang else {})
        made.put(it)
    asked = refusing.asked
    assert 0 < asked <= 4
    made.wait(60)
    assert refusing.asked == asked
    assert permits or "low" in names(made)  # a permit is asked for once it is gone


# Pre-allocations


def test_a_pre_allocation_takes_the_cpus_that_come_free() -> None:
    made = with_cpus(cpus=8).put(lsr("a", "4")).put(lsr("b", "3"))
    made.put(reserved("r", "2", "web", preAllocation=True)).put(lsr("o", "2", "web"))
    assert made.phase("r") == "Waiting"
    made.delete("Pod", "b").wait(15)
    assert (made.reservation_of("o"), disjoint(made, "a", "o")) == ("r", True)


@pytest.mark.parametrize("first", ["a", "b"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_pre_allocation_takes_the_gpu_that_comes_free(first: str, restarts: bool) -> None:
    made = with_gpus(2).put(on_gpu("a")).put(on_gpu("b", 60))
    made.put(of_gpu("r", preAllocation=True))
    assert (made.phase("r"), minors(made, "r", "Reservation")) == ("Waiting", [])
    if restarts:
        made.restart()
        made.settle()
    free = minors(made, first)
    made.delete("Pod", first)
    assert (made.phase("r"), minors(made, "r", "Reservation")) == ("Available", free)


def test_pre_allocations_of_gpus_are_served_oldest_first() -> None:
    made = with_gpus(2).put(on_gpu("a")).put(on_gpu("b"))
    made.put(of_gpu("z-old", preAllocation=True)).wait(5).put(of_gpu("a-new", preAllocation=True))
    made.delete("Pod", "b")
    assert (made.phase("z-old"), made.phase("a-new")) == ("Available", "Waiting")
    made.delete("Pod", "a")
    assert sorted(minors(made, n, "Reservation") for n in ("z-old", "a-new")) == [[0], [1]]


def test_no_stranger_gets_a_gpu_that_is_waited_for_in_another_unit() -> None:
    made = with_gpus(1).put(on_gpu("a", 40)).put(of_gpu("r", preAllocation=True))
    made.put(pod("stranger", requests={"koordinator.sh/gpu-memory-ratio": "30"}))
    assert made.node_of("stranger") == ""
    made.delete("Pod", "a")
    assert (made.phase("r"), made.node_of("stranger")) == ("Available", "")


def test_who_waits_is_in_the_way_of_no_owner() -> None:
    """What is reserved of a GPU is its owner's, whoever waits for the rest of it."""
    made = with_gpus(1).put(on_gpu("a", 60)).put(of_gpu("r", 40, "web"))
    made.put(of_gpu("w", 50, "late", preAllocation=True))
    assert made.phase("w") == "Waiting"
    made.put(on_gpu("o", 40, "web"))
    assert made.reservation_of("o") == "r"


def test_who_waits_for_a_numa_node_is_in_the_way_of_no_owner() -> None:
    made = with_cpus(cpus=8, numa=1).put(plain("a", "4", numa=SINGLE))
    made.put(one_numa_node("r", {}, "4")).put(one_numa_node("w", {}, "4", preAllocation=True))
    assert (made.phase("r"), made.phase("w")) == ("Available", "Waiting")
    it = plain("o", "4", numa=SINGLE)
    it["metadata"]["labels"] = {"app": "r"}
    made.put(it)
    assert made.reservation_of("o") == "r"


def test_a_gpu_that_becomes_well_ends_the_waiting() -> None:
    made = World(node("n1"), device("n1", gpu(0), gpu(1))).put(on_gpu("a"))
    made.put(on_gpu("b", 50)).put(of_gpu("r", preAllocation=True))
    assert made.phase("r") == "Waiting"
    made.put(device("n1", gpu(0), gpu(1), gpu(2)))
    assert (made.phase("r"), minors(made, "r", "Reservation")) == ("Available", [2])


def test_what_an_owner_has_goes_back_to_its_reservation_and_is_not_waited_for() -> None:
    """A reusable reservation keeps its CPUs when its owner ends: nobody can wait for them."""
    made = with_cpus(cpus=8).put(reserved("kept", "4", "web", allocateOnce=False))
    made.put(lsr("o", "4", "web")).put(lsr("a", "4"))
    made.put(reserved("r", "4", "other", preAllocation=True))
    made.delete("Pod", "o")
    assert made.phase("r") == "Waiting"
    theirs = cpus(made, "a")
    made.delete("Pod", "a")
    assert (made.phase("r"), cpus(made, "r", "Reservation")) == ("Available", theirs)


# What the state says of itself


def test_a_cpu_that_is_given_twice_is_noticed() -> None:
    made = with_cpus(cpus=8).put(lsr("a", "2")).put(lsr("b", "2"))
    manager = made.scheduler.cluster.managers.cpus
    assert validate_state(made.scheduler.cluster) == []
    manager.settled["pod-b"] = manager.settled["pod-a"]
    assert "Node/n1: CPU 0 is allocated to Pod/default/a and to Pod/default/b" in "; ".join(
        validate_state(made.scheduler.cluster)
    )


def test_a_gpu_that_is_given_twice_is_noticed() -> None:
    made = with_gpus(2).put(on_gpu("a")).put(on_gpu("b"))
    manager = made.scheduler.cluster.managers.devices
    assert validate_state(made.scheduler.cluster) == []
    manager.settled["pod-b"] = manager.settled["pod-a"]
    problems = "; ".join(validate_state(made.scheduler.cluster))
    assert "Node/n1: 200 % of gpu 0 are allocated" in problems


def test_what_others_wrote_is_theirs_to_answer_for() -> None:
    """Two pods that came with the same CPUs written on them are no fault of the scheduler."""
    made = with_cpus(cpus=8)
    for name in ("a", "b"):
        it = lsr(name, "2", nodeName="n1")
        it["metadata"]["annotations"] = {STATUS: '{"cpuset": "0-1"}'}
        made.put(it)
    assert validate_state(made.scheduler.cluster) == []


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", GPU])
@pytest.mark.parametrize("name", ["a", "z"])
def test_after_a_restart_a_hold_gets_no_gpu_of_a_pod_without_an_annotation(
    name: str, resource: str
) -> None:
    """Which GPU the pod has, which somebody else has bound, is nowhere written."""
    there = pod(name, requests={resource: "100" if resource == GPU else "1"}, nodeName="n1")
    starving = pod("starving", requests={GPU: "50"}, at="2s")
    config = actions(starvingJobTimeThreshold=5, reservedNodePercent=100)
    restart = step("40s", restart="scheduler")
    given = [node("n1", 8), device("n1", gpu(0)), there, starving, restart]
    played = play(given, config=config, until=100)
    assert played.times("starving") == [None]
    assert [raw["status"]["phase"] for raw in played.all("Reservation")] == ["Waiting"]


def bound_by_somebody(name: str, resource: str = "nvidia.com/gpu") -> Raw:
    """A pod that has a whole GPU; which one is nowhere written."""
    return pod(name, requests={resource: "100" if resource == GPU else "1"}, nodeName="n1")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", GPU])
def test_no_one_who_waits_gets_the_gpu_of_a_pod_that_somebody_else_binds(
    resource: str, restarts: bool
) -> None:
    made = with_gpus(2).put(on_gpu("a")).put(of_gpu("w", 200, preAllocation=True))
    made.put(bound_by_somebody("x", resource))
    if restarts:
        made.restart()
        made.settle()
    made.delete("Pod", "a")
    assert (made.phase("w"), minors(made, "w", "Reservation")) == ("Waiting", [])
    made.delete("Pod", "x")
    assert (made.phase("w"), minors(made, "w", "Reservation")) == ("Available", [0, 1])


@pytest.mark.parametrize("restarts", [False, True])
def test_a_pod_that_somebody_else_binds_to_a_full_node_has_a_gpu_once_one_is_free(
    restarts: bool,
) -> None:
    made = with_gpus(2).put(on_gpu("a")).put(on_gpu("b")).put(bound_by_somebody("x"))
    made.delete("Pod", "a")
    if restarts:
        made.restart()
    made.put(on_gpu("c"))
    assert made.node_of("c") == ""


@pytest.mark.parametrize("restarts", [False, True])
def test_which_gpu_a_pod_has_that_somebody_else_binds_depends_on_no_order(restarts: bool) -> None:
    made = with_gpus(2).put(bound_by_somebody("z")).put(bound_by_somebody("y")).delete("Pod", "z")
    if restarts:
        made.restart()
    made.put(on_gpu("c"))
    assert minors(made, "c") == [1]
