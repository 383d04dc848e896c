"""`holdfast reserve` for reservations with a start and for schedules of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
import yaml

from harness.objects import Raw
from harness.served_cluster import Done, ServedCluster, call
from holdfast.api.times import format_time, parse_time
from holdfast.sim.scenario_objects import ScenarioObject

PLAIN = ["--cpu", "1", "--owner", "app=night"]
LATER = "2127-01-01T18:00:00+01:00"


def dry(*arguments: str) -> list[Raw]:
    done = call("reserve", *PLAIN, *arguments, "--dry-run")
    assert (done.status, done.err) == (0, "")
    made = list(yaml.safe_load_all(done.out))
    for raw in made:
        assert ScenarioObject(raw).errors == []
    return made


def test_a_reservation_with_a_start_has_every_annotation() -> None:
    given = ["--lead", "30m", "--before-start", "Preempt", "--at-end", "Evict", "--priority", "9"]
    (made,) = dry("--start", LATER, "--for", "4h", *given, "--release-if-unused-after", "10m")
    assert made["kind"] == "Reservation"
    assert made["metadata"]["annotations"] == {
        "holdfast.io/starts-at": LATER,
        "holdfast.io/lead": "30m",
        "holdfast.io/before-start": "Preempt",
        "holdfast.io/release-if-unused-after": "10m",
        "holdfast.io/at-end": "Evict",
    }
    assert made["spec"]["ttl"] == "4h"
    assert made["spec"]["allocateOnce"] is False  # or nothing is evicted at the end


@pytest.mark.parametrize(
    ("arguments", "warnings"),
    [
        (["--priority", "9", "--lead", "5m"], []),
        (["--lead", "5m"], ["without --priority evicts pods of any priority below 2000000000"]),
        (["--priority", "9"], ["without --lead evicts pods at the start"]),
        (["--priority", "9", "--lead", "0"], ["without --lead evicts pods at the start"]),
    ],
)
def test_preempt_says_which_pods_it_evicts_and_when(arguments: list[str], warnings: list[str]) -> None:
    for when in (["--start", LATER], ["--repeat", "@daily", "--for", "1h"]):
        done = call("reserve", *PLAIN, *when, "--before-start", "Preempt", *arguments, "--dry-run")
        lines = done.err.splitlines()
        assert (done.status, len(lines)) == (0, len(warnings))
        for line, warning in zip(lines, warnings, strict=True):
            assert line.startswith("warning: --before-start: Preempt") and warning in line


def test_a_start_may_be_relative_to_now() -> None:
    before = time.time()
    (made,) = dry("--start", "+2h")
    start = parse_time(made["metadata"]["annotations"]["holdfast.io/starts-at"])
    assert before - 1 <= start - 7200 <= time.time()
    assert "ttl" not in made["spec"]


def test_how_it_ends_needs_no_start() -> None:
    (made,) = dry("--at-end", "Evict", "--ttl", "1h")
    assert made["metadata"]["annotations"] == {"holdfast.io/at-end": "Evict"}
    (made,) = dry("--start", LATER, "--ttl", "1h")
    assert made["spec"]["ttl"] == "1h"


def test_a_repeated_reservation_is_a_schedule() -> None:
    given = ["--repeat", "0 18 * * 1-5", "--time-zone", "Europe/Zurich", "--for", "4h"]
    rest = ["--lead", "30m", "--before-start", "Drain", "--at-end", "Keep", "--priority", "7"]
    (made,) = dry(*given, *rest, "--release-if-unused-after", "1h", "--no-allocate-once")
    assert (made["kind"], made["metadata"]) == ("ReservationSchedule", {"name": "night"})
    template = made["spec"].pop("template")
    assert made["spec"] == {
        "schedule": "0 18 * * 1-5",
        "timeZone": "Europe/Zurich",
        "duration": "4h",
        "lead": "30m",
        "beforeStart": "Drain",
        "atEnd": "Keep",
        "releaseIfUnusedAfter": "1h",
    }
    assert template["metadata"] == {"labels": {"koordinator.sh/priority": "7"}}
    assert template["spec"] == {**dry("--no-allocate-once")[0]["spec"]}


def test_several_replicas_are_several_schedules() -> None:
    made = dry("--repeat", "@daily", "--for", "1h", "--replicas", "2")
    assert [raw["metadata"]["name"] for raw in made] == ["night-1", "night-2"]


def test_a_schedule_of_reservations_that_hold_devices_has_their_template() -> None:
    devices = ["--device-class", "gpu.example.com"]
    template, made = dry("--repeat", "@daily", "--for", "1h", *devices)
    (claim,) = made["spec"]["template"]["spec"]["template"]["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template["metadata"]["name"] == "night-devices"


@pytest.mark.parametrize(
    ("arguments", "err"),
    [
        (["--start", "tomorrow"], "--start: not a time: 'tomorrow'"),
        (["--start", "+2"], "--start: not a duration: '+2'"),
        (["--start", "+0"], "--start: must be in the future, got +0; it is "),
        (["--start", "2020-01-01T00:00:00Z"], "--start: must be in the future, got 2020-"),
        (["--start", LATER, "--repeat", "@daily", "--for", "1h"], "--start: cannot be given together"),
        (["--start", LATER, "--for", "0"], "--for: must be more than 0, got '0'"),
        (["--start", LATER, "--for", "four"], "--for: not a duration: 'four'"),
        (
            ["--start", LATER, "--for", "1h", "--ttl", "1h"],
            "--for: cannot be given together with --ttl",
        ),
        (
            ["--start", LATER, "--for", "1h", "--expires", "2128-01-01T00:00:00Z"],
            "--for: cannot be given together with --expires",
        ),
        (["--start", LATER, "--expires", "2127-01-01T17:00:00Z"], "--expires: spec.expires: "),
        (["--start", LATER, "--lead", "soon"], "--lead: metadata.annotations[holdfast.io/lead]: "),
        (["--start", LATER, "--lead", "-1h"], "--lead: metadata.annotations[holdfast.io/lead]: "),
        (["--start", LATER, "--time-zone", "UTC"], "--time-zone: needs --repeat"),
        (["--release-if-unused-after", "x"], "--release-if-unused-after: metadata.annotations["),
        (
            ["--at-end", "Evict", "--allocate-once"],
            "--at-end: Evict has no effect with --",
        ),
        (["--for", "1h"], "--for: needs --start or --repeat"),
        (["--lead", "1h"], "--lead: needs --start or --repeat"),
        (["--before-start", "Drain"], "--before-start: needs --start or --repeat"),
        (["--repeat", "@daily"], "--repeat: needs --for, how long each reservation lasts"),
        (["--repeat", "@daily", "--ttl", "1h"], "--repeat: needs --for"),
        (["--repeat", "often", "--for", "1h"], "--repeat: spec.schedule: "),
        (
            ["--repeat", "0 18 31 2 *", "--for", "1h"],
            "--repeat: '0 18 31 2 *' has no start within 5 years",
        ),
        (
            ["--repeat", "0 18 31 2 *", "--for", "1h", "--time-zone", "Europe/Zurich"],
            "--repeat: '0 18 31 2 *' has no start within 5 years",
        ),
        (
            ["--repeat", "@daily", "--for", "1h", "--time-zone", "Mars/A"],
            "--time-zone: spec.timeZone: ",
        ),
        (["--repeat", "@daily", "--for", "1h", "--lead", "x"], "--lead: spec.lead: "),
        (["--repeat", "@daily", "--for", "1h", "--label", "a b=c"], "--label: spec.template.metadata"),
        (["--repeat", "@daily", "--for", "1h", "--name", "A_"], "--name: metadata.name: "),
    ],
)
def test_errors_name_their_flag(arguments: list[str], err: str) -> None:
    done = call("reserve", *PLAIN, *arguments, "--dry-run")
    assert (done.status, done.out) == (1, "")
    assert err in done.err


def test_waiting_for_a_schedule_is_an_error() -> None:
    done = call("reserve", *PLAIN, "--repeat", "@daily", "--for", "1h", "--wait")
    assert "--wait: cannot be given together with --repeat" in done.err


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path_factory.mktemp("calendar")) as cluster:
        yield cluster


def scheduled(cluster: ServedCluster, *commands: list[Any]) -> list[Done]:
    """The commands, run one by one while the scheduler works."""
    done = Event()

    def schedule() -> None:
        while not done.is_set():
            cluster.settle()
            done.wait(0.02)

    with ThreadPoolExecutor() as pool:
        pool.submit(schedule)
        try:
            return [cluster(*command) for command in commands]
        finally:
            done.set()


def test_waiting_shows_the_planned_node_and_whether_it_is_feasible(cluster: ServedCluster) -> None:
    later = ["--start", LATER, "--for", "1h", "--wait"]
    large = ["--cpu", "99", "--owner", "app=night", "--name", "large", "--timeout", "500ms"]
    planned, refused = scheduled(cluster, ["reserve", *PLAIN, *later], ["reserve", *large, *later])
    assert (planned.status, planned.err) == (0, "owners: pods with app=night in namespace default\n")
    start = format_time(parse_time(LATER))
    line = f"reservation.scheduling.koordinator.sh/night planned: starts at {start} on node-"
    assert planned.lines[1].startswith(line)
    assert "; Feasible: True" in planned.lines[1]
    assert refused.status == 1
    assert "large: Pending after 500ms: " in refused.err


def test_a_schedule_is_created_and_makes_its_reservation(cluster: ServedCluster) -> None:
    made = cluster("reserve", *PLAIN, "--name", "daily", "--repeat", "0 18 * * *", "--for", "4h")
    assert made.out == "reservationschedule.scheduling.holdfast.io/daily created\n"
    again = cluster("reserve", *PLAIN, "--name", "daily", "--repeat", "@daily", "--for", "4h")
    assert '"daily" already exists' in again.err
    cluster.settle()
    names = cluster("get", "reservations", "-o", "name").lines
    assert [name for name in names if "/daily-" in name]


def test_all_errors_of_a_schedule_are_reported_at_once() -> None:
    wrong = ["--repeat", "0 25 * * *", "--time-zone", "Europe/Zurch", "--for", "4h", "--lead", "5x"]
    done = call("reserve", *PLAIN, *wrong, "--release-if-unused-after", "q", "--dry-run")
    assert done.status == 1
    flags = [line.split(": ")[1] for line in done.err.splitlines()]
    assert sorted(flags) == ["--lead", "--release-if-unused-after", "--repeat", "--time-zone"]
