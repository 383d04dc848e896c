"""Nodes in an embedded cluster: made, registered, cordoned, tainted, deleted."""

from typing import Any

import pytest

from harness.embedded_cluster import SteppedCluster
from holdfast.local.node_objects import NodeShape
from holdfast.local.store import Key, node_key

TAINT = {"key": "k", "value": "v", "effect": "NoExecute"}


def test_nodes_made_by_number_are_ready_and_in_three_zones() -> None:
    it = SteppedCluster()
    it.cluster.add_nodes(4)
    it.settle()
    nodes = {raw["metadata"]["name"]: raw for raw in it.store.list("", "Node")}
    assert list(nodes) == ["node-1", "node-2", "node-3", "node-4"]
    zones = [raw["metadata"]["labels"]["topology.kubernetes.io/zone"] for raw in nodes.values()]
    assert zones == ["zone-a", "zone-b", "zone-c", "zone-a"]
    status = nodes["node-1"]["status"]
    assert status["allocatable"] == status["capacity"]
    assert status["capacity"] == {
        "cpu": "8",
        "memory": "32Gi",
        "ephemeral-storage": "100Gi",
        "pods": "110",
    }
    assert it.condition(node_key("node-1"), "Ready")["status"] == "True"
    assert {a["type"] for a in status["addresses"]} == {"InternalIP", "Hostname"}
    assert status["nodeInfo"]["kubeletVersion"].startswith("v1.")


def test_asking_for_nodes_again_makes_those_that_are_missing() -> None:
    it = SteppedCluster()
    it.cluster.add_nodes(3)
    it.settle()
    kept = it.get(node_key("node-1"))
    it.delete(node_key("node-2"))
    it.cluster.add_nodes(3)
    it.settle()
    assert it.store.count("", "Node") == 3
    assert it.get(node_key("node-1")) == kept


@pytest.mark.parametrize(
    ("given", "allocatable"),
    [
        ({}, {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}),
        ({"capacity": {"cpu": "2"}}, {"cpu": "2", "pods": "110"}),
        (
            {"capacity": {"cpu": "2", "pods": "5"}, "allocatable": {"cpu": "1"}},
            {"cpu": "1", "pods": "5"},
        ),
        ({"allocatable": {"cpu": "1", "x.io/y": "3"}}, {"cpu": "1", "x.io/y": "3", "pods": "110"}),
    ],
)
def test_a_node_someone_applies_gets_a_kubelet(given: Any, allocatable: Any) -> None:
    it = SteppedCluster()
    it.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}, "status": given})
    node = it.get(node_key("mine"))
    assert node["status"]["allocatable"] == allocatable
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "mine"
    assert it.placed(it.create_pod("p")) == "mine"


def test_a_kubelet_fills_in_what_the_api_server_stores_as_empty() -> None:
    """Of a client that sends some of the status the server stores the rest as empty texts and zeros."""
    it = SteppedCluster()
    empty = {"kubeletVersion": "", "architecture": "arm64", "osImage": ""}
    status = {
        "capacity": {"cpu": "4"},
        "nodeInfo": empty,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
    }
    it.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}, "status": status})
    found = it.get(node_key("mine"))["status"]
    assert found["nodeInfo"]["kubeletVersion"].startswith("v1.")
    assert found["nodeInfo"]["osImage"] == "Holdfast simulated node"
    assert found["nodeInfo"]["architecture"] == "arm64"
    assert found["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}


_LEASE = Key("coordination.k8s.io", "Lease", "kube-node-lease", "node-1")
_DEVICE = Key("scheduling.koordinator.sh", "Device", "", "node-1")


def test_lease_and_device_go_with_their_node() -> None:
    it = SteppedCluster()
    it.cluster.add_nodes(1, NodeShape("8", "32Gi", 2))
    it.settle()
    assert (_LEASE in it.store, _DEVICE in it.store) == (True, True)
    it.delete(node_key("node-1"))
    assert (_LEASE in it.store, _DEVICE in it.store) == (False, False)


def test_a_node_that_comes_back_has_a_lease_and_a_device_of_its_own() -> None:
    it = SteppedCluster()
    shape = NodeShape("8", "32Gi", 2)
    it.cluster.add_nodes(1, shape)
    it.settle()
    it.store.delete(node_key("node-1"))
    it.cluster.add_nodes(1, shape)  # before any controller has seen that it was gone
    it.settle()
    uid = it.get(node_key("node-1"))["metadata"]["uid"]
    for key in (_LEASE, _DEVICE):
        assert [each["uid"] for each in it.get(key)["metadata"]["ownerReferences"]] == [uid]
    slices = it.store.list("resource.k8s.io", "ResourceSlice")
    assert [each["metadata"]["ownerReferences"][0]["uid"] for each in slices] == [uid]


def test_the_lease_of_a_node_that_was_deleted_before_a_restart_goes() -> None:
    it = SteppedCluster()
    it.create_node("node-1")
    it.store.delete(node_key("node-1"))
    SteppedCluster(it.store)
    assert _LEASE not in it.store


def test_a_deleted_lease_is_created_again() -> None:
    it = SteppedCluster()
    it.create_node("node-1")
    it.delete(_LEASE)
    assert _LEASE in it.store


def test_kubelets_report_status_and_renew_leases_in_time() -> None:
    it = SteppedCluster()
    node = it.create_node("n")
    lease = Key("coordination.k8s.io", "Lease", "kube-node-lease", "n")
    before, renewed = it.condition(node, "Ready"), it.get(lease)["spec"]["renewTime"]
    for _ in range(31):
        it.clock.t += 10
        it.settle()
    again = it.condition(node, "Ready")
    assert again["lastHeartbeatTime"] > before["lastHeartbeatTime"]
    assert again["lastTransitionTime"] == before["lastTransitionTime"]
    assert it.get(lease)["spec"]["renewTime"] > renewed


def test_a_cordoned_node_keeps_its_pods_and_gets_no_more() -> None:
    it = SteppedCluster()
    node = it.create_node("n")
    first = it.create_pod("first")
    it.update(node, spec={"unschedulable": True})
    second = it.create_pod("second")
    assert (it.placed(first), it.placed(second)) == ("n", "")
    it.update(node, spec={"unschedulable": False})
    it.after(2)
    assert it.placed(second) == "n"


def tolerating(seconds: int | None, **more: Any) -> list[dict[str, Any]]:
    toleration = {"key": "k", "operator": "Exists", "effect": "NoExecute", **more}
    return [toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}]


@pytest.mark.parametrize(
    ("tolerations", "stays"),
    [
        ([], 0),
        (tolerating(None, key="other"), 0),
        (tolerating(None), None),
        (tolerating(5), 5),
        (tolerating(0), 0),
        (tolerating(-3), 0),
        ([*tolerating(5), *tolerating(2)], 5),
    ],
)
def test_pods_leave_a_node_tainted_noexecute(tolerations: Any, stays: int | None) -> None:
    it = SteppedCluster()
    node = it.create_node("n")
    pod = it.create_pod("p", tolerations=tolerations)
    it.update(node, spec={"taints": [TAINT]})
    for second in range(8):
        assert (pod in it.store) == (stays is None or second < stays), f"after {second} s"
        it.after(1)
    assert ("TaintManagerEviction" in it.reasons()) == (stays is not None)


def test_a_taint_that_is_removed_in_time_evicts_no_pod() -> None:
    it = SteppedCluster()
    node = it.create_node("n")
    pod = it.create_pod("p", tolerations=tolerating(5))
    it.update(node, spec={"taints": [TAINT]})
    it.after(3)
    it.update(node, spec={"taints": []})
    it.after(5)
    assert pod in it.store
    it.update(node, spec={"taints": [TAINT]})
    it.after(4)
    assert pod in it.store
    it.after(1)
    assert pod not in it.store


def test_a_pod_put_on_a_tainted_node_leaves_it_too() -> None:
    it = SteppedCluster()
    it.create_node("n", taints=[TAINT])
    assert it.create_pod("direct", nodeName="n") not in it.store


def test_a_deleted_nodes_pods_go_with_it() -> None:
    it = SteppedCluster()
    node = it.create_node("n")
    pods = [it.create_pod("a", annotations={"sim.holdfast.io/stops-in": "20s"}), it.create_pod("b")]
    it.delete(node)
    assert [pod in it.store for pod in pods] == [False, False]
    waiting = it.create_pod("c")
    it.create_node("n")
    it.after(2)
    assert it.placed(waiting) == "n"


def test_a_deleted_nodes_pods_go_with_it_though_the_node_is_back_at_once() -> None:
    it = SteppedCluster()
    node = it.create_node("n")
    left = it.create_pod("a")
    raw = it.get(node)
    it.store.delete(node)
    it.store.create(node, {**raw, "metadata": {**raw["metadata"], "uid": "another"}})
    it.settle()
    assert left not in it.store
    assert it.placed(it.create_pod("b")) == "n"


def test_a_pod_on_a_node_that_never_was_is_given_some_time() -> None:
    it = SteppedCluster()
    early, lost = it.create_pod("early", nodeName="soon"), it.create_pod("lost", nodeName="never")
    it.after(20)
    it.create_node("soon")
    assert (it.phase(early), it.phase(lost)) == ("Running", "Pending")
    it.after(30)
    assert (early in it.store, lost in it.store) == (True, False)
