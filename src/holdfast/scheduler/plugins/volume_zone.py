"""VolumeZone: a node is feasible if it is in the zone and region that the pod's volumes are labelled
with."""

from collections.abc import Hashable

from holdfast.api import names
from holdfast.api.selectors import Requirement
from holdfast.api.storage import PersistentVolume
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_selectors import Mask, Verdicts
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.interface import ClusterPlugin, Filter, Reason, Rejected, Scope
from holdfast.scheduler.managers.volumes import queueing_hints as stamps
from holdfast.scheduler.managers.volumes.volume_objects import WAIT_FOR_POD, claim_class
from holdfast.scheduler.plugins.volume_binding import not_found

REASON = "node(s) had no available volume zone"
_LABELS = (
    names.OLD_ZONE_LABEL,
    names.OLD_REGION_LABEL,
    names.ZONE_LABEL,
    names.REGION_LABEL,
)
_NEWER = {names.OLD_ZONE_LABEL: names.ZONE_LABEL, names.OLD_REGION_LABEL: names.REGION_LABEL}
_SEPARATOR = "__"


class VolumeZone(ClusterPlugin):
    name = "VolumeZone"
    wakes_on = (
        Change.NODE_ADDED
        | Change.NODE_LABELS
        | Change.CLAIMS
        | Change.PERSISTENT_VOLUMES
        | Change.STORAGE_CLASSES
    )
    reads_volumes = True

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        volumes = self.cluster.volumes
        named = [claim.key for claim in volumes.wanted(cls).claims if not claim.ephemeral]
        if not named:
            return None
        watched = []
        wanted: list[tuple[str, frozenset[str]]] = []
        problem = ""
        for key in named:
            watched.append(stamps.of_claim(key))
            claim = volumes.claim(key)
            if not key.name:
                problem = "PersistentVolumeClaim had no name"
                break
            if claim is None:
                problem = not_found("persistentvolumeclaim", key.name)
                break
            if claim.spec.volume_name:
                watched.append(stamps.of_volume(claim.spec.volume_name))
                volume = volumes.volume(claim.spec.volume_name)
                if volume is None:
                    problem = not_found("persistentvolume", claim.spec.volume_name)
                    break
                wanted += zones(volume)
                continue
            class_name = claim_class(claim)
            if not class_name:
                problem = "PersistentVolumeClaim had no pv name and storageClass name"
                break
            watched.append(stamps.of_class(class_name))
            storage_class = volumes.storage_class(class_name)
            if storage_class is None:
                problem = not_found("storageclass.storage.k8s.io", class_name)
                break
            if storage_class.volume_binding_mode != WAIT_FOR_POD:
                problem = "PersistentVolume had no name"
                break
        version = volumes.stamps(watched)
        if problem:
            return Rejected(problem, version=version)
        if not wanted:
            return Filter.nothing(version)
        masks = [self._mask(key, values) for key, values in dict.fromkeys(wanted)]
        columns = [self.cluster.nodes.labels.column(key) for key in _LABELS]

        def passes(view: View) -> Cells:
            matching = view.full(True)
            for mask in masks:
                matching = matching & mask(view)
            placed = view.full(False)
            for column in columns:
                placed = placed | (view.take(column.codes) >= 0)
            return matching | view.negate(placed)

        def reasons(view: View) -> list[Reason]:
            return [Reason(REASON, view.negate(passes(view)), resolvable=False)]

        return Filter(passes, reasons, Scope.NODE, version=version)

    def watches(self, cls: PodClass) -> list[Hashable]:
        volumes = self.cluster.volumes
        watched: list[Hashable] = []
        for use in volumes.wanted(cls).claims:
            claim = volumes.claim(use.key)
            watched.append(stamps.of_claim(use.key))
            if claim is not None:
                watched.append(stamps.of_volume(claim.spec.volume_name))
                watched.append(stamps.of_class(claim_class(claim)))
        return watched

    def _mask(self, key: str, values: frozenset[str]) -> Mask:
        column = self.cluster.nodes.labels.column(key)
        verdicts = Verdicts(column, Requirement(key, "In", tuple(sorted(values))))
        newer = _NEWER.get(key)
        if newer is None:
            return lambda view: verdicts.of(view.take(column.codes)) == 1
        otherwise = self._mask(newer, values)

        def mask(view: View) -> Cells:
            """Whether the node's label matches; a node without the old label may have the new one."""
            codes = view.take(column.codes)
            return (verdicts.of(codes) == 1) | ((codes < 0) & otherwise(view))

        return mask


def zones(volume: PersistentVolume) -> list[tuple[str, frozenset[str]]]:
    """The zone and region labels of a volume, with the values they allow. A label with an empty value
    in its list is ignored."""
    found = []
    for key in _LABELS:
        label = volume.metadata.labels.get(key)
        if label is None:
            continue
        values = frozenset(value.strip() for value in label.split(_SEPARATOR))
        if "" not in values:
            found.append((key, values))
    return found
