"""Arguments of plugins (`pluginConfig[].args`): typed where the plugin's own are known.

`read_args` turns what the file says into what the plugin gets; `default_args` is what a plugin
gets when the file says nothing. A third party's plugin gets its mapping as it stands.
"""

from holdfast.framework.config.args.devices import (
    DeviceScoringStrategy,
    DeviceShareArgs,
    NodeNUMAResourceArgs,
)
from holdfast.framework.config.args.kube import (
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatio,
    ScoringStrategy,
    VolumeBindingArgs,
)
from holdfast.framework.config.args.own import (
    CoschedulingArgs,
    LimitAwareArgs,
    ReservationArgs,
    ReservationPreemptionArgs,
    ReservationSelectorIndex,
)
from holdfast.framework.config.args.parts import ResourceSpec, ShapePoint
from holdfast.framework.config.args.spread import PodTopologySpreadArgs, SpreadConstraint
from holdfast.framework.config.args.table import HAVE_ARGS, default_args, read_args, write_args

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
    "ResourceSpec",
    "ScoringStrategy",
    "ShapePoint",
    "SpreadConstraint",
    "VolumeBindingArgs",
    "default_args",
    "read_args",
    "write_args",
]
