"""Which pods belong together though they do not say so: those of one service or controller."""

from collections.abc import Hashable
from typing import Any

from holdfast.api.errors import SelectorError
from holdfast.api.label_selectors import Requirement, Selector, compile_selector, selector_from_map
from holdfast.core.classes import PodClass
from holdfast.core.cluster import Cluster

_KINDS = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
_CONTROLLERS = {
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}


class DefaultSelectors:
    """The selector of a class, kept until a service or controller changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[int, tuple[Hashable, Selector]] = {}
        cluster.classes.on_dropped.append(self._forget)

    def of(self, cls: PodClass) -> Selector:
        """Selects everything if nothing is known to select the class."""
        versions = self._cluster.versions
        version = tuple([versions.get(kind) for kind in _KINDS])
        known = self._known.get(cls.id)
        if known is None or known[0] != version:
            known = self._known[cls.id] = (version, self._work_out(cls))
        return known[1]

    def _forget(self, cls: PodClass) -> None:
        self._known.pop(cls.id, None)

    def _work_out(self, cls: PodClass) -> Selector:
        labels: dict[str, str] = {}
        services: dict[tuple[str, str], Any] = self._cluster.objects.get("Service", {})
        for (namespace, _), service in services.items():
            wanted = service.spec.selector
            if namespace == cls.namespace and wanted and wanted.items() <= cls.labels.items():
                labels |= wanted
        owner = next((o for o in cls.owners if o.controller), None)
        if owner is None or (owner.api_version, owner.kind) not in _CONTROLLERS:
            return selector_from_map(labels)
        controller: Any = self._cluster.objects.get(owner.kind, {}).get((cls.namespace, owner.name))
        if controller is None:
            return selector_from_map(labels)
        if owner.kind == "ReplicationController":
            return selector_from_map(labels | (controller.spec.selector or {}))
        try:
            more = compile_selector(controller.spec.selector)
        except SelectorError:
            return selector_from_map(labels)
        if more.nothing:
            return selector_from_map(labels)
        own = tuple(Requirement(key, "In", (value,)) for key, value in labels.items())
        return Selector((*own, *more.requirements))
