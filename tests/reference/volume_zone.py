from __future__ import annotations

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import Nowhere, ReferencePlugin, Unfit
from reference.state import ReferenceState
from reference.storage import WAITS, claim_of, class_name, class_named, uses, volume_named

_OLD = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_LABELS = (*_OLD, *_OLD.values())


class VolumeZone(ReferencePlugin):
    name = "VolumeZone"

    def only(self, pod: Pod, world: ReferenceState) -> set[str] | Nowhere | None:
        for use in uses(pod):
            if use.ephemeral:
                continue
            claim = claim_of(world, pod, use)
            if claim is None:
                return Nowhere(f'persistentvolumeclaim "{use.name}" not found')
            if claim.spec.volume_name:
                if volume_named(world, claim.spec.volume_name) is None:
                    return Nowhere(f'persistentvolume "{claim.spec.volume_name}" not found')
                continue
            name = class_name(claim)
            if not name:
                return Nowhere("PersistentVolumeClaim had no pv name and storageClass name")
            cls = class_named(world, name)
            if cls is None:
                return Nowhere(f'storageclass.storage.k8s.io "{name}" not found')
            if cls.volume_binding_mode != WAITS:
                return Nowhere("PersistentVolume had no name")
        return None

    def filter(self, pod: Pod, node: Node, world: ReferenceState) -> Unfit | None:
        labels = node.metadata.labels
        if not any(key in labels for key in _LABELS):
            return None
        for use in uses(pod):
            claim = claim_of(world, pod, use)
            if use.ephemeral or claim is None or not claim.spec.volume_name:
                continue
            volume = volume_named(world, claim.spec.volume_name)
            for key in _LABELS:
                wanted = volume.metadata.labels.get(key) if volume is not None else None
                if wanted is None:
                    continue
                values = [value.strip() for value in wanted.split("__")]
                if "" in values:
                    continue
                has = labels.get(key)
                if has is None and key in _OLD:
                    has = labels.get(_OLD[key])
                if has not in values:
                    return Unfit(("node(s) had no available volume zone",), False)
        return None
