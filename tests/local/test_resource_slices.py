"""The simulated GPUs of nodes as devices of a DRA driver."""

from __future__ import annotations

from harness.embedded_cluster import SteppedCluster
from holdfast.api.decode import decode
from holdfast.api.resource_slices import ResourceSlice
from holdfast.local.node_objects import NodeShape
from holdfast.local.resource_slices import DRIVER, slices_of
from holdfast.local.store import Key, node_key
from holdfast.machinery.objects import checked_object
from holdfast.machinery.schema.catalogue import holdfast_catalogue

SLICES = ("resource.k8s.io", "ResourceSlice")
CLASS = Key("resource.k8s.io", "DeviceClass", "", DRIVER)


def test_nodes_with_gpus_have_slices_and_a_class() -> None:
    it = SteppedCluster()
    it.cluster.add_nodes(2, NodeShape(gpus=4))
    it.settle()
    one, _ = sorted(it.store.scan(*SLICES), key=lambda raw: raw["metadata"]["name"])
    found = decode(one)
    assert isinstance(found, ResourceSlice)
    assert found.metadata.name == "node-1-gpu.holdfast.io"
    assert (found.spec.node_name, found.spec.pool.name, found.spec.driver) == (
        "node-1",
        "node-1",
        DRIVER,
    )
    assert [device.name for device in found.spec.devices] == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    last = found.spec.devices[-1]
    assert last.attributes["numaNode"].int_value == 1
    assert last.attributes["index"].int_value == 3
    assert last.attributes["resource.kubernetes.io/pcieRoot"].string_value == "pci0000:01"
    assert it.get(CLASS)["spec"]["selectors"][0]["cel"]["expression"] == f'device.driver == "{DRIVER}"'
    type = holdfast_catalogue().kind("resource.k8s.io", "v1", "ResourceSlice")
    assert type is not None
    assert checked_object(type, one)[1] == []


def test_slices_go_with_their_node_and_come_with_the_next() -> None:
    it = SteppedCluster()
    it.cluster.add_nodes(1, NodeShape(gpus=1))
    it.settle()
    (before,) = it.store.scan(*SLICES)
    it.store.delete(node_key("node-1"))
    it.settle()
    assert [*it.store.scan(*SLICES)] == []
    it.cluster.add_nodes(1, NodeShape(gpus=1))
    it.settle()
    (after,) = it.store.scan(*SLICES)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


def test_nodes_without_gpus_have_none() -> None:
    it = SteppedCluster()
    it.cluster.add_nodes(1)
    assert [*it.store.scan(*SLICES)] == []
    assert CLASS not in it.store


def test_a_pool_of_many_devices_has_several_slices() -> None:
    node = {
        "metadata": {"name": "n", "uid": "1"},
        "status": {"capacity": {"nvidia.com/gpu": "300"}},
    }
    slices = slices_of(node)
    assert [len(each["spec"]["devices"]) for each in slices] == [128, 128, 44]
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in slices} == {3}
