"""Puts the scheduler together: which controllers go with a configuration."""

from collections.abc import Callable

from holdfast.api.raw_objects import ObjectKind
from holdfast.scheduler.controllers.migration import MigrationController
from holdfast.scheduler.controllers.pod_groups import PodGroups, QueueStatuses
from holdfast.scheduler.controllers.provisioner import DynamicReservations, Provisioner
from holdfast.scheduler.controllers.reservation_eviction import ReservationEvictions
from holdfast.scheduler.controllers.reservation_lifecycle import ReservationLifecycle
from holdfast.scheduler.controllers.reservation_schedules import ReservationSchedules
from holdfast.scheduler.framework.config import (
    Configuration,
    ReservationArgs,
    ReservationPreemptionArgs,
)
from holdfast.scheduler.framework.config.plugin_sets import RESERVATION, RESERVATION_PREEMPTION
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.reservations.virtual_reservations import Settings
from holdfast.scheduler.scheduler import Controller
from holdfast.scheduler.state.cluster import Cluster

GARBAGE_AFTER = (20_000, 2, 40)
"""Objects made before Python looks for garbage, and how often before it looks at older ones. Each
object that is kept is looked at then, and a scheduler keeps many; but what it keeps for reservations
and classes of pods has cycles, and 100,000 objects that wait to be collected are 30 MiB. A look at the
60,000 objects of three looks stops everything for 20 ms; at those of eleven, the usual, for 130 ms."""


def controllers(configuration: Configuration) -> list[Callable[[Cluster], Controller]]:
    """The job controllers always run; the reservation controllers have the arguments of the first
    profile with the Reservation plugin."""
    for profile in configuration.profiles:
        if any(ref.name == RESERVATION for refs in profile.points.values() for ref in refs):
            args = profile.args.get(RESERVATION)
            break
    else:
        return [QueueStatuses, PodGroups]
    given = args if isinstance(args, ReservationArgs) else ReservationArgs()
    gc_after = None if given.disable_garbage_collection else float(given.gc_duration_seconds)
    preempting = _args(configuration, RESERVATION_PREEMPTION)
    given_to = (
        preempting if isinstance(preempting, ReservationPreemptionArgs) else ReservationPreemptionArgs()
    )
    # A job that gives up takes its reservation along before that can expire.
    made: list[Callable[[Cluster], Controller]] = [
        MigrationController,
        lambda cluster: ReservationEvictions(
            cluster, given_to.eviction == "Soft", given_to.soft_evictor
        ),
        lambda cluster: ReservationLifecycle(cluster, gc_after),
        ReservationSchedules,
        lambda cluster: DynamicReservations(cluster, settings),
        QueueStatuses,
        PodGroups,
    ]
    dynamic = configuration.dynamic_reservation
    settings = Settings(
        dynamic.provision_timeout, dynamic.virtual_retention, dynamic.on_failure == "Bind"
    )
    if dynamic.provisioner == "builtin":
        made.append(Provisioner.of)
    return made


def declared_kinds(
    configuration: Configuration, registry: Registry
) -> dict[ObjectKind, tuple[str, ...]]:
    """The kinds of objects that enabled plugins read, each with the plugins that do. Raises PluginError
    where two disagree about a kind."""
    points = (refs for profile in configuration.profiles for refs in profile.points.values())
    return registry.object_kinds(ref.name for refs in points for ref in refs)


def _args(configuration: Configuration, plugin: str) -> object:
    """The arguments of the first profile that has the plugin."""
    for profile in configuration.profiles:
        if any(ref.name == plugin for refs in profile.points.values() for ref in refs):
            return profile.args.get(plugin)
    return None
