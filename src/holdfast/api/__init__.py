"""The vocabulary: API objects, and the small languages written inside them.

    errors                       the error tree
    quantity, duration,          text to numbers and back
    timestamps, intorstring
    meta, affinity, pod, node,   typed views of objects
    volumes, storage, policy,
    workloads, events, jobs,
    reservation, devices,
    migration, annotations
    kinds, decode                the table of kinds; raw objects to typed views
    resources                    what a pod asks for
    selectors                    labels, fields, node selectors, tolerations
    syntax, validation           what an API server would refuse, and why
    names                        labels, annotations, taints, resources by name

This is the lowest layer: it imports msgspec and the standard library and nothing else, keeps no
state, and reads no clock. Everything in Holdfast may import it.
"""

from __future__ import annotations

from holdfast.api.affinity import Affinity, Taint, Toleration
from holdfast.api.decode import decode, decode_pod_json, object_name
from holdfast.api.errors import (
    DurationError,
    HoldfastError,
    InvalidObject,
    QuantityError,
    SelectorError,
    TimeError,
)
from holdfast.api.jobs import PodGroup, Queue
from holdfast.api.kinds import KINDS, KindInfo, kind_info
from holdfast.api.meta import LabelSelector, Object, ObjectMeta, OwnerReference
from holdfast.api.node import Node
from holdfast.api.pod import Container, Pod, PodSpec
from holdfast.api.reservation import Reservation, ReservationOwner
from holdfast.api.resources import pod_limits, pod_requests
from holdfast.api.selectors import Selector, compile_selector

__all__ = [
    "KINDS",
    "Affinity",
    "Container",
    "DurationError",
    "HoldfastError",
    "InvalidObject",
    "KindInfo",
    "LabelSelector",
    "Node",
    "Object",
    "ObjectMeta",
    "OwnerReference",
    "Pod",
    "PodGroup",
    "PodSpec",
    "QuantityError",
    "Queue",
    "Reservation",
    "ReservationOwner",
    "Selector",
    "SelectorError",
    "Taint",
    "TimeError",
    "Toleration",
    "compile_selector",
    "decode",
    "decode_pod_json",
    "kind_info",
    "object_name",
    "pod_limits",
    "pod_requests",
]
