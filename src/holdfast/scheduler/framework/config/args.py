"""Arguments of plugins (`pluginConfig[].args`): their types, defaults and validation, and a table of
which plugin has which.

`read_args` decodes a plugin's arguments; `default_args` are those of a plugin that the file does not
mention. A third-party plugin gets its mapping unchanged.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from holdfast.api import names
from holdfast.api.affinity import NodeAffinity, NodeSelectorTerm
from holdfast.api.decode import convert
from holdfast.api.name_rules import label_key
from holdfast.api.selectors import term_problems
from holdfast.api.workloads import percentage
from holdfast.scheduler.framework.config.document import API_VERSION
from holdfast.scheduler.framework.config.structs import (
    Count,
    Name,
    Percent,
    Problems,
    Seconds,
    Section,
    Weight,
    child,
    described,
    item,
    read,
    write,
)


class ResourceWeight(Section, frozen=True):
    """A resource and its weight in a score."""

    name: Name
    weight: Weight = 1


class ShapePoint(Section, frozen=True):
    """A point of a scoring function: the score at a utilization in percent."""

    utilization: Percent = 0
    score: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0


CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))


def weighed(resources: Sequence[ResourceWeight]) -> tuple[ResourceWeight, ...]:
    """The resources, cpu and memory by default; a weight of 0 means 1."""
    if not resources:
        return CPU_AND_MEMORY
    return tuple(ResourceWeight(each.name, each.weight or 1) for each in resources)


def check_distinct(resources: Iterable[ResourceWeight], path: str, problems: Problems) -> None:
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
        if fault := _name_fault(name):
            problems.add(item(child(path, "ignoredResources"), i), fault)
    for i, group in enumerate(groups):
        fault = (
            f'"{group}" is a resource; a group is what comes before the slash'
            if "/" in group
            else _name_fault(group)
        )
        if fault:
            problems.add(item(child(path, "ignoredResourceGroups"), i), fault)


def check_candidates(percentage: int, absolute: int, path: str, problems: Problems) -> None:
    """Checks that preemption compares at least one candidate node."""
    if percentage == 0 and absolute == 0:
        problems.add(
            child(path, "minCandidateNodesPercentage"),
            "must not be 0 while minCandidateNodesAbsolute is 0",
        )


# Arguments of PodTopologySpread: the constraints of pods that have none of their own.


_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class SpreadConstraint(Section, frozen=True):
    """A v1 TopologySpreadConstraint without a selector, which is that of each pod's service or
    controller."""

    max_skew: _AtLeastOne
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: dict[str, Any] | None = None
    min_domains: _AtLeastOne | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    match_label_keys: tuple[str, ...] = ()


class PodTopologySpreadArgs(Section, frozen=True):
    """`System` stands for kube-scheduler's default constraints, `List` for those given here."""

    default_constraints: tuple[SpreadConstraint, ...] = ()
    defaulting_type: Literal["System", "List"] = "System"


def checked_spread(args: PodTopologySpreadArgs, path: str, problems: Problems) -> PodTopologySpreadArgs:
    if args.defaulting_type == "System" and args.default_constraints:
        problems.add(child(path, "defaultingType"), "must be List when defaultConstraints are given")
    first: dict[tuple[str, str], str] = {}
    for i, constraint in enumerate(args.default_constraints):
        at = item(child(path, "defaultConstraints"), i)
        if fault := _name_fault(constraint.topology_key):
            problems.add(child(at, "topologyKey"), fault)
        if constraint.label_selector is not None:
            problems.add(child(at, "labelSelector"), "must not be given, as it is deduced for each pod")
        what = (constraint.topology_key, constraint.when_unsatisfiable)
        if what in first:
            problems.add(at, f"has the topologyKey and whenUnsatisfiable of {first[what]}")
        first.setdefault(what, at)
    return args


# Arguments of kube-scheduler's plugins, with its names, defaults and rules.


_MAX_RESOURCE_WEIGHT = 100


class RequestedToCapacityRatio(Section, frozen=True):
    shape: tuple[ShapePoint, ...] = ()


class ScoringStrategy(Section, frozen=True):
    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None


class NodeResourcesFitArgs(Section, frozen=True):
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy("LeastAllocated")


class NodeResourcesBalancedAllocationArgs(Section, frozen=True):
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY


class NodeAffinityArgs(Section, frozen=True):
    """`added_affinity` is a valid v1 NodeAffinity, not decoded."""

    added_affinity: dict[str, Any] | None = None


class _Requirement(Section, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class _Term(Section, frozen=True):
    match_expressions: tuple[_Requirement, ...] = ()
    match_fields: tuple[_Requirement, ...] = ()


class _RequiredTerms(Section, frozen=True):
    node_selector_terms: tuple[_Term, ...] = ()


class _PreferredTerm(Section, frozen=True):
    weight: int = 0
    preference: _Term = _Term()


class _AddedAffinity(Section, frozen=True):
    """The fields of a v1 NodeAffinity."""

    required_during_scheduling_ignored_during_execution: _RequiredTerms | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[_PreferredTerm, ...] = ()


class InterPodAffinityArgs(Section, frozen=True):
    hard_pod_affinity_weight: Percent = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class DefaultPreemptionArgs(Section, frozen=True):
    """`hold_room` is Holdfast's own: whether preempted capacity is held by a reservation."""

    min_candidate_nodes_percentage: Percent = 10
    min_candidate_nodes_absolute: Count = 100
    hold_room: bool = True


class VolumeBindingArgs(Section, frozen=True):
    bind_timeout_seconds: Count = 600
    shape: tuple[ShapePoint, ...] = (ShapePoint(0, 10), ShapePoint(100, 0))


class DynamicResourcesArgs(Section, frozen=True):
    """`filter_timeout` is the time that allocating devices on one node may take, 0 for no limit;
    `binding_timeout` the time that devices may take to be ready (their binding conditions)."""

    filter_timeout: Seconds = 10.0
    binding_timeout: Seconds = 600.0


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
    at, before = child(path, "addedAffinity"), len(problems)
    read(_AddedAffinity, args.added_affinity or {}, at, problems)
    if len(problems) > before:
        return args
    added = convert(args.added_affinity or {}, NodeAffinity)
    required = added.required_during_scheduling_ignored_during_execution
    terms = child(child(at, "requiredDuringSchedulingIgnoredDuringExecution"), "nodeSelectorTerms")
    for i, term in enumerate(required.node_selector_terms if required is not None else ()):
        _check_term(term, item(terms, i), problems)
    preferred = child(at, "preferredDuringSchedulingIgnoredDuringExecution")
    for i, weighted in enumerate(added.preferred_during_scheduling_ignored_during_execution):
        if weighted.weight:
            _check_term(weighted.preference, child(item(preferred, i), "preference"), problems)
    return args


def _check_term(term: NodeSelectorTerm, path: str, problems: Problems) -> None:
    for text in term_problems(term, path):
        where, _, message = text.partition(": ")
        problems.add(where, message)
    for i, field in enumerate(term.match_fields):
        if field.key != names.NODE_NAME_FIELD:
            at = child(item(child(path, "matchFields"), i), "key")
            problems.add(at, f'must be "{names.NODE_NAME_FIELD}", got {described(field.key)}')


def checked_preemption(
    args: DefaultPreemptionArgs, path: str, problems: Problems
) -> DefaultPreemptionArgs:
    check_candidates(
        args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute, path, problems
    )
    return args


def checked_dynamic_resources(
    args: DynamicResourcesArgs, path: str, problems: Problems
) -> DynamicResourcesArgs:
    if args.binding_timeout < 1:
        problems.add(child(path, "bindingTimeout"), "must be at least 1 second")
    return args


def checked_volume_binding(args: VolumeBindingArgs, path: str, problems: Problems) -> VolumeBindingArgs:
    if not args.shape:
        return msgspec.structs.replace(args, shape=VolumeBindingArgs().shape)
    check_shape(args.shape, child(path, "shape"), problems)
    return args


# Arguments of Holdfast's plugins; those that Koordinator has too keep its names and defaults.


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
        """Whether the policy Restricted ignores this resource, so that it may come from the node
        too."""
        group, slash, _ = resource.partition("/")
        return resource in self.ignored_resources or (
            bool(slash) and group in self.ignored_resource_groups
        )


class ReservationPreemptionArgs(Section, frozen=True):
    eviction: Literal["Delete", "Soft"] = "Delete"
    soft_evictor: bool = False


class CoschedulingArgs(Section, frozen=True):
    """The arguments of scheduler-plugins and Koordinator. Only the time a job may wait has an effect,
    since members do not wait on nodes for others; the rest is accepted so that such files load."""

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
        """The default time in seconds that a job may wait; None if it is not limited."""
        given = self.default_timeout or self.permit_waiting_time_seconds
        return float(given) if given else None


class LimitAwareArgs(Section, frozen=True):
    """The weights of resources in the score, and the percentage of allocatable by limited resource."""

    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    default_limit_to_allocatable_ratio: dict[str, int] = msgspec.field(default_factory=dict)


class GivenLimitAwareArgs(Section, frozen=True):
    """The arguments as a file has them, with two spellings each of weights and percentages."""

    resources: tuple[ResourceWeight, ...] = ()
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
                f"is {weight}, but {child(path, 'resources')} has {weights[name]}",
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
    resources = weighed([ResourceWeight(name, weight) for name, weight in weights.items()])
    return LimitAwareArgs(resources, ratios)


# Arguments of DeviceShare and NodeNUMAResource; what Koordinator has too keeps its names and
# defaults.


_COUNTED = tuple(
    ResourceWeight(name) for name in (names.GPU_MEMORY_RATIO, names.GPU_MEMORY, names.RDMA, names.FPGA)
)


class DeviceScoringStrategy(Section, frozen=True):
    """LeastAllocated spreads pods, MostAllocated packs them, BestFit prefers the node with the least
    left over, and LeastFragmented keeps what is left usable for future pods."""

    type: Literal["LeastAllocated", "MostAllocated", "BestFit", "LeastFragmented"] = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = _COUNTED


class DeviceShareArgs(Section, frozen=True):
    allocator: str = ""
    scoring_strategy: DeviceScoringStrategy = DeviceScoringStrategy()
    disable_device_numa_topology_alignment: bool = msgspec.field(
        default=False, name="disableDeviceNUMATopologyAlignment"
    )
    gpu_shared_resource_templates_config: dict[str, Any] | None = msgspec.field(
        default=None, name="gpuSharedResourceTemplatesConfig"
    )


def checked_device_share(args: DeviceShareArgs, path: str, problems: Problems) -> DeviceShareArgs:
    strategy = args.scoring_strategy
    check_distinct(strategy.resources, child(child(path, "scoringStrategy"), "resources"), problems)
    resources = tuple(ResourceWeight(each.name, each.weight or 1) for each in strategy.resources)
    complete = msgspec.structs.replace(strategy, resources=resources or _COUNTED)
    return msgspec.structs.replace(args, scoring_strategy=complete)


class NodeNUMAResourceArgs(Section, frozen=True):
    default_cpu_bind_policy: Literal["", "FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst"] = (
        msgspec.field(default="FullPCPUs", name="defaultCPUBindPolicy")
    )
    scoring_strategy: ScoringStrategy = ScoringStrategy("LeastAllocated")
    numa_scoring_strategy: ScoringStrategy = ScoringStrategy("LeastAllocated")


def checked_numa(args: NodeNUMAResourceArgs, path: str, problems: Problems) -> NodeNUMAResourceArgs:
    complete = {}
    for field, name in (
        ("scoring_strategy", "scoringStrategy"),
        ("numa_scoring_strategy", "numaScoringStrategy"),
    ):
        strategy: ScoringStrategy = getattr(args, field)
        at = child(path, name)
        check_distinct(strategy.resources, child(at, "resources"), problems)
        if strategy.type == "RequestedToCapacityRatio":
            problems.add(child(at, "type"), "must be LeastAllocated or MostAllocated")
        complete[field] = msgspec.structs.replace(strategy, resources=weighed(strategy.resources))
    return msgspec.structs.replace(args, **complete)


def _name_fault(name: str) -> str:
    """Why the text is not a valid name of a label or resource; empty if it is."""
    problems = label_key(name)
    return f'Invalid value: "{name}": {"; ".join(problems)}' if problems else ""


# The table: a plugin with typed arguments is one line here.


class _Typed(NamedTuple):
    given: type[Section]
    checked: Callable[[Any, str, Problems], Section]


def _as_is(args: Section, _path: str, _problems: Problems) -> Section:
    return args


_TYPED: Mapping[str, _Typed] = {
    "Coscheduling": _Typed(CoschedulingArgs, _as_is),
    "DefaultPreemption": _Typed(DefaultPreemptionArgs, checked_preemption),
    "DeviceShare": _Typed(DeviceShareArgs, checked_device_share),
    "DynamicResources": _Typed(DynamicResourcesArgs, checked_dynamic_resources),
    "InterPodAffinity": _Typed(InterPodAffinityArgs, _as_is),
    "LimitAware": _Typed(GivenLimitAwareArgs, checked_limit_aware),
    "NodeAffinity": _Typed(NodeAffinityArgs, checked_node_affinity),
    "NodeNUMAResource": _Typed(NodeNUMAResourceArgs, checked_numa),
    "NodeResourcesBalancedAllocation": _Typed(NodeResourcesBalancedAllocationArgs, checked_balance),
    "NodeResourcesFit": _Typed(NodeResourcesFitArgs, checked_fit),
    "PodTopologySpread": _Typed(PodTopologySpreadArgs, checked_spread),
    "Reservation": _Typed(ReservationArgs, checked_reservation),
    "ReservationPreemption": _Typed(ReservationPreemptionArgs, _as_is),
    "VolumeBinding": _Typed(VolumeBindingArgs, checked_volume_binding),
}

# These plugins decode parts of their arguments themselves.
_RAW = frozenset({"DynamicReservation"})

HAVE_ARGS = frozenset(_TYPED) | _RAW


def default_args(plugin: str) -> Any:
    """The arguments of a plugin that the file gives none; None if it has no typed arguments."""
    return read_args(plugin, {}, "", Problems()) if plugin in HAVE_ARGS else None


def read_args(plugin: str, raw: object, path: str, problems: Problems) -> Any:
    """The plugin's arguments as a struct, or as the unchanged mapping if they are not typed."""
    if not isinstance(raw, Mapping):
        problems.add(path, f"expected a mapping, got {described(raw)}")
        return None
    if plugin not in HAVE_ARGS:
        return raw
    for name, expected in _type_meta(plugin).items():
        if raw.get(name) not in (None, expected):
            problems.add(child(path, name), f'must be "{expected}", got {described(raw[name])}')
    rest = {key: value for key, value in raw.items() if key not in ("apiVersion", "kind")}
    if plugin in _RAW:
        return rest
    typed = _TYPED[plugin]
    before = len(problems)
    given = read(typed.given, rest, path, problems)
    if given is None or len(problems) > before:
        return None
    return typed.checked(given, path, problems)


def write_args(plugin: str, args: Any) -> dict[str, Any]:
    """The mapping that `read_args` turns into these arguments."""
    if isinstance(args, msgspec.Struct):
        return _type_meta(plugin) | write(args)
    return _type_meta(plugin) | dict(args) if plugin in _RAW else dict(args)


def _type_meta(plugin: str) -> dict[str, str]:
    return {"apiVersion": API_VERSION, "kind": f"{plugin}Args"}
