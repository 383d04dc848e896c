"""What the core is told. Objects come decoded; time comes with each event."""

from typing import Any

import msgspec

from holdfast.api.errors import InvalidObject
from holdfast.scheduler.cluster.decisions import Decision


class Added(msgspec.Struct, frozen=True):
    """An object exists. Saying so again of a known object is the same as `Updated`."""

    object: Any


class Updated(msgspec.Struct, frozen=True):
    object: Any


class Deleted(msgspec.Struct, frozen=True):
    """An object is gone. Of an unknown object: nothing happens."""

    object: Any


class Malformed(msgspec.Struct, frozen=True):
    """An object exists that does not decode; what was known of it before is no longer true."""

    kind: str
    namespace: str
    name: str
    uid: str
    error: InvalidObject
    api_version: str = ""
    """Given of a kind that only plugins read."""


class BindConfirmed(msgspec.Struct, frozen=True):
    """A decided bind was carried out."""

    uid: str


class BindRefused(msgspec.Struct, frozen=True):
    """A decided bind was not carried out; the pod is as it was before."""

    uid: str
    message: str


class WriteRefused(msgspec.Struct, frozen=True):
    """A decision other than a bind was not carried out; it may be decided again."""

    decision: Decision
    message: str


Event = Added | Updated | Deleted | Malformed | BindConfirmed | BindRefused | WriteRefused


# What a change in the cluster can be, as far as waking waiting pods is concerned.
#
# A plugin names the kinds of change that can help a pod it rejected (`wakes_on`); nothing else wakes
# that pod.


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
    """A pod on a node changed its labels, or is on its way out: it may be counted otherwise."""
    OTHER = 512
    """Any other object Holdfast reads itself: namespaces, services, budgets."""
    STORAGE = 1024
    """Any object of storage, whatever it says; for plugins that watch none in particular."""
    CLAIMS = 2048
    PERSISTENT_VOLUMES = 4096
    STORAGE_CLASSES = 8192
    CSI_NODES = 16384
    CSI_DRIVERS = 32768
    CAPACITIES = 65536
    ATTACHMENTS = 131072
    """Volumes that nodes have, by pods or still attached."""
    OBJECTS = 262144
    """An object of a kind that some plugin declares in `reads_objects`. It wakes pods that a plugin
    with such a declaration rejected, whether or not its `wakes_on` names it."""

    ANY_NODE = 63
    ANY_POD = POD_PLACED | POD_LEFT | POD_LABELS
    ABOUT_STORAGE = 262144 - 2048
    """These help a pod only if they are about something its plugins watch."""
    PROMISES = STORAGE | CLAIMS | PERSISTENT_VOLUMES
    """A promise to a claim was taken back."""
    ANY = 524288 - 1
