"""What `holdfast explain` advises is true: the situations a new user meets, one row each.

Three nodes of 8 cpu, node-3 tainted. A row has what must be among the advice, and what must not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness.objects import Raw, pod, reservation
from harness.served_cluster import ServedCluster
from holdfast.api.names import HOLD_LABEL

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT = "scheduling.koordinator.sh/exact-match-reservation"
GROUP = "scheduling.k8s.io/group-name"
QUEUE = "scheduling.volcano.sh/queue-name"
VOLCANO = "scheduling.volcano.sh/v1beta1"
TOLERATION = "tolerate dedicated=db:NoSchedule; then it fits node-3"
BOTH = "tolerate dedicated=db:NoSchedule and spot:NoSchedule; then it fits node-4"


def _annotated(key: str, value: Any) -> Raw:
    return {"annotations": {key: value if isinstance(value, str) else json.dumps(value)}}


def _on(node: str) -> Raw:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def _ports(number: int) -> Raw:
    container = {"name": "main", "image": "i", "ports": [{"containerPort": number, "hostPort": number}]}
    return {"containers": [container]}


def _apart(app: str) -> Raw:
    term = {
        "labelSelector": {"matchLabels": {"app": app}},
        "topologyKey": "everywhere",
    }
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "rack",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "spread"}},
        }
    ]
}
FULL = [pod(f"full-{i}", "6", nodeName=f"node-{i}") for i in (1, 2)]

SITUATIONS: dict[str, tuple[Raw, list[str], list[str]]] = {
    "too big": (
        pod("p", "20"),
        ["no node is large enough: it requests 20 cpu, the most a node has is 8"],
        ["closest: ", "; then it fits node-3"],
    ),
    "taint": (pod("p", "4"), [TOLERATION, "closest: node-1, short of 2 cpu"], []),
    "taint, and too little there": (
        pod("p", "8"),
        ["closest: node-1, short of 6 cpu"],
        ["then it fits node-3"],
    ),
    "taint of two": (pod("p", "4", **_on("node-4")), [BOTH], ["then it fits node-3"]),
    "label no node has": (pod("p", "1", nodeSelector={"disk": "nvme"}), [], ["tolerate "]),
    "spread over a label no node has": (pod("p", "1", "spread", **SPREAD), [], ["tolerate "]),
    "anti-affinity": (pod("p", "1", **_apart("full")), [], ["tolerate "]),
    "host port": (pod("p", **_ports(80), **_on("node-1")), [], ["tolerate "]),
    "cordoned": (
        pod("p", "1", **_on("node-5")),
        ["uncordon node-5 (kubectl uncordon node-5); then it fits node-5"],
        ["toleration"],
    ),
    "cordoned, and too little there": (
        pod("p", "8", **_on("node-5")),
        [],
        ["uncordon node-5 (kubectl uncordon node-5); then"],
    ),
    "gated": (
        pod("p", "1", schedulingGates=[{"name": "example.com/wait"}]),
        ["scheduling gates to remove: example.com/wait"],
        [],
    ),
    "claim that is missing": (
        pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "nope"}}]),
        [],
        ["tolerate "],
    ),
    "names a reservation that is not there": (
        pod("p", metadata=_annotated(AFFINITY, {"name": "nope"})),
        ["the reservation it names, nope, does not exist"],
        ["tolerate "],
    ),
    "names a reservation of others": (
        pod("p", metadata=_annotated(AFFINITY, {"name": "theirs"})),
        [
            "the reservation it names, theirs, is for pods with app=other, and the pod is not one of "
            "them (spec.owners)"
        ],
        ["tolerate "],
    ),
    "selects no reservation": (
        pod("p", "1", "own", metadata=_annotated(AFFINITY, {"reservationSelector": {"no": "such"}})),
        [],
        ["tolerate "],
    ),
    "exact match": (
        pod(
            "p",
            "1",
            "own",
            metadata={"labels": {"app": "own"}}
            | {"annotations": {AFFINITY: "{}", EXACT: json.dumps({"resourceNames": ["cpu"]})}},
        ),
        [],
        ["tolerate "],
    ),
    "restricted reservation, too small": (
        pod("p", "2", "own", metadata={"labels": {"app": "own"}} | _annotated(AFFINITY, {})),
        [],
        ["toleration"],
    ),
    "other scheduler": (pod("p", schedulerName="nobody"), [], ["tolerate "]),
    "queue too small": (
        pod("p", "4", metadata=_annotated(QUEUE, "small")),
        [
            "queue small uses 0 of the 2 cpu of its capability, and the request is 4 cpu: it can never "
            "start"
        ],
        [],
    ),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path_factory.mktemp("situations"), nodes=5) as cluster:
        cluster.settle()
        for number in range(1, 6):
            labels = {"everywhere": "yes"}
            cluster.merge(f"/api/v1/nodes/node-{number}", {"metadata": {"labels": labels}})
        db = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
        spot = {"key": "spot", "effect": "NoSchedule"}
        cluster.create(
            *FULL,
            pod("little", "2", "full", nodeName="node-3"),
            pod("occupied", nodeName="node-1", **_ports(80)),
            pod("some", "1", nodeName="node-5"),
            {
                "apiVersion": VOLCANO,
                "kind": "Queue",
                "metadata": {"name": "small"},
                "spec": {"capability": {"cpu": "2"}},
            },
            reservation("theirs", "1", "other", pod={"nodeName": "node-2"}),
            reservation("own", "1", "own", allocatePolicy="Restricted", pod={"nodeName": "node-2"}),
        ).settle()
        cluster.merge("/api/v1/nodes/node-3", {"spec": {"taints": [db]}})
        cluster.merge("/api/v1/nodes/node-4", {"spec": {"taints": [db, spot]}})
        cluster.merge("/api/v1/nodes/node-5", {"spec": {"unschedulable": True}})
        yield cluster


def explained(cluster: ServedCluster, *arguments: str) -> Raw:
    done = cluster("explain", *arguments, "-o", "json")
    assert done.status == 0, done.err
    found: Raw = json.loads(done.out)
    return found


@pytest.mark.parametrize("case", SITUATIONS)
def test_advice(cluster: ServedCluster, case: str) -> None:
    given, expected, never = SITUATIONS[case]
    cluster.create(given).settle()
    try:
        found = explained(cluster, "pod", "p")
        for text in expected:
            assert text in found["help"], found
        for part in never:
            assert not [each for each in found["help"] if part in each], found
    finally:
        cluster.server.delete("/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0")
        cluster.settle()


def test_names_of_schedulers_include_those_that_are_served_besides(cluster: ServedCluster) -> None:
    cluster.create(pod("stray", schedulerName="nobody")).settle()
    assert "default-scheduler" in explained(cluster, "pod", "stray")["summary"]


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path_factory.mktemp("small"), nodes=2) as cluster:
        cluster.settle()
        yield cluster


def test_an_owners_own_waiting_reservation_is_not_counted_against_it(small: ServedCluster) -> None:
    """7 cpu of node-1 are in use and its reservation of 4 waits there: 3 are missing, not 7."""
    small.create(
        pod("there", "7", nodeName="node-1"),
        pod("other", "8", nodeName="node-2"),
    ).settle()
    small.create(
        reservation("ahead", "4", "own", preAllocation=True, pod={"nodeName": "node-1"})
    ).settle()
    small.create(pod("owner", "4", "own"), pod("stranger", "1")).settle()
    assert "closest: node-1, short of 3 cpu" in explained(small, "pod", "owner")["help"]
    found = explained(small, "pod", "stranger")["help"]
    kept = "reservation ahead keeps 1 cpu idle on node-1 for pods with app=own (Waiting, "
    assert any(each.startswith(kept) for each in found)


def test_a_hold_for_the_pod_itself_is_not_counted_against_it(small: ServedCluster) -> None:
    """6 cpu of node-1 are in use and 8 are held there for the pod: 6 are missing, not 14."""
    small.create(
        pod("there", "6", nodeName="node-1"), pod("other", "8", nodeName="node-2"), pod("big", "8")
    ).settle()
    uid = small.server.get("/api/v1/namespaces/default/pods/big").body["metadata"]["uid"]
    held = reservation(
        "held-for-big",
        "8",
        preAllocation=True,
        pod={"nodeName": "node-1"},
        owners=[{"object": {"kind": "Pod", "name": "big", "namespace": "default", "uid": uid}}],
    )
    small.create(held).settle()
    assert "closest: node-1, short of 6 cpu" in explained(small, "pod", "big")["help"]


def test_nodes_held_for_a_starving_job_are_named_with_it(small: ServedCluster) -> None:
    small.create(
        pod("there", "6", nodeName="node-1"), pod("other", "8", nodeName="node-2"), pod("big", "8")
    ).settle()
    uid = small.server.get("/api/v1/namespaces/default/pods/big").body["metadata"]["uid"]
    held = reservation(
        "held-for-big",
        "8",
        preAllocation=True,
        metadata={"labels": {HOLD_LABEL: "starvation"}},
        pod={"nodeName": "node-1"},
        owners=[{"object": {"kind": "Pod", "name": "big", "namespace": "default", "uid": uid}}],
    )
    small.create(held, pod("small", "1")).settle()
    found = explained(small, "pod", "small")
    kept = "starvation hold held-for-big keeps 2 cpu idle on node-1 for Pod/default/big "
    kept += "until it starts (Waiting since "
    assert any(each.startswith(kept) for each in found["help"])
    assert found["holders"][0]["heldFor"] == "Pod/default/big"
    assert "closest: node-1, short of 6 cpu" in explained(small, "pod", "big")["help"]


def test_a_nominated_pod_lists_its_terminating_victims(small: ServedCluster) -> None:
    small.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 100,
        },
        pod("low", "7", nodeName="node-1", metadata=_annotated("sim.holdfast.io/stops-in", "25s")),
        pod("fixed", "7", nodeName="node-2", priorityClassName="high"),
    ).settle()
    small.create(pod("urgent", "5", priorityClassName="high")).settle()
    found = explained(small, "pod", "urgent")
    assert found["summary"] == "node-1 is nominated for it; it waits until pods there have terminated."
    (victim,) = found["details"]
    assert victim.startswith("terminating on node-1: default/low, grace period ends in ")


def test_a_gang_its_queue_can_never_admit(small: ServedCluster) -> None:
    small.create(
        {
            "apiVersion": VOLCANO,
            "kind": "Queue",
            "metadata": {"name": "small"},
            "spec": {"capability": {"cpu": "2"}},
        },
        {
            "apiVersion": VOLCANO,
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "default"},
            "spec": {"minMember": 4, "queue": "small"},
        },
        *(pod(f"t-{i}", "1", metadata=_annotated(GROUP, "train")) for i in range(4)),
    ).settle()
    assert explained(small, "podgroup", "train")["summary"] == (
        "0 of 4 members have a node, 4 are needed. It can never start: queue small uses 0 of the 2 cpu "
        "of its capability, and the request is 4 cpu."
    )


def test_a_gang_that_waits_for_others_of_its_queue(small: ServedCluster) -> None:
    small.create(
        {
            "apiVersion": VOLCANO,
            "kind": "Queue",
            "metadata": {"name": "small"},
            "spec": {"capability": {"cpu": "4"}},
        },
        pod("first", "2", metadata=_annotated(QUEUE, "small")),
    ).settle()
    small.create(
        {
            "apiVersion": VOLCANO,
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "default"},
            "spec": {"minMember": 3, "queue": "small"},
        },
        *(pod(f"t-{i}", "1", metadata=_annotated(GROUP, "train")) for i in range(3)),
    ).settle()
    assert explained(small, "podgroup", "train")["summary"].endswith(
        "It waits for its queue: queue small uses 2 of the 4 cpu of its capability, and the "
        "request is 3 cpu."
    )


def test_a_misspelt_reservation_affinity_is_reported_on_the_pod(small: ServedCluster) -> None:
    small.create(pod("p", metadata=_annotated(AFFINITY, {"nam": "x"}))).settle()
    found = explained(small, "pod", "p")
    assert "nam: unknown field; did you mean name?" in found["told"]


def test_a_pod_that_fits_here_and_not_by_its_condition_may_need_the_configuration(
    small: ServedCluster,
) -> None:
    """A plugin that the default configuration lacks has rejected it."""
    small.create(pod("p"))
    assert not [each for each in explained(small, "pod", "p")["help"] if "--config" in each]
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 node(s) were above the pod's carbon limit.",
    }
    path = "/api/v1/namespaces/default/pods/p/status"
    small.merge(path, {"status": {"conditions": [condition]}})
    found = explained(small, "pod", "p")
    assert found["summary"].startswith("It fits now")
    assert [each for each in found["help"] if "pass it with --config" in each]
