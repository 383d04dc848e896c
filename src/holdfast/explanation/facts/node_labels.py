"""Labels and names of nodes that a pod requires: which nodes have them, and the nearest that exist."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.api.affinity import NodeSelectorRequirement, NodeSelectorTerm
from holdfast.api.names import NODE_NAME_FIELD
from holdfast.api.plurals import number_of, plural
from holdfast.api.selectors import node_requirement
from holdfast.api.similar_names import did_you_mean, nearest, similar_names
from holdfast.explanation.facts.capacity import missing_node
from holdfast.explanation.report import few
from holdfast.scheduler.cluster.class_key import required_terms
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_LINES = 3
_VALUES = 3
_BOUNDS = ("Gt", "Lt")
_DAEMON_SET = "DaemonSet"

_RENAMED = {"node-role.kubernetes.io/master": "node-role.kubernetes.io/control-plane"}
"""Labels that older versions of Kubernetes gave to nodes, and what they are called now."""
_PLATFORM_LABELS = ("kubernetes.io/arch", "kubernetes.io/os")
_ARCHITECTURES = ("386", "amd64", "arm", "arm64", "loong64", "mips64le", "ppc64le", "riscv64", "s390x")
_PLATFORMS = (*_ARCHITECTURES, "linux", "windows", "darwin", "freebsd")
"""Values that these labels can have."""

Labels = Mapping[str, Counter[str]]
"""By label, how many nodes have each value."""


def labels_of_nodes(snapshot: ClusterSnapshot) -> Labels:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    table = snapshot.cluster.nodes
    for row, info in table.info.items():
        for key, value in info.labels.items() if table.alive[row] else ():
            found[key][value] += 1
    return dict(found)


def unmet_labels(
    snapshot: ClusterSnapshot, pod: PodRecord, row: int
) -> tuple[dict[str, str], list[NodeSelectorRequirement]]:
    """What the pod's node selector and the affinity term that is closest to being met require and the
    node does not have: labels, and expressions."""
    selector, terms = unmet_terms(snapshot, pod, row)
    return selector, terms[0] if terms else []


def unmet_terms(
    snapshot: ClusterSnapshot, pod: PodRecord, row: int
) -> tuple[dict[str, str], list[list[NodeSelectorRequirement]]]:
    """The same for all affinity terms, the one that is closest to being met first."""
    labels = snapshot.cluster.nodes.info[row].labels
    selector = {key: value for key, value in pod.cls.node_selector.items() if labels.get(key) != value}
    terms = [
        [each for each in term.match_expressions if not node_requirement(each).matches(labels)]
        for term in (required_terms(pod.cls.affinity) if pod.cls.affinity is not None else ())
        if not term.match_fields and not is_empty(term)
    ]
    return selector, sorted(terms, key=len)


def is_empty(term: NodeSelectorTerm) -> bool:
    """Whether the term requires nothing. No node meets it."""
    return not (term.match_expressions or term.match_fields)


def similar_keys(key: str, labels: Iterable[str]) -> list[str]:
    """The labels that a key may be a misspelling of. Where both have a domain, the rest must be alike:
    most domains of labels are, and topology.kubernetes.io/zone is not kubernetes.io/os."""
    domain, _, own = key.rpartition("/")
    return [
        known
        for known in labels
        for other, _, rest in [known.rpartition("/")]
        if not (domain and other)
        or rest == own
        or known == _RENAMED.get(key)
        or similar_names(own, [rest])
    ]


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
        labels, alternatives = unmet_terms(snapshot, pod, row)
        for key, value in labels.items():
            text = f"nodeSelector {key}={quoted_if_empty(value)}"
            unmet[text] += 1
            required[text] = NodeSelectorRequirement(key=key, operator="In", values=[value])
        expressions = (each for term in alternatives for each in term)
        for text, each in {f"node affinity {expression_text(e)}": e for e in expressions}.items():
            unmet[text] += 1
            if all(alternatives):
                required[text] = each
    there = labels_of_nodes(snapshot) if required else {}
    terms = required_terms(pod.cls.affinity) if pod.cls.affinity is not None else []
    if empty := sum(map(is_empty, terms)):
        matches = plural(empty, "matches", "match")
        yield f"its node affinity has {number_of(empty, 'empty term')}, which {matches} no node"
        terms = [each for each in terms if not is_empty(each)]
    if len(terms) > 1 and required:
        yield f"its node affinity has {len(terms)} terms, one of which must be met: {_or_text(terms)}"
    for text, count in [each for each in unmet.most_common() if each[0] in required][:_LINES]:
        values = _values(snapshot, there, required[text])
        yield f"{text} is not met by {_of_nodes(count, snapshot)}{values}"
    for field in (each for term in terms for each in term.match_fields):
        if field.key != NODE_NAME_FIELD:
            hint = did_you_mean(field.key, [NODE_NAME_FIELD])
            yield f"node affinity {expression_text(field)}: nodes have no field {field.key}{hint}"
        else:
            names = "these node names" if len(field.values) > 1 else "this node name"
            if field.operator == "NotIn":
                yield f"node affinity {expression_text(field)} allows all but {names}"
                continue
            missing = [missing_node(snapshot, name) for name in field.values]
            are_missing = all(near is not None for near in missing)
            hint = next((near for near in missing if near), "") if are_missing else ""
            gone = ", which do not exist" if len(missing) > 1 else ", which does not exist"
            gone = gone if are_missing else ""
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
    values = f" ({', '.join(map(quoted_if_empty, each.values))})" if each.values else ""
    return f"{each.key} {each.operator}{values}"


def quoted_if_empty(value: str) -> str:
    """The value of a label; `""` if it is empty."""
    return value or '""'


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
        return f" (no node has the label {key}{did_you_mean(key, similar_keys(key, labels))})"
    if wanted.operator in _BOUNDS and (numbers := numbers_in(found)):
        return (
            f" (values of {key}: {numbers[0]} to {numbers[-1]})"
            if len(numbers) > _VALUES
            else (f" (values of {key}: {_counted(found)})")
        )
    is_listed = wanted.operator == "In" and not any(each in found for each in wanted.values)
    hints = (_hint(key, each, found) for each in wanted.values) if is_listed else ()
    hint = next((each for each in hints if each), "")
    if len(found) > snapshot.cluster.nodes.count // 2 and len(found) > _VALUES:
        return f" ({hint.removeprefix('; ')})" if hint else ""
    return f" (values of {key}: {_counted(found)}{hint})"


def similar_values(key: str, value: str, known: Iterable[str]) -> list[str]:
    """The known values of a label that are most like one that no node has. Another architecture or
    operating system is not a misspelling: an image for one does not run on the other."""
    return [] if _is_platform(key, value) else nearest(value, known)


def _hint(key: str, value: str, known: Iterable[str]) -> str:
    return "" if _is_platform(key, value) else did_you_mean(value, known)


def is_platform(key: str) -> bool:
    """Whether a label says for which images a node is made."""
    return key.removeprefix("beta.") in _PLATFORM_LABELS


def _is_platform(key: str, value: str) -> bool:
    return is_platform(key) and value in _PLATFORMS


def _counted(values: Counter[str]) -> str:
    return few(
        [f"{quoted_if_empty(value)} on {count}" for value, count in values.most_common()], _VALUES
    )


def numbers_in(values: Sequence[str] | Counter[str]) -> list[int]:
    """The values that are numbers, the smallest first."""
    return sorted(int(each) for each in values if each.lstrip("-").isdigit())
