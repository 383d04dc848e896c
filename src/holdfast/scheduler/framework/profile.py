"""A profile: a scheduler name with its plugins at each extension point."""

from collections.abc import Callable, Collection
from functools import total_ordering
from typing import Any

from holdfast.api.errors import HoldfastError
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.plugin_errors import RAISED, PluginErrors, text_of
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.checked_answers import is_foreign
from holdfast.scheduler.framework.config import GivenArgs, ReservationArgs, ResolvedProfile
from holdfast.scheduler.framework.config.plugin_sets import (
    CALENDAR_FILTER,
    COSCHEDULING,
    DYNAMIC_RESERVATION,
    NODE_AFFINITY,
    NODE_RESOURCES_FIT,
    PREEMPTION,
    RESERVATION,
    STARVATION_FILTER,
)
from holdfast.scheduler.framework.handle import Handle, plugin_made
from holdfast.scheduler.framework.interface import Plugin, extension_points, overridden
from holdfast.scheduler.framework.read_only_records import call_with_read_only
from holdfast.scheduler.framework.registry import PluginError, Registry, check_wakes_on
from holdfast.scheduler.state.cluster import Cluster


class Profile:
    """The plugins at each extension point, in the order they run."""

    def __init__(
        self,
        index: int,
        resolved: ResolvedProfile,
        registry: Registry,
        cluster: Cluster,
        preempts: bool = True,
    ) -> None:
        """`preempts`: whether the action `preempt` is configured."""
        made: dict[str, Plugin] = {}
        given_at = resolved.args.paths if isinstance(resolved.args, GivenArgs) else {}

        def at(point: str) -> list[Plugin]:
            for ref in resolved.points.get(point, ()):
                if ref.name not in made:
                    plugin = registry[ref.name]
                    cluster.classes.read(plugin.reads_annotations, plugin.reads_fields)
                    cluster.raw_objects.declare(plugin.reads_objects)
                    handle = Handle(cluster, ref.name, resolved.scheduler_name, plugin.reads_objects)
                    where = given_at.get(ref.name, "")
                    try:
                        made[ref.name] = plugin(handle, resolved.args.get(ref.name, {}))
                    except HoldfastError as error:
                        if where:
                            raise PluginError(f"{where}: {error}") from error
                        raise
                    except RAISED as error:
                        why = f"plugin {ref.name} cannot be created: {text_of(error)}"
                        raise PluginError(f"{where}: {why}" if where else why) from error
                    if getattr(made[ref.name], "handle", None) is None:
                        why = "its __init__ must call super().__init__(handle, args)"
                        raise PluginError(f"plugin {ref.name} cannot be created: {why}")
                    check_wakes_on(ref.name, made[ref.name].wakes_on)
                    if is_foreign(made[ref.name]):
                        call_with_read_only(made[ref.name], overridden(plugin))
                    plugin_made(handle)
            standing = [made[ref.name] for ref in resolved.points.get(point, ())]
            return [plugin for plugin in standing if point in extension_points(type(plugin))]

        self.index = index
        self.scheduler_name = resolved.scheduler_name
        self.pre_enqueue = at("preEnqueue")
        sorting = at("queueSort")[0]
        checked = checked_sort_key if is_foreign(sorting) else guarded_sort_key
        self.sort_key: SortKey = checked(sorting, cluster.plugin_errors)
        self.filters = at("filter")
        self.filter_names = frozenset(plugin.name for plugin in self.filters)
        self.filter_order: dict[str, float] = {
            plugin.name: place for place, plugin in enumerate(self.filters)
        }
        self.filter_order[STARVATION_FILTER] = (
            self.filter_order.get(NODE_RESOURCES_FIT, len(self.filters)) - 0.5
        )
        self.filter_order[CALENDAR_FILTER] = (
            self.filter_order.get(NODE_RESOURCES_FIT, len(self.filters)) + 0.5
        )
        self.post_filters = [p for p in at("postFilter") if preempts or p.name != PREEMPTION]
        weights = {ref.name: ref.weight for ref in resolved.points.get("score", ())}
        self.scorers = [(plugin, weights[plugin.name]) for plugin in at("score")]
        self.reserve = at("reserve")
        self.reserving = [p for p in self.reserve if type(p).reserve is not Plugin.reserve]
        """The Reserve plugins that override `reserve`, and not only `unreserve`."""
        self.permit = at("permit")
        self.pre_bind = at("preBind")
        self.bind = [plugin for plugin in at("bind") if plugin.name != RESERVATION]
        """The plugins that bind pods. Reservations are always bound by Reservation."""
        self.post_bind = at("postBind")
        self.node_orders = at("nodeOrderOnResource")
        self.plugins = made
        self.foreign = frozenset(name for name, plugin in made.items() if is_foreign(plugin))
        """The names of third-party plugins, whose answers are checked."""
        permits = (ref.name for ref in resolved.points.get("permit", ()))
        self.coscheduling = made[COSCHEDULING] if COSCHEDULING in permits else None
        """The Coscheduling plugin, if it is enabled at Permit."""
        reservation = made.get(RESERVATION)
        self.reservation_plugin = reservation.name if reservation is not None else ""
        """The name of the Reservation plugin; empty if it is not enabled."""
        self.reservation_binders = [reservation] if reservation is not None else []
        given = reservation.args if reservation is not None else None
        self.reservation_args = given if isinstance(given, ReservationArgs) else ReservationArgs()
        """Its arguments."""
        waiting = made.get(DYNAMIC_RESERVATION)
        self.provisions = bool(reservation) and waiting in self.permit and waiting in self.reserve
        """Whether reservations are provisioned for pods that bring a template. Only such a profile has
        pods wait for the reservation that replaces a virtual one, so only its pods are allocated from
        virtual reservations."""
        self.reservation_weight = weights.get(self.reservation_plugin, 0)
        self.volume_filters = [plugin for plugin in self.filters if plugin.reads_volumes]
        scorers = [each for each in self.scorers if each[0].reads_volumes]
        self.volume_scorers = [each for each in scorers if each[0].name not in self.foreign]
        self.has_foreign_volume_scorers = len(scorers) > len(self.volume_scorers)

    def pins(self, pod: PodRecord) -> bool:
        """Whether the pod, of a DaemonSet, is pinned to one node."""
        return pod.pinned_node is not None and NODE_AFFINITY in self.filter_names

    def wakes_on(self, plugins: Collection[str]) -> int:
        """The changes that can help a pod rejected by these plugins; all changes if there are none."""
        changes = Change.NONE
        for name in plugins:
            plugin = self.plugins.get(name)
            changes |= plugin.wakes_on if plugin is not None else Change.ANY
            if plugin is not None and plugin.reads_objects:
                changes |= Change.OBJECTS
        return changes & Change.ANY or Change.ANY


# Sort keys whose errors are caught.
#
# An error while a key is computed or compared would leave the queue in no order. A pod whose key fails
# is ordered by the time since when it is queued. Keys of in-tree plugins can always be compared.


SortKey = Callable[[PodRecord], tuple[Any, ...]]


@total_ordering
class _Key:
    """A sort key of a third-party plugin; pods with keys that cannot be compared sort by queueing
    time."""

    __slots__ = ("_key", "_note", "_since")

    def __init__(self, key: Any, since: float, note: Callable[[BaseException], object]) -> None:
        self._key = key
        self._since = since
        self._note = note

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and not self < other and not other < self

    def __lt__(self, other: "_Key") -> bool:
        if self._key is not None and other._key is not None:
            try:
                return bool(self._key < other._key)
            except RAISED as error:
                self._note(error)
        return self._since < other._since


def checked_sort_key(plugin: Plugin, errors: PluginErrors) -> SortKey:
    def note(error: BaseException) -> None:
        errors.note(plugin.name, "QueueSort", error)

    def sort_key(pod: PodRecord) -> tuple[Any, ...]:
        try:
            key = tuple(plugin.sort_key(pod))
        except RAISED as error:
            note(error)
            key = None
        return (_Key(key, pod.first_seen, note),)

    return sort_key


def guarded_sort_key(plugin: Plugin, errors: PluginErrors) -> SortKey:
    """The sort key of an in-tree plugin: only computing it is guarded."""

    def sort_key(pod: PodRecord) -> tuple[Any, ...]:
        try:
            return plugin.sort_key(pod)
        except RAISED as error:
            errors.note(plugin.name, "QueueSort", error)
            return (-pod.cls.priority, pod.first_seen, pod.namespace, pod.name)

    return sort_key
