"""The timeline of a run: what happened to objects, in order."""

import msgspec

from holdfast.local.store.objects import Key
from holdfast.sim.clock import VirtualClock


class TimelineEntry(msgspec.Struct, frozen=True):
    """One entry. Fields that do not apply are empty, never omitted."""

    t: float
    object: str
    event: str
    node: str = ""
    reservation: str = ""
    message: str = ""


class Timeline:
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.entries: list[TimelineEntry] = []

    def record(
        self, key: Key, event: str, *, node: str = "", reservation: str = "", message: str = ""
    ) -> None:
        self.entries.append(TimelineEntry(self._clock.t, str(key), event, node, reservation, message))
