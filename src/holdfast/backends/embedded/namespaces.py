"""A namespace that is being deleted is emptied, and is gone when nothing is left in it."""

from holdfast.backends.embedded.clock import Clock
from holdfast.backends.embedded.kubelet import Kubelets
from holdfast.backends.embedded.objects import Objects
from holdfast.store.objects import Change, Key, Raw


class Namespaces:
    def __init__(self, objects: Objects, clock: Clock, kubelets: Kubelets) -> None:
        self._objects = objects
        self._clock = clock
        self._kubelets = kubelets
        self._terminating: set[str] = set()
        self._stale: set[str] = set()

    def changed(self, change: Change) -> None:
        _, key, _, after = change
        if key.group == "" and key.kind == "Namespace":
            if after is None:
                self._terminating.discard(key.name)
            elif after["metadata"].get("deletionTimestamp"):
                self._terminating.add(key.name)
                self._stale.add(key.name)
        elif key.namespace in self._terminating:
            self._stale.add(key.namespace)

    def settle(self) -> None:
        while self._stale:
            name = min(self._stale)
            self._stale.discard(name)
            self._empty(name)

    def _empty(self, name: str) -> None:
        for key in self._objects.store.keys_in(name):
            self._delete(key)
        left = self._objects.store.keys_in(name)
        key = Key("", "Namespace", "", name)
        namespace = self._objects.get(key)
        if namespace is None or left:
            return
        if not namespace["metadata"].get("finalizers"):
            self._objects.delete(key)
        elif (namespace.get("spec") or {}).get("finalizers"):
            # Emptied: only finalizers someone else put on it are left.
            self._objects.update(key, {**namespace, "spec": {**namespace["spec"], "finalizers": []}})

    def _delete(self, key: Key) -> None:
        raw = self._objects.get(key)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            return
        if (key.group, key.kind) == ("", "Pod"):
            self._kubelets.delete(key)
        elif raw["metadata"].get("finalizers"):
            self._objects.update(key, self._marked(raw))
        else:
            self._objects.delete(key)

    def _marked(self, raw: Raw) -> Raw:
        metadata = {
            **raw["metadata"],
            "deletionTimestamp": self._clock.stamp(),
            "deletionGracePeriodSeconds": 0,
        }
        return {**raw, "metadata": metadata}
