"""`holdfast bench --mode kube`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from io import StringIO
from typing import Any, cast

import pytest
from rich.console import Console

from holdfast.bench import kube_measure as measure
from holdfast.bench.kube_cluster import kube_scheduler
from holdfast.bench.kube_content import LABEL, content_of
from holdfast.bench.kube_measure import DEFAULT_ROWS, KubeResult, best_of, print_results
from holdfast.bench.measure import this_machine
from holdfast.bench.plan import plan_of
from holdfast.bench.workload import BenchError, rows
from realserver.server import RealServer
from realserver.versions import minor_version


@pytest.mark.parametrize("name", DEFAULT_ROWS)
def test_a_workload_is_what_a_server_takes(name: str) -> None:
    content = content_of(plan_of(rows()[name], nodes=50))
    assert len(content.nodes) == 50
    assert content.measured
    for raw in (*content.nodes, *content.before, *content.measured):
        assert raw["metadata"]["labels"][LABEL]
        assert not {"uid", "resourceVersion", "creationTimestamp"} & raw["metadata"].keys()
    assert all(pod["spec"]["containers"][0]["image"] for pod in content.measured)
    assert not any(pod["spec"].get("nodeName") for pod in content.measured)
    assert all(pod["spec"]["nodeName"] for pod in content.before)
    assert {pod["metadata"]["namespace"] for pod in content.measured} <= set(content.namespaces)


def test_affinity_survives_the_way_to_the_server() -> None:
    content = content_of(plan_of(rows()["SchedulingPodAntiAffinity"], nodes=50))
    (term,) = content.measured[0]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["topologyKey"] == "kubernetes.io/hostname"


def test_claims_come_with_their_pods_and_existing_ones_have_devices() -> None:
    content = content_of(plan_of(rows()["SchedulingWithResourceClaims"], nodes=10))
    assert {obj["kind"] for obj in content.devices} == {"DeviceClass", "ResourceSlice"}
    taken = set()
    for pod in content.before:
        (claim,) = content.claims[pod["metadata"]["name"]]
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["pool"] == pod["spec"]["nodeName"]
        taken.add((result["pool"], result["device"]))
    assert len(taken) == len(content.before) == 10
    for pod in content.measured:
        name = pod["metadata"]["name"]
        (claim,) = content.claims[name]
        assert not (claim.get("status") or {}).get("allocation")
        (status,) = content.claim_statuses[name]["resourceClaimStatuses"]
        assert status["resourceClaimName"] == claim["metadata"]["name"]


@pytest.mark.parametrize(
    "name",
    [
        "SchedulingWithMixedChurn",
        "SchedulingCSIPVs",
        "SchedulingWithResourceClaimTemplate/half_steady",
    ],
)
def test_a_workload_that_needs_more_than_a_server_is_refused(name: str) -> None:
    with pytest.raises(BenchError, match="--mode kube does not support that"):
        content_of(plan_of(rows()[name], nodes=10))


def test_the_best_run_of_each_scheduler_counts() -> None:
    def result(scheduler: str, rate: float) -> KubeResult:
        return KubeResult("w", scheduler, 1, 0, 1, rate, 1.0, 1.0, 0.1, 0.1, 1.0)

    runs = [[result("holdfast", 1), result("other", 9)], [result("holdfast", 5), result("other", 2)]]
    assert [r.pods_per_second for r in best_of(runs)] == [5, 9]


def test_a_run_too_short_to_be_timed_is_still_shown() -> None:
    def result(scheduler: str) -> KubeResult:
        return KubeResult("w", scheduler, 1, 0, 1, 0.0, 0.0, 1.0, 0.0, 0.1, 1.0)

    shown = Console(file=StringIO(), width=120)
    print_results(shown, this_machine(), [result("holdfast"), result("kube-scheduler")])
    assert isinstance(shown.file, StringIO) and "kube-scheduler" in shown.file.getvalue()


def test_a_missing_program_is_an_error() -> None:
    with pytest.raises(BenchError, match="is not an executable file"):
        kube_scheduler("/no/such/program", "x")


class Running:
    def check(self) -> None:
        pass


def test_pods_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_PATIENCE", 0.01)

    async def waited() -> None:
        watching = asyncio.create_task(asyncio.sleep(60))
        await measure._until_bound(watching, cast(Any, Running()))

    with pytest.raises(BenchError, match="not every pod was bound after 0 s"):
        asyncio.run(waited())


@pytest.mark.parametrize(
    ("name", "pods"),
    [
        ("SchedulingPodAffinity", 20),
        ("SchedulingWithResourceClaims", 120),
        ("SchedulingWithResourceClaim", 100),
        ("ExtendedResource", 100),
    ],
)
def test_it_runs_and_leaves_nothing_behind(real_cluster: RealServer, name: str, pods: int) -> None:
    if name != "SchedulingPodAffinity" and minor_version(real_cluster) < 37:
        pytest.skip("the server has no DeviceTaintRules or extended resources")
    command = [sys.executable, "-m", "holdfast", "bench", "--mode", "kube", name]
    command += ["--nodes", "20", "--repeat", "1", "-o", "json"]
    command += ["--kubeconfig", str(real_cluster.kubeconfig())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["scheduler"], row["measured_pods"], row["nodes"]) == ("holdfast", pods, 20)
    assert row["pods_per_second"] > 0 and row["peak_memory_mb"] > 10
    assert real_cluster.client.list("v1", "nodes") == real_cluster.client.list("v1", "pods") == []
    for plural in ("resourceclaims", "resourceslices", "deviceclasses"):
        assert real_cluster.client.list("resource.k8s.io/v1", plural) == []
