"""GPUs in `holdfast get nodes`: whole ones, shares of them, reserved ones, devices by claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.claim_objects import DRIVER, claim_template, device_class, request, resource_slice
from harness.device_objects import device, gpu
from harness.objects import node, pod, reservation
from harness.served_cluster import ServedCluster

WHOLE, PERCENT = "nvidia.com/gpu", "koordinator.sh/gpu"


def requesting(raw: dict[str, Any], **amounts: str) -> dict[str, Any]:
    spec = raw["spec"]["template"]["spec"] if raw["kind"] == "Reservation" else raw["spec"]
    resources = spec["containers"][0]["resources"]
    resources["requests"] |= amounts
    resources["limits"] = amounts
    return raw


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """`gpu-1` has 4 GPUs, of which one is unhealthy, `gpu-2` has 4 without a Device object."""
    with ServedCluster(tmp_path_factory.mktemp("gpus"), nodes=0) as cluster:
        for name in ("gpu-1", "gpu-2"):
            raw = node(name, "8", "32Gi")
            raw["status"]["allocatable"][WHOLE] = "4"
            cluster.create(raw)
        healthy = [gpu(minor) for minor in range(3)]
        yield cluster.create(device("gpu-1", *healthy, gpu(3, health=False))).settle()


def gpus(cluster: ServedCluster, name: str) -> dict[str, list[str]]:
    """Total, requested, held and free, by resource."""
    header, row = cluster("get", "nodes", name, "-o", "wide").rows()
    cells = dict(zip(header, row, strict=True))
    return {
        resource: [cells[f"{resource.upper()}{part}"] for part in ("", "-REQUESTED", "-HELD", "-FREE")]
        for resource in (WHOLE, PERCENT)
        if resource.upper() in cells
    }


def test_whole_gpus_are_counted_from_their_devices(cluster: ServedCluster) -> None:
    assert gpus(cluster, "gpu-1") == {WHOLE: ["3", "0", "0", "3"]}
    assert gpus(cluster, "gpu-2") == {WHOLE: ["4", "0", "0", "4"]}
    cluster.create(requesting(pod("one", "1"), **{WHOLE: "1"})).settle()
    header = cluster("get", "nodes").rows()[0]
    assert [each for each in header if "GPU" in each] == ["GPU-HELD", "GPU-FREE"]


def test_several_kinds_of_gpus_share_two_columns(cluster: ServedCluster) -> None:
    other = node("gpu-3", "8", "32Gi")
    other["status"]["allocatable"]["amd.com/gpu"] = "8"
    cluster.create(other).settle()
    header, *rows = cluster("get", "nodes").rows()
    assert [each for each in header if "GPU" in each] == []
    free = {row[0]: row[header.index("OTHER-FREE")] for row in rows}
    assert free == {"gpu-1": f"{WHOLE}=3", "gpu-2": f"{WHOLE}=4", "gpu-3": "amd.com/gpu=8"}
    assert {row[header.index("OTHER-HELD")] for row in rows} == {"<none>"}
    assert "AMD.COM/GPU-FREE" in cluster("get", "nodes", "-o", "wide").rows()[0]


def test_a_shared_gpu_has_percent_free_and_is_no_free_gpu(cluster: ServedCluster) -> None:
    cluster.create(requesting(pod("half", "1"), **{PERCENT: "50"})).settle()
    assert gpus(cluster, "gpu-1") == {WHOLE: ["3", "1", "0", "2"], PERCENT: ["300", "50", "0", "250"]}
    described = cluster("describe", "node", "gpu-1").out
    (line,) = [line.split() for line in described.splitlines() if f" {PERCENT} " in line]
    assert line[1:5] == ["300", "50", "0", "250"]


def test_limits_of_extended_resources_are_their_requests_and_have_no_column(
    cluster: ServedCluster,
) -> None:
    cluster.create(requesting(pod("one", "1", nodeName="gpu-1"), **{WHOLE: "1"}))
    cluster.create(
        requesting(pod("half", "1", nodeName="gpu-1"), **{PERCENT: "50", "cpu": "2"})
    ).settle()
    header = cluster("get", "nodes", "-o", "wide").rows()[0]
    assert [each for each in header if each.endswith("-LIMITS")] == ["CPU-LIMITS"]


def test_reserved_gpus_are_held(cluster: ServedCluster) -> None:
    kept = reservation("kept", "1", "web", allocateOnce=False)
    cluster.create(requesting(kept, **{PERCENT: "200"})).settle()
    assert gpus(cluster, "gpu-1") == {WHOLE: ["3", "0", "2", "1"], PERCENT: ["300", "0", "200", "100"]}
    cluster.create(requesting(pod("half", "1", "web"), **{PERCENT: "50"})).settle()
    assert gpus(cluster, "gpu-1") == {WHOLE: ["3", "1", "1", "1"], PERCENT: ["300", "50", "150", "100"]}


def test_devices_of_claims_are_counted_by_driver(cluster: ServedCluster) -> None:
    cluster.create(device_class())
    cluster.create(resource_slice("gpu-2", 4))
    cluster.create(claim_template("one", request()))
    cluster.create(pod("p", resourceClaims=[{"name": "x", "resourceClaimTemplateName": "one"}]))
    held = reservation("kept", "1")
    held["spec"]["template"]["metadata"]["namespace"] = "default"
    held["spec"]["template"]["spec"]["resourceClaims"] = [
        {"name": "x", "resourceClaimTemplateName": "one"}
    ]
    cluster.create(held).settle()
    header, one, two = cluster("get", "nodes", "-o", "wide").rows()
    at = header.index(f"{DRIVER}/devices".upper())
    assert header[at : at + 4] == [
        f"{DRIVER}/DEVICES{part}".upper() for part in ("", "-REQUESTED", "-HELD", "-FREE")
    ]
    assert (one[at : at + 4], two[at : at + 4]) == (["0", "0", "0", "0"], ["4", "1", "1", "2"])
    described = cluster("describe", "node", "gpu-2").out
    (line,) = [line.split() for line in described.splitlines() if f"{DRIVER}/devices" in line]
    assert line[1:5] == ["4", "1", "1", "2"]


def test_a_reservation_of_devices_is_described_with_them(cluster: ServedCluster) -> None:
    cluster.create(device_class())
    cluster.create(resource_slice("gpu-2", 2))
    flags = ["--device-class", "gpuu", "--cpu", "1", "--owner", "app=a", "--name", "bad"]
    assert (
        'warning: --device-class: no DeviceClass "gpuu"; did you mean gpu?'
        in cluster("reserve", *flags).err
    )
    flags = ["--device-class", "gpu", "--count", "2", "--owner", "app=a", "--no-allocate-once"]
    done = cluster("reserve", *flags, "--name", "two")
    assert "warning" not in done.err
    assert "resourceclaimtemplate.resource.k8s.io/two-devices created" in done.err
    cluster.settle()
    described = cluster("describe", "reservation", "two").out
    asked = "deviceclass.resource.kubernetes.io/gpu=2"
    (line,) = [each for each in described.splitlines() if each.startswith("Requests:")]
    assert line.split() == ["Requests:", asked]
    header, row = cluster("get", "rsv", "two", "-o", "wide").rows()
    assert "REQUESTS" in header and asked in row
    lines = [line.split(maxsplit=1) for line in described.splitlines() if f"{DRIVER}/gpu-2/" in line]
    assert lines == [[f"{DRIVER}/gpu-2/gpu-{i}", "held"] for i in (0, 1)]
    entry = [{"name": "devices", "resourceClaimTemplateName": "two-devices"}]
    cluster.create(pod("owner", "1", "a", resourceClaims=entry)).settle()
    described = cluster("describe", "reservation", "two").out
    lines = [line.split(maxsplit=1) for line in described.splitlines() if f"{DRIVER}/gpu-2/" in line]
    assert lines == [[f"{DRIVER}/gpu-2/gpu-{i}", "in use by an owner"] for i in (0, 1)]
