"""Pods, claims and volumes as tests of volumes want them, and the messages of such pods."""

from __future__ import annotations

from harness.builders import PodBuilder, make_pod
from harness.builders.storage import ClaimBuilder, VolumeBuilder, make_claim, make_volume
from harness.driver import big_node
from holdfast.api.meta import Object

AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
HOST = "kubernetes.io/hostname"


def pod_with(*claims: str, name: str = "p") -> PodBuilder:
    builder = make_pod(name).namespace("default")
    for claim in claims:
        builder.claim(claim)
    return builder


def claim(name: str = "c") -> ClaimBuilder:
    return make_claim(name).size("5Gi").storage_class("wait")


def volume(name: str = "v") -> VolumeBuilder:
    return make_volume(name).size("5Gi").storage_class("wait")


def zones(*names: str) -> list[Object]:
    """A node n1, n2, … in each zone."""
    return [big_node(f"n{i}").label("zone", zone).obj() for i, zone in enumerate(names, 1)]


def fit_error(count: int, *reasons: str) -> str:
    return f"0/{count} nodes are available: {', '.join(reasons)}."
