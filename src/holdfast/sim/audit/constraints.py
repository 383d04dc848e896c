"""Rules of where a pod may go: node selectors, taints, anti-affinity and topology spread constraints.

A pod is checked when the scheduler binds it. Rules that need more than the objects at that moment are
left out: namespace selectors, minimal numbers of domains, spread where reservations count as pods.
"""

from collections import Counter
from collections.abc import Iterator

from holdfast.sim.audit.cluster import ClusterState, NodeState, expression, selects
from holdfast.sim.audit.facts import PodFacts, Raw

_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def violated(cluster: ClusterState, pod: PodFacts, plugins: frozenset[str]) -> Iterator[str]:
    """The rules that do not allow the pod on its node, of those that these plugins enforce."""
    node, raw = cluster.node(pod.node), cluster.existing[pod.uid]
    if node.raw is None or pod.is_daemon:
        return
    where = f"{pod} on Node/{node.name}"
    if "NodeAffinity" in plugins and not _selected(raw, node):
        yield f"node selector does not match: {where}"
    if "TaintToleration" in plugins:
        for taint in (node.raw.get("spec") or {}).get("taints") or ():
            if not _tolerates(raw, taint):
                yield f"taint is not tolerated: {where}: {taint.get('key')}"
    is_cordoned = bool((node.raw.get("spec") or {}).get("unschedulable"))
    if "NodeUnschedulable" in plugins and is_cordoned and not _tolerates(raw, _UNSCHEDULABLE):
        yield f"node is cordoned: {where}"
    if "InterPodAffinity" in plugins:
        for other in _repelling(cluster, pod.uid, raw, node):
            yield f"anti-affinity does not allow two pods: {where}: {other}"
    if "PodTopologySpread" in plugins and not any(r.is_live for r in cluster.reservations.values()):
        for key, skew in _skews(cluster, raw, node):
            yield f"spread constraint is not met: {where}: {key} has a skew of {skew}"


def _selected(raw: Raw, node: NodeState) -> bool:
    spec, labels = raw["spec"], node.labels
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not affinity:
        return True
    fields = {"metadata.name": node.name}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(expression(each, labels) for each in term.get("matchExpressions") or ())
        and all(expression(each, fields) for each in term.get("matchFields") or ())
        for term in affinity.get("nodeSelectorTerms") or ()
    )


def _tolerates(raw: Raw, taint: Raw) -> bool:
    if taint.get("effect") not in ("NoSchedule", "NoExecute"):
        return True
    for each in raw["spec"].get("tolerations") or ():
        if each.get("effect") and each["effect"] != taint["effect"]:
            continue
        if each.get("key") and each["key"] != taint["key"]:
            continue
        operator = each.get("operator") or "Equal"
        if operator == "Exists" or (
            operator == "Equal"
            and each.get("key")
            and (each.get("value") or "") == (taint.get("value") or "")
        ):
            return True
        if operator in ("Gt", "Lt"):
            return True  # compared as numbers: not judged
    return False


def _terms(raw: Raw) -> list[Raw]:
    affinity = (raw["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    return [
        term
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        if term.get("namespaceSelector") is None
        and not term.get("matchLabelKeys")
        and not term.get("mismatchLabelKeys")
    ]


def _repels(term: Raw, owner: Raw, other: Raw) -> bool:
    """Whether a term of the owner's is about the other pod."""
    selector = term.get("labelSelector")
    namespaces = term.get("namespaces") or [owner["metadata"].get("namespace")]
    return (
        selector is not None
        and other["metadata"].get("namespace") in namespaces
        and selects(selector, other["metadata"].get("labels") or {})
    )


def _repelling(cluster: ClusterState, uid: str, raw: Raw, node: NodeState) -> Iterator[str]:
    """The pods in a topology domain of the node that may not be there together with the pod."""
    own = _terms(raw)
    for other_uid, there in cluster.pods.items():
        other_node = cluster.node(there.node)
        if other_uid == uid or other_node.raw is None:
            continue
        other = cluster.existing[other_uid]
        pairs = [(term, raw, other) for term in own] + [(term, other, raw) for term in _terms(other)]
        for term, owner, about in pairs:
            key = term["topologyKey"]
            domain = node.labels.get(key)
            if (
                domain is not None
                and domain == other_node.labels.get(key)
                and _repels(term, owner, about)
            ):
                yield str(there)
                break


def _skews(cluster: ClusterState, raw: Raw, node: NodeState) -> Iterator[tuple[str, int]]:
    """Hard spread constraints that the pod violates on the node, with their skew."""
    constraints = [
        each
        for each in raw["spec"].get("topologySpreadConstraints") or ()
        if (each.get("whenUnsatisfiable") or "DoNotSchedule") == "DoNotSchedule"
    ]
    plain = ("maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector")
    keys = {each["topologyKey"] for each in constraints}
    for each in constraints:
        if set(each) - set(plain) or each.get("labelSelector") is None:
            continue
        counts = Counter[str]()
        for state in cluster.nodes.values():
            if state.raw is None or not keys <= set(state.labels) or not _selected(raw, state):
                continue
            counts[state.labels[each["topologyKey"]]] += sum(
                1
                for other in state.pods.values()
                if _counts(cluster.existing[other.uid], raw, each["labelSelector"])
            )
        domain = node.labels.get(each["topologyKey"])
        if domain is None:
            yield each["topologyKey"], 0
            continue
        itself = _counts(raw, raw, each["labelSelector"])
        skew = counts[domain] - min(counts.values())
        if itself and skew > each["maxSkew"]:
            yield each["topologyKey"], skew


def _counts(other: Raw, raw: Raw, selector: Raw) -> bool:
    """Whether a pod is one of those that are spread with this pod."""
    metadata = other["metadata"]
    return (
        not metadata.get("deletionTimestamp")
        and metadata.get("namespace") == raw["metadata"].get("namespace")
        and selects(selector, metadata.get("labels") or {})
    )
