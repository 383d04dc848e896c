"""Removes from objects what scheduling does not read, so that nothing private leaves the cluster.

What stays is listed; everything else goes. Of containers stay names, images, resources and ports: no
environment, commands, arguments, probes or mounts. A volume of a Secret, a ConfigMap or a path of the
host becomes an empty directory. Annotations stay if Holdfast or a workload controller reads them, or if
they are asked for by name. Opaque parameters of devices and storage go; so do messages that a container
writes at its end. Kinds of which nothing is private, such as Queues, stay as they are, but for their
metadata.

Two revisions of a template may differ only in what was removed. A template therefore gets an annotation
with a digest of what it was. The key of the digest is random and not kept, so that nothing can be
guessed from it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Collection, Iterable
from types import GenericAlias
from typing import Any

import msgspec

from holdfast.api import names as n
from holdfast.kube.object_client import Raw

TEMPLATE_DIGEST = "holdfast.io/template-digest"

_ANNOTATION_DOMAINS = ("koordinator.sh", "volcano.sh", "holdfast.io")
"""Annotations of these domains and of those below them are read by Holdfast."""
_ANNOTATIONS = frozenset(
    {
        n.BIND_COMPLETED_ANNOTATION,
        n.BOUND_BY_CONTROLLER_ANNOTATION,
        n.DEFAULT_STORAGE_CLASS_ANNOTATION,
        n.DELETION_COST_ANNOTATION,
        n.EXTENDED_RESOURCE_CLAIM_ANNOTATION,
        n.GROUP_NAME_ANNOTATION,
        n.LIGHT_GROUP_MATCH_POLICY,
        n.LIGHT_GROUP_MIN_AVAILABLE,
        n.LIGHT_GROUP_NAME,
        n.MIGRATED_PLUGINS_ANNOTATION,
        n.MIRROR_POD_ANNOTATION,
        n.POD_CLAIM_NAME_ANNOTATION,
        n.POD_GROUP_LABEL,
        n.PROVISIONED_BY_ANNOTATION,
        n.SELECTED_NODE_ANNOTATION,
        n.STORAGE_CLASS_ANNOTATION,
        "batch.kubernetes.io/cronjob-scheduled-timestamp",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-index-failure-count",
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deployment.kubernetes.io/revision",
        "storageclass.beta.kubernetes.io/is-default-class",
    }
)

_METADATA = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "ownerReferences",
    "finalizers",
)
_CONTAINER = ("name", "image", "resources", "restartPolicy", "restartPolicyRules", "resizePolicy")
_PORT = ("name", "containerPort", "hostPort", "hostIP", "protocol")
_POD_SPEC = (
    "nodeName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "schedulerName",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "overhead",
    "resources",
    "resourceClaims",
    "schedulingGates",
    "schedulingGroup",
    "hostNetwork",
    "hostIPC",
    "hostPID",
    "hostUsers",
    "restartPolicy",
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "runtimeClassName",
    "os",
)
_POD_STATUS = (
    "phase",
    "reason",
    "conditions",
    "nominatedNodeName",
    "startTime",
    "observedGeneration",
    "qosClass",
    "resize",
    "resources",
    "allocatedResources",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
)
_CONTAINER_STATUS = ("name", "ready", "started", "restartCount", "resources", "allocatedResources")
_STATE_TIMES = ("startedAt", "finishedAt", "exitCode", "reason")
_NODE_SPEC = ("unschedulable", "taints")
_NODE_STATUS = (
    "allocatable",
    "capacity",
    "conditions",
    "images",
    "volumesAttached",
    "volumesInUse",
    "declaredFeatures",
)
_VOLUME_SOURCES = {
    "persistentVolumeClaim": ("claimName", "readOnly"),
    "gcePersistentDisk": ("pdName", "partition", "readOnly", "fsType"),
    "awsElasticBlockStore": ("volumeID", "partition", "readOnly", "fsType"),
    "azureDisk": ("diskName", "diskURI", "kind", "cachingMode", "readOnly", "fsType"),
    "cinder": ("volumeID", "readOnly", "fsType"),
    "iscsi": ("targetPortal", "iqn", "lun", "readOnly", "fsType"),
    "rbd": ("monitors", "image", "pool", "readOnly", "fsType"),
    "csi": ("driver", "volumeHandle", "readOnly", "fsType"),
}
"""Sources of volumes that scheduling reads, for pods and PersistentVolumes."""
_LOCAL_PATH = {"path": "/mnt"}
_VOLUME_SPEC = (
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
)
_STORAGE_CLASS = (
    "provisioner",
    "reclaimPolicy",
    "volumeBindingMode",
    "allowVolumeExpansion",
    "allowedTopologies",
)
_VOLCANO_JOB = (
    "minAvailable",
    "queue",
    "schedulerName",
    "priorityClassName",
    "runningEstimate",
    "maxRetry",
    "ttlSecondsAfterFinished",
)


REVISED = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
"""Kinds whose pods are compared with the template."""


class Stripper:
    """Strips objects of one cluster; equal templates get equal digests.

    Without digests it is for manifests that are applied to stripped objects: a manifest leaves out what
    the server has filled in, so that its digest would be another.
    """

    def __init__(self, keep_annotations: Collection[str] = (), *, digests: bool = True) -> None:
        self._digests = digests
        self._kept = _ANNOTATIONS | frozenset(keep_annotations)
        self._key = secrets.token_bytes(32)
        self._encode = msgspec.json.Encoder(order="deterministic").encode
        self._by_kind: dict[tuple[str, str], Callable[[Raw], Raw]] = {
            ("", "Pod"): self._pod,
            ("", "Node"): self._node,
            ("", "Namespace"): self._namespace,
            ("", "Service"): self._service,
            ("", "PersistentVolume"): self._volume,
            ("", "PersistentVolumeClaim"): self._claim,
            ("", "ReplicationController"): self._workload,
            ("apps", "ReplicaSet"): self._workload,
            ("apps", "StatefulSet"): self._workload,
            ("apps", "Deployment"): self._workload,
            ("apps", "DaemonSet"): self._workload,
            ("batch", "Job"): self._workload,
            ("batch", "CronJob"): self._cron_job,
            ("batch.volcano.sh", "Job"): self._volcano_job,
            ("scheduling.koordinator.sh", "Reservation"): self._workload,
            ("scheduling.koordinator.sh", "PodMigrationJob"): self._migration,
            ("scheduling.holdfast.io", "ReservationSchedule"): self._schedule,
            ("storage.k8s.io", "StorageClass"): _storage_class,
            ("storage.k8s.io", "VolumeAttachment"): _attachment,
            ("scheduling.k8s.io", "PriorityClass"): _without("description"),
            ("resource.k8s.io", "ResourceClaim"): _device_claim,
            ("resource.k8s.io", "ResourceClaimTemplate"): self._claim_template,
            ("resource.k8s.io", "DeviceClass"): _device_class,
        }

    def strip(self, raw: Raw) -> Raw:
        strip = self._by_kind.get((raw["apiVersion"].rpartition("/")[0], raw["kind"]))
        if strip is not None:
            raw = strip(raw)
        return {**raw, "metadata": self._metadata(raw["metadata"])}

    def _metadata(self, metadata: Raw) -> Raw:
        kept = _only(metadata, _METADATA)
        annotations = metadata.get("annotations")
        if annotations:
            stay = {key: value for key, value in annotations.items() if self._is_kept(key)}
            if n.RESERVATION_TEMPLATE in stay:
                stay[n.RESERVATION_TEMPLATE] = self._embedded(stay[n.RESERVATION_TEMPLATE])
            if stay:
                kept["annotations"] = stay
        return kept

    def _is_kept(self, annotation: str) -> bool:
        if annotation in self._kept:
            return True
        domain = annotation.partition("/")[0]
        return any(domain == each or domain.endswith(f".{each}") for each in _ANNOTATION_DOMAINS)

    def _embedded(self, text: str) -> str:
        """A reservation in an annotation of a pod; as it is if it is none."""
        try:
            found = msgspec.json.decode(text, type=Raw)
        except msgspec.MsgspecError:
            return text
        if isinstance(found.get("metadata"), dict):
            found["metadata"] = self._metadata(found["metadata"])
        spec = found.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("template"), dict):
            found["spec"] = {**spec, "template": self._template(spec["template"])}
        return msgspec.json.encode(found).decode()

    # Pods and templates

    def _pod(self, raw: Raw) -> Raw:
        status = raw.get("status") or {}
        kept = _only(status, _POD_STATUS)
        for part in ("containerStatuses", "initContainerStatuses"):
            if status.get(part):
                kept[part] = [_container_status(each) for each in status[part]]
        return {**raw, "spec": self._pod_spec(raw.get("spec") or {}), "status": kept}

    def _pod_spec(self, spec: Raw) -> Raw:
        kept = _only(spec, _POD_SPEC)
        for part in ("initContainers", "containers"):
            if spec.get(part):
                kept[part] = [_container(each) for each in spec[part]]
        if spec.get("volumes"):
            kept["volumes"] = [self._pod_volume(each) for each in spec["volumes"]]
        return kept

    def _pod_volume(self, volume: Raw) -> Raw:
        kept: Raw = {"name": volume.get("name")}
        if volume.get("ephemeral"):
            template = dict(volume["ephemeral"].get("volumeClaimTemplate") or {})
            template["metadata"] = self._metadata(template.get("metadata") or {})
            kept["ephemeral"] = {"volumeClaimTemplate": template}
            return kept
        for source, fields in _VOLUME_SOURCES.items():
            if volume.get(source):
                kept[source] = _only(volume[source], fields)
                return kept
        kept["emptyDir"] = {}
        return kept

    def _template(self, template: Raw, *, digest: bool = False) -> Raw:
        """A pod template; if asked for, with the digest of what it was if something was removed."""
        given, spec = template.get("metadata") or {}, template.get("spec") or {}
        metadata, kept = self._metadata(given), self._pod_spec(spec)
        private = (given.get("annotations") or {}, spec)  # labels differ between owners of one template
        if digest and private != (metadata.get("annotations", {}), kept):
            was = hashlib.blake2b(self._encode(private), key=self._key, digest_size=8).hexdigest()
            metadata["annotations"] = {**metadata.get("annotations", {}), TEMPLATE_DIGEST: was}
        return {**_only(template, ("apiVersion", "kind")), "metadata": metadata, "spec": kept}

    def _workload(self, raw: Raw) -> Raw:
        spec = dict(raw.get("spec") or {})
        if spec.get("template"):
            is_revised = self._digests and raw.get("kind") in REVISED
            spec["template"] = self._template(spec["template"], digest=is_revised)
        if spec.get("volumeClaimTemplates"):
            spec["volumeClaimTemplates"] = [
                {**each, "metadata": self._metadata(each.get("metadata") or {})}
                for each in spec["volumeClaimTemplates"]
            ]
        return {**raw, "spec": spec}

    def _cron_job(self, raw: Raw) -> Raw:
        spec = dict(raw.get("spec") or {})
        template = spec.get("jobTemplate") or {}
        metadata = self._metadata(template.get("metadata") or {})
        spec["jobTemplate"] = {**self._workload(template), "metadata": metadata}
        return {**raw, "spec": spec}

    def _volcano_job(self, raw: Raw) -> Raw:
        spec = raw.get("spec") or {}
        kept = _only(spec, _VOLCANO_JOB)
        kept["tasks"] = [
            {
                **_only(task, ("name", "replicas", "minAvailable", "maxRetry")),
                "template": self._template(task.get("template") or {}),
            }
            for task in spec.get("tasks") or ()
        ]
        return {**raw, "spec": kept}

    def _migration(self, raw: Raw) -> Raw:
        spec = dict(raw.get("spec") or {})
        options = spec.get("reservationOptions")
        if options and options.get("template"):
            template = self._reservation_template(options["template"])
            spec["reservationOptions"] = {**options, "template": template}
        return {**raw, "spec": spec}

    def _schedule(self, raw: Raw) -> Raw:
        spec = dict(raw.get("spec") or {})
        if spec.get("template"):
            spec["template"] = self._reservation_template(spec["template"])
        return {**raw, "spec": spec}

    def _reservation_template(self, template: Raw) -> Raw:
        return {**self._workload(template), "metadata": self._metadata(template.get("metadata") or {})}

    # Other kinds

    def _node(self, raw: Raw) -> Raw:
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        return {**raw, "spec": _only(spec, _NODE_SPEC), "status": _only(status, _NODE_STATUS)}

    def _namespace(self, raw: Raw) -> Raw:
        return {**raw, "status": _only(raw.get("status") or {}, ("phase",))}

    def _service(self, raw: Raw) -> Raw:
        """Its selector counts for spreading; the ports are required."""
        spec = raw.get("spec") or {}
        ports = [_only(each, ("name", "port", "protocol")) for each in spec.get("ports") or ()]
        kept = _only(spec, ("selector",))
        if ports:
            kept["ports"] = ports
        else:
            kept["clusterIP"] = "None"
        return {**{key: raw[key] for key in ("apiVersion", "kind", "metadata")}, "spec": kept}

    def _volume(self, raw: Raw) -> Raw:
        spec = raw.get("spec") or {}
        kept = _only(spec, _VOLUME_SPEC)
        kept.pop("mountOptions", None)
        for source, fields in _VOLUME_SOURCES.items():
            if spec.get(source):
                kept[source] = _only(spec[source], fields)
                break
        else:
            kept["local" if spec.get("local") else "hostPath"] = dict(_LOCAL_PATH)
        return {**raw, "spec": kept, "status": _only(raw.get("status") or {}, ("phase",))}

    def _claim(self, raw: Raw) -> Raw:
        spec = dict(raw.get("spec") or {})
        for field in ("dataSource", "dataSourceRef"):
            spec.pop(field, None)
        fields = ("phase", "accessModes", "capacity", "conditions")
        return {**raw, "spec": spec, "status": _only(raw.get("status") or {}, fields)}

    def _claim_template(self, raw: Raw) -> Raw:
        spec = dict(raw.get("spec") or {})
        if spec.get("metadata"):
            spec["metadata"] = self._metadata(spec["metadata"])
        if spec.get("spec"):
            spec["spec"] = _device_claim_spec(spec["spec"])
        return {**raw, "spec": spec}


# Pages of pods. What is removed is skipped while JSON is read: most of a pod is environment and managed
# fields.


def _shape(name: str, fields: Iterable[str], **typed: Any) -> Any:
    """A type with these fields, of any value or of the given type; those that are absent stay so."""
    every = [*((field, Any) for field in fields), *typed.items()]
    return msgspec.defstruct(name, [(field, type, msgspec.UNSET) for field, type in every])


def _pods_decoder() -> msgspec.json.Decoder[Any]:
    containers = GenericAlias(list, (_shape("_Container", (*_CONTAINER, "ports")),))
    pod = _shape(
        "_Pod",
        (),
        metadata=_shape("_Metadata", (*_METADATA, "annotations")),
        spec=_shape("_Spec", (*_POD_SPEC, "volumes"), containers=containers, initContainers=containers),
        status=_shape("_Status", (*_POD_STATUS, "containerStatuses", "initContainerStatuses")),
    )
    page = _shape("_Pods", ("metadata",), items=GenericAlias(list, (pod,)))
    return msgspec.json.Decoder(page)


_pods = _pods_decoder()


def decode_pods(data: bytes) -> Raw:
    """A page of a list of pods, without most of what `Stripper` removes."""
    try:
        page: Raw = msgspec.to_builtins(_pods.decode(data))
    except msgspec.ValidationError:
        page = msgspec.json.decode(data, type=Raw)
    return page


def _only(raw: Raw, fields: Collection[str]) -> Raw:
    return {field: raw[field] for field in fields if field in raw}


def _without(*fields: str) -> Callable[[Raw], Raw]:
    def strip(raw: Raw) -> Raw:
        return {key: value for key, value in raw.items() if key not in fields}

    return strip


def _container(container: Raw) -> Raw:
    kept = _only(container, _CONTAINER)
    if container.get("ports"):
        kept["ports"] = [_only(each, _PORT) for each in container["ports"]]
    return kept


def _container_status(status: Raw) -> Raw:
    kept = _only(status, _CONTAINER_STATUS)
    state = status.get("state")
    if state:
        kept["state"] = {name: _only(value or {}, _STATE_TIMES) for name, value in state.items()}
    return kept


def _storage_class(raw: Raw) -> Raw:
    return _only(raw, ("apiVersion", "kind", "metadata", *_STORAGE_CLASS))


def _attachment(raw: Raw) -> Raw:
    spec = _only(raw.get("spec") or {}, ("attacher", "nodeName", "source"))
    source: Any = spec.get("source") or {}
    spec["source"] = _only(source, ("persistentVolumeName",))
    return {**raw, "spec": spec, "status": _only(raw.get("status") or {}, ("attached",))}


def _device_claim(raw: Raw) -> Raw:
    found = {**raw, "spec": _device_claim_spec(raw.get("spec") or {})}
    status = dict(raw.get("status") or {})
    status.pop("devices", None)
    allocation = status.get("allocation")
    if allocation and allocation.get("devices"):
        devices = _without("config")(allocation["devices"])
        status["allocation"] = {**allocation, "devices": devices}
    if status:
        found["status"] = status
    return found


def _device_claim_spec(spec: Raw) -> Raw:
    if not spec.get("devices"):
        return spec
    return {**spec, "devices": _without("config")(spec["devices"])}


def _device_class(raw: Raw) -> Raw:
    return {**raw, "spec": _without("config")(raw.get("spec") or {})}
