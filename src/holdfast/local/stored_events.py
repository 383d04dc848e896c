"""Events in the store: written as they are recorded, and deleted after an hour."""

from holdfast.api.events import last_observed
from holdfast.local.clock import ComponentTimers, LocalClock
from holdfast.local.component import ObjectWriter, Steps
from holdfast.local.store.objects import Key, Raw, StoreChange
from holdfast.machinery.patch.json_patch import merge_patch
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef
from holdfast.scheduler.event_recorder import CoreEvents, EventRecorder

_REMEMBERED = 100_000


class StoredEvents:
    """Stores the events of the scheduler and of all components."""

    def __init__(self, objects: ObjectWriter, clock: LocalClock) -> None:
        self._objects = objects
        self._clock = clock
        self._recorder = EventRecorder(CoreEvents(), self._version, _REMEMBERED)

    def __len__(self) -> int:
        """The number of events whose repeats are counted."""
        return len(self._recorder)

    def emit(self, event: Emit, component: str) -> None:
        while True:
            write = self._recorder.record(event, component, self._clock.epoch())
            if write is None:
                return
            key = Key("", "Event", write.namespace, write.name)
            stored = self._objects.get(key)
            if write.is_new == (stored is None):
                break
            # The name is taken, by an Event of an earlier process whose clock was ahead; or the Event
            # to be counted is gone. The next attempt is a new Event of another name.
            self.forget(key)
        if stored is None:
            self._objects.create(write.body)
        else:
            self._objects.update(key, merge_patch(stored, write.body))

    def forget(self, key: Key) -> None:
        """An Event was deleted."""
        self._recorder.forget(key.namespace, key.name)

    def _version(self, about: ObjectRef) -> str:
        group = about.reference().get("apiVersion", "").rpartition("/")[0]
        raw = self._objects.get(Key(group, about.kind, about.namespace, about.name))
        if raw is None or raw["metadata"]["uid"] != about.uid:
            return ""
        return str(raw["metadata"]["resourceVersion"])


KEPT = 3600.0
MOST = 50_000
_TICK = 60.0


class EventExpiry:
    """Deletes Events after an hour, as an API server does, and the oldest ones over a maximum
    number.
    """

    def __init__(self, objects: ObjectWriter, clock: LocalClock, timers: ComponentTimers) -> None:
        self._objects = objects
        self._clock = clock
        self._timers = timers
        self._counted = objects.store.count("", "Event")
        self._too_old: list[Key] = []
        timers.add(clock.t + _TICK, self._tick)

    def changed(self, change: StoreChange) -> None:
        if change.key.kind == "Event":
            self._counted += (change.after is not None) - (change.before is not None)

    def settle(self) -> Steps:
        """A fifth at a time: each time all have to be looked at."""
        if self._counted > MOST:
            oldest = sorted(self._objects.scan("", "Event"), key=last_observed)
            self._too_old += map(_key, oldest[: self._counted - MOST + MOST // 5])
        too_old, self._too_old = self._too_old, []
        for key in too_old:
            if key in self._objects:
                self._objects.delete(key)
                yield None

    def _tick(self) -> None:
        self._timers.add(self._clock.t + _TICK, self._tick)
        too_old = self._clock.stamp(after=-KEPT)
        self._too_old += [
            _key(e) for e in self._objects.scan("", "Event") if last_observed(e) < too_old
        ]


def _key(event: Raw) -> Key:
    return Key("", "Event", event["metadata"]["namespace"], event["metadata"]["name"])
