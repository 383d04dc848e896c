"""Labels that keep a pod off nodes: other labels for a node, and what a pod requires of nodes with the
nearest labels, values and names that exist."""

import copy
from collections.abc import Iterable, Iterator, Sequence

from holdfast.api.affinity import NodeSelectorRequirement
from holdfast.api.names import HOSTNAME_LABEL, NODE_NAME_FIELD
from holdfast.api.plurals import plural
from holdfast.api.similar_names import nearest
from holdfast.explanation.facts.node_labels import (
    Labels,
    expression_text,
    labels_of_nodes,
    numbers_in,
    quoted_if_empty,
    similar_keys,
    similar_values,
    unmet_terms,
)
from holdfast.explanation.repairs.repair import CONFIGURE, RESIZE, Edit, Repair, repair, spec_changes
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.class_key import required_terms
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import patch
from holdfast.snapshot.cluster_snapshot import NODE, ClusterSnapshot

_BOUNDS = ("Gt", "Lt")
_DAEMON_SET = "DaemonSet"
_TERMS = 3
_DISCOVERED = ("kubernetes.io", "nvidia.com", "amd.com", "intel.com", "amazonaws.com", "google.com")
"""Domains of labels that kubelets, clouds and device plugins set to describe a node."""
_ROLES = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")
"""Domains among them whose labels administrators set."""
VALUE = "VALUE"
"""Stands for a label value that the user has to choose."""


# Labels of nodes


def label_repairs(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> list[Repair]:
    """The node with the labels that the pod requires, and without those that it excludes: for the terms
    of its node affinity that are closest to being met. A label that the pod misspells is not added.

    A value that a node has is not changed: it says of which pool, zone or hardware the node is, pods of
    others rely on it, and those on the node would not be where they belong."""
    name, own = snapshot.cluster.nodes.name(row), snapshot.cluster.nodes.info[row].labels
    raw, there = snapshot.find(NODE, name), labels_of_nodes(snapshot)
    selector, terms = unmet_terms(snapshot, pod, row)
    found: list[Repair] = []
    for unmet in terms[:_TERMS] or [[]]:
        labels = _meeting(there, selector, unmet)
        is_changed = any(value is not None and key in own for key, value in labels.items())
        if raw is not None and labels and not is_changed:
            text = " ".join(
                f"{key}-" if value is None else f"{key}={value}" for key, value in labels.items()
            )
            change = patch(NODE, raw, {"metadata": {"labels": labels}})
            text = f"{_what(labels)} {name} (kubectl label node {name} {text})"
            # Where other nodes have these labels, this one is of another pool.
            is_moved = any(value in there.get(key, ()) for key, value in labels.items())
            found.append(repair(text, "LabelNode", [change], RESIZE if is_moved else CONFIGURE))
    return found


def _what(labels: dict[str, str | None]) -> str:
    """`label`, or `remove the label disk of`."""
    if any(value is not None for value in labels.values()):
        return "label"
    return f"remove the {plural(len(labels), 'label')} {', '.join(labels)} of"


def _meeting(
    there: Labels, selector: dict[str, str], unmet: list[NodeSelectorRequirement]
) -> dict[str, str | None]:
    """The labels with which a node meets the selector and the expressions; empty if it should not have
    them."""
    labels = labels_meeting(selector, unmet)
    required = [NodeSelectorRequirement(key=k, operator="In", values=[v]) for k, v in selector.items()]
    named = (each for each in (*required, *unmet) if each.operator not in _BOUNDS)
    is_misspelt = any(_near_expression(there, each) is not None for each in named)
    # A label that says what a node is would be wrong on another one.
    is_fact = any(key == HOSTNAME_LABEL or is_discovered(key) for key in labels)
    return {} if is_misspelt or is_fact else labels


def labels_meeting(
    selector: dict[str, str], unmet: Sequence[NodeSelectorRequirement]
) -> dict[str, str | None]:
    """The labels that meet the selector and the expressions, None for one to remove; empty if no labels
    can."""
    labels: dict[str, str | None] = dict(selector)
    for each in unmet:
        if each.operator == "In" and each.values:
            labels[each.key] = each.values[0]
        elif each.operator == "Exists":
            labels[each.key] = VALUE
        elif each.operator == "Gt":
            labels[each.key] = str(int(each.values[0]) + 1)
        elif each.operator == "Lt":
            labels[each.key] = str(int(each.values[0]) - 1)
        elif each.operator in ("NotIn", "DoesNotExist"):
            labels[each.key] = None
        else:
            return {}
    return labels


def is_discovered(key: str) -> bool:
    """Whether a label states a fact about a node's place or hardware."""
    domain, slash, _ = key.rpartition("/")
    parents = [domain.split(".", i)[-1] for i in range(domain.count(".") + 1)]
    return bool(slash) and domain not in _ROLES and any(each in _DISCOVERED for each in parents)


# Topology keys


def lacking_keys(snapshot: ClusterSnapshot, row: int, keys: Iterable[str]) -> list[str]:
    """The topology keys that the node does not have."""
    labels = snapshot.cluster.nodes.info[row].labels
    return [key for key in dict.fromkeys(keys) if key not in labels]


def are_misspelt(snapshot: ClusterSnapshot, keys: list[str]) -> bool:
    """Whether no node has one of the keys, and some have a similar one."""
    known = labels_of_nodes(snapshot) if keys else {}
    return any(key not in known and nearest(key, similar_keys(key, known)) for key in keys)


def with_keys(snapshot: ClusterSnapshot, row: int, keys: list[str]) -> list[Repair]:
    """The node with topology keys that it lacks, unless they say what a node is and no node has
    them."""
    name = snapshot.cluster.nodes.name(row)
    raw = snapshot.find(NODE, name)
    known = labels_of_nodes(snapshot) if keys else {}
    if raw is None or not keys or any(is_discovered(key) and key not in known for key in keys):
        return []
    text = " ".join(f"{key}={VALUE}" for key in keys)
    body = {"metadata": {"labels": dict.fromkeys(keys, VALUE)}}
    text = f"label {name} (kubectl label node {name} {text})"
    return [repair(text, "LabelNode", [patch(NODE, raw, body)])]


# Corrections


def corrected_labels(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    """What the pod requires of nodes, with the nearest labels, values and names that nodes have."""
    labels = labels_of_nodes(snapshot)
    yield from _corrected_selector(snapshot, subject, pod, labels)
    terms = required_terms(pod.cls.affinity) if pod.cls.affinity is not None else []
    expressions = {
        expression_text(each): (each, near)
        for term in terms
        for each in term.match_expressions
        if (near := _near_expression(labels, each)) is not None
    }
    for each, near in expressions.values():
        edit = _edited("matchExpressions", each, near)
        right, wrong = expression_text(near), expression_text(each)
        text = f"require {right} instead of {wrong} in its node affinity"
        yield repair(text, "CorrectSelector", spec_changes(snapshot, subject, edit))
    fields = [each for term in terms for each in term.match_fields]
    if pod.pinned_node is not None and not any(each.kind == _DAEMON_SET for each in pod.cls.owners):
        names = [pod.pinned_node]
        fields.append(NodeSelectorRequirement(key=NODE_NAME_FIELD, operator="In", values=names))
    for field in fields:
        if (named := _near_field(snapshot, field)) is not None:
            edit = _edited("matchFields", field, named)
            right, wrong = expression_text(named), expression_text(field)
            text = f"require {right} instead of {wrong} in its node affinity"
            yield repair(text, "CorrectSelector", spec_changes(snapshot, subject, edit))


def _corrected_selector(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, labels: Labels
) -> Iterator[Repair]:
    """All labels of the node selector that no node has, together: they are one map."""
    texts, patch = [], dict[str, str | None]()
    for key, value in pod.cls.node_selector.items():
        near = _near(labels, key, [value])
        if near is not None:
            near_key, (near_value,) = near
            right, wrong = quoted_if_empty(near_value), quoted_if_empty(value)
            texts.append(f"{near_key}: {right} instead of {key}: {wrong}")
            patch |= {key: None, near_key: near_value}
    if patch:
        text = f"set nodeSelector {' and '.join(texts)}"
        objects = spec_changes(snapshot, subject, lambda spec: {"nodeSelector": patch})
        yield repair(text, "CorrectSelector", objects)


def _near(labels: Labels, key: str, values: Sequence[str]) -> tuple[str, list[str]] | None:
    """The nearest label that nodes have, with values that it has; None if nothing is misspelt, or
    nothing is similar."""
    keys = [key] if key in labels else nearest(key, similar_keys(key, labels))
    for near in keys:
        there = labels[near]
        if not values or any(each in there for each in values):
            return (near, list(values)) if near != key else None
        for at, each in enumerate(values):
            for value in similar_values(near, each, there):
                return near, [*values[:at], value, *values[at + 1 :]]
    return None


def _near_expression(labels: Labels, wanted: NodeSelectorRequirement) -> NodeSelectorRequirement | None:
    if wanted.operator in ("In", "Exists"):
        near = _near(labels, wanted.key, wanted.values)
        if near is None:
            return None
        return NodeSelectorRequirement(key=near[0], operator=wanted.operator, values=near[1])
    if wanted.operator not in _BOUNDS or not numbers_in(wanted.values):
        return None
    keys = [wanted.key] if wanted.key in labels else similar_keys(wanted.key, labels)
    for key in keys if wanted.key in labels else nearest(wanted.key, keys):
        numbers, bound = numbers_in(labels[key]), int(wanted.values[0])
        if not numbers:
            continue
        met = min(bound, numbers[-1] - 1) if wanted.operator == "Gt" else max(bound, numbers[0] + 1)
        near_bound = NodeSelectorRequirement(key=key, operator=wanted.operator, values=[str(met)])
        return near_bound if near_bound != wanted else None
    return None


def _near_field(
    snapshot: ClusterSnapshot, field: NodeSelectorRequirement
) -> NodeSelectorRequirement | None:
    """Another field, or names of nodes that exist."""
    table = snapshot.cluster.nodes
    known = [name for name, row in table.names() if table.alive[row]]
    if field.key != NODE_NAME_FIELD:
        if not nearest(field.key, [NODE_NAME_FIELD]):
            return None
        return NodeSelectorRequirement(
            key=NODE_NAME_FIELD, operator=field.operator, values=field.values
        )
    if field.operator != "In" or any(each in known for each in field.values):
        return None
    near = [name for each in field.values for name in nearest(each, known)]
    return NodeSelectorRequirement(key=field.key, operator="In", values=near) if near else None


def _edited(kind: str, wrong: NodeSelectorRequirement, right: NodeSelectorRequirement) -> Edit:
    """Replaces an expression or field in the terms of the required node affinity."""

    def edit(spec: Raw) -> Raw:
        affinity = copy.deepcopy((spec.get("affinity") or {}).get("nodeAffinity") or {})
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        for term in required.get("nodeSelectorTerms") or ():
            for each in term.get(kind) or ():
                given = (each.get("key"), each.get("operator"), list(each.get("values") or ()))
                if given == (wrong.key, wrong.operator, list(wrong.values)):
                    each["key"] = right.key
                    if right.values:
                        each["values"] = list(right.values)
        return {"affinity": {"nodeAffinity": affinity}}

    return edit
