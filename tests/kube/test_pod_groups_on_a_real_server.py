"""`holdfast run` beside the controllers of Kubernetes: they make and release the claims of a PodGroup,
and keep the group while it has pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.claim_objects import (
    claim_template,
    claiming_pod,
    consumers_of,
    device_class,
    devices_of,
    request,
    resource_slice,
)
from harness.holdfast_process import holdfast
from harness.objects import Raw, node
from holdfast.api.crds import definitions
from realserver.accounts import as_the_account, documents, ensure
from realserver.assets import CONTROLLERS, missing
from realserver.client import RefusedError
from realserver.server import RealServer
from realserver.versions import minor_version

API = "scheduling.k8s.io/v1beta1"
CLAIMS = ("resource.k8s.io/v1", "resourceclaims")


def group(name: str) -> Raw:
    return {
        "apiVersion": API,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        },
    }


def members(name: str) -> list[Raw]:
    found = []
    for i in range(2):
        made = claiming_pod(
            f"{name}-{i}",
            templates={"gpu": None},
            schedulerName="holdfast-scheduler",
            schedulingGroup={"podGroupName": name},
            metadata={"namespace": "default"},
        )
        made["spec"]["terminationGracePeriodSeconds"] = 0
        found.append(made)
    return found


def is_there(server: RealServer, obj: Raw) -> bool:
    try:
        server.client.get(obj)
    except RefusedError as error:
        if error.status != 404:
            raise
        return False
    return True


def test_pods_of_a_group_share_a_claim_that_kubernetes_manages(
    real_cluster: RealServer, tmp_path: Path
) -> None:
    if why := missing(CONTROLLERS):
        pytest.skip(why)
    if minor_version(real_cluster) < 37:
        pytest.skip("PodGroups are served since 1.37")
    client = real_cluster.client
    for obj in (*documents("namespace.yaml"), *documents("rbac.yaml"), *definitions()):
        ensure(real_cluster, obj)
    client.create(device_class())
    for name in ("n1", "n2"):
        client.create(node(name))
    client.create(resource_slice("n2", 1))
    client.create(claim_template("gpu", request()))
    first, second = group("first"), group("second")
    account = as_the_account(real_cluster, tmp_path)
    with (
        real_cluster.kube_controller_manager(),
        holdfast(account, tmp_path / "log", "--no-leader-elect") as run,
    ):

        def nodes(name: str) -> list[str]:
            return [client.get(each)["spec"].get("nodeName", "") for each in members(name)]

        for obj in (first, *members("first")):
            client.create(obj)
        run.wait_until(lambda: nodes("first") == ["n2", "n2"])
        (claim,) = client.list(*CLAIMS)
        assert consumers_of(claim) == ["first"]
        assert devices_of(claim) == ["n2/gpu-0"]
        stored = client.get(first)
        assert stored["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]

        def status() -> Raw:
            found: Raw = client.get(first).get("status", {})
            return found

        run.wait_until(lambda: bool(status().get("conditions")))
        # What the two controllers write stays beside each other.
        assert status()["resourceClaimStatuses"] == [
            {"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}
        ]
        (condition,) = status()["conditions"]
        assert (condition["type"], condition["status"]) == ("PodGroupInitiallyScheduled", "True")

        for obj in (second, *members("second")):
            client.create(obj)
        client.delete(first)
        assert client.get(first)["metadata"]["deletionTimestamp"]
        assert nodes("second") == ["", ""]
        for each in members("first"):
            client.delete(each)
        run.wait_until(lambda: not is_there(real_cluster, first))
        run.wait_until(lambda: nodes("second") == ["n2", "n2"])
        assert run.stop() == 0
        assert not any("Traceback" in str(line) for line in run.events())
