"""Pods whose node is not there: those of a deleted node go with it, those that name a node which never
was are given some time for it to come."""

from holdfast.backends.embedded.agenda import Agenda
from holdfast.backends.embedded.clock import Clock
from holdfast.backends.embedded.kubelet import Kubelets
from holdfast.backends.embedded.objects import Objects
from holdfast.store.objects import NODE, POD, Change, Key, node_key

PATIENCE = 40.0
"""Seconds, as the pod garbage collector has it."""


class Orphans:
    def __init__(self, objects: Objects, clock: Clock, agenda: Agenda, kubelets: Kubelets) -> None:
        self._objects = objects
        self._clock = clock
        self._agenda = agenda
        self._kubelets = kubelets
        self._deleted: dict[str, None] = {}

    def changed(self, change: Change) -> None:
        _, key, before, after = change
        if key[:2] == NODE and after is None:
            self._deleted[key.name] = None
        elif key[:2] == POD and after is not None:
            node = after["spec"].get("nodeName")
            new = before is None or not before["spec"].get("nodeName")
            if node and new and node_key(node) not in self._objects:
                self._agenda.when_due(key, self._clock.t + PATIENCE, lambda: self._collect(key))

    def settle(self) -> None:
        deleted, self._deleted = self._deleted, {}
        for node in deleted:
            for key in self._kubelets.pods_on(node):
                self._collect(key)

    def _collect(self, key: Key) -> None:
        pod = self._objects.get(key)
        if pod is not None and node_key(pod["spec"].get("nodeName") or "") not in self._objects:
            self._kubelets.delete(key, at_once=True)
