"""Pod GC: deletes pods of deleted nodes at once, and pods of nodes that never existed after a delay."""

from holdfast.local.clock import ComponentTimers, LocalClock
from holdfast.local.component import ObjectWriter, Steps
from holdfast.local.kubelet import Kubelets
from holdfast.local.store.objects import NODE, POD, Key, StoreChange, node_key

PATIENCE = 40.0
"""Seconds, as the pod garbage collector has it."""


class PodGC:
    def __init__(
        self, objects: ObjectWriter, clock: LocalClock, timers: ComponentTimers, kubelets: Kubelets
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._timers = timers
        self._kubelets = kubelets
        self._deleted: dict[Key, str] = {}
        """Pods of nodes that were deleted, with their uids: a node of the same name that comes at once
        is another, and a pod of the same name may be on it."""

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == NODE and after is None:
            for pod_key in self._kubelets.pods_on(key.name):
                pod = self._objects.get(pod_key)
                if pod is not None:
                    self._deleted[pod_key] = pod["metadata"]["uid"]
        elif key[:2] == POD and after is not None:
            node = after["spec"].get("nodeName")
            new = before is None or not before["spec"].get("nodeName")
            if node and new and node_key(node) not in self._objects:
                self._timers.when_due(key, self._clock.t + PATIENCE, lambda: self._collect(key))

    def settle(self) -> Steps:
        deleted, self._deleted = self._deleted, {}
        for key, uid in deleted.items():
            pod = self._objects.get(key)
            if pod is not None and pod["metadata"]["uid"] == uid:
                self._kubelets.delete(key, at_once=True)
                yield None

    def _collect(self, key: Key) -> None:
        pod = self._objects.get(key)
        if pod is not None and node_key(pod["spec"].get("nodeName") or "") not in self._objects:
            self._kubelets.delete(key, at_once=True)
