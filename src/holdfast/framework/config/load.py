"""From a parsed file to the configuration the program runs with."""

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.framework.config.actions import ActionConfig, actions_left_out, read_actions
from holdfast.framework.config.component import (
    ClientConnection,
    LeaderElection,
    checked_leader_election,
    zero_means_default,
)
from holdfast.framework.config.document import Document, check_type, in_our_terms, refuse_extenders
from holdfast.framework.config.dynamic_reservation import DynamicReservation
from holdfast.framework.config.plugin_sets import Implements
from holdfast.framework.config.problems import Problems, child, item
from holdfast.framework.config.profiles import (
    DEFAULT_SCHEDULER_NAME,
    ResolvedProfile,
    resolve_profiles,
)
from holdfast.framework.config.reading import described, read


class Configuration(msgspec.Struct, frozen=True):
    """Everything a file can say, complete and checked. Times are in seconds."""

    profiles: tuple[ResolvedProfile, ...]
    actions: tuple[ActionConfig, ...]
    dynamic_reservation: DynamicReservation
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
    """What the file says that has no effect."""

    @property
    def cautions(self) -> tuple[str, ...]:
        """The warnings, and what the file may do without meaning to."""
        return (*self.warnings, *actions_left_out(self.actions))


def load(
    mapping: Mapping[str, Any],
    implements: Implements,
    default_scheduler_name: str = DEFAULT_SCHEDULER_NAME,
) -> Configuration:
    """The configuration a parsed file asks for. Raises `ConfigError` with all that is wrong."""
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


def _document(mapping: object, problems: Problems) -> Document:
    if not isinstance(mapping, Mapping):
        problems.add("", f"expected a mapping, got {described(mapping)}")
    else:
        mapping = in_our_terms(mapping, problems)
        check_type(mapping.get("apiVersion"), mapping.get("kind"), problems)
    # Whatever else it is, its fields mean nothing here.
    problems.raise_if_any()
    document = read(Document, mapping, "", problems)
    assert document is not None
    return document


def _check_backoff(document: Document, problems: Problems) -> None:
    if problems.under("podInitialBackoffSeconds") or problems.under("podMaxBackoffSeconds"):
        return
    initial = document.pod_initial_backoff_seconds
    if document.pod_max_backoff_seconds < initial:
        problems.add("podMaxBackoffSeconds", f"must be at least podInitialBackoffSeconds, {initial}")


def _warn_of_sampling(document: Document, problems: Problems) -> None:
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
