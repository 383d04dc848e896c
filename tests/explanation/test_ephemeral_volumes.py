"""Changes of workloads whose pods have generic ephemeral volumes: new pods get claims of their own."""

from __future__ import annotations

import pytest

from explanation.test_admitted_pods import cluster_with, pods_of, report_on_pending, workload
from explanation.test_followed_workload_advice import followed
from explanation.test_situations import DB
from harness.followed_advice import Situation
from harness.objects import Raw, node, pod

N1 = node("n1", cpu="8")
CLASS = "use the storage class fast instead of fsat in the volumeClaimTemplate of its volume data"


def storage_class(mode: str) -> Raw:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": mode,
    }


def spec(cpu: str, storage: str) -> Raw:
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    volume = {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    made: Raw = pod("x", cpu, volumes=[volume])["spec"]
    return made


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    ("cpu", "storage", "texts"),
    [
        ("10", "fast", {1: "request at most 8 cpu", 2: "request at most 4 cpu"}),
        ("1", "fsat", {1: CLASS, 2: CLASS}),
    ],
)
def test_new_pods_get_their_claims(
    mode: str, kind: str, replicas: int, cpu: str, storage: str, texts: dict[int, str]
) -> None:
    made = workload(kind, replicas, spec(cpu, storage))
    objects = cluster_with(N1, storage_class(mode), made)
    advice = report_on_pending(objects).advice[0]
    assert advice.text.startswith(texts[replicas])
    assert advice.text.endswith("it fits n1" if replicas == 1 else "both pods fit: n1")
    after = pods_of(followed(objects, advice.change))
    assert [raw["spec"].get("nodeName") for raw in after] == ["n1"] * replicas


def test_all_pods_of_a_job_get_claims_of_another_class() -> None:
    job = workload("Job", 2, spec("1", "fsat") | {"restartPolicy": "Never"})
    template = job["spec"]["template"]
    job |= {"apiVersion": "batch/v1", "spec": {"parallelism": 2, "completions": 2}}
    job["spec"]["template"] = template
    objects = cluster_with(N1, storage_class("WaitForFirstConsumer"), job)
    advice = report_on_pending(objects).advice[0]
    assert advice.text.startswith(CLASS)
    assert advice.text.endswith("both pods fit: n1")


def test_the_running_pods_of_a_job_get_new_volumes_too() -> None:
    """Those that they have are of the nodes on which they run, and go with the Job."""
    metadata = {"name": "j", "annotations": {"sim.holdfast.io/at": "5s"}}
    template = {"spec": spec("3", "fast") | {"restartPolicy": "Never"}}
    top = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    top["spec"] = {"parallelism": 3, "completions": 3, "template": template}
    nodes = [N1, node("n2", cpu="8", taints=[DB])]
    situation = Situation(*nodes, storage_class("WaitForFirstConsumer"), top)
    advice = situation.report("Job", "j").advice[0]
    assert advice.text == (
        "tolerate dedicated=db:NoSchedule, in the template of Job j (delete the Job and create it "
        "again); then all 3 pods fit: n1, n2"
    )
    assert sorted({*situation.followed(advice).values()}) == ["n1", "n2"]
