"""What is said of gangs that preempt nothing, of their reservations, and of owners that miss a pod."""

from __future__ import annotations

import copy

import pytest

from explanation.test_situations import (
    N1,
    affinity_to,
    annotated,
    as_they_are,
    changed,
    full,
    in_default,
    on_n1,
    snapshot_of,
    snapshot_with,
    world_of,
)
from explanation.test_workloads import owner, workload
from harness.objects import Raw, node, pod, pod_group, reservation
from holdfast.explanation.explainer import declared_gang, explain
from holdfast.explanation.report import Report

LOW = [full("l1", "6", "n1", priority=0), full("l2", "6", "n2", priority=0)]
GANG_NAME = "gang.scheduling.koordinator.sh/name"
USED_UP = "it served one pod only (allocateOnce), default/w"
EXPIRED = {"reason": "Expired", "message": "reservation has expired"}
MIN_AVAILABLE = "gang.scheduling.koordinator.sh/min-available"


def bound_after(objects: list[Raw], report: Report, name: str) -> list[bool]:
    """For each advice, whether a scheduler then binds the pod."""
    objects = [in_default(copy.deepcopy(each)) for each in objects]
    worlds = [world_of(changed(objects, each.change)) for each in report.advice]
    return [bool(world.node_of(name)) for world in worlds]


# Gangs that preempt nothing


@pytest.mark.parametrize("kind", ["Pod", "PodGroup"])
def test_a_gang_does_not_preempt_unless_all_members_find_a_node(kind: str) -> None:
    nodes = [node("n1", "8"), node("n2", "8")]
    members = [
        pod("p", "5", group="g", priority=100),
        pod("q", "5", group="g", priority=100, nodeSelector={"disk": "none-has-this"}),
    ]
    objects = [*nodes, *LOW, pod_group("g", 2), *members]
    report = as_they_are(kind, "p" if kind == "Pod" else "g", *objects)
    said = "\n".join([report.summary, *report.details])
    assert "will if it is tried" not in said
    if kind == "Pod":
        assert "PodGroup default/g preempts nothing" in said
    else:  # the member that finds no node is the reason
        assert "default/q: No suitable node among 2 nodes" in report.summary
    world = world_of([in_default(copy.deepcopy(each)) for each in objects])
    assert [world.node_of(name) for name in ("l1", "l2", "p")] == ["n1", "n2", ""]


# Gangs without an object


def test_a_gang_that_only_its_pods_declare_is_explained() -> None:
    gang = annotated(**{GANG_NAME: "k", MIN_AVAILABLE: "2"})
    members = [pod(name, "5", metadata=copy.deepcopy(gang)) for name in "pq"]
    world = world_of([N1, *members])
    snapshot = snapshot_of(world)
    raw = declared_gang(snapshot, "k", "default")
    assert raw is not None
    report = explain(snapshot, raw)
    assert report.object == "gang default/k"
    assert "0 of 2 members have a node, 2 are needed. Only 1 more fits now" in report.summary
    assert declared_gang(snapshot, "unknown", "default") is None


def test_a_declared_gang_that_runs_is_not_pending() -> None:
    gang = annotated(**{GANG_NAME: "k", MIN_AVAILABLE: "2"})
    world = world_of([N1, *(pod(name, "1", metadata=copy.deepcopy(gang)) for name in "pq")])
    snapshot = snapshot_of(world)
    raw = declared_gang(snapshot, "k", "default")
    assert raw is not None
    assert explain(snapshot, raw).phase == "Running"


# Reservations of gangs


def test_a_reservation_of_a_gang_is_not_in_its_own_way() -> None:
    gang = {GANG_NAME: "rg", MIN_AVAILABLE: "2"}
    wanted = [reservation(name, "4", app="web", annotations=dict(gang)) for name in "ab"]
    report = as_they_are("Reservation", "a", N1, full("run", "4", "n1"), *wanted)
    assert "Beside the others, reservation b: No suitable node" in report.summary
    assert not [each for each in report.details if "keeps" in each]
    texts = [each.text for each in report.advice]
    assert texts == [
        "request at most 50% of their resources in reservation a, reservation b; then it fits n1"
    ]


def test_a_reservation_that_serves_one_member_only() -> None:
    group = {"kind": "PodGroup", "namespace": "default", "name": "g"}
    kept = on_n1(reservation("r", "4", owners=[{"object": group}]))
    members = [pod(name, "4", group="g") for name in "pq"]
    objects = [node("n1", "6"), pod_group("g", 2), kept, *members]
    report = as_they_are("Pod", "p", *objects)
    assert "reservation r serves one pod only (allocateOnce): default/p" in report.details
    assert not [each for each in report.details if "keeps" in each]


def test_it_is_advised_to_share_a_reservation_of_the_gang() -> None:
    group = {"kind": "PodGroup", "namespace": "default", "name": "g"}
    kept = on_n1(reservation("r", "4", owners=[{"object": group}]))
    members = [pod(name, "2", group="g") for name in "pq"]
    objects = [node("n1", "5"), full("run", "1", "n1"), pod_group("g", 2), kept, *members]
    report = as_they_are("Pod", "p", *objects)
    assert report.advice[0].text == "set allocateOnce: false in reservation r; then it fits n1"
    assert bound_after(objects, report, "p")[0]


# Owners that miss a pod


@pytest.mark.parametrize(
    ("owners", "fact", "advice"),
    [
        (
            {"object": {"kind": "Pod", "name": "p", "namespace": "prod"}},
            "is for Pod prod/p; the pod is in namespace default, and there is no Pod p in prod",
            "name Pod default/p instead of prod/p in spec.owners of reservation r",
        ),
        (
            {"controller": {"kind": "Deployment", "name": "web", "namespace": "default"}},
            "its pods are controlled by its ReplicaSet web-1, so this matches none",
            "name pods with app=web instead of Deployment web in spec.owners of reservation r",
        ),
        (
            {"controller": {"kind": "ReplicaSet", "name": "web-l", "namespace": "default"}},
            "the pod is controlled by ReplicaSet web-1; did you mean that?",
            "name ReplicaSet web-1 instead of web-l in spec.owners of reservation r",
        ),
    ],
    ids=["namespace", "deployment", "name"],
)
def test_owners_that_miss_the_pod(owners: Raw, fact: str, advice: str) -> None:
    sets = workload("ReplicaSet", "web-1", 1, cpu="4")
    sets["metadata"]["ownerReferences"] = owner("Deployment", "web")
    metadata = {"ownerReferences": owner("ReplicaSet", "web-1"), "labels": {"app": "web"}}
    kept = on_n1(reservation("r", "6", owners=[owners]))
    objects = [N1, sets, kept, pod("p", "4", metadata=metadata)]
    report = as_they_are("Pod", "p", *objects)
    assert any(fact in each for each in report.details), report.details
    texts = [each.text for each in report.advice]
    start = f'{advice} (kubectl patch reservation r --type=merge -p \'{{"spec":{{"owners":['
    assert any(each.startswith(start) and each.endswith("'); then it fits n1") for each in texts)
    assert bound_after([each for each in objects if each is not sets], report, "p")[0]


def test_a_misspelt_pod_group_among_the_owners() -> None:
    group = {"kind": "PodGroup", "namespace": "default", "name": "tran"}
    kept = on_n1(reservation("r", "4", owners=[{"object": group}], allocateOnce=False))
    members = [pod(name, "2", group="train") for name in "pq"]
    objects = [node("n1", "6"), pod_group("train", 2), kept, *members]
    report = as_they_are("Pod", "p", *objects)
    text = "reservation r is for PodGroup default/tran; there is no such PodGroup; did you mean train?"
    assert text in report.details
    assert report.advice[0].change["actions"] == ["CorrectOwner"]
    assert bound_after(objects, report, "p")[0]


def test_a_reservation_that_one_pod_used_up() -> None:
    ended = reservation("r", "8", app="web", uid="r")
    ended["status"] = {"phase": "Succeeded", "nodeName": "n1"}
    allocated = {"scheduling.koordinator.sh/reservation-allocated": '{"name":"r","uid":"r"}'}
    user = full("w", "8", "n1", metadata=annotated(**allocated))
    report = as_they_are("Pod", "p", N1, ended, user, pod("p", "4", labels={"app": "web"}))
    (only,) = report.reservations
    assert only.why == "has ended: it served one pod only (allocateOnce), default/w"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("", "no reservation has it among its owners"),
        ("r", "the one that has it among its owners has ended: r"),
        ("rs", "all that have it among their owners have ended: r, s"),
    ],
)
def test_a_required_reservation_whose_owner_it_is_has_ended(names: str, text: str) -> None:
    status = {"phase": "Succeeded", "nodeName": "n1"}
    ended = [reservation(name, "8", app="web", uid=name) | {"status": status} for name in names]
    affinity = affinity_to({"reservationSelector": {}})
    asking = pod("p", "4", labels={"app": "web"}, annotations=affinity)
    report = as_they_are("Pod", "p", N1, *ended, asking)
    assert report.details == [f"it requires a reservation, and {text}"]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Succeeded", "currentOwners": [{"namespace": "default", "name": "w"}]}, USED_UP),
        (
            {"phase": "Failed", "conditions": [{"type": "Ready", "status": "False", **EXPIRED}]},
            "reservation has expired",
        ),
    ],
    ids=["used up", "expired"],
)
def test_why_a_reservation_that_a_pod_names_has_ended(status: Raw, why: str) -> None:
    ended = reservation("r", "8", app="web", uid="r") | {"status": {**status, "nodeName": "n1"}}
    asking = pod("p", "4", labels={"app": "web"}, annotations=affinity_to({"name": "r"}))
    report = as_they_are("Pod", "p", N1, ended, asking)
    assert report.details == [f"the reservation it names, r, has ended: {why}"]


# Workloads with room for some pods


def test_room_for_one_of_the_pending_pods() -> None:
    of_web: Raw = {"metadata": {"ownerReferences": owner("ReplicaSet", "web-1")}}
    waiting = [pod(f"web-1-{at}", "5", **copy.deepcopy(of_web)) for at in range(3)]
    objects = [N1, workload("ReplicaSet", "web-1", 3, cpu="5"), *waiting]
    deployment = workload("Deployment", "web", 3, cpu="5")
    found = [in_default(copy.deepcopy(each)) for each in objects]
    report = explain(snapshot_with(found, world_of([N1]).now), deployment)
    assert "3 pending, of which 1 fits now: No suitable node" in report.summary
    assert [(each.count, each.pods) for each in report.pods] == [
        (2, ["web-1-1", "web-1-2"]),
        (1, ["web-1-0"]),
    ]
