"""Indexes of objects: the raw objects that plugins read, and PodMigrationJobs.

Raw objects (`api.raw_objects`) are kept only for the kinds that a plugin of a profile declares. Each
kind has a version, which moves with every change of one of its objects and with nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from holdfast.api.meta import Object
from holdfast.api.raw_objects import ObjectKind, RawObject
from holdfast.api.reservation import PodMigrationJob
from holdfast.scheduler.cluster.events import WriteRefused
from holdfast.scheduler.cluster.read_only import read_only

Name = tuple[str, str]
"""Namespace, empty for cluster-scoped objects, and name."""
_NOT_COMPARED = ("resourceVersion", "generation")


_SHARED_KINDS = ("PodGroup", "Job")
"""Kinds that occur in several API groups."""


def kind_of(obj: Object) -> str:
    """The kind, with its API group if the kind occurs in several groups."""
    if obj.kind not in _SHARED_KINDS:
        return obj.kind
    return f"{obj.kind}.{obj.api_version.partition('/')[0]}"


class ObjectsOfKind(Mapping[Name, Mapping[str, Any]]):
    """All objects of a kind, ordered by name. They are shared with the informer, so a reader gets a
    read-only copy."""

    __slots__ = ("_is_sorted", "_known", "_read", "version")

    def __init__(self) -> None:
        self._known: dict[Name, dict[str, Any]] = {}
        self._read: dict[Name, Mapping[str, Any]] = {}
        """The read-only copies, made when they are first read."""
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
        """Adds or replaces an object; True unless its content is the same as before."""
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
        """Removes an object; True if it was there."""
        if self._known.pop(name, None) is None:
            return False
        self._read.pop(name, None)
        self.version += 1
        return True


class RawObjects:
    """The raw objects of all declared kinds."""

    def __init__(self) -> None:
        self._kinds: dict[ObjectKind, ObjectsOfKind] = {}
        self._by_name: dict[tuple[str, str], ObjectsOfKind] = {}
        """By apiVersion and kind."""

    def declare(self, kinds: Iterable[ObjectKind]) -> None:
        """Keeps objects of these kinds from now on."""
        for kind in kinds:
            name = kind.api_version, kind.kind
            self._kinds[kind] = self._by_name.setdefault(name, ObjectsOfKind())

    def of(self, kind: ObjectKind) -> ObjectsOfKind:
        """The objects of a kind; raises KeyError if the kind is not declared."""
        return self._kinds[kind]

    def version_of(self, kinds: Iterable[ObjectKind]) -> Callable[[], tuple[int, ...]]:
        """Returns a function whose value changes with every change of an object of these kinds."""
        known = [self._kinds[kind] for kind in kinds]
        return lambda: tuple(each.version for each in known)

    def put(self, obj: RawObject) -> bool:
        """Adds or replaces an object; True if anything changed."""
        known = self._by_name.get((obj.api_version, obj.kind))
        return known is not None and known.put((obj.metadata.namespace, obj.metadata.name), obj.raw)

    def drop(self, api_version: str, kind: str, namespace: str, name: str) -> bool:
        """Removes an object; True if it was there."""
        known = self._by_name.get((api_version, kind))
        return known is not None and known.drop((namespace, name))


def _content(raw: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in raw["metadata"].items() if key not in _NOT_COMPARED}
    return {**raw, "metadata": metadata}


class Migrations:
    """PodMigrationJobs, and the refused writes that concern them. Scheduling does not read them: only
    the migration controller does, and takes from here what changed since its last run."""

    def __init__(self) -> None:
        self.known: dict[str, PodMigrationJob] = {}
        """By uid."""
        self.changed: dict[str, PodMigrationJob] = {}
        """The last versions of jobs that were added, changed or deleted, by uid."""
        self.refused: list[WriteRefused] = []
        """Refused writes of any kind."""
        self._uid: dict[str, str] = {}

    def take_changed(self) -> dict[str, PodMigrationJob]:
        """What changed since the last call."""
        changed, self.changed = self.changed, {}
        return changed

    def take_refused(self) -> list[WriteRefused]:
        """The writes that were refused since the last call."""
        refused, self.refused = self.refused, []
        return refused

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


def set_indexed(table: dict[Any, set[Any]], key: Any, value: Any, there: bool) -> None:
    """Adds the value to those of the key, or removes it; a key without values is dropped."""
    if there:
        table.setdefault(key, set()).add(value)
        return
    values = table[key]
    values.discard(value)
    if not values:
        del table[key]
