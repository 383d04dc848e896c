"""Objects of the kinds that plugins read: from the store to the scheduler.

They are fed in every version that a plugin declares. As on any API server an object can be read in each
version its CustomResourceDefinition serves, and in no other.
"""

from collections.abc import Callable, Iterable

from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KindInfo
from holdfast.api.meta import ObjectMeta
from holdfast.api.raw_objects import ObjectKind, RawObject, raw_object
from holdfast.core.events import Added, Deleted, Event, Malformed, Updated
from holdfast.store.objects import Key, Raw
from holdfast.store.store import Store

_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")

_GroupKind = tuple[str, str]


class PluginObjects:
    def __init__(
        self, store: Store, kinds: Iterable[ObjectKind], feed: Callable[[Event], None]
    ) -> None:
        self._store = store
        self._feed = feed
        self._read: dict[_GroupKind, list[KindInfo]] = {}
        """Several versions of a kind may be read."""
        for kind in kinds:
            self._read.setdefault((kind.group, kind.kind), []).append(kind.info())
        self._served: dict[_GroupKind, frozenset[str]] = {}
        """The versions of kinds that have a definition."""
        if self._read:
            for definition in store.scan(*_DEFINITION):
                self._served[_defined(definition)] = _versions(definition)

    def feed_all(self) -> None:
        """To a scheduler that knows nothing."""
        for kind, infos in self._read.items():
            for info in infos:
                if self._is_served(kind, info):
                    self._feed_kind(kind, info)

    def changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        if not self._read:
            return
        kind = key[:2]
        if kind == _DEFINITION:
            self._definition_changed(before, after)
        for info in self._read.get(kind, ()):
            if self._is_served(kind, info):
                self._feed_one(info, key, before, after)

    def _definition_changed(self, before: Raw | None, after: Raw | None) -> None:
        definition = after if after is not None else before
        assert definition is not None
        kind = _defined(definition)
        infos = self._read.get(kind, ())
        known = [info for info in infos if self._is_served(kind, info)]
        if after is not None:
            self._served[kind] = _versions(after)
        else:
            self._served.pop(kind, None)
        for info in infos:
            if self._is_served(kind, info) and info not in known:
                self._feed_kind(kind, info)
            elif not self._is_served(kind, info) and info in known:
                for raw in self._store.scan(*kind):
                    self._feed_one(info, _key(kind, raw), raw, None)

    def _is_served(self, kind: _GroupKind, info: KindInfo) -> bool:
        """Kinds without a definition are Kubernetes' own, or a scenario's."""
        versions = self._served.get(kind)
        return versions is None or info.version in versions

    def _feed_kind(self, kind: _GroupKind, info: KindInfo) -> None:
        for raw in self._store.scan(*kind):
            self._feed_one(info, _key(kind, raw), None, raw)

    def _feed_one(self, info: KindInfo, key: Key, before: Raw | None, after: Raw | None) -> None:
        if after is None:
            metadata = ObjectMeta(name=key.name, namespace=key.namespace)
            gone = RawObject(api_version=info.api_version, kind=info.kind, metadata=metadata)
            self._feed(Deleted(gone))
            return
        try:
            found = raw_object(info, after)
        except InvalidObject as error:
            uid = after["metadata"]["uid"]
            self._feed(Malformed(key.kind, key.namespace, key.name, uid, error, info.api_version))
        else:
            self._feed(Added(found) if before is None else Updated(found))


def _defined(definition: Raw) -> _GroupKind:
    """The kind it is about."""
    spec = definition["spec"]
    return spec["group"], spec["names"]["kind"]


def _versions(definition: Raw) -> frozenset[str]:
    return frozenset(each["name"] for each in definition["spec"]["versions"] if each.get("served"))


def _key(kind: _GroupKind, raw: Raw) -> Key:
    metadata = raw["metadata"]
    return Key(*kind, metadata.get("namespace", ""), metadata["name"])
