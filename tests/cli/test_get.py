"""`holdfast get` and `describe`, as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.objects import pod, reservation
from harness.served_cluster import ServedCluster, call
from holdfast.metrics.cluster_metrics import limit_ratios

HELD_AND_FREE = ["CPU-HELD", "CPU-FREE", "MEMORY-HELD", "MEMORY-FREE"]
QUEUE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "research"},
    "spec": {"weight": 3, "capability": {"cpu": "40"}},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Two nodes of 8 cpu and 32Gi. `peak` is half used, `big` fits nowhere."""
    with ServedCluster(tmp_path_factory.mktemp("get")) as cluster:
        cluster.create(
            reservation(
                "peak",
                allocateOnce=False,
                ttl="2h",
                pod={"nodeName": "node-1"},
                app="web",
                memory="8Gi",
            ),
            reservation(
                "small",
                "1",
                "db",
                metadata={"labels": {"tier": "gold"}},
                pod={"nodeName": "node-2"},
                memory="8Gi",
            ),
            reservation("big", "64", "db", memory="8Gi"),
            QUEUE,
        ).settle()
        web = pod("web-0", "2", "web", memory="1Gi")
        web["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2"}
        cluster.create(web, pod("huge", "7500m", memory="1Gi")).settle()
        yield cluster


def test_reservations_are_a_table_as_kubectl_prints_them(cluster: ServedCluster) -> None:
    done = cluster("get", "reservations")
    assert (done.status, done.err) == (0, "")
    rows = [row[:-1] for row in done.rows()]  # ages are not of interest
    assert rows == [
        ["NAME", "PHASE", "NODE", "OWNERS", "ALLOCATED", "TTL", "EXPIRES"],
        ["big", "Pending", "<none>", "<none>", "<none>", "24h", "in", "23h"],
        ["peak", "Available", "node-1", "web-0", "cpu=2/4,memory=1Gi/8Gi", "2h", "in", "1h59m"],
        ["small", "Available", "node-2", "<none>", "cpu=0/1,memory=0/8Gi", "24h", "in", "23h"],
    ]
    assert done.lines[0].startswith("NAME    PHASE       NODE     OWNERS")


def test_wide_output_has_owners_and_message(cluster: ServedCluster) -> None:
    big = next(line for line in cluster("get", "rsv", "-o", "wide").lines if line.startswith("big"))
    assert "app=db" in big and "true" in big
    assert big.endswith("0/2 nodes are available: 2 Insufficient cpu.")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["reservations", "small", "peak"], ["small", "peak"]),
        (["reservation/peak"], ["peak"]),
        (["rsv", "-l", "tier=gold"], ["small"]),
        (["rsv", "-l", "tier"], ["small"]),
        (["rsv", "-l", "!tier"], ["big", "peak"]),
        (["reservations.scheduling.koordinator.sh"], ["big", "peak", "small"]),
    ],
)
def test_some_of_them(cluster: ServedCluster, arguments: list[str], names: list[str]) -> None:
    done = cluster("get", *arguments, "--no-headers")
    assert [row[0] for row in done.rows()] == names


def test_names_alone(cluster: ServedCluster) -> None:
    assert (
        cluster("get", "rsv", "peak", "-o", "name").out
        == "reservation.scheduling.koordinator.sh/peak\n"
    )
    assert cluster("get", "nodes", "-o", "name").lines == ["node/node-1", "node/node-2"]


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_one_by_name_is_the_object_and_all_are_a_list(
    cluster: ServedCluster, output: str, read: Any
) -> None:
    one = read(cluster("get", "rsv", "peak", "-o", output).out)
    assert (one["kind"], one["metadata"]["name"]) == ("Reservation", "peak")
    every = read(cluster("get", "rsv", "-o", output).out)
    assert (every["kind"], [each["metadata"]["name"] for each in every["items"]]) == (
        "List",
        ["big", "peak", "small"],
    )
    assert all(each["apiVersion"].endswith("/v1alpha1") for each in every["items"])


def test_several_types_have_a_table_each(cluster: ServedCluster) -> None:
    done = cluster("get", "reservations,queues")
    tables = done.out.split("\n\n")
    assert len(tables) == 2
    assert "reservation.scheduling.koordinator.sh/peak" in tables[0]
    assert tables[1].splitlines()[1].split()[:5] == [
        "queue.scheduling.volcano.sh/research",
        "3",
        "Open",
        "<none>",
        "<none>",
    ]


def test_nodes_are_shown_as_the_scheduler_counts_them(cluster: ServedCluster) -> None:
    """node-1 has a pod of 2 cpu, allocated from the 4 reserved: 2 are still held, 4 are free."""
    rows = [row[:-1] for row in cluster("get", "nodes").rows()]
    assert rows == [
        ["NAME", "STATUS", "PODS", *HELD_AND_FREE, "RESERVATIONS"],
        ["node-1", "Ready", "1/110", "2", "4", "7Gi", "24Gi", "1"],
        ["node-2", "Ready", "0/110", "1", "7", "8Gi", "24Gi", "1"],
    ]
    wide = cluster("get", "nodes", "node-1", "-o", "wide").rows()
    cells = dict(zip(wide[0], wide[1], strict=True))
    cpu = [cells[name] for name in ("CPU", "CPU-REQUESTED", "CPU-HELD", "CPU-FREE", "CPU-LIMITS")]
    assert cpu == ["8", "2", "2", "4", "50%"]


def test_limits_have_a_column_only_where_there_are_some(cluster: ServedCluster) -> None:
    headers = cluster("get", "nodes", "-o", "wide").rows()[0]
    assert "CPU-LIMITS" in headers
    assert "MEMORY-LIMITS" not in headers, "no pod states a limit of memory"
    assert len(headers) == len(set(headers)), "a column is there twice"


@pytest.mark.parametrize("change", ["none", "deleted", "recreated", "expired", "pod ended"])
@pytest.mark.parametrize("others", [0, 1], ids=["one reservation", "several"])
def test_a_pod_is_shown_with_the_reservation_that_counts_it(
    tmp_path: Path, change: str, others: int
) -> None:
    path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations/peak"

    def peak(node: str) -> dict[str, Any]:
        return reservation("peak", "4", "web", allocateOnce=False, pod={"nodeName": node})

    with ServedCluster(tmp_path) as cluster:
        cluster.create(peak("node-1"), reservation("once", "1", "db")).settle()
        cluster.create(pod("web-0", "2", "web")).settle()
        if others:
            cluster.create(pod("db-0", "1", "db")).settle()
        if change in ("deleted", "recreated"):
            assert cluster.server.delete(path).code == 200
            cluster.settle()
        if change == "recreated":
            cluster.create(peak("node-2")).settle()
        if change == "expired":
            cluster.merge(f"{path}/status", {"status": {"phase": "Failed"}})
            cluster.settle()
        if change == "pod ended":
            ended = {"status": {"phase": "Succeeded"}}
            cluster.merge("/api/v1/namespaces/default/pods/web-0/status", ended)
            cluster.settle()
        used = {row[0]: row[4] for row in cluster("get", "pods").rows()[1:]}
        assert used["web-0"] == ("peak" if change == "none" else "<none>")
        assert used.get("db-0", "once") == "once", "to allocate once: it has succeeded with its pod"
        described = cluster("describe", "node", "node-1").lines
        last = [line.split()[-1] for line in described if line.split()[:2] == ["default", "web-0"]]
        assert last == ([] if change == "pod ended" else [used["web-0"]])


def test_every_command_shows_the_same_sum_of_limits(cluster: ServedCluster) -> None:
    """node-2 has a reservation of 1 of 8 cpu and no pods; LimitAware counts what it reserves."""
    header, row = cluster("get", "nodes", "node-2", "-o", "wide").rows()
    assert dict(zip(header, row, strict=True))["CPU-LIMITS"] == "12%"
    described = cluster("describe", "node", "node-2").lines
    (cpu,) = [line.split() for line in described if line.split()[:1] == ["cpu"]]
    assert cpu[-1] == "12%"
    explained = cluster("explain", "node", "node-2").lines
    (cpu,) = [line.split() for line in explained if line.split()[:1] == ["cpu"]]
    assert cpu[-1] == "12%"
    (sample,) = [
        sample
        for sample in limit_ratios(cluster.embedded.world.scheduler.cluster).samples
        if sample.labels == {"node": "node-2", "resource": "cpu"}
    ]
    assert sample.value == 0.125


def test_the_bound_of_the_sum_of_limits_is_shown(tmp_path: Path) -> None:
    with ServedCluster(tmp_path) as cluster:
        bound = {"node.koordinator.sh/limit-to-allocatable": json.dumps({"cpu": "188%"})}
        cluster.merge("/api/v1/nodes/node-1", {"metadata": {"annotations": bound}})
        header, *rows = cluster("get", "nodes", "-o", "wide").rows()
        at = header.index("CPU-LIMITS")
        assert [row[at] for row in rows] == ["0%/188%", "0%"]
        described = cluster("describe", "node", "node-1").lines
        assert any(line.split()[:1] == ["cpu"] and line.endswith("0%/188%") for line in described)


def test_a_field_to_sort_by_that_no_object_has(cluster: ServedCluster) -> None:
    done = cluster("get", "nodes", "--sort-by", ".foo")
    assert (done.status, done.err) == (1, "error: --sort-by: no object has a field .foo\n")
    assert cluster("get", "nodes", "--sort-by", ".metadata.name").status == 0
    assert cluster("get", "podgroups", "-n", "kube-system", "--sort-by", ".foo").status == 0


def test_the_queue_is_in_the_order_things_are_tried(cluster: ServedCluster) -> None:
    """A reservation without a priority comes before all pods."""
    rows = cluster("get", "queue", "-o", "wide")
    assert [row[:4] for row in rows.rows()[1:]] == [
        ["Reservation/big", "2147483647", "<none>", "Unschedulable"],
        ["Pod/default/huge", "0", "default-scheduler", "Unschedulable"],
    ]
    assert "Insufficient cpu" in rows.lines[2]
    assert cluster("get", "queue", "huge", "-o", "name").out == "pod/huge\n"
    assert cluster("get", "queue", "-n", "kube-system", "-o", "name").lines == [
        "reservation.scheduling.koordinator.sh/big"
    ]
    missing = cluster("get", "queue", "web-0")
    assert (missing.status, missing.err) == (1, '"web-0" is not pending\n')


def test_holds_are_the_reservations_with_the_label(cluster: ServedCluster) -> None:
    assert cluster("get", "holds").err == "No resources found\n"
    labels = {"holdfast.io/hold": "starvation", "holdfast.io/hold-job": "train"}
    annotations = {"holdfast.io/hold-job": "default/train"}
    cluster.create(
        reservation(
            "hold-1",
            "1",
            metadata={"labels": labels, "annotations": annotations},
            app="web",
            memory="8Gi",
        )
    ).settle()
    row = cluster("get", "holds").rows()[1]
    assert row[:3] == ["hold-1", "default/train", "Available"]
    assert row[4:6] == ["cpu=1,memory=8Gi", "<none>"]
    other = cluster("get", "holds", "peak")
    assert (other.status, other.out) == (1, "")
    assert other.err.endswith('"peak" has no label holdfast.io/hold\n')
    assert cluster.server.delete(f"{RESERVATIONS}/hold-1").code == 200
    cluster.settle()


RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"


@pytest.mark.parametrize(
    ("arguments", "status", "err"),
    [
        (
            ["get", "rsv", "nothing"],
            1,
            'Error from server (NotFound): reservations.scheduling.koordinator.sh "nothing" not found'
            "\n",
        ),
        (["get", "rsv", "-l", "tier=tin"], 0, "No resources found\n"),
        (["get", "reservation"], 0, ""),
        (
            ["get", "reservatons"],
            1,
            'error: unknown resource type "reservatons"; did you mean reservations?\n',
        ),
        (
            ["get", "cats"],
            1,
            'error: unknown resource type "cats"; known: reservations, holds, reservationschedules, '
            "pods, nodes, podgroups, queue, queues\n",
        ),
        (
            ["get", "rsv", "-l", "a==b==c"],
            1,
            "error: --selector: found '==', expected: ',' or 'end of string'\n",
        ),
        (
            ["get", "rsv/peak", "small"],
            1,
            "error: a name cannot follow TYPE/NAME: 'small'\n",
        ),
        (["get", "rsv/"], 1, "error: expected TYPE/NAME, got 'rsv/'\n"),
        (["get", "nodes,queue", "-w"], 1, "error: --watch: expected one type\n"),
        (["describe", "rsv", "nothing"], 1, None),
    ],
)
def test_errors_are_reported_with_exit_status_and_reason(
    cluster: ServedCluster, arguments: list[str], status: int, err: str | None
) -> None:
    done = cluster(*arguments)
    assert done.status == status
    if err is not None:
        assert done.err == err


def test_what_is_there_is_shown_though_something_else_is_not(cluster: ServedCluster) -> None:
    done = cluster("get", "rsv", "peak", "nothing", "--no-headers")
    assert done.status == 1
    assert [row[0] for row in done.rows()] == ["peak"]
    assert '"nothing" not found' in done.err


def test_a_server_without_the_definitions(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, crds=False) as cluster:
        done = cluster("get", "reservations")
        assert (done.status, done.err) == (
            1,
            'error: the server doesn\'t have a resource type "reservations"\n',
        )
        assert len(cluster("get", "nodes", "--no-headers").lines) == 2


def test_no_server_and_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = call("get", "rsv", "--kubeconfig", str(tmp_path / "none"))
    assert missing.status == 1 and str(tmp_path / "none") in missing.err
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert "KUBECONFIG: no such file" in call("get", "rsv").err


def test_kubeconfig_from_the_environment_and_another_context(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig)
    assert call("get", "rsv", "peak", "-o", "name").status == 0
    assert "other" in call("get", "rsv", "--context", "other").err


def test_describe_reservation_shows_all_fields(cluster: ServedCluster) -> None:
    text = cluster("describe", "reservation", "peak").out
    for line in (
        "Name:            peak",
        "Phase:           Available",
        "Node:            node-1",
        "For:             app=web",
        "Policy:          Default",
        "Allocate Once:   false",
        "TTL:             2h",
        "Requests:        cpu=4,memory=8Gi",
        "Requested Node:  node-1",
        "  cpu        4          2           2",
        "  memory     8Gi        1Gi         7Gi",
        "Current Owners:  default/web-0",
    ):
        assert line in text.splitlines(), text
    assert "Successfully assigned peak to node-1" in text
    assert "Scheduled   True" in text


def test_requests_are_those_that_the_scheduler_counts(tmp_path: Path) -> None:
    """Init containers, sidecars and pod-level resources included."""
    first = {"name": "first", "resources": {"requests": {"cpu": "3"}}}
    beside = {"name": "beside", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}
    objects = [
        pod("init", "1", memory="1Gi", initContainers=[first]),
        pod("sidecar", "1", memory="1Gi", initContainers=[beside]),
        pod("whole", "1", memory="1Gi", resources={"requests": {"cpu": "5"}}),
        reservation("held", "1", memory="1Gi", pod={"initContainers": [first]}),
    ]
    file = tmp_path / "pods.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    found = {}
    for type, name in (("pod", "init"), ("pod", "sidecar"), ("pod", "whole"), ("rsv", "held")):
        lines = call("describe", type, name, "--snapshot", str(file)).lines
        found[name] = next(line.split()[1] for line in lines if line.startswith("Requests:"))
    assert found == {
        "init": "cpu=3,memory=1Gi",
        "sidecar": "cpu=3,memory=1Gi",
        "whole": "cpu=5,memory=1Gi",
        "held": "cpu=3,memory=1Gi",
    }


def test_describe_node_lists_pods_and_reservations(cluster: ServedCluster) -> None:
    text = cluster("describe", "node/node-1").out
    lines = [line.split() for line in text.splitlines()]
    assert ["cpu", "8", "2", "2", "4", "50%"] in lines
    assert ["peak", "cpu=4,memory=8Gi", "cpu=2,memory=7Gi"] in lines
    assert ["default", "web-0", "2", "1Gi", "peak"] in lines


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["queue", "huge"], "Place:"),
        (["queues"], "Weight:"),
        (["rsv", "big"], "2 Insufficient cpu."),
    ],
)
def test_describe_the_rest(cluster: ServedCluster, arguments: list[str], expected: str) -> None:
    assert expected in cluster("describe", *arguments).out


def test_it_is_a_kubectl_plugin() -> None:
    usage = call("get", "--help", program="/usr/local/bin/kubectl-holdfast").out
    assert usage.startswith("Usage: kubectl holdfast get ")
