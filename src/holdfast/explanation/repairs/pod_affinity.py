"""Affinity and anti-affinity to other pods: which pods a term selects, and the nearest labels that pods
have if it selects none."""

import copy
from collections.abc import Iterator

import msgspec

from holdfast.api.affinity import PodAffinityTerm
from holdfast.api.names import HOSTNAME_LABEL
from holdfast.api.plurals import plural
from holdfast.api.selectors import Requirement
from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.facts.capacity import row_of
from holdfast.explanation.facts.node_labels import labels_of_nodes, similar_keys
from holdfast.explanation.phrases import needs_more, pods_text
from holdfast.explanation.repairs.repair import Edit, Repair, repair, spec_changes
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.affinity_terms import (
    NAMESPACE_NAME_LABEL,
    OwnTerm,
    Role,
    Term,
    compile_term,
    terms_of,
)
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_FEW = 3
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


# Facts


def pod_affinity_details(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    for own in terms_of(pod.cls):
        key = own.term.topology_key
        selected = _selected(snapshot, own.term, pod)
        placed = [other for other in selected if other.row >= 0]
        if own.role is Role.FORBIDDEN and placed:
            yield (
                f"anti-affinity to {selector_text(own)} by {key}: in the way "
                f"{plural(len(placed), 'is', 'are')} {pods_text(placed)}"
            )
        elif own.role is Role.REQUIRED:
            text = f"affinity to {selector_text(own)} by {key}"
            missing = _missing_key(snapshot, key, nodes)
            if placed:
                but = f", but {missing}" if missing else ""
                these = plural(len(placed), "such a pod is", "such pods are")
                yield f"{text}: {these} {_places(snapshot, placed)}{but}"
            elif _may_be_first(snapshot, pod):
                if missing:
                    yield f"{text}: it may be the first such pod, but {missing}"
            elif _wants_itself(snapshot, own.term, pod):
                yield f"{text}: no other such pod is on a node"
            elif selected:
                yield f"{text}: no such pod is on a node; {pods_text(selected)} is pending"
            else:
                yield f"{text}: no such pod is on a node{_none_there(snapshot, own.term, pod)}"
    blocking = [
        other
        for other in snapshot.cluster.pods.values()
        if other.row >= 0 and other is not pod and _keeps_away(snapshot, other, pod)
    ]
    if blocking:
        yield f"anti-affinity of other pods excludes it: {pods_text(blocking)}"


def _namespace_labels(snapshot: ClusterSnapshot, namespace: str) -> dict[str, str]:
    found = snapshot.cluster.objects.get("Namespace", {}).get(("", namespace))
    labels = found.metadata.labels if found is not None else {}
    return {NAMESPACE_NAME_LABEL: namespace, **labels}


def _covers(snapshot: ClusterSnapshot, term: Term, namespace: str) -> bool:
    """Whether a term is about pods of the namespace."""
    selector = term.namespace_selector
    return namespace in term.namespaces or selector.matches(_namespace_labels(snapshot, namespace))


def _selected(snapshot: ClusterSnapshot, term: Term, pod: PodRecord) -> list[PodRecord]:
    """The pods that a term selects, on nodes or not."""
    return [
        other
        for other in snapshot.cluster.pods.values()
        if other is not pod
        and other.reservation is None
        and term.selector.matches(other.cls.labels)
        and _covers(snapshot, term, other.namespace)
    ]


def awaited_pods(snapshot: ClusterSnapshot, pod: PodRecord) -> list[PodRecord]:
    """Pending pods that required terms select, where no pod on a node is selected."""
    found: list[PodRecord] = []
    for own in terms_of(pod.cls):
        selected = _selected(snapshot, own.term, pod) if own.role is Role.REQUIRED else []
        if all(other.row < 0 for other in selected):
            found += selected
    return found


def _none_there(snapshot: ClusterSnapshot, term: Term, pod: PodRecord) -> str:
    """Where no pod matches, where some would, and the label that may be meant."""
    pods = [other for other in snapshot.cluster.pods.values() if other.reservation is None]
    if elsewhere := _elsewhere(snapshot, term):
        names = few(elsewhere, _FEW)
        return f"; there are some in other namespaces ({names}), which it does not cover"
    covered = sorted(term.namespaces) or sorted(
        {other.namespace for other in pods if _covers(snapshot, term, other.namespace)}
    )
    noun = plural(len(covered), "namespace")
    where = f"{noun} {few(covered, _FEW)}" if covered else "the namespaces that it selects"
    hints = [f"{key}={value}" for _, (key, value) in _near_labels(snapshot, term, pod).items()]
    hint = f"; did you mean {' '.join(hints)}?" if hints else ""
    return f", and no pod in {where} has these labels{hint}"


def _elsewhere(snapshot: ClusterSnapshot, term: Term) -> list[str]:
    """The namespaces with pods that the term would select if it covered them."""
    found = {
        other.namespace
        for other in snapshot.cluster.pods.values()
        if other.reservation is None and term.selector.matches(other.cls.labels)
    }
    return sorted(each for each in found if not _covers(snapshot, term, each))


def _missing_key(snapshot: ClusterSnapshot, key: str, nodes: list[str]) -> str:
    """Says so if no node has the topology key, or some of these nodes do not."""
    labels = labels_of_nodes(snapshot)
    if key not in labels:
        return f"no node has the label {key}{did_you_mean(key, similar_keys(key, labels))}"
    infos = {name: snapshot.cluster.nodes.info[row_of(snapshot, name)] for name in nodes}
    lacking = [name for name, info in infos.items() if key not in info.labels]
    return f"the label {key} is missing on {few(lacking, _FEW)}" if lacking else ""


def _wants_itself(snapshot: ClusterSnapshot, term: Term, pod: PodRecord) -> bool:
    return term.wants(pod.cls, _namespace_labels(snapshot, pod.namespace))


def _may_be_first(snapshot: ClusterSnapshot, pod: PodRecord) -> bool:
    """Whether its required affinity is met, as long as no other pod meets it, by the pod itself: on any
    node that has the topology keys."""
    terms = [own.term for own in terms_of(pod.cls) if own.role is Role.REQUIRED]
    return all(_wants_itself(snapshot, term, pod) for term in terms)


def _keeps_away(snapshot: ClusterSnapshot, other: PodRecord, pod: PodRecord) -> bool:
    return any(
        own.role is Role.FORBIDDEN
        and own.term.selector.matches(pod.cls.labels)
        and _covers(snapshot, own.term, pod.namespace)
        for own in terms_of(other.cls)
    )


def selector_text(own: OwnTerm) -> str:
    parts = []
    for each in own.term.selector.requirements:
        values = f"{','.join(each.values)}" if each.values else ""
        text = (
            f"{each.key}={values}" if each.operator == "In" else f"{each.key} {each.operator} {values}"
        )
        parts.append(text.strip())
    return " ".join(parts) or "all pods"


def _places(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> str:
    texts = [
        f"{pod.namespace}/{pod.name} on {snapshot.cluster.nodes.name(pod.row)}" for pod in pods[:20]
    ]
    return few(texts, _FEW)


def too_few_domains(snapshot: ClusterSnapshot, pod: PodRecord, pods: int) -> Iterator[str]:
    """Anti-affinity of pods to each other, where there are more of them than domains."""
    labels = labels_of_nodes(snapshot)
    for own in terms_of(pod.cls):
        if own.role is not Role.FORBIDDEN or not own.term.selector.matches(pod.cls.labels):
            continue
        key = own.term.topology_key
        domains = len(labels.get(key, ()))
        if domains < pods and _covers(snapshot, own.term, pod.namespace):
            what = "node" if key == HOSTNAME_LABEL else f"value of {key}"
            yield needs_more(f"its anti-affinity to {selector_text(own)}", what, domains, pods)


# Corrections


def corrected_terms(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    """Required terms that select no pod, with the nearest labels that pods have; and terms by a
    topology key that no node has, with the nearest one."""
    labels = labels_of_nodes(snapshot)
    for own in terms_of(pod.cls):
        if own.role is not Role.REQUIRED:
            continue
        if not _selected(snapshot, own.term, pod):
            for namespace in _elsewhere(snapshot, own.term)[:_FEW]:
                selector = selector_text(own)
                text = f"add {namespace} to namespaces of its pod affinity to {selector}"
                edit = _covering(snapshot, own.term, pod, namespace)
                yield repair(text, "CorrectAffinity", spec_changes(snapshot, subject, edit))
            for (key, value), near in _near_labels(snapshot, own.term, pod).items():
                right = f"{near[0]}={near[1]}"
                text = f"require pods with {right} instead of {key}={value} in its pod affinity"
                edit = _relabelled(key, value, *near)
                yield repair(text, "CorrectAffinity", spec_changes(snapshot, subject, edit))
        key = own.term.topology_key
        for near_key in nearest(key, similar_keys(key, labels)) if key not in labels else ():
            text = f"use the topologyKey {near_key} instead of {key} in its pod affinity"
            edit = _by_other_key(key, near_key)
            yield repair(text, "CorrectAffinity", spec_changes(snapshot, subject, edit))


def _near_labels(
    snapshot: ClusterSnapshot, term: Term, pod: PodRecord
) -> dict[tuple[str, str], tuple[str, str]]:
    """For labels that no pod of the term's namespaces has, the nearest ones that some have."""
    there: dict[str, set[str]] = {}
    for other in snapshot.cluster.pods.values():
        if other is pod or other.reservation is not None:
            continue
        if _covers(snapshot, term, other.namespace):
            for key, value in other.cls.labels.items():
                there.setdefault(key, set()).add(value)
    found = {}
    for each in term.selector.requirements:
        if each.operator == "In" and (near := _near_label(there, each)) is not None:
            found[each.key, each.values[0]] = near
    return found


def _near_label(there: dict[str, set[str]], wanted: Requirement) -> tuple[str, str] | None:
    for key in [wanted.key] if wanted.key in there else nearest(wanted.key, there):
        if any(value in there[key] for value in wanted.values):
            return (key, wanted.values[0]) if key != wanted.key else None
        for value in nearest(wanted.values[0], there[key]):
            return key, value
    return None


def _terms(spec: Raw) -> tuple[Raw, list[Raw]]:
    affinity = copy.deepcopy((spec.get("affinity") or {}).get("podAffinity") or {})
    return affinity, affinity.get(_REQUIRED) or []


def _relabelled(key: str, value: str, near_key: str, near_value: str) -> Edit:
    def edit(spec: Raw) -> Raw:
        affinity, terms = _terms(spec)
        for selector in (term.get("labelSelector") or {} for term in terms):
            labels = selector.get("matchLabels") or {}
            if labels.get(key) == value:
                del labels[key]
                labels[near_key] = near_value
            for each in selector.get("matchExpressions") or ():
                if each.get("key") == key and value in (each.get("values") or ()):
                    each["key"] = near_key
                    each["values"] = [near_value if v == value else v for v in each["values"]]
        return {"affinity": {"podAffinity": affinity}}

    return edit


def _covering(snapshot: ClusterSnapshot, term: Term, pod: PodRecord, namespace: str) -> Edit:
    """The terms that are the same as one, for pods of another namespace as well."""

    def edit(spec: Raw) -> Raw:
        affinity, terms = _terms(spec)
        for each in terms:
            if compile_term(msgspec.convert(each, PodAffinityTerm), pod.cls) == term:
                each["namespaces"] = [*(each.get("namespaces") or ()), namespace]
        return {"affinity": {"podAffinity": affinity}}

    return edit


def _by_other_key(key: str, near: str) -> Edit:
    def edit(spec: Raw) -> Raw:
        affinity, terms = _terms(spec)
        for term in terms:
            if term.get("topologyKey") == key:
                term["topologyKey"] = near
        return {"affinity": {"podAffinity": affinity}}

    return edit
