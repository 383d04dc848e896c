"""A snapshot of a cluster that follows its changes, for types whose rows depend on all objects."""

import time
from collections.abc import Iterable

from holdfast.api.kinds import KindInfo
from holdfast.cli.client import NODE, POD
from holdfast.kube.decoding import WATCHED
from holdfast.kube.object_watch import DELETED, WatchedChange, WatchScope
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.cluster.events import Added, Deleted, Event
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, event_of


class LiveSnapshot:
    def __init__(self, setup: SchedulerFactory) -> None:
        self.snapshot = ClusterSnapshot(setup.scheduler(), time.time())

    def scopes(self, kinds: Iterable[KindInfo]) -> list[WatchScope]:
        """What to watch. Pods that have ended use nothing, and are left out."""
        wanted = {(info.api_version, info.kind) for info in kinds}
        return [
            WatchScope(
                each.info,
                fields=each.field_selector,
                optional=each.info not in (NODE, POD),
            )
            for each in WATCHED
            if (each.info.api_version, each.info.kind) in wanted and not each.ended
        ]

    def feed(self, change: WatchedChange) -> None:
        info, raw = change.info, change.raw
        metadata = raw["metadata"]
        name = metadata.get("namespace") or "", metadata["name"]
        known = self.snapshot.objects.setdefault((info.api_version, info.kind), {})
        event: Event = event_of(info, raw)
        if change.event == DELETED:
            if name in known and known[name]["metadata"].get("uid") == metadata.get("uid"):
                del known[name]
            event = Deleted(event.object) if isinstance(event, Added) else event
        else:
            known[name] = raw
        self.snapshot.now = time.time()
        self.snapshot.scheduler.feed(event, self.snapshot.now)
        self.snapshot.cluster.take_reports()  # no round takes them
