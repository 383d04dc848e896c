"""What a pod that requested its own reservation may not do: use a closed one, or go without one that it
must have."""

import json
from typing import Any

import pytest

from harness.objects import (
    HOLDFAST,
    ID,
    REQUIREMENT,
    TEMPLATE,
    Raw,
    node,
    pod,
    pod_group,
    reservation,
)
from harness.scenarios import play, step
from holdfast.scheduler.framework.config import API_VERSION, KIND

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
OWNERS = json.dumps({"owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}]})
REQUESTED = json.dumps({"labels": {ID: "id-1"}, "resources": {"cpu": "2"}})
TAINTED = {"taints": [{"key": "k", "effect": "NoSchedule"}]}


def config(on_failure: str) -> Raw:
    dynamic = {"provisioner": "external", "provisionTimeout": "20s", "onFailure": on_failure}
    return {"apiVersion": API_VERSION, "kind": KIND, "dynamicReservation": dynamic}


def requester(**annotations: str) -> Raw:
    more = {AFFINITY: annotations["affinity"]} if annotations else {}
    return pod("p", 2, "a", uid="p", annotations={TEMPLATE: OWNERS, REQUIREMENT: REQUESTED, **more})


def created(**closed: Any) -> Raw:
    owners = [{"object": {"uid": "p"}}]
    more: Raw = {"allocateOnce": False, "allocatePolicy": "Aligned", "labels": {ID: "id-1"}}
    return reservation("r", 2, owners=owners, at="2s", **more, **closed)


@pytest.mark.parametrize(
    ("closed", "why"),
    [
        ({"unschedulable": True}, "it is unschedulable"),
        (TAINTED, "it had untolerated taint {k: }"),
    ],
)
def test_a_closed_reservation_is_not_used_by_the_pod_it_was_created_for(
    closed: dict[str, Any], why: str
) -> None:
    there = [node("n", 4), requester(), created(**closed)]
    played = play(*there, config=config("Requeue"), until=15)
    assert played.bound() == {}
    (scheduled,) = played.find("Reservation", "r")["status"]["conditions"]
    assert (scheduled["reason"], scheduled["message"]) == ("Unschedulable", why)
    opened = dict.fromkeys(closed)
    patch = {"apiVersion": HOLDFAST, "kind": "Reservation", "name": "r", "merge": {"spec": opened}}
    for restart in ([], [step("9s", restart="scheduler")]):
        played = play(*there, *restart, step("10s", patch=patch), config=config("Requeue"), until=60)
        assert played.times("p") == [10]
        mark = played.find("Pod", "p")["metadata"]["annotations"]
        assert json.loads(mark["scheduling.koordinator.sh/reservation-allocated"])["name"] == "r"


@pytest.mark.parametrize(
    "affinity", ['{"tolerations": [{"key": "k", "operator": "Exists"}]}', '{"name": "r"}']
)
def test_a_pod_that_tolerates_the_taint_or_names_the_reservation_uses_it(affinity: str) -> None:
    given = [node("n", 4), requester(affinity=affinity), created(**TAINTED)]
    assert play(*given, config=config("Requeue"), until=60).times("p") == [2]


@pytest.mark.parametrize(("affinity", "at"), [("", 20), ("{}", None)])
@pytest.mark.parametrize("edited", [False, True])
def test_a_pod_that_must_use_a_reservation_is_not_bound_without_one(
    affinity: str, at: float | None, edited: bool
) -> None:
    """Whatever `onFailure` is; also if the affinity is added while the pod waits."""
    given: list[Raw] = [node("n", 4), requester(affinity=affinity) if affinity else requester()]
    if affinity and edited:
        merge = {"metadata": {"annotations": {AFFINITY: affinity}}}
        patch = {"kind": "Pod", "name": "p", "namespace": "default", "merge": merge}
        given = [node("n", 4), requester(), step("5s", patch=patch)]
    assert play(*given, config=config("Bind"), until=100).times("p") == [at]


def test_capacity_that_a_gang_cannot_use_does_not_count_for_its_minimum() -> None:
    """Members of a gang do not wait for a reservation that is yet to be created."""
    large = json.dumps({**json.loads(OWNERS), "recommendedSize": {"cpu": "4"}})
    given = [node("n", 4), pod("p", 1, "a", annotations={TEMPLATE: large})]
    gang = [pod_group("g", 1, minResources={"cpu": "3"}), pod("q", 2, "a", group="g", at="5s")]
    played = play(*given, gang, config=config("Requeue"), until=15)
    assert played.message("q") == "PodGroup/default/g requests more than is free of cpu"
