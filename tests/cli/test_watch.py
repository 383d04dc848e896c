"""`holdfast get --watch`, for every type."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.objects import Raw, core_group, core_pods, pod, reservation
from harness.served_cluster import ServedCluster, call
from holdfast.cli.client import RESERVATION
from holdfast.cli.get import get
from holdfast.cli.kinds import find_kind
from holdfast.cli.kinds.kind import Found, OutputRow, PlainKind
from holdfast.cli.kinds.reservations import ReservationKind, expiry, taken
from holdfast.cli.object_printer import ObjectPrinter, PrintOptions
from holdfast.cli.output_format import read_format
from holdfast.cli.watch import warn_of_lost_watch
from holdfast.kube import object_watch
from holdfast.kube.errors import ApiError, Unreachable
from holdfast.kube.object_watch import WatchScope, changes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path_factory.mktemp("watch")) as cluster:
        yield cluster


def watched(cluster: ServedCluster, words: list[str], change: Any, until: str) -> str:
    """What the command prints until it has printed some text."""
    out = io.StringIO()
    done = threading.Event()

    def act() -> None:
        for step in change:
            while step[0] not in out.getvalue() and not done.wait(0.02):
                pass
            step[1]()

    class Enough(Exception):
        pass

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            out.write(text)
            if until in out.getvalue():
                raise Enough
            return len(text)

    actor = threading.Thread(target=act)
    actor.start()
    command: Any = get
    try:
        with redirect_stdout(Output()), pytest.raises(Enough):
            command(*words, watch=True, kubeconfig=cluster.kubeconfig)
    finally:
        done.set()
        actor.join()
    return out.getvalue()


def test_the_heading_comes_first_and_a_deletion_is_shown(cluster: ServedCluster) -> None:
    path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations/peak"
    steps = [
        ("AGE", lambda: cluster.create(reservation("peak", allocateOnce=False)).settle()),
        ("Available", lambda: cluster.server.delete(path)),
    ]
    lines = watched(cluster, ["reservations"], steps, "Deleted").splitlines()
    assert lines[0].split()[:3] == ["NAME", "PHASE", "NODE"]
    assert {line.split()[1] for line in lines[1:]} >= {"Pending", "Available"}
    assert lines[-1].split()[:2] == ["peak", "Deleted"]


@pytest.mark.parametrize(("name", "headings"), [("peak", 1), ("a-name-longer-than-the-column", 2)])
def test_columns_stay_in_line_if_there_was_nothing_at_first(
    cluster: ServedCluster, name: str, headings: int
) -> None:
    path = f"/apis/scheduling.koordinator.sh/v1alpha1/reservations/{name}"
    steps = [
        ("AGE", lambda: cluster.create(reservation(name)).settle()),
        ("Available", lambda: cluster.server.delete(path)),
    ]
    lines = watched(cluster, ["reservations"], steps, "Deleted").splitlines()
    heads = [line for line in lines if line.startswith("NAME")]
    assert (len(heads), lines[headings - 1]) == (headings, heads[-1])
    at = heads[-1].index("PHASE"), heads[-1].index("NODE"), heads[-1].index("TTL")
    for line in lines[headings:]:
        assert all(line[i - 1] == " " and line[i] != " " for i in at), lines


def test_a_row_that_differs_in_its_age_only_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    kind = find_kind("reservations")
    assert isinstance(kind, PlainKind)
    raw = {**reservation("peak"), "metadata": {"name": "peak", "uid": "1"}}
    cells = kind.cells(raw, 0.0)
    age = [column.name for column in kind.columns].index("AGE")
    older, other = [*cells], [*cells]
    older[age], other[1] = "9m", "Available"
    for events, count in ((False, 2), (True, 4)):
        printer = ObjectPrinter(PrintOptions(read_format("table"), False, False, events))
        show = printer.watching(kind, Found([], kind.columns)).show
        for each in (cells, older, older, other):
            show("MODIFIED", OutputRow(raw, each), kind.columns)
        assert len(capsys.readouterr().out.splitlines()) == count


def test_nodes_show_new_figures_and_pods_leave_the_queue(cluster: ServedCluster) -> None:
    wanted = pod("p1", "2", memory="1Gi")
    steps = [("node-2", lambda: cluster.create(wanted).settle())]
    lines = watched(cluster, ["nodes"], steps, "1/110").splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["node-1", "node-2"]
    assert lines[3].split()[2:5] == ["1/110", "0", "6"]
    steps = [
        ("PLACE", lambda: cluster.create(pod("p2", "1", memory="1Gi"))),
        ("p2", cluster.settle),
    ]
    lines = watched(cluster, ["queue"], steps, "Scheduled").splitlines()
    assert [line.split()[3] for line in lines[1:]] == ["Active", "Scheduled"]


def test_a_place_in_the_queue_is_shown_again_when_another_pod_comes_in_before(
    cluster: ServedCluster,
) -> None:
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 10,
    }
    cluster.create(high)
    first = pod("first", "1", memory="1Gi", priorityClassName="high")
    steps = [
        ("PLACE", lambda: cluster.create(pod("later", "1", memory="1Gi"))),
        ("later", lambda: cluster.create(first)),
    ]
    lines = watched(cluster, ["queue"], steps, " 2\n").splitlines()
    assert [(row[0], row[-1]) for row in map(str.split, lines[1:])] == [
        ("Pod/default/later", "1"),
        ("Pod/default/first", "1"),
        ("Pod/default/later", "2"),
    ]
    for name in ("first", "later"):
        cluster.server.delete(f"/api/v1/namespaces/default/pods/{name}")


def test_running_members_of_a_core_pod_group_are_counted(cluster: ServedCluster) -> None:
    cluster.create(core_group("train", 1), *core_pods("train", 2, memory="1Gi"))
    steps = [("train", cluster.settle)]
    lines = watched(cluster, ["podgroups"], steps, "   2   ").splitlines()
    assert (lines[1].split()[3], lines[-1].split()[3]) == ("0", "2")
    assert cluster("get", "pg", "train").rows()[1][3] == "2"
    assert "Running:         2" in cluster("describe", "pg", "train").out
    jobs = [row[5] for row in cluster("get", "pods").rows() if row[0].startswith("train-")]
    assert jobs == ["train", "train"]


class Faulty:
    """Lists twice; between, the watch breaks in some way."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.lists = 0

    async def listed(self, *_: object) -> tuple[list[Raw], str]:
        self.lists += 1
        names = ["a", "b"] if self.lists == 1 else ["b", "c"]
        return [_object(name) for name in names], str(self.lists)

    async def watch(self, *_: object) -> AsyncIterator[tuple[str, Raw]]:
        if self.lists > 1:
            await asyncio.sleep(3600)
        raise self.error
        yield


def _object(name: str) -> Raw:
    return {
        **reservation(name),
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
    }


@pytest.mark.parametrize(
    "error", [ApiError(410, "Expired", "too old"), Unreachable("closed"), ApiError(503, "", "down")]
)
def test_a_broken_watch_is_resumed_and_the_difference_is_shown(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_watch, "_FIRST_PAUSE", 0.0)
    server: Any = Faulty(error)

    async def main() -> list[tuple[str, str]]:
        found = []
        async for change in changes(
            server, [WatchScope(RESERVATION)], [_object("a")], warn_of_lost_watch
        ):
            if change.raw:
                found.append((change.event, change.raw["metadata"]["name"]))
            if len(found) == 3:
                return found
        return found

    assert asyncio.run(main()) == [("ADDED", "b"), ("DELETED", "a"), ("ADDED", "c")]


def test_a_refused_watch_ends_the_command() -> None:
    server: Any = Faulty(ApiError(403, "Forbidden", "no"))

    async def main() -> None:
        async for _ in changes(server, [WatchScope(RESERVATION)], [], warn_of_lost_watch):
            pass

    with pytest.raises(ApiError):
        asyncio.run(main())


# What the rows of reservations say


@pytest.mark.parametrize(
    ("spec", "status", "text"),
    [
        ({"ttl": "2h"}, {}, "in 59m"),
        ({"ttl": "0s"}, {}, "never"),
        ({}, {}, "in 22h"),
        ({"expires": "2026-01-03T01:00:00Z"}, {}, "in 47h"),
        ({"ttl": "30m"}, {"phase": "Available"}, "expired 30m ago"),
        ({"ttl": "30m"}, {"phase": "Succeeded"}, ""),
        (
            {"ttl": "30m"},
            {
                "phase": "Failed",
                "conditions": [
                    {
                        "type": "Ready",
                        "reason": "Expired",
                        "lastTransitionTime": "2026-01-01T00:55:01Z",
                    }
                ],
            },
            "expired 5m ago",
        ),
        (
            {"ttl": "30m"},
            {
                "phase": "Failed",
                "nodeName": "n1",
                "conditions": [
                    {
                        "type": "Ready",
                        "reason": "Expired",
                        "message": "node n1 is gone",
                        "lastTransitionTime": "2026-01-01T00:55:01Z",
                    }
                ],
            },
            "node gone 5m ago",
        ),
        (
            {"ttl": "3h"},
            {
                "phase": "Failed",
                "conditions": [
                    {
                        "type": "Ready",
                        "reason": "Expired",
                        "message": "reservation had no owner for 5s",
                        "lastTransitionTime": "2026-01-01T00:55:01Z",
                    }
                ],
            },
            "unused for 5s, released 5m ago",
        ),
    ],
)
def test_expiry_is_a_time_to_go(spec: Raw, status: Raw, text: str) -> None:
    created = {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"}
    found = expiry({"metadata": created, "spec": spec, "status": status}, 1767225600 + 3601)
    assert found.startswith(text) if text else not found


def test_a_finished_reservation_holds_nothing_and_comes_last() -> None:
    kind = ReservationKind()
    ended: Raw = {"metadata": {"name": "a"}, "status": {"phase": "Failed", "allocatable": {"cpu": "4"}}}
    live: Raw = {
        "metadata": {"name": "b"},
        "status": {"phase": "Available", "allocatable": {"cpu": "4"}},
    }
    assert [raw["metadata"]["name"] for raw in sorted([ended, live], key=kind.order)] == ["b", "a"]
    assert (taken(ended), taken(live)) == ("", "cpu=0/4")


# Namespaces, versions


def test_names_and_namespaces_are_suggested(cluster: ServedCluster) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    cluster.server.post("/api/v1/namespaces", namespace)
    cluster.create(pod("lamp", "1"))
    cluster.create({**pod("cart", "1"), "metadata": {"name": "cart", "namespace": "shop"}})
    assert cluster("get", "pod", "lmp").err.endswith('pods "lmp" not found; did you mean lamp?\n')
    assert cluster("get", "pod", "cart").err.endswith("; there is one in namespace shop: use -n shop\n")
    assert cluster("get", "node", "nod-1").err.endswith('"nod-1" not found; did you mean node-1?\n')
    assert cluster("get", "pg", "-n", "shp").err == (
        'No resources found in shp namespace.\nwarning: no namespace "shp"; did you mean shop?\n'
    )
    everywhere = cluster("get", "pods", "-A", "--no-headers").rows()
    assert [row[:2] for row in everywhere][-1] == ["shop", "cart"]
    assert cluster("get", "pods", "-A", "lamp").err == (
        "error: a resource cannot be retrieved by name across all namespaces\n"
    )
    assert '"items": []' in cluster("get", "pg", "-n", "shop", "-o", "json").out
    assert "Reservation:" in cluster("describe", "pod", "lamp").out


def test_version_asks_the_server_if_there_is_one(
    cluster: ServedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster("version").lines[1].startswith("server   v1.")
    assert "serverVersion" not in cluster("version", "--client", "-o", "json").out
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    done = call("version")
    assert done.status == 0 and len(done.lines) == 1 and "no such file" in done.err


def test_contexts_are_suggested(cluster: ServedCluster) -> None:
    name = yaml.safe_load(Path(cluster.kubeconfig).read_text())["current-context"]
    assert f"did you mean {name}?" in cluster("get", "rsv", "--context", f"{name}x").err
