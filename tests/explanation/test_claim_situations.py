"""Situations with devices by claim, exclusive CPUs and volumes, and that the advice is true."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_situations import (
    Row,
    as_they_are,
    budget,
    check,
    claim,
    full,
    on_nodes,
    using,
    volume,
)
from harness.claim_objects import (
    DRIVER,
    allocation,
    claim_template,
    claiming_pod,
    device,
    device_class,
    first_available,
    gpus,
    request,
    resource_claim,
    resource_slice,
)
from harness.device_objects import device as koordinator_device
from harness.device_objects import gpu
from harness.numa_objects import lsr
from harness.objects import Raw, node, pod, pod_group

N1 = node("n1", cpu="8")
N2 = node("n2", cpu="8")
GPU = device_class("gpu", f"device.driver == '{DRIVER}'")
BROKEN = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
ZONE = "topology.kubernetes.io/zone"
NUMA_OF = f"{DRIVER}/numa"


def model(name: str) -> str:
    return f"device.attributes['{DRIVER}'].model == '{name}'"


def memory(least: str) -> str:
    return f"device.capacity['{DRIVER}'].memory.compareTo(quantity('{least}')) >= 0"


def used(name: str, on: str, *devices: str, by: str) -> list[Raw]:
    """A claim with devices, and the running pod that uses it."""
    its = resource_claim(name, request(), allocation=allocation(on, *devices), reserved_for=[by])
    return [its, claiming_pod(by, name, nodeName=on, app=by)]


def in_zone(raw: Raw, zone: str) -> Raw:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {**raw, "spec": {**raw["spec"], "nodeAffinity": {"required": terms}}}


def of_slices(raw: Raw, count: int) -> Raw:
    return {
        **raw,
        "spec": {**raw["spec"], "pool": {**raw["spec"]["pool"], "resourceSliceCount": count}},
    }


def part(amount: str) -> Raw:
    return request("r", 1, capacity={"requests": {"memory": amount}})


def wants(*requests: Raw, **more: Any) -> list[Raw]:
    return [resource_claim("c", *requests, **more), claiming_pod("p", "c")]


POOL_A, POOL_B = (node(f"n{at}", cpu="8", labels={"pool": at}) for at in "ab")
ON_A = [*used("c", "na", "gpu-0", by="a"), resource_slice("na", 1), resource_slice("nb", 1), GPU]

SITUATIONS: dict[str, Row] = {
    # Allocated claims
    "node selector for another node than that of a shared claim": Row(
        [POOL_A, POOL_B, *ON_A, claiming_pod("p", "c", nodeSelector={"pool": "b"})],
        ["claim default/c is allocated: gpu.example.com/na/gpu-0, reserved for pod a"],
        ["RemoveSelector"],
    ),
    "node selectors for another node than that of a shared claim": Row(
        [
            POOL_A,
            POOL_B,
            *ON_A,
            claiming_pod("p", "c", nodeSelector={"pool": "b", "kubernetes.io/hostname": "nb"}),
        ],
        ["claim default/c is allocated"],
        ["RemoveSelector"],
    ),
    "node affinity to another node than that of a shared claim": Row(
        [
            POOL_A,
            POOL_B,
            *ON_A,
            claiming_pod(
                "p", "c", affinity=on_nodes({"key": "pool", "operator": "In", "values": ["b"]})
            ),
        ],
        ["claim default/c is allocated"],
        ["RemoveAffinity"],
    ),
    "node selector for an architecture that the node of a shared claim has not": Row(
        [
            node("na", cpu="8", labels={"kubernetes.io/arch": "amd64"}),
            node("nb", cpu="8", labels={"kubernetes.io/arch": "arm64"}),
            *ON_A,
            claiming_pod("p", "c", nodeSelector={"kubernetes.io/arch": "arm64"}),
        ],
        ["claim default/c is allocated"],
        ["EndPods"],
    ),
    # Taints
    "all devices are tainted": Row(
        [N1, GPU, resource_slice("n1", gpus(3, taints=[BROKEN])), *wants(request("r", 2))],
        ["n1: of 3 devices for request r: 3 tainted broken=yes:NoSchedule"],
        ["Tolerate"],
    ),
    "some devices are tainted, others in use": Row(
        [
            N1,
            GPU,
            resource_slice("n1", [device("gpu-0"), *gpus(3, taints=[BROKEN])[1:]]),
            *used("theirs", "n1", "gpu-0", by="a"),
            *wants(request("r", 2)),
        ],
        ["n1: of 3 devices for request r: 2 tainted broken=yes:NoSchedule, 1 in use by default/theirs"],
        ["Tolerate"],
    ),
    "tainted devices on the last of many nodes": Row(
        [
            *(node(f"n{i}", cpu="8") for i in range(1, 6)),
            GPU,
            resource_slice("n5", gpus(1, taints=[BROKEN])),
            *wants(),
        ],
        [
            "n5: of 1 device for request r: 1 tainted",
            "no devices are published for n1, n2, n3, and 1 more",
        ],
        ["Tolerate"],
    ),
    # Selectors
    "value that no device has": Row(
        [N1, GPU, resource_slice("n1", gpus(2, model="a100")), *wants(request("r", 1, model("h100")))],
        ["n1: of 2 devices for request r: 2 not matched by the selectors (model is a100)"],
        ["ReplaceClaim"],
    ),
    "capacity that no device has": Row(
        [
            N1,
            GPU,
            resource_slice("n1", [device("gpu-0", "24Gi"), device("gpu-1", "40Gi")]),
            *wants(request("r", 1, memory("80Gi"))),
        ],
        ["2 not matched by the selectors (memory is 24Gi, 40Gi)"],
        ["ReplaceClaim"],
    ),
    "selector with more than a comparison": Row(
        [
            N1,
            GPU,
            resource_slice("n1", gpus(1, model="a100")),
            *wants(request("r", 1, f"device.attributes['{DRIVER}'].model.startsWith('h')")),
        ],
        ["1 not matched by the selectors (model is a100)"],
        ["ReplaceClaim"],
    ),
    "class whose selectors match no device": Row(
        [
            N1,
            device_class("gpu", "device.driver == 'gpu.exmple.com'"),
            resource_slice("n1", 1),
            *wants(),
        ],
        [f"1 not matched by the selectors (driver is {DRIVER})"],
        ["ChangeDeviceClass"],
    ),
    "value of a template that no device has": Row(
        [
            N1,
            GPU,
            resource_slice("n1", gpus(2, model="a100")),
            claim_template("gpu", request("r", 1, model("h100"))),
            resource_claim("p-gpu", request("r", 1, model("h100")), owner="p"),
            claiming_pod("p", templates={"gpu": "p-gpu"}),
        ],
        ["(model is a100)"],
        ["ReplaceClaim"],
    ),
    "devices that match are in use": Row(
        [
            N1,
            GPU,
            resource_slice("n1", [device("gpu-0", model="h100"), device("gpu-1", model="a100")]),
            *used("theirs", "n1", "gpu-0", by="a"),
            *wants(request("r", 1, model("h100"))),
        ],
        ["1 in use by default/theirs (pod a)", "1 not matched by the selectors (model is a100)"],
        ["EndPods"],
    ),
    "alternatives of which none is there": Row(
        [
            N1,
            GPU,
            resource_slice("n1", gpus(2, model="a100")),
            *wants(
                first_available(
                    "r", request("big", 1, model("h100")), request("small", 2, model("l40"))
                )
            ),
        ],
        ["for request r/big", "for request r/small"],
        ["ReplaceClaim"],
    ),
    "device that matches is on a node with too few": Row(
        [
            N1,
            N2,
            GPU,
            resource_slice("n1", gpus(2, model="a100")),
            resource_slice("n2", gpus(1, model="h100")),
            *wants(request("a"), request("b", 1, model("h100"))),
        ],
        ["n2: of 1 device for request b: 1 allocated to another request of the pod"],
        ["ReplaceClaim"],
    ),
    # Constraints
    "devices with one value of an attribute": Row(
        [
            N1,
            GPU,
            resource_slice("n1", [device(f"gpu-{i}", numa=i) for i in range(2)]),
            *wants(
                request("a"),
                request("b"),
                constraints=[{"matchAttribute": NUMA_OF, "requests": ["a", "b"]}],
            ),
        ],
        [f"1 excluded by the constraint on {NUMA_OF}"],
        ["ReplaceClaim"],
    ),
    "devices with other values of an attribute": Row(
        [
            N1,
            GPU,
            resource_slice("n1", [device(f"gpu-{i}", numa=0) for i in range(2)]),
            *wants(request("a", 2), constraints=[{"distinctAttribute": NUMA_OF}]),
        ],
        [f"excluded by the constraint on {NUMA_OF}"],
        ["Resize", "ReplaceClaim"],
    ),
    # Devices that several claims share
    "more of a shared device than is left": Row(
        [
            N1,
            GPU,
            resource_slice("n1", [device("gpu-0", "40Gi", allowMultipleAllocations=True)]),
            resource_claim("theirs", part("10Gi")),
            claiming_pod("a", "theirs"),
            *wants(part("60Gi")),
        ],
        ["n1: of 1 device for request r: 1 without enough capacity left (memory left: 30Gi)"],
        ["Resize"],
    ),
    # Pools
    "pool of which a slice is missing": Row(
        [N1, GPU, of_slices(resource_slice("n1", 1), 2), *wants()],
        ["n1: nothing is allocated from the pool gpu.example.com/n1, which is being updated"],
        ["WaitForSlices"],
    ),
    # Combinations
    "fewer devices, and the pod that uses one ends": Row(
        [
            N1,
            GPU,
            resource_slice("n1", 2),
            *used("t1", "n1", "gpu-0", by="a"),
            *used("t2", "n1", "gpu-1", by="b"),
            budget("b"),
            *wants(request("r", 2)),
        ],
        ["1 in use by default/t1 (pod a)"],
        ["EndPods"],
    ),
    "a constraint, and a claim that no pod uses": Row(
        [
            N1,
            GPU,
            resource_slice("n1", [device(f"gpu-{i}", numa=i) for i in range(2)]),
            resource_claim("theirs", request(), allocation=allocation("n1", "gpu-0")),
            *wants(request("a"), request("b"), constraints=[{"matchAttribute": NUMA_OF}]),
        ],
        ["1 in use by default/theirs (no pod uses it)"],
        ["DeleteClaim"],
    ),
    # Several claims
    "two claims for devices of two nodes": Row(
        [
            N1,
            N2,
            GPU,
            resource_slice("n1", gpus(1, model="a100")),
            resource_slice("n2", gpus(1, model="h100")),
            resource_claim("c1", request("r", 1, model("a100"))),
            resource_claim("c2", request("r", 1, model("h100"))),
            claiming_pod("p", "c1", "c2"),
        ],
        [
            "n1: of 1 device for request r of claim c2: 1 not matched by the selectors (model is a100)",
            "n2: of 1 device for request r of claim c1: 1 not matched by the selectors (model is h100)",
        ],
        [],
    ),
    # All devices
    "all devices, and one is in use": Row(
        [
            N1,
            GPU,
            resource_slice("n1", 3),
            *used("theirs", "n1", "gpu-0", by="a"),
            *wants(request("r", allocationMode="All")),
        ],
        ["1 in use by default/theirs (pod a)"],
        ["Resize"],
    ),
    # CPUs
    "exclusive CPUs on a node without a topology": Row(
        [N1, lsr("p", "2")],
        ["no NodeResourceTopology describes those of n1"],
        ["RemoveLabel"],
    ),
    # GPUs
    "cores of a GPU, misspelt and without its memory": Row(
        [
            N1,
            koordinator_device("n1", gpu(0)),
            pod("p", requests={"koordinator.sh/gpu-cores": "50"}),
        ],
        ["did you mean koordinator.sh/gpu-core?"],
        ["CorrectResource"],
    ),
    # Volumes
    "volume in a zone without nodes": Row(
        [
            node("n1", cpu="8", labels={ZONE: "a"}),
            in_zone(volume("v", "d"), "c"),
            claim("d", volume="v"),
            pod("p", volumes=using("d")),
        ],
        [f"claim d is bound to v, which needs {ZONE} In (c)"],
        ["AddNode"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


AGAIN = "in ResourceClaim c (delete and create it again); then it fits n1"
TEXTS = {
    "more of a shared device than is left": "request at most 30Gi memory instead of 60Gi for request r "
    f"{AGAIN}",
    "value that no device has": f"select model a100 instead of h100 for request r {AGAIN}",
    "capacity that no device has": f"select memory 40Gi instead of 80Gi for request r {AGAIN}",
    "class whose selectors match no device": f"select driver {DRIVER} instead of gpu.exmple.com in "
    "DeviceClass gpu; then it fits n1",
    "devices with one value of an attribute": f"remove the constraint matchAttribute: {NUMA_OF} "
    f"{AGAIN}",
    "all devices, and one is in use": f"request at most 2 devices instead of all for request r {AGAIN}",
    "cores of a GPU, misspelt and without its memory": "request koordinator.sh/gpu-core and "
    "koordinator.sh/gpu-memory-ratio instead of koordinator.sh/gpu-cores; then it fits n1",
    "volume in a zone without nodes": f"add a node with {ZONE}=c (tried as new-node, like n1 without "
    "its pods); then it fits new-node",
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_advised(name: str) -> None:
    assert check(SITUATIONS[name]).advice[0].text == TEXTS[name]


# Claims that the scheduler deallocates itself


UNUSED = resource_claim("c", request(), allocation=allocation("n1", "gpu-0"))
SLICES = [GPU, resource_slice("n1", 1), resource_slice("n2", 1)]
MOVED = (
    "claim default/c is allocated where it does not fit, and no other pod uses it: the scheduler "
    "deallocates it if the pod is tried; then"
)


def test_a_claim_that_no_pod_uses_is_moved_by_the_scheduler() -> None:
    """Nothing has to be ended for the pod."""
    row = Row(
        [N1, N2, *SLICES, UNUSED, full("x", "8", "n1"), claiming_pod("p", "c", cpu="4")],
        [],
        [],
        node="n2",
    )
    report = as_they_are("Pod", "p", *row.objects)
    assert f"{MOVED} it fits n2" in report.details
    assert not report.advice
    check(row)


def test_what_is_in_the_way_once_such_a_claim_is_deallocated() -> None:
    theirs = used("theirs", "n2", "gpu-0", by="a")
    wanted = claiming_pod("p", "c", cpu="4")
    report = as_they_are("Pod", "p", N1, N2, *SLICES, UNUSED, *theirs, full("x", "6", "n1"), wanted)
    assert f"{MOVED}:" in report.details
    assert "n2: of 1 device for request r: 1 in use by default/theirs (pod a)" in report.details
    texts = [each.text for each in report.advice]
    assert texts[0].startswith("request at most 2 cpu instead of 4"), texts


# Gangs


def test_devices_for_other_members_are_not_in_use() -> None:
    claims = [resource_claim(f"c{i}", request()) for i in range(3)]
    members = [claiming_pod(f"g-{i}", f"c{i}", group="g") for i in range(3)]
    report = as_they_are(
        "Pod", "g-2", N1, GPU, resource_slice("n1", 2), pod_group("g", 3), *claims, *members
    )
    said = (
        "n1: of 2 devices for request r: 2 for pods that are tried before it (default/g-0, default/g-1)"
    )
    assert said in report.details
    assert "no pod uses it" not in "".join(report.details)


@pytest.mark.parametrize(
    ("asked", "published", "says", "advises"),
    [
        (request(), 1, "It fits now: n1", []),
        (request(count=3), 2, "3 devices are requested, and 2 are published", [["Resize"]]),
        (request(of="gpus"), 1, "no DeviceClass gpus", [["ReplaceClaim"], ["CreateDeviceClass"]]),
    ],
    ids=["fits", "too many devices", "misspelt class"],
)
def test_manifests_get_the_claims_of_their_templates(
    asked: Raw, published: int, says: str, advises: list[list[str]]
) -> None:
    objects = [N1, GPU, resource_slice("n1", published), claim_template("one", asked)]
    report = as_they_are("Pod", "p", *objects, claiming_pod("p", templates={"one": None}))
    assert any(says in each for each in [report.summary, *report.details])
    assert [each.change["actions"] for each in report.advice] == advises
