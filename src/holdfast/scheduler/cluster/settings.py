"""The part of the configuration that the cluster state depends on."""

from collections.abc import Mapping

import msgspec


class ClusterSettings(msgspec.Struct, frozen=True):
    """Settings of a `Cluster`, fixed at construction."""

    scheduler_names: frozenset[str] = frozenset()
    """The scheduler names whose pods are scheduled here."""
    without_gangs: frozenset[str] = frozenset()
    """Scheduler names whose profile does not enable Coscheduling: their pods are in no job."""
    gang_timeouts: Mapping[str, float] = {}
    """By scheduler name, the default timeout of gangs in seconds."""
    holds_nodes: bool = False
    """Whether a starvation hold keeps other pods off its whole node (the reserve action's `hold`)."""
    backfills: bool = False
    """Whether pods expected to end in time may use starvation holds (the reserve action's
    `backfill`)."""
