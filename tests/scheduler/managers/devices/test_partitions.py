"""GPUs that are given in sets, as a node's wiring has it."""

import msgspec
import pytest

from harness.device_objects import device, gpu, minors
from harness.objects import Raw, node, pod, reservation
from harness.world import World

GPU = "koordinator.sh/gpu"
TABLE: dict[str, list[Raw]] = {
    "1": [{"minors": [minor], "allocationScore": 1} for minor in range(4)],
    "2": [
        {"minors": [0, 3], "allocationScore": 2, "ringBusBandwidth": "200Gi"},
        {"minors": [1, 2], "allocationScore": 2, "ringBusBandwidth": "400Gi"},
        {"minors": [0, 1], "allocationScore": 1, "ringBusBandwidth": "100Gi"},
    ],
    "4": [{"minors": [0, 1, 2, 3], "allocationScore": 1}],
}


def world(honoured: bool = True, table: dict[str, list[Raw]] | None = None) -> World:
    text = msgspec.json.encode(TABLE if table is None else table).decode()
    labels = {"node.koordinator.sh/gpu-partition-policy": "Honor"} if honoured else {}
    annotations = {"scheduling.koordinator.sh/gpu-partitions": text}
    it = device("n1", *(gpu(minor) for minor in range(4)), labels=labels, annotations=annotations)
    return World(node("n1"), it)


def wants(name: str, percent: str, spec: str = "", app: str = "") -> Raw:
    annotations = {"scheduling.koordinator.sh/gpu-partition-spec": spec} if spec else {}
    labels = {"app": app} if app else {}
    return pod(name, requests={GPU: percent}, metadata={"annotations": annotations, "labels": labels})


def test_two_gpus_are_one_of_the_sets() -> None:
    it = world().put(wants("a", "200")).put(wants("b", "200"))
    assert sorted([minors(it, "a"), minors(it, "b")]) == [[0, 3], [1, 2]]


@pytest.mark.parametrize(("honoured", "found"), [(True, []), (False, [2, 3])])
def test_sets_are_kept_to_where_they_are_honoured(honoured: bool, found: list[int]) -> None:
    table = {
        "1": [{"minors": [0], "allocationScore": 1}, {"minors": [1], "allocationScore": 1}],
        "2": [{"minors": [0, 3], "allocationScore": 1}, {"minors": [1, 2], "allocationScore": 1}],
    }
    it = world(honoured, table).put(wants("a", "100")).put(wants("b", "100"))
    assert sorted(minors(it, "a") + minors(it, "b")) == [0, 1]
    it.put(wants("c", "200"))
    assert minors(it, "c") == found
    if not found:
        assert "1 Insufficient Partitioned GPU Devices" in it.message("c")


def test_a_number_of_gpus_of_which_there_are_no_sets() -> None:
    it = world().put(wants("a", "300"))
    said = "0/1 nodes are available: 1 node(s) Unsupported number of GPU requests."
    assert it.message("a").startswith(said)


def test_a_pod_may_insist_on_sets() -> None:
    it = world(honoured=False).put(wants("a", "200", '{"ringBusBandwidth": "300Gi"}'))
    assert minors(it, "a") == [1, 2]
    it.put(wants("b", "200", '{"ringBusBandwidth": "300Gi"}'))
    assert "1 Insufficient Partitioned GPU Devices" in it.message("b")
    it.put(wants("c", "200", "{}"))
    assert minors(it, "c") == [0, 3]


def test_only_the_best_sets_if_a_pod_wants_no_others() -> None:
    it = world().put(wants("busy", "200", '{"ringBusBandwidth": "400Gi"}')).put(wants("one", "100"))
    assert minors(it, "one") in ([0], [3])
    it.put(wants("best", "200", '{"allocatePolicy": "Restricted"}'))
    assert it.node_of("best") == ""


def test_a_node_without_sets_serves_nobody_who_insists_on_them() -> None:
    it = World(node("n1"), device("n1", gpu(0), gpu(1))).put(wants("a", "200", "{}"))
    assert "1 node(s) missing GPU Partition Table" in it.message("a")
    it.put(wants("b", "200", "{"))
    assert "invalid GPUPartitionSpec annotation, err: " in it.message("b")
    it.put(wants("shared", "50", "{}"))
    assert it.node_of("shared") == "n1"


def test_owners_get_the_set_that_is_reserved_for_them() -> None:
    it = world().put(reservation("r", app="own", requests={GPU: "200"}))
    held = minors(it, "r", "Reservation")
    it.put(wants("stranger", "200"))
    assert not set(minors(it, "stranger")) & set(held)
    it.put(wants("owner", "200", app="own"))
    assert (minors(it, "owner"), it.reservation_of("owner")) == (held, "r")
    it.restart()
    it.settle()


@pytest.mark.parametrize("text", ['{"x": []}', "[]", '{"2": [{"minors": "0"}]}'])
def test_sets_that_make_no_sense_are_none(text: str) -> None:
    annotations = {"scheduling.koordinator.sh/gpu-partitions": text}
    it = World(node("n1"), device("n1", gpu(0), gpu(1), annotations=annotations))
    assert it.put(wants("a", "200")).node_of("a") == "n1"
