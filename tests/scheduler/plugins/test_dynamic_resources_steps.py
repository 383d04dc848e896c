"""What becomes of claims between a decision and the bind, claims allocated before, and scores.

The facts are those of kube-scheduler 1.37 with its default features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.claim_objects import (
    DRIVER,
    allocation,
    claiming_pod,
    consumers_of,
    device,
    device_class,
    devices_of,
    first_available,
    generated,
    request,
    resource_claim,
    resource_slice,
)
from harness.driver import default_driver
from harness.objects import Raw, node, pod
from harness.permit_gate import Gate
from harness.world import START, World
from holdfast.api.decode import convert, decode
from holdfast.api.pod import Pod
from holdfast.api.times import format_time
from holdfast.scheduler.cluster.decisions import CreateClaim
from holdfast.scheduler.cluster.events import Added, BindRefused

FINALIZER = "resource.kubernetes.io/delete-protection"
GPU, N1 = device_class(), node("n1")
SERVED = device_class(extendedResourceName="example.com/gpu")


def claim(world: World, name: str = "c") -> Raw:
    return world.objects["ResourceClaim", name]


def failures(world: World) -> list[str]:
    return [event.message for event in world.events if event.reason == "FailedScheduling"]


def interfere(world: World, change: Callable[[], None]) -> None:
    """Does something on the server after the first decision, before it is carried out."""
    pending = [change]

    def heard(decisions: list[Any], now: float) -> None:
        if decisions and pending:
            pending.pop()()

    world.scheduler.decision_listeners.append(heard)


# Claims that change before they are written


@pytest.mark.parametrize(("before", "meanwhile"), [([FINALIZER], []), ([], [FINALIZER])])
def test_the_finalizer_is_there_once_whoever_else_adds_or_removes_it(
    before: list[str], meanwhile: list[str]
) -> None:
    world = World(
        N1, GPU, resource_slice("n1", 1), resource_claim("c", metadata={"finalizers": before})
    )
    interfere(world, lambda: claim(world)["metadata"].update(finalizers=meanwhile))
    world.put(claiming_pod("p", "c"))
    assert world.node_of("p") == "n1"
    assert claim(world)["metadata"]["finalizers"] == [FINALIZER]


def test_the_bind_fails_if_an_allocated_claim_was_deallocated() -> None:
    given = resource_claim("c", allocation=allocation("n1", "gpu-0"))
    world = World(N1, GPU, resource_slice("n1", 1), given)
    interfere(world, lambda: claim(world).update(status={}))
    world.put(claiming_pod("p", "c"))
    assert failures(world) == ["claim default/c got deallocated elsewhere in the meantime"]
    assert (world.node_of("p"), devices_of(claim(world))) == ("", [])


def test_devices_of_a_pod_that_is_not_bound_are_free_at_once() -> None:
    """A plugin rejects it after its devices were chosen: nothing is written."""
    world = World(N1, GPU, resource_slice("n1", 1), plugins=(Gate,))
    waiting, its = generated("p")
    world.put(its, waiting)
    free, its = generated("free-q")
    world.put(its, free)
    assert "1 cannot allocate all claims" in world.message("free-q")
    world.delete("Pod", "p").wait(30)
    assert devices_of(claim(world, "p-gpu")) == []
    assert devices_of(claim(world, "free-q-gpu")) == ["n1/gpu-0"]


@pytest.mark.parametrize(("devices", "nodes"), [(1, ["n1", ""]), (2, ["n1", "n1"])])
def test_devices_of_pods_decided_in_the_same_round_are_in_use(devices: int, nodes: list[str]) -> None:
    world = World(N1, GPU, resource_slice("n1", devices))
    world.put(*(each for name in "ab" for each in reversed(generated(name))))
    assert [world.node_of(name) for name in "ab"] == nodes
    found = devices_of(claim(world, "a-gpu")) + devices_of(claim(world, "b-gpu"))
    assert found == [f"n1/gpu-{i}" for i in range(devices)]


def test_a_refused_bind_keeps_the_allocation_of_a_claim_that_had_it() -> None:
    by_label = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
    given = allocation("", "gpu-0", pool="n1")
    given["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [by_label]}]}
    world = World(N1, node("n2"), GPU, resource_slice("n1", 1), resource_claim("c", allocation=given))
    world.refuse.add("pod-p")
    world.put(claiming_pod("p", "c"))
    assert (world.node_of("p"), consumers_of(claim(world))) == ("", [])
    assert claim(world)["status"]["allocation"] == given
    assert world.wait(30).node_of("p") == "n1"


# Claims that pods wait for before they are queued


@pytest.mark.parametrize(
    ("objects", "waiting", "problem"),
    [
        (
            [],
            claiming_pod("p", templates={"gpu": None}),
            'pod "default/p": ResourceClaim not created yet',
        ),
        ([], claiming_pod("p", "c"), 'could not find ResourceClaim "default/c"'),
        (
            [],
            claiming_pod("p", templates={"gpu": "p-gpu"}),
            'could not find ResourceClaim "default/p-gpu"',
        ),
        (
            [resource_claim("p-gpu", owner="p")],
            claiming_pod("p", templates={"gpu": "p-gpu", "more": None}),
            'pod "default/p": ResourceClaim not created yet',
        ),
        (
            [
                resource_claim(
                    "p-gpu", owner="p", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}
                )
            ],
            claiming_pod("p", templates={"gpu": "p-gpu"}),
            'resourceclaim "p-gpu" is being deleted',
        ),
        (
            [resource_claim("p-gpu", owner="other")],
            claiming_pod("p", templates={"gpu": "p-gpu"}),
            "ResourceClaim default/p-gpu was not created for Pod default/p (Pod is not owner)",
        ),
    ],
)
def test_what_keeps_a_pod_from_the_queue(objects: list[Raw], waiting: Raw, problem: str) -> None:
    world = World(N1, GPU, resource_slice("n1", 4), *objects).put(waiting)
    assert world.scheduler.queue.place("pod-p") == "gated"
    found = [each.problem for each in world.scheduler.cluster.pods["pod-p"].cls.claims if each.problem]
    assert found[:1] == [problem]
    assert world.message("p") == ""


# Claims whose devices were prepared, or not, before the pod came

CONDITIONS = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}


def prepared(name: str, number: int, age: float, **conditions: bool) -> Raw:
    """A claim with a device that has binding conditions, allocated some seconds ago, and what its
    driver reports."""
    given = allocation("n1", f"gpu-{number}", allocationTimestamp=format_time(START - age))
    result = given["devices"]["results"][0]
    result.update(CONDITIONS)
    said = [
        {"type": each, "status": str(is_true), "reason": "Driver", "message": "says so"}
        for each, is_true in conditions.items()
    ]
    status = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": said}
    return resource_claim(name, allocation=given, devices=[status])


@pytest.mark.parametrize(
    ("age", "conditions", "is_kept"),
    [
        (1, {"Attached": True, "Failed": False}, True),
        (700, {"Attached": True}, True),
        (1, {"Attached": False, "Failed": True}, False),
        (1, {"Attached": True, "Failed": True}, False),
        (601, {}, False),
        (601, {"Attached": False, "Other": True}, False),
    ],
)
def test_an_allocated_claim_is_used_unless_its_device_failed_or_is_late(
    age: float, conditions: dict[str, bool], is_kept: bool
) -> None:
    world = World(N1, GPU, resource_slice("n1", [device("gpu-0"), device("gpu-1")]))
    world.put(prepared("c", 1, age, **conditions), claiming_pod("p", "c"))
    if is_kept:
        assert (world.node_of("p"), failures(world)) == ("n1", [])
        assert devices_of(claim(world)) == ["n1/gpu-1"]
    else:
        (said,) = failures(world)
        assert "1 resourceclaim not available on the node. deallocation of ResourceClaim" in said
        assert world.wait(30).node_of("p") == "n1"
        assert devices_of(claim(world)) == ["n1/gpu-0"]
        assert "devices" not in claim(world)["status"]


def test_only_the_claim_that_failed_is_deallocated() -> None:
    world = World(N1, GPU, resource_slice("n1", 3))
    ready, failed = prepared("c", 1, 1, Attached=True), prepared("d", 2, 1, Failed=True)
    world.put(ready, failed, claiming_pod("p", "c", "d")).wait(30)
    assert world.node_of("p") == "n1"
    assert devices_of(claim(world, "c")) == ["n1/gpu-1"]
    assert devices_of(claim(world, "d")) == ["n1/gpu-0"]


def test_the_time_of_an_earlier_allocation_counts_for_the_timeout() -> None:
    world = World(N1, GPU, resource_slice("n1", 1))
    world.put(prepared("c", 0, 590), claiming_pod("p", "c"))
    assert (world.node_of("p"), consumers_of(claim(world))) == ("", ["p"])
    world.wait(9)
    assert failures(world) == []
    world.wait(30)
    assert failures(world)[0] == "device binding timeout: claim=c"


# Claims for extended resources


def of_pod(world: World) -> list[Raw]:
    return [raw for (kind, _), raw in world.objects.items() if kind == "ResourceClaim"]


def test_each_container_has_requests_of_its_own() -> None:
    implicit = "deviceclass.resource.kubernetes.io/gpu"
    made = pod("p", requests={implicit: 1})
    more = {"requests": {"example.com/gpu": "2"}, "limits": {"example.com/gpu": "2"}}
    made["spec"]["containers"].append({"name": "side", "image": "i", "resources": more})
    world = World(N1, SERVED, resource_slice("n1", 4)).put(made)
    assert world.node_of("p") == "n1"
    (its,) = of_pod(world)
    results = its["status"]["allocation"]["devices"]["results"]
    assert [(each["request"], each["device"]) for each in results] == [
        ("container-0-request-0", "gpu-0"),
        ("container-1-request-0", "gpu-1"),
        ("container-1-request-0", "gpu-2"),
    ]
    assert its["metadata"]["finalizers"] == [FINALIZER]
    assert its["metadata"]["ownerReferences"][0]["controller"] is True


def test_no_claim_is_created_for_a_pod_that_is_not_bound() -> None:
    world = World(N1, SERVED, resource_slice("n1", 1), plugins=(Gate,))
    world.put(pod("p", requests={"example.com/gpu": 1}))
    world.put(pod("free-q", requests={"example.com/gpu": 1}))
    assert of_pod(world) == []
    world.delete("Pod", "p").wait(30)
    assert (world.node_of("free-q"), len(of_pod(world))) == ("n1", 1)


def test_a_claim_whose_allocation_was_refused_is_deleted() -> None:
    """It was created, but holds nothing and is reserved for nobody."""
    world = World(N1, SERVED, resource_slice("n1", 1))
    created = resource_claim("p-extended-resources-x", owner="p")
    created["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    waiting = pod("p", requests={"example.com/gpu": 1})
    world.scheduler.feed(Added(decode(_with_uid(waiting))), world.now)
    world.objects["Pod", "p"] = waiting
    decided = world.scheduler.round(world.now)
    assert any(isinstance(each, CreateClaim) for each in decided)
    world.put(created)  # the watch delivers it while the bind is on its way
    assert of_pod(world) == [created]
    world.scheduler.feed(BindRefused("pod-p", "no"), world.now)
    world.settle()
    assert of_pod(world) == []
    assert world.wait(30).node_of("p") == "n1"


def _with_uid(raw: Raw) -> Raw:
    raw["metadata"] |= {"uid": f"pod-{raw['metadata']['name']}", "namespace": "default"}
    raw["spec"]["schedulerName"] = "holdfast-scheduler"
    raw["status"] = {"phase": "Pending"}
    return raw


# Scores of prioritized lists

_ONLY = {"disabled": [{"name": "*"}], "enabled": [{"name": "DynamicResources", "weight": 1}]}
ATTRIBUTE = f"device.attributes['{DRIVER}'].fast"


def lists(*counts: tuple[int, ...]) -> list[Raw]:
    """Prioritized lists with these counts."""
    return [
        first_available(f"r{i}", *(request(f"s{j}", count) for j, count in enumerate(each)))
        for i, each in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("claims", "devices", "expected"),
    [
        # Eight for the first alternative, one less for each that follows; then in percent of the best.
        ([lists((1,))], [1, 2], {"n0": 100, "n1": 100}),
        ([lists((2, 1))], [2, 1], {"n0": 100, "n1": 87}),
        ([lists((1,)), lists((4, 3, 2, 1))], [4, 2, 1], {"n0": 100, "n1": 86}),
        ([lists((2, 1), (2, 1))], [4, 3, 2], {"n0": 100, "n1": 93, "n2": 87}),
        ([lists((8, 7, 6, 5, 4, 3, 2, 1))], [8, 1], {"n0": 100, "n1": 12}),
        ([lists((4, 3, 2, 1)), lists((1,))], [5, 2], {"n0": 100, "n1": 81}),
        ([[request()]], [1, 2], {"n0": 0, "n1": 0}),
        ([[request()], lists((2, 1))], [3, 2], {"n0": 100, "n1": 87}),
    ],
)
def test_nodes_score_by_the_alternatives_they_have(
    claims: list[list[Raw]], devices: list[int], expected: dict[str, int]
) -> None:
    objects = [GPU, *(resource_claim(f"c{i}", *each) for i, each in enumerate(claims))]
    for i, count in enumerate(devices):
        objects += [node(f"n{i}"), resource_slice(f"n{i}", count)]
    waiting = claiming_pod("p", *(f"c{i}" for i in range(len(claims))))
    waiting["metadata"]["namespace"] = "default"
    for raw in (*objects, waiting):
        raw["metadata"].setdefault("uid", raw["metadata"]["name"])
    driver = default_driver(config={"profiles": [{"plugins": {"score": _ONLY}}]})
    its = convert(waiting, Pod)
    driver.add(*map(decode, objects), its)
    assert driver.answer(its).totals == expected


def test_a_selector_decides_which_alternative_a_node_has() -> None:
    alternatives = first_available("r", request("fast", 1, ATTRIBUTE), request("any"))
    world = World(GPU, resource_claim("c", alternatives))
    for name, is_fast in (("n1", False), ("n2", True)):
        world.put(node(name), resource_slice(name, [device("gpu-0", fast=is_fast)]))
    assert world.put(claiming_pod("p", "c")).node_of("p") == "n2"
    results = claim(world)["status"]["allocation"]["devices"]["results"]
    assert [each["request"] for each in results] == ["r/fast"]
