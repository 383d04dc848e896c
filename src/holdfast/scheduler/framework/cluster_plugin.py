"""Holdfast's own plugins that keep a part of the core's state, such as reservations or volumes.

When they are called and what they answer is the contract's; only what they can reach is more. Most of
them keep what they reach: volumes, devices, counts by domain, reservations. Some only read what the
core keeps for every class at once, and would be slower if they kept the like by their handle:

    DefaultBinder       the annotations of CPUs and devices that were given to the pod
    ImageLocality       how many nodes have an image: by the handle every image is a column of its own
    NodeAffinity        selectors shared with volumes and spreading, and any number of label values:
                        the handle keeps each value that it was asked for
    NodePorts           rows by port, and which of them are reserved for the class
    TaintToleration     the sets of taints, each judged once and not once per node
    NodeResources…      which resources some nodes lack, and what stays as long as its node
"""

from typing import Any

from holdfast.scheduler.framework.handle import Handle, cluster_of
from holdfast.scheduler.framework.interface import Plugin


class ClusterPlugin(Plugin):
    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self.cluster = cluster_of(handle)
