"""The namespace controller: empties terminating namespaces, reports what remains, removes empty
ones.

In a served cluster it waits a moment before it deletes objects, as kube-controller-manager does: a
client which deletes a namespace and then the objects in it, such as `kubectl delete -k`, finds them.
Objects that no manifest has do not make it wait.
"""

from collections import Counter

from holdfast.api.kinds import KINDS
from holdfast.api.raw_objects import with_condition
from holdfast.local.clock import ComponentTimers, LocalClock
from holdfast.local.component import ObjectWriter, Steps
from holdfast.local.kubelet import Kubelets
from holdfast.local.namespace_defaults import ACCOUNT, AUTHORITY
from holdfast.local.store.objects import Key, Raw, StoreChange
from holdfast.local.timeline import DELETED, TimelineRecorder

GRACE = 2.0
"""Seconds from the deletion of a namespace until a served cluster deletes what is in it."""
_PLURALS = {(info.group, info.kind): info.plural for info in KINDS.values()}


class Namespaces:
    def __init__(
        self,
        objects: ObjectWriter,
        clock: LocalClock,
        timers: ComponentTimers,
        kubelets: Kubelets,
        record: TimelineRecorder,
        grace: float = 0.0,
    ) -> None:
        """`grace` is how many seconds the objects of a deleted namespace stay."""
        self._objects = objects
        self._clock = clock
        self._kubelets = kubelets
        self._record = record
        self._timers = timers
        self._grace = grace
        self._terminating: dict[str, float] = {}
        """Until when the objects of each stay."""
        self._stale: set[str] = set()

    def changed(self, change: StoreChange) -> None:
        _, key, _, after = change
        if key.group == "" and key.kind == "Namespace":
            if after is None:
                self._terminating.pop(key.name, None)
            elif after["metadata"].get("deletionTimestamp"):
                if key.name not in self._terminating:
                    self._begin(key.name)
                self._stale.add(key.name)
        elif key.namespace in self._terminating:
            self._stale.add(key.namespace)

    def _begin(self, name: str) -> None:
        until = self._terminating[name] = self._clock.t + self._grace
        if self._grace:
            self._timers.add(until, lambda: self._stale.add(name))

    def settle(self) -> Steps:
        while self._stale:
            name = min(self._stale)
            self._stale.discard(name)
            if name not in self._terminating or self._waits(name):
                continue
            for key in self._objects.store.keys_in(name):
                self._delete(key)
                yield None
            self._report(name)
            yield None

    def _waits(self, name: str) -> bool:
        """Whether a client may yet want to delete objects in it itself."""
        if self._clock.t >= self._terminating[name]:
            return False
        return any(_is_from_a_client(key) for key in self._objects.store.keys_in(name))

    def _report(self, name: str) -> None:
        left = self._objects.store.keys_in(name)
        key = Key("", "Namespace", "", name)
        namespace = self._objects.get(key)
        if namespace is None:
            return
        if left:
            self._report_remaining(key, namespace, left)
            return
        if not namespace["metadata"].get("finalizers"):
            self._gone(key)
        elif (namespace.get("spec") or {}).get("finalizers"):
            # Emptied: only finalizers someone else put on it are left.
            self._objects.update(key, {**namespace, "spec": {**namespace["spec"], "finalizers": []}})

    def _report_remaining(self, key: Key, namespace: Raw, left: list[Key]) -> None:
        status = namespace.get("status") or {}
        conditions = status.get("conditions") or []
        finalizers: Counter[str] = Counter()
        for each in left:
            raw = self._objects.get(each)
            finalizers.update((raw["metadata"].get("finalizers") or ()) if raw is not None else ())
        for condition in _conditions(Counter(map(_resource, left)), finalizers):
            conditions = with_condition(conditions, condition, self._clock.stamp())
        if conditions != status.get("conditions"):
            self._objects.update(key, {**namespace, "status": {**status, "conditions": conditions}})

    def _delete(self, key: Key) -> None:
        raw = self._objects.get(key)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            return
        if (key.group, key.kind) == ("", "Pod"):
            self._kubelets.delete(key)
        elif raw["metadata"].get("finalizers"):
            self._objects.update(key, self._marked(raw))
        else:
            self._gone(key)

    def _gone(self, key: Key) -> None:
        if key.kind != "Event":
            self._record(key, DELETED)
        self._objects.delete(key)

    def _marked(self, raw: Raw) -> Raw:
        metadata = {
            **raw["metadata"],
            "deletionTimestamp": self._clock.stamp(),
            "deletionGracePeriodSeconds": 0,
        }
        return {**raw, "metadata": metadata}


def _is_from_a_client(key: Key) -> bool:
    return key.kind != "Event" and (key.kind, key.name) not in (ACCOUNT, AUTHORITY)


def _resource(key: Key) -> str:
    return f"{_PLURALS.get(key[:2], f'{key.kind.lower()}s')}.{key.group}"


def _conditions(resources: Counter[str], finalizers: Counter[str]) -> list[Raw]:
    """The namespace controller's conditions of a namespace that is not empty yet."""
    remain = "Some resources are remaining: " + _listed(resources, "has")
    held = "Some content in the namespace has finalizers remaining: " + _listed(finalizers, "in")
    parsed, done = (
        "All legacy kube types successfully parsed",
        "All content-preserving finalizers finished",
    )
    rows = [
        ("DeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        ("DeletionGroupVersionParsingFailure", "ParsedGroupVersions", parsed),
        (
            "DeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        ("ContentRemaining", "SomeResourcesRemain", remain),
        ("FinalizersRemaining", "SomeFinalizersRemain", held)
        if finalizers
        else ("FinalizersRemaining", "ContentHasNoFinalizers", done),
    ]
    return [
        {
            "type": f"Namespace{name}",
            "status": "True" if reason.startswith("Some") else "False",
            "reason": reason,
            "message": message,
        }
        for name, reason, message in rows
    ]


def _listed(counts: Counter[str], word: str) -> str:
    return ", ".join(
        sorted(f"{name} {word} {count} resource instances" for name, count in counts.items())
    )
