"""Figures about devices by claim, as Prometheus reads them."""

from harness.claim_objects import device, device_class, generated, resource_slice
from harness.objects import Raw, node, pod
from metrics.test_reservation_metrics import Measured
from scheduler.managers.claims.test_held_devices import put, reserved

CREATED = "dynamic_resource_allocation_resourceclaim_creates_total"
OF_RESERVATION = 'owner_api_group="scheduling.koordinator.sh",owner_api_kind="Reservation"'


def test_devices_that_reservations_hold_are_counted() -> None:
    world = Measured(*reserved(allocateOnce=False))
    devices = "holdfast_reservation_devices"
    free = 'driver="gpu.example.com",name="r",state="free"'
    used = 'driver="gpu.example.com",name="r",state="in_use"'
    assert world.figures(devices) == {free: 2}
    put(world, "p")
    assert world.figures(devices) == {free: 1, used: 1}
    assert world.figures(CREATED) == {f'admin_access="false",{OF_RESERVATION},status="success"': 1}
    world.delete("Reservation", "r")
    assert world.figures(devices) == {}


def test_refused_claims_and_reservations_without_devices_are_counted() -> None:
    world = Measured(*reserved(allocateOnce=False))
    assert world.figures("holdfast_reservations_without_devices") == {"": 0}
    world.claim_refusal = "no"
    (name,) = [name for kind, name in world.objects if kind == "ResourceClaim"]
    world.delete("ResourceClaim", name)
    assert world.figures("holdfast_reservations_without_devices") == {"": 1}
    assert world.figures("holdfast_reservation_claim_write_failures_total") == {"": 1}
    assert world.figures(CREATED)[f'admin_access="false",{OF_RESERVATION},status="failure"'] == 1
    world.claim_refusal = ""
    world.wait(5)
    assert world.figures("holdfast_reservations_without_devices") == {"": 0}


def test_claims_for_extended_resources_are_counted() -> None:
    world = Measured(device_class(extendedResourceName="example.com/gpu"), node("n1"))
    world.put(resource_slice("n1", 1), pod("p", requests={"example.com/gpu": 1}))
    assert world.node_of("p") == "n1"
    labels = 'admin_access="false",owner_api_group="",owner_api_kind="Pod",status="success"'
    assert world.figures(CREATED) == {labels: 1}


def test_waits_for_binding_conditions_have_kube_schedulers_names() -> None:
    conditions: Raw = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    devices = [device("gpu-0", bindsToNode=True, **conditions)]
    world = Measured(device_class(), node("n1"), resource_slice("n1", devices))
    made, its_claim = generated("p")
    world.put(its_claim, made)
    world.wait(30)
    name = "scheduler_dra_bindingconditions_allocations_total"
    assert world.figures(name) == {}
    result = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    said = {"type": "Attached", "status": "True", "reason": "Driver", "message": ""}
    world.edit("ResourceClaim", "p-gpu", status__devices=[{**result, "conditions": [said]}])
    assert world.node_of("p") == "n1"
    labels = 'driver="gpu.example.com",profile="default-scheduler",status="success"'
    assert world.figures(name) == {labels: 1}
    waited = world.figures("scheduler_dra_bindingconditions_wait_duration_seconds_sum")
    assert waited == {labels: 30}
