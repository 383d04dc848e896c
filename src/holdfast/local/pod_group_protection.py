"""The PodGroup protection controller: a PodGroup of `scheduling.k8s.io` stays while pods belong to it.

Every PodGroup has a finalizer from its creation on. Once the group is deleted, the finalizer is removed
when no pod names the group that may run, or is running.
"""

from __future__ import annotations

from holdfast.api.names import POD_GROUP_FINALIZER
from holdfast.api.raw_objects import Key, Raw
from holdfast.local.claim_references import POD_GROUP, group_key
from holdfast.local.component import ENDED, ObjectWriter, Steps, has_ended
from holdfast.local.store.objects import POD, StoreChange


class PodGroupProtection:
    def __init__(self, objects: ObjectWriter) -> None:
        self._objects = objects
        self._members: dict[Key, dict[Key, None]] = {}
        """The pods of each group that have not ended."""
        self._stale: dict[Key, None] = {}

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == POD_GROUP and after is not None and after["metadata"].get("deletionTimestamp"):
            self._stale[key] = None
        elif key[:2] == POD:
            was, now = _active_group(before), _active_group(after)
            if was == now:
                return
            if was is not None:
                members = self._members.get(was, {})
                members.pop(key, None)
                if not members:
                    self._members.pop(was, None)
                    self._stale[was] = None
            if now is not None:
                self._members.setdefault(now, {})[key] = None

    def settle(self) -> Steps:
        stale, self._stale = self._stale, {}
        for key in stale:
            group = self._objects.get(key)
            if group is None or key in self._members or not group["metadata"].get("deletionTimestamp"):
                continue
            self._release(key, group)
            yield None

    def _release(self, key: Key, group: Raw) -> None:
        metadata = group["metadata"]
        finalizers = metadata.get("finalizers") or []
        if POD_GROUP_FINALIZER not in finalizers:
            return
        rest = [each for each in finalizers if each != POD_GROUP_FINALIZER]
        kept = {name: value for name, value in metadata.items() if name != "finalizers"}
        released = {**group, "metadata": {**kept, "finalizers": rest} if rest else kept}
        if has_ended(released):
            self._objects.delete(key)
        else:
            self._objects.update(key, released)


def _active_group(pod: Raw | None) -> Key | None:
    """The group of a pod that has not ended."""
    if pod is None or (pod.get("status") or {}).get("phase") in ENDED:
        return None
    return group_key(pod)
