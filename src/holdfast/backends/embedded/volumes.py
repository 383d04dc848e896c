"""Claims and their volumes, as the volume controller and provisioners bring them together.

A claim whose class says `WaitForFirstConsumer` gets its volume when a pod that uses it is bound, on
that pod's node; any other as soon as a fitting volume is there. Where none is there and the class has
a provisioner, a volume is made.
"""

from holdfast.api import names
from holdfast.api.decode import convert
from holdfast.api.quantity import parse
from holdfast.api.selectors import match_node_selector, matches
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from holdfast.backends.embedded.objects import Objects
from holdfast.store.objects import Key, Raw

WAIT = "WaitForFirstConsumer"


class Volumes:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._stale = False

    def changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        kinds = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")
        self._stale = self._stale or (after is not None and key.kind in kinds)

    def settle(self) -> None:
        """Binds claims that wait for no one."""
        if not self._stale:
            return
        self._stale = False
        for claim in self._objects.scan("", "PersistentVolumeClaim"):
            if not _bound(claim) and self._mode(claim) != WAIT:
                self._bind(claim, None)

    def pod_bound(self, pod: Raw, node: Raw | None) -> None:
        """Binds the claims of a pod that waited for it to have a node."""
        for name in _claims_of(pod):
            key = Key("", "PersistentVolumeClaim", pod["metadata"]["namespace"], name)
            claim = self._objects.get(key)
            if claim is not None and not _bound(claim):
                self._bind(claim, node)

    def _mode(self, claim: Raw) -> str:
        cls = self._class(claim)
        return str(cls.get("volumeBindingMode") or "") if cls else ""

    def _class(self, claim: Raw) -> Raw | None:
        name = _class_name(claim)
        return self._objects.get(Key("storage.k8s.io", "StorageClass", "", name)) if name else None

    def _bind(self, claim: Raw, node: Raw | None) -> None:
        volume = self._fitting(claim, node)
        if volume is None:
            volume = self._provisioned(claim)
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
        self._objects.update(
            Key("", "PersistentVolume", "", volume["metadata"]["name"]),
            {
                **volume,
                "spec": {**volume["spec"], "claimRef": reference},
                "status": {**(volume.get("status") or {}), "phase": "Bound"},
            },
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
        self._objects.update(
            Key("", "PersistentVolumeClaim", metadata["namespace"], metadata["name"]),
            {
                **claim,
                "metadata": {**metadata, "annotations": annotations},
                "spec": spec,
                "status": status,
            },
        )

    def _fitting(self, claim: Raw, node: Raw | None) -> Raw | None:
        """The smallest volume that will do; the one bound to the claim beforehand above all."""
        wanted = convert(claim, PersistentVolumeClaim)
        found: list[tuple[bool, int, str, Raw]] = []
        for raw in self._objects.scan("", "PersistentVolume"):
            volume = convert(raw, PersistentVolume)
            if _fits(wanted, volume, node):
                size = parse(volume.spec.capacity.get("storage", 0))
                ours = volume.spec.claim_ref is not None
                found.append((not ours, size, volume.metadata.name, raw))
        return min(found, key=lambda each: each[:3])[3] if found else None

    def _provisioned(self, claim: Raw) -> Raw | None:
        cls = self._class(claim)
        provisioner = cls.get("provisioner") if cls else None
        if not provisioner or provisioner == names.NO_PROVISIONER:
            return None
        spec = claim["spec"]
        return self._objects.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {
                    "name": f"pvc-{claim['metadata']['uid']}",
                    "annotations": {names.PROVISIONED_BY_ANNOTATION: provisioner},
                },
                "spec": {
                    "accessModes": spec.get("accessModes") or [],
                    "capacity": dict((spec.get("resources") or {}).get("requests") or {}),
                    "storageClassName": _class_name(claim),
                    "persistentVolumeReclaimPolicy": "Delete",
                    "csi": {"driver": provisioner, "volumeHandle": claim["metadata"]["uid"]},
                },
                "status": {"phase": "Available"},
            }
        )


def _fits(claim: PersistentVolumeClaim, volume: PersistentVolume, node: Raw | None) -> bool:
    spec = volume.spec
    if claim.spec.volume_name and claim.spec.volume_name != volume.metadata.name:
        return False
    if spec.claim_ref is not None:
        ref = spec.claim_ref
        same = (ref.namespace, ref.name) == (claim.metadata.namespace, claim.metadata.name)
        if not same or (ref.uid and ref.uid != claim.metadata.uid):
            return False
    if volume.status.phase not in ("", "Available") or volume.metadata.deletion_timestamp:
        return False
    if spec.storage_class_name != (claim.spec.storage_class_name or ""):
        return False
    if (spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
        return False
    if not set(claim.spec.access_modes) <= set(spec.access_modes):
        return False
    wanted = parse(claim.spec.resources.requests.get("storage", 0))
    if parse(spec.capacity.get("storage", 0)) < wanted:
        return False
    if claim.spec.selector is not None and not matches(claim.spec.selector, volume.metadata.labels):
        return False
    affinity = spec.node_affinity.required if spec.node_affinity is not None else None
    if node is None or affinity is None:
        return True
    labels = node["metadata"].get("labels") or {}
    return match_node_selector(affinity, labels, node["metadata"]["name"])


def _claims_of(pod: Raw) -> list[str]:
    """By name, those of ephemeral volumes included."""
    claims = []
    for volume in pod["spec"].get("volumes") or []:
        if volume.get("persistentVolumeClaim"):
            claims.append(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral"):
            claims.append(f"{pod['metadata']['name']}-{volume['name']}")
    return claims


def _class_name(claim: Raw) -> str:
    return str((claim.get("spec") or {}).get("storageClassName") or "")


def _bound(claim: Raw) -> bool:
    return bool((claim.get("status") or {}).get("phase") == "Bound")
