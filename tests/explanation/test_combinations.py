"""Pods with more than one obstacle: the advice removes all of them together."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from explanation.test_situations import (
    FACTORY,
    LIMIT,
    N1,
    Row,
    annotated,
    as_they_are,
    budget,
    changed,
    check,
    full,
    in_default,
    on_n1,
    on_nodes,
    using,
    world_of,
)
from harness.claim_objects import (
    claiming_pod,
    device,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from harness.followed_advice import Situation
from harness.objects import Raw, gang, node, pod, pod_group, reservation
from holdfast.explanation.explainer import explain
from holdfast.kube.decoding import WATCHED
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

TAINT = {"key": "a", "effect": "NoSchedule"}
TAINTED = node("n1", cpu="8", taints=[TAINT])
LIMITED = node("n1", cpu="8", memory="8Gi", metadata=annotated(**{LIMIT: '{"cpu": "100%"}'}))


def with_limit(name: str, cpu: str, limit: str, **more: Any) -> Raw:
    raw = pod(name, cpu, **more)
    resources = raw["spec"]["containers"][0]["resources"]
    resources["limits"] = {"cpu": limit}
    return raw


def with_memory(raw: Raw, memory: str) -> Raw:
    raw["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    return raw


def nominated(name: str, cpu: str, priority: int) -> Raw:
    return {**in_default(pod(name, cpu, priority=priority)), "status": {"nominatedNodeName": "n1"}}


COMBINATIONS: dict[str, tuple[list[Raw], str]] = {
    "a misspelt value of a label, and too little cpu where it is": (
        [
            node("n1", cpu="8", labels={"disk": "ssd"}),
            *(node(f"n{at}", cpu="8") for at in range(2, 6)),
            full("a", "6", "n1"),
            pod("p", "4", nodeSelector={"disk": "sdd"}),
        ],
        "set nodeSelector disk: ssd instead of disk: sdd and request at most 2 cpu instead of 4",
    ),
    "a misspelt label, and a taint where it is": (
        [
            node("n1", cpu="8", labels={"disk": "ssd"}, taints=[TAINT]),
            *(node(f"n{at}", cpu="8") for at in range(2, 6)),
            pod("p", "4", affinity=on_nodes({"key": "dsik", "operator": "In", "values": ["ssd"]})),
        ],
        "require disk In (ssd) instead of dsik In (ssd) in its node affinity and tolerate a:NoSchedule",
    ),
    "memory, and a limit": (
        [
            LIMITED,
            {**with_limit("a", "3", "3", nodeName="n1"), "status": {"phase": "Running"}},
            with_memory(with_limit("p", "2", "7"), "16Gi"),
        ],
        "request at most 8Gi memory instead of 16Gi and lower its limit to 5 cpu instead of 7",
    ),
    "cpu, and a number of devices": (
        [
            node("n1", cpu="2"),
            device_class(),
            resource_slice("n1", 2),
            resource_claim("c", request(count=3)),
            claiming_pod("p", "c", cpu="4"),
        ],
        "request at most 2 cpu instead of 4 and request at most 2 devices instead of 3 for request r "
        "in ResourceClaim c (delete and create it again)",
    ),
    "a taint, and a host port": (
        [TAINTED, full("f", "1", "n1", ports=[80]), pod("p", ports=[80])],
        "tolerate a:NoSchedule and use the host port 81 instead of 80",
    ),
    "a taint of the node, and one of the reservation": (
        [
            TAINTED,
            on_n1(reservation("r", "8", app="web", taints=[{"key": "rt", "effect": "NoSchedule"}])),
            pod("p", "6", app="web"),
        ],
        "tolerate a:NoSchedule and tolerate rt=:NoSchedule, a taint of reservation r",
    ),
    "a taint, and pods that must end": (
        [TAINTED, full("a", "7", "n1"), pod("p", "8")],
        "tolerate a:NoSchedule and end pod default/a (priority 0) on n1",
    ),
    "a taint, and a wait": (
        [
            TAINTED,
            full("a", "7", "n1", metadata=annotated(**{"holdfast.io/run-estimate": "20m"})),
            pod("p", "8"),
        ],
        "tolerate a:NoSchedule and wait 20m, until",
    ),
    "cpu, and a tainted device": (
        [
            node("n1", cpu="2"),
            device_class(),
            resource_slice("n1", [device("g", taints=[{"key": "bad", "effect": "NoSchedule"}])]),
            resource_claim("c", request()),
            claiming_pod("p", "c", cpu="4"),
        ],
        "request at most 2 cpu instead of 4 and tolerate bad:NoSchedule, a taint of devices, in "
        "ResourceClaim c (delete and create it again)",
    ),
    "more than the node has, and pods that must end": (
        [N1, full("a", "7", "n1"), pod("p", "12")],
        "request at most 8 cpu instead of 12 and end pod default/a (priority 0) on n1",
    ),
    "more than the node has, and a reservation": (
        [N1, reservation("r", "7", app="web", ttl="0s"), pod("p", "12")],
        "request at most 8 cpu instead of 12 and delete the reservation r on n1",
    ),
    "a port, cpu, pods that must end, and a limit": (
        [
            LIMITED,
            full("a", "6", "n1", app="safe", ports=[80]),
            full("b", "1", "n1"),
            budget("safe"),
            with_limit("p", "7", "8", ports=[80]),
        ],
        "use the host port 81 instead of 80 and request at most 2 cpu instead of 7 and lower its limit "
        "to 2 cpu instead of 8 and end pod default/b (priority 0) on n1",
    ),
    "a taint, and a limit beside its own reservation": (
        [
            node("n1", cpu="4", taints=[TAINT], metadata=annotated(**{LIMIT: '{"cpu": "100%"}'})),
            on_n1(reservation("r", "3", app="web")),
            with_limit("p", "3", "12", app="web"),
        ],
        "tolerate a:NoSchedule and lower its limit to 4 cpu instead of 12",
    ),
    "a tainted device, and a number of devices": (
        [
            N1,
            device_class(),
            resource_slice("n1", [device("g", taints=[{"key": "bad", "effect": "NoSchedule"}])]),
            resource_claim("c", request(count=2)),
            claiming_pod("p", "c"),
        ],
        "tolerate bad:NoSchedule, a taint of devices, in ResourceClaim c (delete and create it again) "
        "and request at most 1 device instead of 2",
    ),
    "a tainted device beside its own reservation": (
        [
            node("n1", cpu="4", taints=[TAINT]),
            on_n1(reservation("r", "2", app="web")),
            device_class(),
            resource_slice("n1", [device("g", taints=[{"key": "bad", "effect": "NoSchedule"}])]),
            resource_claim("c", request()),
            claiming_pod("p", "c", cpu="9", app="web"),
        ],
        "tolerate a:NoSchedule and request at most 4 cpu instead of 9 and tolerate bad:NoSchedule",
    ),
    "a missing claim, and a taint": (
        [TAINTED, pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])],
        "create PersistentVolumeClaim default/data and have it bound and tolerate a:NoSchedule",
    ),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_combination(name: str) -> None:
    objects, text = COMBINATIONS[name]
    (advice,) = check(Row(objects, [], [COMBINED[text.split()[0]]])).advice
    assert advice.text.startswith(text)


COMBINED = {
    "set": "CorrectSelector",
    "require": "CorrectSelector",
    "request": "Resize",
    "tolerate": "Tolerate",
    "create": "CreateClaim",
    "use": "ChangePort",
}


def test_a_taint_of_devices_alone() -> None:
    taints = [{"key": "bad", "value": "very", "effect": "NoSchedule"}]
    objects = [
        N1,
        device_class(),
        resource_slice("n1", [device("g", taints=taints)]),
        resource_claim("c", request()),
        claiming_pod("p", "c"),
    ]
    (advice,) = check(Row(objects, ["1 tainted bad=very:NoSchedule"], ["Tolerate"])).advice
    assert advice.text.startswith(
        "tolerate bad=very:NoSchedule, a taint of devices, in ResourceClaim c"
    )


def test_only_claims_that_change_are_named() -> None:
    objects = [
        N1,
        device_class(),
        resource_slice("n1", 2),
        resource_claim("c", request(count=2)),
        resource_claim("d", request(count=1)),
        claiming_pod("p", "c", "d"),
    ]
    (advice,) = check(Row(objects, [], ["Resize"])).advice
    assert "in ResourceClaim c (delete" in advice.text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (
            {"key": "disk", "operator": "DoesNotExist"},
            "remove the label disk of n1 (kubectl label node n1 disk-)",
        ),
        ({"key": "disk", "operator": "NotIn", "values": ["ssd"]}, "remove the label disk of n1"),
    ],
)
def test_a_label_that_must_not_exist(expression: Raw, text: str) -> None:
    n1 = node("n1", labels={"disk": "ssd"})
    (advice,) = check(
        Row([n1, pod("p", affinity=on_nodes({"key": "disk", **expression}))], [], ["LabelNode"])
    ).advice
    assert advice.text.startswith(text)


def test_another_term_of_node_affinity() -> None:
    """The term that is closest to being met asks for a fact, which a label must not claim."""
    fact = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z"]}
    mine = [{"key": key, "operator": "Exists"} for key in ("tier", "team")]
    affinity = on_nodes(fact)
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    required["nodeSelectorTerms"].append({"matchExpressions": mine})
    (advice,) = check(Row([N1, pod("p", affinity=affinity)], [], ["LabelNode"])).advice
    assert "kubectl label node n1 tier=VALUE team=VALUE" in advice.text


HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 200,
}


def test_capacity_of_a_nominated_pod() -> None:
    """It is not free. What helps is to request what is left, a higher priority, or the end of the
    nominated pod; each is tried with a scheduler that has bound nothing yet."""

    def advised(kept: str, cpu: str, *more: Raw) -> list[str]:
        objects = [N1, nominated("v", kept, 100), in_default(pod("p", cpu)), *more]
        snapshot = ClusterSnapshot(FACTORY.scheduler(), 0)
        for watched in WATCHED:
            kind = watched.info.api_version, watched.info.kind
            raws = [raw for raw in objects if (raw["apiVersion"], raw["kind"]) == kind]
            snapshot.add(watched, copy.deepcopy(raws))
        found = explain(snapshot, objects[2]).advice
        for each in found:
            assert world_of(changed(objects, each.change)).node_of("p") == "n1", each.text
        return [each.text.partition(";")[0] for each in found]

    assert advised("6", "4") == ["request at most 2 cpu instead of 4"]
    raised = "set priorityClassName: high (200), above default/v, nominated to n1"
    assert advised("6", "4", HIGH) == ["request at most 2 cpu instead of 4", raised]
    assert advised("8", "4") == ["end pod default/v (priority 100), nominated to n1"]


# Something that does not exist, and another obstacle behind it


def deployment(**more: Any) -> Raw:
    template = {"metadata": {"labels": {"app": "p"}}, "spec": {**pod("p", 1)["spec"], **more}}
    spec: Raw = {"replicas": 2, "selector": {"matchLabels": {"app": "p"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "p"}, "spec": spec}


SERVED = "set schedulerName: holdfast-scheduler instead of volcano"
TOLERATED = "tolerate a:NoSchedule"
BEHIND: dict[str, tuple[str, list[Raw], str]] = {
    # The kind of what is explained, the objects, and the advice.
    "scheduler, cordon": (
        "Pod",
        [node("n1", 4, unschedulable=True), pod("p", schedulerName="volcano")],
        f"{SERVED} and uncordon n1 (kubectl uncordon n1); then it fits n1",
    ),
    "scheduler, selector": (
        "Pod",
        [node("n1", 4), pod("p", schedulerName="volcano", nodeSelector={"pool": "x"})],
        f"{SERVED} and label n1 (kubectl label node n1 pool=x); then it fits n1",
    ),
    "scheduler, size": (
        "Pod",
        [node("n1", 4), pod("p", 8, schedulerName="volcano")],
        f"{SERVED} and request at most 4 cpu instead of 8; then it fits n1",
    ),
    "scheduler of a Deployment, cordon": (
        "Deployment",
        [node("n1", 4, unschedulable=True), deployment(schedulerName="volcano")],
        f"{SERVED}, in the template of Deployment p and uncordon n1 (kubectl uncordon n1); then both "
        "pods fit: n1",
    ),
    "PodGroup, taint": (
        "Pod",
        [node("n1", 4, taints=[TAINT]), *gang("p", 2)],
        f"create the PodGroup default/p with minMember 2 and {TOLERATED}, in each of 2 pods (p-0, "
        "p-1); then it fits n1",
    ),
    "members, taint": (
        "PodGroup",
        [node("n1", 4, taints=[TAINT]), pod_group("p", 3), *gang("p", 2)],
        f"create 1 more pod of PodGroup default/p and {TOLERATED}, in each of 3 pods (p-0, p-1, "
        "p-0-more-0); then it fits n1",
    ),
    "nodeName, taint": (
        "Deployment",
        [node("n1", 4, taints=[TAINT]), deployment(nodeName="n9")],
        f"remove nodeName: n9 and {TOLERATED}, in the template of Deployment p; then both pods fit: n1",
    ),
    "claim, size beside an older pod": (
        "Pod",
        [
            node("n1", 4),
            pod("first", 1, at="1s", volumes=using("data")),
            pod("p", 4, at="2s", volumes=using("data")),
        ],
        "create PersistentVolumeClaim default/data and have it bound and request at most 3 cpu instead "
        "of 4; then it fits n1",
    ),
}


@pytest.mark.parametrize("name", BEHIND)
def test_what_is_missing_and_another_obstacle_behind_it(name: str) -> None:
    kind, objects, text = BEHIND[name]
    situation = Situation(*objects)
    explained = "p-0" if name == "PodGroup, taint" else "p"
    (only,) = situation.report(kind, explained).advice
    assert only.text == text
    nodes = situation.followed(only)
    assert nodes and all(each == "n1" for each in nodes.values()), nodes


def test_nothing_helps_behind_what_is_missing() -> None:
    small = [node("n1", 1, unschedulable=True), pod("p", 8, schedulerName="volcano")]
    report = Situation(*small).report("Pod", "p")
    assert report.advice == []
    assert report.details[-1] == "nothing that was tried would help"
    assert "Even with one of these: no suitable node" in report.summary


@pytest.mark.parametrize(
    ("policy", "asked", "most"),
    [
        ({}, 9, "request at most 6 cpu instead of 9"),
        ({"allocatePolicy": "Aligned", "allocateOnce": False}, 9, "request at most 6 cpu instead of 9"),
        (
            {"allocatePolicy": "Restricted", "allocateOnce": False},
            9,
            "request at most 4 cpu instead of 9, as reservation r has",
        ),
        ({}, 6, ""),
    ],
)
def test_a_reservation_beside_which_its_node_has_some_free(policy: Raw, asked: int, most: str) -> None:
    """A pod may use what is free on the node besides, unless the reservation is Restricted."""
    objects = [N1, full("x", "2", "n1"), on_n1(reservation("r", "4", app="web", **policy))]
    own = pod("p", asked, labels={"app": "web"}, nodeSelector={"pool": "x"})
    (only,) = as_they_are("Pod", "p", *objects, own).advice
    label = "label n1 (kubectl label node n1 pool=x)"
    assert only.text == " and ".join(filter(None, [label, most])) + "; then it fits n1"
