"""What `explain` says of workloads whose pods cannot be created, and of pods that cannot be resized."""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_followed_workload_advice import NOW
from explanation.test_largest_requests import at_rest, in_queue
from explanation.test_situations import (
    N1,
    changed,
    full,
    in_default,
    snapshot_of,
    snapshot_with,
    world_of,
)
from harness.followed_advice import Situation
from harness.objects import Raw, node, pod, queue
from harness.scenarios import step
from holdfast.api.names import PREEMPTABLE
from holdfast.api.times import format_time
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report

REFUSED = 'pods "web-2-" is forbidden: no PriorityClass with name hihg was found'
FAILURE = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": REFUSED}
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high", "uid": "high"},
    "value": 1000,
}


GANG_OF_3 = {"name": "g", "min-available": "3"}
SETS = (("Deployment", "web"), ("ReplicaSet", "web-1"))


def owner(kind: str, name: str) -> list[Raw]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}]


def owned(kind: str, name: str) -> Raw:
    """The metadata of a pod of a workload that is `selected`."""
    return {"ownerReferences": owner(kind, name), "labels": {"app": "web"}}


def selected(raw: Raw, **container: str) -> Raw:
    """The workload with labels by which its controller knows its pods, and without priorities."""
    spec = raw["spec"]
    raw["metadata"]["labels"] = {"app": "web"}
    spec["selector"] = {"matchLabels": {"app": "web"}}
    spec["template"]["metadata"] = {"labels": {"app": "web"}}
    spec["template"]["spec"].pop("priorityClassName", None)
    spec["template"]["spec"]["containers"][0] |= container
    return raw


def workload(kind: str, name: str, replicas: int, *conditions: Raw, cpu: str = "1") -> Raw:
    metadata: Raw = {"name": name, "namespace": "default", "uid": name}
    if kind == "ReplicaSet":
        metadata["ownerReferences"] = owner("Deployment", "web")
    spec = {**pod("x", cpu)["spec"], "priorityClassName": "hihg"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"replicas": replicas, "template": {"metadata": {}, "spec": spec}},
        "status": {"conditions": list(conditions)},
    }


def explained(deployment: Raw, *more: Raw) -> Report:
    running = full("web-1-a", "1", "n1", metadata={"ownerReferences": owner("ReplicaSet", "web-1")})
    old = workload("ReplicaSet", "web-1", 1)
    return explain(snapshot_of(world_of([N1, HIGH, old, running, *more])), deployment)


@pytest.mark.parametrize("known_by", ["Deployment", "ReplicaSet"])
def test_a_rollout_whose_new_pods_cannot_be_created(known_by: str) -> None:
    deployment = workload("Deployment", "web", 1, *([FAILURE] if known_by == "Deployment" else []))
    new = workload("ReplicaSet", "web-2", 1, *([FAILURE] if known_by == "ReplicaSet" else []))
    report = explained(deployment, new)
    assert report.phase == "Pending"
    assert report.summary == f"1 of 1 pod has a node. Pods cannot be created: {REFUSED}."
    assert "there is no PriorityClass hihg; did you mean high?" in report.details
    assert [each.text.partition(";")[0] for each in report.advice] == [
        "name the PriorityClass high instead of hihg, in the template of Deployment web",
        "create the PriorityClass hihg (tried with value 0)",
    ]
    (change,) = report.advice[0].change["objects"]
    assert change["patch"] == {"spec": {"template": {"spec": {"priorityClassName": "high"}}}}


def test_a_priority_class_is_not_advised_for_pods_that_fit_nowhere() -> None:
    deployment = workload("Deployment", "web", 1, FAILURE, cpu="20")
    report = explained(deployment)
    assert "there is no PriorityClass hihg; did you mean high?" in report.details
    assert [each.change["actions"] for each in report.advice] == [["UsePriorityClass", "Resize"]]


def refused(message: str, template: Raw, *classes: Raw, cpu: str = "3") -> Report:
    """Of a Deployment whose pods no API server creates; there is one node."""
    condition = {**FAILURE, "message": f'pods "web-2-" is forbidden: {message}'}
    deployment = selected(workload("Deployment", "web", 2, condition, cpu=cpu))
    deployment["spec"]["template"]["spec"] |= template
    snapshot = snapshot_of(world_of([N1]))
    snapshot.objects["node.k8s.io/v1", "RuntimeClass"] = {}
    for raw in classes:
        known = snapshot.objects.setdefault((raw["apiVersion"], raw["kind"]), {})
        known["", raw["metadata"]["name"]] = raw
    return explain(snapshot, deployment)


KATA = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "kata"},
    "handler": "kata",
    "overhead": {"podFixed": {"cpu": "2"}},
}
NO_RUNTIME = 'pod rejected: RuntimeClass "katta" not found'


def test_a_runtime_class_that_does_not_exist() -> None:
    """With the overhead of the one that does, one of the pods has too little capacity."""
    report = refused(NO_RUNTIME, {"runtimeClassName": "katta"}, KATA)
    assert "there is no RuntimeClass katta; did you mean kata?" in report.details
    assert [each.text for each in report.advice] == [
        "create the RuntimeClass katta (tried with handler katta and no overhead); then both pods fit: "
        "n1",
        "name the RuntimeClass kata instead of katta, in the template of Deployment web; then 1 of 2 "
        "pods fits: n1",
    ]


def test_runtime_classes_that_were_not_read_are_not_said_to_be_missing() -> None:
    deployment = selected(workload("Deployment", "web", 3))
    deployment["spec"]["template"]["spec"]["runtimeClassName"] = "kata"
    report = explain(snapshot_of(world_of([N1])), deployment)
    assert (report.details, report.advice) == ([], [])


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            {"priorityClassName": "high", "preemptionPolicy": "Never"},
            "remove preemptionPolicy: Never (its PriorityClass high has PreemptLowerPriority), in the "
            "template of Deployment web; then both pods fit: n1",
        ),
        (
            {"priorityClassName": "high", "priority": 5, "preemptionPolicy": "PreemptLowerPriority"},
            "remove priority: 5 (its PriorityClass high has 1000), in the template of Deployment web; "
            "then both pods fit: n1",
        ),
        (
            {"preemptionPolicy": "Never"},
            "remove preemptionPolicy: Never (only a PriorityClass sets it), in the template of "
            "Deployment web; then both pods fit: n1",
        ),
        ({"priorityClassName": "high", "priority": 1000}, ""),
    ],
    ids=["policy", "priority", "no class", "as its class says"],
)
def test_fields_that_contradict_the_priority_class(template: Raw, text: str) -> None:
    report = refused("the value must not be provided in pod spec", template, HIGH)
    assert [each.text for each in report.advice] == ([text] if text else [])


@pytest.mark.parametrize(
    ("cpu", "then"),
    [
        ("3", "its pods would start"),
        ("5", "1 of its 2 pods would be pending: No suitable node among 1 node: too little cpu (1)."),
        ("20", "its pods would be pending: No suitable node among 1 node: too little cpu (1)."),
    ],
)
def test_whether_refused_pods_would_fit(cpu: str, then: str) -> None:
    report = refused("exceeded quota: q", {}, cpu=cpu)
    assert report.details == [f"if they were created, {then}"]


def test_replicas_that_do_not_exist_yet() -> None:
    report = explained(workload("Deployment", "web", 3))
    assert report.summary.startswith("1 of 1 pod has a node. spec.replicas is 3.")


def test_a_rollout_that_is_fine() -> None:
    report = explained(workload("Deployment", "web", 1))
    assert (report.phase, report.summary) == ("Scheduled", "1 of 1 pod has a node.")
    assert report.details == []


# Resizes


def resized(reason: str, message: str, cpu: str, type: str = "PodResizePending") -> Raw:
    """A pod with 2 CPUs that is to have more."""
    raw = full("p", cpu, "n1")
    raw["status"] |= {
        "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}],
        "conditions": [{"type": type, "status": "True", "reason": reason, "message": message}],
    }
    return raw


@pytest.mark.parametrize(
    ("raw", "summary", "detail"),
    [
        (
            resized("Infeasible", "Node didn't have enough capacity: cpu", "20"),
            "It is on n1. Its resize can never be made on n1: it must be deleted and created again, or "
            "request less (Node didn't have enough capacity: cpu).",
            "it requests 20 cpu instead of 2; n1 has 8, of which 4 are not used by others",
        ),
        (
            resized("Deferred", "Node didn't have enough resource: cpu", "6"),
            "It is on n1. Its resize is deferred until n1 has the capacity (Node didn't have enough "
            "resource: cpu).",
            "it requests 6 cpu instead of 2; n1 has 8, of which 4 are not used by others",
        ),
        (
            resized("Error", "cgroup is busy", "3", "PodResizeInProgress"),
            "It is on n1. Its resize failed on n1, and is tried again (cgroup is busy).",
            "it requests 3 cpu instead of 2; n1 has 8, of which 4 are not used by others",
        ),
    ],
    ids=["infeasible", "deferred", "error"],
)
def test_a_resize_that_is_not_made(raw: Raw, summary: str, detail: str) -> None:
    world = world_of([N1, full("a", "4", "n1"), raw])
    report = explain(snapshot_of(world), world.objects["Pod", "p"])
    assert report.summary == summary
    assert detail in report.details


def test_a_resize_in_progress_is_not_a_problem() -> None:
    world = world_of([N1, resized("", "", "3", "PodResizeInProgress")])
    report = explain(snapshot_of(world), world.objects["Pod", "p"])
    assert (report.summary, report.details) == ("It is on n1.", [])


def waiting(reason: str, message: str = "", name: str = "main", **more: Any) -> Raw:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}, **more}


@pytest.mark.parametrize(
    ("phase", "statuses", "summary"),
    [
        (
            "Pending",
            {"containerStatuses": [waiting("ImagePullBackOff", "no such image")]},
            "It is on n1. Its container main waits: ImagePullBackOff (no such image).",
        ),
        (
            "Pending",
            {
                "initContainerStatuses": [waiting("CreateContainerConfigError", "no secret", "setup")],
                "containerStatuses": [waiting("PodInitializing")],
            },
            "It is on n1. Its init container setup waits: CreateContainerConfigError (no secret).",
        ),
        (
            "Running",
            {
                "containerStatuses": [
                    waiting(
                        "CrashLoopBackOff",
                        restartCount=3,
                        lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    )
                ]
            },
            "It is on n1. Its container main waits: CrashLoopBackOff, after 3 restarts; it ended with "
            "exit code 137 (OOMKilled).",
        ),
        (
            "Pending",
            {"containerStatuses": [waiting("ContainerCreating")]},
            "It is on n1. Its container main waits: ContainerCreating.",
        ),
    ],
    ids=["image", "init container", "crash", "starting"],
)
def test_what_containers_wait_for(phase: str, statuses: Raw, summary: str) -> None:
    raw = full("p", "1", "n1")
    raw["status"] |= {"phase": phase, **statuses}
    world = world_of([N1, raw])
    assert explain(snapshot_of(world), world.objects["Pod", "p"]).summary == summary


def test_anti_affinity_needs_a_node_for_each_replica() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [
        pod(f"web-{n}", "1", "web", affinity=apart, metadata={"ownerReferences": [owner]})
        for n in range(3)
    ]
    world = world_of([N1, *pods])
    raw = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "web"},
        "spec": {"replicas": 3, "template": {"spec": pods[0]["spec"]}},
    }
    details = explain(snapshot_of(world), raw).details
    assert (
        "its anti-affinity to app=web allows one pod per node: 3 pods need 3, and there is 1, so 2 "
        "more are needed (see: holdfast what-if --plan)"
    ) in details
    assert not any("nothing that was tried" in each for each in details)


def test_a_deployment_is_scaled_for_the_pods_that_its_gang_lacks() -> None:
    """Its ReplicaSet would delete a pod that somebody else creates."""
    gang = {f"gang.scheduling.koordinator.sh/{key}": value for key, value in GANG_OF_3.items()}
    made = owned("ReplicaSet", "web-1") | {"annotations": gang}
    pods = [pod(f"web-1-{n}", "1", metadata=made) for n in "ab"]
    sets = [selected(workload(kind, name, 2)) for kind, name in SETS]
    snapshot = snapshot_of(world_of([N1, *sets, *pods]))
    (scaled, *_) = explain(snapshot, sets[0]).advice
    assert scaled.text == (
        "scale Deployment web to 3 replicas, for 1 more pod of gang default/g; then it fits n1"
    )
    patched = scaled.change["objects"][0]
    assert (patched["kind"], patched["patch"]) == ("Deployment", {"spec": {"replicas": 3}})


# Rollouts


def rollout(strategy: Raw, replicas: int = 1, cpu: str = "5") -> tuple[Raw, list[Raw]]:
    """A Deployment with its old pods on n1, and a new pod that does not fit beside them."""
    deployment = selected(workload("Deployment", "web", replicas, cpu=cpu))
    deployment["spec"]["strategy"] = strategy
    sets = [
        selected(workload("ReplicaSet", "web-1", replicas, cpu=cpu), image="old"),
        selected(workload("ReplicaSet", "web-2", 1, cpu=cpu)),
    ]
    old = [
        full(f"web-1-{i}", cpu, "n1", metadata=owned("ReplicaSet", "web-1")) for i in range(replicas)
    ]
    new = pod("web-2-a", cpu, metadata=owned("ReplicaSet", "web-2"))
    return deployment, [N1, *sets, *old, new]


def test_a_rollout_that_waits_for_its_own_old_pods() -> None:
    deployment, objects = rollout({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    world = world_of(objects)
    report = explain(snapshot_of(world), deployment)
    assert (
        "1 old pod of Deployment web has a node: default/web-1-0. The rollout ends old pods only once "
        "new ones are ready (maxUnavailable 0, maxSurge 1)"
    ) in report.details
    first = report.advice[0]
    assert first.text.startswith(
        "set maxUnavailable of its rolling update to 1, so that 1 old pod may end first (kubectl patch "
    )
    (change,) = first.change["objects"]
    assert change["patch"] == {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}}
    assert first.text.endswith("; then it fits n1")


def stuck(cpu: str) -> tuple[Raw, list[Raw]]:
    """One old pod of 4 CPUs and a new one of 1 run beside another pod; new and old ones are pending."""
    deployment = selected(workload("Deployment", "web", 5, cpu=cpu))
    sets = [
        selected(workload("ReplicaSet", "web-1", 3, cpu="4")),
        selected(workload("ReplicaSet", "web-2", 4, cpu=cpu)),
    ]
    old, new = owned("ReplicaSet", "web-1"), owned("ReplicaSet", "web-2")
    pods = [full("x", "3", "n1"), full("web-1-a", "4", "n1", metadata=old)]
    pods += [pod(f"web-1-{i}", "4", metadata=old) for i in range(2)]
    pods += [full("web-2-a", cpu, "n1", metadata=new)]
    pods += [pod(f"web-2-{i}", cpu, metadata=new) for i in range(3)]
    return deployment, [N1, *sets, *pods]


def test_no_more_old_pods_end_first_than_necessary() -> None:
    deployment, objects = stuck("1")
    report = explain(snapshot_of(world_of(objects)), deployment)
    advice = report.advice[0]
    assert advice.text.startswith("set maxUnavailable of its rolling update to 4, so that 1 old pod")
    assert advice.text.endswith("; then all 4 pods fit: n1")


def test_an_old_pod_that_is_pending_is_left_to_the_rollout() -> None:
    deployment, objects = stuck("1")
    snapshot = snapshot_of(world_of(objects))
    explain(snapshot, deployment)  # now the snapshot has the Deployment
    report = explain(snapshot, snapshot.objects["v1", "Pod"]["default", "web-1-0"])
    old = "it is of an old template of Deployment web, whose rollout deletes it: see the new pods"
    assert old in report.details
    assert [each.change["actions"] for each in report.advice] == [["EndOldPodsFirst"]]


def test_no_pods_end_for_a_version_that_does_not_fit() -> None:
    """Two pods of 4 CPUs fill the node, and of the new version only one would fit."""
    deployment, objects = rollout({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, 2, "4")
    for raw in (deployment, objects[2]):
        raw["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "6"
    objects[-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "6"
    (advice,) = explain(snapshot_of(world_of(objects)), deployment).advice
    assert advice.text == (
        "request at most 4 cpu instead of 6, in the template of Deployment web, and set maxUnavailable "
        "of its rolling update to 1, so that 1 old pod may end first; then both pods fit: n1"
    )


@pytest.mark.parametrize("strategy", [{"type": "Recreate"}, {"rollingUpdate": {"maxUnavailable": 1}}])
def test_a_rollout_that_ends_old_pods_by_itself(strategy: Raw) -> None:
    deployment, objects = rollout(strategy)
    report = explain(snapshot_of(world_of(objects)), deployment)
    assert ["EndOldPodsFirst"] not in [each.change["actions"] for each in report.advice]


def test_a_rollout_that_is_paused() -> None:
    deployment, objects = rollout({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    deployment["spec"]["paused"] = True
    report = explain(snapshot_of(world_of(objects)), deployment)
    assert any("Its rollout is paused (spec.paused)" in each for each in report.details)
    assert ["EndOldPodsFirst"] not in [each.change["actions"] for each in report.advice]


def test_a_rollout_whose_old_pods_would_be_current_again() -> None:
    """The new pods fit only in place of the old ones, and with the old size nothing is replaced."""
    template: Raw = {"metadata": {"labels": {"app": "w"}}, "spec": pod("w", 2)["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "w"}}, "template": template}
    made: Raw = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": spec}
    larger = {"spec": {"template": {"spec": pod("w", 3)["spec"]}}}
    edit = step("20s", patch={"kind": "Deployment", "name": "w", "merge": larger})
    situation = Situation(node("n1", 4), made, edit)
    (only,) = situation.report("Deployment", "w").advice
    assert only.text == (
        "request 2 cpu instead of 3, in the template of Deployment w; then its old pods are current "
        "again, and its rollout is complete"
    )
    assert [*situation.followed(only).values()] == ["n1", "n1"]


# Suspended Jobs


def suspended(cpu: str, **labels: str) -> Raw:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", "uid": "train", "labels": labels},
        "spec": {"suspend": True, "template": {"metadata": {}, "spec": pod("x", cpu)["spec"]}},
    }


def test_a_suspended_job_can_be_resumed() -> None:
    report = explain(snapshot_of(world_of([N1])), suspended("2"))
    assert report.phase == "Suspended"
    assert "spec.suspend is true, so its controller creates none until it is resumed" in report.summary
    (advice,) = report.advice
    command = """kubectl patch job train -p '{"spec":{"suspend":false}}'"""
    assert advice.text == f"resume it ({command}); then it fits n1"
    assert [each["patch"] for each in advice.change["objects"]] == [{"spec": {"suspend": False}}]


def test_a_suspended_job_whose_pods_would_not_fit() -> None:
    report = explain(snapshot_of(world_of([N1])), suspended("20"))
    assert any(each.startswith("to resume it: kubectl patch job train") for each in report.details)
    assert any("if it were resumed, its pods would be pending" in each for each in report.details)
    assert "no node is large enough: it requests 20 cpu, the most a node has is 8" in report.details
    (advice,) = report.advice
    assert advice.text == (
        "resume it and request at most 8 cpu instead of 20, in the template of Job train (delete the "
        "Job and create it again); then it fits n1"
    )
    assert advice.change["actions"] == ["Resume", "Resize"]
    (made,) = (each["patch"]["spec"] for each in advice.change["objects"])
    assert made["suspend"] is False
    assert [*made] == ["suspend", "template"]


def test_a_job_that_kueue_suspended_is_left_to_kueue() -> None:
    report = explain(snapshot_of(world_of([N1])), suspended("2", **{"kueue.x-k8s.io/queue-name": "q"}))
    assert report.advice == []
    assert any("Kueue resumes it once the queue q admits it" in each for each in report.details)


# Pods that a change of the template does not replace


def kept_by(kind: str, **spec: Any) -> tuple[list[Raw], Report]:
    """A workload with one pod on n1, and one that does not fit beside it."""
    above = workload(kind, "db", 2, cpu="5")
    above["spec"] |= spec
    del above["spec"]["template"]["spec"]["priorityClassName"]
    metadata = {"ownerReferences": owner(kind, "db")}
    objects = [N1, above, full("db-0", "5", "n1", metadata=metadata), pod("p", "5", metadata=metadata)]
    if kind == "DaemonSet":
        objects.remove(above)
    world = world_of(objects)
    return list(world.objects.values()), explain(snapshot_of(world), above)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("StatefulSet", {}),
        ("StatefulSet", {"podManagementPolicy": "Parallel", "updateStrategy": {"type": "OnDelete"}}),
        ("DaemonSet", {"updateStrategy": {"type": "OnDelete"}}),
    ],
)
def test_a_pod_that_must_be_deleted_before_its_template_matters(kind: str, spec: Raw) -> None:
    objects, report = kept_by(kind, **spec)
    (advice,) = report.advice
    assert advice.text == (
        f"request at most 3 cpu instead of 5, in the template of {kind} db, then delete the pending "
        f"pod (kubectl delete pod p): the {kind} does not replace it by itself; then it fits n1"
    )
    operations = [(each["operation"], each["kind"]) for each in advice.change["objects"]]
    assert operations == [("patch", kind), ("delete", "Pod")]
    assert world_of(changed(objects, advice.change)).node_of("p") == "n1"


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_no_pod_is_replaced_that_is_yet_to_be_created(kind: str) -> None:
    """The pods of a manifest that is only checked."""
    above = selected(workload(kind, "db", 3, cpu="4"))
    sets = [selected(workload("ReplicaSet", "db", 3, cpu="4"))] if kind == "Deployment" else []
    for each in sets:
        each["metadata"]["ownerReferences"] = owner("Deployment", "db")
    metadata = owned("ReplicaSet" if sets else kind, "db")
    placed = [full(f"db-{at}", "4", "n1", metadata=metadata) for at in range(2)]
    snapshot = snapshot_of(
        world_of([N1, *(sets or [above]), *placed, pod("db-2", "4", metadata=metadata)])
    )
    last = f", in the template of {kind} db; then all 3 pods fit: n1"
    assert not any(each.text.endswith(last) for each in explain(snapshot, above).advice)
    snapshot.is_hypothetical = True
    (advice,) = explain(snapshot, above).advice
    assert advice.text.endswith(last)


def test_a_parallel_stateful_set_replaces_its_pending_pod() -> None:
    _, report = kept_by("StatefulSet", podManagementPolicy="Parallel")
    assert "kubectl delete" not in report.advice[0].text


# Pods that are created again


def test_several_pods_of_a_deployment_end_only_if_it_is_smaller() -> None:
    """Each of them frees a part, in which its replacement fits."""
    above = workload("ReplicaSet", "web-1", 12)
    metadata = {"ownerReferences": owner("ReplicaSet", "web-1")}
    ours = [full(f"web-1-{at}", "2", "n1", metadata=metadata) for at in range(4)]
    world = world_of([N1, above, *ours, pod("p", "8")])
    (advice,) = explain(snapshot_of(world), world.objects["Pod", "p"]).advice
    names = ", ".join(f"default/web-1-{at}" for at in range(4))
    assert advice.text.startswith(
        f"end 4 pods {names} (priority 0) on n1 by scaling Deployment web down, which would create "
        "them again in the capacity that each frees (kubectl scale deployment web --replicas=8, after "
    )
    *marks, last = advice.change["objects"]
    assert (last["kind"], last["patch"]) == ("Deployment", {"spec": {"replicas": 8}})
    assert [each["name"] for each in marks] == [raw["metadata"]["name"] for raw in ours]
    assert [each["operation"] for each in advice.change["then"]] == ["delete"] * 4


def test_pods_of_two_versions_of_a_deployment_make_it_smaller_once() -> None:
    above = [workload("ReplicaSet", f"web-{at}", 3) for at in (1, 2)]
    ours = [
        full(f"{of}-{at}", "2", "n1", metadata={"ownerReferences": owner("ReplicaSet", of)})
        for of in ("web-1", "web-2")
        for at in range(2)
    ]
    world = world_of([N1, *above, *ours, pod("p", "8")])
    (advice,) = explain(snapshot_of(world), world.objects["Pod", "p"]).advice
    assert " by scaling Deployment web down, " in advice.text
    scaled = [each["patch"] for each in advice.change["objects"] if each["kind"] == "Deployment"]
    assert scaled == [{"spec": {"replicas": 2}}]


def test_one_pod_that_ends_frees_all_at_once() -> None:
    metadata = {"ownerReferences": owner("ReplicaSet", "web-1")}
    world = world_of([N1, full("web-1-0", "8", "n1", metadata=metadata), pod("p", "8")])
    (advice,) = explain(snapshot_of(world), world.objects["Pod", "p"]).advice
    assert advice.text == (
        "end pod default/web-1-0 (priority 0) on n1; then it fits n1; ReplicaSet web-1 replaces "
        "default/web-1-0, and its new pod is then pending"
    )


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "Job"])
@pytest.mark.parametrize("priority", [-1, 0, 1])
def test_one_pod_whose_replacement_comes_first_ends_only_if_its_workload_is_smaller(
    kind: str, priority: int
) -> None:
    """Else its new pod, of a higher priority, gets the place again."""
    metadata = {"ownerReferences": owner(kind, "web"), "annotations": {PREEMPTABLE: "false"}}
    above = [workload(kind, "web", 3)] if kind != "Job" else []
    there = full("web-0", "8", "n1", metadata=metadata, priority=priority)
    raw = pod("p", "8")
    world = world_of([N1, *above, there, raw])
    texts = [each.text for each in explain(snapshot_of(world), world.objects["Pod", "p"]).advice]
    ending = [each for each in texts if each.startswith("end pod default/web-0 ")]
    if priority > 0 and kind == "Job":
        assert not ending
        return
    assert len(ending) == 1
    is_smaller = "down, which would create it again in the capacity that it frees (kubectl scale "
    assert (is_smaller in ending[0]) == (priority > 0)


def test_a_pod_that_ends_and_fits_another_node() -> None:
    metadata = {"ownerReferences": owner("ReplicaSet", "web-1")}
    other = node("n2", cpu="1")
    world = world_of([N1, other, full("web-1-0", "1", "n1", metadata=metadata), pod("p", "8")])
    (advice,) = explain(snapshot_of(world), world.objects["Pod", "p"]).advice
    assert "replaces" not in advice.text


# Pods that should be gone


@pytest.mark.parametrize(
    ("metadata", "detail", "text"),
    [
        (
            {},
            "default/a is being deleted and should have ended 2h ago: check the kubelet of n1",
            "delete pod default/a by force (kubectl delete pod a --grace-period=0 --force) on n1",
        ),
        (
            {"finalizers": ["example.com/x"]},
            "default/a is being deleted and should have ended 2h ago: its finalizer is not removed: "
            "example.com/x",
            "remove the finalizer example.com/x of pod default/a on n1",
        ),
    ],
    ids=["kubelet", "finalizer"],
)
@pytest.mark.parametrize("nominated", [False, True])
def test_a_pod_that_is_terminating_past_its_grace_period(
    metadata: Raw, detail: str, text: str, nominated: bool
) -> None:
    now = world_of([N1]).now
    deleted = {"deletionTimestamp": format_time(now - 7200), "deletionGracePeriodSeconds": 30}
    stuck = in_default(full("a", "8", "n1", metadata={**metadata, **deleted, "name": "a"}))
    raw = in_default(pod("p", "8"))
    if nominated:
        raw["status"] = {"phase": "Pending", "nominatedNodeName": "n1"}
    report = explain(snapshot_with([N1, stuck, raw], now), raw)
    assert detail in [each.replace("default/a on n1", "default/a") for each in report.details]
    assert [each.text for each in report.advice] == [f"{text}; then it fits n1"]


# Workloads without pods, and pods that have ended


NOWHERE = {"desiredNumberScheduled": 0}


def of_kind(kind: str, spec: Raw, status: Raw) -> Raw:
    metadata = {"name": "web", "namespace": "default", "uid": "web"}
    template = {"metadata": {}, "spec": {**pod("x", "1")["spec"], **spec.pop("pod", {})}}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    spec = {"template": template, **spec}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("raw", "summary", "details"),
    [
        (
            of_kind(
                "DaemonSet", {"pod": {"nodeSelector": {"gpu": "yes"}}}, {"desiredNumberScheduled": 0}
            ),
            "no node should run one (status.desiredNumberScheduled is 0).",
            [
                "node affinity or selector not met: n1",
                "nodeSelector gpu=yes is not met by the only node",
            ],
        ),
        (
            of_kind("Deployment", {"paused": True, "replicas": 2}, {}),
            "its rollout is paused (spec.paused), so its controller creates none until it is resumed. "
            "spec.replicas is 2.",
            [],
        ),
        (
            of_kind("Job", {}, {"conditions": [{"type": "Complete", "status": "True"}]}),
            "it is Complete.",
            [],
        ),
        (
            of_kind(
                "Job",
                {},
                {
                    "conditions": [
                        {
                            "type": "Failed",
                            "status": "True",
                            "reason": "BackoffLimitExceeded",
                            "message": "too many",
                        }
                    ]
                },
            ),
            "it is Failed (BackoffLimitExceeded: too many).",
            [],
        ),
    ],
    ids=["no matching node", "paused", "complete", "failed"],
)
def test_why_a_workload_has_no_pods(raw: Raw, summary: str, details: list[str]) -> None:
    report = explain(snapshot_of(world_of([N1])), raw)
    assert report.summary == f"It has no pods: {summary}"
    assert len(report.details) == len(details)
    for said, text in zip(report.details, details, strict=True):
        assert said.startswith(text)


def test_a_daemon_set_has_no_pod_on_a_tainted_node() -> None:
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    raw = of_kind("DaemonSet", {}, NOWHERE)
    report = explain(snapshot_of(world_of([node("n1", cpu="8", taints=[taint])])), raw)
    assert "untolerated taint: n1" in report.details


def test_why_a_pod_has_failed() -> None:
    raw = in_default(pod("p", nodeName="n1"))
    raw["status"] = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node had too little cpu"}
    report = explain(snapshot_of(world_of([N1])), raw)
    assert report.summary == "It has ended (Failed, OutOfcpu), on n1: Node had too little cpu."


# Pods with feasible nodes that do not start


def parallel(replicas: int, **spec: Any) -> Raw:
    """A StatefulSet of queue q, of 2 cpu each, that creates all its pods at once."""
    raw = in_queue("StatefulSet", replicas, cpu="2")
    raw["spec"] |= {"podManagementPolicy": "Parallel", "serviceName": "w"}
    raw["spec"]["template"]["spec"] |= spec
    return raw


def report_on(kind: str, *objects: Raw) -> Report:
    known = at_rest(*objects)
    (raw,) = (each for each in known if each["kind"] == kind and each["metadata"]["name"] == "w")
    return explain(snapshot_with(known, NOW), raw)


@pytest.mark.parametrize(
    ("queues", "replicas", "summary"),
    [
        ([], 2, "2 pending: Its queue does not admit it: queue q does not exist."),
        ([queue("q", capability={"cpu": "1"})], 3, "3 pending: Its queue does not admit it"),
        ([queue("q", state="Closed")], 2, "2 pending: Its queue does not admit it: queue q is closed."),
    ],
    ids=["missing", "too small", "closed"],
)
def test_no_pod_fits_that_its_queue_does_not_admit(
    queues: list[Raw], replicas: int, summary: str
) -> None:
    report = report_on("StatefulSet", node("n1"), *queues, parallel(replicas))
    assert summary in report.summary
    assert not any("what follows is about" in each for each in report.details)


def test_no_pod_fits_that_is_gated() -> None:
    gates = parallel(2, schedulingGates=[{"name": "g"}])
    report = report_on("StatefulSet", node("n1"), queue("q"), gates)
    assert report.summary.endswith("2 pending: It is blocked by scheduling gates.")


def test_pods_of_a_suspended_job_that_its_queue_would_not_admit() -> None:
    job = in_queue("Job", 1, cpu="2")
    job["spec"]["suspend"] = True
    report = report_on("Job", node("n1"), queue("q", capability={"cpu": "1"}), job)
    assert any(
        each.startswith("if it were resumed, its pods would be pending: Its queue does not admit it")
        for each in report.details
    )
