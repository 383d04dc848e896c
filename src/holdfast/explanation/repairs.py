"""Changes that may remove what keeps a pod off a node, by the plugin that rejects the node.

They are only proposed here; `advice` asks the scheduler whether they help.
"""

import json
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import NamedTuple

from holdfast.api.affinity import NodeSelectorRequirement, Taint
from holdfast.api.annotations import limit_to_allocatable
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import (
    DEVICE_ALLOCATE_HINT,
    HOSTNAME_LABEL,
    LIMIT_TO_ALLOCATABLE,
    NUMA_TOPOLOGY_SPEC,
    TAINT_UNSCHEDULABLE,
)
from holdfast.api.selectors import node_requirement, tolerated
from holdfast.explanation.numa_alignment import has_no_numa_nodes, wider_policies
from holdfast.explanation.pod_sizes import Sizes
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.class_key import (
    RESTART_ALL_CONTAINERS,
    USER_NAMESPACES_ON_HOST_NETWORK,
    required_terms,
)
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.diagnosis import NodeRejection
from holdfast.snapshot.cluster_changes import ClusterChange, ObjectChange, create, patch
from holdfast.snapshot.cluster_snapshot import NODE, POD, RESERVATION, ClusterSnapshot

_LIFECYCLE = "node.kubernetes.io/"
"""Taints of this prefix say that the node cannot be used now; tolerating one does not help."""
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
KEEPING_OUT = ("NoSchedule", "NoExecute")
_DISCOVERED = ("kubernetes.io", "nvidia.com", "amd.com", "intel.com", "amazonaws.com", "google.com")
"""Domains of labels that kubelets, clouds and device plugins set to describe a node."""
_ROLES = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")
"""Domains among them whose labels administrators set."""
VALUE = "VALUE"
"""Stands for a label value that the user has to choose."""


Edit = Callable[[Raw], Raw]
"""Returns the merge patch for a pod's spec."""


class Repair(NamedTuple):
    text: str
    change: ClusterChange
    cost: int
    sizes: Sizes = MappingProxyType({})
    """The requests that it changes, if it changes nothing else."""


WAIT, CONFIGURE, RESIZE, DELETE_RESERVATION, EVICT = range(5)
"""The costs of changes, cheapest first."""


def repair(text: str, action: str, objects: list[ObjectChange], cost: int = CONFIGURE) -> Repair:
    return Repair(text, ClusterChange((action,), tuple(objects)), cost)


# Editing the pods


def spec_changes(snapshot: ClusterSnapshot, subject: Subject, edit: Edit) -> list[ObjectChange]:
    """Patches of the spec of the pod, and of all waiting pods of its job that are like it; for a
    reservation, of its template. `edit` returns the patch for a spec."""
    if subject.info is RESERVATION:
        raw = subject.raw(snapshot)
        template = (raw.get("spec") or {}).get("template") or {}
        body = {"spec": {"template": {"spec": edit(template.get("spec") or {})}}}
        return [patch(RESERVATION, raw, body)]
    found: dict[str, ObjectChange] = {}
    pods = []
    for raw in _alike(snapshot, subject):
        spec = raw.get("spec") or {}
        workload = workload_of(snapshot, raw)
        if workload is not None:
            template = {"spec": edit(workload.pod_spec or _as_written(spec))}
            found[workload.name] = workload.change(template)
        pods.append(patch(POD, raw, {"spec": edit(spec)}, follows=workload is not None))
    return [*found.values(), *pods]


def remove_gates(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> Repair:
    """The pods, or reservations, without their scheduling gates. Unlike most of a pod's spec, these can
    be removed from an existing pod."""
    gates = ", ".join(dict.fromkeys(gate for pod in pods for gate in pod.gates))
    whose = f" of {few([f'{pod.namespace}/{pod.name}' for pod in pods], 3)}"
    body: Raw = {"spec": {"schedulingGates": None}}
    objects = []
    for subject in map(Subject.of, pods):
        raw = subject.raw(snapshot)
        change = {"spec": {"template": body}} if subject.info is RESERVATION else body
        objects.append(patch(subject.info, raw, change))
    return repair(f"remove the scheduling gates {gates}{whose}", "RemoveGates", objects)


def metadata_changes(snapshot: ClusterSnapshot, subject: Subject, body: Raw) -> list[ObjectChange]:
    """Patches of the pod's metadata, and of pods of its job that are like it."""
    if subject.info is RESERVATION:
        return [patch(RESERVATION, subject.raw(snapshot), {"metadata": body})]
    pods = list(_alike(snapshot, subject))
    workloads = {
        each.name: each.change({"metadata": body})
        for raw in pods
        if (each := workload_of(snapshot, raw)) is not None and each.info.kind not in IMMUTABLE
    }
    return [*workloads.values(), *(patch(POD, raw, {"metadata": body}) for raw in pods)]


def _alike(snapshot: ClusterSnapshot, subject: Subject) -> Iterator[Raw]:
    pod = subject.record(snapshot)
    job = snapshot.cluster.jobs.of(pod) if pod is not None else None
    pods = [pod] if job is None or pod is None else [m for m in job.waiting() if m.cls is pod.cls]
    for each in pods:
        if each is not None and each.reservation is None:
            raw = snapshot.find(POD, each.name, each.namespace)
            if raw is not None:
                yield raw


# Workloads

IMMUTABLE = ("Job",)
"""Workloads whose template cannot be changed."""
_TEMPLATED = {
    kind: KINDS["batch/v1" if kind == "Job" else "apps/v1", kind]
    for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
}
_TOKEN = "kube-api-access-"
"""The prefix of the volume that the API server adds to every pod."""


class PodOwner(NamedTuple):
    """The object whose template a pod was made from."""

    info: KindInfo
    name: str
    namespace: str
    pod_spec: Raw
    """The spec of its template; empty if it is not known."""

    def change(self, template: Raw) -> ObjectChange:
        """A merge patch of its template."""
        raw = {"metadata": {"name": self.name, "namespace": self.namespace}}
        return patch(self.info, raw, {"spec": {"template": template}})


def workload_of(snapshot: ClusterSnapshot, raw: Raw) -> PodOwner | None:
    """The Deployment, or other workload, that made the pod; None if nothing did that has a template."""
    owner, namespace = _controller(raw), raw["metadata"].get("namespace") or ""
    info = _TEMPLATED.get(owner.get("kind") or "")
    if info is None or info.api_version != owner.get("apiVersion"):
        return None
    found = snapshot.find(info, owner["name"], namespace)
    template = ((found or {}).get("spec") or {}).get("template") or {}
    spec = template.get("spec") or {}
    above = _controller(found or {"metadata": {}})
    if info.kind == "ReplicaSet" and above.get("kind") == "Deployment":
        return PodOwner(_TEMPLATED["Deployment"], above["name"], namespace, spec)
    return PodOwner(info, owner["name"], namespace, spec)


def _controller(raw: Raw) -> Raw:
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((each for each in owners if each.get("controller")), {})


def _as_written(spec: Raw) -> Raw:
    """A pod's spec without the mounts that the API server adds."""
    found = dict(spec)
    for field in ("containers", "initContainers"):
        if field in spec:
            found[field] = [
                {
                    **each,
                    "volumeMounts": [
                        mount
                        for mount in each["volumeMounts"]
                        if not str(mount.get("name")).startswith(_TOKEN)
                    ],
                }
                if each.get("volumeMounts")
                else each
                for each in spec[field]
            ]
    return found


def workload_text(change: ClusterChange) -> str:
    """`, in the template of Deployment web`; empty if no template is changed."""
    for each in change.objects:
        if each.info is not _TEMPLATED.get(each.info.kind):
            continue
        again = f" (delete the {each.info.kind} and create it again)"
        more = again if each.info.kind in IMMUTABLE else ""
        return f", in the template of {each.info.kind} {each.name}{more}"
    return ""


# Node filters


def node_repairs(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int, rejection: NodeRejection
) -> list[Repair]:
    """The configuration changes that may make the plugin accept the node; none for what only capacity
    or time can change."""
    make = _BY_PLUGIN.get(rejection.plugin)
    return make(snapshot, subject, pod, row) if make is not None else []


def settings_repairs(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> list[Repair]:
    """The changes that together remove what settings of a node keep the pod off it: a cordon, taints
    and labels."""
    raw = snapshot.find(NODE, snapshot.cluster.nodes.name(row)) or {}
    found: list[Repair] = []
    if (raw.get("spec") or {}).get("unschedulable"):
        found += _uncordon(snapshot, subject, pod, row)
    else:
        found += _tolerate(snapshot, subject, pod, row)
    if any(unmet_labels(snapshot, pod, row)):
        found += _label(snapshot, subject, pod, row)[:1]
    return found


def _uncordon(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int) -> list[Repair]:
    name = snapshot.cluster.nodes.name(row)
    raw = snapshot.find(NODE, name)
    return [uncordoned(raw)] if raw is not None else []


def uncordoned(raw: Raw) -> Repair:
    name, taints = raw["metadata"]["name"], (raw.get("spec") or {}).get("taints") or []
    left = [each for each in taints if each.get("key") != TAINT_UNSCHEDULABLE]
    body = {"spec": {"unschedulable": False, "taints": left}}
    return repair(f"uncordon {name} (kubectl uncordon {name})", "Uncordon", [patch(NODE, raw, body)])


def untolerated(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[Taint]:
    """The taints of a node that keep the pod off it."""
    return [
        taint
        for taint in snapshot.cluster.nodes.info[row].taints
        if taint.effect in KEEPING_OUT and not tolerated(taint, pod.cls.tolerations)
    ]


def _tolerate(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int) -> list[Repair]:
    taints = untolerated(snapshot, pod, row)
    if not taints or any(is_lifecycle(taint) for taint in taints):
        return []
    added = [
        {"key": each.key, "operator": "Equal", "value": each.value or "", "effect": each.effect}
        for each in taints
    ]
    texts = " and ".join(sorted(taint_text(each) for each in taints))
    edit = lambda spec: {"tolerations": [*(spec.get("tolerations") or ()), *added]}  # noqa: E731
    cost = RESIZE if any(each.key in _CONTROL_PLANE for each in taints) else CONFIGURE
    return [repair(f"tolerate {texts}", "Tolerate", spec_changes(snapshot, subject, edit), cost)]


def is_lifecycle(taint: Taint) -> bool:
    """Whether the taint says that its node is not ready, under pressure or being shut down."""
    return taint.key.startswith(_LIFECYCLE) and taint.key != TAINT_UNSCHEDULABLE


def taint_text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def unmet_labels(
    snapshot: ClusterSnapshot, pod: PodRecord, row: int
) -> tuple[dict[str, str], list[NodeSelectorRequirement]]:
    """What the pod's node selector and the affinity term that is closest to being met require and the
    node does not have: labels, and expressions."""
    labels = snapshot.cluster.nodes.info[row].labels
    selector = {key: value for key, value in pod.cls.node_selector.items() if labels.get(key) != value}
    best: list[NodeSelectorRequirement] | None = None
    for term in required_terms(pod.cls.affinity) if pod.cls.affinity is not None else ():
        unmet = [each for each in term.match_expressions if not node_requirement(each).matches(labels)]
        if term.match_fields:
            continue
        if best is None or len(unmet) < len(best):
            best = unmet
    return selector, best or []


def _label(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int) -> list[Repair]:
    name = snapshot.cluster.nodes.name(row)
    raw = snapshot.find(NODE, name)
    selector, unmet = unmet_labels(snapshot, pod, row)
    labels: dict[str, str] = dict(selector)
    for each in unmet:
        if each.operator == "In" and each.values:
            labels[each.key] = each.values[0]
        elif each.operator == "Exists":
            labels[each.key] = VALUE
        elif each.operator == "Gt":
            labels[each.key] = str(int(each.values[0]) + 1)
        elif each.operator == "Lt":
            labels[each.key] = str(int(each.values[0]) - 1)
        else:
            return []
    if raw is None or not labels or HOSTNAME_LABEL in labels:
        return []
    # A label that says what a node is would be wrong on another one.
    if any(_is_discovered(key) for key in labels):
        return []
    text = " ".join(f"{key}={value}" for key, value in labels.items())
    if labels.keys() & snapshot.cluster.nodes.info[row].labels.keys():
        text += " --overwrite"
    change = patch(NODE, raw, {"metadata": {"labels": labels}})
    return [repair(f"label {name} (kubectl label node {name} {text})", "LabelNode", [change])]


def labels_anywhere(snapshot: ClusterSnapshot, keys: list[str]) -> set[str]:
    """Those of the labels that some node has."""
    table = snapshot.cluster.nodes
    infos = [info for row, info in table.info.items() if table.alive[row]] if keys else []
    return {key for key in keys if any(key in info.labels for info in infos)}


def _is_discovered(key: str) -> bool:
    """Whether a label states a fact about a node's place or hardware."""
    domain, slash, _ = key.rpartition("/")
    parents = [domain.split(".", i)[-1] for i in range(domain.count(".") + 1)]
    return bool(slash) and domain not in _ROLES and any(each in _DISCOVERED for each in parents)


FEATURE_FIELDS = {
    RESTART_ALL_CONTAINERS: "a restart rule with the action RestartAllContainers",
    USER_NAMESPACES_ON_HOST_NETWORK: "hostUsers: false with hostNetwork: true",
}
"""By feature that a kubelet declares, what requires it in a pod."""


def _features(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int) -> list[Repair]:
    """The pod without what the kubelet of the node does not declare."""
    texts: list[str] = []
    lacking = sorted(set(pod.cls.features) - snapshot.cluster.nodes.info[row].features)
    if RESTART_ALL_CONTAINERS in lacking:
        texts.append("remove the restart rules with the action RestartAllContainers")
    if USER_NAMESPACES_ON_HOST_NETWORK in lacking:
        texts.append("remove hostUsers: false")

    def edit(spec: Raw) -> Raw:
        body: Raw = {"hostUsers": None} if USER_NAMESPACES_ON_HOST_NETWORK in lacking else {}
        for field in ("containers", "initContainers") if RESTART_ALL_CONTAINERS in lacking else ():
            if field in spec:
                body[field] = [_without_restart_all(each) for each in spec[field]]
        return body

    objects = spec_changes(snapshot, subject, edit)
    return [repair(" and ".join(texts), "RemoveFeature", objects)] if texts else []


def _without_restart_all(container: Raw) -> Raw:
    rules = container.get("restartPolicyRules") or ()
    kept = [each for each in rules if each.get("action") != "RestartAllContainers"]
    others = {key: value for key, value in container.items() if key != "restartPolicyRules"}
    return {**others, "restartPolicyRules": kept} if kept else others


def _hints(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int) -> list[Repair]:
    if DEVICE_ALLOCATE_HINT not in pod.cls.annotations:
        return []
    objects = metadata_changes(snapshot, subject, {"annotations": {DEVICE_ALLOCATE_HINT: None}})
    text = f"remove the annotation {DEVICE_ALLOCATE_HINT}, so that it may use any device"
    return [repair(text, "RemoveAnnotation", objects)]


def _spread(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int) -> list[Repair]:
    name = snapshot.cluster.nodes.name(row)
    raw = snapshot.find(NODE, name)
    constraints = pod.cls.pod.spec.topology_spread_constraints
    labels = snapshot.cluster.nodes.info[row].labels
    lacking = [
        each.topology_key
        for each in constraints
        if each.when_unsatisfiable == "DoNotSchedule" and each.topology_key not in labels
    ]
    known = labels_anywhere(snapshot, lacking)
    if any(_is_discovered(key) and key not in known for key in lacking):
        return []
    if lacking and raw is not None:
        text = " ".join(f"{key}={VALUE}" for key in lacking)
        body = {"metadata": {"labels": dict.fromkeys(lacking, VALUE)}}
        text = f"label {name} (kubectl label node {name} {text})"
        return [repair(text, "LabelNode", [patch(NODE, raw, body)])]

    def soften(spec: Raw) -> Raw:
        hard = [
            {name: value for name, value in each.items() if name != "minDomains"}
            for each in spec.get("topologySpreadConstraints") or ()
        ]
        return {
            "topologySpreadConstraints": [
                {**each, "whenUnsatisfiable": "ScheduleAnyway"} for each in hard
            ]
        }

    text = "set whenUnsatisfiable: ScheduleAnyway in its topology spread constraints"
    if any(each.min_domains for each in constraints):
        text += ", without minDomains"
    return [repair(text, "RelaxSpread", spec_changes(snapshot, subject, soften))] if constraints else []


def _malformed_limits(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> list[Repair]:
    name = snapshot.cluster.nodes.name(row)
    raw = snapshot.find(NODE, name)
    annotations = ((raw or {}).get("metadata") or {}).get("annotations") or {}
    if raw is None or LIMIT_TO_ALLOCATABLE not in annotations:
        return []
    if limit_problem(snapshot, row) == "":
        return []
    body = {"metadata": {"annotations": {LIMIT_TO_ALLOCATABLE: None}}}
    text = f"fix or remove the annotation {LIMIT_TO_ALLOCATABLE} of {name}"
    return [repair(text, "RemoveAnnotation", [patch(NODE, raw, body)])]


def limit_problem(snapshot: ClusterSnapshot, row: int) -> str:
    """What is wrong with a node's limit-to-allocatable annotation; empty if nothing."""

    text = snapshot.cluster.nodes.info[row].annotations.get(LIMIT_TO_ALLOCATABLE)
    if text is None:
        return ""
    try:
        limit_to_allocatable(text)
    except InvalidObject as error:
        return str(error.message)
    return ""


def wider_numa_policies(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> list[Repair]:
    """The NUMA policy of the node instead of another one, or policies that demand less."""
    found = []
    if has_no_numa_nodes(snapshot, pod, row):
        objects = metadata_changes(snapshot, subject, {"annotations": {NUMA_TOPOLOGY_SPEC: None}})
        text = f"remove its annotation {NUMA_TOPOLOGY_SPEC}, so that NUMA nodes do not matter"
        return [repair(text, "RemoveAnnotation", objects)]
    for policy in wider_policies(snapshot, pod, row):
        spec = {**json.loads(pod.cls.annotations[NUMA_TOPOLOGY_SPEC]), "numaTopologyPolicy": policy}
        body = {"annotations": {NUMA_TOPOLOGY_SPEC: json.dumps(spec)}}
        objects = metadata_changes(snapshot, subject, body)
        text = f"set numaTopologyPolicy to {policy} in its annotation {NUMA_TOPOLOGY_SPEC}"
        found.append(repair(text, "Annotate", objects))
    return found


_BY_PLUGIN: dict[str, Callable[[ClusterSnapshot, Subject, PodRecord, int], list[Repair]]] = {
    "NodeUnschedulable": _uncordon,
    "TaintToleration": _tolerate,
    "NodeAffinity": _label,
    "PodTopologySpread": _spread,
    "LimitAware": _malformed_limits,
    "DeviceShare": _hints,
    "NodeDeclaredFeatures": _features,
}


# Objects that do not exist


CLAIM = KINDS["v1", "PersistentVolumeClaim"]
VOLUME = KINDS["v1", "PersistentVolume"]
STORAGE_CLASS = KINDS["storage.k8s.io/v1", "StorageClass"]
_COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}


def bound_claim(snapshot: ClusterSnapshot, name: str, namespace: str) -> list[ObjectChange]:
    """The claim, created if it does not exist, bound to a new volume that every node can use."""
    raw = snapshot.find(CLAIM, name, namespace)
    known = (raw or {}).get("spec") or {}
    uid = ((raw or {}).get("metadata") or {}).get("uid") or f"claim-{name}"
    size = ((known.get("resources") or {}).get("requests") or {}).get("storage", "1Gi")
    modes = known.get("accessModes") or ["ReadWriteOnce"]
    class_name = known.get("storageClassName") or ""
    volume_name = f"volume-for-{namespace}-{name}"
    reference = {"kind": "PersistentVolumeClaim", "name": name, "namespace": namespace, "uid": uid}
    volume: Raw = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name, "uid": f"volume-{uid}"},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": modes,
            "storageClassName": class_name,
            "claimRef": reference,
            "hostPath": {"path": f"/var/lib/{volume_name}"},
        },
        "status": {"phase": "Bound"},
    }
    claim: Raw = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": {"storage": size}},
            "storageClassName": class_name,
        },
        "status": {"phase": "Pending"},
    }
    body: Raw = {
        "metadata": {"annotations": _COMPLETED},
        "spec": {"volumeName": volume_name},
        "status": {"phase": "Bound"},
    }
    created = [create(CLAIM, claim)] if raw is None else []
    bound = patch(CLAIM, raw or claim, body, follows=True)
    return [*created, create(VOLUME, volume), bound]
