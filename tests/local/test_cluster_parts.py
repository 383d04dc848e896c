"""What else lives in an embedded cluster: namespaces, budgets, events, and restarts."""

from pathlib import Path

import pytest

from harness.embedded_cluster import HandClock, SteppedCluster
from holdfast.local import stored_events as expiry
from holdfast.local.namespace_controller import GRACE
from holdfast.local.store import Key, open_store, pod_key
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef


def terminate(it: SteppedCluster, name: str) -> Key:
    key = Key("", "Namespace", "", name)
    it.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return key


def test_a_namespace_that_is_deleted_is_emptied_first() -> None:
    it = SteppedCluster()
    it.create_node("n")
    key = terminate(it, "x")
    running = it.create_pod("running", namespace="x", annotations={"sim.holdfast.io/stops-in": "5s"})
    elsewhere = it.create_pod("elsewhere")
    it.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "x"}})
    it.update(key, metadata={"deletionTimestamp": it.clock.stamp()})
    it.after(GRACE)
    assert [each for each in it.store.keys_in("x") if each.kind != "Event"] == [running]
    assert key in it.store
    it.after(5)
    assert (key in it.store, it.store.keys_in("x"), elsewhere in it.store) == (False, [], True)


def test_a_namespace_waits_for_finalizers_within_it() -> None:
    it = SteppedCluster()
    key = terminate(it, "x")
    metadata = {"name": "s", "namespace": "x", "finalizers": ["example.com/wait"]}
    it.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
    service = Key("", "Service", "x", "s")
    it.update(key, metadata={"deletionTimestamp": it.clock.stamp()})
    it.after(GRACE)
    assert "deletionTimestamp" in it.get(service)["metadata"]
    assert key in it.store
    true_conditions = {
        c["type"]: c for c in it.get(key)["status"]["conditions"] if c["status"] == "True"
    }
    assert {name: condition["message"] for name, condition in true_conditions.items()} == {
        "NamespaceContentRemaining": (
            "Some resources are remaining: services. has 1 resource instances"
        ),
        "NamespaceFinalizersRemaining": (
            "Some content in the namespace has finalizers remaining: "
            "example.com/wait in 1 resource instances"
        ),
    }
    it.delete(service)
    assert key not in it.store


def test_an_empty_namespace_is_gone_at_once() -> None:
    it = SteppedCluster()
    key = terminate(it, "x")
    it.update(key, metadata={"deletionTimestamp": it.clock.stamp()})
    it.after(GRACE)
    assert key not in it.store


def test_the_status_of_a_budget_follows_its_pods() -> None:
    it = SteppedCluster()
    it.create_node("n")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 99},
    }
    it.create(budget)
    for name in "ab":
        it.create_pod(name, labels={"app": "web"})
    key = Key("policy", "PodDisruptionBudget", "default", "b")
    assert it.get(key)["status"]["disruptionsAllowed"] == 1
    it.delete(pod_key("default", "a"))
    assert it.get(key)["status"]["disruptionsAllowed"] == 0


def test_events_are_kept_for_an_hour() -> None:
    it = SteppedCluster()
    it.create_node("n")
    it.create_pod("early")
    it.after(60)
    it.create_pod("late")
    it.clock.t += expiry.KEPT - 30
    it.settle()
    assert [event["involvedObject"]["name"] for event in it.store.scan("", "Event")] == ["late"]


def test_there_are_no_more_than_so_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "MOST", 10)
    it = SteppedCluster()
    it.create_node("n", "100")
    for i in range(30):
        it.clock.t += 1
        it.create_pod(f"p{i}", "10m")
    left = [event["involvedObject"]["name"] for event in it.store.scan("", "Event")]
    assert len(left) <= 10
    assert "p29" in left


def test_a_restart_keeps_all_and_loses_no_time(tmp_path: Path) -> None:
    clock = HandClock()
    it = SteppedCluster(open_store(tmp_path), clock)
    it.create_node("n", "2")
    ends = it.create_pod("ends", annotations={"sim.holdfast.io/runs-for": "10s"})
    stays, waits = it.create_pod("stays"), it.create_pod("waits")
    it.after(4)
    before = it.get(stays)
    it.store.close()
    clock.t += 3
    it = SteppedCluster(open_store(tmp_path), clock)
    assert it.get(stays) == before
    assert (it.phase(ends), it.placed(waits)) == ("Running", "")
    it.after(3)
    assert it.phase(ends) == "Succeeded"
    it.after(2)
    assert it.placed(waits) == "n"
    it.store.close()


def test_a_pod_that_was_stopping_when_the_cluster_went_down_stops(tmp_path: Path) -> None:
    it = SteppedCluster(open_store(tmp_path))
    it.create_node("n")
    pod = it.create_pod("p", annotations={"sim.holdfast.io/stops-in": "20s"})
    stopping = {"deletionTimestamp": it.clock.stamp(30), "deletionGracePeriodSeconds": 30}
    it.update(pod, metadata=stopping)
    it.store.close()
    it = SteppedCluster(open_store(tmp_path), it.clock)
    it.after(20)
    assert pod not in it.store
    it.store.close()


def test_a_pod_of_before_a_restart_keeps_its_address_to_itself() -> None:
    first = SteppedCluster()
    first.create_node("n")
    addresses = [first.get(first.create_pod(f"p{i}"))["status"]["podIP"] for i in range(3)]
    second = SteppedCluster(first.store, first.clock)
    addresses.append(second.get(second.create_pod("after"))["status"]["podIP"])
    assert len(set(addresses)) == 4


def test_names_of_events_are_not_taken_again_after_a_restart() -> None:
    first = SteppedCluster()
    event = Emit(ObjectRef("Pod", "default", "p", "u"), "Warning", "FailedScheduling", "no capacity")
    first.cluster.world.recorder.emit(event, "x")
    second = SteppedCluster(first.store, first.clock)
    for _ in range(2):
        second.cluster.world.recorder.emit(event, "x")
    events = list(second.cluster.world.objects.scan("", "Event"))
    assert sorted(each["count"] for each in events) == [1, 2]


def test_events_that_are_gone_are_forgotten() -> None:
    it = SteppedCluster()
    recorder, objects = it.cluster.world.recorder, it.cluster.world.objects
    about = ObjectRef("Pod", "default", "p", "u")
    for number in range(10):
        event = Emit(about, "Warning", "FailedScheduling", f"no capacity {number}")
        for _ in range(3):
            recorder.emit(event, "x")
    assert [each["count"] for each in objects.scan("", "Event")] == [3] * 10
    before = len(recorder)
    for each in objects.scan("", "Event"):
        it.delete(Key("", "Event", "default", each["metadata"]["name"]))
    assert (before, len(recorder)) == (10, 0)
    recorder.emit(event, "x")
    assert [each["count"] for each in objects.scan("", "Event")] == [1]
