"""Situations and what becomes of them: who is placed, who has to leave, who is pending."""

import copy
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from harness.claim_objects import claim_template, device_class, request, resource_slice
from harness.device_objects import device, gpu
from harness.objects import reservation
from harness.world import START
from holdfast.sim.scenario_actions import Create
from holdfast.sim.what_if.answer import WhatIfAnswer
from holdfast.sim.what_if.changes import ChangeError, WhatIfChanges
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster
from holdfast.sim.what_if.question import WhatIfQuestion, as_scheduled
from holdfast.snapshot.cluster_objects import ClusterObjects, of_objects
from holdfast.snapshot.cluster_snapshot import node_amounts
from holdfast.snapshot.manifests import InvalidInput
from holdfast.snapshot.snapshot_header import SnapshotHeader
from sim.what_if.clusters import (
    SETUP,
    ask,
    budget,
    cluster,
    documents,
    node,
    pod,
    priority,
    snapshot_of,
    workload,
)

TWO = (node("n1", labels={"pool": "a"}), node("n2", labels={"pool": "b"}))
WEB = workload("web", 4)
AGENT = workload("agent", kind="DaemonSet", cpu="500m")
OTHER_OWNER = [
    {"apiVersion": "example.com/v1", "kind": "Farm", "name": "f", "uid": "u", "controller": True}
]


def _on(name: str, where: str, **more: Any) -> dict[str, Any]:
    raw = pod(name, nodeName=where, **more.pop("spec", {}))
    return {**raw, "metadata": {**raw["metadata"], **more}}


class Situation(NamedTuple):
    objects: tuple[dict[str, Any], ...]
    changes: dict[str, Any]
    placed: dict[tuple[str, str], int] = {}  # noqa: RUF012
    """By node and by what they were."""
    displaced: dict[str, int] = {}  # noqa: RUF012
    """By reason."""
    pending: dict[str, int] = {}  # noqa: RUF012
    """By what they were."""
    blocked: int = 0
    lost: int = 0


SITUATIONS = {
    "a pod fits": Situation(TWO, {"manifests": [pod("p")]}, {("n1", "new"): 1}),
    "a pod is too large": Situation(TWO, {"manifests": [pod("p", "8")]}, pending={"new": 1}),
    "a workload fits in part": Situation(
        (*TWO, WEB),
        {"scales": ["deployment/web=10"]},
        {("n1", "new"): 2, ("n2", "new"): 2},
        pending={"new": 2},
    ),
    "scaled down": Situation((*TWO, WEB), {"scales": ["deploy/web=1"]}, displaced={"Deleted": 3}),
    "scaled to what it is": Situation((*TWO, WEB), {"scales": ["deployments/default/web=4"]}),
    "a Job": Situation(
        (*TWO, workload("j", 2, "2", "Job")),
        {"scales": ["job/j=1"]},
        displaced={"Deleted": 1},
    ),
    "nodes like another, with its DaemonSet": Situation(
        (*TWO, AGENT, workload("web", 4, "1500m")),
        {"scales": ["deployment/web=6"], "nodes": ["+2xn1"]},
        {("n1-new-1", "new"): 2, ("n1-new-2", "new"): 2},
    ),
    "pending pods get new nodes": Situation(
        (*TWO, workload("big", 2, "8")),
        {"nodes": ["+1xcpu=16,memory=1Gi"]},
        {("new-node-1", "pending"): 2},
    ),
    "pending before, and newly": Situation(
        (*TWO, workload("big", 2, "8")),
        {"manifests": [workload("huge", 1, "9")]},
        pending={"pending": 2, "new": 1},
    ),
    "a drain without budgets": Situation(
        (*TWO, WEB), {"drains": ["n1"]}, {("n2", "displaced"): 2}, {"Drained": 2}
    ),
    "a drain by labels": Situation(
        (*TWO, WEB), {"drains": ["pool=a"]}, {("n2", "displaced"): 2}, {"Drained": 2}
    ),
    "a drain with a budget for one at a time": Situation(
        (*TWO, WEB, budget("web", maxUnavailable=1)),
        {"drains": ["n1"]},
        {("n2", "displaced"): 2},
        {"Drained": 2},
    ),
    "a drain that a budget blocks": Situation(
        (*TWO, WEB, budget("web", minAvailable=4)), {"drains": ["n1"]}, blocked=2
    ),
    "a drain that ends when no replacement fits": Situation(
        (node("n1", "4"), node("n2", "3"), WEB, budget("web", minAvailable=3)),
        {"drains": ["n1"]},
        {("n2", "displaced"): 1},
        {"Drained": 2},
        {"displaced": 1},
        blocked=0,
    ),
    "DaemonSet pods stay on a drained node": Situation((*TWO, AGENT), {"drains": ["n1"]}),
    "a drained pod that nothing replaces": Situation(
        (*TWO, _on("alone", "n1")), {"drains": ["n1"]}, displaced={"Drained": 1}, lost=1
    ),
    "a drained pod of a controller that is not here": Situation(
        (*TWO, _on("f-0", "n1", ownerReferences=OTHER_OWNER)),
        {"drains": ["n1"]},
        {("n2", "displaced"): 1},
        {"Drained": 1},
    ),
    "a node fails, whatever budgets say": Situation(
        (*TWO, WEB, budget("web", minAvailable=4)),
        {"removals": ["n1"]},
        {("n2", "displaced"): 2},
        {"NodeRemoved": 2},
    ),
    "a StatefulSet keeps names": Situation(
        (*TWO, workload("db", 2, kind="StatefulSet")),
        {"removals": ["n1"]},
        {("n2", "displaced"): 1},
        {"NodeRemoved": 1},
    ),
    "removed and replaced by a larger node": Situation(
        (*TWO, workload("web", 8)),
        {"removals": ["n1", "n2"], "nodes": ["+1xcpu=8,memory=8Gi"]},
        {("new-node-1", "displaced"): 8},
        {"NodeRemoved": 8},
    ),
    "preemption": Situation(
        (node("n1"), priority("high", 100), WEB),
        {"manifests": [pod("p", "2", priorityClassName="high")]},
        {("n1", "new"): 1},
        {"Preempted": 2},
        {"displaced": 2},
    ),
    "a new template rolls out": Situation(
        (*TWO, WEB),
        {"manifests": [workload("web", 4, "1500m")]},
        {("n1", "new"): 2, ("n2", "new"): 2},
        {"Deleted": 4},
    ),
    "taints of a shape are respected": Situation(
        (node("n1", "1"),),
        {
            "manifests": [pod("p", "2")],
            "nodes": ["+1xcpu=8,memory=1Gi,taint:gpu=yes:NoSchedule"],
        },
        pending={"new": 1},
    ),
    "labels of a shape are respected": Situation(
        (node("n1", "4"),),
        {
            "manifests": [pod("p", "2", nodeSelector={"zone": "b"})],
            "nodes": ["+1xcpu=8,memory=1Gi,label:zone=b"],
        },
        {("new-node-1", "new"): 1},
    ),
    "a cluster without nodes": Situation(
        (WEB,), {"nodes": ["+1xcpu=4,memory=1Gi"]}, {("new-node-1", "pending"): 4}
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_becomes_of(name: str) -> None:
    case = SITUATIONS[name]
    given = cluster(*case.objects)
    answer = ask(given, **case.changes)
    placed = [each for each in answer.placed if "agent" not in each.object or "nodes" in case.changes]
    assert Counter((each.node, each.was) for each in placed) == case.placed, answer.placed
    assert Counter(each.reason for each in answer.displaced) == case.displaced, answer.displaced
    assert Counter(each.was for each in answer.pending) == case.pending, answer.pending
    assert len(answer.blocked) == case.blocked, answer.blocked
    assert len(answer.lost) == case.lost
    assert all(each.message != "not scheduled yet" for each in answer.pending)
    assert answer.data() == ask(given, **case.changes).data(), "not deterministic"


def _full() -> ClusterObjects:
    return cluster(*TWO, WEB, budget("web", minAvailable=4))


def test_a_blocked_eviction_names_the_budget() -> None:
    [first, _] = ask(_full(), drains=["n1"]).blocked
    assert (first.budget, first.node) == ("web", "n1")
    assert "The disruption budget web needs 4 healthy pods and has 4 currently" in first.message


def test_a_preempted_pod_names_its_preemptor_and_its_replacement() -> None:
    objects = cluster(node("n1"), node("n2", "2"), priority("high", 100), workload("web", 4))
    answer = ask(objects, manifests=[pod("p", "4", priorityClassName="high")])
    reasons = {(each.reason, each.by, each.to) for each in answer.displaced}
    assert reasons <= {("Preempted", "Pod/default/p", "n2"), ("Preempted", "Pod/default/p", "")}
    assert any(each.replaced_by for each in answer.displaced)


def test_capacity_before_and_after() -> None:
    answer = ask(cluster(*TWO, WEB), nodes=["+1xn1"], scales=["deployment/web=6"])
    before, after = answer.before.resources["cpu"], answer.after.resources["cpu"]
    assert (before.allocatable, before.requested, before.utilisation) == (8000, 4000, 0.5)
    assert (after.allocatable, after.requested, after.free) == (12000, 6000, 6000)
    assert answer.before.nodes == 2 and answer.after.nodes == 3


def test_fragmentation_is_free_capacity_that_typical_pods_cannot_use() -> None:
    # 1500m is left on each node: one pod of 1 CPU fits there, three would fit if it were one node.
    answer = ask(cluster(*TWO, workload("web", 10, "1", nodeName="")), scales=["deployment/web=2"])
    cpu = answer.after.resources["cpu"]
    assert (cpu.fits, cpu.fits_pooled, cpu.fragmentation) == (6, 6, 0.0)
    answer = ask(cluster(*TWO, workload("web", 2, "2500m")), nodes=["+1xcpu=1,memory=1Gi"])
    cpu = answer.after.resources["cpu"]
    assert (cpu.free, cpu.fits, cpu.fits_pooled, cpu.fragmentation) == (4000, 0, 1, 1.0)
    assert cpu.largest_free == 1500


def test_devices_by_claim_are_capacity_too() -> None:
    """Each pod claims one; of a cordoned node none are free."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    objects = cluster(
        *TWO,
        device_class(),
        *(resource_slice(name, 4) for name in ("n1", "n2")),
        claim_template("one", request()),
        workload("web", 3, resourceClaims=claims, nodeSelector={"pool": "a"}),
    )
    answer = ask(objects, scales=["deployment/web=1"], drains=["n2"])
    name = "gpu.example.com/devices"
    found = [each.resources[name] for each in (answer.before, answer.after)]
    amounts = [(each.allocatable, each.requested, each.reserved, each.free) for each in found]
    assert amounts == [(8, 3, 0, 5), (8, 1, 0, 3)]
    assert [each.largest_free for each in found] == [4, 3]


_PARTS = ("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
_WHOLE = "nvidia.com/gpu"


def _gpu_nodes(*names: str) -> list[dict[str, Any]]:
    sizes = {_WHOLE: "4", **dict.fromkeys((*_PARTS, "koordinator.sh/gpu"), "400")}
    devices = [device(name, *(gpu(minor) for minor in range(4))) for name in names]
    return [*(node(name, sizes={**sizes}) for name in names), *devices]


def _share(percent: int) -> dict[str, Any]:
    return {"requests": dict.fromkeys(_PARTS, str(percent))}


def test_devices_are_counted_as_on_nodes() -> None:
    """One that is shared is not free, and one that is taken or reserved whole has no percent free."""
    objects = cluster(
        *_gpu_nodes("n1", "n2"),
        pod("whole", requests={_WHOLE: "4"}, priority=1),
        *(pod(f"share-{percent}", **_share(percent)) for percent in (50, 60, 70)),
        reservation("r", app="x", requests={"cpu": "1", _WHOLE: "1"}),
    )
    setup = as_scheduled(SETUP, objects.objects)
    question = WhatIfQuestion.about(setup, objects)
    answer = question.ask(WhatIfChanges(manifests=documents([pod("p")])))
    found = answer.after.resources
    known = question.cluster.scheduler.cluster
    on_nodes = [node_amounts(known, name) for name in ("n1", "n2")]
    for name in (_WHOLE, *_PARTS):
        amounts = [each[name] for each in on_nodes]
        for of in ("allocatable", "requested", "free"):
            assert getattr(found[name], of) == sum(getattr(each, of) for each in amounts), (name, of)
        assert found[name].reserved == sum(each.held for each in amounts)
    assert found[_WHOLE].free == 0
    assert set(found) == {name for each in on_nodes for name in each}


def test_a_share_of_a_gpu_fits_on_one_gpu_only() -> None:
    objects = cluster(*_gpu_nodes("n1"), *(pod(f"p{n}", **_share(60)) for n in range(3)))
    of = ask(objects, manifests=[pod("q", **_share(60))]).after.resources[_PARTS[0]]
    assert (of.free, of.fits, of.fits_pooled) == (160, 0, 0)


def test_a_part_of_gpus_that_is_requested_by_the_change_only_was_free_before() -> None:
    answer = ask(cluster(*_gpu_nodes("n1")), manifests=[pod("p", **_share(50))])
    before, after = answer.before.resources[_PARTS[0]], answer.after.resources[_PARTS[0]]
    assert (before.allocatable, before.free, after.free) == (400, 400, 350)
    assert "koordinator.sh/gpu" not in answer.after.resources


def test_cordoned_nodes_have_nothing_free() -> None:
    answer = ask(cluster(*TWO), drains=["n1"])
    assert answer.after.resources["cpu"].free == 4000
    assert (answer.after.nodes, answer.after.schedulable_nodes) == (2, 1)


def test_pods_that_fit_anyway_are_no_effect_of_the_change() -> None:
    answer = ask(cluster(*TWO, pod("waits")), nodes=["+1xn1"])
    assert answer.placed == []
    assert "1 pod that is pending in the cluster would be placed anyway" in answer.notes


def test_pods_that_are_preempted_anyway_are_named() -> None:
    only = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
    objects = [_on("low", "n1", spec={"cpu": "4"}), pod("high", "3", priority=100, **only)]
    answer = ask(cluster(*TWO, *objects), drains=["n1"])
    assert "Pod/default/low on n1 is preempted anyway, by Pod/default/high" in answer.notes
    assert [(each.object, each.reason) for each in answer.displaced] == [
        ("Pod/default/high", "Drained")
    ]


def test_pods_of_other_schedulers_are_not_placed() -> None:
    answer = ask(cluster(*TWO), manifests=[pod("p", schedulerName="other")])
    [waiting] = answer.pending
    assert waiting.waits_for == "scheduler"
    assert any("the scheduler other" in note for note in answer.notes)


def test_gated_pods_wait_for_their_gate() -> None:
    answer = ask(cluster(*TWO), manifests=[pod("p", schedulingGates=[{"name": "example.com/g"}])])
    assert [each.waits_for for each in answer.pending] == ["gate"]


def test_another_configuration() -> None:
    args = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}],
    }
    objects = cluster(*TWO, workload("web", 1, "2"))
    spread = ask(objects, manifests=[pod("p")]).placed[0].node
    packed = ask(objects, manifests=[pod("p")], config=config).placed[0].node
    assert (spread, packed) == ("n2", "n1")


@pytest.mark.parametrize("change", ["drains", "removals"])
def test_a_pod_of_a_stateful_set_is_another_one_than_that_which_left(change: str) -> None:
    """Also if the objects are those of a run whose UIDs were made from the same seed."""
    made = HypotheticalCluster(SETUP, START)
    for raw in (*TWO, workload("db", 2, kind="StatefulSet")):
        made.take(Create(raw))
    made.rest()
    objects = of_objects([*made.objects.all()], SnapshotHeader(time=START))
    leaving: dict[str, Any] = {change: ["n2"]}
    for plan in ([], ["n1"]):
        answer = ask(objects, plan=plan, **leaving)
        (left,) = answer.displaced
        assert (left.object, left.replaced_by, left.to) == (*["Pod/default/db-1"] * 2, "n1")
        assert [(each.object, each.was) for each in answer.placed] == [(left.object, "displaced")]


def test_reservations_are_placed_or_pending() -> None:
    def reservation(name: str, cpu: str) -> dict[str, Any]:
        spec = {"template": {"spec": pod("x", cpu)["spec"]}, "owners": [{"object": {"name": "x"}}]}
        api = "scheduling.koordinator.sh/v1alpha1"
        return {"apiVersion": api, "kind": "Reservation", "metadata": {"name": name}, "spec": spec}

    answer = ask(cluster(*TWO), manifests=[reservation("fits", "2"), reservation("large", "9")])
    assert [(each.object, each.node) for each in answer.placed] == [("Reservation/fits", "n1")]
    assert [(each.object, each.was) for each in answer.pending] == [("Reservation/large", "new")]
    assert answer.after.resources["cpu"].reserved == 2000


ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown node": ({"drains": ["nn1"]}, "--drain: there is no node 'nn1'; did you mean n1?"),
    "labels of no node": ({"removals": ["pool=c"]}, "--remove: no node has the labels 'pool=c'"),
    "bad selector": ({"drains": ["=a"]}, "--drain: "),
    "unknown workload": (
        {"scales": ["deployment/wob=2"]},
        "there is no Deployment/default/wob; did you mean web",
    ),
    "bad scale": ({"scales": ["web=2"]}, "--scale: expected KIND/NAME=REPLICAS"),
    "bad kind": ({"scales": ["service/web=2"]}, "--scale: expected KIND/NAME=REPLICAS"),
    "no count": ({"nodes": ["n1"]}, "--nodes: expected +COUNTxSHAPE"),
    "count of 0": ({"nodes": ["+0xn1"]}, "must be from 1"),
    "misspelt resource": (
        {"nodes": ["+1xcpu=8,memroy=3Gi"]},
        "--nodes: 'cpu=8,memroy=3Gi': memroy is no resource of nodes; did you mean memory?",
    ),
    "resource without a domain": ({"nodes": ["+1xgpu=3"]}, "and DOMAIN/NAME such as nvidia.com/gpu"),
    "unknown template": ({"nodes": ["+1xn9"]}, "--nodes: there is no node 'n9'"),
    "bad amount": ({"nodes": ["+1xcpu=lots"]}, "--nodes: 'cpu=lots': cpu: "),
    "negative amount": ({"nodes": ["+1xcpu=-1"]}, "cpu is less than 0"),
    "bad label": ({"nodes": ["+1xcpu=1,label:a b=c"]}, "label a b: "),
    "bad taint": ({"nodes": ["+1xcpu=1,taint:a=b"]}, "expected taint:KEY=VALUE:EFFECT"),
    "an amount twice": ({"nodes": ["+1xcpu=8,cpu=9"]}, "--nodes: 'cpu=8,cpu=9': cpu is given twice"),
    "half a shape": ({"nodes": ["+1xcpu=1,memory"]}, "expected RESOURCE=AMOUNT, got 'memory'"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_changes_that_cannot_be_made(case: str) -> None:
    changes, text = ERRORS[case]
    with pytest.raises(ChangeError) as raised:
        ask(cluster(*TWO, WEB), **changes)
    assert text in str(raised.value)


BAD_MANIFESTS: dict[str, tuple[Any, str]] = {
    "misspelt field": ({**pod("p"), "spec": {"contaners": []}}, "spec.contaners"),
    "a Step": (
        {"apiVersion": "sim.holdfast.io/v1alpha1", "kind": "Step"},
        "is for `holdfast simulate`",
    ),
    "no object": ("text", "expected an object"),
    "a change that is not allowed": (
        workload("web", kind="Deployment")
        | {
            "spec": {
                "selector": {"matchLabels": {"app": "x"}},
                "template": {
                    "metadata": {"labels": {"app": "x"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            }
        },
        "field is immutable",
    ),
    "no such class": (pod("p", priorityClassName="none"), "no PriorityClass with name none"),
}


@pytest.mark.parametrize("case", BAD_MANIFESTS)
def test_manifests_that_a_server_would_refuse(case: str) -> None:
    raw, text = BAD_MANIFESTS[case]
    with pytest.raises(InvalidInput) as raised:
        ask(cluster(*TWO, WEB), manifests=[raw])
    assert text in str(raised.value)
    assert "cluster.yaml: document 1, line 1" in str(raised.value)


def test_one_answer_for_one_question() -> None:
    objects = cluster(*TWO, WEB, AGENT)
    answers = [ask(objects, nodes=["+2xn1"], scales=["deployment/web=20"]) for _ in range(2)]
    first, second = (answer.data() for answer in answers)
    assert first == second
    assert isinstance(answers[0], WhatIfAnswer)


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"])
def test_a_manifest_that_is_deployed_changes_nothing_in_a_snapshot(kind: str) -> None:
    """Snapshots lack environment, commands, volumes of Secrets and annotations; manifests have them."""
    raw = workload("web", 2, kind=kind)
    template = raw["spec"]["template"]
    template["metadata"]["annotations"] = {"example.com/scrape": "yes"}
    template["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "s"}}]
    template["spec"]["containers"][0] |= {
        "env": [{"name": "A", "value": "b"}],
        "command": ["run"],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    objects = snapshot_of(*TWO, raw)
    answer = ask(objects, [raw])
    assert (answer.placed, answer.displaced, answer.pending) == ([], [], [])
    if kind in ("Deployment", "ReplicaSet", "StatefulSet"):
        more = copy.deepcopy(raw)
        more["spec"]["replicas"] = 3
        assert _counts(ask(objects, [more])) == (1, 0)
        assert _counts(ask(objects, [more], plan=["n1"])) == (1, 0)


def _counts(answer: WhatIfAnswer) -> tuple[int, int]:
    return len(answer.placed), len(answer.displaced)


def test_a_dump_beside_a_snapshot() -> None:
    raw = workload("web", 2)
    raw["spec"]["template"]["spec"]["containers"][0]["command"] = ["run"]
    question = WhatIfQuestion.about(SETUP, cluster(*TWO, raw))
    dump = [each for each in question.cluster.objects.all() if each["kind"] != "Node"]
    taken = snapshot_of(*TWO)
    both = replace(taken, documents=(*taken.documents, *documents(dump)))
    assert _counts(ask(both, [raw])) == (0, 0)


def test_what_a_manifest_changes_in_a_snapshot() -> None:
    raw = workload("web", 2, nodeSelector={"pool": "a"})
    objects = snapshot_of(*TWO, raw)
    other, anywhere = copy.deepcopy(raw), copy.deepcopy(raw)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    del anywhere["spec"]["template"]["spec"]["nodeSelector"]
    for changed in (other, anywhere):
        assert _counts(ask(objects, [changed])) == (2, 2)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job"])
def test_a_manifest_without_a_number_of_replicas_keeps_it(kind: str) -> None:
    raw = workload("web", 4, kind=kind)
    fewer = copy.deepcopy(raw)
    fewer["spec"].pop("replicas", None)
    fewer["spec"].pop("parallelism", None)
    assert _counts(ask(cluster(*TWO, raw), [fewer])) == (0, 0)
    assert _counts(ask(snapshot_of(*TWO, raw), [fewer])) == (0, 0)


def test_a_job_that_is_scaled_beyond_its_completions() -> None:
    answer = ask(cluster(*TWO, workload("j", 3, kind="Job")), scales=["job/j=20"])
    assert _counts(answer) == (0, 0)
    assert "Job/default/j makes no more than 3 pods, its completions" in answer.notes
