"""Arguments of kube-scheduler's plugins, with its names, defaults and rules."""

from typing import Any, Literal

import msgspec

from holdfast.framework.config.args.parts import (
    CPU_AND_MEMORY,
    ResourceSpec,
    ShapePoint,
    check_candidates,
    check_distinct,
    check_ignored,
    check_shape,
    weighed,
)
from holdfast.framework.config.problems import Problems, child, hint, item
from holdfast.framework.config.reading import Count, Percent, Section

_MAX_RESOURCE_WEIGHT = 100


class RequestedToCapacityRatio(Section, frozen=True):
    shape: tuple[ShapePoint, ...] = ()


class ScoringStrategy(Section, frozen=True):
    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None


class NodeResourcesFitArgs(Section, frozen=True):
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy("LeastAllocated")


class NodeResourcesBalancedAllocationArgs(Section, frozen=True):
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY


class NodeAffinityArgs(Section, frozen=True):
    """`added_affinity` is a v1 NodeAffinity as the file has it."""

    added_affinity: dict[str, Any] | None = None


class InterPodAffinityArgs(Section, frozen=True):
    hard_pod_affinity_weight: Percent = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class DefaultPreemptionArgs(Section, frozen=True):
    """`hold_room` is Holdfast's: whether what was preempted is held by a reservation."""

    min_candidate_nodes_percentage: Percent = 10
    min_candidate_nodes_absolute: Count = 100
    hold_room: bool = True


class VolumeBindingArgs(Section, frozen=True):
    bind_timeout_seconds: Count = 600
    shape: tuple[ShapePoint, ...] = ()


def checked_fit(args: NodeResourcesFitArgs, path: str, problems: Problems) -> NodeResourcesFitArgs:
    check_ignored(args.ignored_resources, args.ignored_resource_groups, path, problems)
    strategy = args.scoring_strategy
    strategy_path = child(path, "scoringStrategy")
    resources_path = child(strategy_path, "resources")
    check_distinct(strategy.resources, resources_path, problems)
    for i, resource in enumerate(strategy.resources):
        if resource.weight > _MAX_RESOURCE_WEIGHT:
            problems.add(
                child(item(resources_path, i), "weight"),
                f"must be between 1 and {_MAX_RESOURCE_WEIGHT}, got {resource.weight}",
            )
    ratio = strategy.requested_to_capacity_ratio
    ratio_path = child(strategy_path, "requestedToCapacityRatio")
    if ratio is None and strategy.type == "RequestedToCapacityRatio":
        problems.add(ratio_path, "required for the type RequestedToCapacityRatio")
    if ratio is not None:
        if not ratio.shape:
            problems.add(child(ratio_path, "shape"), "at least one point is needed")
        check_shape(ratio.shape, child(ratio_path, "shape"), problems)
    complete = msgspec.structs.replace(strategy, resources=weighed(strategy.resources))
    return msgspec.structs.replace(args, scoring_strategy=complete)


def checked_balance(
    args: NodeResourcesBalancedAllocationArgs, path: str, problems: Problems
) -> NodeResourcesBalancedAllocationArgs:
    resources = weighed(args.resources)
    check_distinct(resources, child(path, "resources"), problems)
    for i, resource in enumerate(resources):
        if resource.weight != 1:
            problems.add(
                child(item(child(path, "resources"), i), "weight"),
                f"must be 1, got {resource.weight}",
            )
    return NodeResourcesBalancedAllocationArgs(resources)


def checked_node_affinity(args: NodeAffinityArgs, path: str, problems: Problems) -> NodeAffinityArgs:
    known = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    for name in args.added_affinity or ():
        if name not in known:
            at = child(child(path, "addedAffinity"), name)
            problems.add(at, "unknown field" + hint(name, known))
    return args


def checked_preemption(
    args: DefaultPreemptionArgs, path: str, problems: Problems
) -> DefaultPreemptionArgs:
    check_candidates(
        args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute, path, problems
    )
    return args


def checked_volume_binding(args: VolumeBindingArgs, path: str, problems: Problems) -> VolumeBindingArgs:
    check_shape(args.shape, child(path, "shape"), problems)
    return args
