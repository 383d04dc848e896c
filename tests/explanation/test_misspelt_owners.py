"""Reservations whose owners have almost the labels of a pod: which of the two is misspelt."""

from __future__ import annotations

import json

import pytest

from explanation.test_situations import AFFINITY, DB, Row, changed, check, on_n1, snapshot_of, world_of
from explanation.test_workloads import owned, selected, workload
from harness.objects import Raw, node, pod, reservation
from holdfast.explanation.explainer import explain

N1 = node("n1", cpu="8")


def held(app: str) -> Raw:
    return on_n1(reservation("peak", "7", app=app, allocateOnce=False))


def held_for_one_of(*apps: str) -> Raw:
    raw = held(apps[0])
    expression = {"key": "app", "operator": "In", "values": list(apps)}
    raw["spec"]["owners"] = [{"labelSelector": {"matchExpressions": [expression]}}]
    return raw


def requiring(*expressions: Raw) -> Raw:
    terms = {"reservationSelectorTerms": [{"matchExpressions": list(expressions)}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return pod("p", "1", app="web", annotations={AFFINITY: json.dumps(required)})


def labelled(raw: Raw, **labels: str) -> Raw:
    raw["metadata"]["labels"] = labels
    return raw


def in_namespace(raw: Raw, namespace: str) -> Raw:
    raw["spec"]["owners"][0]["object"] = {"namespace": namespace}
    return raw


GOLD = json.dumps({"reservationSelector": {"pool": "gold"}})


UNKNOWN = "reservation peak is for pods with app=webb, but no pod has app=webb; the pod has app=web"

SITUATIONS: dict[str, Row] = {
    "either may be misspelt": Row(
        [N1, held("webb"), pod("p", "3", app="web")],
        [UNKNOWN],
        ["CorrectOwner", "LabelPod", "Wait", "Resize", "DeleteReservation"],
    ),
    "other pods have the label of the pod": Row(
        [N1, held("webb"), pod("q", "1", app="web"), pod("p", "3", app="web")],
        [UNKNOWN],
        ["CorrectOwner", "Wait", "DeleteReservation"],
    ),
    "the labels of the pod, and another namespace": Row(
        [N1, in_namespace(held("web"), "prod"), pod("p", "3", app="web")],
        ["the pod has these labels, but is in namespace default"],
        ["CorrectOwner", "Wait", "Resize", "DeleteReservation"],
    ),
    "the labels of the pod, and a namespace with such pods": Row(
        [
            N1,
            in_namespace(held("web"), "prod"),
            pod("q", "9", app="web", metadata={"namespace": "prod", "labels": {"app": "web"}}),
            pod("p", "3", app="web"),
        ],
        ["the pod has these labels, but is in namespace default"],
        ["Wait", "Resize", "DeleteReservation"],
    ),
    "the reservation lacks a label that the pod requires": Row(
        [N1, held("web"), pod("p", "3", app="web", annotations={AFFINITY: GOLD})],
        ["no reservation has them; peak has none of these labels"],
        ["LabelReservation", "RemoveAnnotation"],
    ),
    "the reservation has another value of a label that the pod requires": Row(
        [
            N1,
            labelled(held("web"), pool="bronze"),
            pod("p", "3", app="web", annotations={AFFINITY: GOLD}),
        ],
        ["no reservation has them"],
        ["RemoveAnnotation"],
    ),
    "the owners of one namespace": Row(
        [N1, in_namespace(held("webb"), "default"), pod("q", "1", app="web"), pod("p", "3", app="web")],
        ["reservation peak is for pods with app=webb in namespace default, but no pod has app=webb"],
        ["CorrectOwner", "Wait", "DeleteReservation"],
    ),
    "other pods have the label of the owners": Row(
        [N1, held("web"), pod("q", "1", app="web", nodeName="n1"), pod("p", "3", app="webb")],
        ["reservation peak is for pods with app=web; the pod has app=webb; did you mean app=web?"],
        ["LabelPod", "Wait", "DeleteReservation"],
    ),
    "the node of the reservation is tainted": Row(
        [
            node("n1", cpu="8", taints=[DB]),
            held("webb"),
            pod("q", "1", app="web", tolerations=[{"operator": "Exists"}]),
            pod("p", "3", app="web"),
        ],
        [UNKNOWN],
        ["Tolerate"],
    ),
    "one of several values": Row(
        [N1, held_for_one_of("api", "webb"), pod("p", "3", app="web")],
        ["for pods with app In (api, webb), but no pod has app=webb; the pod has app=web"],
        ["CorrectOwner", "LabelPod", "Wait", "Resize", "DeleteReservation"],
    ),
    "one of several values, which other pods have": Row(
        [
            N1,
            held_for_one_of("api", "web"),
            pod("q", "1", app="api", nodeName="n1"),
            pod("p", "3", app="webb"),
        ],
        ["the pod has app=webb; did you mean app=web?"],
        ["LabelPod", "Wait", "DeleteReservation"],
    ),
    "labels with other numbers are not misspelt": Row(
        [N1, held("shard-2"), pod("p", "3", app="shard-1")],
        [],
        ["Wait", "Resize", "DeleteReservation"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


@pytest.mark.parametrize(
    ("expressions", "text"),
    [
        ([("tier", "In", "glod")], "require tier In (gold)"),
        ([("teir", "In", "gold")], "require tier In (gold)"),
        ([("teir", "Exists")], "require tier Exists"),
        (
            [("zone", "In", "zonea"), ("tier", "In", "glod", "silver")],
            "require zone In (zone-a) and tier In (gold, silver)",
        ),
    ],
)
def test_the_terms_of_a_reservation_affinity_are_corrected(
    expressions: list[tuple[str, ...]], text: str
) -> None:
    given = [{"key": k, "operator": op, "values": values} for k, op, *values in expressions]
    place = node("n1", cpu="8", labels={"zone": "zone-a"})
    row = Row([place, labelled(held("web"), tier="gold"), requiring(*given)], [], [])
    actions = ["Annotate", "RemoveAnnotation"]
    assert check(row._replace(advises=actions)).advice[0].text.startswith(text)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job"])
def test_the_owners_are_corrected_for_pods_of_a_workload(kind: str) -> None:
    """Not the labels of its pods, which its selector has."""
    made_by = "ReplicaSet" if kind == "Deployment" else kind
    top = selected(workload(kind, "web", 2, cpu="3"))
    objects: list[Raw] = [N1, held("webb"), top]
    if kind == "Deployment":
        objects.append(selected(workload("ReplicaSet", "web", 2, cpu="3")))
    if kind == "Job":
        top |= {"apiVersion": "batch/v1"}
        top["spec"] |= {"parallelism": 2, "completions": 2}
    pods = [pod(f"web-{i}", "3", metadata=owned(made_by, "web")) for i in range(2)]
    for each in pods if kind == "Job" else ():
        each["metadata"]["ownerReferences"][0]["apiVersion"] = "batch/v1"
    world = world_of([*objects, *pods])
    report = explain(snapshot_of(world), world.objects["Pod", "web-0"])
    assert not any("did you mean" in each for each in report.details)
    assert all(each.change["actions"] != ["LabelPod"] for each in report.advice)
    first = report.advice[0]
    assert first.text == (
        "name pods with app=web instead of app=webb in spec.owners of reservation peak (kubectl patch "
        "reservation peak --type=merge -p "
        '\'{"spec":{"owners":[{"labelSelector":{"matchLabels":{"app":"web"}}}]}}\'); '
        "then both pods fit: n1"
    )
    after = world_of(changed(list(world.objects.values()), first.change))
    assert [after.node_of(f"web-{i}") for i in range(2)] == ["n1", "n1"]


def test_the_owners_are_corrected_beside_another_change() -> None:
    report = check(SITUATIONS["the node of the reservation is tainted"])
    assert report.advice[0].change["actions"] == ["Tolerate", "CorrectOwner"]
