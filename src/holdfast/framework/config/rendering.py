"""The effective configuration as a mapping, for `holdfast config default` and `/configz`."""

from typing import Any

from holdfast.framework.config.actions import ActionConfig
from holdfast.framework.config.args import write_args
from holdfast.framework.config.document import API_VERSION, KIND
from holdfast.framework.config.load import Configuration, load
from holdfast.framework.config.plugin_sets import Implements, PluginSet
from holdfast.framework.config.profiles import DEFAULT_SCHEDULER_NAME, ResolvedProfile
from holdfast.framework.config.reading import write


def default_configuration(
    implements: Implements, default_scheduler_name: str = DEFAULT_SCHEDULER_NAME
) -> dict[str, Any]:
    """All a file could say, with what holds when it says nothing."""
    return to_mapping(
        load({"apiVersion": API_VERSION, "kind": KIND}, implements, default_scheduler_name)
    )


def to_mapping(configuration: Configuration) -> dict[str, Any]:
    """A mapping that `load` makes this same configuration of."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "parallelism": configuration.parallelism,
        "leaderElection": write(configuration.leader_election),
        "clientConnection": write(configuration.client_connection),
        "enableProfiling": configuration.enable_profiling,
        "enableContentionProfiling": configuration.enable_contention_profiling,
        "percentageOfNodesToScore": configuration.percentage_of_nodes_to_score,
        "podInitialBackoffSeconds": int(configuration.pod_initial_backoff),
        "podMaxBackoffSeconds": int(configuration.pod_max_backoff),
        "delayCacheUntilActive": configuration.delay_cache_until_active,
        "actions": [_action(action) for action in configuration.actions],
        "dynamicReservation": write(configuration.dynamic_reservation),
        "profiles": [_profile(profile) for profile in configuration.profiles],
    }


def _action(action: ActionConfig) -> dict[str, Any]:
    arguments = {name: _plain(value) for name, value in action.arguments.items()}
    return {"name": action.name, "arguments": arguments} if arguments else {"name": action.name}


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _set(plugin_set: PluginSet) -> dict[str, Any]:
    """A weight of 0 says no more than its absence."""
    return {
        side: [{name: value for name, value in ref.items() if value} for ref in refs]
        for side, refs in write(plugin_set).items()
    }


def _profile(profile: ResolvedProfile) -> dict[str, Any]:
    sets = {point: _set(plugin_set) for point, plugin_set in profile.plugins.items()}
    mapping = {
        "schedulerName": profile.scheduler_name,
        "percentageOfNodesToScore": profile.percentage_of_nodes_to_score,
        "plugins": {point: plugin_set for point, plugin_set in sets.items() if plugin_set},
        "pluginConfig": [
            {"name": name, "args": write_args(name, args)}
            for name, args in sorted(profile.args.items())
        ],
    }
    return {name: value for name, value in mapping.items() if value not in (None, [], {})}
