"""Segments of a recording: what is written is read, also after a crash; the size is bounded."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.recording.recorder import RecordedState
from holdfast.recording.segments import (
    DELETED,
    Recording,
    RecordingError,
    SegmentWriter,
    segment_files,
)
from holdfast.snapshot.stripping import Stripper

Raw = dict[str, Any]


def node(name: str, cpu: str = "4", **metadata: Any) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", **metadata},
        "status": {"allocatable": {"cpu": cpu}},
    }


_writers: list[SegmentWriter] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    for writer in _writers:
        writer.close()
    _writers.clear()


def recorded(folder: Path, max_size: int = 1 << 20) -> RecordedState:
    writer = SegmentWriter(folder, max_size)
    _writers.append(writer)
    return RecordedState(writer, Stripper())


def read(folder: Path) -> list[tuple[float, str, str]]:
    return [
        (change.t, change.type, change.raw["metadata"]["name"])
        for change in Recording(folder).changes()
    ]


def test_only_its_user_may_read_a_recording(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    recorded(folder).begin(10.0)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {"new": 0o700, ".lock": 0o600, "000001.jsonl.gz": 0o600}


def test_the_state_and_its_changes_are_read_in_order(tmp_path: Path) -> None:
    state = recorded(tmp_path)
    state.note(node("a"), exists=True)
    state.begin(10.0)
    state.put(11.0, node("b"))
    state.put(12.0, node("a", cpu="8"))
    state.drop(13.0, node("b"))
    state.end(14.0)
    state.sync()
    assert read(tmp_path) == [
        (10.0, "ADDED", "a"),
        (11.0, "ADDED", "b"),
        (12.0, "MODIFIED", "a"),
        (13.0, "DELETED", "b"),
    ]
    recording = Recording(tmp_path)
    list(recording.changes())
    assert (recording.begin, recording.end, recording.notes) == (10.0, 14.0, [])


def test_what_is_not_recorded_is_no_change(tmp_path: Path) -> None:
    state = recorded(tmp_path)
    state.begin(0.0)
    state.put(1.0, node("a", resourceVersion="1"))
    beat = node("a", resourceVersion="2", managedFields=[{}])
    state.put(2.0, beat)
    for t, text in ((3.0, "10:00"), (4.0, "10:01")):
        conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": text}]
        state.put(t, {**node("a"), "status": {"allocatable": {"cpu": "4"}, "conditions": conditions}})
    state.sync()
    assert [t for t, _, _ in read(tmp_path)] == [1.0, 3.0]


def test_the_messages_of_a_pod_that_waits_are_not_recorded(tmp_path: Path) -> None:
    state = recorded(tmp_path)
    state.begin(0.0)
    times = {1.0: ("False", "0/5 nodes"), 2.0: ("False", "0/4 nodes"), 3.0: ("True", "")}
    for t, (status, text) in times.items():
        condition = {"type": "PodScheduled", "status": status, "message": text, "lastProbeTime": str(t)}
        metadata = {"name": "p", "uid": "p"}
        conditions = {"conditions": [condition]}
        state.put(t, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": conditions})
    state.sync()
    assert [t for t, _, _ in read(tmp_path)] == [1.0, 3.0]


def test_nothing_private_is_written(tmp_path: Path) -> None:
    state = recorded(tmp_path)
    state.begin(0.0)
    container = {
        "name": "c",
        "image": "app",
        "command": ["sh", "-c", "hunter2"],
        "env": [{"name": "TOKEN", "value": "hunter2"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "p", "annotations": {"note": "hunter2"}},
        "spec": {"containers": [container]},
    }
    state.put(1.0, pod)
    state.sync()
    (change,) = Recording(tmp_path).changes()
    assert "hunter2" not in str(change.raw)


def test_an_object_recreated_under_its_name_is_another(tmp_path: Path) -> None:
    state = recorded(tmp_path)
    state.begin(0.0)
    state.put(1.0, node("a"))
    state.put(2.0, node("a") | {"metadata": {"name": "a", "uid": "another"}})
    state.sync()
    assert [each[1] for each in read(tmp_path)] == ["ADDED", "DELETED", "ADDED"]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_end_costs_the_last_lines_only(tmp_path: Path, cut: int) -> None:
    state = recorded(tmp_path)
    state.begin(0.0)
    for i in range(50):
        state.put(float(i), node(f"n{i}"))
    state.sync()
    whole = read(tmp_path)
    (file,) = segment_files(tmp_path)
    file.write_bytes(file.read_bytes()[:-cut])
    rest = read(tmp_path)
    assert rest == whole[: len(rest)] and len(rest) >= len(whole) - 5


def test_damage_in_the_middle_is_noted_and_the_next_segment_goes_on(tmp_path: Path) -> None:
    state = recorded(tmp_path)
    state.begin(0.0)
    for i in range(50):
        state.put(float(i), node(f"n{i}"))
    state.begin(60.0)
    state.put(61.0, node("last"))
    state.sync()
    first, _ = segment_files(tmp_path)
    data = bytearray(first.read_bytes())
    data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
    first.write_bytes(bytes(data))
    recording = Recording(tmp_path)
    names = [change.raw["metadata"]["name"] for change in recording.changes()]
    assert names[-1] == "last"
    assert {f"n{i}" for i in range(50)} <= set(names), "the state of the second segment has them"
    assert any("damaged" in note for note in recording.notes)
    assert recording.gaps


def test_the_oldest_segments_are_deleted_to_stay_within_the_size(tmp_path: Path) -> None:
    most = 64 * 1024
    state = recorded(tmp_path, most)
    state.begin(0.0)
    for i in range(4000):
        label = random.Random(i).randbytes(30).hex()
        state.put(float(i), node(f"n{i % 10}", cpu=str(i), labels={"x": label}))
    state.sync()
    assert sum(each.stat().st_size for each in segment_files(tmp_path)) <= most * 1.1
    assert int(segment_files(tmp_path)[0].name[:6]) > 1
    recording = Recording(tmp_path)
    last = {each.raw["metadata"]["name"]: each.raw for each in recording.changes()}
    assert last["n9"]["status"]["allocatable"]["cpu"] == "3999"
    assert recording.gaps == [], "segments that follow each other leave no gap"


def test_a_state_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    state = recorded(tmp_path, 4096)
    for i in range(2000):
        state.note(node(f"n{i}", labels={"x": f"{i * 7919 % 100003}"}), exists=True)
    with pytest.raises(RecordingError, match="--max-size"):
        state.begin(0.0)


def test_a_recording_is_continued_with_a_gap(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, 1 << 20)
    state = RecordedState(writer, Stripper())
    state.begin(0.0)
    state.put(1.0, node("a"))
    state.end(2.0)
    writer.close()
    again = recorded(tmp_path)
    again.note(node("b"), exists=True)
    again.begin(100.0)
    again.sync()
    assert read(tmp_path) == [
        (1.0, "ADDED", "a"),
        (100.0, DELETED, "a"),
        (100.0, "ADDED", "b"),
    ]
    recording = Recording(tmp_path)
    list(recording.changes())
    assert recording.gaps == [(2.0, 100.0, "")]


def test_two_recorders_do_not_share_a_folder(tmp_path: Path) -> None:
    first = SegmentWriter(tmp_path, 1 << 20)
    with pytest.raises(RecordingError, match="another process"):
        SegmentWriter(tmp_path, 1 << 20)
    first.close()
    SegmentWriter(tmp_path, 1 << 20).close()


def test_an_empty_folder_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no recording"):
        Recording(tmp_path)
