"""Fluent builders of objects, so that a test reads as a table of rows.

    make_pod("p1").cpu("1").memory("1Gi").label("app", "web").on("n1").obj()
    make_node("n1").allocatable(cpu="4", memory="8Gi", pods=110).label("zone", "a").obj()

`.raw()` gives a fresh dict as a user would write it, `.obj()` the typed view of it.
"""

from harness.builders.jobs import PodGroupBuilder, QueueBuilder
from harness.builders.metadata import CREATED, Builder, Raw
from harness.builders.nodes import NodeBuilder
from harness.builders.others import make_budget, make_controller, make_namespace, make_service
from harness.builders.pods import PodBuilder
from harness.builders.reservations import ReservationBuilder

__all__ = [
    "CREATED",
    "Builder",
    "NodeBuilder",
    "PodBuilder",
    "PodGroupBuilder",
    "QueueBuilder",
    "Raw",
    "ReservationBuilder",
    "make_budget",
    "make_controller",
    "make_namespace",
    "make_node",
    "make_pod",
    "make_pod_group",
    "make_queue",
    "make_reservation",
    "make_service",
]


def make_pod(name: str) -> PodBuilder:
    return PodBuilder(name)


def make_node(name: str) -> NodeBuilder:
    return NodeBuilder(name)


def make_reservation(name: str) -> ReservationBuilder:
    return ReservationBuilder(name)


def make_pod_group(name: str) -> PodGroupBuilder:
    return PodGroupBuilder(name)


def make_queue(name: str) -> QueueBuilder:
    return QueueBuilder(name)
