"""What a change in the cluster can be, as far as waking waiting pods is concerned.

A plugin names the kinds of change that can help a pod it rejected (`wakes_on`); nothing else wakes
that pod.
"""


class Change:
    """Plain numbers to be or-ed: this is on every pod's path, and `enum.Flag` takes its time."""

    NONE = 0
    NODE_ADDED = 1
    NODE_REMOVED = 2
    NODE_ALLOCATABLE = 4
    NODE_LABELS = 8
    NODE_TAINTS = 16
    """Taints, or the unschedulable mark."""
    NODE_OTHER = 32
    """Annotations, images."""
    POD_PLACED = 64
    """A pod came to be on a node."""
    POD_LEFT = 128
    """A pod on a node ended, was deleted or shrank."""
    POD_LABELS = 256
    """A pod on a node changed its labels."""
    OTHER = 512
    """Any other object: volumes, namespaces, services, budgets."""

    ANY_NODE = 63
    ANY_POD = POD_PLACED | POD_LEFT | POD_LABELS
    ANY = 1023
