"""Label selectors and affinity terms, matched by the letter."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.api.affinity import PodAffinity, PodAffinityTerm
from holdfast.api.meta import LabelSelector, LabelSelectorRequirement
from holdfast.api.pod import Pod

Requirements = list[LabelSelectorRequirement]


def requirements(selector: LabelSelector | None) -> Requirements | None:
    """None selects nothing; an empty list everything."""
    if selector is None:
        return None
    return [*same(selector.match_labels.items()), *selector.match_expressions]


def same(labels: Iterable[tuple[str, str]]) -> Requirements:
    return [LabelSelectorRequirement(key=k, operator="In", values=[v]) for k, v in labels]


def unlike(labels: Iterable[tuple[str, str]]) -> Requirements:
    return [LabelSelectorRequirement(key=k, operator="NotIn", values=[v]) for k, v in labels]


def own_labels(pod: Pod, keys: Iterable[str]) -> list[tuple[str, str]]:
    """The pod's labels of these keys."""
    return [(key, pod.metadata.labels[key]) for key in keys if key in pod.metadata.labels]


def selected(wanted: Requirements | None, labels: dict[str, str]) -> bool:
    if wanted is None:
        return False
    return all(_holds(requirement, labels) for requirement in wanted)


def _holds(requirement: LabelSelectorRequirement, labels: dict[str, str]) -> bool:
    present = requirement.key in labels
    match requirement.operator:
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "In":
            return present and labels[requirement.key] in requirement.values
        case "NotIn":
            return not present or labels[requirement.key] not in requirement.values
    raise ValueError(requirement.operator)


def required(side: PodAffinity | None) -> list[PodAffinityTerm]:
    return [] if side is None else side.required_during_scheduling_ignored_during_execution


def preferred(side: PodAffinity | None) -> list[tuple[int, PodAffinityTerm]]:
    if side is None:
        return []
    preferences = side.preferred_during_scheduling_ignored_during_execution
    return [(preference.weight, preference.pod_affinity_term) for preference in preferences]


def affinity(pod: Pod) -> PodAffinity | None:
    return pod.spec.affinity.pod_affinity if pod.spec.affinity else None


def anti_affinity(pod: Pod) -> PodAffinity | None:
    return pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
