"""Serves the kinds of CustomResourceDefinitions while these are created, changed and deleted.

When a definition is deleted, its objects are deleted first; the definition goes with the last of them.
"""

import structlog

from holdfast.local.apiserver.api_state import ApiRequest, ApiState
from holdfast.local.apiserver.request_info import DeleteOptions
from holdfast.local.apiserver.verbs.writes import delete
from holdfast.local.store import Key, Raw, StoreChange
from holdfast.machinery.schema.catalogue import crd_warnings
from holdfast.machinery.strategies.crds import CLEANUP, GROUP, KIND, is_established

_log = structlog.get_logger()


class CrdRegistry:
    """Listens to the store for as long as the cluster lives."""

    def __init__(self, cluster: ApiState) -> None:
        self._cluster = cluster
        self._ending: dict[tuple[str, str], Key] = {}
        """Definitions on their way out, by the group and kind of their objects."""
        for raw in cluster.store.scan(GROUP, KIND):
            self._see(raw)
            for warning in crd_warnings(raw):
                _log.warning("rule disabled", definition=raw["metadata"]["name"], why=warning[:1024])
        self.stop = cluster.store.observe(self._changed)

    def _changed(self, change: StoreChange) -> None:
        group, kind = change.key[:2]
        if (group, kind) == (GROUP, KIND):
            if change.after is None:
                self._cluster.catalogue.remove_crd(change.key.name)
                self._ending = {of: key for of, key in self._ending.items() if key != change.key}
            else:
                self._see(change.after)
        elif change.after is None and (group, kind) in self._ending:
            self._finish((group, kind))

    def _see(self, raw: Raw) -> None:
        spec = raw["spec"]
        if is_established(raw):
            self._cluster.catalogue.add_crd(raw)
        metadata = raw["metadata"]
        if metadata.get("deletionTimestamp") and CLEANUP in (metadata.get("finalizers") or []):
            of = (spec["group"], spec["names"]["kind"])
            self._ending[of] = Key(GROUP, KIND, "", metadata["name"])
            self._empty(raw)
            self._finish(of)

    def _empty(self, raw: Raw) -> None:
        spec = raw["spec"]
        types = self._cluster.catalogue.versions(spec["group"], spec["names"]["plural"])
        if not types:
            return
        for each in self._cluster.store.scan(spec["group"], spec["names"]["kind"]):
            metadata = each["metadata"]
            if not metadata.get("deletionTimestamp"):
                namespace = metadata.get("namespace", "")
                delete(
                    ApiRequest(self._cluster, types[0], namespace, metadata["name"]), DeleteOptions()
                )

    def _finish(self, of: tuple[str, str]) -> None:
        if self._cluster.store.count(*of):
            return
        key = self._ending.pop(of)
        raw = self._cluster.store.get(key)
        if raw is None:
            return
        left = [each for each in raw["metadata"]["finalizers"] if each != CLEANUP]
        if left:
            self._cluster.store.update(
                key, {**raw, "metadata": {**raw["metadata"], "finalizers": left}}
            )
        else:
            self._cluster.store.delete(key)
