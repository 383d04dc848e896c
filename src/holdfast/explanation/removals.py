"""What a pod requires of nodes and of pods beside it, removed: the last resort, proposed if nothing
else would help; and the pods beside it that it only waits for."""

from collections.abc import Iterator

from holdfast.api.affinity import NodeSelectorRequirement
from holdfast.api.names import HOSTNAME_LABEL, NODE_NAME_FIELD
from holdfast.explanation.advice import Advisor
from holdfast.explanation.label_repairs import is_discovered
from holdfast.explanation.node_labels import expression_text
from holdfast.explanation.pod_affinity import awaited_pods, selector_text
from holdfast.explanation.repairs import WAIT, Repair, repair, spec_changes
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject, starts_on
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.affinity_terms import Role, terms_of
from holdfast.scheduler.cluster.class_key import required_terms
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_EXCLUDING = ("NotIn", "DoesNotExist")
_PODS = 3


def consider_removals(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, advisor: Advisor
) -> None:
    """Each requirement by itself."""
    for each in _node_requirements(snapshot, subject, pod):
        advisor.propose(each)
    terms = [own for own in terms_of(pod.cls) if own.role is Role.REQUIRED]
    if terms:
        body: Raw = {"affinity": {"podAffinity": {_REQUIRED: None}}}
        text = f"remove its required pod affinity to {few([selector_text(own) for own in terms])}"
        objects = spec_changes(snapshot, subject, lambda spec: body)
        advisor.propose(repair(text, "RemoveAffinity", objects))


def _node_requirements(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    """The node selector and the node affinity; but for labels that state what a node is, since a pod
    that requires a kind of hardware does not run on another one."""
    selector = pod.cls.node_selector
    for key, value in selector.items():
        if not _is_fact(NodeSelectorRequirement(key=key, operator="In", values=[value])):
            objects = spec_changes(snapshot, subject, lambda spec: {"nodeSelector": {key: None}})  # noqa: B023
            yield repair(f"remove nodeSelector {key}={value}", "RemoveSelector", objects)
    terms = required_terms(pod.cls.affinity)
    if any(each.kind == "DaemonSet" for each in pod.cls.owners):
        return
    if any(_is_fact(each) for term in terms for each in term.match_expressions):
        return
    texts = [
        " and ".join(expression_text(each) for each in (*term.match_expressions, *term.match_fields))
        for term in terms
    ]
    if pod.pinned_node is not None:  # its class has the other terms only
        texts.append(f"{NODE_NAME_FIELD} In ({pod.pinned_node})")
    if not texts:
        return
    body: Raw = {"affinity": {"nodeAffinity": {_REQUIRED: None}}}
    text = f"remove its required node affinity {' or '.join(texts)}"
    objects = spec_changes(snapshot, subject, lambda spec: body)
    yield repair(text, "RemoveAffinity", objects)


def _is_fact(each: NodeSelectorRequirement) -> bool:
    is_any = each.key == HOSTNAME_LABEL or each.operator in _EXCLUDING
    return is_discovered(each.key) and not is_any


def consider_awaited_pods(snapshot: ClusterSnapshot, pod: PodRecord, advisor: Advisor) -> None:
    """Pods that it must be near, and that are pending: they are waited for if they fit a node."""
    for other in awaited_pods(snapshot, pod)[:_PODS]:
        raw = snapshot.find(POD, other.name, other.namespace)
        nodes = starts_on(snapshot, Subject.of(other))
        if raw is None or not nodes:
            continue
        bound = patch(POD, raw, {"spec": {"nodeName": nodes[0]}}, follows=True)
        whom = f"{other.namespace}/{other.name}"
        text = f"wait until {whom} is scheduled, which fits {few(nodes, _PODS)}"
        advisor.propose(repair(text, "WaitForPod", [bound], WAIT))
