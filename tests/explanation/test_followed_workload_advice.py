"""Advice for workloads comes true: on random clusters each change that is said to let pods fit is made,
and the controllers and the scheduler of a hypothetical cluster place them.

`HOLDFAST_FOLLOWED=0:2000` tries these seeds instead of a few dozen.
"""

from __future__ import annotations

import copy
import os
import random
import re
from typing import Any, NamedTuple

import pytest

from explanation.test_situations import in_default, snapshot_with, storage_class
from harness.claim_objects import claim_template, device_class, request, resource_slice
from harness.objects import Raw, gang, node, pod, pod_group, queue, reservation
from holdfast.api.documents import Document
from holdfast.api.times import format_time
from holdfast.explanation.explainer import explain
from holdfast.explanation.facts.workload_dry_runs import _SEED
from holdfast.local.component import key_of
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Key
from holdfast.local.workloads.lister import Ref, controller_of
from holdfast.local.workloads.replica_set import wanted_replicas
from holdfast.local.workloads.revisions import REVISION_LABEL, current
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.sim.scenario_actions import Apply
from holdfast.sim.what_if.fit_check import check_fit
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster
from holdfast.snapshot.cluster_objects import of_documents

SEEDS = range(*map(int, os.environ.get("HOLDFAST_FOLLOWED", "0:36").split(":")))
FACTORY = SchedulerFactory.of()
NOW = 1_772_442_000.0
CLAIM = re.compile(r"; then (?:(?P<all>both|all \d+)|(?P<some>\d+) of \d+) pods? fits?: ")
RUNS = re.compile(r"; then (\d+) of its pods runs? instead of (\d+), but its rollout does not complete")
SIZE = re.compile(
    r"request at most (\S+) cpu instead of [^,]+, in the template of \w+ web(, and set .*)?;"
)
BOUND = re.compile(r"maxUnavailable of its rolling update to (\d+)")
KINDS = ("Deployment", "Deployment", "Deployment", "StatefulSet", "DaemonSet")


def workload(making: random.Random) -> Raw:
    kind, labels = making.choice(KINDS), {"app": "web"}
    spec: Raw = {"selector": {"matchLabels": labels}, "replicas": making.randint(2, 6)}
    inner = pod("x", str(making.randint(1, 4)))["spec"]
    if making.random() < 0.25:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        inner["affinity"] = {"podAntiAffinity": required}
    if making.random() < 0.2:
        inner["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    bounds: Raw = {}
    if making.random() < 0.6:
        bounds = {"maxUnavailable": making.randint(0, 2), "maxSurge": making.randint(0, 2)}
        bounds["maxSurge"] = bounds["maxSurge"] or int(not bounds["maxUnavailable"])
    if kind == "Deployment":
        strategies: list[Raw] = [{"rollingUpdate": bounds}] * 4 + [{"type": "Recreate"}]
        spec["strategy"] = making.choice(strategies)
    elif kind == "StatefulSet":
        spec |= {"serviceName": "web"}
        spec["podManagementPolicy"] = making.choice(("Parallel", "OrderedReady"))
        spec["updateStrategy"] = {"type": making.choice(("RollingUpdate", "OnDelete"))}
    else:
        del spec["replicas"]
    spec["template"] = {"metadata": {"labels": labels}, "spec": inner}
    metadata = {"name": "web", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def others(making: random.Random) -> list[Raw]:
    found: list[Raw] = []
    for at in range(making.randint(1, 3)):
        more: dict[str, Any] = {}
        if making.random() < 0.25:
            more["taints"] = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
        if making.random() < 0.15:
            more["unschedulable"] = True
        found.append(node(f"n{at}", cpu=making.choice(("4", "8")), **more))
        if used := making.randint(0, 3):
            raw = pod(f"x{at}", str(used), nodeName=f"n{at}")
            raw["metadata"]["namespace"] = "default"
            found.append(raw)
    return found


class Situation(NamedTuple):
    objects: list[Raw]
    """After the second version of the workload was applied."""
    before: list[Raw]
    manifest: Raw
    """The second version."""


def with_claims(raw: Raw) -> Raw:
    """Each pod of the workload has a claim from a template."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    raw["spec"]["template"]["spec"]["resourceClaims"] = claims
    return raw


def devices(making: random.Random) -> list[Raw]:
    nodes = [resource_slice(f"n{at}", making.randint(1, 4)) for at in range(3)]
    template = claim_template("t", request("r", making.choice((1, 1, 2)), of="gpu"))
    return [device_class("gpu"), template, *nodes]


def situation(seed: int, claims: bool = False) -> Situation:
    """A workload of which a first version was rolled out, and then another one."""
    making = random.Random(seed)
    cluster = HypotheticalCluster(FACTORY, NOW)
    first = with_claims(workload(making)) if claims else workload(making)
    for raw in (*(devices(random.Random(seed)) if claims else ()), *others(making), first):
        cluster.take(Apply(copy.deepcopy(raw)))
    cluster.rest()
    before = [*cluster.objects.all()]
    second = copy.deepcopy(first)
    if making.random() < 0.7:
        second["spec"]["template"]["spec"] = workload(making)["spec"]["template"]["spec"]
        second = with_claims(second) if claims else second
    if "replicas" in second["spec"] and making.random() < 0.3:
        second["spec"]["replicas"] = making.randint(2, 6)
    cluster.take(Apply(copy.deepcopy(second)))
    cluster.rest()
    return Situation([*cluster.objects.all()], before, second)


def key(each: Raw) -> Key:
    named = {"name": each["name"], "namespace": each["namespace"]}
    return key_of({"apiVersion": each["apiVersion"], "kind": each["kind"], "metadata": named})


def followed(objects: list[Raw], change: Raw) -> HypotheticalCluster:
    """The cluster once somebody has made the change, and everything has come to rest."""
    cluster = HypotheticalCluster(FACTORY, NOW, copy.deepcopy(objects), seed=5)
    for each in change["objects"]:
        at = key(each)
        if each["operation"] == "create":
            cluster.take(Apply(each["object"]))
        elif each["operation"] == "patch":
            raw = cluster.objects.get(at)
            assert raw is not None, at
            cluster.objects.update(at, merge_patch(raw, each["patch"]))
        elif at.kind == "Pod":
            cluster.kubelets.delete(at)
        else:
            cluster.objects.end(at)
    cluster.rest()
    return cluster


class Pods(NamedTuple):
    """The pods of the workload."""

    running: set[str]
    """By UID, all that have a node."""
    updated: set[str]
    """Those of them that are as the workload has them now."""
    wanted: int


def pods_of(cluster: HypotheticalCluster) -> Pods:
    (top,) = (raw for kind in set(KINDS) for raw in cluster.objects.scan("apps", kind))
    owners = {top["metadata"]["uid"]: top}
    sets = cluster.objects.scan("apps", "ReplicaSet")
    owners |= {raw["metadata"]["uid"]: raw for raw in sets}
    own = {
        raw["metadata"]["uid"]: raw
        for raw in cluster.objects.scan("", "Pod")
        if (owner := controller_of(raw)) is not None and owner["uid"] in owners
    }
    running = {uid for uid, raw in own.items() if raw["spec"].get("nodeName")}
    status, spec = top.get("status") or {}, top["spec"]
    if top["kind"] == "Deployment":
        refs = [(Ref("apps", "ReplicaSet", "default", raw["metadata"]["name"]), raw) for raw in sets]
        new = current(refs, spec["template"])
        uid = new[1]["metadata"]["uid"] if new is not None else ""
        updated = {each for each in running if (controller_of(own[each]) or {})["uid"] == uid}
        return Pods(running, updated, wanted_replicas(top))
    wanted = status["desiredNumberScheduled"] if top["kind"] == "DaemonSet" else wanted_replicas(top)
    if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
        return Pods(running, running, wanted)
    newest = max(
        cluster.objects.scan("apps", "ControllerRevision"), key=lambda raw: int(raw["revision"])
    )
    digest = newest["metadata"]["labels"][REVISION_LABEL]
    labels = {uid: raw["metadata"]["labels"].get(REVISION_LABEL, "") for uid, raw in own.items()}
    return Pods(running, {uid for uid in running if labels[uid].endswith(digest)}, wanted)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("claims", [False, True], ids=["", "with claims"])
def test_what_explain_advises(seed: int, claims: bool) -> None:
    objects = situation(seed, claims).objects
    top = next(raw for raw in objects if raw["kind"] in KINDS)
    report = explain(snapshot_with(objects, NOW), copy.deepcopy(top))
    before = pods_of(HypotheticalCluster(FACTORY, NOW, copy.deepcopy(objects), seed=5))
    for advice in report.advice:
        after = pods_of(followed(objects, advice.change))
        claim = CLAIM.search(advice.text)
        new = after.updated - before.running
        if (runs := RUNS.search(advice.text)) is not None:
            assert [len(before.running), len(after.running)] == [int(runs[2]), int(runs[1])], (
                advice.text
            )
        elif claim is None or claim["all"]:
            assert len(after.updated) == len(after.running) == after.wanted, advice.text
        else:
            assert len(new) >= int(claim["some"]), advice.text
        assert len(after.running) >= len(before.running), advice.text
        is_more = len(after.running) > len(before.running) or len(after.updated) > len(before.updated)
        assert is_more, advice.text
        if (bound := BOUND.search(advice.text)) is not None and int(bound[1]) > 1:
            less = {"rollingUpdate": {"maxUnavailable": int(bound[1]) - 1}}
            change = copy.deepcopy(advice.change)
            change["objects"][-1]["patch"]["spec"]["strategy"] = less
            found = pods_of(followed(objects, change))
            assert len(found.updated) < found.wanted, f"{bound[1]} is more than needed: {advice.text}"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_check_advises(seed: int) -> None:
    _, before, manifest = situation(seed)
    documents = [Document("cluster", 1, 1, raw, at) for at, raw in enumerate(before)]

    def checked(raw: Raw) -> tuple[bool, int, int, list[str]]:
        given = [Document("web.yaml", 1, 1, copy.deepcopy(raw))]
        (found,) = check_fit(FACTORY, of_documents(documents, None), given).objects
        return found.fits, found.placed, found.pods, found.details

    fits, placed, pods, details = checked(manifest)
    assert 0 <= placed <= pods
    for text in details if not fits else ():
        claim, size = CLAIM.search(text), SIZE.match(text)
        if claim is None or (size is None and not text.startswith("set maxUnavailable")):
            continue
        edited = copy.deepcopy(manifest)
        if size is not None:
            container = edited["spec"]["template"]["spec"]["containers"][0]
            container["resources"]["requests"]["cpu"] = size[1]
        if (bound := BOUND.search(text)) is not None:
            rolling = edited["spec"]["strategy"].setdefault("rollingUpdate", {})
            rolling["maxUnavailable"] = int(bound[1])
        fits, placed, pods, _ = checked(edited)
        if claim["all"]:
            assert fits, text
        else:
            assert placed >= int(claim["some"]), text


# Host ports


def with_ports(kind: str, replicas: int, **more: Any) -> Raw:
    spec = pod("x", "1", ports=[80])["spec"]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
            **more,
        },
    }


PARALLEL = {"podManagementPolicy": "Parallel"}
WITH_PORTS = {
    "more replicas than nodes": (with_ports("Deployment", 4), ["n0", "n1", "n2"], 1, []),
    "more replicas of a StatefulSet": (with_ports("StatefulSet", 5), ["n0", "n1", "n2"], 2, []),
    "all at once": (with_ports("StatefulSet", 5, **PARALLEL), ["n0", "n1", "n2"], 2, []),
    "a cordoned node": (with_ports("Deployment", 3), ["n0", "n1", "-n2"], 0, ["uncordon n2 "]),
    "a cordoned node, and one too few": (
        with_ports("Deployment", 4),
        ["n0", "n1", "-n2"],
        1,
        ["uncordon n2 "],
    ),
    "a pod of others": (
        with_ports("Deployment", 2),
        ["n0", "+n1"],
        0,
        ["use the host port 81 "],
    ),
}


@pytest.mark.parametrize("name", WITH_PORTS)
def test_host_ports_of_more_pods_than_nodes(name: str) -> None:
    raw, nodes, more, advised = WITH_PORTS[name]
    cluster = HypotheticalCluster(FACTORY, NOW)
    for each in nodes:
        cluster.take(Apply(node(each.strip("+-"), cpu="8", unschedulable=each.startswith("-"))))
        if each.startswith("+"):
            other = pod("x", "1", ports=[80], nodeName=each.strip("+"))
            other["metadata"]["namespace"] = "default"
            cluster.take(Apply(other))
    cluster.take(Apply(raw))
    cluster.rest()
    objects = [*cluster.objects.all()]
    top = next(each for each in objects if each["kind"] == raw["kind"])
    pending = next(
        each for each in objects if each["kind"] == "Pod" and not each["spec"].get("nodeName")
    )
    for asked in (top, pending):
        report = explain(snapshot_with(objects, NOW), copy.deepcopy(asked))
        texts = [each.text for each in report.advice]
        assert len(texts) == len(advised), texts
        assert [each[: len(text)] for each, text in zip(texts, advised, strict=True)] == (advised)
        lines = [each for each in report.details if "allows one pod per node" in each]
        if more and (asked is top or not advised):
            pods, are = len(nodes) + more, "is" if len(nodes) == 1 else "are"
            needed = f"{pods} pods need {pods}, and there {are} {len(nodes)}, so {more} more"
            assert lines[0].startswith(f"its host port 80 allows one pod per node: {needed}")
            assert len(lines) == 1
            assert "nothing that was tried would help" not in report.details
        else:
            assert lines == []


# Queues


@pytest.mark.parametrize(
    ("cpu", "raised", "fits", "running"),
    [
        ("8", "6", "all 3 pods fit", 6),
        ("4", "4", "1 of 3 pods fits", 4),
        ("5", "5", "2 of 3 pods fit", 5),
    ],
)
@pytest.mark.parametrize("more", [{}, PARALLEL], ids=["one by one", "all at once"])
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_the_capability_of_a_queue_is_raised_for_all_replicas_that_start(
    kind: str, more: Raw, cpu: str, raised: str, fits: str, running: int
) -> None:
    raw = with_ports(kind, 6, **(more if kind == "StatefulSet" else {}))
    raw["spec"]["template"]["spec"] = pod("x", "1")["spec"]
    raw["spec"]["template"]["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "q"}
    cluster = HypotheticalCluster(FACTORY, NOW)
    for each in (queue("q", capability={"cpu": "3"}), node("n0", cpu=cpu), raw):
        cluster.take(Apply(each))
    cluster.rest()
    objects = [*cluster.objects.all()]
    top = next(each for each in objects if each["kind"] == kind)
    report = explain(snapshot_with(objects, NOW), copy.deepcopy(top))
    (advice,) = (each for each in report.advice if each.text.startswith("raise the capability"))
    assert advice.text == f"raise the capability of queue q to {raised} cpu; then {fits}: n0"
    assert len(pods_of(followed(objects, advice.change)).running) == running


RECLAIMED: dict[str, tuple[list[Raw], dict[str, Any], dict[str, Any], list[str]]] = {
    "a cordoned node": ([node("n2", cpu="4", unschedulable=True)], {}, {}, []),
    "a node without a label": ([node("n2", cpu="4")], {}, {"nodeSelector": {"disk": "ssd"}}, []),
    "a capability": (
        [node("n2", cpu="4")],
        {"capability": {"cpu": "4"}},
        {},
        ["raise the capability of queue a to 6 cpu; then 1 of 2 pods fits: n1"],
    ),
}


@pytest.mark.parametrize("name", RECLAIMED)
def test_pods_that_another_queue_would_reclaim_are_not_said_to_fit(name: str) -> None:
    """With two more pods the queue has more than it deserves, and the pod of the other one, which can
    only run on n1, gets the capacity of two."""
    nodes, limits, more, others = RECLAIMED[name]
    raw = with_ports("Deployment", 4)
    raw["spec"]["template"]["spec"] = pod("x", "2", **more)["spec"]
    raw["spec"]["template"]["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "a"}
    only = {"kubernetes.io/hostname": "n1"}
    waiting = pod("y", "4", nodeSelector=only, annotations={"scheduling.volcano.sh/queue-name": "b"})
    waiting["metadata"]["namespace"] = "default"
    cluster = HypotheticalCluster(FACTORY, NOW)
    first = node("n1", cpu="4", labels={"disk": "ssd"})
    for each in (first, *nodes, queue("a", **limits), queue("b"), raw, waiting):
        cluster.take(Apply(copy.deepcopy(each)))
        cluster.rest()
    objects = [*cluster.objects.all()]
    advice = explain(snapshot_with(objects, NOW), top_of(objects, "Deployment")).advice
    smaller, *rest = advice
    assert smaller.text.startswith("request at most 1 cpu instead of 2")
    assert [each.text for each in rest] == others
    running = [len(pods_of(followed(objects, each.change)).running) for each in advice]
    assert running == [4, 3][: len(advice)]


def of_queue(name: str, cpu: str, queue_name: str) -> Raw:
    return in_default(pod(name, cpu, annotations={"scheduling.volcano.sh/queue-name": queue_name}))


def rolled_out(cpu: str, replicas: int, unavailable: int, surge: int) -> Raw:
    bounds = {"rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}
    raw = with_ports("Deployment", replicas, strategy=bounds)
    raw["spec"]["template"]["spec"] = pod("x", cpu)["spec"]
    raw["spec"]["template"]["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "a"}
    return raw


SMALLER = {
    "not so small that another pod fits beside some of them": (
        [of_queue("o", "3", "b"), rolled_out("1", 6, 2, 0), of_queue("p", "4", "a")],
        "request at most 833m cpu instead of 1, in the template of Deployment web; then all 6 pods "
        "fit: n0",
    ),
    "not all old pods end at once": (
        [
            of_queue("o", "3", "b"),
            of_queue("r", "2", "a"),
            rolled_out("2", 3, 0, 1),
            of_queue("p", "3", "a"),
        ],
        "request at most 1 cpu instead of 2, in the template of Deployment web, and set maxUnavailable "
        "of its rolling update to 2, so that old pods may end first; then all 3 pods fit: n0",
    ),
    "more than its queue has left beside old pods": (
        [of_queue("o", "3", "b"), rolled_out("1", 2, 0, 1), rolled_out("3", 2, 0, 1)],
        "request at most 2500m cpu instead of 3, in the template of Deployment web, and set "
        "maxUnavailable of its rolling update to 2, so that 2 old pods may end first; then both pods "
        "fit: n0",
    ),
}


@pytest.mark.parametrize("name", SMALLER)
def test_smaller_requests_beside_others_that_wait(name: str) -> None:
    raws, text = SMALLER[name]
    cluster = HypotheticalCluster(FACTORY, NOW)
    queues = queue("a", capability={"cpu": "5"}), queue("b")
    for each in (node("n0", cpu="8"), *queues, *raws):
        cluster.take(Apply(copy.deepcopy(each)))
        cluster.rest()
    objects = [*cluster.objects.all()]
    advice = explain(snapshot_with(objects, NOW), top_of(objects, "Deployment")).advice
    (smaller,) = (each for each in advice if each.text.startswith("request"))
    assert smaller.text == text
    after = pods_of(followed(objects, smaller.change))
    assert len(after.updated) == len(after.running) == after.wanted


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize(
    ("cpu", "replicas", "other", "victims", "smaller"),
    [("2", 5, "4", 2, "800m"), ("4", 3, "3", 1, "1666m")],
)
def test_smaller_requests_while_another_queue_reclaims(
    cpu: str, replicas: int, other: str, victims: int, smaller: str, is_begun: bool
) -> None:
    """Pods that terminate have ended by then, and the pod for which they do has started."""
    raw = rolled_out(cpu, replicas, 1, 1)
    objects = at_rest(node("n0", cpu="8"), queue("a"), queue("b"), raw)
    other_pod = of_queue("o", other, "b")
    other_pod["metadata"] |= {"uid": "o", "creationTimestamp": format_time(NOW)}
    other_pod["spec"]["schedulerName"] = "default-scheduler"
    other_pod["status"] = {"phase": "Pending"}
    if is_begun:
        other_pod["status"]["nominatedNodeName"] = "n0"
        placed = [r for r in objects if r["kind"] == "Pod" and r["spec"].get("nodeName")]
        for each in placed[:victims]:
            each["metadata"] |= {"deletionTimestamp": format_time(NOW + 30)}
            each["metadata"] |= {"deletionGracePeriodSeconds": 30}
    objects.append(other_pod)
    first = explain(snapshot_with(objects, NOW), top_of(objects, "Deployment")).advice[0]
    assert first.text.startswith(f"request at most {smaller} cpu instead of {cpu}, in the template")
    assert first.text.endswith(f"; then all {replicas} pods fit: n0")
    after = pods_of(followed(objects, first.change))
    assert len(after.updated) == len(after.running) == replicas


@pytest.mark.parametrize(
    ("replicas", "members", "needed"), [(24, 5, 3), (24, 4, 3), (24, 3, 3), (16, 5, 4)]
)
def test_pods_of_a_queue_that_is_served_between_replicas_take_what_old_ones_free(
    replicas: int, members: int, needed: int
) -> None:
    """Once some of the replicas have started, the members that the gang of the other queue does not
    need come before the rest of them."""
    train = pod_group("train", needed, queue="b")
    pods = [in_default(pod(f"train-{at}", "4", group="train")) for at in range(members)]
    queues = queue("a", weight=1), queue("b", weight=2)
    nodes = [node(f"n{at}", cpu="8") for at in range(3)]
    before = at_rest(*nodes, *queues, rolled_out("1", replicas, 6, 6))
    objects = at_rest(*before, in_default(train), *pods)
    report = explain(snapshot_with(objects, NOW), top_of(objects, "Deployment"))
    smaller = [each for each in report.advice if each.text.startswith("request")]
    assert smaller
    for each in smaller:
        after = pods_of(followed(objects, each.change))
        assert len(after.updated) == len(after.running) == replicas, each.text


IN_Q = {"scheduling.volcano.sh/queue-name": "q"}
TRIED_BEFORE = {
    "one": (
        "16",
        [pod("old", "2", annotations=IN_Q)],
        "raise the capability of queue q to 8 cpu, since default/old is tried before it; then it fits "
        "n0",
    ),
    "two": (
        "16",
        [pod("old", "2", annotations=IN_Q), pod("older", "2", annotations=IN_Q)],
        "raise the capability of queue q to 10 cpu, since default/old, default/older are tried before "
        "it; then it fits n0",
    ),
    "one that no node has capacity for": (
        "8",
        [pod("old", "6", annotations=IN_Q)],
        "raise the capability of queue q to 6 cpu; then it fits n0",
    ),
    "one that leaves too little on the node": (
        "7",
        [pod("old", "2", annotations=IN_Q)],
        "raise the capability of queue q to 8 cpu, since default/old is tried before it and request at "
        "most 1 cpu instead of 2; then it fits n0",
    ),
    "a gang": (
        "16",
        [pod_group("g", 2, queue="q"), *gang("g", 2, "1")],
        "raise the capability of queue q to 8 cpu, since default/g-0, default/g-1 are tried before "
        "it; then it fits n0",
    ),
    "a gang that is larger": (
        "16",
        [pod_group("g", 2, queue="q"), *gang("g", 2, "2")],
        "raise the capability of queue q to 6 cpu; then it fits n0",
    ),
}


@pytest.mark.parametrize("name", TRIED_BEFORE)
def test_the_capability_of_a_queue_is_raised_for_pods_that_are_tried_before(name: str) -> None:
    cpu, before, text = TRIED_BEFORE[name]
    cluster = HypotheticalCluster(FACTORY, NOW)
    pods = [pod("run", "4", annotations=IN_Q), *before, pod("young", "2", annotations=IN_Q)]
    for each in (node("n0", cpu=cpu), queue("q", capability={"cpu": "4"}), *map(in_default, pods)):
        cluster.take(Apply(copy.deepcopy(each)))
        cluster.rest()
    objects = [*cluster.objects.all()]
    (young,) = (each for each in objects if each["metadata"]["name"] == "young")
    report = explain(snapshot_with(objects, NOW), copy.deepcopy(young))
    (advice,) = report.advice
    assert advice.text == text
    after = followed(objects, advice.change).objects.get(key_of(young))
    assert after is not None and after["spec"].get("nodeName") == "n0"


# Scheduling gates


def at_rest(*objects: Raw) -> list[Raw]:
    """The objects of a cluster in which these were created, once nothing more happens."""
    cluster = HypotheticalCluster(FACTORY, NOW)
    for each in objects:
        cluster.take(Apply(each))
    cluster.rest()
    return [*cluster.objects.all()]


def top_of(objects: list[Raw], kind: str) -> Raw:
    return copy.deepcopy(next(each for each in objects if each["kind"] == kind))


def gated(kind: str, cpu: str, in_template: bool) -> tuple[list[Raw], Raw]:
    """The objects of a cluster with a workload of two gated pods, and the workload."""
    raw = with_ports(kind, 2)
    raw["spec"]["template"]["spec"] = pod("x", cpu)["spec"]
    gates = [{"name": "example.com/wait"}]
    if in_template:
        raw["spec"]["template"]["spec"]["schedulingGates"] = gates
    objects = at_rest(node("n0", cpu="8"), raw)
    if not in_template:  # as an admission webhook sets them
        for each in objects:
            if each["kind"] == "Pod":
                each["spec"] = {**each["spec"], "schedulingGates": gates}
                del each["spec"]["nodeName"]
                each["status"] = {"phase": "Pending"}
    return objects, next(each for each in objects if each["kind"] == kind)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet"])
def test_gates_are_removed_from_the_template(kind: str) -> None:
    objects, top = gated(kind, "1", in_template=True)
    first = explain(snapshot_with(objects, NOW), copy.deepcopy(top)).advice[0]
    place = f"in the template of {kind} web"
    assert first.text.startswith(f"remove the scheduling gate example.com/wait, {place}")
    assert first.text.endswith("; then both pods fit: n0")
    pods = followed(objects, first.change).objects.scan("", "Pod")
    assert sum(bool(each["spec"].get("nodeName")) for each in pods) == 2


def test_gates_of_a_template_whose_pods_are_too_large() -> None:
    objects, top = gated("Deployment", "10", in_template=True)
    (advice,) = explain(snapshot_with(objects, NOW), copy.deepcopy(top)).advice
    assert advice.text == (
        "remove the scheduling gate example.com/wait and request at most 4 cpu instead of 10, in the "
        "template of Deployment web; then both pods fit: n0"
    )
    assert len(pods_of(followed(objects, advice.change)).updated) == 2


def test_gates_that_no_template_has() -> None:
    objects, top = gated("Deployment", "1", in_template=False)
    (advice,) = explain(snapshot_with(objects, NOW), copy.deepcopy(top)).advice
    names = sorted(each["metadata"]["name"] for each in objects if each["kind"] == "Pod")
    whom = ", ".join(f"default/{name}" for name in names)
    assert advice.text.startswith(f"remove the scheduling gate example.com/wait of {whom}; ")
    assert len(pods_of(followed(objects, advice.change)).running) == 2


def test_gates_of_a_template_and_a_queue_that_is_too_small() -> None:
    raw = with_ports("Deployment", 2)
    gates = [{"name": "example.com/wait"}]
    raw["spec"]["template"]["spec"] = pod("x", "2", schedulingGates=gates)["spec"]
    raw["spec"]["template"]["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "q"}
    objects = at_rest(queue("q", capability={"cpu": "1"}), node("n0", cpu="8"), raw)
    (advice,) = explain(snapshot_with(objects, NOW), top_of(objects, "Deployment")).advice
    assert advice.text == (
        "remove the scheduling gate example.com/wait, in the template of Deployment web and raise the "
        "capability of queue q to 4 cpu; then both pods fit: n0"
    )
    assert len(pods_of(followed(objects, advice.change)).updated) == 2


# Claims of StatefulSets


def claiming(kind: str, storage_class: str, policy: str) -> Raw:
    raw = with_ports(kind, 2, podManagementPolicy=policy, serviceName="web")
    raw["spec"]["template"]["spec"] = pod("x", "1")["spec"]
    spec: Raw = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class}
    spec["resources"] = {"requests": {"storage": "1Gi"}}
    raw["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": spec}]
    return raw


def provisioned(name: str, mode: str) -> Raw:
    return storage_class(name) | {"provisioner": "csi.example.com", "volumeBindingMode": mode}


@pytest.mark.parametrize("mode", ["Immediate", "WaitForFirstConsumer"])
@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
@pytest.mark.parametrize("is_corrected", [False, True])
def test_pods_are_deleted_with_the_claims_of_a_corrected_template(
    mode: str, policy: str, is_corrected: bool
) -> None:
    """A StatefulSet makes claims only with pods: a pending one would keep the former claim, or none."""
    raw = claiming("StatefulSet", "fastt", policy)
    objects = at_rest(node("n0", cpu="8"), provisioned("fast", mode), raw)
    top = next(each for each in objects if each["kind"] == "StatefulSet")
    if is_corrected:
        top["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = "fast"
    advice = explain(snapshot_with(objects, NOW), copy.deepcopy(top)).advice
    what = "claims data-web-0, data-web-1 and pods web-0, web-1"
    what = what if policy == "Parallel" else "claim data-web-0 and pod web-0"
    text = (
        "use the storage class fast instead of fastt in volumeClaimTemplates data of StatefulSet web "
        "(immutable: kubectl delete statefulset web --cascade=orphan, and create it again), then "
        f"delete {what}, which it makes again"
    )
    if is_corrected:
        text = (
            f"delete {what}, which StatefulSet web makes again as its volumeClaimTemplates data are "
            "now (other storageClassName)"
        )
    (found,) = (each for each in advice if each.text == f"{text}; then both pods fit: n0")
    after = followed(objects, found.change)
    claims = after.objects.scan("", "PersistentVolumeClaim")
    assert {each["spec"]["storageClassName"] for each in claims} == {"fast"}
    if mode == "WaitForFirstConsumer":  # volumes that are made at once, nothing makes here
        assert len(pods_of(after).running) == 2


# Nodes that templates name


@pytest.mark.parametrize(
    ("kind", "then"),
    [
        ("Deployment", ""),
        ("StatefulSet", ", then delete pod web-0"),
        ("ReplicaSet", ", then delete pods web-"),
    ],
)
def test_a_template_that_names_a_node_that_does_not_exist(kind: str, then: str) -> None:
    raw = with_ports(kind, 2)
    raw["spec"]["template"]["spec"] = pod("x", "1", nodeName="node1")["spec"]
    objects = at_rest(node("node-1", cpu="8"), raw)
    report = explain(snapshot_with(objects, NOW), top_of(objects, kind))
    pods = "0 of 1 pod has" if kind == "StatefulSet" else "0 of 2 pods have"
    assert report.phase == "Pending"
    assert report.summary.startswith(f"{pods} a node. ")
    assert "pending: It is assigned to node1, which does not exist." in report.summary
    text = f"the template of {kind} web has nodeName: node1, which does not exist; did you mean node-1?"
    assert report.details[0] == text
    nearest, without = report.advice
    place = f"in the template of {kind} web{then}"
    assert nearest.text.startswith(f"set nodeName: node-1 instead of node1, {place}")
    assert without.text.startswith(f"remove nodeName: node1, {place}")
    for advice in report.advice:
        assert advice.text.endswith("; then both pods fit: node-1")
    found = followed(objects, without.change).objects.scan("", "Pod")
    assert [each["spec"].get("nodeName") for each in found] == ["node-1", "node-1"]
    of_pod = explain(snapshot_with(objects, NOW), top_of(objects, "Pod"))
    assert of_pod.details == [text]
    assert [each.text.partition(",")[0] for each in of_pod.advice] == [
        "set nodeName: node-1 instead of node1",
        "remove nodeName: node1",
    ]


def test_pods_of_a_template_without_a_node_on_one_that_was_deleted() -> None:
    raw = with_ports("Deployment", 2)
    objects = at_rest(node("n0", cpu="8"), node("n1", cpu="8"), raw)
    left = [each for each in objects if each["metadata"]["name"] != "n1"]
    report = explain(snapshot_with(left, NOW), top_of(left, "Deployment"))
    assert report.summary.startswith(
        "1 of 2 pods have a node. 1 pending: It is assigned to n1, which does not exist."
    )
    assert report.advice == []


# Changes of all pods


def test_all_pods_of_a_job_name_another_queue() -> None:
    """The template of a Job cannot be changed, but annotations of its pods can."""
    template: Raw = {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "bacth"}}}
    template["spec"] = {**pod("x", "1")["spec"], "restartPolicy": "Never"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"completions": 2, "parallelism": 2, "template": template},
    }
    objects = at_rest(queue("batch"), node("n0", cpu="8"), job)
    first = explain(snapshot_with(objects, NOW), top_of(objects, "Job")).advice[0]
    assert first.text.startswith("name the queue batch instead of bacth, in each of 2 pods (web-")
    assert first.text.endswith("; then both pods fit: n0")
    pods = followed(objects, first.change).objects.scan("", "Pod")
    assert all(each["spec"].get("nodeName") for each in pods)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_restricted_reservation_is_enlarged_for_all_replicas(kind: str) -> None:
    raw = with_ports(kind, 2)
    raw["spec"]["template"]["spec"] = pod("x", "4")["spec"]
    peak = reservation("peak", "3", app="web", allocatePolicy="Restricted", allocateOnce=False)
    objects = at_rest(node("n0", cpu="8"), peak, raw)
    found = explain(snapshot_with(objects, NOW), top_of(objects, kind)).advice
    (larger,) = [each for each in found if each.text.startswith("enlarge")]
    assert larger.text == (
        "enlarge reservation peak to 8 cpu instead of 3, in its template; then both pods fit: n0"
    )
    assert len(pods_of(followed(objects, larger.change)).running) == 2


OWNERS = {
    "its ReplicaSet": ("Deployment", "web", "its pods are controlled by its ReplicaSet web-"),
    "its name misspelt": ("Deployment", "wbe", "did you mean web? Its pods are controlled by its Rep"),
    "a former ReplicaSet": (
        "ReplicaSet",
        "web-64b87b7b78",
        "the pods of Deployment web are controlled by its ReplicaSet web-",
    ),
    "the wrong kind": (
        "ReplicaSet",
        "web",
        "the pods of Deployment web are controlled by its ReplicaSet web-",
    ),
}


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("name", OWNERS)
def test_owners_of_a_reservation_that_mean_a_deployment(name: str, once: bool) -> None:
    """What a reservation for one pod leaves is free for the other one once it was used."""
    kind, owner, why = OWNERS[name]
    raw = with_ports("Deployment", 2)
    raw["spec"]["template"]["spec"] = pod("x", "2")["spec"]
    controller = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "namespace": "default"}
    owners = [{"controller": controller}]
    peak = reservation("peak", "4", owners=owners, allocateOnce=once)
    objects = at_rest(node("n0", cpu="5"), peak, raw)
    report = explain(snapshot_with(objects, NOW), top_of(objects, "Deployment"))
    assert report.details[0].startswith(
        f"reservation peak is for pods of {kind} default/{owner}; {why}"
    )
    first = report.advice[0]
    assert first.text.startswith(
        f"name pods with app=web instead of {kind} {owner} in spec.owners of reservation peak"
    )
    assert first.text.endswith("; then both pods fit: n0")
    assert len(pods_of(followed(objects, first.change)).running) == 2


def test_owners_that_mean_another_replica_set() -> None:
    raw = with_ports("Deployment", 2)
    raw["spec"]["template"]["spec"] = pod("x", "2")["spec"]
    other = with_ports("ReplicaSet", 0)
    other["metadata"]["name"] = "web-1"
    controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1"}
    peak = reservation("peak", "4", owners=[{"controller": controller}], allocateOnce=False)
    objects = at_rest(node("n0", cpu="5"), peak, other, raw)
    report = explain(snapshot_with(objects, NOW), top_of(objects, "Deployment"))
    assert not any("CorrectOwner" in each.change["actions"] for each in report.advice)


# Objects of a run


def test_advice_is_the_same_for_objects_whose_uids_are_of_the_seed_of_dry_runs() -> None:
    """The pods that a dry run creates again are other ones than those there were."""
    raw = with_ports("StatefulSet", 3)
    raw["spec"]["template"]["spec"] = pod("x", "3")["spec"]
    for seed in (_SEED, _SEED + 1):
        cluster = HypotheticalCluster(FACTORY, NOW, seed=seed)
        for each in (node("n0", cpu="8"), raw):
            cluster.take(Apply(each))
        cluster.rest()
        objects = [*cluster.objects.all()]
        report = explain(snapshot_with(objects, NOW), top_of(objects, "StatefulSet"))
        (advice,) = report.advice
        assert advice.text.startswith("request at most 2 cpu instead of 3")
        assert advice.text.endswith("then all 3 pods fit: n0")


# Rollouts that are stuck


def half_replaced(replicas: int) -> tuple[list[Raw], Raw]:
    """A Deployment with one pod per node, of which n0 has an old one and n1 a new one; n2 is
    cordoned."""
    term: Raw = {"topologyKey": "kubernetes.io/hostname"}
    term["labelSelector"] = {"matchLabels": {"app": "web"}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    first = with_ports("Deployment", replicas)
    first["spec"]["template"]["spec"] = pod("x", "1", affinity=apart)["spec"]
    second = copy.deepcopy(first)
    tolerated = {"key": "a", "operator": "Exists"}
    second["spec"]["template"]["spec"]["tolerations"] = [tolerated]
    tainted = node("n1", cpu="8", taints=[{"key": "a", "effect": "NoSchedule"}])
    cordoned = node("n2", cpu="8", unschedulable=True)
    cluster = HypotheticalCluster(FACTORY, NOW)
    for raw in (node("n0", cpu="8"), tainted, cordoned, first, second):
        cluster.take(Apply(raw))
        cluster.rest()
    objects = [*cluster.objects.all()]
    for raw in objects:
        if raw["kind"] == "Pod" and tolerated not in raw["spec"].get("tolerations", ()):
            raw["metadata"]["creationTimestamp"] = format_time(NOW - 60)
    return objects, top_of(objects, "Deployment")


def test_a_node_is_uncordoned_and_old_pods_of_a_stuck_rollout_end() -> None:
    objects, top = half_replaced(3)
    (advice,) = explain(snapshot_with(objects, NOW), top).advice
    assert advice.text == (
        "uncordon n2 (kubectl uncordon n2), and set maxUnavailable of its rolling update to 1, so that "
        "old pods may end first; then both pods fit: n0, n2"
    )
    after = pods_of(followed(objects, advice.change))
    assert len(after.running) == len(after.updated) == 3


def test_more_pods_run_although_the_rollout_stays_stuck() -> None:
    """The pod that starts on the node is an old one: these are tried first."""
    objects, top = half_replaced(4)
    before = pods_of(HypotheticalCluster(FACTORY, NOW, copy.deepcopy(objects), seed=5))
    report = explain(snapshot_with(objects, NOW), top)
    (advice,) = report.advice
    assert advice.text == (
        "uncordon n2 (kubectl uncordon n2); then 3 of its pods run instead of 2, but its rollout does "
        "not complete"
    )
    assert "nothing that was tried would help" not in report.details
    after = pods_of(followed(objects, advice.change))
    assert (len(before.running), len(after.running)) == (2, 3)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_toleration_after_which_no_more_pods_run_comes_with_smaller_requests(kind: str) -> None:
    """One new pod fits the tainted node; the last old one would end for a second one that does not."""
    strategy: Raw = {"strategy": {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}}
    first = with_ports(kind, 2, **({"serviceName": "web"} if kind == "StatefulSet" else strategy))
    second = copy.deepcopy(first)
    for raw, cpu in ((first, "1"), (second, "7")):
        raw["spec"]["template"]["spec"] = pod("x", cpu)["spec"]
    tainted = node("n1", cpu="8", taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}])
    cluster = HypotheticalCluster(FACTORY, NOW)
    for raw in (node("n0", cpu="3"), tainted, first, second):
        cluster.take(Apply(raw))
        cluster.rest()
    objects = [*cluster.objects.all()]
    (advice,) = explain(snapshot_with(objects, NOW), top_of(objects, kind)).advice
    assert advice.text.startswith(
        "tolerate a=b:NoSchedule and request at most 4 cpu instead of 7, in the "
    )
    assert advice.text.endswith("; then both pods fit: n1")
    after = pods_of(followed(objects, advice.change))
    assert len(after.running) == len(after.updated) == 2
