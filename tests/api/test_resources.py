"""What pods ask for."""

from __future__ import annotations

import pytest
from hypothesis import given

from harness.builders import PodBuilder, make_pod
from harness.strategies import pods
from holdfast.api import InvalidObject, Pod, pod_limits, pod_requests
from holdfast.api.resources import NON_ZERO, amounts, is_extended, is_scalar_resource, qos_class

MI = 2**20
GI = 2**30


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod("nothing"), {}),
        (make_pod("one").cpu("1").memory("1Gi"), {"cpu": 1000, "memory": GI}),
        (make_pod("zero stays").cpu(0), {"cpu": 0}),
        (make_pod("two add up").cpu("1").container({"cpu": "500m"}), {"cpu": 1500}),
        (make_pod("rounds each").cpu("0.4m").container({"cpu": "0.4m"}), {"cpu": 2}),
        (make_pod("init is a peak").cpu("1").init_container({"cpu": "3"}), {"cpu": 3000}),
        (make_pod("small init").cpu("2").init_container({"cpu": "1"}), {"cpu": 2000}),
        (
            make_pod("inits are not added")
            .cpu("1")
            .init_container({"cpu": "2"})
            .init_container({"cpu": "3"}),
            {"cpu": 3000},
        ),
        (
            make_pod("sidecar adds").cpu("1").init_container({"cpu": "2"}, sidecar=True),
            {"cpu": 3000},
        ),
        (
            make_pod("init after a sidecar runs beside it")
            .cpu("1")
            .init_container({"cpu": "2"}, sidecar=True)
            .init_container({"cpu": "3"}),
            {"cpu": 5000},
        ),
        (
            make_pod("init before a sidecar runs alone")
            .cpu("1")
            .init_container({"cpu": "3"})
            .init_container({"cpu": "1"}, sidecar=True),
            {"cpu": 3000},
        ),
        (make_pod("limit as request").limits({"cpu": "2"}), {"cpu": 2000}),
        (make_pod("request over limit").cpu("1").limits({"cpu": "2"}), {"cpu": 1000}),
        (
            make_pod("overhead").cpu("1").overhead(cpu="250m", memory="1Mi"),
            {"cpu": 1250, "memory": MI},
        ),
        (
            make_pod("pod level replaces").cpu("1").memory("1Gi").pod_resources({"cpu": "5"}),
            {"cpu": 5000, "memory": GI},
        ),
        (
            make_pod("pod level limit where no container asks")
            .memory("1Gi")
            .pod_resources(limits={"cpu": "2", "memory": "8Gi"}),
            {"cpu": 2000, "memory": GI},
        ),
        (
            make_pod("a resize counts where the pod has no request of its own")
            .memory("64M")
            .pod_resources({"cpu": "1"})
            .status(containerStatuses=[{"name": "c", "resources": {"requests": {"memory": "1Gi"}}}]),
            {"cpu": 1000, "memory": GI},
        ),
        (
            make_pod("a limit for the whole fixes what containers asked for")
            .memory("64Mi")
            .pod_resources(limits={"cpu": "1"})
            .status(containerStatuses=[{"name": "c", "resources": {"requests": {"memory": "1Gi"}}}]),
            {"cpu": 1000, "memory": 64 * MI},
        ),
        (
            make_pod("huge pages by the limit of the whole")
            .requests({"hugepages-2Mi": "2Mi"})
            .pod_resources(limits={"hugepages-2Mi": "8Mi"}),
            {"hugepages-2Mi": 8 * MI},
        ),
        (
            make_pod("huge pages by the limits of containers")
            .limits({"hugepages-2Mi": "2Mi"})
            .init_container(limits={"hugepages-2Mi": "6Mi"})
            .pod_resources({"cpu": "1"}),
            {"cpu": 1000, "hugepages-2Mi": 6 * MI},
        ),
        (
            make_pod("pod level knows three resources").pod_resources({"nvidia.com/gpu": 1}),
            {},
        ),
        (
            make_pod("overhead on top of pod level").pod_resources({"cpu": "1"}).overhead(cpu="1"),
            {"cpu": 2000},
        ),
    ],
    ids=lambda value: value.raw()["metadata"]["name"] if isinstance(value, PodBuilder) else "",
)
def test_requests(pod: PodBuilder, expected: dict[str, int]) -> None:
    assert pod_requests(pod.obj()) == expected


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod("p"), {"cpu": 100, "memory": 200 * MI}),
        (make_pod("p").cpu(0).memory("1Mi"), {"cpu": 0, "memory": MI}),
        (make_pod("p").cpu("1").container(), {"cpu": 1100, "memory": 400 * MI}),
        (make_pod("p").init_container(), {"cpu": 100, "memory": 200 * MI}),
        (make_pod("p").limits({"cpu": "1"}), {"cpu": 1000, "memory": 200 * MI}),
        (make_pod("p").pod_resources({"cpu": "1"}), {"cpu": 1000, "memory": 200 * MI}),
        (make_pod("p").pod_resources(limits={"cpu": "1"}), {"cpu": 1000, "memory": 200 * MI}),
    ],
)
def test_missing_requests_can_be_filled_per_container(
    pod: PodBuilder, expected: dict[str, int]
) -> None:
    assert pod_requests(pod.obj(), non_missing=NON_ZERO) == expected


@pytest.mark.parametrize(
    ("actuated", "allocated", "conditions", "cpu"),
    [
        ("2", "1", (), 2000),
        ("500m", "3", (), 3000),
        ("500m", "700m", (), 1000),
        ("500m", "700m", (("PodResizePending", "True", "Infeasible"),), 700),
    ],
)
def test_a_resize_of_pod_level_resources_counts_with_its_largest_part(
    actuated: str, allocated: str, conditions: tuple[tuple[str, str, str], ...], cpu: int
) -> None:
    pod = make_pod("p").cpu("100m").pod_resources({"cpu": "1"})
    resources = {"requests": {"cpu": actuated, "ephemeral-storage": "1Gi"}}
    pod.status(resources=resources, allocatedResources={"cpu": allocated})
    for each in conditions:
        pod.condition(*each)
    assert pod_requests(pod.obj()) == {"cpu": cpu}
    assert pod_requests(pod.obj(), use_status=False) == {"cpu": 1000}


def _resized(spec: str, actuated: str, allocated: str, *conditions: tuple[str, str]) -> Pod:
    pod = make_pod("p").cpu(spec)
    pod.status(
        containerStatuses=[
            {
                "name": "c",
                "resources": {"requests": {"cpu": actuated}},
                "allocatedResources": {"cpu": allocated},
            }
        ]
    )
    for type, reason in conditions:
        pod.condition(type, "True", reason)
    return pod.obj()


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        (_resized("1", "2", "1"), 2000),
        (_resized("3", "2", "1"), 3000),
        (_resized("1", "1", "2"), 2000),
        (_resized("5", "2", "1", ("PodResizePending", "Infeasible")), 2000),
        (_resized("5", "2", "1", ("PodResizePending", "Deferred")), 5000),
    ],
)
def test_a_resize_under_way_counts_with_its_largest_part(pod: Pod, cpu: int) -> None:
    assert pod_requests(pod) == {"cpu": cpu}


@pytest.mark.parametrize(("infeasible", "cpu"), [(False, 4000), (True, 3000)])
def test_containers_are_summed_before_the_largest_is_taken(infeasible: bool, cpu: int) -> None:
    """One container grows while the other shrinks: the pod never has both at their largest."""
    pod = make_pod("p").cpu("3").container({"cpu": "1"}, name="d")
    pod.status(
        containerStatuses=[
            {"name": name, "resources": {"requests": {"cpu": had}}, "allocatedResources": {"cpu": had}}
            for name, had in (("c", "1"), ("d", "2"))
        ]
    )
    if infeasible:
        pod.condition("PodResizePending", "True", "Infeasible")
    assert pod_requests(pod.obj()) == {"cpu": cpu}


def test_status_can_be_left_out() -> None:
    assert pod_requests(_resized("1", "2", "1"), use_status=False) == {"cpu": 1000}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod("p").cpu("1").limits({"cpu": "2"}), {"cpu": 2000}),
        (make_pod("p").cpu("1"), {"cpu": 1000}),
        (make_pod("p").cpu("2").limits({"cpu": "1"}), {"cpu": 2000}),
        (make_pod("p").limits({"cpu": "1"}).container(None, {"cpu": "1"}), {"cpu": 2000}),
        (make_pod("p").limits({"cpu": "1"}).init_container(None, {"cpu": "3"}), {"cpu": 3000}),
        (
            make_pod("p").limits({"cpu": "1"}).init_container(None, {"cpu": "1"}, sidecar=True),
            {"cpu": 2000},
        ),
        (make_pod("p").limits({"cpu": "1"}).overhead(cpu="1"), {"cpu": 2000}),
        (make_pod("p").pod_resources(limits={"cpu": "4"}).limits({"cpu": "1"}), {"cpu": 4000}),
        (make_pod("p").pod_resources({"cpu": "2"}).limits({"cpu": "6"}), {"cpu": 6000}),
        (make_pod("p").pod_resources({"cpu": "2"}).limits({"cpu": "1"}), {"cpu": 2000}),
        (make_pod("p").pod_resources({"cpu": "2"}), {"cpu": 2000}),
        (
            make_pod("p")
            .pod_resources({"cpu": "2"}, {"cpu": "3"})
            .limits({"cpu": "3"})
            .overhead(cpu="1"),
            {"cpu": 4000},
        ),
        (make_pod("p"), {}),
    ],
)
def test_limits(pod: PodBuilder, expected: dict[str, int]) -> None:
    assert pod_limits(pod.obj()) == expected


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        (make_pod("p").cpu("1K"), "spec.containers[0].resources.requests[cpu]"),
        (make_pod("p").cpu("-1"), "spec.containers[0].resources.requests[cpu]"),
        (make_pod("p").limits({"cpu": "x"}), "spec.containers[0].resources.limits[cpu]"),
        (
            make_pod("p").init_container({"cpu": "x"}),
            "spec.initContainers[0].resources.requests[cpu]",
        ),
        (make_pod("p").overhead(cpu="x"), "spec.overhead[cpu]"),
        (make_pod("p").pod_resources({"cpu": "x"}), "spec.resources.requests[cpu]"),
    ],
)
def test_a_bad_quantity_is_named_by_its_field(pod: PodBuilder, field: str) -> None:
    with pytest.raises(InvalidObject) as error:
        pod_requests(pod.obj())
    assert error.value.field == field


def test_amounts_of_a_list() -> None:
    assert amounts({"cpu": "1", "memory": "1Ki", "pods": 3}) == {
        "cpu": 1000,
        "memory": 1024,
        "pods": 3,
    }
    with pytest.raises(InvalidObject, match=r"status.allocatable\[cpu\]: "):
        amounts({"cpu": "x"}, "status.allocatable")


@pytest.mark.parametrize(
    ("pod", "qos"),
    [
        (make_pod("p"), "BestEffort"),
        (make_pod("p").cpu("0"), "BestEffort"),
        (make_pod("p").requests({"nvidia.com/gpu": 1}), "BestEffort"),
        (make_pod("p").cpu("1"), "Burstable"),
        (make_pod("p").limits({"cpu": "1", "memory": "1Gi"}), "Guaranteed"),
        (make_pod("p").limits({"cpu": "1", "memory": "1Gi"}).cpu("1000m"), "Guaranteed"),
        (make_pod("p").limits({"cpu": "1", "memory": "1Gi"}).cpu("1m"), "Burstable"),
        (make_pod("p").limits({"cpu": "1"}), "Burstable"),
        (make_pod("p").limits({"cpu": "1", "memory": "1Gi"}).container(), "Burstable"),
        (make_pod("p").init_container({"cpu": "1"}), "Burstable"),
        (make_pod("p").pod_resources(limits={"cpu": "1", "memory": "1Gi"}), "Guaranteed"),
    ],
)
def test_quality_of_service(pod: PodBuilder, qos: str) -> None:
    assert qos_class(pod.obj()) == qos


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        ("cpu", False, False),
        ("memory", False, False),
        ("pods", False, False),
        ("nvidia.com/gpu", True, True),
        ("koordinator.sh/gpu-core", True, True),
        ("requests.nvidia.com/gpu", False, False),
        ("kubernetes.io/thing", False, True),
        ("hugepages-2Mi", False, True),
        ("attachable-volumes-csi-x", False, True),
        ("gpu", False, False),
        ("bad domain/gpu", False, False),
    ],
)
def test_resource_names_are_distinguished(name: str, extended: bool, scalar: bool) -> None:
    assert (is_extended(name), is_scalar_resource(name)) == (extended, scalar)


@given(pods())
def test_limits_are_never_below_requests(pod: Pod) -> None:
    limits = pod_limits(pod)
    assert all(limits[name] >= value for name, value in pod_requests(pod).items())
