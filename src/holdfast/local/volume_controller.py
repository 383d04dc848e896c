"""The volume controllers: binding of claims to volumes, provisioning, and claims of ephemeral volumes.

The controllers act at once.
"""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.api import names
from holdfast.api.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.decode import convert
from holdfast.api.node import Node
from holdfast.api.quantity import parse
from holdfast.api.selectors import match_node_selector, matches
from holdfast.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from holdfast.local.component import ObjectWriter, Steps, key_of
from holdfast.local.store.objects import Key, Raw, node_key
from holdfast.scheduler.managers.volumes.volume_objects import (
    claim_class,
    default_class,
    references_claim,
    volume_class,
)

WAIT = "WaitForFirstConsumer"
LOST = "Lost"
_KINDS = frozenset(("PersistentVolumeClaim", "PersistentVolume", "StorageClass"))


class VolumeController:
    """Applies the binding rules below to the store."""

    def __init__(self, objects: ObjectWriter) -> None:
        self._objects = objects
        self._stale = False
        self._new_pods: list[Key] = []
        """Pods with generic ephemeral volumes that are new, or lost a claim: claims are created."""
        self._left: list[Raw] = []
        """Pods that are gone, and whose own claims go with them."""

    def changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        if key.kind in _KINDS:
            self._stale = True
            if key.kind == "PersistentVolumeClaim" and after is None and before is not None:
                self._new_pods += _owning_pods(before)
        elif key.kind == "Pod" and (before is None or after is None):
            pod = after if after is not None else before
            assert pod is not None
            if not any(volume.get("ephemeral") for volume in pod["spec"].get("volumes") or ()):
                return
            if after is not None:
                self._new_pods.append(key)
            else:
                self._left.append(pod)

    def settle(self) -> Steps:
        """Does what waits for no one."""
        left, self._left = self._left, []
        new_pods, self._new_pods = self._new_pods, []
        for pod in left:
            self._delete_claims_of(pod)
            yield None
        for key in new_pods:
            self._make_claims_for(key)
            yield None
        if not self._stale:
            return
        self._stale = False
        self._welcome()
        for key in map(key_of, self._objects.scan("", "PersistentVolumeClaim")):
            claim = self._objects.get(key)
            if claim is None:
                continue
            if _bound(claim):
                self._check(claim)
            else:
                claim = self._with_class(claim)
                delayed = self._mode(claim) == WAIT
                node = self._selected_node(claim) if delayed else None
                self._bind(claim, node, waits=delayed and node is None)
            yield None
        self._reclaim()

    def pod_bound(self, pod: Raw, node: Raw | None) -> None:
        """Binds the claims of a pod that waited for it to have a node."""
        for name in _claims_of(pod):
            claim = self._objects.get(_claim_key(pod["metadata"]["namespace"], name))
            if claim is not None and not _bound(claim):
                self._bind(claim, node)

    def _selected_node(self, claim: Raw) -> Raw | None:
        """The annotation with the node that a scheduler selected for the claim."""
        name = (claim["metadata"].get("annotations") or {}).get(names.SELECTED_NODE_ANNOTATION)
        return self._objects.get(node_key(name)) if name else None

    def _mode(self, claim: Raw) -> str:
        cls = self._class(claim)
        return (cls.volume_binding_mode or "") if cls is not None else ""

    def _class(self, claim: Raw) -> StorageClass | None:
        name = _class_name(claim)
        raw = self._objects.get(Key("storage.k8s.io", "StorageClass", "", name)) if name else None
        return None if raw is None else convert(raw, StorageClass)

    def _with_class(self, claim: Raw) -> Raw:
        """A claim without a storage class gets the default one."""
        if (claim.get("spec") or {}).get("storageClassName") is not None:
            return claim
        classes = [
            convert(raw, StorageClass) for raw in self._objects.scan("storage.k8s.io", "StorageClass")
        ]
        name = default_class(classes)
        if not name:
            return claim
        return self._put({**claim, "spec": {**claim["spec"], "storageClassName": name}})

    def _bind(self, claim: Raw, node: Raw | None, waits: bool = False) -> None:
        wanted = convert(claim, PersistentVolumeClaim)
        volumes = {raw["metadata"]["name"]: raw for raw in self._objects.scan("", "PersistentVolume")}
        there = [convert(raw, PersistentVolume) for raw in volumes.values()]
        on = None if node is None else convert(node, Node)
        found = volume_for(wanted, there, on, waits)
        if found is not None:
            volume: Raw | None = volumes[found.metadata.name]
        elif waits or wanted.spec.volume_name:
            return
        else:
            volume = self._provisioned(claim, on)
        if volume is None:
            return
        metadata = claim["metadata"]
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        self._put(
            {
                **volume,
                "spec": {**volume["spec"], "claimRef": reference},
                "status": {**(volume.get("status") or {}), "phase": "Bound"},
            }
        )
        status = {
            **(claim.get("status") or {}),
            "phase": "Bound",
            "accessModes": volume["spec"].get("accessModes") or [],
            "capacity": volume["spec"].get("capacity") or {},
        }
        spec = {**claim["spec"], "volumeName": volume["metadata"]["name"]}
        annotations = {
            **(metadata.get("annotations") or {}),
            names.BIND_COMPLETED_ANNOTATION: "yes",
        }
        if node is not None:
            annotations[names.SELECTED_NODE_ANNOTATION] = node["metadata"]["name"]
        self._put(
            {
                **claim,
                "metadata": {**metadata, "annotations": annotations},
                "spec": spec,
                "status": status,
            }
        )

    def _put(self, raw: Raw) -> Raw:
        return self._objects.update(key_of(raw), raw)

    def _provisioned(self, claim: Raw, node: Node | None) -> Raw | None:
        cls = self._class(claim)
        if cls is None or not cls.provisioner or cls.provisioner == names.NO_PROVISIONER:
            return None
        spec = claim["spec"]
        made: Raw = {
            "accessModes": spec.get("accessModes") or [],
            "capacity": dict((spec.get("resources") or {}).get("requests") or {}),
            "storageClassName": _class_name(claim),
            "persistentVolumeReclaimPolicy": cls.reclaim_policy or "Delete",
            "csi": {"driver": cls.provisioner, "volumeHandle": claim["metadata"]["uid"]},
        }
        if spec.get("volumeMode"):
            made["volumeMode"] = spec["volumeMode"]
        terms = reach_of_new(cls, node, self._csi_node(node))
        if terms:
            selector = {"nodeSelectorTerms": [msgspec.to_builtins(term) for term in terms]}
            made["nodeAffinity"] = {"required": selector}
        return self._objects.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {
                    "name": f"pvc-{claim['metadata']['uid']}",
                    "annotations": {names.PROVISIONED_BY_ANNOTATION: cls.provisioner},
                },
                "spec": made,
                "status": {"phase": "Available"},
            }
        )

    def _csi_node(self, node: Node | None) -> CSINode | None:
        if node is None:
            return None
        raw = self._objects.get(Key("storage.k8s.io", "CSINode", "", node.metadata.name))
        return None if raw is None else convert(raw, CSINode)

    def _check(self, claim: Raw) -> None:
        """A bound claim whose volume is gone is lost, until the volume is back."""
        status = claim.get("status") or {}
        name, lost = claim["spec"].get("volumeName", ""), status.get("phase") == LOST
        if Key("", "PersistentVolume", "", name) in self._objects:
            if lost:
                self._bind(claim, None)
        elif not lost:
            self._put({**claim, "status": {**status, "phase": LOST}})

    def _welcome(self) -> None:
        """Volumes without a phase are available."""
        for volume in list(self._objects.scan("", "PersistentVolume")):
            status = volume.get("status") or {}
            if status.get("phase") in (None, "", "Pending"):
                self._put({**volume, "status": {**status, "phase": "Available"}})

    def _reclaim(self) -> None:
        """Volumes whose claim is gone."""
        for volume in self._objects.scan("", "PersistentVolume"):
            ref = volume["spec"].get("claimRef") or {}
            if not ref.get("uid") or (volume.get("status") or {}).get("phase") != "Bound":
                continue
            claim = self._objects.get(_claim_key(ref.get("namespace", ""), ref.get("name", "")))
            if claim is not None and claim["metadata"]["uid"] == ref["uid"]:
                continue
            if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
                self._objects.delete(Key("", "PersistentVolume", "", volume["metadata"]["name"]))
            else:
                self._put({**volume, "status": {**volume["status"], "phase": "Released"}})

    # Claims that are made for one pod

    def _make_claims_for(self, key: Key) -> None:
        pod = self._objects.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        for volume in pod["spec"].get("volumes") or ():
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            claim = _claim_key(key.namespace, f"{key.name}-{volume['name']}")
            if not template or claim in self._objects:
                continue
            owner = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": key.name,
                "uid": pod["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
            given = template.get("metadata") or {}
            self._objects.create(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {
                        **{k: given[k] for k in ("labels", "annotations") if k in given},
                        "name": claim.name,
                        "namespace": claim.namespace,
                        "ownerReferences": [owner],
                    },
                    "spec": template.get("spec") or {},
                    "status": {"phase": "Pending"},
                }
            )

    def _delete_claims_of(self, pod: Raw) -> None:
        for name in _claims_of(pod, ephemeral_only=True):
            key = _claim_key(pod["metadata"]["namespace"], name)
            claim = self._objects.get(key)
            owners = (claim["metadata"].get("ownerReferences") or ()) if claim is not None else ()
            if any(owner.get("uid") == pod["metadata"]["uid"] for owner in owners):
                self._objects.delete(key)


def _claim_key(namespace: str, name: str) -> Key:
    return Key("", "PersistentVolumeClaim", namespace, name)


def _owning_pods(claim: Raw) -> list[Key]:
    """The pod that a claim was created for."""
    metadata = claim["metadata"]
    return [
        Key("", "Pod", metadata["namespace"], owner["name"])
        for owner in metadata.get("ownerReferences") or ()
        if owner.get("controller") and (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod")
    ]


def _claims_of(pod: Raw, ephemeral_only: bool = False) -> list[str]:
    """The pod's claims by name, including those of ephemeral volumes."""
    claims = []
    for volume in pod["spec"].get("volumes") or []:
        if volume.get("persistentVolumeClaim"):
            if not ephemeral_only:
                claims.append(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral"):
            claims.append(f"{pod['metadata']['name']}-{volume['name']}")
    return claims


def _class_name(claim: Raw) -> str:
    return str((claim.get("spec") or {}).get("storageClassName") or "")


def _bound(claim: Raw) -> bool:
    return names.BIND_COMPLETED_ANNOTATION in (claim["metadata"].get("annotations") or {})


# The volume controller's binding rules.
#
# A claim with a volumeName gets that volume or none. A volume with a claimRef is for that claim only. A
# WaitForFirstConsumer claim is bound once its pod has a node; any other gets the smallest suitable
# volume. If none is suitable, a provisioner creates one that is accessible from the node.
#
# If the volume of a bound claim is deleted, the claim is Lost; if the claim of a volume is deleted, the
# volume is Released, or deleted by its reclaim policy.


_FILESYSTEM = "Filesystem"


def volume_for(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    node: Node | None = None,
    waits: bool = False,
) -> PersistentVolume | None:
    """The volume to bind the claim to now. `waits` if it waits for a pod that has no node yet."""
    there = list(volumes)
    if claim.spec.volume_name:
        named = [v for v in there if v.metadata.name == claim.spec.volume_name]
        return next((v for v in named if _may_have(claim, v)), None)
    meant = [v for v in there if references_claim(v.spec.claim_ref, claim) and _suits(claim, v)]
    if meant:
        return next((v for v in meant if _reaches(v, node)), None)
    if waits:
        return None
    fitting = [v for v in there if _is_free(v) and _fits(claim, v) and _reaches(v, node)]
    return min(fitting, key=lambda v: (_size(v), v.metadata.name), default=None)


def reach_of_new(
    cls: StorageClass, node: Node | None, csi_node: CSINode | None
) -> list[NodeSelectorTerm]:
    """The node affinity of a volume provisioned for a claim of the class: the node's topology by the
    labels of its driver; without a node, the class's allowed topologies. Empty if it is accessible
    everywhere.
    """
    allowed = cls.allowed_terms()
    if node is None:
        return allowed
    drivers = csi_node.spec.drivers if csi_node is not None else []
    keys: Sequence[str] = next((d.topology_keys for d in drivers if d.name == cls.provisioner), [])
    if not keys:
        keys = sorted({e.key for term in allowed for e in term.match_expressions})
    place = [
        NodeSelectorRequirement(key=key, operator="In", values=[node.metadata.labels[key]])
        for key in keys
        if key in node.metadata.labels
    ]
    return [NodeSelectorTerm(match_expressions=place)] if place else []


def _may_have(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Whether a claim with a volumeName can be bound to that volume."""
    if volume.spec.claim_ref is not None:
        return references_claim(volume.spec.claim_ref, claim)
    return _suits(claim, volume) and volume_class(volume) == claim_class(claim)


def _suits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Requirements that hold even for a volume whose claimRef is the claim."""
    wanted, offer = claim.spec, volume.spec
    return (
        volume.metadata.deletion_timestamp is None
        and _size(volume) >= parse(wanted.resources.requests.get(names.STORAGE, 0))
        and (offer.volume_mode or _FILESYSTEM) == (wanted.volume_mode or _FILESYSTEM)
        and set(wanted.access_modes) <= set(offer.access_modes)
        and (offer.volume_attributes_class_name or "") == (wanted.volume_attributes_class_name or "")
    )


def _fits(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    selector = claim.spec.selector
    return (
        _suits(claim, volume)
        and volume_class(volume) == claim_class(claim)
        and (selector is None or matches(selector, volume.metadata.labels))
    )


def _is_free(volume: PersistentVolume) -> bool:
    return volume.spec.claim_ref is None and volume.status.phase in ("", "Available")


def _reaches(volume: PersistentVolume, node: Node | None) -> bool:
    affinity = volume.spec.node_affinity
    required: NodeSelector | None = affinity.required if affinity is not None else None
    if node is None or required is None:
        return True
    return match_node_selector(required, node.metadata.labels, node.metadata.name)


def _size(volume: PersistentVolume) -> int:
    return parse(volume.spec.capacity.get(names.STORAGE, 0))
