"""Changes come true as a user makes them: one after the other, while other pods are pending."""

from __future__ import annotations

import copy

import pytest

from explanation.test_situations import anti_affinity, storage_class, using
from harness.followed_advice import Situation
from harness.objects import (
    Raw,
    deployment,
    gang,
    in_queue,
    node,
    pod,
    pod_group,
    queue,
    reservation,
)

B = node("b", 4, labels={"pool": "x"})
CORDONED = node("c", 4, labels={"pool": "z"}, unschedulable=True)
QUEUES = [queue("o"), queue("r")]
THEIRS: Raw = {"annotations": in_queue("r"), "affinity": anti_affinity("bg")}
RIVALS = [pod("bg-0", 1, "bg", **THEIRS), pod("bg-1", 1, "bg", at="1s", **THEIRS)]
"""The second one fits as soon as there is another node. Its queue has more than the other one."""
PICKY: Raw = {"nodeSelector": {"pool": "z"}, "affinity": anti_affinity("bg")}
"""They fit no node that the others use."""
OURS: Raw = {**PICKY, "annotations": in_queue("o"), "at": "10s"}
BATCH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "batch"},
    "value": -10,
    "preemptionPolicy": "Never",
}


def copies(*objects: Raw) -> list[Raw]:
    return [copy.deepcopy(raw) for raw in objects]


def web(replicas: int, cpu: int) -> Raw:
    raw = deployment("web", "web", replicas)
    template = raw["spec"]["template"]
    template["metadata"]["annotations"] = in_queue("o")
    template["spec"] = pod("x", cpu, **PICKY)["spec"]
    raw["metadata"]["annotations"] = {"sim.holdfast.io/at": "10s"}
    return raw


def bg(replicas: int) -> Raw:
    raw = deployment("bg", "bg", replicas)
    raw["spec"]["template"]["spec"] = pod("x", 1)["spec"]
    return raw


GANG = [pod_group("sub", 2, at="10s", queue="o"), *gang("sub", 2, 4, **OURS)]
IN_PODS = "request at most 2 cpu instead of 4, in each of 2 pods (sub-0, sub-1)"
IN_TEMPLATE = "request at most 4 cpu instead of 6, in the template of Deployment web"
UNCORDON, ADD = "uncordon c (kubectl uncordon c); then ", "add a node with pool=z ("


@pytest.mark.parametrize(
    ("kind", "objects", "text"),
    [
        ("PodGroup", [CORDONED, *GANG], f"{IN_PODS} and {UNCORDON}"),
        ("PodGroup", GANG, f"{IN_PODS} and {ADD}"),
        ("Pod", [CORDONED, pod("p", 6, **OURS)], f"request at most 4 cpu instead of 6 and {UNCORDON}"),
        ("Deployment", [CORDONED, web(1, 6)], f"{IN_TEMPLATE} and {UNCORDON}"),
    ],
    ids=["a gang", "a gang, and a new node", "a pod", "a template"],
)
def test_steps_are_named_in_an_order_in_which_they_help(
    kind: str, objects: list[Raw], text: str
) -> None:
    """After the other step alone, another pod would keep them from the node."""
    situation = Situation(B, *QUEUES, *RIVALS, *objects)
    name = next(raw["metadata"]["name"] for raw in objects if raw["kind"] == kind)
    (only,) = situation.report(kind, name).advice
    assert only.text.startswith(text)
    nodes = situation.followed(only)
    assert {at for each, at in nodes.items() if each.startswith(name)} <= {"c", "new-node"}


TAINTED = node("c", 4, unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}])
TOLERANT = pod("q", 4, at="10s", tolerations=[{"key": "k", "operator": "Exists"}])


def test_a_node_is_uncordoned_for_a_pod_that_tolerates_it_by_then() -> None:
    situation = Situation(TAINTED, pod("p", 4, at="5s"), TOLERANT)
    (only,) = situation.report("Pod", "p").advice
    assert only.text == ("tolerate k:NoSchedule and uncordon c (kubectl uncordon c); then it fits c")
    assert situation.followed(only)["p"] == "c"


def test_a_job_that_is_created_again_is_behind_others() -> None:
    """The template of a Job cannot be changed, and its new pods are younger than the other one."""
    template: Raw = {"spec": {**pod("x", 2)["spec"], "restartPolicy": "Never"}}
    metadata = {"name": "w", "annotations": {"sim.holdfast.io/at": "5s"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    job["spec"] = {"template": template, "parallelism": 2, "completions": 2}
    (alone,) = Situation(*copies(TAINTED, job)).report("Job", "w").advice
    assert alone.text.startswith("uncordon c (kubectl uncordon c) and tolerate k:NoSchedule")
    assert Situation(TAINTED, job, TOLERANT).report("Job", "w").advice == []


def test_nodes_that_others_take_one_after_the_other_are_not_advised() -> None:
    """A gang needs both nodes; the other pod fits the first one that is opened."""
    nodes = [node(name, 4, unschedulable=True) for name in ("c", "d")]
    rival = pod("x", 3, at="20s")
    objects = [*nodes, pod_group("sub", 2, at="10s"), *gang("sub", 2, 4, at="10s")]
    (alone,) = Situation(*copies(*objects)).report("PodGroup", "sub").advice
    assert alone.text.startswith("uncordon c, d (")
    assert Situation(*objects, rival).report("PodGroup", "sub").advice == []


def test_pods_do_not_end_for_a_pod_that_is_preempted_then() -> None:
    """The reservation gets what they free, and is used up by the pod; then the other one preempts
    that."""
    objects = [
        node("n1", 4),
        BATCH,
        *(pod(name, 2) for name in ("a", "b")),
        reservation("rv", "2", "p", at="2s", allocateOnce=True),
    ]
    batch = pod("p", 2, "p", at="4s", priorityClassName="batch")
    other = pod("q", 2, at="3s")
    (only,) = Situation(*copies(*objects, batch)).report("Pod", "p").advice
    assert only.text.startswith("end pod default/")
    assert Situation(*objects, other, batch).report("Pod", "p").advice == []


def test_a_deployment_with_pending_pods_is_smaller_before_its_pods_end() -> None:
    """Its controller ends pending pods first, and then those with the annotation."""
    situation = Situation(node("n1", 4), bg(5), pod("p", 3, at="6s"))
    (only,) = situation.report("Pod", "p").advice
    assert "by scaling Deployment bg down" in only.text
    assert "--replicas=1" in only.text
    ended = [each["name"] for each in only.change["objects"] if each["kind"] == "Pod"]
    nodes = situation.followed(only)
    assert nodes["p"] == "n1"
    assert len(nodes) == 2
    assert not nodes.keys() & set(ended)


def stateful(template: Raw, **spec: object) -> Raw:
    metadata = {"name": "w", "annotations": {"sim.holdfast.io/at": "5s"}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "w"}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("strategy", ["RollingUpdate", "OnDelete"])
def test_a_template_is_changed_before_pods_of_the_old_one_can_start(strategy: str) -> None:
    """Two old pods would start once the node has the label: the third one would not fit the queue, or
    the first one would be made again with what it requests now."""
    template: Raw = {"metadata": {"labels": {"app": "w"}, "annotations": in_queue("r")}}
    template["spec"] = pod("x", 2, nodeSelector={"disk": "ssd"})["spec"]
    web = stateful(template, updateStrategy={"type": strategy})
    situation = Situation(node("c", 4), queue("r", capability={"cpu": "5"}), web)
    first = situation.report("StatefulSet", "w").advice[0]
    assert first.text == (
        "request at most 1333m cpu instead of 2, in the template of StatefulSet w and label c (kubectl "
        "label node c disk=ssd), then delete the pending pod (kubectl delete pod w-0): the StatefulSet "
        "does not replace it by itself; then all 3 pods fit: c"
    )
    assert situation.followed(first) == {"w-0": "c", "w-1": "c", "w-2": "c"}


def test_a_template_is_changed_before_an_old_pod_can_use_a_reservation() -> None:
    """One old pod runs beside the reservation; another one would take all of it."""
    template = {"metadata": {"labels": {"app": "w"}}, "spec": pod("x", 2)["spec"]}
    held = reservation("h", "2", "ww", allocateOnce=False)
    situation = Situation(node("a", 4), held, stateful(template))
    found = [each for each in situation.report("StatefulSet", "w").advice if "owners" in each.text]
    assert found[0].text.startswith("request at most 1 cpu instead of 2, in the template of Stateful")
    assert found[0].text.endswith("; then all 3 pods fit: a")
    assert situation.followed(found[0]) == {"w-0": "a", "w-1": "a", "w-2": "a"}


def outgrown(nodes: int) -> Situation:
    """Four pods of a Deployment, of which one is of a new template that asks for more, and a claim of
    theirs with a misspelt storage class."""
    web = deployment("web", "web", 4)
    bounds = {"maxSurge": 0, "maxUnavailable": 1}
    web["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": bounds}
    web["spec"]["template"]["spec"] = pod("x", 1, volumes=using("data"))["spec"]
    larger: Raw = {"spec": {"template": {"spec": pod("x", 5, volumes=using("data"))["spec"]}}}
    changed = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "merge": larger}
    step = {"apiVersion": "sim.holdfast.io/v1alpha1", "kind": "Step", "at": "20s", "patch": changed}
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    given = {"storageClassName": "local", "capacity": size, "accessModes": modes}
    asked = {"storageClassName": "loacl", "resources": {"requests": size}, "accessModes": modes}
    storage = [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "data"}, "spec": spec}
        for kind, spec in (("PersistentVolume", given), ("PersistentVolumeClaim", asked))
    ]
    there = [node(f"n{at}", 4) for at in range(nodes)]
    return Situation(*there, storage_class("local"), *storage, web, step)


def test_old_pods_start_after_a_change_that_does_not_help_new_ones() -> None:
    """A smaller request beside it would let no other pod start."""
    situation = outgrown(1)
    first, *others = situation.report("Deployment", "web").advice
    assert first.text == (
        "use the storage class local instead of loacl in claim data (delete and create it again); "
        "then 3 of its pods run instead of 0, but its rollout does not complete"
    )
    assert not any("request at most" in each.text for each in others)
    assert sorted(situation.followed(first).values()) == ["", "n0", "n0", "n0"]


def test_new_pods_are_made_smaller_beside_a_change_that_helps_old_ones() -> None:
    situation = outgrown(2)
    first = situation.report("Deployment", "web").advice[0]
    assert first.text == (
        "use the storage class local instead of loacl in claim data (delete and create it again) and "
        "request at most 2 cpu instead of 5, in the template of Deployment web; then all 4 pods fit: "
        "n0, n1"
    )
    assert sorted(situation.followed(first).values()) == ["n0", "n0", "n1", "n1"]
