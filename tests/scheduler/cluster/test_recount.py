"""`validate_state` sees what is wrong: each part of the state is spoilt in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.builders import make_node, make_pod
from holdfast.api.meta import LabelSelector, ObjectMeta
from holdfast.api.reservation import Reservation, ReservationOwner, ReservationSpec, ReservationStatus
from holdfast.scheduler.cluster.domain_counts import PodCounter
from holdfast.scheduler.cluster.events import Added
from holdfast.scheduler.cluster.node_table import HostPort
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.state.cluster import Cluster
from holdfast.scheduler.state.recount import validate_state

_COUNTERS: list[PodCounter] = []
"""Whoever wants a counter keeps it."""


def make_cluster() -> Cluster:
    cluster = Cluster()
    for i in range(2):
        node = make_node(f"n{i}").allocatable(cpu="4").zone(f"z{i}").taint("t").image(f"i{i}").obj()
        cluster.feed(Added(node), 0.0)
        cluster.feed(Added(make_pod(f"p{i}").cpu("1").host_port(80).on(f"n{i}").obj()), 0.0)
    cluster.feed(Added(make_pod("pending").cpu("1").obj()), 0.0)
    zones = cluster.nodes.labels.column("topology.kubernetes.io/zone")
    _COUNTERS.append(cluster.topology.counter("all", lambda cls: True))
    _COUNTERS[-1].domains(zones)
    cluster.feed(Added(reservation("h", "n0")), 0.0)
    return cluster


def reservation(name: str, node: str) -> Reservation:
    resources = {"requests": {"cpu": "100m"}}
    template = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    return Reservation(
        kind="Reservation",
        metadata=ObjectMeta(name=name, uid=name),
        spec=ReservationSpec(
            template=template, owners=[ReservationOwner(label_selector=LabelSelector())]
        ),
        status=ReservationStatus(phase="Available", node_name=node, allocatable={"cpu": "100m"}),
    )


def _claimed(cluster: Cluster) -> None:
    cluster.nodes.claimed[0, 1] += 1


def _held(cluster: Cluster) -> None:
    cluster.nodes.held[0, 0] -= 1


def _allocatable(cluster: Cluster) -> None:
    cluster.nodes.allocatable[0, 0] += 1


def _alive(cluster: Cluster) -> None:
    cluster.nodes.alive[0] = False


def _count(cluster: Cluster) -> None:
    cluster.nodes.count += 1


def _taints(cluster: Cluster) -> None:
    cluster.nodes.taint_set[0] = 0


def _label(cluster: Cluster) -> None:
    cluster.nodes.labels.column("topology.kubernetes.io/zone").codes[0] = 1


def _ports(cluster: Cluster) -> None:
    cluster.nodes.ports.add(0, HostPort("0.0.0.0", "TCP", 81), 1)


def _image(cluster: Cluster) -> None:
    image = cluster.nodes.images.get("i0")
    assert image is not None
    image.present[1] = True


def _phase(cluster: Cluster) -> None:
    cluster.pods["uid-pending"].phase = Phase.ASSUMED


def _row(cluster: Cluster) -> None:
    cluster.pods["uid-p0"].row = 1


def _forgotten(cluster: Cluster) -> None:
    del cluster.pods["uid-p0"]


def _refs(cluster: Cluster) -> None:
    cluster.pods["uid-p0"].cls.refs += 1


def _placed(cluster: Cluster) -> None:
    cluster.pods["uid-p0"].cls.placed[0] = 5


def _counter(cluster: Cluster) -> None:
    _COUNTERS[-1].rows[0] += 1


def _domain(cluster: Cluster) -> None:
    zones = cluster.nodes.labels.column("topology.kubernetes.io/zone")
    _COUNTERS[-1].domains(zones)[0] += 1


@pytest.mark.parametrize(
    "spoil",
    [
        _claimed,
        _held,
        _allocatable,
        _alive,
        _count,
        _taints,
        _label,
        _ports,
        _image,
        _phase,
        _row,
        _forgotten,
        _refs,
        _placed,
        _counter,
        _domain,
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_every_kind_of_damage_is_seen(spoil: Callable[[Cluster], None]) -> None:
    cluster = make_cluster()
    assert validate_state(cluster) == []
    spoil(cluster)
    assert validate_state(cluster) != []
