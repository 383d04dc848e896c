"""Loads a parsed configuration file into the effective configuration, and renders that as a mapping."""

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.scheduler.framework.config.actions import ActionConfig, actions_left_out, read_actions
from holdfast.scheduler.framework.config.args import write_args
from holdfast.scheduler.framework.config.document import (
    API_VERSION,
    KIND,
    ClientConnection,
    ConfigurationDocument,
    DynamicReservationConfig,
    LeaderElection,
    check_type,
    checked_leader_election,
    in_our_terms,
    refuse_extenders,
    zero_means_default,
)
from holdfast.scheduler.framework.config.plugin_sets import Implements, PluginSet
from holdfast.scheduler.framework.config.profiles import (
    DEFAULT_SCHEDULER_NAME,
    ResolvedProfile,
    resolve_profiles,
)
from holdfast.scheduler.framework.config.structs import Problems, child, described, item, read, write


class Configuration(msgspec.Struct, frozen=True):
    """The effective configuration: complete and validated. Times are in seconds."""

    profiles: tuple[ResolvedProfile, ...]
    actions: tuple[ActionConfig, ...]
    dynamic_reservation: DynamicReservationConfig
    pod_initial_backoff: float
    pod_max_backoff: float
    leader_election: LeaderElection
    client_connection: ClientConnection
    parallelism: int
    percentage_of_nodes_to_score: int
    enable_profiling: bool
    enable_contention_profiling: bool
    delay_cache_until_active: bool
    warnings: tuple[str, ...]
    """Fields of the file that have no effect."""

    @property
    def cautions(self) -> tuple[str, ...]:
        """The warnings, and effects of the file that its author may not intend."""
        return (*self.warnings, *actions_left_out(self.actions))


def load(
    mapping: Mapping[str, Any],
    implements: Implements,
    default_scheduler_name: str = DEFAULT_SCHEDULER_NAME,
) -> Configuration:
    """The effective configuration of a parsed file. Raises `ConfigError` with all errors."""
    problems = Problems()
    document = _document(mapping, problems)
    _check_backoff(document, problems)
    _warn_of_sampling(document, problems)
    refuse_extenders(document, problems)
    configuration = Configuration(
        profiles=resolve_profiles(document.profiles, implements, default_scheduler_name, problems),
        actions=read_actions(document.actions, document.configurations, problems),
        dynamic_reservation=document.dynamic_reservation,
        pod_initial_backoff=float(document.pod_initial_backoff_seconds),
        pod_max_backoff=float(document.pod_max_backoff_seconds),
        leader_election=checked_leader_election(document.leader_election, "leaderElection", problems),
        client_connection=zero_means_default(document.client_connection),
        parallelism=document.parallelism,
        percentage_of_nodes_to_score=document.percentage_of_nodes_to_score,
        enable_profiling=document.enable_profiling,
        enable_contention_profiling=(
            document.enable_profiling
            if document.enable_contention_profiling is None
            else document.enable_contention_profiling
        ),
        delay_cache_until_active=document.delay_cache_until_active,
        warnings=tuple(problems.warnings),
    )
    problems.raise_if_any()
    return configuration


def _document(mapping: object, problems: Problems) -> ConfigurationDocument:
    if not isinstance(mapping, Mapping):
        problems.add("", f"expected a mapping, got {described(mapping)}")
    else:
        mapping = in_our_terms(mapping, problems)
        check_type(mapping.get("apiVersion"), mapping.get("kind"), problems)
    # Fields of another kind or version are not decoded.
    problems.raise_if_any()
    document = read(ConfigurationDocument, mapping, "", problems)
    assert document is not None
    return document


def _check_backoff(document: ConfigurationDocument, problems: Problems) -> None:
    if problems.under("podInitialBackoffSeconds") or problems.under("podMaxBackoffSeconds"):
        return
    initial = document.pod_initial_backoff_seconds
    if document.pod_max_backoff_seconds < initial:
        problems.add("podMaxBackoffSeconds", f"must be at least podInitialBackoffSeconds, {initial}")


def _warn_of_sampling(document: ConfigurationDocument, problems: Problems) -> None:
    settings = [("", document.percentage_of_nodes_to_score)]
    settings += [
        (item("profiles", i), profile.percentage_of_nodes_to_score or 0)
        for i, profile in enumerate(document.profiles)
    ]
    for path, percentage in settings:
        if percentage not in (0, 100):
            problems.warn(
                child(path, "percentageOfNodesToScore"),
                "has no effect: all feasible nodes are scored",
            )


# The effective configuration as a mapping, for `holdfast config default` and `/configz`.


def default_configuration(
    implements: Implements, default_scheduler_name: str = DEFAULT_SCHEDULER_NAME
) -> dict[str, Any]:
    """The effective configuration of an empty file, with all fields."""
    return to_mapping(
        load({"apiVersion": API_VERSION, "kind": KIND}, implements, default_scheduler_name)
    )


def to_mapping(configuration: Configuration) -> dict[str, Any]:
    """A mapping that `load` turns into this configuration again."""
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
    """The set as a mapping; a weight of 0 is left out, since it means the default."""
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
