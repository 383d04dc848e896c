"""What the cluster's state depends on in the configuration; the rest is read where it is used."""

from collections.abc import Mapping

import msgspec


class ClusterSettings(msgspec.Struct, frozen=True):
    scheduler_names: frozenset[str] = frozenset()
    """The names of schedulers whose pods are scheduled here."""
    without_gangs: frozenset[str] = frozenset()
    """Scheduler names without Coscheduling: their pods are members of no job."""
    gang_timeouts: Mapping[str, float] = {}
    """By scheduler name, how many seconds a gang may take to be placed if its PodGroup does not say."""
    holds_nodes: bool = False
    """Whether the reserve action keeps all other pods off nodes with starvation holds."""
    backfills: bool = False
    """Whether the reserve action lets pods into starvation holds that end in time."""
