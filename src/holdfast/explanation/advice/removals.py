"""What a pod requires of nodes and of pods beside it, removed: the last resort, proposed if nothing
else would help, or if no single change would and no node meets it; and the pods beside it that it only
waits for."""

from collections.abc import Iterator

from holdfast.api.affinity import NodeSelector, NodeSelectorRequirement
from holdfast.api.names import HOSTNAME_LABEL, NODE_NAME_FIELD
from holdfast.api.selectors import match_node_selector
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.node_labels import (
    Labels,
    expression_text,
    is_platform,
    labels_of_nodes,
    quoted_if_empty,
    unmet_labels,
)
from holdfast.explanation.repairs.label_repairs import corrected_labels, is_discovered
from holdfast.explanation.repairs.pod_affinity import awaited_pods, selector_text
from holdfast.explanation.repairs.repair import RESIZE, WAIT, Edit, Repair, repair, spec_changes
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
_PLACES = ("topology.kubernetes.io/", "failure-domain.beta.kubernetes.io/")
"""What the keys of labels begin with that say where a node is."""
_PODS = 3


def consider_removals(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, advisor: Advisor
) -> None:
    """Each requirement by itself."""
    for each, _ in _node_requirements(snapshot, subject, pod):
        advisor.propose(each)
    terms = [own for own in terms_of(pod.cls) if own.role is Role.REQUIRED]
    if terms:
        body: Raw = {"affinity": {"podAffinity": {_REQUIRED: None}}}
        text = f"remove its required pod affinity to {few([selector_text(own) for own in terms])}"
        objects = spec_changes(snapshot, subject, lambda spec: body)
        advisor.propose(repair(text, "RemoveAffinity", objects))


def consider_unmet_requirements(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, advisor: Advisor
) -> None:
    """Without what no node meets, unless that is misspelt: a label that no node has separates no pods
    from others."""
    if any(corrected_labels(snapshot, subject, pod)):
        return
    for each, is_met in _node_requirements(snapshot, subject, pod):
        if not is_met:
            advisor.propose(each)


def consider_other_places(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, advisor: Advisor
) -> None:
    """Without a label that says where a node is or what hardware it has, where other nodes have other
    values: only its user knows whether the pod can run there."""
    if any(each.kind == "DaemonSet" for each in pod.cls.owners):
        return
    labels = labels_of_nodes(snapshot)
    for key, value in pod.cls.node_selector.items():
        required = NodeSelectorRequirement(key=key, operator="In", values=[value])
        if _is_a_choice(required, labels):
            objects = spec_changes(snapshot, subject, lambda spec: {"nodeSelector": {key: None}})  # noqa: B023
            text = f"remove nodeSelector {key}={value}, if it can run elsewhere"
            advisor.propose(repair(text, "RemoveSelector", objects, RESIZE))
    expressions = {
        expression_text(each): each
        for term in required_terms(pod.cls.affinity)
        for each in term.match_expressions
        if _is_a_choice(each, labels)
    }
    for text, each in expressions.items():
        text = f"remove {text} from its node affinity, if it can run elsewhere"
        objects = spec_changes(snapshot, subject, _without(each))
        advisor.propose(repair(text, "RemoveAffinity", objects, RESIZE))


def claimed_nodes(snapshot: ClusterSnapshot, pod: PodRecord) -> dict[int, str]:
    """The rows on which all claims of the pod that have devices can be used, with the names of these
    claims; empty if none of them is allocated to some nodes only."""
    allocated = [
        (str(need.key), need.allocation.node_selector)
        for need in snapshot.cluster.claims.of_class(pod.cls).claims
        if need.key is not None and need.allocation is not None
    ]
    bound = [(claim, selector) for claim, selector in allocated if selector is not None]
    if not bound:
        return {}
    nodes, names = snapshot.cluster.nodes, few([claim for claim, _ in bound])
    return {
        row: names
        for name, row in nodes.names()
        if nodes.alive[row]
        and all(match_node_selector(each, nodes.info[row].labels, name) for _, each in bound)
    }


def claimed_node_repairs(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """Without what the pod requires of nodes, where it does not suit the node that its claims have
    devices of."""
    claims = claimed_nodes(snapshot, pod).get(row)
    if claims is None or any(each.kind == "DaemonSet" for each in pod.cls.owners):
        return
    selector, expressions = unmet_labels(snapshot, pod, row)
    keys = [*selector, *(each.key for each in expressions)]
    if not keys or any(map(is_platform, keys)):
        return
    texts = [f"nodeSelector {key}={quoted_if_empty(value)}" for key, value in sorted(selector.items())]
    texts += [f"node affinity {expression_text(each)}" for each in expressions]
    action = "RemoveSelector" if selector else "RemoveAffinity"

    def edit(spec: Raw) -> Raw:
        found: Raw = {"nodeSelector": dict.fromkeys(selector)} if selector else {}
        for each in expressions:
            found |= _without(each)({**spec, **found})
        return found

    noun = "claim" if "," not in claims else "claims"
    where = f"{noun} {claims} {'is' if noun == 'claim' else 'are'} allocated on"
    text = f"remove {' and '.join(texts)}: {where} {snapshot.cluster.nodes.name(row)}"
    yield repair(text, action, spec_changes(snapshot, subject, edit), RESIZE)


def _is_a_choice(each: NodeSelectorRequirement, labels: Labels) -> bool:
    """Whether some nodes have a value that is required of a label, and others have other values. A
    place without nodes may be left for another one, but no kind of hardware."""
    there = labels.get(each.key, ())
    wanted = [value for value in each.values if value in there]
    is_known = bool(wanted) or each.key.startswith(_PLACES)
    return _is_fact(each) and is_known and len(wanted) < len(there) and not is_platform(each.key)


def _without(unwanted: NodeSelectorRequirement) -> Edit:
    """The required node affinity without an expression; none at all if that leaves nothing of a term,
    so that any node would do."""
    given = (unwanted.key, unwanted.operator, list(unwanted.values))

    def is_given(each: Raw) -> bool:
        return (each.get("key"), each.get("operator"), list(each.get("values") or ())) == given

    def edit(spec: Raw) -> Raw:
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        before = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
        terms = [
            {
                **term,
                "matchExpressions": [
                    each for each in term.get("matchExpressions") or () if not is_given(each)
                ],
            }
            for term in before
        ]
        is_open = any(
            was.get("matchExpressions") and not (term["matchExpressions"] or term.get("matchFields"))
            for was, term in zip(before, terms, strict=True)
        )
        return {
            "affinity": {"nodeAffinity": {_REQUIRED: None if is_open else {"nodeSelectorTerms": terms}}}
        }

    return edit


def _node_requirements(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord
) -> Iterator[tuple[Repair, bool]]:
    """The pod without each label of its node selector and without its node affinity, and whether some
    node meets that; but for labels that state what a node is, since a pod that requires a kind of
    hardware does not run on another one."""
    selector, labels = pod.cls.node_selector, labels_of_nodes(snapshot)
    for key, value in selector.items():
        if not _is_fact(NodeSelectorRequirement(key=key, operator="In", values=[value])):
            objects = spec_changes(snapshot, subject, lambda spec: {"nodeSelector": {key: None}})  # noqa: B023
            text = f"remove nodeSelector {key}={quoted_if_empty(value)}"
            yield repair(text, "RemoveSelector", objects), value in labels.get(key, ())
    terms = required_terms(pod.cls.affinity)
    if any(each.kind == "DaemonSet" for each in pod.cls.owners):
        return
    if any(_is_fact(each) for term in terms for each in term.match_expressions):
        return
    texts = [
        " and ".join(expression_text(each) for each in (*term.match_expressions, *term.match_fields))
        or "(an empty term)"
        for term in terms
    ]
    if pod.pinned_node is not None:  # its class has the other terms only
        texts.append(f"{NODE_NAME_FIELD} In ({pod.pinned_node})")
    if not texts:
        return
    body: Raw = {"affinity": {"nodeAffinity": {_REQUIRED: None}}}
    text = f"remove its required node affinity {' or '.join(texts)}"
    objects = spec_changes(snapshot, subject, lambda spec: body)
    nodes, required = snapshot.cluster.nodes, NodeSelector(node_selector_terms=terms)
    is_met = pod.pinned_node is not None or any(
        match_node_selector(required, nodes.info[row].labels, name)
        for name, row in nodes.names()
        if nodes.alive[row]
    )
    yield repair(text, "RemoveAffinity", objects), is_met


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
