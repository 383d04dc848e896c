"""A pod without a node is tried again when, and only when, something could help it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_node, make_pod
from harness.driver import Driver
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.plugins import IN_TREE
from reference.setup import Setup
from scheduler.state_machine.observer import SETUPS, Witness

Event = Callable[[Driver], object]


def node(name: str = "n") -> NodeBuilder:
    return make_node(name).allocatable(cpu="2", memory="4Gi", pods=3)


def pod() -> PodBuilder:
    return make_pod("p").cpu("1")


def pinned(name: str) -> PodBuilder:
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return pod().node_affinity_term(fields=[field])


def tenant(name: str = "tenant") -> PodBuilder:
    return make_pod(name).cpu("2").on("n")


def update(*builders: NodeBuilder | PodBuilder) -> Event:
    return lambda driver: driver.update(*(builder.obj() for builder in builders))


def delete(*builders: NodeBuilder | PodBuilder) -> Event:
    return lambda driver: driver.delete(*(builder.obj() for builder in builders))


Start = list[NodeBuilder | PodBuilder]


@pytest.mark.parametrize(
    ("start", "waiting", "event"),
    [
        pytest.param([], pod(), update(node()), id="a first node"),
        pytest.param([node().taint("k")], pod(), update(node("m")), id="another node"),
        pytest.param([node().taint("k")], pod(), update(node()), id="a taint gone"),
        pytest.param([node().taint("k")], pod(), update(pod().toleration("k")), id="a toleration"),
        pytest.param([node().unschedulable()], pod(), update(node()), id="a cordon lifted"),
        pytest.param(
            [node()], pod().node_selector({"a": "b"}), update(node().label("a", "b")), id="a label"
        ),
        pytest.param(
            [node().label("a")],
            pod().node_affinity("a", "DoesNotExist"),
            update(node()),
            id="a label gone",
        ),
        pytest.param([node().allocatable(cpu="500m")], pod(), update(node()), id="a node that grows"),
        pytest.param(
            [node().allocatable(pods=0)], pod(), update(node()), id="a node that takes more pods"
        ),
        pytest.param(
            [node()],
            pod().requests({"example.com/foo": 1}),
            update(node().allocatable({"example.com/foo": 1})),
            id="a device",
        ),
        pytest.param([node(), tenant()], pod(), delete(tenant()), id="a pod gone"),
        pytest.param(
            [node(), tenant()], pod(), update(tenant().phase("Succeeded")), id="a pod that ended"
        ),
        pytest.param(
            [node(), tenant()], pod(), update(make_pod("tenant").cpu("1").on("n")), id="a pod shrunk"
        ),
        pytest.param(
            [node(), tenant()],
            pod(),
            update(make_pod("tenant").cpu("2").uid("new").on("m")),
            id="a pod recreated elsewhere",
        ),
        pytest.param(
            [node(), make_pod("tenant").host_port(80).on("n")],
            pod().host_port(80),
            delete(make_pod("tenant")),
            id="a port free",
        ),
        pytest.param([node("m")], pinned("n"), update(node()), id="the node a pod is pinned to"),
        pytest.param([node().taint("k"), node("m")], pinned("n"), update(node()), id="its taint gone"),
        pytest.param([node(), node("m"), tenant()], pinned("n"), delete(tenant()), id="room on it"),
        pytest.param([node()], pod().gate("g"), update(pod()), id="a gate gone"),
        pytest.param(
            [
                node(),
                node("m").zone("z"),
                node("o").zone("z"),
                tenant(),
                make_pod("a").cpu("1").on("m"),
            ],
            pod().pod_anti_affinity("topology.kubernetes.io/zone", {}),
            delete(node("m")),
            id="the node of a pod to stay away from is gone",
        ),
    ],
)
def test_what_helps_is_noticed(start: Start, waiting: PodBuilder, event: Event) -> None:
    driver = Driver().add(*(builder.obj() for builder in start), waiting.obj())
    assert "p" not in driver.binds(0.0)
    event(driver)
    assert "p" in driver.binds(20.0), driver.story(waiting.obj())


@pytest.mark.parametrize(
    ("start", "waiting", "events"),
    [
        pytest.param(
            [node().taint("k"), tenant()],
            pod(),
            [update(node()), delete(tenant())],
            id="room once the taint is gone",
        ),
        pytest.param(
            [node().taint("k"), tenant()],
            pod(),
            [delete(tenant()), update(node())],
            id="the taint once there is room",
        ),
        pytest.param(
            [node().unschedulable().taint("k")],
            pod().node_selector({"a": "b"}),
            [update(node().taint("k")), update(node()), update(node().label("a", "b"))],
            id="three hindrances, one after the other",
        ),
        pytest.param(
            [],
            pinned("n"),
            [update(node("m")), update(node().unschedulable()), update(node())],
            id="a pinned pod whose node comes cordoned",
        ),
        pytest.param(
            [node(), tenant()],
            pod(),
            [delete(node()), update(node().uid("new").taint("k")), delete(tenant()), update(node())],
            id="a node that goes and comes back",
        ),
    ],
)
def test_when_one_hindrance_is_gone_the_next_is_waited_for(
    start: Start, waiting: PodBuilder, events: list[Event]
) -> None:
    driver = Driver().add(*(builder.obj() for builder in start), waiting.obj())
    now = 0.0
    for event in events:
        assert driver.binds(now) == {}
        event(driver)
        now += 20.0
    assert driver.binds(now) == {"p": "n"}, driver.story(waiting.obj())


@pytest.mark.parametrize(
    ("start", "event"),
    [
        pytest.param([node(), tenant()], update(node().label("a", "b")), id="a label"),
        pytest.param([node(), tenant()], update(node().image("i")), id="an image"),
        pytest.param([node(), tenant()], update(node().allocatable(cpu="1")), id="less room"),
        pytest.param([node(), tenant()], update(node("m").taint("k")), id="a useless node"),
        pytest.param([node(), tenant(), node("m").taint("k")], delete(node("m")), id="a node gone"),
        pytest.param([node(), tenant()], update(tenant("more")), id="one more pod"),
    ],
)
def test_what_cannot_help_costs_no_attempt(start: Start, event: Event) -> None:
    waiting = pod().obj()
    driver = Driver().add(*(builder.obj() for builder in start), waiting)
    driver.round(0.0)
    event(driver)
    assert driver.binds(20.0) == {}
    assert (driver.queued_in(waiting), driver.record(waiting).attempts) == ("unschedulable", 1)


def test_a_victim_leaves_no_capacity_until_it_is_gone() -> None:
    waiting = pod().priority(9).obj()
    driver = Driver((Setup(preempts=True),)).add(node().obj(), tenant().obj(), waiting)
    told = {
        "p": "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for "
        "pod on node n, preempting 1 victims"
    }
    assert driver.messages(0.0) == told
    leaving = tenant().deleted().condition("DisruptionTarget", "True", "PreemptionByScheduler").obj()
    assert driver.update(leaving).round(20.0) == []
    assert (driver.queued_in(waiting), driver.record(waiting).attempts) == ("unschedulable", 1)
    assert driver.delete(leaving).binds(40.0) == {"p": "n"}


def test_a_pod_on_its_way_out_is_counted_no_more_by_those_who_spread() -> None:
    key = "kubernetes.io/hostname"
    nodes = [make_node(name).label(key, name).allocatable(cpu="4", pods=3) for name in ("n", "m")]
    there = make_pod("there").label("app", "a").on("n")
    full = make_pod("full").cpu("4").on("m")
    waiting = make_pod("p").cpu("1").label("app", "a").spread(key, 1, {"app": "a"}).obj()
    driver = Driver().add(*(n.obj() for n in nodes), there.obj(), full.obj(), waiting)
    assert driver.binds(0.0) == {}
    assert driver.update(there.deleted().obj()).binds(20.0) == {"p": "n"}


def test_who_wants_to_be_near_need_not_wait_for_permission_of_another() -> None:
    key = "kubernetes.io/hostname"
    near = make_pod("p").cpu("1").pod_affinity(key, {"app": "a"})
    slow = make_pod("slow").cpu("1").label("app", "a").label("patient").priority(-1)
    driver = Driver((SETUPS[0],), Witness).add(node().label(key, "n").obj(), near.obj(), slow.obj())
    assert driver.binds(0.0) == {"p": "n"}


@pytest.mark.parametrize("classes", [3, 150], ids=["few", "so many that they are not all told why"])
def test_when_many_wait_none_is_forgotten(classes: int) -> None:
    """What is to blame changes with something that helps them in one way and not in another."""
    driver = Driver().add(make_node("n").allocatable(cpu="1", pods=999).label("a", "b").obj())
    driver.add(
        *(make_pod(f"p{i}").cpu(f"{2000 + i}m").node_selector({"a": "b"}).obj() for i in range(classes))
    )
    assert driver.binds(0.0) == {}
    large = make_node("n").allocatable(cpu="2000", pods=999)
    assert driver.update(large.obj()).binds(20.0) == {}
    assert len(driver.update(large.label("a", "b").obj()).binds(40.0)) == classes


def test_the_capacity_of_a_refused_bind_is_offered_to_others() -> None:
    first = make_pod("first").cpu("2").priority(9).obj()
    driver = Driver().add(node().obj(), first, pod().obj())
    assert driver.binds(0.0) == {"first": "n"}
    assert driver.refuse(first).binds(0.5) == {"p": "n"}


def test_many_pods_wait_and_as_many_go_as_fit() -> None:
    driver = Driver().add(node().obj(), tenant().obj())
    driver.add(*(make_pod(f"p{i}").cpu("1").priority(i % 3).obj() for i in range(9)))
    assert driver.binds(0.0) == {}
    assert driver.delete(tenant().obj()).binds(20.0) == {"p2": "n", "p5": "n"}
    driver.add(node("m").obj())
    assert driver.binds(40.0) == {"p8": "m", "p1": "m"}


NODE = {"NODE_ADDED", "NODE_LABELS"}
CLAIM = {"CLAIMS", "PERSISTENT_VOLUMES", "STORAGE_CLASSES"}
KINDS: dict[str, set[str]] = {
    "DefaultBinder": set(),
    "DefaultPreemption": set(),
    "ImageLocality": set(),
    "InterPodAffinity": {*NODE, "NODE_REMOVED", "POD_PLACED", "POD_LEFT", "POD_LABELS", "OTHER"},
    "NodeAffinity": NODE,
    "NodeName": {"NODE_ADDED"},
    "NodePorts": {"NODE_ADDED", "POD_LEFT"},
    "NodeResourcesBalancedAllocation": set(),
    "NodeResourcesFit": {"NODE_ADDED", "NODE_ALLOCATABLE", "POD_LEFT", "DEVICE_CLASSES"},
    "DynamicResources": {
        "NODE_ADDED",
        "NODE_LABELS",
        "NODE_ALLOCATABLE",
        "DEVICES",
        "DEVICE_CLASSES",
    },
    "NodeUnschedulable": {"NODE_ADDED", "NODE_TAINTS"},
    "NodeVolumeLimits": {
        "NODE_ADDED", "POD_LEFT", *CLAIM, "CSI_NODES", "CSI_DRIVERS", "ATTACHMENTS",
    },
    "PodTopologySpread": {
        *NODE, "NODE_REMOVED", "NODE_TAINTS", "POD_PLACED", "POD_LEFT", "POD_LABELS", "OTHER",
    },
    "PrioritySort": set(),
    "SchedulingGates": set(),
    "TaintToleration": {"NODE_ADDED", "NODE_TAINTS"},
    "VolumeBinding": {*NODE, *CLAIM, "CSI_NODES", "CSI_DRIVERS", "CAPACITIES"},
    "VolumeRestrictions": {"NODE_ADDED", "NODE_REMOVED", "POD_LEFT", "CLAIMS"},
    "VolumeZone": {*NODE, *CLAIM},
}  # fmt: skip


@pytest.mark.parametrize("plugin", [p for p in IN_TREE if p.name in KINDS], ids=lambda p: p.name)
def test_the_kinds_of_change_each_plugin_is_woken_by(plugin: type[Plugin]) -> None:
    single = {name: bit for name, bit in vars(Change).items() if isinstance(bit, int) and bit}
    named = {n for n, bit in single.items() if bit & (bit - 1) == 0 and plugin.wakes_on & bit}
    assert named == KINDS[plugin.name]


def test_every_default_plugin_of_kube_scheduler_is_in_the_table() -> None:
    assert KINDS.keys() <= {plugin.name for plugin in IN_TREE}
