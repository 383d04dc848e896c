"""Rollouts, as `kubectl rollout` and `kubectl scale` see them."""

from typing import Any

import pytest

from holdfast.local.workloads.revisions import REVISION
from local.workloads.controlled_store import Cluster, condition, image, workload

Raw = dict[str, Any]
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def _deployed(replicas: int | None = 3, run: bool = True, **spec: Any) -> Cluster:
    cluster = Cluster()
    cluster.create(workload("Deployment", replicas=replicas, **spec))
    cluster.settle()
    if run:
        cluster.run()
    return cluster


def _deployment(cluster: Cluster) -> Raw:
    return cluster.get("Deployment", "web")


def _sets(cluster: Cluster) -> list[Raw]:
    """By revision."""
    sets = cluster.store.list("apps", "ReplicaSet")
    return sorted(sets, key=lambda each: int(each["metadata"]["annotations"][REVISION]))


def _sizes(cluster: Cluster) -> list[int]:
    return [each["spec"]["replicas"] for each in _sets(cluster)]


def _new_image(cluster: Cluster, name: str = "b") -> None:
    cluster.patch("Deployment", "web", template=image(_deployment(cluster), name))
    cluster.settle()


def _run_until_done(cluster: Cluster) -> list[tuple[int, int]]:
    """Lets pods become ready step by step; the least available and the most pods on the way."""
    seen = []
    for _ in range(50):
        pods = cluster.pods()
        ready = sum(pod["status"]["phase"] == "Running" for pod in pods)
        seen.append((ready, len(pods)))
        waiting = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
        if not waiting:
            return seen
        cluster.advance(1)
        cluster.run(waiting[0]["metadata"]["name"])
    raise AssertionError("the rollout does not end")


@pytest.mark.parametrize(("replicas", "pods"), [(None, 1), (0, 0), (3, 3)])
def test_a_deployment_makes_a_replica_set_and_that_the_pods(replicas: int | None, pods: int) -> None:
    cluster = _deployed(replicas)
    [only] = _sets(cluster)
    digest = only["metadata"]["labels"]["pod-template-hash"]
    assert only["metadata"]["name"] == f"web-{digest}"
    assert only["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": digest}
    assert len(cluster.pods(**{"app": "web", "pod-template-hash": digest})) == pods
    assert all(name.startswith(f"web-{digest}-") for name in cluster.names())


def test_status_shows_when_the_rollout_is_complete() -> None:
    cluster = _deployed(3, run=False)
    assert condition(_deployment(cluster), "Available")["status"] == "False"
    progressing = condition(_deployment(cluster), "Progressing")
    assert progressing["reason"] in ("NewReplicaSetCreated", "ReplicaSetUpdated")
    cluster.run()
    status = _deployment(cluster)["status"]
    assert {key: status[key] for key in status if key != "conditions"} == {
        "observedGeneration": 1,
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
    }
    assert condition(_deployment(cluster), "Available")["reason"] == "MinimumReplicasAvailable"
    assert condition(_deployment(cluster), "Progressing")["reason"] == "NewReplicaSetAvailable"


LIMITS = {
    "surge alone": (4, {"maxSurge": 1, "maxUnavailable": 0}, 4, 5),
    "unavailable alone": (4, {"maxSurge": 0, "maxUnavailable": 1}, 3, 4),
    "both": (4, {"maxSurge": 2, "maxUnavailable": 2}, 2, 6),
    "percent": (10, {"maxSurge": "25%", "maxUnavailable": "25%"}, 8, 13),
    "defaults": (4, {}, 3, 5),
    "neither": (4, {"maxSurge": 0, "maxUnavailable": 0}, 3, 4),
    "everything at once": (3, {"maxSurge": "100%", "maxUnavailable": "100%"}, 0, 6),
    "one": (1, {}, 1, 2),
}


@pytest.mark.parametrize("case", LIMITS)
def test_an_update_keeps_to_its_limits(case: str) -> None:
    replicas, rolling, least, most = LIMITS[case]
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    cluster = _deployed(replicas, strategy=strategy)
    _new_image(cluster)
    seen = _run_until_done(cluster)
    assert min(ready for ready, _ in seen) >= least
    assert max(pods for _, pods in seen) <= most
    assert _sizes(cluster) == [0, replicas]
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {"b"}
    assert condition(_deployment(cluster), "Progressing")["reason"] == "NewReplicaSetAvailable"


def test_sick_pods_of_old_make_way_first() -> None:
    cluster = _deployed(3, run=False, strategy=ROLLING)
    cluster.run(cluster.names()[0])  # two never get ready
    _new_image(cluster)
    seen = _run_until_done(cluster)
    assert min(ready for ready, _ in seen) >= 1
    assert _sizes(cluster) == [0, 3]


def test_recreate_waits_until_the_old_pods_are_gone() -> None:
    cluster = _deployed(2, strategy={"type": "Recreate"})
    cluster.slow_to_stop = True
    old = cluster.names()
    _new_image(cluster)
    assert _sizes(cluster) == [0]
    cluster.stop(old[0])
    assert _sizes(cluster) == [0]
    cluster.stop(old[1])
    assert _sizes(cluster) == [0, 2]
    cluster.run()
    assert condition(_deployment(cluster), "Progressing")["reason"] == "NewReplicaSetAvailable"


def test_undo_brings_the_old_replica_set_back_under_a_new_number() -> None:
    cluster = _deployed(2)
    _new_image(cluster)
    _run_until_done(cluster)
    first, second = _sets(cluster)
    _new_image(cluster, "a")
    _run_until_done(cluster)
    again = _sets(cluster)
    assert [each["metadata"]["name"] for each in again] == [
        second["metadata"]["name"],
        first["metadata"]["name"],
    ]
    newest = again[-1]["metadata"]["annotations"]
    assert newest[REVISION] == "3"
    assert newest["deployment.kubernetes.io/revision-history"] == "1"
    assert _deployment(cluster)["metadata"]["annotations"][REVISION] == "3"
    assert _sizes(cluster) == [0, 2]


def test_restart_is_an_update_like_any_other() -> None:
    cluster = _deployed(2)
    before = set(cluster.names())
    template = _deployment(cluster)["spec"]["template"]
    annotations = {"kubectl.kubernetes.io/restartedAt": "now"}
    restarted = {**template, "metadata": {**template["metadata"], "annotations": annotations}}
    cluster.patch("Deployment", "web", template=restarted)
    cluster.settle()
    _run_until_done(cluster)
    assert before.isdisjoint(cluster.names())


SCALED = [(3, 5), (5, 2), (2, 0), (0, 3)]


@pytest.mark.parametrize(("before", "after"), SCALED)
def test_scaling_makes_no_new_revision(before: int, after: int) -> None:
    cluster = _deployed(before)
    cluster.patch("Deployment", "web", replicas=after)
    cluster.settle()
    cluster.run()
    assert _sizes(cluster) == [after]
    assert _deployment(cluster)["status"].get("availableReplicas", 0) == after
    assert _deployment(cluster)["metadata"]["annotations"][REVISION] == "1"


def test_scaling_in_the_middle_of_an_update_is_shared() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    cluster = _deployed(10, strategy=strategy)
    _new_image(cluster)
    assert _sizes(cluster) == [8, 5]
    cluster.patch("Deployment", "web", replicas=15)
    cluster.settle()
    old, new = _sizes(cluster)
    assert old + new == 18
    assert (old, new) == (11, 7)


def test_a_paused_deployment_is_scaled_but_not_updated() -> None:
    cluster = _deployed(2)
    cluster.patch("Deployment", "web", paused=True)
    _new_image(cluster)
    cluster.patch("Deployment", "web", replicas=4)
    cluster.settle()
    assert _sizes(cluster) == [4]
    assert condition(_deployment(cluster), "Progressing")["reason"] == "DeploymentPaused"
    cluster.patch("Deployment", "web", paused=False)
    cluster.settle()
    _run_until_done(cluster)
    assert _sizes(cluster) == [0, 4]


def test_an_update_without_progress_times_out() -> None:
    cluster = _deployed(2, progressDeadlineSeconds=60)
    cluster.advance(10_000)  # done long ago: no deadline runs
    assert condition(_deployment(cluster), "Progressing")["reason"] == "NewReplicaSetAvailable"
    _new_image(cluster)
    cluster.advance(59)
    assert condition(_deployment(cluster), "Progressing")["status"] == "True"
    cluster.advance(2)
    late = condition(_deployment(cluster), "Progressing")
    assert (late["status"], late["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert late["message"].endswith("has timed out progressing.")
    _run_until_done(cluster)
    assert condition(_deployment(cluster), "Progressing")["reason"] == "NewReplicaSetAvailable"


@pytest.mark.parametrize(("limit", "kept"), [(None, 10), (2, 2), (0, 0)])
def test_old_replica_sets_are_kept_up_to_the_limit(limit: int | None, kept: int) -> None:
    spec: Raw = {} if limit is None else {"revisionHistoryLimit": limit}
    cluster = _deployed(1, **spec)
    for number in range(13):
        _new_image(cluster, f"v{number}")
        _run_until_done(cluster)
    sets = _sets(cluster)
    assert len(sets) == kept + 1
    assert sets[-1]["metadata"]["annotations"][REVISION] == "14"


def test_two_templates_never_share_a_name() -> None:
    cluster = _deployed(1)
    [first] = _sets(cluster)
    # Someone else has a ReplicaSet of the name the next template would have.
    probe = _deployed(1)
    _new_image(probe)
    taken = next(
        each
        for each in probe.store.list("apps", "ReplicaSet")
        if each["metadata"]["name"] != first["metadata"]["name"]
    )["metadata"]["name"]
    other = workload("ReplicaSet", "x", replicas=0)
    other["metadata"] = {"name": taken, "annotations": {REVISION: "0"}}
    cluster.create(other)
    cluster.settle()
    _new_image(cluster)
    _run_until_done(cluster)
    assert _deployment(cluster)["status"]["collisionCount"] == 1
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {"b"}


def test_annotations_are_handed_down() -> None:
    cluster = Cluster()
    raw = workload("Deployment", replicas=1)
    raw["metadata"]["annotations"] = {"kubernetes.io/change-cause": "first"}
    cluster.create(raw)
    cluster.settle()
    assert _sets(cluster)[0]["metadata"]["annotations"]["kubernetes.io/change-cause"] == "first"


def test_scaling_emits_events() -> None:
    cluster = _deployed(2, run=False)
    [only] = _sets(cluster)
    name = only["metadata"]["name"]
    assert (
        f"Deployment/web ScalingReplicaSet Scaled up replica set {name} from 0 to 2" in cluster.emitted
    )


def test_conditions_of_other_writers_may_lack_fields() -> None:
    cluster = _deployed(run=False)
    bare = [{"type": "Progressing", "status": "True"}, {"type": "Available", "status": "False"}]
    deployment = _deployment(cluster)
    status = {**deployment["status"], "conditions": bare}
    cluster.store.update(cluster.key("Deployment", "web"), {**deployment, "status": status})
    [only] = _sets(cluster)
    failed = {**only["status"], "conditions": [{"type": "ReplicaFailure", "status": "True"}]}
    cluster.store.update(
        cluster.key("ReplicaSet", only["metadata"]["name"]), {**only, "status": failed}
    )
    cluster.settle()
    cluster.run()
    assert condition(_deployment(cluster), "Progressing")["reason"] == "NewReplicaSetAvailable"
