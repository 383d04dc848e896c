"""Situations in which a pod asks for too much, or for an amount that is invalid."""

from __future__ import annotations

import random
from typing import Any

import pytest

from explanation.test_situations import (
    LIMIT,
    N1,
    Row,
    changed,
    check,
    full,
    in_default,
    limited,
    snapshot_of,
    world_of,
)
from harness.device_objects import CORE, MEMORY, RATIO, device, gpu
from harness.numa_objects import lsr, topology
from harness.objects import Raw, container, node, pod, pod_group
from holdfast.api.decode import convert
from holdfast.api.pod import Pod
from holdfast.api.resources import amounts, pod_requests
from holdfast.explanation.explainer import explain
from holdfast.explanation.repairs.pod_sizes import resized_spec


def with_parts(cpu: str, *parts: tuple[str, str], **more: Any) -> Raw:
    """A pod with init containers; those whose name begins with `side` are sidecars."""
    initial = [
        {
            "name": name,
            "image": "app",
            "resources": {"requests": {"cpu": of}},
            **({"restartPolicy": "Always"} if name.startswith("side") else {}),
        }
        for name, of in parts
    ]
    return pod("p", cpu, initContainers=initial, **more)


def as_a_whole(cpu: str, of: str, **resources: Raw) -> Raw:
    """A pod with pod-level resources, and a container that requests some of it."""
    return pod("p", of, resources={"requests": {"cpu": cpu}, **resources})


def having(raw: Raw, **resources: Raw) -> Raw:
    raw["spec"]["containers"][0]["resources"] = resources
    return raw


def with_limit(raw: Raw, cpu: str) -> Raw:
    """The sidecar has a limit."""
    raw["spec"]["initContainers"][0]["resources"]["limits"] = {"cpu": cpu}
    return raw


def exclusive(cpu: str) -> Raw:
    """A pod of the class Guaranteed that asks for exclusive CPUs."""
    made = lsr("p", cpu)
    resources = made["spec"]["containers"][0]["resources"]
    resources["limits"] = dict(resources["requests"])
    return made


PERCENT, SHARED = "koordinator.sh/gpu", "koordinator.sh/gpu.shared"
TWO_GPUS = device("n1", gpu(0), gpu(1))

SITUATIONS: dict[str, Row] = {
    "sidecar is too large": Row(
        [N1, with_parts("2", ("side", "10"))],
        ["it requests 12 cpu (its sidecar side requests 10), the most a node has is 8"],
        ["Resize"],
    ),
    "sidecars and containers are too large": Row(
        [N1, with_parts("8", ("side-a", "8"), ("side-b", "8"))],
        ["it requests 24 cpu"],
        ["Resize"],
    ),
    "init container is too large": Row(
        [N1, with_parts("1", ("setup", "12"))],
        ["it requests 12 cpu (its init container setup does), the most a node has is 8"],
        ["Resize"],
    ),
    "init container beside a sidecar is too large": Row(
        [N1, with_parts("1", ("side", "6"), ("setup", "6"))],
        ["it requests 12 cpu (its init container setup beside its sidecars)"],
        ["Resize"],
    ),
    "init container beside a sidecar that leaves it nothing": Row(
        [N1, with_parts("1", ("side", "8"), ("setup", "6"))],
        ["it requests 14 cpu"],
        ["Resize"],
    ),
    "pod as a whole is too large": Row(
        [N1, as_a_whole("12", "2")],
        ["it requests 12 cpu (spec.resources), the most a node has is 8"],
        ["Resize"],
    ),
    "pod as a whole is too large, and so is its container": Row(
        [N1, as_a_whole("12", "10")],
        ["it requests 12 cpu (spec.resources), the most a node has is 8"],
        ["Resize"],
    ),
    "pod as a whole with a limit is too large": Row(
        [N1, as_a_whole("12", "10", limits={"cpu": "12"})],
        ["it requests 12 cpu"],
        ["Resize"],
    ),
    "limits without requests": Row(
        [N1, having(pod("p"), limits={"cpu": "12"})], ["it requests 12 cpu"], ["Resize"]
    ),
    "limits of the pod as a whole without requests": Row(
        [N1, having(pod("p", resources={"limits": {"cpu": "12"}}))],
        ["it requests 12 cpu (spec.resources), the most a node has is 8"],
        ["Resize"],
    ),
    "limit of a sidecar on a node with limits": Row(
        [
            node("n1", cpu="8", annotations={LIMIT: '{"cpu": 100}'}),
            limited("a", "1", "4"),
            with_limit(with_parts("1", ("side", "1")), "6"),
        ],
        ["limits add up to 4 of 8 cpu allowed (100% of allocatable), and its limit is 7"],
        ["Resize", "RaiseLimitRatio"],
    ),
    "limit of the pod as a whole on a node with limits": Row(
        [
            node("n1", cpu="8", annotations={LIMIT: '{"cpu": 100}'}),
            limited("a", "1", "4"),
            as_a_whole("1", "1", limits={"cpu": "6"}),
        ],
        ["and its limit is 6"],
        ["Resize", "RaiseLimitRatio"],
    ),
    "containers that share devices out": Row(
        [
            node("n1", allocatable={"example.com/g": "3"}),
            pod("p", containers=[container({"example.com/g": 2}, name=name) for name in ("a", "b")]),
        ],
        ["it requests 4 example.com/g, the most a node has is 3"],
        ["Resize"],
    ),
    "percentage of more than one GPU": Row(
        [N1, TWO_GPUS, pod("p", requests={PERCENT: 150})],
        [f"{PERCENT}: 150 is neither a share of one device, up to 100, nor a number of whole devices"],
        ["Resize", "Resize"],
    ),
    "percentage of more than one GPU, and there is one": Row(
        [N1, device("n1", gpu(0)), pod("p", requests={PERCENT: 150})],
        [f"{PERCENT}: 150 is neither"],
        ["Resize"],
    ),
    "parts of more than one GPU": Row(
        [N1, TWO_GPUS, pod("p", requests={CORE: 150, RATIO: 150})],
        [f"{CORE}: 150 is neither", f"{RATIO}: 150 is neither"],
        ["Resize", "Resize"],
    ),
    "parts that cannot be shared out": Row(
        [N1, TWO_GPUS, pod("p", requests={SHARED: 2, RATIO: 101})],
        [f"{RATIO}: 101 cannot be divided evenly among 2 GPUs"],
        ["Resize"],
    ),
    "GPUs in two ways": Row(
        [N1, TWO_GPUS, pod("p", requests={"nvidia.com/gpu": 1, PERCENT: 100})],
        [f"nvidia.com/gpu and {PERCENT} cannot be requested together"],
        ["Resize", "Resize"],
    ),
    "cores of a GPU without its memory": Row(
        [N1, TWO_GPUS, pod("p", requests={CORE: 50})],
        [f"a request for {CORE} needs {MEMORY} or {RATIO} besides"],
        ["Resize"],
    ),
    "exclusive CPUs in part, with limits": Row(
        [node("n1", cpu="16"), topology(), exclusive("1500m")],
        ["for exclusive CPUs, which are whole ones, and it requests 1500m"],
        ["Resize", "Resize"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            with_parts("2", ("side", "10")),
            "request at most 8 cpu instead of 12 (sidecar side 6 instead of 10)",
        ),
        (
            with_parts("1", ("setup", "12")),
            "request at most 8 cpu instead of 12 (init container setup)",
        ),
        (
            as_a_whole("12", "10"),
            "request at most 8 cpu instead of 12 (spec.resources 8 instead of 12, container main)",
        ),
        (
            as_a_whole("12", "2", limits={"cpu": "12"}),
            "request at most 8 cpu instead of 12, and limit it to that "
            "(spec.resources 8 instead of 12)",
        ),
    ],
)
def test_the_advice_says_where_to_change_what(made: Raw, said: str) -> None:
    (advice,) = check(Row([N1, made], [], ["Resize"])).advice
    assert advice.text == f"{said}; then it fits n1"


def test_whole_cpus_keep_limits_equal_to_requests() -> None:
    report = check(SITUATIONS["exclusive CPUs in part, with limits"])
    more, less = (each.text.partition(";")[0] for each in report.advice)
    assert more == "request 2 cpu instead of 1500m, and limit it to that"
    assert less == "request 1 cpu instead of 1500m, and limit it to that"
    for advice, cpu in zip(report.advice, ("2", "1"), strict=True):
        (change,) = advice.change["objects"]
        (container,) = change["patch"]["spec"]["containers"]
        assert {each["cpu"] for each in container["resources"].values()} == {cpu}


def random_part(rng: random.Random, name: str, **more: Any) -> Raw:
    resources: Raw = {}
    asked = {name: rng.randint(1, 16) for name in ("cpu", "memory") if rng.random() < 0.7}
    if asked:
        resources["requests"] = {each: str(n) for each, n in asked.items()}
    if rng.random() < 0.5:
        resources["limits"] = {
            each: str(n + rng.choice((0, 0, 4))) for each, n in (asked or {"cpu": 3}).items()
        }
    return {"name": name, "image": "app", "resources": resources, **more}


def random_spec(rng: random.Random) -> Raw:
    initial = [
        random_part(rng, f"i{n}", **({"restartPolicy": "Always"} if rng.random() < 0.5 else {}))
        for n in range(rng.randint(0, 3))
    ]
    spec: Raw = {
        "containers": [random_part(rng, f"c{n}") for n in range(rng.randint(1, 3))],
        "initContainers": initial,
    }
    if rng.random() < 0.3:
        spec["overhead"] = {"cpu": "1", "memory": "2"}
    if rng.random() < 0.3:
        needed = pod_requests(typed(spec))
        spec["resources"] = {"requests": {name: str(n) for name, n in whole(needed).items()}}
    return spec


def typed(spec: Raw) -> Pod:
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"}, "spec": spec}
    return convert(raw, Pod)


def whole(amounts: dict[str, int]) -> dict[str, int]:
    """In the unit in which they are written."""
    return {name: -(-n // 1000) if name == "cpu" else n for name, n in amounts.items()}


@pytest.mark.parametrize("seed", range(300))
def test_resized_pods_request_no_more_than_they_should(seed: int) -> None:
    rng = random.Random(seed)
    spec = random_spec(rng)
    now = pod_requests(typed(spec))
    sizes = {name: (n, max(1, n * rng.randint(4, 8) // 8)) for name, n in now.items() if n > 1}
    found = resized_spec(spec, sizes)
    if found is None:
        return
    after = {**spec, **found.patch}
    then = pod_requests(typed(after))
    for name, (_, most) in sizes.items():
        assert most / 2 < then[name] <= most
    shares = [*after["containers"], *after["initContainers"]]
    for each in [part["resources"] for part in shares]:
        limits = amounts(each.get("limits") or {})
        asked = amounts(each.get("requests") or {})
        assert all(asked[name] <= limits[name] for name in asked if name in limits)
    if "resources" in after:
        within = pod_requests(typed({key: after[key] for key in ("containers", "initContainers")}))
        given = amounts(after["resources"]["requests"])
        assert all(n <= given[name] for name, n in within.items() if name in given)


def test_smaller_requests_of_a_gang_are_one_change() -> None:
    """They are found step by step, as more and more members have a node, down to a quarter."""
    members = [pod(f"w-{at}", "3", group="w") for at in range(4)]
    group = in_default(pod_group("w", 4))
    world = world_of([node("n1", cpu="4"), full("x", "2", "n1"), group, *members])
    (advice,) = explain(snapshot_of(world), world.objects["PodGroup", "w"]).advice
    assert advice.text.startswith(
        "request at most 1 cpu instead of 3, in each of 4 pods (w-0, w-1, w-2, w-3) and end pod "
        "default/x "
    )
    after = world_of(changed(list(world.objects.values()), advice.change))
    after.settle()
    assert all(after.node_of(f"w-{at}") for at in range(4))
