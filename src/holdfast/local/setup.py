"""Builds the scheduler of a local cluster: configuration, profiles and scheduler names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.api import names
from holdfast.api.raw_objects import ObjectKind
from holdfast.scheduler.assembly import controllers, declared_kinds
from holdfast.scheduler.framework.config import (
    API_VERSION,
    KIND,
    Configuration,
    GivenArgs,
    LimitAwareArgs,
    NodeResourcesFitArgs,
    ReservationArgs,
    ResolvedProfile,
    load,
)
from holdfast.scheduler.framework.config.plugin_sets import LIMIT_AWARE, NODE_RESOURCES_FIT, RESERVATION
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import registry as installed_plugins
from holdfast.scheduler.scheduler import Scheduler

SERVED = (names.DEFAULT_SCHEDULER, names.HOLDFAST_SCHEDULER, names.KOORD_SCHEDULER)
"""Pods of these names are scheduled, whatever the profiles are called; with Koordinator's its manifests
work as they are."""


@dataclass(frozen=True, slots=True)
class SchedulerFactory:
    configuration: Configuration
    registry: Registry

    @classmethod
    def of(cls, config: Mapping[str, Any] | None = None) -> "SchedulerFactory":
        """From a parsed configuration file, or the defaults. Raises ConfigError and PluginError."""
        registry = installed_plugins()
        mapping = {"apiVersion": API_VERSION, "kind": KIND} if config is None else config
        setup = cls(load(mapping, registry.implements()), registry)
        setup.object_kinds()
        return setup

    def name_file(self, file: str) -> None:
        """Names the file in the errors of plugins about their arguments, before the field."""
        for profile in self.configuration.profiles:
            if isinstance(profile.args, GivenArgs):
                paths = profile.args.paths
                paths.update({plugin: f"{file}: {path}" for plugin, path in paths.items()})

    def object_kinds(self) -> tuple[ObjectKind, ...]:
        """The kinds of objects that enabled plugins read."""
        return tuple(declared_kinds(self.configuration, self.registry))

    def scheduler(self) -> Scheduler:
        first = self.configuration.profiles[0].scheduler_name
        known = {profile.scheduler_name for profile in self.configuration.profiles}
        aliases = {name: first for name in SERVED if name not in known}
        return Scheduler(self.configuration, self.registry, aliases, controllers(self.configuration))

    def profile(self, scheduler_name: str) -> ResolvedProfile | None:
        """The profile a pod of this scheduler name falls under."""
        profiles = self.configuration.profiles
        for profile in profiles:
            if profile.scheduler_name == scheduler_name:
                return profile
        return profiles[0] if scheduler_name in SERVED else None

    def serves(self, scheduler_name: str) -> bool:
        return self.profile(scheduler_name) is not None

    def plugins(self, scheduler_name: str) -> frozenset[str]:
        """The plugins that can keep pods of this scheduler name from a node, or from being bound."""
        profile = self.profile(scheduler_name)
        if profile is None:
            return frozenset()
        return frozenset(ref.name for point in ("filter", "permit") for ref in profile.points[point])

    def obstacles(self, scheduler_name: str) -> frozenset[str]:
        """The plugins at all points where pods of this scheduler name can be kept from being bound."""
        profile = self.profile(scheduler_name)
        if profile is None:
            return frozenset()
        points = ("preEnqueue", "preFilter", "filter", "reserve", "permit", "preBind", "bind")
        return frozenset(ref.name for point in points for ref in profile.points[point])

    def bounds_limits(self, scheduler_name: str) -> bool:
        """Whether the configuration bounds the limits of pods on every node."""
        profile = self.profile(scheduler_name)
        args = profile.args.get(LIMIT_AWARE) if profile is not None else None
        return isinstance(args, LimitAwareArgs) and bool(args.default_limit_to_allocatable_ratio)

    def checks(self, scheduler_name: str, resource: str) -> bool:
        """Whether the profile of this scheduler name filters nodes by this resource."""
        profile = self.profile(scheduler_name)
        if profile is None or all(ref.name != NODE_RESOURCES_FIT for ref in profile.points["filter"]):
            return False
        args = profile.args.get(NODE_RESOURCES_FIT)
        if not isinstance(args, NodeResourcesFitArgs):
            return True
        group = resource.partition("/")[0]
        return resource not in args.ignored_resources and group not in args.ignored_resource_groups

    def restricts(self, scheduler_name: str, resource: str) -> bool:
        """Whether owners of this scheduler name get no more of this resource than a Restricted
        reservation reserves."""
        profile = self.profile(scheduler_name)
        args = profile.args.get(RESERVATION) if profile is not None else None
        return not (isinstance(args, ReservationArgs) and args.ignores(resource))
