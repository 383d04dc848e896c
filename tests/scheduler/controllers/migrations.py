"""A cluster with a pod to migrate."""

from typing import Any

from harness.objects import Raw, node, replica, running
from harness.world import World

NODES = [node("n1", cpu="4"), node("n2", cpu="4")]
RESERVATION = "job-move"
"""The name of a migration's reservation is the migration's uid."""


def world(*objects: Raw, on: str = "n1", **spec: Any) -> World:
    """Two nodes, and a pod of a ReplicaSet on one of them."""
    return World(*NODES, running(replica("web", cpu="3", **spec), on), *objects)
