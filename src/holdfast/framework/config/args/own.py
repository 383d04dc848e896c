"""Arguments of Holdfast's plugins; those that Koordinator has too keep its names and defaults."""

from typing import Annotated, Any, Literal

import msgspec

from holdfast.api.intorstring import percentage
from holdfast.framework.config.args.parts import (
    CPU_AND_MEMORY,
    ResourceSpec,
    check_candidates,
    check_distinct,
    check_ignored,
    weighed,
)
from holdfast.framework.config.problems import Problems, child, item
from holdfast.framework.config.reading import Count, Percent, Seconds, Section, Weight, described


class ReservationSelectorIndex(Section, frozen=True):
    enabled: bool = False
    key_prefixes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


class ReservationArgs(Section, frozen=True):
    enable_preemption: bool = False
    min_candidate_nodes_percentage: Percent = 10
    min_candidate_nodes_absolute: Count = 100
    controller_workers: Annotated[int, msgspec.Meta(ge=1)] = 1
    gc_duration_seconds: Count = 86400
    gc_interval_seconds: Annotated[int, msgspec.Meta(ge=1)] = 60
    disable_garbage_collection: bool = False
    resync_interval_seconds: Annotated[int, msgspec.Meta(ge=1)] = 60
    pre_allocation_config: dict[str, Any] | None = None
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    reservation_selector_index: ReservationSelectorIndex = ReservationSelectorIndex()

    def ignores(self, resource: str) -> bool:
        """Whether Restricted does not mean this resource: it may come from the node too."""
        group, slash, _ = resource.partition("/")
        return resource in self.ignored_resources or (
            bool(slash) and group in self.ignored_resource_groups
        )


class ReservationPreemptionArgs(Section, frozen=True):
    eviction: Literal["Delete", "Soft"] = "Delete"
    soft_evictor: bool = False


class CoschedulingArgs(Section, frozen=True):
    """What scheduler-plugins and Koordinator have. No member of a job waits with a place in its hands,
    so only the time a job may take counts; the rest is read so that such files load."""

    permit_waiting_time_seconds: Count | None = None
    default_timeout: Seconds | None = None
    pod_group_backoff_seconds: Count = 0
    controller_workers: Annotated[int, msgspec.Meta(ge=1)] = 1
    skip_check_schedule_cycle: bool = False
    enable_preemption: bool = False
    aware_network_topology: bool = False
    default_match_policy: Literal["", "once-satisfied", "only-waiting", "waiting-and-running"] = ""

    @property
    def timeout(self) -> float | None:
        """How long jobs may wait that do not say so themselves; None if that is not said."""
        given = self.default_timeout or self.permit_waiting_time_seconds
        return float(given) if given else None


class LimitAwareArgs(Section, frozen=True):
    """Resources to score by, and for each limited resource the percentage of allocatable."""

    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY
    default_limit_to_allocatable_ratio: dict[str, int] = msgspec.field(default_factory=dict)


class GivenLimitAwareArgs(Section, frozen=True):
    """Both spellings of the weights, and both of a percentage, as a file may have them."""

    resources: tuple[ResourceSpec, ...] = ()
    scoring_resource_weights: dict[str, Weight] = msgspec.field(default_factory=dict)
    default_limit_to_allocatable_ratio: dict[str, Any] = msgspec.field(default_factory=dict)


def checked_reservation(args: ReservationArgs, path: str, problems: Problems) -> ReservationArgs:
    check_ignored(args.ignored_resources, args.ignored_resource_groups, path, problems)
    check_candidates(
        args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute, path, problems
    )
    return args


def checked_limit_aware(given: GivenLimitAwareArgs, path: str, problems: Problems) -> LimitAwareArgs:
    check_distinct(given.resources, child(path, "resources"), problems)
    weights = {each.name: each.weight for each in given.resources}
    for name, weight in given.scoring_resource_weights.items():
        if weights.setdefault(name, weight) != weight:
            problems.add(
                item(child(path, "scoringResourceWeights"), name),
                f"is {weight}, but {child(path, 'resources')} says {weights[name]}",
            )
    ratios = {}
    for name, ratio in given.default_limit_to_allocatable_ratio.items():
        percent = percentage(ratio)
        if percent is None:
            problems.add(
                item(child(path, "defaultLimitToAllocatableRatio"), name),
                f'expected a percentage such as "125%" or 125, got {described(ratio)}',
            )
        else:
            ratios[name] = percent
    resources = weighed([ResourceSpec(name, weight) for name, weight in weights.items()])
    return LimitAwareArgs(resources, ratios)
