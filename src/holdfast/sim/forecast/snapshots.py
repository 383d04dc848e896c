"""The forecast of `when` for explanations: one future of one object, on clusters of
some size.

It is played once per object that is asked about, and only if waiting may help: about 0.1 s of CPU time
on a small cluster. Where the ends of pods that CronJobs create later are only assumed, it is played
again with pods that do not end: a wait for an end that is not known is not advised. Where it takes
longer than a user waits, nothing is known: by the numbers of nodes and pods, and of the reservations
and pods that ReservationSchedules and CronJobs create.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.api.documents import Document
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import RESERVATION_API
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.reservations.hold_objects import HELD_FOR_PREFIX
from holdfast.sim.forecast.forecast import Forecaster, ForecastOptions
from holdfast.sim.forecast.targets import ALIASES, NoSuchTarget, find_targets
from holdfast.sim.simulated_cluster import InvariantBroken
from holdfast.snapshot.cluster_snapshot import NODE, POD, ClusterSnapshot, ForecastStart
from holdfast.snapshot.manifests import InvalidInput

Raw = dict[str, Any]

_MOST_NODES = 500
_MOST_PODS = 3000
_OCCURRENCES = 100
_TOLERANCE = 60.0
"""How many seconds before the start the last pod or reservation ended for which an object waited: the
scheduler tries it again after a back-off, and a gang in turn."""
_RESERVATION = KINDS[RESERVATION_API, "Reservation"]


class SnapshotForecast:
    """Asks for starts of objects of a snapshot as it is now, whatever is changed in it later."""

    def __init__(
        self, snapshot: ClusterSnapshot, setup: SchedulerFactory, workloads: Iterable[Raw] = ()
    ) -> None:
        """`workloads` are objects that the snapshot lacks because the scheduler does not read them."""
        self._now = snapshot.now
        self._setup = setup
        pods = snapshot.objects.get((POD.api_version, POD.kind), {})
        self._objects = [raw for of_kind in snapshot.objects.values() for raw in of_kind.values()]
        self._objects += [raw for name, raw in snapshot.ended_pods.items() if name not in pods]
        known = {id(raw) for raw in self._objects}
        self._objects += [raw for raw in workloads if id(raw) not in known]
        self._is_small = len(snapshot.all(NODE)) <= _MOST_NODES and len(snapshot.all(POD)) <= _MOST_PODS
        self._known: dict[tuple[str, str, str], ForecastStart | None] = {}

    def __call__(self, info: KindInfo, name: str, namespace: str) -> ForecastStart | None:
        key = info.kind, name, namespace
        if key not in self._known:
            self._known[key] = self._asked(info, name, namespace) if self._is_small else None
        return self._known[key]

    def _asked(self, info: KindInfo, name: str, namespace: str) -> ForecastStart | None:
        kind = ALIASES[info.kind.lower()]
        try:
            documents = [Document("snapshot", 1, 1, raw, i) for i, raw in enumerate(self._objects)]
            options = ForecastOptions(occurrences=_OCCURRENCES)
            forecaster = Forecaster(documents, self._now, self._setup, options=options)
            (target,) = find_targets(self._objects, kind, name, namespace, self._now)
            start, outcome = forecaster.expected_start(target)
            is_assumed = start is not None and bool(outcome.assumed)
            if is_assumed:
                start, outcome = forecaster.expected_start(target, assumes_ends=False)
        except (InvalidInput, NoSuchTarget, InvariantBroken):
            return None
        if start is None:
            return ForecastStart(None) if outcome.cut_at is None or is_assumed else None
        # What ended long before is not what it waited for.
        latest = max((each.t for each in start.waited_for), default=start.t)
        causes = start.waited_for if start.t - latest <= _TOLERANCE else ()
        return ForecastStart(
            self._now + start.t,
            start.node,
            tuple(_parts(each.object) for each in causes),
            start.pods_before,
            not outcome.is_uncertain,
            start.reservation.startswith(HELD_FOR_PREFIX) and not self._exists(start.reservation),
        )

    def _exists(self, reservation: str) -> bool:
        metadata = (raw["metadata"] for raw in self._objects if raw["kind"] == _RESERVATION.kind)
        return any(each["name"] == reservation for each in metadata)


def _parts(name: str) -> tuple[KindInfo, str, str]:
    kind, *rest = name.split("/")
    return (POD if kind == "Pod" else _RESERVATION), rest[-1], rest[0] if len(rest) > 1 else ""
