"""One profile, for both schedulers.

Only plugins the reference knows are enabled in the real scheduler, so that the two stay comparable
while plugins are added to one of them first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.affinity import NodeAffinity as Terms
from holdfast.api.affinity import TopologySpreadConstraint
from holdfast.api.decode import convert
from reference.image_locality import ImageLocality
from reference.inter_pod_affinity import InterPodAffinity
from reference.limit_aware import LimitAware
from reference.node_affinity import NodeAffinity
from reference.node_declared_features import NodeDeclaredFeatures
from reference.node_name import NodeName
from reference.node_ports import NodePorts
from reference.node_resources_balanced import NodeResourcesBalancedAllocation
from reference.node_resources_fit import NodeResourcesFit
from reference.node_unschedulable import NodeUnschedulable
from reference.node_volume_limits import NodeVolumeLimits
from reference.pod_topology_spread import PodTopologySpread
from reference.resource_scores import Strategy
from reference.scheduler import Weighted
from reference.taint_toleration import TaintToleration
from reference.volume_binding import VolumeBinding
from reference.volume_restrictions import VolumeRestrictions
from reference.volume_zone import VolumeZone

PLUGINS = {
    "NodeName": 1,
    "NodeUnschedulable": 1,
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodePorts": 1,
    "NodeResourcesFit": 1,
    "VolumeRestrictions": 1,
    "NodeVolumeLimits": 1,
    "VolumeBinding": 1,
    "VolumeZone": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "LimitAware": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "NodeDeclaredFeatures": 1,
}
"""In the order they run, with kube-scheduler's weights."""

_WORKINGS = ("SchedulingGates", "PrioritySort", "DefaultBinder")


@dataclass(frozen=True)
class Setup:
    name: str = "default-scheduler"
    strategy: Strategy = field(default_factory=Strategy)
    balanced: tuple[str, ...] = ("cpu", "memory")
    ignored: tuple[str, ...] = ()
    ignored_groups: tuple[str, ...] = ()
    added_affinity: dict[str, Any] | None = None
    spread: tuple[dict[str, Any], ...] | None = None
    """The profile's own default constraints."""
    hard_affinity_weight: int = 1
    ignores_others: bool = False
    limit_ratio: dict[str, int | str] = field(default_factory=dict)
    """By resource, to how many percent of what a node has limits may add up."""
    limit_weights: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    preempts: bool = False
    """Whether DefaultPreemption is part of it, whose words are then added to messages."""
    weights: dict[str, int] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    """Plugins only the real scheduler has, such as those of a test."""

    def _enabled(self) -> list[str]:
        return [name for name in PLUGINS if name not in self.without]

    def _weight(self, plugin: str) -> int:
        return self.weights.get(plugin, PLUGINS[plugin])

    def plugins(self) -> Weighted:
        added = convert(self.added_affinity, Terms) if self.added_affinity else None
        made = (
            NodeName(),
            NodeUnschedulable(),
            TaintToleration(),
            NodeAffinity(added),
            NodePorts(),
            NodeResourcesFit(self.strategy, self.ignored, self.ignored_groups),
            VolumeRestrictions(),
            NodeVolumeLimits(),
            VolumeBinding(),
            VolumeZone(),
            PodTopologySpread(self._spread_constraints()),
            InterPodAffinity(self.hard_affinity_weight, ignores_others=self.ignores_others),
            LimitAware(self.limit_ratio, dict(self.limit_weights)),
            NodeResourcesBalancedAllocation(self.balanced),
            ImageLocality(),
            NodeDeclaredFeatures(),
        )
        return [(p, self._weight(p.name)) for p in made if p.name not in self.without]

    def _spread_constraints(self) -> list[TopologySpreadConstraint] | None:
        if self.spread is None:
            return None
        return [convert(constraint, TopologySpreadConstraint) for constraint in self.spread]

    def profile(self) -> dict[str, Any]:
        strategy: dict[str, Any] = {
            "type": self.strategy.type,
            "resources": [{"name": n, "weight": w} for n, w in self.strategy.resources],
        }
        if self.strategy.shape:
            strategy["requestedToCapacityRatio"] = {
                "shape": [{"utilization": u, "score": s} for u, s in self.strategy.shape]
            }
        args: dict[str, dict[str, Any]] = {
            "NodeResourcesFit": {
                "ignoredResources": list(self.ignored),
                "ignoredResourceGroups": list(self.ignored_groups),
                "scoringStrategy": strategy,
            },
            "NodeResourcesBalancedAllocation": {
                "resources": [{"name": name, "weight": 1} for name in self.balanced]
            },
        }
        args["LimitAware"] = {
            "resources": [{"name": name, "weight": weight} for name, weight in self.limit_weights],
            "defaultLimitToAllocatableRatio": self.limit_ratio,
        }
        args["InterPodAffinity"] = {
            "hardPodAffinityWeight": self.hard_affinity_weight,
            "ignorePreferredTermsOfExistingPods": self.ignores_others,
        }
        if self.spread is not None:
            args["PodTopologySpread"] = {
                "defaultingType": "List",
                "defaultConstraints": list(self.spread),
            }
        if self.added_affinity is not None:
            args["NodeAffinity"] = {"addedAffinity": self.added_affinity}
        workings = (*_WORKINGS, "DefaultPreemption") if self.preempts else _WORKINGS
        enabled = [{"name": name} for name in (*workings, *self.extra)]
        enabled += [{"name": n, "weight": self._weight(n)} for n in self._enabled()]
        return {
            "schedulerName": self.name,
            "plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}},
            "pluginConfig": [{"name": name, "args": given} for name, given in args.items()],
        }


def document(setups: Sequence[Setup], **more: Any) -> dict[str, Any]:
    """A configuration file with these profiles."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [setup.profile() for setup in setups],
        **more,
    }
