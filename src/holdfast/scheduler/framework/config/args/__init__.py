"""Arguments of plugins (`pluginConfig[].args`), typed for the plugins in the table.

    table  which plugin has which arguments
    types  the arguments

`read_args` decodes a plugin's arguments; `default_args` are those of a plugin that the file does not
mention. A third-party plugin gets its mapping unchanged.
"""

from holdfast.scheduler.framework.config.args.table import (
    HAVE_ARGS,
    default_args,
    read_args,
    write_args,
)
from holdfast.scheduler.framework.config.args.types import (
    CoschedulingArgs,
    DefaultPreemptionArgs,
    DeviceScoringStrategy,
    DeviceShareArgs,
    InterPodAffinityArgs,
    LimitAwareArgs,
    NodeAffinityArgs,
    NodeNUMAResourceArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RequestedToCapacityRatio,
    ReservationArgs,
    ReservationPreemptionArgs,
    ReservationSelectorIndex,
    ResourceWeight,
    ScoringStrategy,
    ShapePoint,
    SpreadConstraint,
    VolumeBindingArgs,
)

__all__ = [
    "HAVE_ARGS",
    "CoschedulingArgs",
    "DefaultPreemptionArgs",
    "DeviceScoringStrategy",
    "DeviceShareArgs",
    "InterPodAffinityArgs",
    "LimitAwareArgs",
    "NodeAffinityArgs",
    "NodeNUMAResourceArgs",
    "NodeResourcesBalancedAllocationArgs",
    "NodeResourcesFitArgs",
    "PodTopologySpreadArgs",
    "RequestedToCapacityRatio",
    "ReservationArgs",
    "ReservationPreemptionArgs",
    "ReservationSelectorIndex",
    "ResourceWeight",
    "ScoringStrategy",
    "ShapePoint",
    "SpreadConstraint",
    "VolumeBindingArgs",
    "default_args",
    "read_args",
    "write_args",
]
