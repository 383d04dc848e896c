"""Holdfast's own plugins that keep a part of the core's state, such as reservations or volumes.

When they are called and what they answer is the contract's; only what they can reach is more: they keep
what they reach, such as volumes, devices, counts by domain and reservations. NodeResourcesFit and
NodeResourcesBalancedAllocation keep nothing, and read which resources some nodes lack and what pods
claim that stay as long as their node.
"""

from typing import Any

from holdfast.scheduler.framework.handle import Handle, cluster_of
from holdfast.scheduler.framework.interface import Plugin


class ClusterPlugin(Plugin):
    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self.cluster = cluster_of(handle)
