"""Which objects of a kind are known, and in which version.

A watch says what changed; a list says what there is. From a list taken anew the mirror works out
exactly what happened in between, deletions and namesakes included, and says no more than that.
"""

from collections.abc import Iterator

from holdfast.api.kinds import KindInfo
from holdfast.api.meta import Object, ObjectMeta
from holdfast.api.pod import Pod
from holdfast.backends.kubernetes.reading.decoding import Broken, Found
from holdfast.core.events import Added, Deleted, Event, Updated

Key = tuple[str, str]
"""Namespace and name."""


def is_older(version: str, than: str) -> bool:
    """Versions are numbers on every server there is; where they are not, order is not known."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)


class Mirror:
    def __init__(self, info: KindInfo, ended: bool = False) -> None:
        self._info = info
        self._ended = ended
        """Whether they are pods that have ended."""
        self._known: dict[Key, tuple[str, str]] = {}
        """To uid and version."""
        self._unseen: dict[Key, tuple[str, str]] | None = None
        """While a list is read: what it has not had yet."""

    def __len__(self) -> int:
        return len(self._known)

    def version(self, namespace: str, name: str, uid: str) -> str:
        """The resourceVersion last seen of the object; empty if another has its name, or none."""
        known_uid, version = self._known.get((namespace, name), ("", ""))
        return version if known_uid == uid else ""

    def knows(self, found: Object) -> bool:
        """Whether the object is known, in this version or an earlier one."""
        meta = found.metadata
        uid, version = self._known.get((meta.namespace, meta.name), ("", ""))
        return uid == meta.uid and not is_older(meta.resource_version, version)

    def put(self, found: Found) -> Iterator[Event]:
        """The object exists, as it is here."""
        if isinstance(found, Broken):
            key, uid = (found.event.namespace, found.event.name), found.event.uid
            version = found.resource_version
        else:
            meta = found.metadata
            key, uid, version = (meta.namespace, meta.name), meta.uid, meta.resource_version
        before = self._known.get(key)
        if self._unseen is not None:
            self._unseen.pop(key, None)
        if before is not None:
            if before == (uid, version):
                return
            if before[0] != uid:
                yield self._gone(key, before[0])
                before = None
        self._known[key] = (uid, version)
        if isinstance(found, Broken):
            yield found.event
        else:
            yield Updated(found) if before is not None else Added(found)

    def remove(self, found: Found) -> Iterator[Event]:
        """The object is gone, as the server said."""
        if isinstance(found, Broken):
            key = (found.event.namespace, found.event.name)
        else:
            key = (found.metadata.namespace, found.metadata.name)
        before = self._known.pop(key, None)
        if self._unseen is not None:
            self._unseen.pop(key, None)
        if before is None:
            return
        if isinstance(found, Broken) or found.metadata.uid != before[0]:
            yield self._gone(key, before[0])
        else:
            yield Deleted(found)

    def begin_list(self) -> None:
        """All objects there are will be put now."""
        self._unseen = dict(self._known)

    def end_list(self) -> Iterator[Event]:
        """They have been: what was not among them is gone."""
        unseen, self._unseen = self._unseen or {}, None
        for key, (uid, _) in unseen.items():
            del self._known[key]
            yield self._gone(key, uid)

    def clear(self) -> Iterator[Event]:
        """There are no objects of this kind any more."""
        self.begin_list()
        yield from self.end_list()

    def _gone(self, key: Key, uid: str) -> Event:
        namespace, name = key
        gone: Object = self._info.type(metadata=ObjectMeta(namespace=namespace, name=name, uid=uid))
        gone.api_version, gone.kind = self._info.api_version, self._info.kind
        if self._ended and isinstance(gone, Pod):
            gone.status.phase = "Succeeded"
        return Deleted(gone)
