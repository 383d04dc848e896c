"""The scheduler's configuration: a parsed mapping in, checked and resolved values out.

The form is kube-scheduler's `KubeSchedulerConfiguration` (`kubescheduler.config.k8s.io/v1`) with
three more fields: `actions`, `configurations` and `dynamicReservation`.

    load(mapping, implements) ─► Configuration      everything the program needs, defaults filled in
    default_configuration(implements) ─► mapping    the effective configuration of an empty file
    to_mapping(configuration) ─► mapping            the effective configuration, loadable again

`implements` is the plugin registry as this package sees it: plugin name to the extension points it
implements. All errors of a file are reported together in one `ConfigError`, each with its path.

    load, document         the whole file; fields that kube-scheduler shares with other components
    structs                decoding of structs, and the error list
    profiles, plugin_sets  profiles; the plugins of each extension point
    actions, args          actions and their arguments; arguments of plugins

May import `msgspec` and `api`. Knows no plugin, no action and no file.
"""

from holdfast.scheduler.framework.config.actions import DEFAULT_ACTIONS, ActionConfig
from holdfast.scheduler.framework.config.args import (
    CoschedulingArgs,
    DefaultPreemptionArgs,
    DeviceScoringStrategy,
    DeviceShareArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    LimitAwareArgs,
    NodeAffinityArgs,
    NodeNUMAResourceArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ReservationArgs,
    ReservationPreemptionArgs,
    ResourceWeight,
    ScoringStrategy,
    ShapePoint,
    SpreadConstraint,
    VolumeBindingArgs,
)
from holdfast.scheduler.framework.config.document import (
    API_VERSION,
    KIND,
    ClientConnection,
    DynamicReservationConfig,
    LeaderElection,
)
from holdfast.scheduler.framework.config.load import (
    Configuration,
    default_configuration,
    load,
    to_mapping,
)
from holdfast.scheduler.framework.config.plugin_sets import (
    DEFAULT_PLUGINS,
    EXTENSION_POINTS,
    PluginRef,
    PluginSet,
)
from holdfast.scheduler.framework.config.profiles import (
    DEFAULT_SCHEDULER_NAME,
    GivenArgs,
    ResolvedProfile,
    resolve_profile,
)
from holdfast.scheduler.framework.config.structs import ConfigError

__all__ = [
    "API_VERSION",
    "DEFAULT_ACTIONS",
    "DEFAULT_PLUGINS",
    "DEFAULT_SCHEDULER_NAME",
    "EXTENSION_POINTS",
    "KIND",
    "ActionConfig",
    "ClientConnection",
    "ConfigError",
    "Configuration",
    "CoschedulingArgs",
    "DefaultPreemptionArgs",
    "DeviceScoringStrategy",
    "DeviceShareArgs",
    "DynamicReservationConfig",
    "DynamicResourcesArgs",
    "GivenArgs",
    "InterPodAffinityArgs",
    "LeaderElection",
    "LimitAwareArgs",
    "NodeAffinityArgs",
    "NodeNUMAResourceArgs",
    "NodeResourcesBalancedAllocationArgs",
    "NodeResourcesFitArgs",
    "PluginRef",
    "PluginSet",
    "PodTopologySpreadArgs",
    "ReservationArgs",
    "ReservationPreemptionArgs",
    "ResolvedProfile",
    "ResourceWeight",
    "ScoringStrategy",
    "ShapePoint",
    "SpreadConstraint",
    "VolumeBindingArgs",
    "default_configuration",
    "load",
    "resolve_profile",
    "to_mapping",
]
