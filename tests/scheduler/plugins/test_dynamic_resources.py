"""Pods with ResourceClaims: which nodes they fit, what is written, and who waits for what."""

from __future__ import annotations

from typing import Any

from harness.claim_objects import (
    DRIVER,
    allocation,
    claiming_pod,
    consumers_of,
    device,
    device_class,
    devices_of,
    first_available,
    generated,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import Raw, gang, node, pod, pod_group, reservation
from harness.world import World


def cluster(*nodes: str, devices: int = 2) -> list[Raw]:
    found = [device_class()]
    for name in nodes:
        found += [node(name), resource_slice(name, devices)]
    return found


def claim(world: World, name: str) -> Raw:
    return world.objects["ResourceClaim", name]


def test_a_generated_claim_gets_a_device_of_the_node_its_pod_is_bound_to() -> None:
    pod, its_claim = generated("p")
    world = World(node("n0"), *cluster("n1")).put(its_claim, pod)
    assert world.node_of("p") == "n1"
    found = claim(world, "p-gpu")
    assert devices_of(found) == ["n1/gpu-0"]
    assert consumers_of(found) == ["p"]
    assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert found["status"]["allocation"]["allocationTimestamp"] == "2026-01-01T00:00:00Z"


def test_no_device_is_given_twice() -> None:
    world = World(*cluster("n1"))
    for name in ("a", "b", "c"):
        pod, its_claim = generated(name)
        world.put(its_claim, pod)
    assert [world.node_of(name) for name in ("a", "b", "c")] == ["n1", "n1", ""]
    assert devices_of(claim(world, "a-gpu")) + devices_of(claim(world, "b-gpu")) == [
        "n1/gpu-0",
        "n1/gpu-1",
    ]
    assert world.message("c").startswith("0/1 nodes are available: 1 cannot allocate all claims.")


def test_replicas_are_of_one_class() -> None:
    world = World(*cluster("n1", devices=4))
    for name in ("a", "b"):
        pod, its_claim = generated(name, request(count=8))
        world.put(its_claim, pod)
    records = [world.scheduler.cluster.pods[f"pod-{name}"] for name in ("a", "b")]
    assert records[0].cls is records[1].cls


def test_devices_of_claims_that_others_wrote_are_in_use() -> None:
    theirs = resource_claim("theirs", allocation=allocation("n1", "gpu-0", "gpu-1"))
    pod, its_claim = generated("p")
    world = World(*cluster("n1"), theirs).put(its_claim, pod)
    assert world.node_of("p") == ""
    world.edit("ResourceClaim", "theirs", status={}).wait(30)
    assert world.node_of("p") == "n1"


def test_a_pod_waits_until_its_claim_is_there() -> None:
    world = World(*cluster("n1")).put(claiming_pod("p", "shared"))
    assert (world.node_of("p"), world.message("p")) == ("", "")
    assert world.scheduler.queue.place("pod-p") == "gated"
    world.put(resource_claim("shared"))
    assert world.node_of("p") == "n1"


def test_a_pod_waits_until_its_claim_is_generated() -> None:
    world = World(*cluster("n1")).put(claiming_pod("p", templates={"gpu": None}))
    assert world.scheduler.queue.place("pod-p") == "gated"
    pod, its_claim = generated("p")
    world.put(its_claim)
    assert world.node_of("p") == ""
    world.put(pod)
    assert world.node_of("p") == "n1"


def test_a_pod_does_not_use_the_claim_of_another() -> None:
    world = World(*cluster("n1"), resource_claim("p-gpu", owner="other"))
    world.put(generated("p")[0])
    assert world.node_of("p") == ""


def test_a_claim_that_is_being_deleted_is_not_used() -> None:
    deleted = resource_claim("shared", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    world = World(*cluster("n1"), deleted).put(claiming_pod("p", "shared"))
    assert world.node_of("p") == ""


def test_no_claim_is_needed_where_the_status_names_none() -> None:
    pod = claiming_pod("p", templates={"gpu": None})
    pod["status"] = {"phase": "Pending", "resourceClaimStatuses": [{"name": "gpu"}]}
    world = World(node("n1")).put(pod)
    assert world.node_of("p") == "n1"


def test_a_class_that_does_not_exist_is_named() -> None:
    pod, its_claim = generated("p", request(of="tpu"))
    world = World(*cluster("n1")).put(its_claim, pod)
    assert "request r: device class tpu does not exist" in world.message("p")
    world.put(device_class("tpu"))
    assert world.wait(30).node_of("p") == "n1"


def test_pods_that_share_a_claim_are_bound_where_it_is_allocated() -> None:
    world = World(*cluster("n1", "n2"), resource_claim("shared"))
    world.put(claiming_pod("a", "shared"), claiming_pod("b", "shared"))
    assert world.node_of("a") == world.node_of("b") != ""
    assert consumers_of(claim(world, "shared")) == ["a", "b"]


def test_an_allocated_claim_restricts_nodes() -> None:
    shared = resource_claim("shared", allocation=allocation("n2", "gpu-0"), reserved_for=["x"])
    world = World(*cluster("n1", "n2"), shared).put(claiming_pod("p", "shared"))
    assert world.node_of("p") == "n2"
    world.put(claiming_pod("q", "shared", nodeSelector={"kubernetes.io/hostname": "n1"}))
    assert "1 resourceclaim not available on the node" in world.message("q")
    assert devices_of(claim(world, "shared")) == ["n2/gpu-0"]


def test_an_allocation_without_a_time_is_not_changed() -> None:
    given = allocation("n1", "gpu-0")
    world = World(*cluster("n1"), resource_claim("shared", allocation=given))
    world.put(claiming_pod("p", "shared"))
    assert world.node_of("p") == "n1"
    # The server accepts no change of an allocation.
    assert claim(world, "shared")["status"]["allocation"] == given


def test_an_unused_claim_is_deallocated_where_it_keeps_its_pod_from_nodes() -> None:
    shared = resource_claim("shared", allocation=allocation("n2", "gpu-0"))
    world = World(*cluster("n1", "n2"), shared)
    world.put(claiming_pod("p", "shared", nodeSelector={"kubernetes.io/hostname": "n1"}))
    said = [event.message for event in world.events if event.reason == "FailedScheduling"]
    assert said == [
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 resourceclaim not available on the node. deallocation of ResourceClaim completed, "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    ]
    assert world.wait(30).node_of("p") == "n1"
    assert devices_of(claim(world, "shared")) == ["n1/gpu-0"]


def test_a_claim_is_deallocated_once_nobody_else_uses_it() -> None:
    shared = resource_claim("shared", allocation=allocation("n2", "gpu-0"), reserved_for=["x"])
    world = World(*cluster("n1", "n2"), shared)
    world.put(claiming_pod("p", "shared", nodeSelector={"kubernetes.io/hostname": "n1"})).wait(30)
    assert (world.node_of("p"), devices_of(claim(world, "shared"))) == ("", ["n2/gpu-0"])
    world.edit("ResourceClaim", "shared", status__reservedFor=[]).wait(30)
    assert (world.node_of("p"), devices_of(claim(world, "shared"))) == ("n1", ["n1/gpu-0"])


def test_pods_that_share_a_claim_are_filtered_alike() -> None:
    """The answers for their class are computed before the claim is allocated and after, and not for
    each pod."""
    world = World(*cluster("n1", "n2"), resource_claim("shared"))
    pods = [claiming_pod(name, "shared") for name in "abcde"]
    versions = set()

    def note() -> None:
        cls = world.scheduler.cluster.pods["pod-a"].cls
        versions.add(world.scheduler.cluster.claims.version(cls))

    world.after_each = note
    world.put(*pods)
    assert len({world.node_of(name) for name in "abcde"}) == 1
    assert consumers_of(claim(world, "shared")) == [*"abcde"]
    assert len(versions) == 1


def test_an_unused_claim_is_kept_where_its_pod_lacks_devices_for_another() -> None:
    shared = resource_claim("shared", allocation=allocation("n1", "gpu-0"))
    more = resource_claim("more", request("r", 5))
    world = World(*cluster("n1", "n2"), shared, more)
    world.put(claiming_pod("p", "shared", "more"))
    assert "2 cannot allocate all claims" in world.message("p")
    assert "deallocation" not in world.message("p")
    assert devices_of(claim(world, "shared")) == ["n1/gpu-0"]


def test_the_bind_of_a_pod_fails_if_its_claim_was_allocated_elsewhere() -> None:
    pod, its_claim = generated("p")
    world = World(*cluster("n1", "n2"))
    world.put(its_claim)
    elsewhere = {"allocation": allocation("n2", "gpu-1")}
    decided: list[Any] = []

    def interfere() -> None:
        decided.append(1)

    world.scheduler.decision_listeners.append(
        lambda decisions, now: (
            world.objects["ResourceClaim", "p-gpu"].__setitem__("status", elsewhere)
            if decisions and not decided
            else None
        )
    )
    world.after_each = interfere
    world.put(pod)
    assert world.message("p") == "claim default/p-gpu got allocated elsewhere in the meantime"


def test_a_refused_bind_takes_its_reservation_back() -> None:
    pod, its_claim = generated("p")
    world = World(*cluster("n1"))
    world.refuse.add("pod-p")
    world.put(its_claim, pod)
    assert world.node_of("p") == ""
    assert consumers_of(claim(world, "p-gpu")) == []
    assert devices_of(claim(world, "p-gpu")) == ["n1/gpu-0"]
    assert world.wait(30).node_of("p") == "n1"
    assert consumers_of(claim(world, "p-gpu")) == ["p"]


def test_the_state_is_the_same_after_a_restart() -> None:
    world = World(*cluster("n1"))
    for name in ("a", "b", "c"):
        pod, its_claim = generated(name)
        world.put(its_claim, pod)
    world.restart()
    world.settle()
    assert world.node_of("c") == ""
    world.delete("Pod", "a").edit("ResourceClaim", "a-gpu", status={})
    assert world.wait(30).node_of("c") == "n1"
    assert devices_of(claim(world, "c-gpu")) == ["n1/gpu-0"]


def test_a_claim_of_the_same_name_again_is_another_claim() -> None:
    world = World(*cluster("n1"), resource_claim("shared")).put(claiming_pod("a", "shared"))
    again = resource_claim("shared", metadata={"uid": "again"})
    world.put(again)
    assert devices_of(claim(world, "shared")) == []
    pod, its_claim = generated("p", request(count=2))
    world.put(its_claim, pod)
    assert world.node_of("p") == "n1"


# Alternatives, selectors and constraints


def test_the_node_with_the_earlier_alternative_is_preferred() -> None:
    small, large = [device("gpu-0", memory="10Gi")], [device("gpu-0", memory="80Gi")]
    alternatives = first_available(
        "r",
        request("large", 1, f"device.capacity['{DRIVER}'].memory.isGreaterThan(quantity('40Gi'))"),
        request("small", 1),
    )
    world = World(device_class(), node("n1"), resource_slice("n1", small))
    world.put(node("n2"), resource_slice("n2", large))
    pod, its_claim = generated("p", alternatives)
    world.put(its_claim, pod)
    assert world.node_of("p") == "n2"
    pod, its_claim = generated("q", alternatives)
    world.put(its_claim, pod)
    assert world.node_of("q") == "n1"
    results = claim(world, "q-gpu")["status"]["allocation"]["devices"]["results"]
    assert [each["request"] for each in results] == ["r/small"]


def test_a_selector_that_fails_is_an_error_of_the_pod() -> None:
    pod, its_claim = generated("p", request("r", 1, f"device.attributes['{DRIVER}'].missing == 'x'"))
    world = World(device_class(), node("n1"), resource_slice("n1", [device("gpu-0", model="a")]))
    world.put(its_claim, pod)
    prefix = 'running "DynamicResources" filter plugin: claim default/p-gpu: selector #0'
    assert world.message("p").startswith(prefix)
    assert "CEL runtime error: no such key: missing" in world.message("p")


# Gangs


def group(size: int) -> Raw:
    made = pod_group("g", size)
    made["metadata"]["namespace"] = "default"
    return made


def test_a_gang_that_shares_a_claim_is_placed_whole() -> None:
    world = World(*cluster("n1", "n2"), resource_claim("shared"), group(3))
    members = gang("g", 3)
    for member in members:
        member["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
    world.put(*members)
    assert {world.node_of(f"g-{i}") for i in range(3)} == {"n1"}
    assert consumers_of(claim(world, "shared")) == ["g-0", "g-1", "g-2"]


def test_a_gang_without_enough_devices_takes_none() -> None:
    world = World(*cluster("n1", devices=2), group(3))
    for name in ("g-0", "g-1", "g-2"):
        pod, its_claim = generated(name, group="g")
        world.put(its_claim, pod)
    assert [world.node_of(f"g-{i}") for i in range(3)] == ["", "", ""]
    assert all(not devices_of(claim(world, f"g-{i}-gpu")) for i in range(3))
    pod, its_claim = generated("p", request(count=2))
    assert world.put(its_claim, pod).node_of("p") == "n1"


# Preemption


def test_a_pod_preempts_for_a_device() -> None:
    world = World(*cluster("n1", "n2", devices=1))
    for name, priority in (("low", 1), ("middle", 5)):
        pod, its_claim = generated(name, priority=priority)
        world.put(its_claim, pod)
    pod, its_claim = generated("high", priority=10)
    world.put(its_claim, pod)
    assert ("Pod", "low") not in world.objects
    assert ("Pod", "middle") in world.objects
    assert world.objects["Pod", "high"]["status"]["nominatedNodeName"] == "n1"
    # Another pod comes before the claim controller has deallocated the victim's claim.
    rival, rivals = generated("rival", priority=10)
    world.put(rivals, rival)
    assert ("Pod", "middle") in world.objects or world.node_of("rival") == ""
    world.edit("ResourceClaim", "low-gpu", status={}).wait(30)
    assert world.node_of("high") == "n1"


def test_a_pod_does_not_preempt_where_devices_would_not_be_free() -> None:
    shared = resource_claim("shared")
    world = World(*cluster("n1", devices=1), shared)
    world.put(claiming_pod("low", "shared", priority=1), claiming_pod("same", "shared", priority=10))
    pod, its_claim = generated("high", priority=10)
    world.put(its_claim, pod)
    assert ("Pod", "low") in world.objects
    assert world.node_of("high") == ""


# Extended resources


def served(*nodes: str) -> list[Raw]:
    found = [device_class(extendedResourceName="example.com/gpu")]
    for name in nodes:
        found += [node(name), resource_slice(name, 2)]
    return found


def extended_claims(world: World) -> list[Raw]:
    return [raw for (kind, _), raw in world.objects.items() if kind == "ResourceClaim"]


def test_a_claim_is_created_for_an_extended_resource() -> None:
    world = World(*served("n1")).put(pod("p", requests={"cpu": "1", "example.com/gpu": 2}))
    assert world.node_of("p") == "n1"
    (created,) = extended_claims(world)
    assert created["metadata"]["name"].startswith("p-extended-resources-")
    assert created["metadata"]["annotations"] == {
        "resource.kubernetes.io/extended-resource-claim": "true"
    }
    assert created["metadata"]["ownerReferences"][0]["uid"] == "pod-p"
    assert devices_of(created) == ["n1/gpu-0", "n1/gpu-1"]
    assert consumers_of(created) == ["p"]
    assert world.objects["Pod", "p"]["status"]["extendedResourceClaimStatus"] == {
        "requestMappings": [
            {
                "containerName": "main",
                "resourceName": "example.com/gpu",
                "requestName": "container-0-request-1",
            }
        ],
        "resourceClaimName": created["metadata"]["name"],
    }
    world.put(pod("q", requests={"example.com/gpu": 1}))
    assert "1 cannot allocate all claims" in world.message("q")
    world.restart()
    world.settle()
    assert world.node_of("q") == ""


def test_a_node_that_has_the_resource_itself_needs_no_claim() -> None:
    plugin = node("n0", allocatable={"example.com/gpu": "1"})
    world = World(*served(), plugin).put(pod("p", requests={"example.com/gpu": 1}))
    assert (world.node_of("p"), extended_claims(world)) == ("n0", [])
    world.put(pod("q", requests={"example.com/gpu": 1}))
    assert "1 Insufficient example.com/gpu" in world.message("q")


def test_a_reservation_does_not_hold_what_only_a_class_serves() -> None:
    world = World(*served("n1")).put(reservation("r", requests={"example.com/gpu": 1}))
    assert "Insufficient example.com/gpu" in world.condition("r", "Scheduled")["message"]


def test_the_implicit_resource_of_a_class() -> None:
    resource = "deviceclass.resource.kubernetes.io/gpu"
    world = World(device_class(), node("n1"), resource_slice("n1", 1))
    world.put(pod("p", requests={resource: 1}))
    assert world.node_of("p") == "n1"


def test_a_pod_waits_for_the_class_that_serves_its_resource() -> None:
    world = World(*served("n1")[1:]).put(pod("p", requests={"example.com/gpu": 1}))
    assert "1 Insufficient example.com/gpu" in world.message("p")
    world.put(device_class(extendedResourceName="example.com/gpu"))
    assert world.wait(30).node_of("p") == "n1"


def test_the_claim_goes_with_a_refused_bind() -> None:
    world = World(*served("n1"))
    world.refuse.add("pod-p")
    world.put(pod("p", requests={"example.com/gpu": 2}))
    assert (world.node_of("p"), extended_claims(world)) == ("", [])
    assert world.wait(30).node_of("p") == "n1"


def test_a_claim_left_from_an_earlier_attempt_is_deleted() -> None:
    left = resource_claim(
        "left", owner="p", allocation=allocation("n1", "gpu-0", "gpu-1"), reserved_for=["p"]
    )
    left["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    world = World(*served("n1"))
    world.put(pod("p", requests={"example.com/gpu": 2}, schedulingGates=[{"name": "g"}]))
    world.put(left)
    assert extended_claims(world) == []
    world.edit("Pod", "p", spec__schedulingGates=[])
    assert world.node_of("p") == "n1"


# Devices that must be ready before the pod is bound


def attached(*names: str) -> list[Raw]:
    """Devices that are attached to a node before they can be used."""
    conditions: Raw = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    return [device(name, bindsToNode=True, **conditions) for name in names]


def report(world: World, name: str, condition: str) -> None:
    """The driver reports a condition of the claim's device."""
    found = claim(world, name)
    result = found["status"]["allocation"]["devices"]["results"][0]
    said = {"type": condition, "status": "True", "reason": "Driver", "message": "says so"}
    status = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [said]}
    world.edit("ResourceClaim", name, status__devices=[status])


def waiting(world: World) -> World:
    pod, its_claim = generated("p")
    world.put(its_claim, pod)
    assert world.node_of("p") == ""
    assert consumers_of(claim(world, "p-gpu")) == ["p"]
    (event,) = [each for each in world.events if each.reason == "BindingConditionsPending"]
    assert event.message == "waiting for binding conditions for device on node n1"
    return world


def test_a_pod_is_bound_when_its_device_is_ready() -> None:
    world = waiting(World(device_class(), node("n1"), resource_slice("n1", attached("gpu-0"))))
    world.wait(30)
    assert world.node_of("p") == ""
    report(world, "p-gpu", "Attached")
    assert world.node_of("p") == "n1"


def test_other_devices_are_allocated_where_one_fails() -> None:
    world = waiting(World(device_class(), node("n1"), resource_slice("n1", attached("gpu-0"))))
    world.put(node("n2"), resource_slice("n2", 1)).delete("ResourceSlice", "n1-slice")
    report(world, "p-gpu", "Failed")
    said = [event.message for event in world.events if event.reason == "FailedScheduling"]
    assert said == ['device binding failed: claim=p-gpu, reason=Driver, message="says so"']
    assert world.wait(60).node_of("p") == "n2"
    assert devices_of(claim(world, "p-gpu")) == ["n2/gpu-0"]


def test_devices_that_are_not_ready_in_time_are_given_up() -> None:
    world = waiting(World(device_class(), node("n1"), resource_slice("n1", attached("gpu-0"))))
    world.wait(599)
    assert consumers_of(claim(world, "p-gpu")) == ["p"]
    world.delete("ResourceSlice", "n1-slice").wait(2)
    said = [event.message for event in world.events if event.reason == "FailedScheduling"]
    assert said[0] == "device binding timeout"
    world.put(node("n2"), resource_slice("n2", 1)).wait(60)
    assert world.node_of("p") == "n2"


def test_a_restart_while_a_pod_waits_for_its_device() -> None:
    world = waiting(World(device_class(), node("n1"), resource_slice("n1", attached("gpu-0"))))
    world.restart()
    world.settle()
    report(world, "p-gpu", "Attached")
    assert world.wait(30).node_of("p") == "n1"


# Nominated pods keep devices that are free already


def test_a_freed_device_is_kept_for_the_pod_that_preempted() -> None:
    world = World(*cluster("n1", devices=2))
    for name in ("low-1", "low-2"):
        pod, its_claim = generated(name, priority=1)
        world.put(its_claim, pod)
    world.graceful = True
    pod, its_claim = generated("high", request(count=2), priority=10)
    world.put(its_claim, pod)
    assert world.objects["Pod", "high"]["status"]["nominatedNodeName"] == "n1"
    world.delete("Pod", "low-1").edit("ResourceClaim", "low-1-gpu", status={})
    rival, rivals = generated("rival", priority=5)
    world.put(rivals, rival).wait(30)
    assert world.node_of("rival") == ""
    world.delete("Pod", "low-2").edit("ResourceClaim", "low-2-gpu", status={}).wait(30)
    assert (world.node_of("high"), world.node_of("rival")) == ("n1", "")


def test_a_claim_that_a_pod_names_twice_is_allocated_once() -> None:
    world = World(*cluster("n1")).put(resource_claim("shared"), claiming_pod("p", "shared", "shared"))
    assert world.node_of("p") == "n1"
    found = claim(world, "shared")
    assert (devices_of(found), consumers_of(found)) == (["n1/gpu-0"], ["p"])
    world.delete("Pod", "p")
    assert world.put(claiming_pod("q", "shared", "shared")).node_of("q") == "n1"


def _with_a_pool_being_updated(**broken: Any) -> World:
    """Two nodes, of which n1 has a pool that lacks a slice; `broken` are fields of n1."""
    incomplete = resource_slice("n1", 1)
    incomplete["spec"]["pool"]["resourceSliceCount"] = 2
    objects = [device_class(), node("n1", **broken), node("n2"), incomplete, resource_slice("n2", 1)]
    return World(*objects)


def test_a_pool_being_updated_is_an_error_only_where_other_filters_pass() -> None:
    everything = request(allocationMode="All")
    for where, expected in (({"kubernetes.io/hostname": "n2"}, "n2"), ({}, "n2")):
        pod, its_claim = generated("p", everything, nodeSelector=where)
        assert _with_a_pool_being_updated().put(its_claim, pod).node_of("p") == expected
    pod, its_claim = generated("p", everything, nodeSelector={"kubernetes.io/hostname": "n1"})
    world = _with_a_pool_being_updated().put(its_claim, pod)
    assert (world.node_of("p"), world.message("p")) == (
        "",
        'running "DynamicResources" filter plugin: claim default/p-gpu, request r: asks for all '
        f"devices, but resource pool {DRIVER}/n1 is currently being updated",
    )
    pod, its_claim = generated("p", everything, nodeSelector={"kubernetes.io/hostname": "n1"})
    world = _with_a_pool_being_updated(unschedulable=True).put(its_claim, pod)
    assert world.message("p").startswith("0/2 nodes are available: 1 node(s) didn't match")
