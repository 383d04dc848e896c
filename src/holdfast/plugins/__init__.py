"""One file per scheduling plugin. May import `framework` and below, never an action.

`IN_TREE` is the list of them: a new plugin is a file and a line here.
"""

from holdfast.framework.registry import Registry
from holdfast.plugins.coscheduling import Coscheduling
from holdfast.plugins.default_binder import DefaultBinder
from holdfast.plugins.default_preemption import DefaultPreemption
from holdfast.plugins.device_share import DeviceShare
from holdfast.plugins.dynamic_reservation import DynamicReservation
from holdfast.plugins.image_locality import ImageLocality
from holdfast.plugins.inter_pod_affinity import InterPodAffinity
from holdfast.plugins.limit_aware import LimitAware
from holdfast.plugins.node_affinity import NodeAffinity
from holdfast.plugins.node_name import NodeName
from holdfast.plugins.node_numa_resource import NodeNUMAResource
from holdfast.plugins.node_order import NodeOrder
from holdfast.plugins.node_ports import NodePorts
from holdfast.plugins.node_resources_balanced import NodeResourcesBalancedAllocation
from holdfast.plugins.node_resources_fit import NodeResourcesFit
from holdfast.plugins.node_unschedulable import NodeUnschedulable
from holdfast.plugins.node_volume_limits import NodeVolumeLimits
from holdfast.plugins.pod_topology_spread import PodTopologySpread
from holdfast.plugins.queue_sort import PrioritySort
from holdfast.plugins.reservation import Reservation
from holdfast.plugins.reservation_preemption import ReservationPreemption
from holdfast.plugins.scheduling_gates import SchedulingGates
from holdfast.plugins.taint_toleration import TaintToleration
from holdfast.plugins.volume_binding import VolumeBinding
from holdfast.plugins.volume_restrictions import VolumeRestrictions
from holdfast.plugins.volume_zone import VolumeZone

IN_TREE = (
    Coscheduling,
    DefaultBinder,
    DefaultPreemption,
    DynamicReservation,
    DeviceShare,
    ImageLocality,
    LimitAware,
    NodeAffinity,
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
    Reservation,
    ReservationPreemption,
    SchedulingGates,
    TaintToleration,
    VolumeBinding,
    VolumeRestrictions,
    VolumeZone,
)


def registry() -> Registry:
    """Every plugin there is: ours, and those installed packages offer."""
    return Registry(IN_TREE).add_installed()
