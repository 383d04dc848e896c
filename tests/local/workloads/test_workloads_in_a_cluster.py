"""Deployments and their like in a whole cluster: scheduled, run, scaled, updated, deleted."""

from typing import Any

import pytest

from harness.embedded_cluster import SteppedCluster
from holdfast.local.cluster_loop import EmbeddedCluster
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Key, Raw, Store
from holdfast.local.workloads.component import WorkloadControllers
from local.workloads.controlled_store import condition, image, workload


def _key(kind: str, name: str = "web") -> Key:
    return Key("batch" if kind == "Job" else "apps", kind, "default", name)


def _cluster(*workloads: Raw, nodes: int = 3) -> SteppedCluster:
    driven = SteppedCluster()
    for number in range(nodes):
        driven.create_node(f"n{number}", cpu="16")
    for raw in workloads:
        driven.create(raw)
    return driven


def _pods(driven: SteppedCluster) -> list[Raw]:
    return driven.store.list("", "Pod")


def _images(driven: SteppedCluster) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in _pods(driven)}


def _patch(driven: SteppedCluster, key: Key, **spec: Any) -> None:
    driven.update(key, spec={**driven.get(key)["spec"], **spec})


def test_a_deployment_runs() -> None:
    driven = _cluster(workload("Deployment", replicas=6))
    pods = _pods(driven)
    assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 6
    assert {pod["spec"]["nodeName"] for pod in pods} == {"n0", "n1", "n2"}
    status = driven.get(_key("Deployment"))["status"]
    assert (status["readyReplicas"], status["availableReplicas"], status["updatedReplicas"]) == (
        6,
        6,
        6,
    )
    assert (
        condition(driven.get(_key("Deployment")), "Progressing")["reason"] == "NewReplicaSetAvailable"
    )
    assert {"ScalingReplicaSet", "SuccessfulCreate", "Scheduled"} <= set(driven.reasons())


def test_scaled_up_by_hundreds_and_down_again() -> None:
    driven = _cluster(workload("Deployment", replicas=1), nodes=5)
    for replicas in (300, 5, 0):
        _patch(driven, _key("Deployment"), replicas=replicas)
        assert len(_pods(driven)) == replicas
        assert driven.get(_key("Deployment"))["status"].get("availableReplicas", 0) == replicas


def test_an_update_and_its_undoing() -> None:
    driven = _cluster(workload("Deployment", replicas=4))
    key = _key("Deployment")
    before = driven.get(key)["spec"]["template"]
    _patch(driven, key, template=image(driven.get(key), "b"))
    assert _images(driven) == {"b"} and len(_pods(driven)) == 4
    _patch(driven, key, template=before)
    assert _images(driven) == {"a"} and len(_pods(driven)) == 4
    revision = driven.get(key)["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
    assert revision == "3"


def test_an_update_waits_for_capacity() -> None:
    """A surge that does not fit, and no pod may be missing: the new pod waits, the old ones run."""
    raw = workload("Deployment", replicas=2)
    container = raw["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "8"}}
    rolling = {"maxSurge": 1, "maxUnavailable": 0}
    raw["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
    driven = _cluster(raw, nodes=1)
    key = _key("Deployment")
    _patch(driven, key, template=image(driven.get(key), "b"))
    phases = sorted(pod["status"]["phase"] for pod in _pods(driven))
    assert phases == ["Pending", "Running", "Running"]
    driven.create_node("n9", cpu="8")
    driven.after(15)
    assert _images(driven) == {"b"} and len(_pods(driven)) == 2


def test_pods_of_a_deleted_node_come_back_elsewhere() -> None:
    driven = _cluster(workload("Deployment", replicas=6))
    driven.delete(Key("", "Node", "", "n0"))
    driven.after(1)
    pods = _pods(driven)
    assert len(pods) == 6
    assert {pod["spec"]["nodeName"] for pod in pods} == {"n1", "n2"}


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"])
def test_pods_go_with_what_made_them(kind: str) -> None:
    driven = _cluster(workload(kind, replicas=None if kind == "DaemonSet" else 2))
    driven.after(5)
    assert len(_pods(driven)) == (3 if kind == "DaemonSet" else 2)
    driven.delete(_key(kind))
    driven.after(1)
    assert _pods(driven) == []
    assert driven.store.list("apps", "ReplicaSet") == []


def test_a_job_runs_to_its_end_and_goes() -> None:
    raw = workload("Job", "work", completions=4, parallelism=2, ttlSecondsAfterFinished=30)
    raw["spec"]["template"]["metadata"]["annotations"] = {"sim.holdfast.io/runs-for": "5s"}
    raw["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    driven = _cluster(raw)
    driven.after(5)
    assert driven.get(_key("Job", "work"))["status"]["succeeded"] == 2
    driven.after(6)
    job = driven.get(_key("Job", "work"))
    assert job["status"]["succeeded"] == 4
    assert condition(job, "Complete")["status"] == "True"
    driven.after(31)
    assert _key("Job", "work") not in driven.store
    assert _pods(driven) == []


def test_a_job_whose_pods_fail_gives_up() -> None:
    raw = workload("Job", "work", backoffLimit=1)
    raw["spec"]["template"]["spec"].update(restartPolicy="Never", activeDeadlineSeconds=3)
    driven = _cluster(raw)
    driven.after(30)
    job = driven.get(_key("Job", "work"))
    assert condition(job, "Failed")["reason"] == "BackoffLimitExceeded"
    assert job["status"]["failed"] == 2


def test_daemons_follow_the_nodes() -> None:
    driven = _cluster(workload("DaemonSet", "agent"), nodes=2)
    assert sorted(pod["spec"]["nodeName"] for pod in _pods(driven)) == ["n0", "n1"]
    driven.create_node("n7")
    assert sorted(pod["spec"]["nodeName"] for pod in _pods(driven)) == ["n0", "n1", "n7"]
    driven.update(Key("", "Node", "", "n7"), spec={"unschedulable": True})
    assert len(_pods(driven)) == 3


def test_a_pod_that_slowly_stops_is_replaced_at_once() -> None:
    raw = workload("ReplicaSet", replicas=1)
    raw["spec"]["template"]["metadata"]["annotations"] = {"sim.holdfast.io/stops-in": "10s"}
    driven = _cluster(raw)
    [first] = _pods(driven)
    driven.cluster.world.kubelets.delete(Key("", "Pod", "default", first["metadata"]["name"]))
    driven.settle()
    assert len(_pods(driven)) == 2
    driven.after(10)
    [second] = _pods(driven)
    assert second["metadata"]["name"] != first["metadata"]["name"]


def test_a_missing_priority_class_is_reported() -> None:
    raw = workload("Deployment", replicas=1)
    raw["spec"]["template"]["spec"]["priorityClassName"] = "high"
    driven = _cluster(raw)
    assert _pods(driven) == []
    assert "FailedCreate" in driven.reasons()
    failure = condition(driven.get(_key("Deployment")), "ReplicaFailure")
    assert "no PriorityClass with name high was found" in failure["message"]
    driven.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        }
    )
    driven.after(11)
    assert len(_pods(driven)) == 1


def test_a_cluster_that_starts_again_goes_on() -> None:
    driven = _cluster(workload("Deployment", replicas=3))
    before = {pod["metadata"]["uid"] for pod in _pods(driven)}
    store = Store()
    for kind in driven.store.kinds():
        for raw in driven.store.scan(*kind):
            metadata = raw["metadata"]
            store.create(Key(*kind, metadata.get("namespace", ""), metadata["name"]), raw)
    again = SteppedCluster(store, driven.clock)
    assert {pod["metadata"]["uid"] for pod in _pods(again)} == before
    _patch(again, _key("Deployment"), replicas=4)
    assert len(_pods(again)) == 4


def test_many_replicas_do_not_starve_other_workloads() -> None:
    store = Store()
    cluster = EmbeddedCluster(SchedulerFactory.of(), store)
    controllers = next(
        each for each in cluster.world.components if isinstance(each, WorkloadControllers)
    )
    raw = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "many", "namespace": "default", "uid": "u"},
        "spec": {
            "replicas": 1_200,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    store.create(Key("apps", "ReplicaSet", "default", "many"), raw)
    made = []
    for _ in range(3):
        before = store.count("", "Pod")
        for work in controllers.settle():
            if work is not None:
                work()
        made.append(store.count("", "Pod") - before)
    assert made == [100, 100, 100]


def _job(name: str, **annotations: str) -> Raw:
    raw = workload("Job", name)
    del raw["spec"]["selector"]
    raw["spec"]["template"]["metadata"]["annotations"] = annotations
    return raw


def _complete(driven: SteppedCluster, name: str) -> bool:
    conditions = driven.get(_key("Job", name))["status"].get("conditions", ())
    return any(each["type"] == "Complete" for each in conditions)


def test_jobs_finish_after_the_configured_time() -> None:
    driven = SteppedCluster()
    driven.cluster.world.kubelets.jobs_run_for = 10.0
    driven.create_node("n", cpu="16")
    driven.create(_job("work"))
    driven.create(_job("longer", **{"sim.holdfast.io/runs-for": "20s"}))
    driven.create(workload("ReplicaSet", "web", 1))
    driven.after(9)
    assert not _complete(driven, "work")
    driven.after(1)
    assert (_complete(driven, "work"), _complete(driven, "longer")) == (True, False)
    driven.after(100)
    assert _complete(driven, "longer")
    assert [pod["status"]["phase"] for pod in _pods(driven)].count("Running") == 1
