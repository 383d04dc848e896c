"""A pod for each node that fits."""

from typing import Any

import pytest

from local.workloads.controlled_store import Cluster, image, workload

Raw = dict[str, Any]


def _node(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Raw:
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def _cluster(*nodes: Raw, pod: Raw | None = None, **spec: Any) -> Cluster:
    cluster = Cluster()
    for node in nodes or [_node("n1"), _node("n2"), _node("n3")]:
        cluster.create(node)
    raw = workload("DaemonSet", "agent", **spec)
    raw["spec"]["template"]["spec"].update(pod or {})
    cluster.create(raw)
    cluster.settle()
    _place(cluster)
    return cluster


def _target(pod: Raw) -> str:
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    [field] = terms["nodeSelectorTerms"][0]["matchFields"]
    assert (field["key"], field["operator"]) == ("metadata.name", "In")
    return str(field["values"][0])


def _place(cluster: Cluster) -> None:
    for pod in cluster.pods():
        if pod["status"]["phase"] == "Pending":
            cluster.run(pod["metadata"]["name"], node=_target(pod))


def _nodes(cluster: Cluster) -> list[str]:
    return sorted(pod["spec"].get("nodeName") or _target(pod) for pod in cluster.pods())


def _taint(effect: str, key: str = "a") -> Raw:
    return {"key": key, "effect": effect}


_ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
FITS: dict[str, tuple[Raw, Raw, bool]] = {
    "plain": (_node("n"), {}, True),
    "cordoned": (
        _node(
            "n", unschedulable=True, taints=[_taint("NoSchedule", "node.kubernetes.io/unschedulable")]
        ),
        {},
        True,
    ),
    "not ready": (_node("n", taints=[_taint("NoExecute", "node.kubernetes.io/not-ready")]), {}, True),
    "short of memory": (
        _node("n", taints=[_taint("NoSchedule", "node.kubernetes.io/memory-pressure")]),
        {},
        True,
    ),
    "without network": (
        _node("n", taints=[_taint("NoSchedule", "node.kubernetes.io/network-unavailable")]),
        {},
        False,
    ),
    "without network, which it does not need": (
        _node("n", taints=[_taint("NoSchedule", "node.kubernetes.io/network-unavailable")]),
        {"hostNetwork": True},
        True,
    ),
    "tainted": (_node("n", taints=[_taint("NoSchedule")]), {}, False),
    "tainted, and tolerated": (
        _node("n", taints=[_taint("NoSchedule")]),
        {"tolerations": [{"operator": "Exists"}]},
        True,
    ),
    "not to be preferred": (_node("n", taints=[_taint("PreferNoSchedule")]), {}, True),
    "selected": (_node("n", {"disk": "ssd"}), {"nodeSelector": {"disk": "ssd"}}, True),
    "not selected": (_node("n"), {"nodeSelector": {"disk": "ssd"}}, False),
    "by affinity": (
        _node("n", {"zone": "a"}),
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_ZONE]}
                }
            }
        },
        True,
    ),
    "against affinity": (
        _node("n", {"zone": "b"}),
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_ZONE]}
                }
            }
        },
        False,
    ),
    "another node by name": (_node("n"), {"nodeName": "m"}, False),
}


@pytest.mark.parametrize("case", FITS)
def test_a_node(case: str) -> None:
    node, pod, fits = FITS[case]
    cluster = _cluster(node, pod=pod)
    assert _nodes(cluster) == (["n"] if fits else [])
    status = cluster.get("DaemonSet", "agent")["status"]
    assert status["desiredNumberScheduled"] == fits
    assert status["numberReady"] == fits


def test_nodes_come_and_go() -> None:
    cluster = _cluster(_node("n1"))
    cluster.create(_node("n2"))
    cluster.settle()
    _place(cluster)
    assert _nodes(cluster) == ["n1", "n2"]
    cluster.delete("Node", "n1")
    cluster.settle()
    assert _nodes(cluster) == ["n2"]


TAINTED = {"NoSchedule": ["n1"], "NoExecute": []}


@pytest.mark.parametrize("effect", TAINTED)
def test_a_taint_that_comes_later(effect: str) -> None:
    cluster = _cluster(_node("n1"))
    cluster.patch("Node", "n1", taints=[_taint(effect)])
    cluster.settle()
    assert _nodes(cluster) == TAINTED[effect]
    status = cluster.get("DaemonSet", "agent")["status"]
    assert status["desiredNumberScheduled"] == 0
    assert status["numberMisscheduled"] == len(TAINTED[effect])


def test_a_pod_that_ended_is_recreated() -> None:
    cluster = _cluster(_node("n1"))
    [first] = cluster.names()
    cluster.end(first, "Failed")
    assert cluster.names() != [first] and _nodes(cluster) == ["n1"]


UPDATES = {
    "one at a time": ({}, 1, "b"),
    "two at a time": ({"rollingUpdate": {"maxUnavailable": 2}}, 2, "b"),
    "half of them": ({"rollingUpdate": {"maxUnavailable": "50%"}}, 2, "b"),
    "when deleted": ({"type": "OnDelete"}, 0, "a"),
}


@pytest.mark.parametrize("case", UPDATES)
def test_an_update(case: str) -> None:
    strategy, missing, last = UPDATES[case]
    cluster = _cluster(updateStrategy=strategy)
    cluster.patch("DaemonSet", "agent", template=image(cluster.get("DaemonSet", "agent"), "b"))
    cluster.settle()
    most = 0
    for _ in range(10):
        waiting = [pod for pod in cluster.pods() if pod["status"]["phase"] == "Pending"]
        most = max(most, len(waiting))
        if not waiting:
            break
        cluster.run(waiting[0]["metadata"]["name"], node=_target(waiting[0]))
    assert most == missing
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.pods()} == {last}
    assert _nodes(cluster) == ["n1", "n2", "n3"]
    status = cluster.get("DaemonSet", "agent")["status"]
    assert status.get("updatedNumberScheduled", 0) == (3 if last == "b" else 0)


def _surging(surge: int | str, **spec: Any) -> Cluster:
    rolling = {"maxSurge": surge, "maxUnavailable": 0}
    cluster = _cluster(updateStrategy={"rollingUpdate": rolling}, **spec)
    cluster.patch("DaemonSet", "agent", template=image(cluster.get("DaemonSet", "agent"), "b"))
    cluster.settle()
    return cluster


def _images(cluster: Cluster) -> list[str]:
    """Node and image of each pod."""
    return sorted(
        f"{pod['spec'].get('nodeName') or _target(pod)} {pod['spec']['containers'][0]['image']}"
        for pod in cluster.pods()
    )


@pytest.mark.parametrize(("surge", "more"), [(1, 1), (2, 2), ("50%", 2), ("100%", 3)])
def test_with_max_surge_new_pods_run_before_old_ones_go(surge: int | str, more: int) -> None:
    cluster = _surging(surge)
    most = 0
    for _ in range(10):
        waiting = [pod for pod in cluster.pods() if pod["status"]["phase"] == "Pending"]
        most = max(most, len(waiting))
        assert cluster.get("DaemonSet", "agent")["status"]["numberAvailable"] == 3
        if not waiting:
            break
        cluster.run(waiting[0]["metadata"]["name"], node=_target(waiting[0]))
    assert most == more
    assert _images(cluster) == ["n1 b", "n2 b", "n3 b"]
    assert cluster.get("DaemonSet", "agent")["status"]["updatedNumberScheduled"] == 3


def test_with_max_surge_an_old_pod_goes_once_the_new_one_is_available() -> None:
    cluster = _surging(1, minReadySeconds=5)
    # The old pods are not available yet, so each is replaced at once.
    assert _images(cluster) == ["n1 a", "n1 b", "n2 a", "n2 b", "n3 a", "n3 b"]
    cluster = _cluster(updateStrategy={"rollingUpdate": {"maxSurge": 1}}, minReadySeconds=5)
    cluster.advance(5)
    cluster.patch("DaemonSet", "agent", template=image(cluster.get("DaemonSet", "agent"), "b"))
    cluster.settle()
    _place(cluster)
    both = ["n1 a", "n1 b", "n2 a", "n3 a"]
    cluster.advance(4)
    assert _images(cluster) == both
    cluster.advance(1)
    assert _images(cluster) == ["n1 b", "n2 a", "n2 b", "n3 a"]


def test_with_max_surge_an_old_pod_that_is_not_ready_goes_at_once() -> None:
    cluster = _surging(1)
    old = next(pod for pod in cluster.pods() if pod["spec"].get("nodeName") == "n1")
    cluster._status(old["metadata"]["name"], "Running", "n1", "False")
    cluster.settle()
    assert _images(cluster) == ["n1 b", "n2 a", "n2 b", "n3 a"]


def test_with_max_surge_pods_on_excluded_nodes_go_as_others_become_available() -> None:
    cluster = _cluster(updateStrategy={"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    cluster.patch("Node", "n1", taints=[_taint("NoSchedule")])
    cluster.patch("DaemonSet", "agent", template=image(cluster.get("DaemonSet", "agent"), "b"))
    cluster.settle()
    assert _images(cluster) == ["n2 a", "n2 b", "n3 a"]
