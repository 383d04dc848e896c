"""`holdfast explain`: why there is no node, or where something went and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.objects import Raw, pod, reservation
from harness.served_cluster import ServedCluster, call
from holdfast.cli.explanation_text import text
from holdfast.explanation.report import Ranked, Report
from sim.what_if.clusters import node
from sim.what_if.clusters import pod as stored_pod

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
TEMPLATE = "scheduling.koordinator.sh/reservation-template"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Three nodes of 8 cpu: one mostly reserved for `web`, one tainted, one cordoned."""
    with ServedCluster(tmp_path_factory.mktemp("explain"), nodes=3) as cluster:
        cluster.settle()
        taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
        cluster.merge("/api/v1/nodes/node-2", {"spec": {"taints": [taint]}})
        cluster.merge("/api/v1/nodes/node-3", {"spec": {"unschedulable": True}})
        cluster.create(
            reservation(
                "peak", "6", allocateOnce=False, allocatePolicy="Restricted", app="web", memory="8Gi"
            ),
            reservation(
                "gold",
                "1",
                metadata={"labels": {"tier": "gold"}},
                unschedulable=True,
                app="web",
                memory="8Gi",
            ),
        ).settle()
        cluster.create(
            pod("web-0", "2", "web", memory="1Gi"),
            pod("big", "4", memory="1Gi"),
            pod("giant", "100", memory="1Gi"),
            pod("gated", schedulingGates=[{"name": "example.com/hold"}], memory="1Gi"),
            pod("theirs", schedulerName="somebody-else", memory="1Gi"),
            pod("greedy", "5", "web", metadata={"annotations": {AFFINITY: "{}"}}, memory="1Gi"),
        ).settle()
        yield cluster


def explained(cluster: ServedCluster, *arguments: str) -> Raw:
    done = cluster("explain", *arguments, "-o", "json")
    assert done.status == 0, done.err
    found: Raw = json.loads(done.out)
    return found


def test_nodes_are_listed_by_what_stands_against_them(cluster: ServedCluster) -> None:
    found = explained(cluster, "pod", "big")
    assert found["summary"] == (
        "No suitable node among 3 nodes: too little cpu (1), untolerated taint (1), cordoned (1)."
    )
    assert {each["reason"]: (each["plugin"], each["nodes"]) for each in found["nodes"]} == {
        "Insufficient cpu": ("NodeResourcesFit", ["node-1"]),
        "node(s) had untolerated taint(s)": ("TaintToleration", ["node-2"]),
        "node(s) were unschedulable": ("NodeUnschedulable", ["node-3"]),
    }
    assert found["told"] == found["wouldSay"]
    assert found["told"].startswith("0/3 nodes are available: 1 Insufficient cpu")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("big", "closest: node-1, short of 3 cpu"),
        ("big", "delete the reservation peak on node-1; then it fits node-1"),
        ("big", "uncordon node-3 (kubectl uncordon node-3); then it fits node-3"),
        ("big", "tolerate dedicated=db:NoSchedule; then it fits node-2"),
        (
            "giant",
            "no node is large enough: it requests 100 cpu, the most a node has is 8; "
            "did you mean 100m?",
        ),
        ("gated", "scheduling gates to remove: example.com/hold"),
    ],
)
def test_what_would_help(cluster: ServedCluster, name: str, text: str) -> None:
    assert text in explained(cluster, "pod", name)["help"]


def test_matching_reservations_are_listed_with_why_they_cannot_be_used(cluster: ServedCluster) -> None:
    found = explained(cluster, "pod/greedy")
    assert {each["name"]: (each["usable"], each["why"]) for each in found["reservations"]} == {
        "gold": (False, "it takes no new pods (spec.unschedulable is true)"),
        "peak": (
            False,
            "the pod requests 5 cpu, the reservation has 4 left, and its policy is Restricted",
        ),
    }
    assert "1 Reservation(s) is unschedulable, 2 Reservation(s) matched owner total" in found["told"]
    reasons = [event["reason"] for event in found["events"]]
    assert sorted(reasons) == ["FailedScheduling", "FailedScheduling-Reservation"]


@pytest.mark.parametrize(
    ("annotation", "text", "meant"),
    [
        (AFFINITY, '{"nam": "peak"}', "name"),
        (TEMPLATE, '{"recomendedSize": {"cpu": "4"}}', "recommendedSize"),
    ],
)
def test_no_reservation_can_be_used_by_an_invalid_pod(
    cluster: ServedCluster, annotation: str, text: str, meant: str
) -> None:
    annotations = {annotation: text}
    cluster.create(pod("odd", "1", "web", metadata={"annotations": annotations}, memory="1Gi")).settle()
    found = explained(cluster, "pod/odd")
    assert meant in found["told"]
    assert [each["usable"] for each in found["reservations"]] == [False, False]
    (peak,) = [each for each in found["reservations"] if each["name"] == "peak"]
    assert peak["why"].startswith("the pod itself is rejected: ")
    assert meant in peak["why"]
    assert cluster.server.delete("/api/v1/namespaces/default/pods/odd").code == 200
    cluster.settle()


def test_a_placed_pod_is_explained_with_its_node_and_reservation(cluster: ServedCluster) -> None:
    found = explained(cluster, "pod", "web-0")
    assert (found["node"], found["reservation"]) == ("node-1", "peak")
    assert found["summary"] == "It is on node-1, through the reservation peak."
    assert [(each["node"], each["reservation"]) for each in found["ranked"]] == [("node-1", "peak")]
    assert {each["name"]: each["usable"] for each in found["reservations"]} == {
        "gold": False,
        "peak": True,
    }


@pytest.mark.parametrize(
    ("name", "summary"),
    [
        ("gated", "It is blocked by scheduling gates."),
        ("theirs", "Its schedulerName is somebody-else, but this configuration serves "),
    ],
)
def test_pods_that_are_not_tried(cluster: ServedCluster, name: str, summary: str) -> None:
    assert explained(cluster, "pod", name)["summary"].startswith(summary)


def test_a_reservation_is_explained_with_free_capacity_and_owners(cluster: ServedCluster) -> None:
    found = explained(cluster, "reservation", "peak")
    assert found["summary"] == "It reserves capacity on node-1; remaining: 4 cpu, 7Gi memory."
    assert found["owners"] == [
        "Pod/default/web-0 uses it",
        "Pod/default/greedy is pending and may use it",
    ]


def test_a_reservation_without_a_node_is_explained_like_a_pod(cluster: ServedCluster) -> None:
    cluster.create(reservation("too-big", "64", "x", memory="8Gi")).settle()
    found = explained(cluster, "rsv/too-big")
    assert found["summary"].startswith("No suitable node among 3 nodes: ")
    assert "no node is large enough: it requests 64 cpu, the most a node has is 8" in found["help"]


def test_a_waiting_reservation_lists_what_it_waits_for(cluster: ServedCluster) -> None:
    on_it: Raw = {"nodeName": "node-2", "tolerations": [{"operator": "Exists"}]}
    cluster.create(pod("running", "3", **on_it, memory="1Gi")).settle()
    cluster.create(reservation("ahead", "7", "y", preAllocation=True, pod=on_it, memory="8Gi")).settle()
    found = explained(cluster, "rsv", "ahead")
    assert found["phase"] == "Waiting"
    assert found["summary"].endswith("are free on node-2, which is short of 2 cpu.")
    assert "pod default/running has 3 cpu: end unknown" in found["help"]


def test_a_misspelt_annotation_of_a_reservation_is_named(cluster: ServedCluster) -> None:
    annotations = {"holdfast.io/start-at": "2099-01-01T00:00:00Z", "holdfast.io/x": "y"}
    path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
    answer = cluster.server.post(path, reservation("soon", "64", metadata={"annotations": annotations}))
    warning = (
        '299 - "metadata.annotations[holdfast.io/start-at]: unknown annotation; did you mean '
        'holdfast.io/starts-at?"'
    )
    assert (answer.code, answer.warnings) == (201, [warning])
    answer = cluster.server.patch(f"{path}/soon", {"spec": {"ttl": "1h"}})
    assert (answer.code, answer.warnings) == (200, [])
    answer = cluster.server.patch(
        f"{path}/soon", {"metadata": {"annotations": {"holdfast.io/x": None}}}
    )
    assert (answer.code, answer.warnings) == (200, [warning])
    cluster.settle()
    assert (
        "its annotation holdfast.io/start-at is ignored: unknown annotation; did you mean "
        "holdfast.io/starts-at?"
    ) in explained(cluster, "reservation", "soon")["help"]


def test_a_reservation_that_was_lost_with_its_node_says_so(tmp_path: Path) -> None:
    lost = reservation("lost")
    gone = {"type": "Ready", "status": "False", "reason": "Expired", "message": "node n1 is gone"}
    lost["status"] = {"phase": "Failed", "nodeName": "n1", "conditions": [gone]}
    file = tmp_path / "lost.yaml"
    file.write_text(yaml.safe_dump(lost))
    done = call("explain", "reservation", "lost", "--snapshot", str(file), "-o", "json")
    assert json.loads(done.out)["summary"] == "It has ended and reserves nothing: node n1 is gone."


def test_an_ended_reservation_is_explained_with_its_end(cluster: ServedCluster) -> None:
    cluster.create(reservation("past", "1", "z", expires="2020-01-01T00:00:00Z", memory="8Gi")).settle()
    found = explained(cluster, "rsv", "past")
    assert (found["phase"], found["told"]) == ("Failed", "reservation has expired")
    assert found["summary"] == "It has expired and reserves nothing."


GROUP = {"annotations": {"scheduling.k8s.io/group-name": "train"}}
WAITING: Raw = {
    "tolerations": [{"operator": "Exists"}],
    "nodeSelector": {"kubernetes.io/hostname": "node-3"},
    "schedulingGates": [{"name": "example.com/not-yet"}],
}


def test_a_group_lists_members_that_fit_and_those_that_do_not(cluster: ServedCluster) -> None:
    """Of the 8 cpu of a node one member has 3; of the others, 3 cpu each, one more fits."""
    cluster.create(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "default"},
            "spec": {"minMember": 2},
        },
        pod("train-0", "3", nodeName="node-3", metadata=GROUP, memory="1Gi"),
        *(pod(f"train-{i}", "3", metadata=GROUP, **WAITING, memory="1Gi") for i in (1, 2, 3)),
    ).settle()
    found = explained(cluster, "podgroup", "train")
    assert found["summary"] == (
        "1 of 4 members have a node, 2 are needed. 1 more would fit. Blocked by scheduling gates: "
        "default/train-1, default/train-2, default/train-3."
    )
    assert [each["change"]["actions"] for each in found["advice"]] == [["RemoveGates"]]
    assert found["members"][:2] == [
        "Pod/default/train-0 is on node-3",
        "Pod/default/train-1 is pending: Scheduling is blocked due to non-empty scheduling gates",
    ]


def light(name: str, number: int) -> Raw:
    """Labels that make pods a gang without any annotation."""
    prefix = "pod-group.scheduling.sigs.k8s.io"
    return {"labels": {f"{prefix}/name": name, f"{prefix}/min-available": str(number)}}


def group(name: str, **spec: Any) -> Raw:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": 1, **spec},
    }


def test_members_are_found_however_they_name_their_group(cluster: ServedCluster) -> None:
    cluster.create(
        group("light", minMember=3), pod("light-0", "1", metadata=light("light", 3), memory="1Gi")
    ).settle()
    found = explained(cluster, "podgroup", "light")
    few = "It has too few pods: 1 of the 3 pods it needs."
    assert found["summary"] == f"0 of 1 member has a node, 3 are needed. {few}"
    assert found["members"][0].startswith("Pod/default/light-0 is pending: ")
    found = explained(cluster, "pod", "light-0")
    assert found["summary"] == (
        "It starts only together with the rest of its job: "
        "PodGroup default/light has 1 of the 3 pods it needs."
    )


def test_a_gang_without_a_pod_group_is_found_by_the_annotations_of_its_pods(
    cluster: ServedCluster,
) -> None:
    prefix = "gang.scheduling.koordinator.sh/"
    gang = {"annotations": {f"{prefix}name": "k", f"{prefix}min-available": "3"}}
    cluster.create(pod("k-0", "1", metadata=gang, memory="1Gi")).settle()
    found = explained(cluster, "podgroup", "k")
    assert found["object"] == "gang default/k"
    assert found["summary"].startswith("0 of 1 member has a node, 3 are needed.")


def test_queues_that_take_nothing_are_named(cluster: ServedCluster) -> None:
    waits = {"annotations": {"scheduling.k8s.io/group-name": "queued"}}
    cluster.create(
        group("queued", queue="nowhere"), pod("queued-0", "1", metadata=waits, memory="1Gi")
    ).settle()
    assert explained(cluster, "podgroup", "queued")["summary"] == (
        "0 of 1 member has a node, 1 is needed. "
        "Its queue does not admit it: queue nowhere does not exist."
    )
    found = explained(cluster, "pod", "queued-0")
    assert found["summary"] == "Its queue does not admit it: queue nowhere does not exist."


def test_text_is_for_people(cluster: ServedCluster) -> None:
    shown = cluster("explain", "pod", "big").out
    for part in (
        "Pod default/big is Pending. No suitable node among 3 nodes: too little cpu (1), untolerated "
        "taint",
        "  (1), cordoned (1).",
        "Last message",
        "Rejected nodes",
        "What would help (verified with the scheduler)",
        "Events",
    ):
        assert part in shown.splitlines(), shown


@pytest.mark.parametrize(
    ("arguments", "err"),
    [
        (["pod", "none"], 'Error from server (NotFound): pods "none" not found\n'),
        (["pod"], "error: NAME: which pod? Give KIND NAME or KIND/NAME\n"),
        (
            ["cat", "tom"],
            "error: KIND: cannot explain 'cat'; known: pod, reservation, podgroup, "
            "deployment, statefulset, daemonset, replicaset, job, cronjob, persistentvolumeclaim, "
            "resourceclaim, node, queue, podmigrationjob, reservationschedule\n",
        ),
        (
            ["svc", "web"],
            "error: KIND: cannot explain 'svc': explain the workload behind it, or a pod\n",
        ),
        (
            ["pv", "v"],
            "error: KIND: cannot explain 'pv': explain the persistentvolumeclaim that it is for\n",
        ),
        (
            ["vcjob", "x"],
            "error: KIND: cannot explain 'vcjob': explain its podgroup, or one of its pods\n",
        ),
        (
            ["lease", "x"],
            "error: KIND: cannot explain 'lease'; known: pod, reservation, podgroup, "
            "deployment, statefulset, daemonset, replicaset, job, cronjob, persistentvolumeclaim, "
            "resourceclaim, node, queue, podmigrationjob, reservationschedule\n",
        ),
        (["pdo", "big"], "error: KIND: cannot explain 'pdo'; did you mean pod?\n"),
        (
            ["reservatoin/peak"],
            "error: KIND: cannot explain 'reservatoin'; did you mean reservation?\n",
        ),
        (
            ["pod", "gaint"],
            'Error from server (NotFound): pods "gaint" not found; did you mean giant?\n',
        ),
        (
            ["pod", "giant", "-n", "kube-system"],
            'Error from server (NotFound): pods "giant" not found; there is one in namespace default: '
            "use -n default\n",
        ),
        (["pod", "gaint", "-A"], 'error: no pod "gaint" in any namespace; did you mean giant?\n'),
    ],
)
def test_errors_are_reported_with_exit_status_and_reason(
    cluster: ServedCluster, arguments: list[str], err: str
) -> None:
    done = cluster("explain", *arguments)
    assert (done.status, done.err) == (1, err)


def test_a_name_is_looked_for_in_all_namespaces(cluster: ServedCluster) -> None:
    names = [{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": n}} for n in ("a", "b")]
    twice = [pod("twin", "100", metadata={"namespace": name}) for name in ("a", "b")]
    cluster.create(*names, pod("alone", "100", metadata={"namespace": "b"}), *twice).settle()
    assert explained(cluster, "pod", "alone", "-A")["object"] == "Pod b/alone"
    assert explained(cluster, "rsv", "peak", "-A")["object"] == "Reservation peak"
    done = cluster("explain", "pod", "twin", "-A")
    assert (done.status, done.err) == (
        1,
        'error: pod "twin" is in several namespaces: use -n a or -n b\n',
    )


def test_only_the_last_events_are_listed() -> None:
    events = [
        {"metadata": {}, "type": "Normal", "reason": "Tried", "message": f"attempt {i}", "count": i}
        for i in range(20)
    ]
    lines = text(Report("Pod default/p", "Pending", "Why.", events=events), 0.0).splitlines()
    assert lines[0] == "Pod default/p is Pending. Why."
    assert lines[2:4] == ["Events", "  … 12 earlier: -o json lists all"]
    assert len(lines) == 12
    assert lines[-1].endswith(": attempt 19")


@pytest.mark.parametrize("columns", [72, 100, 140])
def test_text_fits_the_terminal(
    cluster: ServedCluster, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.explanation_text.terminal_width", lambda: columns)
    for arguments in (["pod", "big"], ["pod", "greedy"], ["pod", "web-0"], ["rsv", "peak"]):
        lines = cluster("explain", *arguments).lines
        assert max(map(len, lines)) <= columns, max(lines, key=len)


def test_a_last_resort_is_called_so() -> None:
    ranked = [Ranked("n2", 300), Ranked("n1", 300 - 2**59, "r", 300, -(2**59))]
    lines = text(Report("Pod default/p", "Pending", "", ranked=ranked), 0.0).splitlines()
    assert [" ".join(line.split()) for line in lines[-2:]] == ["n2 0 - -", "n1 300 last resort r"]


def test_nothing_is_written(cluster: ServedCluster) -> None:
    def revision() -> Any:
        return cluster.server.get("/api/v1/pods").revision

    before = revision()
    cluster("explain", "pod", "big")
    assert revision() == before


def test_help_reads_well() -> None:
    assert "why a pod, reservation, pod group or workload is pending" in call("explain", "--help").out


@pytest.mark.parametrize(
    ("annotations", "summary"),
    [
        ({}, "It waits until its provisioner creates the reservation abc (cpu: 2)."),
        (
            {"scheduling.koordinator.sh/reservation-provision-error": "no quota"},
            "The reservation requested for it, abc, was not created: no quota",
        ),
    ],
)
def test_a_reservation_that_was_asked_for(
    cluster: ServedCluster, annotations: dict[str, str], summary: str
) -> None:
    """A pod that was not tried yet: the report has the condition of the pod."""
    prefix = "scheduling.koordinator.sh/"
    written = {
        f"{prefix}reservation-template": '{"owners": [{"labelSelector": {}}]}',
        f"{prefix}new-reservation-requirement": json.dumps(
            {"labels": {f"{prefix}reservation-id": "abc"}, "resources": {"cpu": "2"}}
        ),
        **annotations,
    }
    name = f"asking-{len(annotations)}"
    cluster.create(pod(name, "1", metadata={"annotations": written}, memory="1Gi"))
    assert explained(cluster, "pod", name)["summary"] == summary


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"holdfast.io/run-estimate": "5 minutes"}, "not a duration: '5 minutes'"),
        ({"holdfast.io/run-estimat": "5m"}, "did you mean holdfast.io/run-estimate?"),
    ],
)
def test_a_run_time_estimate_that_is_ignored_is_named(
    annotations: dict[str, str], problem: str, tmp_path: Path
) -> None:
    """Both the pod that waits, and the one that it waits for."""
    objects = []
    for raw in (stored_pod("a", "3", nodeName="n1"), stored_pod("b", "3")):
        raw["metadata"]["annotations"] = annotations
        objects.append(raw)
    file = tmp_path / "c.yaml"
    file.write_text("---\n".join(json.dumps(raw) + "\n" for raw in (node("n1"), *objects)))
    done = call("explain", "pod", "b", "--snapshot", str(file), "-o", "json")
    details = json.loads(done.out)["details"]
    own, other = (each for each in details if "run-time estimate is ignored" in each)
    assert own.startswith("its run-time estimate is ignored: ") and problem in own
    assert "becomes free is unknown: default/a: its run-time estimate" in other and problem in other
