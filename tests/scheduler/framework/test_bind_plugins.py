"""Which plugins bind pods. A reservation is bound by Reservation whatever the configuration has at
`bind`, and what the scheduler writes with a bind is written whichever plugin binds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.api.errors import HoldfastError
from holdfast.plugin import Bind, Decision, Plugin, PodRecord
from holdfast.plugin.testing import Cluster, node, pod, reservation

Raw = dict[str, Any]
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
BOUND_BY = "example.com/bound-by"


class Binder(Plugin):
    """Binds whatever it is asked about."""

    name = "Binder"

    def bind(self, pod: PodRecord, row: int) -> list[Decision]:
        assert not pod.cls.is_reserve_pod
        written = {BOUND_BY: self.name, ALLOCATED: "something else"}
        return [Bind(pod.ref, self.handle.nodes.name(row), written)]


class Shy(Plugin):
    """Binds nothing."""

    name = "Binder"

    def bind(self, pod: PodRecord, row: int) -> list[Decision]:
        return []


def config(*names: str) -> Raw:
    """These plugins at `bind`, and no other."""
    bind = {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"bind": bind}}],
    }


DEVICE = """
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: Device
metadata: {name: n}
spec:
  devices:
    - type: gpu
      id: GPU-0
      minor: 0
      health: true
      resources:
        koordinator.sh/gpu-core: 100
        koordinator.sh/gpu-memory: 16Gi
        koordinator.sh/gpu-memory-ratio: 100
"""


def cluster(*names: str, plugin: type[Plugin] = Binder) -> Cluster:
    return Cluster(plugin, config=config(*names), keep_errors=True)


def found(cluster: Cluster, kind: str, name: str) -> Raw:
    (raw,) = (o for o in cluster.objects() if (o["kind"], o["metadata"]["name"]) == (kind, name))
    return raw


@pytest.mark.parametrize(
    "names",
    [("DefaultBinder", "Binder"), ("Binder",), ("Binder", "DefaultBinder"), ("Binder", "Reservation")],
    ids=" ".join,
)
def test_reservations_are_bound_and_allocated_by_any_binder(names: tuple[str, ...]) -> None:
    there = cluster(*names).add(node("n", cpu=4))
    there.add(reservation("held", owners={"app": "web"}, cpu=2)).schedule()
    assert found(there, "Reservation", "held")["status"]["phase"] == "Available"
    there.add(pod("web", cpu=1, labels={"app": "web"})).schedule()
    bound = found(there, "Pod", "web")
    assert bound["spec"]["nodeName"] == "n"
    assert json.loads(bound["metadata"]["annotations"][ALLOCATED])["name"] == "held"
    assert bound["metadata"]["annotations"].get(BOUND_BY) == (
        "Binder" if names[0] == "Binder" else None
    )
    assert found(there, "Reservation", "held")["status"]["allocated"]["cpu"] == "1"
    there.restart().schedule()
    assert found(there, "Reservation", "held")["status"]["allocated"]["cpu"] == "1"


def test_devices_are_written_by_any_binder() -> None:
    there = cluster("Binder").add(node("n"), DEVICE)
    there.add(pod("p", resources={"nvidia.com/gpu": 1})).schedule()
    annotations = found(there, "Pod", "p")["metadata"]["annotations"]
    assert "scheduling.koordinator.sh/device-allocated" in annotations
    assert annotations[BOUND_BY] == "Binder"


@pytest.mark.parametrize("names", [("Reservation",), ()], ids=["Reservation", "none"])
def test_a_profile_that_binds_no_pods_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(HoldfastError, match="bind: at least one plugin must bind pods, got "):
        cluster(*names)


def test_a_pod_that_no_plugin_binds_is_told_so() -> None:
    shy = cluster("Binder", plugin=Shy).add(node("n"), pod("p"))
    assert shy.schedule() == {}
    assert shy.messages() == {"p": "no Bind plugin binds the pod"}
    assert shy.waiting() == {} and shy.pending() == ["p"]


class OtherNode(Plugin):
    name = "Binder"

    def bind(self, pod: PodRecord, row: int) -> list[Decision]:
        return [Bind(pod.ref, "m" if self.handle.nodes.name(row) == "n" else "n")]


def test_a_bind_to_another_node_is_an_error_of_its_plugin() -> None:
    other = cluster("Binder", plugin=OtherNode).add(node("n"), node("m"), pod("p"))
    assert other.schedule() == {}
    assert 'running Bind plugin "Binder"' in other.messages()["p"]
    expected = "must bind the pod it is called for to the node it is called for"
    assert expected in other.messages()["p"]
