"""Arguments of plugins (`pluginConfig[].args`): typed where the plugin's own are known.

`read_args` turns what the file says into what the plugin gets; `default_args` is what a plugin
gets when the file says nothing. A third party's plugin gets its mapping as it stands.
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
