"""`get`, `describe` and `explain` of reservations with a start, and of their schedules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.apiserver import TABLE
from harness.objects import Raw, reservation
from harness.served_cluster import ServedCluster, call
from holdfast.api.times import format_time, parse_time
from holdfast.cli.kinds.kind import Found, OutputRow
from holdfast.cli.kinds.reservations import ReservationKind, end_time
from holdfast.cli.object_printer import ObjectPrinter, PrintOptions
from holdfast.cli.output_format import read_format

LATER = "2127-01-01T18:00:00Z"
SCHEDULE: Raw = {
    "apiVersion": "scheduling.holdfast.io/v1alpha1",
    "kind": "ReservationSchedule",
    "metadata": {"name": "daily"},
    "spec": {
        "schedule": "0 18 * * *",
        "timeZone": "Europe/Zurich",
        "duration": "4h",
        "lead": "30m",
        "template": {"spec": {**reservation("any", "1", "report")["spec"]}},
    },
}


def starting(name: str, cpu: str, **annotations: str) -> Raw:
    given = {"holdfast.io/starts-at": LATER} | {
        f"holdfast.io/{key.replace('_', '-')}": value for key, value in annotations.items()
    }
    return reservation(name, cpu, "night", ttl="4h", metadata={"annotations": given})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Two nodes of 8 cpu: `night` is planned, `large` fits nowhere."""
    with ServedCluster(tmp_path_factory.mktemp("get-calendar")) as cluster:
        cluster.create(reservation("now", "1", "web")).settle()
        cluster.create(
            starting("night", "1", lead="30m", before_start="Drain", at_end="Evict")
        ).settle()
        cluster.create(starting("large", "99"), SCHEDULE).settle()
        cluster.create(reservation("fixed", "1", "fixed", expires="2127-01-01T00:00:00Z")).settle()
        cluster.create(reservation("lasting", "1", "lasting", ttl="0s")).settle()
        yield cluster


def row(cluster: ServedCluster, *arguments: str) -> dict[str, str]:
    """The one row of a table, by header."""
    head, line = cluster("get", *arguments).lines
    at = [i for i, c in enumerate(head) if c != " " and (i == 0 or head[i - 1] == " ")]
    cells = [line[a:b].strip() for a, b in zip(at, [*at[1:], None], strict=True)]
    return dict(zip(head.split(), cells, strict=True))


def test_a_planned_reservation_has_its_state_and_its_start(cluster: ServedCluster) -> None:
    found = row(cluster, "rsv", "night")
    assert (found["PHASE"], found["STATE"]) == ("Pending", "Planned")
    assert found["NODE"].startswith("node-")
    assert found["NEXT"].startswith("in ") and found["NEXT"].endswith("y")
    assert found["TTL"] == "4h"


@pytest.mark.parametrize("name", ["now", "night", "large", "fixed", "lasting"])
def test_kubectl_and_get_agree_on_when_a_reservation_expires(cluster: ServedCluster, name: str) -> None:
    path = f"/apis/scheduling.koordinator.sh/v1alpha1/reservations/{name}"
    table = cluster.server.get(path, TABLE).body
    headers = [each["name"] for each in table["columnDefinitions"]]
    shown = dict(zip(headers, table["rows"][0]["cells"], strict=True))["Expires"]
    end = end_time(cluster.server.get(path).body)
    assert shown == (None if end is None else format_time(end))
    assert (row(cluster, "rsv", name)["EXPIRES"] == "never") == (shown is None)
    assert (shown is None) == (name == "lasting")


def test_one_that_no_node_can_have_is_not_planned_and_says_why(cluster: ServedCluster) -> None:
    found = row(cluster, "rsv", "large", "-o", "wide")
    assert (found["STATE"], found["NODE"]) == ("NotPlanned", "<none>")
    assert "cpu" in found["MESSAGE"]


def test_reservations_without_a_start_have_no_such_columns(cluster: ServedCluster) -> None:
    assert not {"STATE", "NEXT"} & set(row(cluster, "rsv", "now"))
    head, *lines = cluster("get", "rsv").rows()
    assert {"STATE", "NEXT"} < set(head)
    assert next(line for line in lines if line[0] == "now")[2] == "<none>"


def test_it_expires_after_its_start() -> None:
    raw = starting("night", "1")
    raw["metadata"]["creationTimestamp"] = "2126-12-31T18:00:00Z"
    headers = [column.name for column in ReservationKind.columns]
    now = parse_time("2126-12-31T19:00:00Z")
    cells = dict(zip(headers, ReservationKind().cells(raw, now), strict=True))
    assert (cells["NEXT"], cells["EXPIRES"]) == ("in 23h", "in 27h")


def test_a_watch_shows_the_columns_once_there_is_a_start(capsys: pytest.CaptureFixture[str]) -> None:
    kind = ReservationKind()
    before, after = reservation("now", "1", "web"), starting("night", "1")
    printer = ObjectPrinter(PrintOptions(read_format("table")))
    rows = [OutputRow(raw, kind.cells(raw, 0.0)) for raw in (before, after)]
    watching = printer.watching(kind, Found(rows[:1], kind.columns))
    watching.show("ADDED", rows[1], kind.columns)
    watching.show("MODIFIED", rows[0], kind.columns)
    heads = [line.split() for line in capsys.readouterr().out.splitlines() if "NAME" in line]
    assert ["NEXT" in head for head in heads] == [False, True]


def test_describe_shows_the_plan(cluster: ServedCluster) -> None:
    text = cluster("describe", "reservation", "night").out
    for line in ("State:           Planned", "Lead:            30m", "At End:          Evict"):
        assert line in text.splitlines(), text
    assert f"Starts:          {LATER} (in " in text
    assert "Before Start:    Drain" in text
    assert "Feasible:        True" in text
    text = cluster("describe", "reservation", "large").out
    assert "Feasible:        False: " in text
    assert "Starts:" not in cluster("describe", "reservation", "now").out


def test_explain_tells_the_plan_and_whether_it_is_feasible(cluster: ServedCluster) -> None:
    text = " ".join(cluster("explain", "reservation", "night").out.split())
    assert f"Reservation night is Pending. It starts at {LATER}; node-" in text
    assert "is planned. Its capacity will be free by then." in text
    assert "its node is drained from 2127-01-01T17:30:00Z on" in text
    text = " ".join(cluster("explain", "reservation", "large").out.split())
    assert f"It starts at {LATER}; no node is planned. Its capacity will not be free by then." in text
    assert "Last message" in text
    assert "its node" not in text


@pytest.mark.parametrize("type", ["reservationschedules", "rsvs", "schedules", "reservationschedule"])
def test_schedules_are_a_table(cluster: ServedCluster, type: str) -> None:
    found = row(cluster, type)
    assert found["SCHEDULE"] == "0 18 * * *"
    assert (found["TIME-ZONE"], found["DURATION"], found["SUSPEND"]) == ("Europe/Zurich", "4h", "false")
    assert found["NEXT"].startswith("in ")
    assert found["LAST"] == "<none>"
    assert found["RESERVATIONS"].startswith("daily-")


def test_describe_says_how_and_when_a_reservation_was_released(tmp_path: Path) -> None:
    raw = reservation("unused", "1", "report", ttl="3h", allocateOnce=False)
    raw["metadata"] = {
        "name": "unused",
        "annotations": {"holdfast.io/release-if-unused-after": "5s"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    ended = {
        "type": "Ready",
        "status": "False",
        "reason": "Expired",
        "message": "reservation had no owner for 5s",
        "lastTransitionTime": "2026-01-01T00:00:05Z",
    }
    raw["status"] = {"phase": "Failed", "nodeName": "n1", "conditions": [ended]}
    stored = tmp_path / "cluster.json"
    stored.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [raw]}))
    text = call("describe", "reservation", "unused", "--snapshot", str(stored)).out
    assert "Ended:" in text and "2026-01-01T00:00:05Z (unused for 5s, released " in text
    assert "Expires:" not in text and "expired" not in text


def test_describe_shows_a_schedule_with_its_reservations(cluster: ServedCluster) -> None:
    text = cluster("describe", "schedule", "daily").out
    assert "Time Zone:           Europe/Zurich" in text
    assert "Before Start:        Backfill" in text
    assert "Reservations:        daily-" in text
    assert "created reservation daily-" in text
