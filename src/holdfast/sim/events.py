"""Kubernetes Events, as `kubectl get events` shows them: one object for the same thing said again,
with a count."""

from holdfast.api import names
from holdfast.core.decisions import Emit
from holdfast.sim.clock import VirtualClock
from holdfast.sim.store import Key, Raw, Store

NOT_FED = ("Event", "Lease", "Binding")
"""Kinds no scheduler watches."""


class Recorder:
    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[Emit, Key] = {}
        self._count = 0

    def emit(self, event: Emit, component: str) -> None:
        now = self._clock.stamp()
        key = self._known.get(event)
        said = self._store.get(key) if key is not None else None
        if said is not None:
            self._store.update({**said, "count": said["count"] + 1, "lastTimestamp": now})
            return
        stored = self._store.create(self._new(event, component, now))
        metadata = stored["metadata"]
        self._known[event] = Key("", "Event", metadata["namespace"], metadata["name"])

    def _new(self, event: Emit, component: str, now: str) -> Raw:
        self._count += 1
        about = event.about
        involved = {"kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            involved["namespace"] = about.namespace
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name}.{self._count:016x}",
                "namespace": about.namespace or names.DEFAULT_NAMESPACE,
            },
            "involvedObject": involved,
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
