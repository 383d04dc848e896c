"""Replays of recorded simulations: the same configuration gives what happened, another does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.served_cluster import call
from holdfast.local.setup import SchedulerFactory
from holdfast.local.timeline import BOUND, PREEMPTED
from holdfast.recording.lives import ObjectLife, RecordedLives, read_lives
from holdfast.recording.recorder import RecordedState
from holdfast.recording.segments import Recording, SegmentWriter
from holdfast.sim.replay.as_recorded import RecordedRun
from holdfast.sim.replay.replay import Replay
from holdfast.sim.simulation import Result
from holdfast.snapshot.stripping import Stripper
from sim.forecast.cluster_dump import NOON, ended, node, owned, pod
from sim.replay.day import day_objects
from sim.replay.recorded_simulation import record_simulation

Raw = dict[str, Any]

AT, RUNS_FOR, DELETE_AT = (f"sim.holdfast.io/{each}" for each in ("at", "runs-for", "delete-at"))


def timed(raw: Raw, **times: str) -> Raw:
    annotations = {
        {"at": AT, "runs_for": RUNS_FOR, "delete_at": DELETE_AT}[key]: value
        for key, value in times.items()
    }
    raw["metadata"].setdefault("annotations", {}).update(annotations)
    return raw


def lives(objects: list[Raw], folder: Path, until: float = 3600.0, begin: float = 0.0) -> RecordedLives:
    record_simulation(objects, folder, until, begin=begin)
    return read_lives(Recording(folder))


def replayed(recorded: RecordedLives, config: Raw | None = None) -> Result:
    return Replay(recorded, SchedulerFactory.of(config), "x", audit=True).run()


def starts(result: Result) -> dict[str, float]:
    return {each.object: each.t for each in result.timeline if each.event == BOUND}


def test_pods_run_as_long_as_they_did_from_their_new_start(tmp_path: Path) -> None:
    objects = [
        node(),
        timed(pod("a"), at="10s", runs_for="600s"),
        timed(pod("b"), at="20s", runs_for="300s"),
        timed(pod("c"), at="30s", runs_for="300s"),
    ]
    recorded = lives(objects, tmp_path)
    expected = {"Pod/default/a": 10.0, "Pod/default/b": 610.0, "Pod/default/c": 910.0}
    assert starts(RecordedRun(recorded).result()) == expected
    result = replayed(recorded)
    assert starts(result) == expected
    ends = {each.object: each.t for each in result.timeline if each.event == "Succeeded"}
    assert ends == {"Pod/default/a": 610.0, "Pod/default/b": 910.0, "Pod/default/c": 1210.0}


@pytest.mark.parametrize("begin", [0.0, 20000.0])
def test_the_same_configuration_replays_what_happened(tmp_path: Path, begin: float) -> None:
    objects = [raw for raw in day_objects(6, 150) if (raw.get("spec") or {}).get("priority", 0) == 0]
    recorded = lives(objects, tmp_path, 86400.0, begin)
    was, now = RecordedRun(recorded).result(), replayed(recorded)
    assert starts(now).items() >= starts(was).items()
    assert was.waits and sorted(was.waits) == sorted(now.waits)[-len(was.waits) :]
    for name, shares in was.summary["utilisation"].items():
        assert now.summary["utilisation"][name]["mean"] == pytest.approx(shares["mean"], abs=0.001)


EXAMPLES = Path(__file__).parents[3] / "examples"
REMADE = [
    "dra/preemption",
    "dra/reservation-preemption",
    "dynamic-reservations/another-provisioner",
    "pod-groups/disruption",
    "reservations/migration",
    "reservations/preemption",
    "scheduling/node-lifecycle",
]


@pytest.mark.parametrize("name", REMADE)
def test_what_the_scheduler_made_is_made_once_in_a_replay(tmp_path: Path, name: str) -> None:
    """Its holds, the reservations of migrations and the claims of both are not played as if users had
    created them."""
    objects: list[Raw] = []
    for raw in yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()):
        if raw and raw["kind"] not in ("Expect", "KubeSchedulerConfiguration"):
            objects += raw["items"] if raw["kind"] == "List" else [raw]
    was = record_simulation(objects, tmp_path, 3600.0)
    now = replayed(read_lives(Recording(tmp_path)))
    kinds = [run.summary["reservations"]["kinds"] for run in (was, now)]
    assert [{kind: each["created"] for kind, each in found.items()} for found in kinds] == [
        {kind: each["created"] for kind, each in kinds[0].items()}
    ] * 2
    assert starts(now) == starts(was)


def test_another_configuration_places_pods_elsewhere(tmp_path: Path) -> None:
    objects = [node("n1"), node("n2"), *(timed(pod(f"p{i}", 1), at=f"{i}s") for i in range(4))]
    recorded = lives(objects, tmp_path)
    fit = {
        "name": "NodeResourcesFit",
        "args": {
            "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
        },
    }
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [fit]}],
    }

    def nodes(result: Result) -> set[str]:
        return {each.node for each in result.timeline if each.event == BOUND}

    assert nodes(RecordedRun(recorded).result()) == {"n1", "n2"}
    assert len(nodes(replayed(recorded, config))) == 1


def test_pods_that_were_unschedulable_at_the_end_are_counted(tmp_path: Path) -> None:
    recorded = lives([node(), timed(pod("a"), at="10s"), timed(pod("b"), at="20s")], tmp_path)
    counted = RecordedRun(recorded).result().summary["pods"]
    assert (counted["pending"], counted["unschedulable"]) == (1, 1)


def test_pods_deleted_before_they_started_are_deleted_again(tmp_path: Path) -> None:
    objects = [
        node(),
        timed(pod("a"), at="0s"),
        timed(pod("impatient"), at="10s", delete_at="100s"),
        timed(pod("b", 1), at="20s"),
    ]
    result = replayed(lives(objects, tmp_path))
    deleted = [each for each in result.timeline if each.event == "Deleted"]
    assert [(each.t, each.object) for each in deleted] == [(100.0, "Pod/default/impatient")]


def test_pods_of_services_are_deleted_when_they_were(tmp_path: Path) -> None:
    objects = [
        node(),
        timed(pod("a"), at="0s", runs_for="600s"),
        timed(owned(pod("web"), "ReplicaSet", "web"), at="10s", delete_at="1000s"),
        timed(pod("b"), at="20s"),
    ]
    result = replayed(lives(objects, tmp_path))
    assert starts(result)["Pod/default/web"] == 600.0
    assert starts(result)["Pod/default/b"] == 1000.0


def test_pods_that_ran_at_the_beginning_end_when_they_did(tmp_path: Path) -> None:
    objects = [
        node(),
        timed(pod("a"), at="0s", runs_for="1000s"),
        timed(pod("b"), at="900s", runs_for="100s"),
    ]
    recorded = lives(objects, tmp_path, begin=500.0)
    result = replayed(recorded)
    assert recorded.end == 3100.0
    assert starts(result) == {"Pod/default/b": 500.0}
    assert result.waits == [100.0]


def test_nodes_come_change_and_go_when_they_did(tmp_path: Path) -> None:
    cordon = {
        "apiVersion": "sim.holdfast.io/v1alpha1",
        "kind": "Step",
        "at": "50s",
        "patch": {"kind": "Node", "name": "n1", "merge": {"spec": {"unschedulable": True}}},
    }
    objects = [
        node("n1"),
        timed(node("n2"), at="300s", delete_at="900s"),
        cordon,
        timed(pod("a"), at="100s"),
    ]
    result = replayed(lives(objects, tmp_path))
    assert starts(result) == {"Pod/default/a": 300.0}
    assert any(each.event == "Deleted" and each.t == 900.0 for each in result.timeline)
    assert result.summary["nodes"]["total"] == 1


def test_controllers_create_no_pods(tmp_path: Path) -> None:
    template = {"spec": {"restartPolicy": "Never", **pod("x", 1)["spec"]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"template": template, "completions": 3, "parallelism": 1},
    }
    recorded = lives([node(), job], tmp_path)
    assert len(recorded.pods) == 1
    assert replayed(recorded).summary["pods"]["created"] == 1


def test_a_victim_with_a_controller_comes_again(tmp_path: Path) -> None:
    low = timed(owned(pod("low"), "Job", "low"), at="0s", runs_for="300s")
    high = timed(pod("high", priority=100), at="100s", runs_for="50s")
    recorded = lives([node("n1"), node("n2"), low, high], tmp_path)
    assert not [each for each in replayed(recorded).timeline if each.event == PREEMPTED]
    recorded.objects = [each for each in recorded.objects if _name(each.versions[0][1]) != "n2"]
    for life in recorded.pods:
        if life.first["metadata"]["name"] == "low":
            assert life.run_time == 300.0
    run = Replay(recorded, SchedulerFactory.of(), "x", audit=True)
    result = run.run()
    assert run.replaced == 1
    assert starts(result)["Pod/default/low-again-1"] == 150.0
    assert any(each.object.endswith("low-again-1") and each.t == 450.0 for each in result.timeline)


def test_a_victim_and_its_successor_are_one_piece_of_work(tmp_path: Path) -> None:
    low = timed(owned(pod("low"), "Job", "low"), at="0s", runs_for="300s")
    high = timed(pod("high", priority=100), at="100s", runs_for="50s")
    again = timed(owned(pod("low-2"), "Job", "low"), at="101s", runs_for="300s")
    recorded = lives([node("n1"), low, high, again], tmp_path)
    was = RecordedRun(recorded).result()
    assert was.summary["evictions"]["preempted"] == 1
    result = replayed(recorded)
    assert result.summary["evictions"]["preempted"] == 1, "the victim does not end just in time"
    assert starts(result)["Pod/default/low-again-1"] == 150.0
    assert "Pod/default/low-2" not in starts(result)


def _name(raw: Raw) -> str:
    return str(raw["metadata"]["name"])


def test_pods_of_other_schedulers_keep_their_nodes(tmp_path: Path) -> None:
    recorded = lives([node("n1"), node("n2"), timed(pod("a"), at="10s", runs_for="60s")], tmp_path)
    recorded.pods[0].first["spec"]["schedulerName"] = "volcano"
    recorded.pods[0].node = "n2"
    result = replayed(recorded)
    assert starts(result) == {}
    created = [each for each in result.timeline if each.object == "Pod/default/a"]
    assert (created[0].t, created[0].node) == (10.0, "n2")


@pytest.mark.parametrize("says_when", [True, False])
def test_a_pod_that_starts_and_ends_in_a_gap_is_over_after_it(tmp_path: Path, says_when: bool) -> None:
    before, after = pod("a"), ended(pod("a"), "2026-01-01T12:00:20Z", "2026-01-01T12:00:50Z")
    for each in (before, after):
        each["metadata"]["uid"] = "a"
    if not says_when:
        after["status"] = {"phase": "Succeeded"}
    for t, raw in ((NOON, before), (NOON + 60, after)):
        writer = SegmentWriter(tmp_path, 1 << 20)
        state = RecordedState(writer, Stripper())
        state.note(node(), exists=True)
        state.note(raw, exists=True)
        state.begin(t)
        writer.close()
    recorded = read_lives(Recording(tmp_path))
    result = RecordedRun(recorded).result()
    (there,) = (raw for raw in result.objects if raw["kind"] == "Pod")
    assert there["status"]["phase"] == "Succeeded"
    assert [(each.t, each.event) for each in result.timeline if each.object == "Pod/default/a"] == [
        (0.0, "Created"),
        (20.0 if says_when else 60.0, "Bound"),
        (50.0 if says_when else 60.0, "Succeeded"),
    ]


def cascade(folder: Path, kind: str, apart: float) -> RecordedLives:
    """Six pods of one owner, of which the scheduler bound the first 30 ms after their creation, and
    which are deleted one after another from 20 s on, the one that runs first."""
    writer = SegmentWriter(folder, 1 << 20)
    state = RecordedState(writer, Stripper())
    state.note(node(), exists=True)
    state.begin(NOON)
    pods = [owned(pod(f"p{i}"), kind, "owner") for i in range(6)]
    for i, each in enumerate(pods):
        each["metadata"]["uid"] = f"uid-{i}"
        state.put(NOON + 10, each)
    bound = {**pods[0], "spec": {**pods[0]["spec"], "nodeName": "n1"}}
    state.put(NOON + 10.03, bound)
    for i, each in enumerate([bound, *pods[1:]]):
        state.drop(NOON + 20 + i * apart, each)
    state.end(NOON + 60)
    writer.close()
    return read_lives(Recording(folder))


@pytest.mark.parametrize("apart", [0.0002, 0.05, 0.9])
@pytest.mark.parametrize("kind", ["ReplicaSet", "Job"])
def test_the_deletion_of_an_owner_lets_no_pending_sibling_in(
    tmp_path: Path, kind: str, apart: float
) -> None:
    recorded = cascade(tmp_path, kind, apart)
    assert [*starts(RecordedRun(recorded).result())] == ["Pod/default/p0"]
    assert starts(replayed(recorded)) == {"Pod/default/p0": 10.0}


def test_pods_of_one_owner_that_are_deleted_one_by_one_are_let_in_again(tmp_path: Path) -> None:
    recorded = cascade(tmp_path, "ReplicaSet", 5.0)
    assert [*starts(replayed(recorded))] == [f"Pod/default/p{i}" for i in range(6)]


@pytest.mark.parametrize(
    "option", [("--start", "x"), ("--jobs-run-for", "x"), ("--start", "2026-01-01")]
)
def test_options_that_a_replay_has_no_use_for_are_refused(
    tmp_path: Path, option: tuple[str, str]
) -> None:
    record_simulation([node()], tmp_path, 60.0)
    done = call("simulate", str(tmp_path), *option)
    assert done.status == 1
    assert done.err.startswith(f"error: {option[0]} is not for recordings: ")


def test_the_command_compares_configurations_with_what_happened(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    record_simulation([node(), timed(pod("a"), at="10s"), timed(pod("b"), at="20s")], folder, 600.0)
    config = tmp_path / "a.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    done = call("simulate", str(folder), "--config", str(config))
    assert done.status == 0, done.err
    assert "as recorded" in done.out and "pods pending" in done.out
    data = json.loads(call("simulate", str(folder), "-o", "json").out)
    assert [each["config"] for each in data["runs"]] == ["as recorded", "default"]
    more = call("simulate", str(folder), str(config))
    assert more.status == 1 and "replayed without" in more.err


def test_schedules_create_no_reservations_since_these_were_recorded(tmp_path: Path) -> None:
    schedule = {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 1 * * *", "duration": "1h", "template": {"spec": {}}},
    }
    recorded = lives([node()], tmp_path)
    recorded.objects.append(ObjectLife([(0.0, schedule)], was_there=True))
    assert "ReservationSchedule" not in replayed(recorded).summary["objects"]
