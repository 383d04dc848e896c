"""Endpoints of Services: which pods, which ports, in which slices, and after which changes."""

from typing import Any

import pytest

from harness.embedded_cluster import SteppedCluster
from harness.objects import pod
from holdfast.local.endpoints import HEADLESS, MANAGED_BY, MANAGER, SERVICE_NAME
from holdfast.local.store import Key, Raw, pod_key

SERVICE = Key("", "Service", "default", "web")


def _service(name: str = "web", selector: Raw | None = None, **spec: Any) -> Raw:
    ports = spec.pop("ports", [{"name": "http", "port": 80, "targetPort": 8080}])
    whole = {"selector": {"app": "web"} if selector is None else selector, "ports": ports, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "labels": {"team": "a"}},
        "spec": whole,
    }


def _pod(it: SteppedCluster, name: str, app: str = "web", **more: Any) -> Key:
    raw = pod(
        name, "0", app=app, metadata={"namespace": "default"}, schedulerName="default-scheduler", **more
    )
    it.create({**raw, "status": {"phase": "Pending"}})
    return pod_key("default", name)


def _cluster(pods: int = 0, nodes: int = 1, **spec: Any) -> SteppedCluster:
    it = SteppedCluster()
    for number in range(nodes):
        it.create_node(f"n{number}", cpu="64")
    for number in range(pods):
        _pod(it, f"p{number}")
    it.create(_service(**spec))
    return it


def _slices(it: SteppedCluster, name: str = "web") -> list[Raw]:
    return [
        raw
        for raw in it.store.list("discovery.k8s.io", "EndpointSlice")
        if raw["metadata"]["labels"][SERVICE_NAME] == name
    ]


def _endpoints(it: SteppedCluster, name: str = "web") -> dict[str, str]:
    """The conditions that are true, by pod."""
    return {
        each["targetRef"]["name"]: " ".join(
            sorted(key for key, true in each["conditions"].items() if true)
        )
        for raw in _slices(it, name)
        for each in raw["endpoints"]
    }


def _legacy(it: SteppedCluster, name: str = "web") -> list[Raw]:
    subsets: list[Raw] = it.get(Key("", "Endpoints", "default", name)).get("subsets", [])
    return subsets


def test_ready_pods_are_endpoints() -> None:
    it = _cluster(2)
    _pod(it, "other", app="other")
    (found,) = _slices(it)
    metadata = found["metadata"]
    assert metadata["name"].startswith("web-")
    assert metadata["generateName"] == "web-"
    assert metadata["labels"] == {"team": "a", SERVICE_NAME: "web", MANAGED_BY: MANAGER}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Service", "web", True)
    assert found["addressType"] == "IPv4"
    assert found["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    first = found["endpoints"][0]
    status = it.get(pod_key("default", "p0"))["status"]
    assert first["addresses"] == [status["podIP"]]
    assert first["conditions"] == {"ready": True, "serving": True, "terminating": False}
    assert first["nodeName"] == "n0"
    assert first["targetRef"]["kind"] == "Pod"
    (subset,) = _legacy(it)
    assert [each["targetRef"]["name"] for each in subset["addresses"]] == ["p0", "p1"]
    assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]


def test_pods_come_and_go() -> None:
    it = _cluster(2)
    (before,) = _slices(it)
    _pod(it, "late")
    it.after(1)
    it.delete(pod_key("default", "p0"))
    it.after(1)
    assert _endpoints(it) == {"p1": "ready serving", "late": "ready serving"}
    (after,) = _slices(it)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["generation"] > before["metadata"]["generation"]
    it.update(pod_key("default", "p1"), metadata={"labels": {"app": "other"}})
    it.after(1)
    assert _endpoints(it) == {"late": "ready serving"}


def test_not_ready_terminating_and_ended() -> None:
    it = _cluster(1)
    sick, going, done = (_pod(it, name) for name in ("sick", "going", "done"))
    conditions = [{"type": "Ready", "status": "False"}]
    it.update(sick, status={"conditions": conditions})
    it.update(going, metadata={"finalizers": ["a/b"], "deletionTimestamp": it.clock.stamp()})
    it.update(done, status={"phase": "Succeeded"})
    it.after(1)
    assert _endpoints(it)["p0"] == "ready serving"
    assert _endpoints(it)["sick"] == ""
    assert "done" not in _endpoints(it)
    (subset,) = _legacy(it)
    assert [each["targetRef"]["name"] for each in subset["notReadyAddresses"]] == ["sick"]
    it.create(_service("all", publishNotReadyAddresses=True))
    it.after(1)
    assert _endpoints(it, "all")["sick"] == "ready"


def test_a_terminating_pod_serves_until_it_stops() -> None:
    it = _cluster(0)
    key = _pod(it, "slow", annotations={"sim.holdfast.io/stops-in": "20s"})
    it.after(1)
    it.cluster.world.kubelets.delete(key)
    it.settle()
    it.after(1)
    assert _endpoints(it) == {"slow": "serving terminating"}
    assert _legacy(it) == []
    it.after(20)
    assert _endpoints(it) == {}


def test_pods_that_have_no_address_yet() -> None:
    it = _cluster(0, nodes=0)
    _pod(it, "waits")
    (placeholder,) = _slices(it)
    assert (placeholder["endpoints"], placeholder["ports"]) == ([], [])
    it.create_node("n")
    it.after(2)
    (found,) = _slices(it)
    assert found["metadata"]["uid"] == placeholder["metadata"]["uid"]
    assert _endpoints(it) == {"waits": "ready serving"}


def test_named_ports_are_those_of_each_pod() -> None:
    it = _cluster(0, ports=[{"name": "a", "port": 1, "targetPort": "main"}, {"name": "b", "port": 9}])
    for name, number in (("old", 8080), ("new", 9090), ("none", None)):
        ports = [{"name": "main", "containerPort": number}] if number else []
        _pod(it, name, containers=[{"name": "c", "image": "i", "ports": ports}])
    it.after(1)
    ports_of = {
        each["targetRef"]["name"]: [port["port"] for port in raw["ports"]]
        for raw in _slices(it)
        for each in raw["endpoints"]
    }
    assert ports_of == {"old": [8080, 9], "new": [9090, 9], "none": [9]}
    assert len(_legacy(it)) == 3


def test_headless() -> None:
    it = _cluster(0, clusterIP="None", ports=[])
    _pod(it, "p", hostname="first", subdomain="web")
    it.after(1)
    (found,) = _slices(it)
    assert found["metadata"]["labels"][HEADLESS] == ""
    assert found["endpoints"][0]["hostname"] == "first"
    assert found["ports"] == []
    assert HEADLESS in it.get(Key("", "Endpoints", "default", "web"))["metadata"]["labels"]


def test_at_most_a_hundred_in_a_slice_and_only_the_changed_one_is_written() -> None:
    it = _cluster(250, nodes=3)
    it.after(1)
    sizes = sorted(len(raw["endpoints"]) for raw in _slices(it))
    assert sizes == [50, 100, 100]
    before = {raw["metadata"]["name"]: raw["metadata"]["resourceVersion"] for raw in _slices(it)}
    it.delete(pod_key("default", "p7"))
    it.after(1)
    after = {raw["metadata"]["name"]: raw["metadata"]["resourceVersion"] for raw in _slices(it)}
    assert sum(before[name] != after[name] for name in after) == 1
    _pod(it, "more")
    it.after(1)
    assert sorted(len(raw["endpoints"]) for raw in _slices(it)) in ([50, 100, 100], [51, 99, 100])


def test_bursts_are_written_together() -> None:
    it = _cluster(1)
    it.after(1)
    revision = it.store.revision
    for number in range(20):
        _pod(it, f"burst{number}")
    it.after(1)
    assert len(_endpoints(it)) == 21
    (found,) = _slices(it)
    writes = found["metadata"]["generation"]
    assert writes <= 5
    assert it.store.revision > revision


@pytest.mark.parametrize("kept", [False, True])
def test_another_selector_and_none(kept: bool) -> None:
    it = _cluster(1)
    _pod(it, "q", app="other")
    it.update(SERVICE, spec={"selector": {"app": "other"}})
    it.after(1)
    assert _endpoints(it) == {"q": "ready serving"}
    if kept:
        it.update(SERVICE, spec={"selector": None})
    else:
        it.delete(SERVICE)
    it.after(1)
    assert _slices(it) == []
    assert (Key("", "Endpoints", "default", "web") in it.store) is kept


@pytest.mark.parametrize("spec", [{"selector": {}}, {"type": "ExternalName", "externalName": "a.b"}])
def test_services_without_endpoints_of_ours(spec: Raw) -> None:
    it = _cluster(1, **spec)
    it.after(1)
    assert _slices(it) == []
    assert Key("", "Endpoints", "default", "web") not in it.store


def test_what_others_change_is_put_right() -> None:
    it = _cluster(2)
    (found,) = _slices(it)
    key = Key("discovery.k8s.io", "EndpointSlice", "default", found["metadata"]["name"])
    it.delete(key)
    it.after(1)
    assert len(_endpoints(it)) == 2
    (found,) = _slices(it)
    key = Key("discovery.k8s.io", "EndpointSlice", "default", found["metadata"]["name"])
    it.store.update(key, {**found, "endpoints": found["endpoints"][:1]})
    it.settle()
    it.after(1)
    assert len(_endpoints(it)) == 2


def test_a_restart_keeps_the_slices() -> None:
    it = _cluster(3)
    it.after(1)
    before = {raw["metadata"]["name"]: raw["metadata"]["resourceVersion"] for raw in _slices(it)}
    again = SteppedCluster(it.store, it.clock)
    again.after(1)
    after = {raw["metadata"]["name"]: raw["metadata"]["resourceVersion"] for raw in _slices(again)}
    assert before == after


def test_nothing_is_left_in_a_namespace_that_is_deleted() -> None:
    it = SteppedCluster()
    it.create_node("n")
    it.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}, "spec": {}})
    raw = _service()
    raw["metadata"]["namespace"] = "team"
    it.create(raw)
    it.create_pod("p", namespace="team", labels={"app": "web"})
    key = Key("", "Namespace", "", "team")
    it.update(key, metadata={"deletionTimestamp": it.clock.stamp()})
    it.after(30)
    assert key not in it.store
    assert not it.store.keys_in("team")
