"""Changes of configuration that may remove what keeps a pod off a node, by the plugin that rejects the
node: a cordon, taints, labels, spread constraints, kubelet features, hints and policies."""

import json
from collections.abc import Callable, Iterator

from holdfast.api.annotations import limit_to_allocatable
from holdfast.api.errors import InvalidObject
from holdfast.api.names import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_JOINT_ALLOCATE,
    LIMIT_TO_ALLOCATABLE,
    NUMA_TOPOLOGY_SPEC,
    QOS_CLASS,
    RESOURCE_SPEC,
    TAINT_UNSCHEDULABLE,
)
from holdfast.api.similar_names import nearest
from holdfast.explanation.facts.capacity import missing_node
from holdfast.explanation.facts.node_labels import unmet_labels
from holdfast.explanation.facts.numa_alignment import (
    has_no_numa_nodes,
    own_policy,
    whole_cores,
    wider_policies,
)
from holdfast.explanation.repairs.label_repairs import (
    are_misspelt,
    label_repairs,
    lacking_keys,
    with_keys,
)
from holdfast.explanation.repairs.repair import Repair, metadata_changes, repair, spec_changes
from holdfast.explanation.repairs.taints import toleration_repairs
from holdfast.explanation.repairs.topology_spread import spread_repairs
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.affinity_terms import Role, terms_of
from holdfast.scheduler.cluster.class_key import RESTART_ALL_CONTAINERS, USER_NAMESPACES_ON_HOST_NETWORK
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.diagnosis import NodeRejection
from holdfast.scheduler.managers.numa.node_topology import FULL_CORES, SINGLE, SPREAD
from holdfast.snapshot.cluster_changes import patch
from holdfast.snapshot.cluster_snapshot import NODE, RESERVATION, ClusterSnapshot


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
        found += toleration_repairs(snapshot, subject, pod, row)
    if any(unmet_labels(snapshot, pod, row)):
        found += label_repairs(snapshot, subject, pod, row)[:1]
    return found


def _uncordon(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int) -> list[Repair]:
    name = snapshot.cluster.nodes.name(row)
    raw = snapshot.find(NODE, name)
    return [uncordoned(raw)] if raw is not None else []


def uncordoned(*nodes: Raw) -> Repair:
    names, objects = [raw["metadata"]["name"] for raw in nodes], []
    for raw in nodes:
        taints = (raw.get("spec") or {}).get("taints") or []
        left = [each for each in taints if each.get("key") != TAINT_UNSCHEDULABLE]
        objects.append(patch(NODE, raw, {"spec": {"unschedulable": False, "taints": left}}))
    command = f"kubectl uncordon {' '.join(names)}"
    return repair(f"uncordon {', '.join(names)} ({command})", "Uncordon", objects)


_DEVICE_HINTS = {
    DEVICE_ALLOCATE_HINT: "it may use any device",
    DEVICE_JOINT_ALLOCATE: "its devices need not be close to one another",
}
"""By annotation that restricts which devices a pod may use, what holds without it."""

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
    return [
        repair(
            f"remove the annotation {name}, so that {then}",
            "RemoveAnnotation",
            metadata_changes(snapshot, subject, {"annotations": {name: None}}),
        )
        for name, then in _DEVICE_HINTS.items()
        if name in pod.cls.annotations
    ]


def _node_name(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int) -> list[Repair]:
    """A reservation without the nodeName of its template, or with the name of the node if that is what
    a missing one resembles."""
    wanted, name = pod.cls.wants_node, snapshot.cluster.nodes.name(row)
    if subject.info is not RESERVATION or not wanted:
        return []
    if missing_node(snapshot, wanted) is not None and nearest(wanted, [name]):
        objects = spec_changes(snapshot, subject, lambda spec: {"nodeName": name})
        return [repair(f"set nodeName: {name} instead of {wanted}", "SetNodeName", objects)]
    objects = spec_changes(snapshot, subject, lambda spec: {"nodeName": None})
    text = f"remove nodeName: {wanted} from its template, so that it may use any node"
    return [repair(text, "RemoveNodeName", objects)]


def _pod_affinity(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> list[Repair]:
    """The node with the topology keys of the pod's required affinity."""
    required = [own.term for own in terms_of(pod.cls) if own.role is Role.REQUIRED]
    lacking = lacking_keys(snapshot, row, (term.topology_key for term in required))
    return [] if are_misspelt(snapshot, lacking) else with_keys(snapshot, row, lacking)


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
    found: list[Repair] = []
    if has_no_numa_nodes(snapshot, pod, row):
        objects = metadata_changes(snapshot, subject, {"annotations": {NUMA_TOPOLOGY_SPEC: None}})
        text = f"remove its annotation {NUMA_TOPOLOGY_SPEC}, so that NUMA nodes do not matter"
        return [repair(text, "RemoveAnnotation", objects)]
    found += _shared_cpus(snapshot, subject, pod, row)
    if own_policy(snapshot, pod) == SINGLE:
        given = json.loads(pod.cls.annotations[NUMA_TOPOLOGY_SPEC])
        body = {**given, "singleNUMANodeExclusive": "Preferred"}
        objects = metadata_changes(
            snapshot, subject, {"annotations": {NUMA_TOPOLOGY_SPEC: json.dumps(body)}}
        )
        text = f"set singleNUMANodeExclusive to Preferred in its annotation {NUMA_TOPOLOGY_SPEC}"
        found.append(repair(text, "Annotate", objects))
    for policy in wider_policies(snapshot, pod, row):
        spec = {**json.loads(pod.cls.annotations[NUMA_TOPOLOGY_SPEC]), "numaTopologyPolicy": policy}
        body = {"annotations": {NUMA_TOPOLOGY_SPEC: json.dumps(spec)}}
        objects = metadata_changes(snapshot, subject, body)
        text = f"set numaTopologyPolicy to {policy} in its annotation {NUMA_TOPOLOGY_SPEC}"
        found.append(repair(text, "Annotate", objects))
    return found


def _shared_cpus(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """The pod without exclusive CPUs where nothing tells the CPUs of the node; with CPUs of several
    cores where it does not request whole ones."""
    cpus = snapshot.cluster.managers.cpus
    want = cpus.valid_want(pod.cls)
    if want is None or not want.bound:
        return
    if row not in cpus.topologies:
        yield without_exclusive_cpus(snapshot, subject, pod)
    elif whole_cores(snapshot, pod, row) or FULL_CORES in (want.required, want.policy):
        spec = json.loads(pod.cls.annotations.get(RESOURCE_SPEC) or "{}")
        spec = {key: value for key, value in spec.items() if key != "preferredCPUBindPolicy"}
        spec["requiredCPUBindPolicy"] = SPREAD
        objects = metadata_changes(
            snapshot, subject, {"annotations": {RESOURCE_SPEC: json.dumps(spec)}}
        )
        text = f"set requiredCPUBindPolicy to {SPREAD} in its annotation {RESOURCE_SPEC}"
        yield repair(text, "Annotate", objects)


def without_exclusive_cpus(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Repair:
    objects = metadata_changes(snapshot, subject, {"labels": {QOS_CLASS: None}})
    given = f"{QOS_CLASS}={pod.cls.labels.get(QOS_CLASS)}"
    text = f"remove its label {given}, so that it has no exclusive CPUs"
    return repair(text, "RemoveLabel", objects)


_BY_PLUGIN: dict[str, Callable[[ClusterSnapshot, Subject, PodRecord, int], list[Repair]]] = {
    "NodeUnschedulable": _uncordon,
    "TaintToleration": toleration_repairs,
    "NodeAffinity": label_repairs,
    "NodeName": _node_name,
    "InterPodAffinity": _pod_affinity,
    "PodTopologySpread": spread_repairs,
    "LimitAware": _malformed_limits,
    "DeviceShare": _hints,
    "NodeDeclaredFeatures": _features,
}
