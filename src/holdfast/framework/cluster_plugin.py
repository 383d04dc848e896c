"""Holdfast's own plugins that keep a part of the core's state, such as reservations or volumes.

When they are called and what they answer is the contract's; only what they can reach is more."""

from typing import Any

from holdfast.framework.handle import Handle, cluster_of
from holdfast.framework.interface import Plugin


class ClusterPlugin(Plugin):
    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self.cluster = cluster_of(handle)
