"""Events in both encodings: what is written of the first occurrence and of repeats."""

import pytest

from holdfast.scheduler.cluster.decisions import Emit, ObjectRef
from holdfast.scheduler.event_recorder import (
    SERIES_ENDS,
    CoreEvents,
    EventEncoding,
    EventRecorder,
    SeriesEvents,
)

POD = ObjectRef("Pod", "team", "p", "u1")
WARNING = Emit(POD, "Warning", "FailedScheduling", "no capacity", "Scheduling")
START = 1_767_225_600.5


def recorder(encoding: EventEncoding, limit: int = 10) -> EventRecorder:
    return EventRecorder(encoding, lambda ref: "7", limit)


def test_a_core_event_is_counted_with_each_repeat() -> None:
    it = recorder(CoreEvents())
    first = it.record(WARNING, "s", START)
    assert first is not None and first.is_new
    assert first.body["involvedObject"]["resourceVersion"] == "7"
    assert (first.body["count"], first.body["lastTimestamp"]) == (1, "2026-01-01T00:00:00Z")
    for count in (2, 3):
        again = it.record(WARNING, "s", START + count)
        assert again is not None and not again.is_new
        assert again[:2] == first[:2]
        assert again.body == {"count": count, "lastTimestamp": f"2026-01-01T00:00:0{count}Z"}


def test_a_series_is_written_at_its_first_repeat_and_at_its_end() -> None:
    it = recorder(SeriesEvents("host"))
    first = it.record(WARNING, "s", START)
    assert first is not None and first.body["eventTime"] == "2026-01-01T00:00:00.500000Z"
    again = it.record(WARNING, "s", START + 1)
    assert again is not None and again.body["series"]["count"] == 2
    assert it.record(WARNING, "s", START + 2) is None
    assert it.ended(START + 2) == []
    (last,) = it.ended(START + 2 + SERIES_ENDS)
    assert last.body == {"series": {"count": 3, "lastObservedTime": "2026-01-01T00:00:02.500000Z"}}
    assert len(it) == 0


def test_normal_events_are_no_series() -> None:
    normal = Emit(POD, "Normal", "Scheduled", "assigned")
    it = recorder(SeriesEvents("host"))
    writes = [it.record(normal, "s", START) for _ in range(2)]
    assert all(write is not None and write.is_new for write in writes)


@pytest.mark.parametrize("encoding", [CoreEvents(), SeriesEvents("host")])
def test_an_event_that_is_deleted_or_forgotten_is_written_anew(encoding: EventEncoding) -> None:
    it = recorder(encoding, limit=2)
    first = it.record(WARNING, "s", START)
    assert first is not None
    it.forget(first.namespace, first.name)
    second = it.record(WARNING, "s", START)
    assert second is not None and second.is_new and second.name != first.name
    for number in range(2):
        it.record(Emit(POD, "Warning", "Other", str(number)), "s", START)
    third = it.record(WARNING, "s", START)
    assert third is not None and third.is_new
    assert len(it) == 2


def test_names_are_as_long_as_names_may_be() -> None:
    long = Emit(ObjectRef("Pod", "team", "p" * 253, "u"), "Normal", "Scheduled", "assigned")
    write = recorder(CoreEvents()).record(long, "s", START)
    assert write is not None and len(write.name) == 253
