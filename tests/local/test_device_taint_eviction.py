"""Pods are evicted from devices with NoExecute taints."""

from __future__ import annotations

from typing import Any

import pytest

from harness.embedded_cluster import SteppedCluster
from holdfast.local.claim_references import claim_key
from holdfast.local.store import Key, Raw

API = "resource.k8s.io/v1"
SLICE = Key("resource.k8s.io", "ResourceSlice", "", "n-gpus")
RULE = Key("resource.k8s.io", "DeviceTaintRule", "", "broken")
EVICTS = {"key": "d.io/broken", "effect": "NoExecute"}


def slice_of(*taints: Raw, generation: int = 1, name: str = "n-gpus") -> Raw:
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "d.io",
            "nodeName": "n",
            "pool": {"name": "n", "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "taints": list(taints)}, {"name": "gpu-1"}],
        },
    }


def cluster(*taints: Raw, tolerations: list[Raw] | None = None) -> tuple[SteppedCluster, Key]:
    """A node with a device that a pod uses."""
    it = SteppedCluster()
    it.create_node("n")
    it.create(slice_of(*taints))
    result: Raw = {"request": "gpu", "driver": "d.io", "pool": "n", "device": "gpu-0"}
    if tolerations:
        result["tolerations"] = tolerations
    it.create(
        {
            "apiVersion": API,
            "kind": "ResourceClaim",
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "g"}}]}},
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
    )
    entry = {"name": "gpu", "resourceClaimName": "c"}
    key = it.create_pod("p", schedulerName="mine", resourceClaims=[entry], nodeName="n")
    return it, key


def taint(it: SteppedCluster, *taints: Raw) -> None:
    it.update(SLICE, spec=slice_of(*taints)["spec"])


def rule(it: SteppedCluster, effect: str = "NoExecute", **selector: str) -> None:
    taint = {"key": "d.io/broken", "effect": effect, "timeAdded": it.clock.stamp()}
    it.create(
        {
            "apiVersion": API,
            "kind": "DeviceTaintRule",
            "metadata": {"name": RULE.name, "generation": 1},
            "spec": {"deviceSelector": selector, "taint": taint},
            "status": {},
        }
    )


def progress(it: SteppedCluster) -> tuple[str, str, str]:
    (condition,) = it.get(RULE)["status"]["conditions"]
    return condition["status"], condition["reason"], condition["message"]


def tolerating(**fields: Any) -> list[Raw]:
    return [{"key": "d.io/broken", "operator": "Exists", "effect": "NoExecute", **fields}]


def test_a_taint_of_a_slice_evicts_the_pod() -> None:
    it, key = cluster()
    assert it.phase(key) == "Running"
    taint(it, {**EVICTS, "effect": "NoSchedule"})
    assert it.phase(key) == "Running"
    taint(it, EVICTS)
    assert key not in it.store
    events = [(event["reason"], event["message"]) for event in it.store.scan("", "Event")]
    assert events == [("DeviceTaintManagerEviction", "Marking for deletion")]
    # Nobody uses the claim any more; only who has the finalizer of schedulers is deallocated.
    assert it.get(claim_key("default", "c"))["status"].get("reservedFor") is None


def test_a_taint_that_is_there_already_evicts_a_new_pod() -> None:
    it, key = cluster(EVICTS)
    assert key not in it.store


def test_a_toleration_without_seconds_is_for_ever() -> None:
    it, key = cluster(EVICTS, tolerations=tolerating())
    it.after(3)
    assert it.phase(key) == "Running"


def test_toleration_seconds_count_from_the_taint() -> None:
    it, key = cluster(tolerations=[*tolerating(tolerationSeconds=9), *tolerating(tolerationSeconds=5)])
    added = it.clock.stamp()
    it.after(2)
    taint(it, {**EVICTS, "timeAdded": added})
    it.after(2)
    assert it.phase(key) == "Running"
    it.after(1)
    assert key not in it.store


def test_an_eviction_is_cancelled_with_the_taint() -> None:
    it, key = cluster(tolerations=tolerating(tolerationSeconds=5))
    taint(it, {**EVICTS, "timeAdded": it.clock.stamp()})
    it.after(2)
    taint(it)
    it.after(5)
    assert it.phase(key) == "Running"
    assert [event["message"] for event in it.store.scan("", "Event")] == ["Cancelling deletion"]


def test_a_slice_of_an_older_generation_does_not_count() -> None:
    it, key = cluster()
    it.create(slice_of(generation=2, name="newer"))
    taint(it, EVICTS)
    assert it.phase(key) == "Running"
    it.delete(SLICE._replace(name="newer"))
    taint(it, EVICTS, {**EVICTS, "key": "d.io/other"})
    assert key not in it.store


@pytest.mark.parametrize(
    ("selector", "evicted"),
    [
        ({"driver": "d.io"}, True),
        ({"driver": "d.io", "pool": "n", "device": "gpu-0"}, True),
        ({}, True),
        ({"device": "gpu-1"}, False),
        ({"pool": "m"}, False),
        ({"driver": "e.io"}, False),
    ],
)
def test_a_rule_evicts_pods_from_the_devices_it_selects(
    selector: dict[str, str], evicted: bool
) -> None:
    it, key = cluster()
    rule(it, **selector)
    assert (key not in it.store) is evicted
    if evicted:
        assert progress(it) == ("False", "Completed", "1 pod evicted since starting the controller.")
    else:
        assert progress(it) == ("False", "NotStarted", "")


def test_a_rule_reports_pods_that_are_to_be_evicted() -> None:
    it, key = cluster(tolerations=tolerating(tolerationSeconds=5))
    rule(it, driver="d.io")
    expected = ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")
    assert progress(it) == expected
    it.after(5)
    assert key not in it.store
    assert progress(it)[1] == "Completed"


def test_a_rule_without_effect_reports_what_it_would_do() -> None:
    it, key = cluster()
    rule(it, "None", pool="n")
    assert it.phase(key) == "Running"
    status, reason, message = progress(it)
    assert (status, reason) == ("False", "NoEffect")
    assert message.startswith(
        "2 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 "
        "namespace if the effect was NoExecute."
    )
    spec = it.get(RULE)["spec"]
    it.update(RULE, spec={"taint": {**spec["taint"], "effect": "NoSchedule"}})
    expected = ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.")
    assert progress(it) == expected


def test_a_pod_of_another_claim_stays() -> None:
    it, _ = cluster()
    other = it.create_pod("other")
    taint(it, EVICTS)
    assert it.phase(other) == "Running"
