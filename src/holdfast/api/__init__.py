"""Kubernetes objects as typed values, and the small languages written inside them.

    errors                     the error tree
    quantity, times            quantities, durations and timestamps as numbers
    meta                       metadata, label selectors, owner references, conditions
    pod, node, affinity        pods; nodes and their devices; affinity and spread constraints
    storage, workloads         volumes and claims; workload kinds and disruption budgets
    resource_claims            ResourceClaim, ResourceClaimTemplate, DeviceClass (DRA)
    resource_slices            ResourceSlice and DeviceTaintRule (DRA)
    reservation                Reservation, PodMigrationJob
    jobs                       PodGroup and Queue
    pod_groups                 PodGroup and Workload of Kubernetes 1.37
    events                     Event and Binding
    annotations                annotation values, typed
    names, name_rules          label, annotation, taint and resource names; the syntax of names
    kinds, decode              the registry of kinds; raw objects to typed ones
    raw_objects                objects of kinds that only plugins read
    resources                  a pod's requests
    selectors                  label, field and node selectors; tolerations
    node_taints                taints that say a node cannot be used now
    documents                  YAML and JSON files, with limits
    crds                       CustomResourceDefinitions
    memo                       a bounded memo

The lowest layer: it imports msgspec, PyYAML and the standard library only, keeps no state, and reads no
clock. Every other package may import it.
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
