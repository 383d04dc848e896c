"""Claims, classes, slices and taint rules as typed values."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json, to_builtins

from holdfast.api import decode
from holdfast.api.errors import InvalidObject
from holdfast.api.pod import Pod
from holdfast.api.resource_claims import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    pod_claim_name,
)
from holdfast.api.resource_slices import (
    DeviceID,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    DeviceToleration,
    ResourceSlice,
)

API = "resource.k8s.io/v1"


def obj(kind: str, spec: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any) -> Any:
    raw = {"apiVersion": API, "kind": kind, "metadata": {"name": "a", **metadata}, "spec": spec}
    return decode(raw if status is None else {**raw, "status": status})


def claim(
    devices: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any
) -> ResourceClaim:
    found = obj("ResourceClaim", {"devices": devices}, status, namespace="ns", **metadata)
    assert isinstance(found, ResourceClaim)
    return found


def test_request_gets_the_defaults_of_the_api_server() -> None:
    one, alternatives = claim(
        {
            "requests": [
                {"name": "one", "exactly": {"deviceClassName": "gpu"}},
                {
                    "name": "any",
                    "firstAvailable": [
                        {"name": "all", "deviceClassName": "gpu", "allocationMode": "All"},
                        {"name": "three", "deviceClassName": "gpu", "count": 3},
                    ],
                },
            ]
        }
    ).spec.devices.requests
    assert one.exactly is not None
    assert (one.exactly.allocation_mode, one.exactly.count) == ("ExactCount", 1)
    assert not one.exactly.admin_access
    found = [(sub.name, sub.allocation_mode, sub.count) for sub in alternatives.first_available]
    assert found == [("all", "All", 0), ("three", "ExactCount", 3)]


def test_nulls_in_a_drivers_parameters_are_kept() -> None:
    parameters = {"sharing": None, "list": [1, 2.5, {"deep": None}], "text": "a"}
    config = [{"requests": ["r"], "opaque": {"driver": "d.io", "parameters": parameters}}]
    found = claim({"requests": [], "config": config}, creationTimestamp=None, labels=None)
    opaque = found.spec.devices.config[0].opaque
    assert opaque is not None
    assert opaque.parameters == parameters


def test_status_of_an_allocated_claim() -> None:
    found = claim(
        {"requests": []},
        {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "r/sub",
                            "driver": "d.io",
                            "pool": "p",
                            "device": "gpu-0",
                            "shareID": "5a2c",
                            "consumedCapacity": {"memory": "4Gi"},
                            "bindingConditions": ["Attached"],
                            "tolerations": [{"operator": "Exists", "tolerationSeconds": 30}],
                        }
                    ],
                    "config": [{"source": "FromClass", "opaque": {"driver": "d.io", "parameters": {}}}],
                },
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": []}]},
                "allocationTimestamp": "2026-01-01T00:00:00Z",
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}],
            "devices": [
                {
                    "driver": "d.io",
                    "pool": "p",
                    "device": "gpu-0",
                    "shareID": "5a2c",
                    "conditions": [{"type": "Attached", "status": "True"}],
                    "data": {"any": None},
                    "networkData": {"ips": ["10.0.0.1/24"]},
                }
            ],
        },
    )
    allocation = found.status.allocation
    assert allocation is not None
    (result,) = allocation.devices.results
    assert result.device_id == found.status.devices[0].device_id == DeviceID("d.io", "p", "gpu-0")
    assert str(result.device_id) == "d.io/p/gpu-0"
    assert (result.share_id, result.consumed_capacity) == ("5a2c", {"memory": "4Gi"})
    assert allocation.devices.config[0].source == "FromClass"
    assert found.status.devices[0].data == {"any": None}
    pod = Pod()
    assert not found.is_reserved_for(pod)
    pod.metadata.uid = "1"
    assert found.is_reserved_for(pod)
    assert to_builtins(allocation)["devices"]["results"][0]["shareID"] == "5a2c"


def test_what_is_set_is_written_again() -> None:
    """Results of an allocation have copies of the tolerations and parameters of claims and classes."""
    given = [{"key": "a", "operator": "Equal", "value": "b"}, {"operator": "Exists"}]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    devices = {
        "requests": [{"name": "r", "exactly": {**exactly, "tolerations": given}}],
        "config": [{"opaque": {"driver": "d.io", "parameters": {"a": None, "b": 0}}}],
    }
    assert json.decode(json.encode(claim(devices).spec.devices)) == devices


def test_template_and_class() -> None:
    template = obj(
        "ResourceClaimTemplate",
        {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [{"name": "r"}]}}},
    )
    assert isinstance(template, ResourceClaimTemplate)
    assert template.spec.metadata.labels == {"a": "b"}
    assert template.spec.spec.devices.requests[0].name == "r"
    found = obj(
        "DeviceClass",
        {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "example.com/gpu"},
    )
    assert isinstance(found, DeviceClass)
    assert found.spec.selectors[0].cel is not None
    assert found.spec.extended_resource_name == "example.com/gpu"


def test_slice_with_every_kind_of_device_field() -> None:
    found = obj(
        "ResourceSlice",
        {
            "driver": "d.io",
            "pool": {"name": "p", "generation": 2, "resourceSliceCount": 1},
            "perDeviceNodeSelection": True,
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {
                        "model": {"string": "a"},
                        "index": {"int": 0},
                        "ecc": {"bool": False},
                        "driver": {"version": "1.2.3"},
                    },
                    "capacity": {
                        "memory": {
                            "value": "80Gi",
                            "requestPolicy": {
                                "default": "1Gi",
                                "validRange": {"min": "1Gi", "max": 8, "step": "1Gi"},
                            },
                        }
                    },
                    "consumesCounters": [{"counterSet": "c", "counters": {"slices": {"value": 1}}}],
                    "nodeName": "n1",
                    "taints": [{"key": "k", "effect": "NoExecute"}],
                    "bindsToNode": True,
                    "bindingConditions": ["Attached"],
                    "bindingFailureConditions": ["Broken"],
                    "allowMultipleAllocations": True,
                }
            ],
        },
    )
    assert isinstance(found, ResourceSlice)
    (device,) = found.spec.devices
    assert device.attributes["index"].int_value == 0
    assert device.attributes["ecc"].bool_value is False
    assert device.attributes["model"].string_value == "a"
    assert device.attributes["driver"].version_value == "1.2.3"
    policy = device.capacity["memory"].request_policy
    assert policy is not None and policy.valid_range is not None
    assert policy.valid_range.max == 8
    assert device.consumes_counters[0].counters["slices"].value == 1
    assert device.allow_multiple_allocations and device.binds_to_node


def test_error_names_the_field() -> None:
    with pytest.raises(InvalidObject, match=r"spec\.devices\[0\]\.attributes\[index\]\.int: expected"):
        obj("ResourceSlice", {"devices": [{"name": "x", "attributes": {"index": {"int": "0"}}}]})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (DeviceToleration(key="k", value="v"), True),
        (DeviceToleration(key="k", operator="", value="v"), True),
        (DeviceToleration(key="k", value="w"), False),
        (DeviceToleration(key="other", operator="Exists"), False),
        (DeviceToleration(operator="Exists"), True),
        (DeviceToleration(operator="Exists", effect="NoSchedule"), False),
        (DeviceToleration(key="k", operator="Exists", effect="NoExecute"), True),
        (DeviceToleration(key="k", operator="Like", value="v"), False),
    ],
)
def test_toleration(toleration: DeviceToleration, tolerated: bool) -> None:
    assert toleration.tolerates(DeviceTaint(key="k", value="v", effect="NoExecute")) is tolerated


def test_taint_rule_selects_by_what_it_names() -> None:
    rule = obj(
        "DeviceTaintRule",
        {"deviceSelector": {"driver": "d.io"}, "taint": {"key": "k", "effect": "NoSchedule"}},
    )
    assert isinstance(rule, DeviceTaintRule)
    selector = rule.spec.device_selector
    assert selector is not None
    assert selector.selects(DeviceID("d.io", "p", "x"))
    assert not selector.selects(DeviceID("e.io", "p", "x"))
    assert DeviceTaintSelector().selects(DeviceID("d.io", "p", "x"))
    assert not DeviceTaintSelector(pool="p", device="y").selects(DeviceID("d.io", "p", "x"))


def test_claims_of_a_pod() -> None:
    pod = decode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "ns", "uid": "1"},
            "spec": {
                "resourceClaims": [
                    {"name": "mine", "resourceClaimName": "shared"},
                    {"name": "made", "resourceClaimTemplateName": "t"},
                    {"name": "none", "resourceClaimTemplateName": "t"},
                    {"name": "later", "resourceClaimTemplateName": "t"},
                ],
                "schedulingGroup": {"podGroupName": "g"},
                "containers": [
                    {"name": "c", "resources": {"claims": [{"name": "mine", "request": "r"}]}}
                ],
            },
            "status": {
                "resourceClaimStatuses": [
                    {"name": "made", "resourceClaimName": "p-made-x"},
                    {"name": "none"},
                ],
                "extendedResourceClaimStatus": {
                    "resourceClaimName": "e",
                    "requestMappings": [
                        {"containerName": "c", "resourceName": "x.io/gpu", "requestName": "r"}
                    ],
                },
            },
        }
    )
    assert isinstance(pod, Pod)
    assert [pod_claim_name(pod, entry) for entry in pod.spec.resource_claims] == [
        (True, "shared", False),
        (True, "p-made-x", True),
        (True, None, True),
        (False, None, True),
    ]
    assert pod.spec.containers[0].resources.claims[0].request == "r"
    assert pod.spec.scheduling_group is not None
    assert pod.status.extended_resource_claim_status is not None
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": True}
    assert claim({"requests": []}, ownerReferences=[owner]).is_generated_for(pod)
    assert not claim({"requests": []}, ownerReferences=[{**owner, "uid": "2"}]).is_generated_for(pod)
    assert not claim({"requests": []}).is_generated_for(pod)
