"""Arguments of DeviceShare and NodeNUMAResource; what Koordinator has too keeps its names and
defaults."""

from typing import Any, Literal

import msgspec

from holdfast.api import names
from holdfast.framework.config.args.kube import ScoringStrategy
from holdfast.framework.config.args.parts import ResourceSpec, check_distinct, weighed
from holdfast.framework.config.problems import Problems, child
from holdfast.framework.config.reading import Section

_COUNTED = tuple(
    ResourceSpec(name) for name in (names.GPU_MEMORY_RATIO, names.GPU_MEMORY, names.RDMA, names.FPGA)
)


class DeviceScoringStrategy(Section, frozen=True):
    """LeastAllocated spreads, MostAllocated packs, BestFit packs where the least is left over, and
    LeastFragmented so that what is left is of use to the pods that come."""

    type: Literal["LeastAllocated", "MostAllocated", "BestFit", "LeastFragmented"] = "LeastAllocated"
    resources: tuple[ResourceSpec, ...] = _COUNTED


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
    resources = tuple(ResourceSpec(each.name, each.weight or 1) for each in strategy.resources)
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
