"""The allocator on a small cluster: feasible nodes, allocations, claims considered gone."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from holdfast.api.meta import ObjectMeta
from holdfast.api.node import Node
from holdfast.api.resource_claims import DeviceClass, ResourceClaimSpec
from holdfast.api.resource_slices import DeviceID, ResourceSlice
from holdfast.scheduler.cluster.node_table import NodeTable, node_info
from holdfast.scheduler.managers.claims import (
    ClaimName,
    ClaimsAllocation,
    ClaimsAllocator,
    ClaimsRefusal,
    DeviceCatalogue,
    DeviceUse,
    explain,
)

DRIVER = "gpu.example.com"
CLAIM = [ClaimName("default", "training", "uid-1")]


class Cluster:
    """Nodes with GPUs."""

    def __init__(self, nodes: int, gpus: int) -> None:
        self.nodes = NodeTable()
        self.catalogue = DeviceCatalogue(self.nodes)
        self.use = DeviceUse(self.catalogue.table)
        self.allocator = ClaimsAllocator(self.catalogue, self.nodes)
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        self.catalogue.put_class(
            msgspec.convert(
                {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}, DeviceClass
            )
        )
        for number in range(nodes):
            name = f"node-{number}"
            row = self.nodes.open_row(name)
            self.nodes.put(row, node_info(Node(metadata=ObjectMeta(name=name))))
            self.put_slice(name, gpus)

    def put_slice(self, node: str, gpus: int, **fields: Any) -> Any:
        devices = [
            {
                "name": f"gpu-{number}",
                "attributes": {"model": {"string": "large" if number % 2 else "small"}},
            }
            for number in range(gpus)
        ]
        spec = {
            "driver": DRIVER,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": node,
            "devices": devices,
            **fields,
        }
        slice = msgspec.convert({"metadata": {"name": node}, "spec": spec}, ResourceSlice)
        return self.catalogue.put_slice(slice)

    def feasible(self, request: Any, use: Any = None) -> list[int]:
        rows = np.arange(self.nodes.size)
        found = self.allocator.feasible(request, rows, use or self.use)
        chosen: list[int] = rows[found.feasible].tolist()
        return chosen


def claim(count: int, selector: str = "") -> ResourceClaimSpec:
    exactly: dict[str, Any] = {"deviceClassName": "gpu", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    request = {"name": "gpus", "exactly": exactly}
    return msgspec.convert({"devices": {"requests": [request]}}, ResourceClaimSpec)


def names(found: ClaimsAllocation | ClaimsRefusal) -> list[str]:
    assert isinstance(found, ClaimsAllocation), found
    return [each.device for each in found.devices]


def test_devices_are_taken_in_order_and_not_twice() -> None:
    cluster = Cluster(2, 4)
    request = cluster.allocator.request([claim(3)])
    first = cluster.allocator.allocate(request, 0, cluster.use, CLAIM)
    assert isinstance(first, ClaimsAllocation)
    assert names(first) == ["gpu-0", "gpu-1", "gpu-2"]
    cluster.use.add("uid-1", first.results[0].devices.results)
    assert cluster.feasible(request) == [1]
    again = cluster.allocator.allocate(request, 0, cluster.use, CLAIM)
    assert again == ClaimsRefusal("cannot allocate all claims")
    assert cluster.feasible(request, cluster.use.without(["uid-1"])) == [0, 1]
    cluster.use.remove("uid-1")
    assert cluster.feasible(request) == [0, 1]
    assert cluster.use.check() == []


def test_selectors_are_applied_on_many_and_on_few_rows_alike() -> None:
    cluster = Cluster(40, 4)
    request = cluster.allocator.request([claim(2, f'device.attributes["{DRIVER}"].model == "large"')])
    cluster.use.add("other", ())
    assert cluster.feasible(request) == list(range(40))
    assert names(cluster.allocator.allocate(request, 7, cluster.use, CLAIM)) == ["gpu-1", "gpu-3"]
    one = cluster.allocator.feasible(request, np.array([7]), cluster.use)
    assert one.feasible.tolist() == [True]


def test_preferred_devices_come_first_and_only_excludes_others() -> None:
    cluster = Cluster(1, 4)
    request = cluster.allocator.request([claim(2)])
    held = [DeviceID(DRIVER, "node-0", "gpu-3")]
    found = cluster.allocator.allocate(request, 0, cluster.use, CLAIM, prefer=held)
    assert names(found) == ["gpu-3", "gpu-0"]
    refused = cluster.allocator.allocate(request, 0, cluster.use, CLAIM, only=held)
    assert isinstance(refused, ClaimsRefusal)


def test_a_changed_slice_returns_its_rows_and_counts_at_once() -> None:
    cluster = Cluster(3, 2)
    request = cluster.allocator.request([claim(4)])
    assert cluster.feasible(request) == []
    assert cluster.put_slice("node-1", 4).tolist() == [1]
    assert cluster.feasible(request) == [1]


def test_a_failing_selector_is_fatal_and_names_claim_and_device() -> None:
    cluster = Cluster(1, 1)
    request = cluster.allocator.request([claim(1, f'device.attributes["{DRIVER}"].age > 3')])
    assert cluster.allocator.feasible(request, np.array([0]), cluster.use).fatal.tolist() == [True]
    found = cluster.allocator.allocate(request, 0, cluster.use, CLAIM)
    assert isinstance(found, ClaimsRefusal)
    assert found.fatal
    assert found.message.startswith(
        f"claim default/training: selector #0 on device {DRIVER}/node-0/gpu-0: CEL runtime error: "
        "no such key: age"
    )


def test_explanations_name_the_reason_for_each_device() -> None:
    cluster = Cluster(1, 3)
    request = cluster.allocator.request([claim(2, f'device.attributes["{DRIVER}"].model == "small"')])
    taken = cluster.allocator.allocate(cluster.allocator.request([claim(1)]), 0, cluster.use, CLAIM)
    assert isinstance(taken, ClaimsAllocation)
    cluster.use.add("uid-1", taken.results[0].devices.results)
    found = explain(cluster.allocator, request, 0, cluster.use)
    assert [(each.device.device, each.reason, each.holders) for each in found.devices] == [
        ("gpu-0", "in use", ("uid-1",)),
        ("gpu-1", "selector", ()),
    ]
