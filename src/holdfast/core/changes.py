"""What a change in the cluster can be, as far as waking waiting pods is concerned.

A plugin names the kinds of change that can help a pod it rejected (`wakes_on`); nothing else wakes
that pod.
"""

import enum


class Change(enum.IntFlag):
    NODE_ADDED = enum.auto()
    NODE_REMOVED = enum.auto()
    NODE_ALLOCATABLE = enum.auto()
    NODE_LABELS = enum.auto()
    NODE_TAINTS = enum.auto()
    """Taints, or the unschedulable mark."""
    NODE_OTHER = enum.auto()
    """Annotations, images."""
    POD_PLACED = enum.auto()
    """A pod came to be on a node."""
    POD_LEFT = enum.auto()
    """A pod on a node ended, was deleted or shrank."""
    POD_LABELS = enum.auto()
    """A pod on a node changed its labels."""
    OTHER = enum.auto()
    """Any other object: volumes, namespaces, services, budgets."""

    ANY_NODE = NODE_ADDED | NODE_REMOVED | NODE_ALLOCATABLE | NODE_LABELS | NODE_TAINTS | NODE_OTHER
    ANY_POD = POD_PLACED | POD_LEFT | POD_LABELS
    ANY = ANY_NODE | ANY_POD | OTHER
    NONE = 0
