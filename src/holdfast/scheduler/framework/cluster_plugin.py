"""The base of in-tree plugins that read the cluster itself, and not only what their handle offers.

They follow the plugin contract in every other respect. Most of them maintain a part of the cluster's
state: volumes, devices, counts by topology domain, reservations. NodeResourcesFit and
NodeResourcesBalancedAllocation only read: which resources some nodes lack, and what pods claim that
stay as long as their node.
"""

from typing import Any

from holdfast.scheduler.framework.handle import Handle, cluster_of
from holdfast.scheduler.framework.interface import Plugin


class ClusterPlugin(Plugin):
    """A plugin with access to the cluster's state."""

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self.cluster = cluster_of(handle)
