"""The objects that plugins read, by kind; see `holdfast.api.raw_objects`.

Kept only of kinds that a plugin of some profile declares. What a kind's objects are is versioned: the
version moves with every change of one of them, and with nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from holdfast.api.migration import PodMigrationJob
from holdfast.api.raw_objects import ObjectKind, RawObject
from holdfast.scheduler.cluster.events import WriteRefused
from holdfast.scheduler.cluster.read_only import read_only

Name = tuple[str, str]
"""Namespace, empty for what lives outside namespaces, and name."""
_NOT_COMPARED = ("resourceVersion", "generation")


class ObjectsOfKind(Mapping[Name, Mapping[str, Any]]):
    """All objects of a kind there are at any time, in the order of their names. They are shared with
    whoever keeps them, so that who reads one is given a copy that cannot be changed."""

    __slots__ = ("_is_sorted", "_known", "_read", "version")

    def __init__(self) -> None:
        self._known: dict[Name, dict[str, Any]] = {}
        self._read: dict[Name, Mapping[str, Any]] = {}
        """What was handed out, made when it was first asked for."""
        self._is_sorted = True
        self.version = 0

    def __getitem__(self, name: Name) -> Mapping[str, Any]:
        found = self._read.get(name)
        if found is None:
            found = self._read[name] = read_only(self._known[name])
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[Name]:
        if not self._is_sorted:
            self._known = dict(sorted(self._known.items()))
            self._is_sorted = True
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def put(self, name: Name, raw: dict[str, Any]) -> bool:
        """Whether that changes anything: an object that says the same as before does not."""
        before = self._known.get(name)
        self._known[name] = raw
        self._read.pop(name, None)
        if before is None:
            self._is_sorted = False
        elif _content(before) == _content(raw):
            return False
        self.version += 1
        return True

    def drop(self, name: Name) -> bool:
        """Whether it was there."""
        if self._known.pop(name, None) is None:
            return False
        self._read.pop(name, None)
        self.version += 1
        return True


class RawObjects:
    def __init__(self) -> None:
        self._kinds: dict[ObjectKind, ObjectsOfKind] = {}
        self._by_name: dict[tuple[str, str], ObjectsOfKind] = {}
        """By apiVersion and kind."""

    def declare(self, kinds: Iterable[ObjectKind]) -> None:
        """Objects of these kinds are kept from now on."""
        for kind in kinds:
            name = kind.api_version, kind.kind
            self._kinds[kind] = self._by_name.setdefault(name, ObjectsOfKind())

    def of(self, kind: ObjectKind) -> ObjectsOfKind:
        """Raises KeyError for a kind that nobody declared."""
        return self._kinds[kind]

    def version_of(self, kinds: Iterable[ObjectKind]) -> Callable[[], tuple[int, ...]]:
        """What moves with every change of an object of these kinds."""
        known = [self._kinds[kind] for kind in kinds]
        return lambda: tuple(each.version for each in known)

    def put(self, obj: RawObject) -> bool:
        """Whether anything changed."""
        known = self._by_name.get((obj.api_version, obj.kind))
        return known is not None and known.put((obj.metadata.namespace, obj.metadata.name), obj.raw)

    def drop(self, api_version: str, kind: str, namespace: str, name: str) -> bool:
        """Whether anything changed."""
        known = self._by_name.get((api_version, kind))
        return known is not None and known.drop((namespace, name))


def _content(raw: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in raw["metadata"].items() if key not in _NOT_COMPARED}
    return {**raw, "metadata": metadata}


# Jobs that move pods, as their objects say, and what the outside would not do for them.
#
# Scheduling reads nothing of them: they neither wake a pod nor change what is known of a class. The
# migration controller takes from here what happened since it last looked.


class Migrations:
    def __init__(self) -> None:
        self.known: dict[str, PodMigrationJob] = {}
        """By uid."""
        self.changed: dict[str, PodMigrationJob] = {}
        """Jobs that came, changed or went, as they were last seen, by uid."""
        self.refused: list[WriteRefused] = []
        """Writes that were refused."""
        self._uid: dict[str, str] = {}

    def put(self, job: PodMigrationJob) -> None:
        meta = job.metadata
        namesake = self._uid.get(meta.name)
        if namesake is not None and namesake != meta.uid:
            self.drop(namesake)
        self._uid[meta.name] = meta.uid
        self.known[meta.uid] = job
        self.changed[meta.uid] = job

    def drop(self, uid: str) -> None:
        job = self.known.pop(uid, None)
        if job is None:
            return
        if self._uid.get(job.metadata.name) == uid:
            del self._uid[job.metadata.name]
        self.changed[uid] = job
