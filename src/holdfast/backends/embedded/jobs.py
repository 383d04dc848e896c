"""Carries out what was decided of jobs, and of the reservations the scheduler makes for them."""

import msgspec

from holdfast.actions.reserve import RESERVED, STARVING
from holdfast.backends.embedded.reservations import reservation_key
from holdfast.backends.embedded.world import World
from holdfast.core.decisions import (
    AnnotateReservation,
    Emit,
    SetPodGroupStatus,
    SetQueueStatus,
)
from holdfast.framework.gangs import READY
from holdfast.store.objects import Key

_OF_JOBS = (STARVING, RESERVED, READY)


class JobHands:
    def __init__(self, world: World) -> None:
        self._world = world
        self._objects = world.objects

    def annotate(self, decision: AnnotateReservation) -> None:
        ref = decision.reservation
        raw = self._objects.get(reservation_key(ref.name))
        if raw is None or raw["metadata"]["uid"] != ref.uid:
            return
        metadata = raw["metadata"]
        before, said = metadata.get("annotations") or {}, decision.annotations
        kept = {key: value for key, value in before.items() if key not in said}
        annotations = kept | {key: value for key, value in said.items() if value}
        self._objects.update(
            reservation_key(ref.name), {**raw, "metadata": {**metadata, "annotations": annotations}}
        )

    def set_group_status(self, decision: SetPodGroupStatus) -> None:
        ref = decision.group
        key = Key(decision.api_version.partition("/")[0], "PodGroup", ref.namespace, ref.name)
        self._set_status(key, ref.uid, decision.status)

    def set_queue_status(self, decision: SetQueueStatus) -> None:
        key = Key(decision.api_version.partition("/")[0], "Queue", "", decision.queue.name)
        self._set_status(key, decision.queue.uid, decision.status)

    def tell(self, decision: Emit) -> None:
        """What happens to a job is part of the record."""
        if decision.reason in _OF_JOBS and decision.about.kind in ("PodGroup", "Pod"):
            about = decision.about
            key = Key("", about.kind, about.namespace, about.name)
            self._world.tell(key, decision.reason, message=decision.message)

    def _set_status(self, key: Key, uid: str, status: msgspec.Struct) -> None:
        raw = self._objects.get(key)
        if raw is not None and raw["metadata"]["uid"] == uid:
            self._objects.update(key, {**raw, "status": msgspec.to_builtins(status)})
