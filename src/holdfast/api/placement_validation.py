"""What an API server would refuse in affinity and spread constraints."""

from __future__ import annotations

from holdfast.api.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from holdfast.api.findings import Findings
from holdfast.api.label_selectors import requirement
from holdfast.api.meta import LabelSelector
from holdfast.api.node_selectors import field_requirement, node_requirement
from holdfast.api.syntax import dns_label_problem, qualified_name_problem

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def check_label_selector(findings: Findings, selector: LabelSelector | None, path: str) -> None:
    if selector is None:
        return
    for key, value in selector.match_labels.items():
        with findings.at(f"{path}.matchLabels[{key}]"):
            requirement(key, "In", [value])
    for i, expression in enumerate(selector.match_expressions):
        with findings.at(f"{path}.matchExpressions[{i}]"):
            requirement(expression.key, expression.operator, expression.values)


def check_node_term(findings: Findings, term: NodeSelectorTerm, path: str) -> None:
    for i, expression in enumerate(term.match_expressions):
        with findings.at(f"{path}.matchExpressions[{i}]"):
            if expression.operator in ("Gt", "Lt") and len(expression.values) == 1:
                # An API server takes any label for a number; such a term selects nothing.
                requirement(expression.key, "In", expression.values)
            else:
                node_requirement(expression)
    for i, expression in enumerate(term.match_fields):
        with findings.at(f"{path}.matchFields[{i}]"):
            field_requirement(expression)


def check_affinity(findings: Findings, affinity: Affinity | None, path: str) -> None:
    if affinity is None:
        return
    if affinity.node_affinity is not None:
        _check_node_affinity(findings, affinity.node_affinity, f"{path}.nodeAffinity")
    if affinity.pod_affinity is not None:
        _check_pod_affinity(findings, affinity.pod_affinity, f"{path}.podAffinity")
    if affinity.pod_anti_affinity is not None:
        _check_pod_affinity(findings, affinity.pod_anti_affinity, f"{path}.podAntiAffinity")


def check_spread(findings: Findings, constraints: list[TopologySpreadConstraint], path: str) -> None:
    seen: set[tuple[str, str]] = set()
    for i, constraint in enumerate(constraints):
        where = f"{path}[{i}]"
        if constraint.max_skew <= 0:
            findings.add(f"{where}.maxSkew", f"must be greater than 0, not {constraint.max_skew}")
        _check_topology_key(findings, constraint.topology_key, where)
        findings.one_of(
            f"{where}.whenUnsatisfiable",
            constraint.when_unsatisfiable,
            ("DoNotSchedule", "ScheduleAnyway"),
        )
        if constraint.min_domains is not None:
            if constraint.min_domains <= 0:
                findings.add(f"{where}.minDomains", "must be greater than 0")
            if constraint.when_unsatisfiable != "DoNotSchedule":
                findings.add(f"{where}.minDomains", "can only be used with DoNotSchedule")
        for field, policy in (
            ("nodeAffinityPolicy", constraint.node_affinity_policy),
            ("nodeTaintsPolicy", constraint.node_taints_policy),
        ):
            if policy is not None:
                findings.one_of(f"{where}.{field}", policy, ("Honor", "Ignore"))
        check_label_selector(findings, constraint.label_selector, f"{where}.labelSelector")
        if constraint.match_label_keys and constraint.label_selector is None:
            findings.add(f"{where}.matchLabelKeys", "needs a labelSelector beside it")
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            findings.add(where, f"duplicate constraint for {pair[0]!r} with {pair[1]}")
        seen.add(pair)


def _check_node_affinity(findings: Findings, affinity: NodeAffinity, path: str) -> None:
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        terms = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        if not required.node_selector_terms:
            findings.add(terms, "is required: at least one term")
        for i, term in enumerate(required.node_selector_terms):
            check_node_term(findings, term, f"{terms}[{i}]")
    for i, preferred in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        where = f"{path}.{_PREFERRED}[{i}]"
        findings.within(f"{where}.weight", preferred.weight, 1, 100)
        check_node_term(findings, preferred.preference, f"{where}.preference")


def _check_pod_affinity(findings: Findings, affinity: PodAffinity, path: str) -> None:
    for i, term in enumerate(affinity.required_during_scheduling_ignored_during_execution):
        _check_pod_term(findings, term, f"{path}.{_REQUIRED}[{i}]")
    for i, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        where = f"{path}.{_PREFERRED}[{i}]"
        findings.within(f"{where}.weight", weighted.weight, 1, 100)
        _check_pod_term(findings, weighted.pod_affinity_term, f"{where}.podAffinityTerm")


def _check_pod_term(findings: Findings, term: PodAffinityTerm, path: str) -> None:
    _check_topology_key(findings, term.topology_key, path)
    check_label_selector(findings, term.label_selector, f"{path}.labelSelector")
    check_label_selector(findings, term.namespace_selector, f"{path}.namespaceSelector")
    for i, namespace in enumerate(term.namespaces):
        findings.check(f"{path}.namespaces[{i}]", dns_label_problem(namespace))
    for field, keys in (
        ("matchLabelKeys", term.match_label_keys),
        ("mismatchLabelKeys", term.mismatch_label_keys),
    ):
        if keys and term.label_selector is None:
            findings.add(f"{path}.{field}", "needs a labelSelector beside it")
        for i, key in enumerate(keys):
            findings.check(f"{path}.{field}[{i}]", qualified_name_problem(key))


def _check_topology_key(findings: Findings, key: str, path: str) -> None:
    if not key:
        findings.add(f"{path}.topologyKey", "is required")
    else:
        findings.check(f"{path}.topologyKey", qualified_name_problem(key))
