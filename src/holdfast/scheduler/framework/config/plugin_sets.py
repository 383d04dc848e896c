"""Plugin sets: which plugins run at each extension point, and in which order.

The rules are kube-scheduler's. First the file's sets are merged with the default ones: a default plugin
that the file names gets the file's weight and keeps its position; other plugins follow. Then
`multiPoint` is expanded for each extension point to the plugins that implement it, and the point's own
set takes precedence:

    1. plugins named at the point and in multiPoint, in the order of the point
    2. the other plugins of multiPoint, without those that the point disables
       (Coscheduling sorts the queue only if no other plugin does, or if it is named there)
    3. plugins named at the point alone

The framework itself refers to some plugins by name: some features are more than a plugin, and a plugin
of this name switches them on for its profile.
"""

from collections.abc import Mapping

import msgspec

from holdfast.scheduler.framework.config.structs import (
    Name,
    Problems,
    Section,
    Weight,
    child,
    hint,
    item,
)

Implements = Mapping[str, frozenset[str]]
"""The plugin registry: plugin name to the extension points it implements."""


class InstalledPlugins(dict[str, frozenset[str]]):
    """A registry that also knows plugins that are installed and cannot be used."""

    def __init__(self, usable: Implements, unusable: Mapping[str, str]) -> None:
        super().__init__(usable)
        self.unusable = unusable
        """Why, by the plugin's name."""


RESERVATION = "Reservation"
"""With it pods allocate from reservations."""
DYNAMIC_RESERVATION = "DynamicReservation"
"""With it pods that bring a template get a reservation of their own."""
COSCHEDULING = "Coscheduling"
"""With it, at `permit`, the pods of a job are placed together or not at all."""
PREEMPTION = "DefaultPreemption"
"""Its `post_filter` is part of the action `preempt`."""
RESERVATION_PREEMPTION = "ReservationPreemption"
"""With it reservations preempt reservations of lower priority."""
DYNAMIC_RESOURCES = "DynamicResources"
"""With it ResourceClaims of pods get devices. Its arguments have the time that devices may take to be
ready."""
VOLUME_BINDING = "VolumeBinding"
"""Its arguments have the time that claims may take to be bound."""
NAMED_AT = {
    COSCHEDULING: frozenset(("preEnqueue", "preFilter", "postFilter", "reserve", "permit", "postBind")),
}
"""Points at which a file may name a plugin, though its methods do nothing there."""

NODE_AFFINITY = "NodeAffinity"
"""The plugin of node selectors and node affinity, which pins a DaemonSet's pod to one node."""
NODE_RESOURCES_FIT = "NodeResourcesFit"
"""The plugin that compares requests with free capacity."""
LIMIT_AWARE = "LimitAware"
"""The plugin that bounds the sum of limits on a node."""
STARVATION_FILTER = "reserve"
"""The filter of the reserve action, which keeps other pods off nodes with starvation holds."""

CALENDAR_FILTER = "calendar"
"""The filter that keeps pods off capacity planned for reservations that start later."""

ALL = "*"
MULTI_POINT = "multiPoint"


class PluginRef(Section, frozen=True):
    """A plugin by name. The weight is that of its score, at least 1 once resolved."""

    name: Name
    weight: Weight = 0


class PluginSet(Section, frozen=True):
    """The enabled and disabled plugins of one extension point."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


class Plugins(Section, frozen=True):
    """A profile's `plugins`. A new extension point is one line here."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    node_order_on_resource: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()

    def sets(self) -> dict[str, PluginSet]:
        """Each set by its field name in a file."""
        fields = msgspec.structs.fields(type(self))
        return {field.encode_name: getattr(self, field.name) for field in fields}


EXTENSION_POINTS: tuple[str, ...] = tuple(name for name in Plugins().sets() if name != MULTI_POINT)

# Holdfast's own plugins come before DefaultPreemption, so that nothing is evicted where they help, and
# before DefaultBinder, which binds every pod.
DEFAULT_PLUGINS: tuple[PluginRef, ...] = (
    PluginRef("SchedulingGates"),
    PluginRef("PrioritySort"),
    PluginRef("NodeName"),
    PluginRef("NodeUnschedulable"),
    PluginRef("TaintToleration", 3),
    PluginRef("NodeAffinity", 2),
    PluginRef("NodePorts"),
    PluginRef("NodeResourcesFit", 1),
    PluginRef("VolumeRestrictions"),
    PluginRef("NodeVolumeLimits"),
    PluginRef("VolumeBinding"),
    PluginRef("VolumeZone"),
    PluginRef("PodTopologySpread", 2),
    PluginRef("InterPodAffinity", 2),
    PluginRef("Reservation", 5000),
    PluginRef(LIMIT_AWARE, 1),
    PluginRef("DynamicReservation"),
    PluginRef(COSCHEDULING),
    PluginRef("NodeNUMAResource"),
    PluginRef("DeviceShare"),
    PluginRef("ReservationPreemption"),
    PluginRef("nodeorder"),
    PluginRef(DYNAMIC_RESOURCES, 2),
    PluginRef("DefaultPreemption"),
    PluginRef("NodeResourcesBalancedAllocation", 1),
    PluginRef("ImageLocality", 1),
    PluginRef("DefaultBinder"),
    PluginRef("NodeDeclaredFeatures"),
)

# Plugins of kube-scheduler that do not exist here: a file may disable them.
_KUBE_ONLY = frozenset({"GangScheduling"})
_EXPECTED = frozenset(ref.name for ref in DEFAULT_PLUGINS) | _KUBE_ONLY
_REMOVED = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})


def check_plugins(plugins: Plugins, implements: Implements, path: str, problems: Problems) -> None:
    """Checks that plugins are known, implement the point they are named at, and are named there
    once."""
    for point, plugin_set in plugins.sets().items():
        at = child(path, point)
        first: dict[str, str] = {}
        for i, ref in enumerate(plugin_set.enabled):
            name_path = child(item(child(at, "enabled"), i), "name")
            if fault := unknown_plugin(ref.name, implements):
                problems.add(name_path, fault)
            elif point != MULTI_POINT and point not in implements[ref.name]:
                problems.add(name_path, _does_not_serve(ref.name, point, implements))
            if ref.name in first:
                problems.add(name_path, f'"{ref.name}" is already enabled by {first[ref.name]}')
            first.setdefault(ref.name, name_path)
        for i, ref in enumerate(plugin_set.disabled):
            fault = unknown_plugin(ref.name, implements)
            is_installed = unusable_plugin(ref.name, implements)
            if fault and not is_installed and ref.name not in _EXPECTED | _REMOVED | {ALL}:
                problems.add(child(item(child(at, "disabled"), i), "name"), fault)


def unknown_plugin(name: str, implements: Implements) -> str | None:
    """The error for a plugin that is not in the registry; None if it is."""
    if name in implements:
        return None
    if why := unusable_plugin(name, implements):
        return f'plugin "{name}" cannot be used: {why}'
    if name in _REMOVED:
        return f'plugin "{name}" was removed from kube-scheduler; use NodeVolumeLimits'
    if name in _EXPECTED:
        return f'plugin "{name}" is not available here'
    return f'unknown plugin "{name}"' + hint(name, sorted(implements))


def unusable_plugin(name: str, implements: Implements) -> str:
    """Why a plugin that is installed cannot be used; empty if it is not installed, or can be."""
    return implements.unusable.get(name, "") if isinstance(implements, InstalledPlugins) else ""


def merged_with_defaults(plugins: Plugins, implements: Implements) -> dict[str, PluginSet]:
    """The file's sets merged with the default ones; default plugins must be in the registry."""
    available = tuple(ref for ref in DEFAULT_PLUGINS if ref.name in implements)
    sets = plugins.sets()
    sets[MULTI_POINT] = _merged(available, sets[MULTI_POINT])
    return sets


def expanded(sets: Mapping[str, PluginSet], implements: Implements) -> dict[str, tuple[PluginRef, ...]]:
    """The plugins of each extension point, in the order they run."""
    return {
        point: _at_point(point, sets[point], sets[MULTI_POINT].enabled, implements)
        for point in EXTENSION_POINTS
    }


def _merged(defaults: tuple[PluginRef, ...], custom: PluginSet) -> PluginSet:
    disabled = {ref.name for ref in custom.disabled}
    own = {ref.name: ref for ref in custom.enabled}
    kept = () if ALL in disabled else (ref for ref in defaults if ref.name not in disabled)
    result = {ref.name: ref for ref in kept} | own  # a default plugin keeps its position
    return PluginSet(tuple(result.values()), custom.disabled)


def _at_point(
    point: str, at: PluginSet, multi_point: tuple[PluginRef, ...], implements: Implements
) -> tuple[PluginRef, ...]:
    disabled = {ref.name for ref in at.disabled}
    if ALL in disabled:
        multi_point = ()
    offered = {
        ref.name: ref
        for ref in multi_point
        if point in implements[ref.name] and ref.name not in disabled
    }
    named = {ref.name for ref in at.enabled}
    if point == "queueSort" and not named | offered.keys() <= {COSCHEDULING}:
        offered = {name: ref for name, ref in offered.items() if name != COSCHEDULING or name in named}
    order = (
        *(ref for ref in at.enabled if ref.name in offered),
        *(ref for name, ref in offered.items() if name not in named),
        *(ref for ref in at.enabled if ref.name not in offered),
    )
    return tuple(PluginRef(ref.name, (ref.weight or 1) * (point == "score")) for ref in order)


def _does_not_serve(name: str, point: str, implements: Implements) -> str:
    served = ", ".join(each for each in EXTENSION_POINTS if each in implements[name])
    return f'plugin "{name}" does not serve {point}, only {served or "nothing"}'
