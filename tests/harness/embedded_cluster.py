"""An embedded cluster whose clock a test moves by hand."""

import asyncio
from typing import Any

from harness.objects import node, pod
from holdfast.api.times import format_time, parse_time
from holdfast.local.cluster_loop import EmbeddedCluster
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Key, Raw, Store, node_key, pod_key


class HandClock:
    def __init__(self, start: str = "2026-01-01T00:00:00Z") -> None:
        self.t = parse_time(start)

    def epoch(self) -> float:
        return self.t

    def stamp(self, after: float = 0.0) -> str:
        return format_time(self.t + after)


class SteppedCluster:
    """A cluster and what a test does with it, as clients of an API server would."""

    def __init__(
        self,
        store: Store | None = None,
        clock: HandClock | None = None,
        setup: SchedulerFactory | None = None,
    ) -> None:
        self.clock = clock if clock is not None else HandClock()
        self.store = store if store is not None else Store()
        self.cluster = EmbeddedCluster(setup or SchedulerFactory.of(), self.store, self.clock)
        self.settle()

    def settle(self) -> None:
        asyncio.run(self.cluster.quiet())

    def after(self, seconds: float) -> None:
        """Time passes, a second at a time."""
        for _ in range(int(seconds)):
            self.clock.t += 1
            self.settle()

    def create(self, raw: Raw) -> Raw:
        made = self.cluster.world.objects.create(raw)
        self.settle()
        return made

    def update(self, key: Key, **parts: Any) -> None:
        """Replaces top-level parts of an object; a part that is a dict is merged one level deep."""
        raw = self.store.get(key)
        assert raw is not None, f"{key} is not there"
        merged = {
            name: {**raw.get(name, {}), **part} if isinstance(part, dict) else part
            for name, part in parts.items()
        }
        self.cluster.world.objects.update(key, {**raw, **merged})
        self.settle()

    def delete(self, key: Key) -> None:
        self.store.delete(key)
        self.settle()

    def create_node(self, name: str, cpu: str = "4", **spec: Any) -> Key:
        raw = node(name, cpu, "8Gi", **spec)
        raw["status"] = {"capacity": {"cpu": cpu, "memory": "8Gi"}}
        self.create(raw)
        return node_key(name)

    def create_pod(self, name: str, cpu: str = "1", namespace: str = "default", **more: Any) -> Key:
        """As the API server would have stored it; `finalizers` and the like go to metadata."""
        finalizers = {"finalizers": more.pop("finalizers")} if "finalizers" in more else {}
        spec = {"schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30, **more}
        raw = pod(name, cpu, metadata={"namespace": namespace, **finalizers}, **spec)
        self.create({**raw, "status": {"phase": "Pending"}})
        return pod_key(namespace, name)

    def get(self, key: Key) -> Raw:
        raw = self.store.get(key)
        assert raw is not None, f"{key} is not there"
        return raw

    def phase(self, key: Key) -> str:
        return str(self.get(key)["status"]["phase"])

    def placed(self, key: Key) -> str:
        return str(self.get(key)["spec"].get("nodeName") or "")

    def condition(self, key: Key, type: str) -> Raw:
        found = [c for c in self.get(key)["status"]["conditions"] if c["type"] == type]
        assert len(found) == 1, self.get(key)["status"]["conditions"]
        return dict(found[0])

    def reasons(self) -> list[str]:
        return [event["reason"] for event in self.store.scan("", "Event")]
