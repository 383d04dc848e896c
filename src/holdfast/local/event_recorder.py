"""Records Kubernetes Events in the store, aggregating repeats into one Event with a count, and
expires them.
"""

from holdfast.api import names
from holdfast.api.events import last_observed
from holdfast.local.clock import ComponentTimers, LocalClock
from holdfast.local.component import ObjectWriter, Steps
from holdfast.local.store.objects import Key, Raw, StoreChange
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef

_REMEMBERED = 100_000
"""Of how many events it is known that they were said before."""


class EventRecorder:
    """`first` is the first number used in names of Events; a persistent cluster starts each process
    elsewhere.
    """

    def __init__(self, objects: ObjectWriter, clock: LocalClock, first: int = 0) -> None:
        self._objects = objects
        self._clock = clock
        self._known: dict[Emit, Key] = {}
        self._said: dict[Key, Emit] = {}
        """The same the other way round."""
        self._count = first

    def __len__(self) -> int:
        """Of how many events it is known that they were said."""
        return len(self._known)

    def forget(self, key: Key) -> None:
        """The object of an event is gone."""
        event = self._said.pop(key, None)
        if event is not None and self._known.get(event) == key:
            del self._known[event]

    def emit(self, event: Emit, component: str) -> None:
        now = self._clock.stamp()
        key = self._known.get(event)
        said = self._objects.get(key) if key is not None else None
        if key is not None and said is not None:
            self._objects.update(key, {**said, "count": said["count"] + 1, "lastTimestamp": now})
            return
        if len(self._known) >= _REMEMBERED:
            for oldest in list(self._known)[: _REMEMBERED // 2]:
                del self._said[self._known.pop(oldest)]
        stored = self._objects.create(self._new(event, component, now))
        metadata = stored["metadata"]
        key = self._known[event] = Key("", "Event", metadata["namespace"], metadata["name"])
        self._said[key] = event

    def _new(self, event: Emit, component: str, now: str) -> Raw:
        self._count += 1
        about = event.about
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name}.{self._count:016x}",
                "namespace": about.namespace or names.DEFAULT_NAMESPACE,
            },
            "involvedObject": self._involved(about),
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "action": event.action,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": component},
            "reportingComponent": component,
        }

    def _involved(self, about: ObjectRef) -> Raw:
        """With the version the object has now, as client-go refers to objects."""
        involved = about.reference()
        group = involved.get("apiVersion", "").rpartition("/")[0]
        raw = self._objects.get(Key(group, about.kind, about.namespace, about.name))
        if raw is not None and raw["metadata"]["uid"] == about.uid:
            involved["resourceVersion"] = raw["metadata"]["resourceVersion"]
        return involved


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
