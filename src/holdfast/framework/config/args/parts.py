"""Pieces that the arguments of several plugins have in common, and their rules."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from holdfast.framework.config.names import qualified_name_fault
from holdfast.framework.config.problems import Problems, child, item
from holdfast.framework.config.reading import Name, Percent, Section, Weight


class ResourceSpec(Section, frozen=True):
    """A resource that counts in a score, and how much."""

    name: Name
    weight: Weight = 1


class ShapePoint(Section, frozen=True):
    """One corner of a scoring function: at this utilization (percent) this score."""

    utilization: Percent = 0
    score: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0


CPU_AND_MEMORY = (ResourceSpec("cpu"), ResourceSpec("memory"))


def weighed(resources: Sequence[ResourceSpec]) -> tuple[ResourceSpec, ...]:
    """cpu and memory if none are named; a weight of 0 means 1."""
    if not resources:
        return CPU_AND_MEMORY
    return tuple(ResourceSpec(each.name, each.weight or 1) for each in resources)


def check_distinct(resources: Iterable[ResourceSpec], path: str, problems: Problems) -> None:
    first: dict[str, str] = {}
    for i, resource in enumerate(resources):
        at = child(item(path, i), "name")
        if resource.name in first:
            problems.add(at, f'"{resource.name}" is already given in {first[resource.name]}')
        first.setdefault(resource.name, at)


def check_shape(shape: Sequence[ShapePoint], path: str, problems: Problems) -> None:
    for i in range(1, len(shape)):
        if shape[i - 1].utilization >= shape[i].utilization:
            problems.add(
                child(item(path, i), "utilization"),
                f"must be greater than the one before, {shape[i - 1].utilization}",
            )


def check_ignored(
    resources: Sequence[str], groups: Sequence[str], path: str, problems: Problems
) -> None:
    for i, name in enumerate(resources):
        if fault := qualified_name_fault(name):
            problems.add(item(child(path, "ignoredResources"), i), fault)
    for i, group in enumerate(groups):
        fault = (
            f'"{group}" is a resource; a group is what comes before the slash'
            if "/" in group
            else qualified_name_fault(group)
        )
        if fault:
            problems.add(item(child(path, "ignoredResourceGroups"), i), fault)


def check_candidates(percentage: int, absolute: int, path: str, problems: Problems) -> None:
    """How many nodes preemption looks at: not none."""
    if percentage == 0 and absolute == 0:
        problems.add(
            child(path, "minCandidateNodesPercentage"),
            "must not be 0 while minCandidateNodesAbsolute is 0",
        )
