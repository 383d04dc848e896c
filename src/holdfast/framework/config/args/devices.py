"""Arguments of DeviceShare; what Koordinator has too keeps its names and defaults."""

from typing import Any, Literal

import msgspec

from holdfast.api import names
from holdfast.framework.config.args.parts import ResourceSpec, check_distinct
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
