"""A stepped cluster that a dashboard shows, and a browser's copy of what it was sent."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from harness.embedded_cluster import HandClock, SteppedCluster
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import StoreChange
from holdfast.web.live_view import LiveView, WatchedScheduler

Json = dict[str, Any]
RESERVATION_API = "scheduling.koordinator.sh/v1alpha1"


def reservation(name: str, cpu: str, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    requests = {"cpu": cpu, "memory": "1Gi"}
    return {
        "apiVersion": RESERVATION_API,
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}},
            "owners": [{"labelSelector": {"matchLabels": labels or {"app": "web"}}}],
            "ttl": "1h",
            **spec,
        },
    }


class ViewedCluster(SteppedCluster):
    def __init__(self, setup: SchedulerFactory | None = None, clock: HandClock | None = None) -> None:
        super().__init__(setup=setup, clock=clock)
        self.watched = WatchedScheduler("test", self.clock.epoch, takes_decisions=False)
        self.watched.attach(self.cluster.world.scheduler)
        self.watched.events.load(self.store.scan("", "Event"))
        self.store.observe(self._changed)
        self.view = LiveView(self.watched)

    def _changed(self, change: StoreChange) -> None:
        if change.key.kind == "Event" and change.after is not None:
            self.watched.events.stored(change.after)

    def snapshot(self) -> Json:
        found: Json = msgspec.json.decode(asyncio.run(self.view.snapshot()))
        return found


class BrowserCopy:
    """Applies a snapshot and the changes after it, as the page does."""

    def __init__(self, snapshot: Json) -> None:
        self.stream, self.sequence = snapshot["stream"], snapshot["sequence"]
        self.labels: list[str] = []
        self.nodes: dict[int, Json] = {}
        self.rows: dict[str, dict[str, Any]] = {"reservations": {}, "pending": {}, "queues": {}}
        self.events: dict[str, Json] = {}
        self.apply(snapshot)

    def apply(self, changes: Json) -> None:
        self.sequence = changes["sequence"]
        nodes = changes.get("nodes")
        if nodes:
            self.labels += nodes["labels"]
            for row in nodes["gone"]:
                del self.nodes[row]
            for index, row in enumerate(nodes["id"]):
                self.nodes[row] = _node(nodes, index, self.labels)
        for part, rows in self.rows.items():
            for uid in changes.get(part, {}).get("gone", ()):
                del rows[uid]
            rows.update(changes.get(part, {}).get("put", {}))
        for event in changes.get("events", ()):
            self.events[event["id"]] = event

    def content(self) -> Json:
        return {"nodes": self.nodes, **self.rows, "events": self.events}


def _node(columns: Json, index: int, labels: list[str]) -> Json:
    found = {name: columns[name][index] for name in ("name", "flags", "taints")}
    found["labels"] = [labels[code] for code in columns["labelled"][index]]
    for name in ("allocatable", "requested", "used", "reserved", "held"):
        found[name] = [column[index] for column in columns[name]]
    for name in ("gpus", "pods"):
        if name in columns:
            found[name] = columns[name][index]
    return found
