"""One module per scheduling plugin.

`IN_TREE` lists them: a new plugin is a module and a line here. A few modules are shared by plugins:

    preemption_candidates  nodes with victims, and which of them is chosen
    resource_allocation    scores by requested resources
    gpu_fragmentation      GPU fragmentation, and the score by it

May import `framework` and the parts below it, never an action.
"""

from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins.coscheduling import Coscheduling
from holdfast.scheduler.plugins.default_binder import DefaultBinder
from holdfast.scheduler.plugins.default_preemption import DefaultPreemption
from holdfast.scheduler.plugins.device_share import DeviceShare
from holdfast.scheduler.plugins.dynamic_reservation import DynamicReservation
from holdfast.scheduler.plugins.dynamic_resources import DynamicResources
from holdfast.scheduler.plugins.image_locality import ImageLocality
from holdfast.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from holdfast.scheduler.plugins.limit_aware import LimitAware
from holdfast.scheduler.plugins.node_affinity import NodeAffinityPlugin
from holdfast.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from holdfast.scheduler.plugins.node_name import NodeName
from holdfast.scheduler.plugins.node_numa_resource import NodeNUMAResource
from holdfast.scheduler.plugins.node_order import NodeOrder
from holdfast.scheduler.plugins.node_ports import NodePorts
from holdfast.scheduler.plugins.node_resources_balanced import NodeResourcesBalancedAllocation
from holdfast.scheduler.plugins.node_resources_fit import NodeResourcesFit
from holdfast.scheduler.plugins.node_unschedulable import NodeUnschedulable
from holdfast.scheduler.plugins.node_volume_limits import NodeVolumeLimits
from holdfast.scheduler.plugins.pod_topology_spread import PodTopologySpread
from holdfast.scheduler.plugins.priority_sort import PrioritySort
from holdfast.scheduler.plugins.reservation import ReservationPlugin
from holdfast.scheduler.plugins.reservation_preemption import ReservationPreemption
from holdfast.scheduler.plugins.scheduling_gates import SchedulingGates
from holdfast.scheduler.plugins.taint_toleration import TaintToleration
from holdfast.scheduler.plugins.volume_binding import VolumeBinding
from holdfast.scheduler.plugins.volume_restrictions import VolumeRestrictions
from holdfast.scheduler.plugins.volume_zone import VolumeZone

IN_TREE = (
    Coscheduling,
    DefaultBinder,
    DefaultPreemption,
    DynamicReservation,
    DynamicResources,
    DeviceShare,
    ImageLocality,
    LimitAware,
    NodeAffinityPlugin,
    NodeDeclaredFeatures,
    NodeName,
    NodeOrder,
    NodeNUMAResource,
    NodePorts,
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    NodeUnschedulable,
    NodeVolumeLimits,
    PodTopologySpread,
    InterPodAffinity,
    PrioritySort,
    ReservationPlugin,
    ReservationPreemption,
    SchedulingGates,
    TaintToleration,
    VolumeBinding,
    VolumeRestrictions,
    VolumeZone,
)


def registry() -> Registry:
    """All plugins: in-tree ones, and those that installed packages provide."""
    return Registry(IN_TREE).add_installed()
