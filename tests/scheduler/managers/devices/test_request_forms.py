"""One GPU asked for in every form, against one GPU reserved in every form."""

import pytest

from harness.device_objects import (
    ALLOCATED,
    CORE,
    MEMORY,
    RATIO,
    allocated,
    device,
    gpu,
    minors,
    with_gpus,
)
from harness.objects import node, pod, reservation
from harness.world import World

SHARED = "koordinator.sh/gpu.shared"
FORMS = (
    {"koordinator.sh/gpu": "100"},
    {"nvidia.com/gpu": "1"},
    {CORE: "100", RATIO: "100"},
    {RATIO: "100"},
    {CORE: "100", MEMORY: "16Gi"},
    {MEMORY: "16Gi"},
    {SHARED: "1", CORE: "100", RATIO: "100"},
)


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
@pytest.mark.parametrize("reserved", FORMS, ids=lambda form: "+".join(form))
def test_however_it_is_reserved_and_asked_for_it_is_one_gpu(
    reserved: dict[str, str], policy: str
) -> None:
    for number, asked in enumerate(FORMS):
        world = with_gpus(1).put(reservation("r", app="own", requests=reserved, allocatePolicy=policy))
        world.put(pod("stranger", requests=asked))
        assert world.node_of("stranger") == "", f"a stranger got it by form {number}"
        world.delete("Pod", "stranger").put(pod("owner", app="own", requests=asked))
        assert (world.reservation_of("owner"), minors(world, "owner")) == ("r", [0]), (
            f"by form {number}"
        )


def test_requests_of_all_containers_are_one_request() -> None:
    world = with_gpus(2)
    two = pod("two", requests={"koordinator.sh/gpu": "50"})
    two["spec"]["containers"] *= 2
    first = pod("first", requests={"koordinator.sh/gpu": "50"})
    first["spec"]["initContainers"] = [
        {"name": "i", "resources": {"requests": {"koordinator.sh/gpu": "60"}}}
    ]
    beside = pod("beside", requests={"koordinator.sh/gpu": "20"})
    beside["spec"]["initContainers"] = [
        {**first["spec"]["initContainers"][0], "restartPolicy": "Always"}
    ]
    world.put(two).put(first)
    assert [allocated(world, name)["gpu"][0]["resources"][CORE] for name in ("two", "first")] == [
        "100",
        "60",
    ]
    world.delete("Pod", "two").put(beside)
    assert allocated(world, "beside")["gpu"][0]["resources"][CORE] == "80"


@pytest.mark.parametrize(
    "resources",
    [
        {CORE: 100, RATIO: 100, MEMORY: "100Ei"},
        {CORE: "1e30", RATIO: "1e30", MEMORY: "1e30"},
        {CORE: "100", RATIO: "100"},
    ],
)
def test_no_device_is_too_big(resources: dict[str, str]) -> None:
    gpus = [gpu(minor, resources=resources) for minor in range(8)]
    world = World(node("n1"), device("n1", *gpus))
    world.put(pod("a", requests={"koordinator.sh/gpu": "50"}))
    assert minors(world, "a") == [0]


@pytest.mark.parametrize(
    "resources", [{}, {CORE: "-5", RATIO: "100", MEMORY: "16Gi"}, {CORE: "x", RATIO: "100"}]
)
def test_a_device_that_makes_no_sense_is_given_to_nobody(resources: dict[str, str]) -> None:
    world = World(node("n1"), device("n1", gpu(0, resources=resources)))
    world.put(pod("a", requests={"koordinator.sh/gpu": "10"}))
    assert world.node_of("a") == ""


@pytest.mark.parametrize("numa", [2**40, -7])
def test_a_device_on_no_numa_node_there_could_be_is_given_all_the_same(numa: int) -> None:
    world = World(node("n1"), device("n1", gpu(0, numa=numa)))
    world.put(pod("a", requests={"koordinator.sh/gpu": "50"}))
    assert minors(world, "a") == [0]


@pytest.mark.parametrize(
    "text",
    [
        '{"gpu": null}',
        "[]",
        '{"gpu": [{"minor": "0"}]}',
        '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "x"}}]}',
        '{"gpu": [{"minor": -3, "resources": {"koordinator.sh/gpu-core": "1e40"}}]}',
    ],
)
def test_who_says_nonsense_of_its_devices_upsets_nobody(text: str) -> None:
    said = pod(
        "said", requests={"koordinator.sh/gpu": "50"}, metadata={"annotations": {ALLOCATED: text}}
    )
    said["spec"]["nodeName"] = "n1"
    world = with_gpus(2).put(said).put(pod("a", requests={"koordinator.sh/gpu": "100"}))
    assert world.node_of("a") == "n1"
    world.restart()
    world.settle()


def test_what_an_owner_took_is_counted_once() -> None:
    """Half of the GPU is the owner's, out of the reserved half; the other half is anybody's."""
    half = {"koordinator.sh/gpu": "50"}
    world = with_gpus(1).put(reservation("r", app="own", requests=half, allocateOnce=False))
    world.put(pod("owner", app="own", requests=half)).put(pod("stranger", requests=half))
    assert (world.node_of("owner"), world.node_of("stranger")) == ("n1", "n1")


def test_a_gang_that_finds_no_place_leaves_no_devices_behind() -> None:
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default", "uid": "gang"},
        "spec": {"minMember": 2},
    }
    labels = {"pod-group.scheduling.sigs.k8s.io": "gang"}
    members = [
        pod(name, requests={"koordinator.sh/gpu": "200"}, metadata={"labels": labels}) for name in "ab"
    ]
    world = with_gpus(3).put(group, *members)
    assert (world.node_of("a"), world.node_of("b")) == ("", "")
    world.put(pod("other", requests={"koordinator.sh/gpu": "300"}))
    assert minors(world, "other") == [0, 1, 2]
    world.delete("Pod", "other").put(device("n1", *(gpu(minor) for minor in range(4))))
    assert sorted(minors(world, "a") + minors(world, "b")) == [0, 1, 2, 3]
