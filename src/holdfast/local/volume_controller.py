"""The volume controllers: binding of claims, provisioning, expansion, and claims of ephemeral volumes.

The controllers act at once. Why a claim is not bound is emitted as an event, in the words of
kube-controller-manager, and again only when it changes.
"""

import msgspec

from holdfast.api import names
from holdfast.api.decode import convert
from holdfast.api.node import Node
from holdfast.api.quantity import parse
from holdfast.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from holdfast.local.component import ObjectWriter, Steps, key_of
from holdfast.local.store.objects import Key, Raw, node_key
from holdfast.local.stored_events import StoredEvents
from holdfast.local.volume_binding import (
    FAILED,
    WAIT,
    BindingObstacle,
    reach_of_new,
    volume_for,
    volume_obstacle,
)
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef
from holdfast.scheduler.managers.volumes.volume_objects import (
    default_class,
)

LOST = "Lost"
_KINDS = frozenset(("PersistentVolumeClaim", "PersistentVolume", "StorageClass"))


_SOURCE = "persistentvolume-controller"


class VolumeController:
    """Applies the binding rules below to the store."""

    def __init__(self, objects: ObjectWriter, recorder: StoredEvents) -> None:
        self._objects = objects
        self._recorder = recorder
        self._stale = False
        self._reported: dict[Key, tuple[str, BindingObstacle]] = {}
        """The uid of each claim that is not bound, and its last event."""
        self._consumers: dict[Key, dict[str, None]] = {}
        """By claim, the pods that wait for a node."""
        self._changed_consumers: dict[Key, None] = {}
        """Claims whose pods are others now."""
        self._new_pods: list[Key] = []
        """Pods with generic ephemeral volumes that are new, or lost a claim: claims are created."""
        self._left: list[Raw] = []
        """Pods that are gone, and whose own claims go with them."""

    def changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        if key.kind in _KINDS:
            self._stale = True
            if key.kind == "PersistentVolumeClaim" and after is None and before is not None:
                self._new_pods += _owning_pods(before)
            if key.kind == "PersistentVolumeClaim" and (after is None or _bound(after)):
                self._reported.pop(key, None)
            return
        pod = after if after is not None else before
        if key.kind != "Pod" or pod is None or not pod["spec"].get("volumes"):
            return
        self._note_consumer(key, pod, gone=after is None)
        if not any(volume.get("ephemeral") for volume in pod["spec"]["volumes"]):
            return
        if before is None:
            self._new_pods.append(key)
        elif after is None:
            self._left.append(pod)

    def _note_consumer(self, key: Key, pod: Raw, gone: bool) -> None:
        waits = not gone and not pod["spec"].get("nodeName") and _is_unschedulable(pod)
        for name in _claims_of(pod):
            claim = _claim_key(key.namespace, name)
            consumers = self._consumers.get(claim, {})
            if waits and key.name not in consumers:
                self._consumers.setdefault(claim, {})[key.name] = None
            elif not waits and key.name in consumers:
                del consumers[key.name]
                if not consumers:
                    del self._consumers[claim]
            else:
                continue
            self._changed_consumers[claim] = None

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
        changed, self._changed_consumers = self._changed_consumers, {}
        for key in changed:
            claim = self._objects.get(key)
            if claim is not None and not _bound(claim) and self._waits(claim):
                self._report(claim, waits=True)
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
                waits = self._waits(claim)
                node = self._selected_node(claim) if self._mode(claim) == WAIT else None
                if not self._bind(claim, node, waits):
                    self._report(claim, waits)
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

    def _waits(self, claim: Raw) -> bool:
        """Whether the claim is to be bound once its pod has a node, and that has none yet."""
        return self._mode(claim) == WAIT and self._selected_node(claim) is None

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
        name = self._default_class()
        if not name:
            return claim
        return self._put({**claim, "spec": {**claim["spec"], "storageClassName": name}})

    def _default_class(self) -> str:
        """The name of the default storage class, or nothing."""
        found = self._objects.scan("storage.k8s.io", "StorageClass")
        return default_class([convert(raw, StorageClass) for raw in found])

    def _bind(self, claim: Raw, node: Raw | None, waits: bool = False) -> bool:
        """Whether it is bound now."""
        wanted = convert(claim, PersistentVolumeClaim)
        volumes = {raw["metadata"]["name"]: raw for raw in self._objects.scan("", "PersistentVolume")}
        there = [convert(raw, PersistentVolume) for raw in volumes.values()]
        on = None if node is None else convert(node, Node)
        found = volume_for(wanted, there, on, waits)
        if found is not None:
            volume: Raw | None = volumes[found.metadata.name]
        elif waits or wanted.spec.volume_name:
            return False
        else:
            volume = self._provisioned(claim, on)
        if volume is None:
            return False
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
        return True

    def _report(self, claim: Raw, waits: bool) -> None:
        """Emits why the claim is not bound, unless that was its last event."""
        key, uid, found = key_of(claim), claim["metadata"]["uid"], self._obstacle(claim, waits)
        if found is not None and self._reported.get(key) != (uid, found):
            self._reported[key] = uid, found
            self._emit(claim, found.type, found.reason, found.message)

    def _obstacle(self, claim: Raw, waits: bool) -> BindingObstacle | None:
        """Why the claim is not bound; None where kube-controller-manager does not say."""
        wanted = convert(claim, PersistentVolumeClaim)
        if name := wanted.spec.volume_name:
            raw = self._objects.get(Key("", "PersistentVolume", "", name))
            return None if raw is None else volume_obstacle(wanted, convert(raw, PersistentVolume))
        if waits:
            pods = sorted(self._consumers.get(key_of(claim), ()))
            if pods:
                called = f"pod{'s' if len(pods) > 1 else ''} {','.join(pods)}"
                message = f"waiting for {called} to be scheduled"
                return BindingObstacle("WaitForPodScheduled", message, "Normal")
            message = "waiting for first consumer to be created before binding"
            return BindingObstacle(WAIT, message, "Normal")
        if class_name := _class_name(claim):
            cls = self._class(claim)
            if cls is None:
                message = f'storageclass.storage.k8s.io "{class_name}" not found'
            else:
                message = f"no volume plugin matched name: {cls.provisioner}"
            return BindingObstacle("ProvisioningFailed", message)
        message = "no persistent volumes available for this claim and no storage class is set"
        return BindingObstacle(FAILED, message, "Normal")

    def _emit(self, claim: Raw, type: str, reason: str, message: str, source: str = _SOURCE) -> None:
        metadata = claim["metadata"]
        about = ObjectRef(
            "PersistentVolumeClaim", metadata["namespace"], metadata["name"], metadata["uid"], "v1"
        )
        self._recorder.emit(Emit(about, type, reason, message), source)

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
        name = f"pvc-{claim['metadata']['uid']}"
        success = f"Successfully provisioned volume {name}"
        self._emit(claim, "Normal", "ProvisioningSucceeded", success, cls.provisioner)
        return self._objects.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {
                    "name": name,
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
        volume = self._objects.get(Key("", "PersistentVolume", "", name))
        if volume is not None:
            if lost:
                self._bind(claim, None)
            else:
                self._expand(claim, volume)
        elif not lost:
            self._put({**claim, "status": {**status, "phase": LOST}})
            lacks = "its PersistentVolume" if name else "reference to PersistentVolume"
            message = f"Bound claim has lost {lacks}. Data on the volume is lost!"
            self._emit(claim, "Warning", "ClaimLost", message)

    def _expand(self, claim: Raw, volume: Raw) -> None:
        """A provisioner makes its volume larger if the claim requests more and the class allows it."""
        status, cls = claim.get("status") or {}, self._class(claim)
        wanted = ((claim["spec"].get("resources") or {}).get("requests") or {}).get(names.STORAGE)
        if wanted is None or wanted == (status.get("capacity") or {}).get(names.STORAGE):
            return
        if cls is None or not cls.allow_volume_expansion or cls.provisioner == names.NO_PROVISIONER:
            return
        size = parse(wanted)
        source, name = f"external-resizer {cls.provisioner}", volume["metadata"]["name"]
        offered = volume["spec"].get("capacity") or {}
        if size > parse(offered.get(names.STORAGE, 0)):
            message = f"External resizer is resizing volume {name}"
            self._emit(claim, "Normal", "Resizing", message, source)
            offered = {**offered, names.STORAGE: wanted}
            self._put({**volume, "spec": {**volume["spec"], "capacity": offered}})
        if size > parse((status.get("capacity") or {}).get(names.STORAGE, 0)):
            self._put({**claim, "status": {**status, "capacity": offered}})
            message = "Resize volume succeeded"
            self._emit(claim, "Normal", "VolumeResizeSuccessful", message, source)

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
            spec = dict(template.get("spec") or {})
            if spec.get("storageClassName") is None and (default := self._default_class()):
                spec["storageClassName"] = default
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
                    "spec": spec,
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


def _is_unschedulable(pod: Raw) -> bool:
    """Whether a scheduler has found no node for the pod."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        each.get("type") == "PodScheduled" and each.get("status") == "False" for each in conditions
    )


def _class_name(claim: Raw) -> str:
    return str((claim.get("spec") or {}).get("storageClassName") or "")


def _bound(claim: Raw) -> bool:
    return names.BIND_COMPLETED_ANNOTATION in (claim["metadata"].get("annotations") or {})
