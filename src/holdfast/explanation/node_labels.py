"""Labels and names of nodes that a pod requires: which nodes have them, and the nearest that exist."""

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from holdfast.api.affinity import NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.names import NODE_NAME_FIELD
from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.capacity import missing_node
from holdfast.explanation.repairs import Edit, Repair, repair, spec_changes, unmet_labels
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.class_key import required_terms
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_LINES = 3
_VALUES = 3
_BOUNDS = ("Gt", "Lt")
_DAEMON_SET = "DaemonSet"

Labels = Mapping[str, Counter[str]]
"""By label, how many nodes have each value."""


def labels_of_nodes(snapshot: ClusterSnapshot) -> Labels:
    found: dict[str, Counter[str]] = {}
    table = snapshot.cluster.nodes
    for row, info in table.info.items():
        for key, value in info.labels.items() if table.alive[row] else ():
            found.setdefault(key, Counter())[value] += 1
    return found


# Facts


def label_details(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    """The labels and expressions that nodes do not satisfy, those that another plugin rejects first
    included."""
    if pod.pinned_node is not None:
        near = missing_node(snapshot, pod.pinned_node)
        if near is not None:
            yield f"it belongs on {pod.pinned_node}, which does not exist{near}"
        return
    unmet: Counter[str] = Counter()
    required: dict[str, NodeSelectorRequirement] = {}
    table = snapshot.cluster.nodes
    for row in (row for _, row in table.names() if table.alive[row]):
        labels, expressions = unmet_labels(snapshot, pod, row)
        for key, value in labels.items():
            text = f"nodeSelector {key}={value}"
            unmet[text] += 1
            required[text] = NodeSelectorRequirement(key=key, operator="In", values=[value])
        for each in expressions:
            text = f"node affinity {expression_text(each)}"
            unmet[text] += 1
            required[text] = each
    there = labels_of_nodes(snapshot) if unmet else {}
    terms = required_terms(pod.cls.affinity) if pod.cls.affinity is not None else []
    if len(terms) > 1 and unmet:
        yield f"its node affinity has {len(terms)} terms, one of which must be met: {_or_text(terms)}"
    for text, count in unmet.most_common(_LINES):
        values = _values(snapshot, there, required[text])
        yield f"{text} is not met by {_of_nodes(count, snapshot)}{values}"
    for field in (each for term in terms for each in term.match_fields):
        if field.key != NODE_NAME_FIELD:
            hint = did_you_mean(field.key, [NODE_NAME_FIELD])
            yield f"node affinity {expression_text(field)}: nodes have no field {field.key}{hint}"
        else:
            missing = [missing_node(snapshot, name) for name in field.values]
            are_missing = all(near is not None for near in missing)
            hint = next((near for near in missing if near), "") if are_missing else ""
            gone = ", which do not exist" if len(missing) > 1 else ", which does not exist"
            gone = gone if are_missing else ""
            names = "these node names" if len(missing) > 1 else "this node name"
            yield f"node affinity {expression_text(field)} allows only {names}{gone}{hint}"


def _or_text(terms: Sequence[NodeSelectorTerm]) -> str:
    """`disk In (nvme) and zone In (a), or metadata.name In (n3)`"""
    texts = [
        " and ".join(expression_text(each) for each in (*term.match_expressions, *term.match_fields))
        for term in terms
    ]
    return ", or ".join(texts)


def expression_text(each: NodeSelectorRequirement) -> str:
    """`disk In (nvme, ssd)`"""
    values = f" ({', '.join(each.values)})" if each.values else ""
    return f"{each.key} {each.operator}{values}"


def _of_nodes(count: int, snapshot: ClusterSnapshot) -> str:
    total = snapshot.cluster.nodes.count
    if count == total:
        return "any node" if total > 1 else "the only node"
    return f"{count} of {total} nodes"


def _values(snapshot: ClusterSnapshot, labels: Labels, wanted: NodeSelectorRequirement) -> str:
    """The values that the label has on nodes, and the nearest one."""
    key = wanted.key
    found = labels.get(key)
    if not found:
        return f" (no node has the label {key}{did_you_mean(key, labels)})"
    if wanted.operator in _BOUNDS and (numbers := _numbers(found)):
        return (
            f" (values of {key}: {numbers[0]} to {numbers[-1]})"
            if len(numbers) > _VALUES
            else (f" (values of {key}: {_counted(found)})")
        )
    is_listed = wanted.operator == "In" and not any(each in found for each in wanted.values)
    hints = (did_you_mean(each, found) for each in wanted.values) if is_listed else ()
    hint = next((each for each in hints if each), "")
    if len(found) > snapshot.cluster.nodes.count // 2 and len(found) > _VALUES:
        return f" ({hint.removeprefix('; ')})" if hint else ""
    return f" (values of {key}: {_counted(found)}{hint})"


def _counted(values: Counter[str]) -> str:
    return few([f"{value} on {count}" for value, count in values.most_common()], _VALUES)


def _numbers(values: Sequence[str] | Counter[str]) -> list[int]:
    """The values that are numbers, the smallest first."""
    return sorted(int(each) for each in values if each.lstrip("-").isdigit())


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
            texts.append(f"{near_key}: {near_value} instead of {key}: {value}")
            patch |= {key: None, near_key: near_value}
    if patch:
        text = f"set nodeSelector {' and '.join(texts)}"
        objects = spec_changes(snapshot, subject, lambda spec: {"nodeSelector": patch})
        yield repair(text, "CorrectSelector", objects)


def _near(labels: Labels, key: str, values: Sequence[str]) -> tuple[str, list[str]] | None:
    """The nearest label that nodes have, with values that it has; None if nothing is misspelt, or
    nothing is similar."""
    keys = [key] if key in labels else nearest(key, labels)
    for near in keys:
        there = labels[near]
        if not values or any(each in there for each in values):
            return (near, list(values)) if near != key else None
        for at, each in enumerate(values):
            for value in nearest(each, there):
                return near, [*values[:at], value, *values[at + 1 :]]
    return None


def _near_expression(labels: Labels, wanted: NodeSelectorRequirement) -> NodeSelectorRequirement | None:
    if wanted.operator in ("In", "Exists"):
        near = _near(labels, wanted.key, wanted.values)
        if near is None:
            return None
        return NodeSelectorRequirement(key=near[0], operator=wanted.operator, values=near[1])
    if wanted.operator not in _BOUNDS or not _numbers(wanted.values):
        return None
    for key in [wanted.key] if wanted.key in labels else nearest(wanted.key, labels):
        numbers, bound = _numbers(labels[key]), int(wanted.values[0])
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
