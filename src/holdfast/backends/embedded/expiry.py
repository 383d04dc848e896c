"""Events are kept for an hour, as an API server keeps them, and no more than so many."""

from holdfast.api.events import last_said
from holdfast.backends.embedded.agenda import Agenda
from holdfast.backends.embedded.clock import Clock
from holdfast.backends.embedded.objects import Objects
from holdfast.backends.embedded.resident import Steps
from holdfast.store.objects import Change, Key, Raw

KEPT = 3600.0
MOST = 50_000
_TICK = 60.0


class EventExpiry:
    def __init__(self, objects: Objects, clock: Clock, agenda: Agenda) -> None:
        self._objects = objects
        self._clock = clock
        self._agenda = agenda
        self._counted = objects.store.count("", "Event")
        self._too_old: list[Key] = []
        agenda.add(clock.t + _TICK, self._tick)

    def changed(self, change: Change) -> None:
        if change.key.kind == "Event":
            self._counted += (change.after is not None) - (change.before is not None)

    def settle(self) -> Steps:
        """A fifth at a time: each time all have to be looked at."""
        if self._counted > MOST:
            oldest = sorted(self._objects.scan("", "Event"), key=last_said)
            self._too_old += map(_key, oldest[: self._counted - MOST + MOST // 5])
        too_old, self._too_old = self._too_old, []
        for key in too_old:
            if key in self._objects:
                self._objects.delete(key)
                yield None

    def _tick(self) -> None:
        self._agenda.add(self._clock.t + _TICK, self._tick)
        too_old = self._clock.stamp(after=-KEPT)
        self._too_old += [_key(e) for e in self._objects.scan("", "Event") if last_said(e) < too_old]


def _key(event: Raw) -> Key:
    return Key("", "Event", event["metadata"]["namespace"], event["metadata"]["name"])
