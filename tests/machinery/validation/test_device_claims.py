"""Claims on devices, classes, slices and taint rules that are refused, and the words."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.machinery.schema import apply_defaults, read_object
from holdfast.machinery.schema.catalogue import Catalogue
from holdfast.machinery.validation.kinds import check_values
from realserver import device_requests as requests

CATALOGUE = Catalogue()
CLAIMS, CLASSES, SLICES = "resourceclaims", "deviceclasses", "resourceslices"
IMPLAUSIBLE = "must be the name of a request in the claim or the name of a request and a subrequest "


def complaints(plural: str, spec: dict[str, Any]) -> list[str]:
    type = CATALOGUE.resource("resource.k8s.io", "v1", plural)
    assert type is not None
    raw = {"apiVersion": type.api_version, "kind": type.kind, "metadata": {"name": "x"}, "spec": spec}
    read, problems = read_object(type, raw)
    assert not problems
    return [problem.text for problem in check_values(type, apply_defaults(type, read))]


@pytest.mark.parametrize(
    ("plural", "cases"),
    [(CLAIMS, requests.CLAIMS), (CLASSES, requests.CLASSES), (SLICES, requests.SLICES)],
)
def test_what_a_real_server_refuses_is_refused(plural: str, cases: dict[str, Any]) -> None:
    for name, spec in cases.items():
        assert complaints(plural, spec), name


def test_valid_objects() -> None:
    alternatives = [{"name": "s", "deviceClassName": "b", "allocationMode": "All"}]
    claim = requests.devices(
        requests.exactly(
            count=2,
            capacity={"requests": {"d.io/memory": "1Gi"}},
            tolerations=[{"key": "a", "value": "b"}, {"operator": "Exists", "effect": "NoExecute"}],
            **requests.selector('device.attributes["d.io"].model == "a"'),
        ),
        {"name": "any", "firstAvailable": alternatives},
        constraints=[
            {"requests": ["r", "any/s"], "matchAttribute": "d.io/numa"},
            {"distinctAttribute": "d.io/uuid"},
        ],
        config=[{"requests": ["any"], **requests.opaque()}],
    )
    assert complaints(CLAIMS, claim) == []
    assert complaints(CLASSES, {"extendedResourceName": "example.com/gpu"}) == []
    assert complaints(SLICES, SHARED) == []
    counters = [{"name": "c", "counters": {"slices": {"value": "7"}}}]
    assert complaints(SLICES, requests.sliced(devices=[], sharedCounters=counters)) == []


SHARED = requests.sliced(
    {
        "name": "d",
        "attributes": {"d.io/version": {"version": "1.2.3-rc.1+b"}, "numa": {"int": 0}},
        "capacity": {
            "memory": {
                "value": "80Gi",
                "requestPolicy": {
                    "default": "2Gi",
                    "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"},
                },
            },
            "cores": {"value": "8", "requestPolicy": {"default": "1", "validValues": ["1", "2"]}},
        },
        "allowMultipleAllocations": True,
        "bindingConditions": ["d.io/Attached"],
        "bindingFailureConditions": ["d.io/Failed"],
        "taints": [{"key": "d.io/broken", "effect": "None"}],
        "consumesCounters": [{"counterSet": "c", "counters": {"slices": {"value": "1"}}}],
        "nodeName": "n1",
    },
    allNodes=None,
    perDeviceNodeSelection=True,
)


def changed(**fields: Any) -> dict[str, Any]:
    (device,) = SHARED["devices"]
    return {**SHARED, "devices": [{**device, **fields}]}


def policy(**fields: Any) -> dict[str, Any]:
    given = {"default": "2", "validRange": {"min": "2"}, **fields}
    return changed(capacity={"cores": {"value": "8", "requestPolicy": given}})


DEVICE = "spec.devices[0]"
POLICY = f"{DEVICE}.capacity[cores].requestPolicy"
VALUES = f"{POLICY}.validValues"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            changed(allowMultipleAllocations=False, capacity={"m": {"value": 1, "requestPolicy": {}}}),
            [f"{DEVICE}.capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true"],
        ),
        (
            policy(default=None),
            [f"{POLICY}.default: Required value: required when validRange is defined"],
        ),
        (
            policy(validValues=["2"]),
            [
                f"{POLICY}: Forbidden: exactly one policy can be specified, cannot specify "
                '"validValues" and "validRange" at the same time'
            ],
        ),
        (
            policy(validRange={"max": "9", "min": "3"}),
            [
                f'{POLICY}.validRange.default: Invalid value: "2": default is less than min: 3',
                f'{POLICY}.validRange.max: Invalid value: "9": max is larger than capacity value: 8',
            ],
        ),
        (
            policy(validRange={"min": "1", "step": "2"}),
            [
                f'{POLICY}.validRange.step: Invalid value: "2": value is not a multiple of a given '
                "step (2) from (1)"
            ],
        ),
        (
            policy(validRange=None, validValues=["9", "1"]),
            [
                f'{VALUES}[1]: Invalid value: "1": values must be sorted in ascending order',
                f'{VALUES}[0]: Invalid value: "9": option is larger than capacity value: 8',
                f'{VALUES}: Invalid value: "2": default value is not valid according to '
                "the requestPolicy",
            ],
        ),
        (
            changed(nodeName=None),
            [
                f"{DEVICE}: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` "
                "is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            ],
        ),
        (
            {**changed(allNodes=True, nodeName=None), "perDeviceNodeSelection": None, "allNodes": True},
            [
                f"{DEVICE}: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be "
                "set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            ],
        ),
        (
            changed(bindingFailureConditions=["d.io/Attached"]),
            [
                f'{DEVICE}.bindingFailureConditions[0]: Invalid value: "d.io/Attached": '
                "bindingFailureConditions must not overlap with bindingConditions"
            ],
        ),
        (
            changed(bindingConditions=[]),
            [
                f"{DEVICE}.bindingConditions: Invalid value: null: bindingConditions are required to "
                "use bindingFailureConditions"
            ],
        ),
        (
            changed(taints=[{"key": "a", "effect": "PreferNoSchedule"}, {"key": "a"}]),
            [
                f'{DEVICE}.taints[0].effect: Unsupported value: "PreferNoSchedule": supported values: '
                '"NoExecute", "NoSchedule", "None"',
                f"{DEVICE}.taints[1].effect: Required value",
            ],
        ),
        (
            changed(consumesCounters=[{"counterSet": "", "counters": {}}]),
            [
                f"{DEVICE}.consumesCounters[0].counterSet: Required value",
                f"{DEVICE}.consumesCounters[0].counters: Required value",
            ],
        ),
        (
            {**SHARED, "sharedCounters": [{"name": "c", "counters": {"a": {"value": "1"}}}]},
            ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
        ),
        (
            {**changed(), "devices": [{**changed()["devices"][0], "name": f"d{i}"} for i in range(65)]},
            ["spec.devices: Too many: 65: must have at most 64 items"],
        ),
    ],
)
def test_slices(spec: dict[str, Any], expected: list[str]) -> None:
    assert complaints(SLICES, spec) == expected


def test_tolerations() -> None:
    given = [
        {"key": "a", "operator": "Exists", "value": "x"},
        {"operator": "In"},
        {"effect": "PreferNoSchedule"},
    ]
    path = "spec.devices.requests[0].exactly.tolerations"
    assert complaints(CLAIMS, requests.devices(requests.exactly(tolerations=given))) == [
        f'{path}[0].value: Invalid value: "x": must be empty for operator `Exists`',
        f'{path}[1].operator: Unsupported value: "In": supported values: "Equal", "Exists"',
        f'{path}[2].effect: Unsupported value: "PreferNoSchedule": supported values: "NoExecute", '
        '"NoSchedule", "None"',
    ]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ('device.driver == "a" && device.attributes["a.io"].index >= 3', ""),
        ("device.capacity['a.io'].memory.compareTo(quantity('1Gi')) >= 0", ""),
        ('cel.bind(a, device.attributes["a.io"], a.x == 1)', ""),
        ('device.attributes["a.io"].model in ["a", "b"]', ""),
        ('"x" in device.attributes || has(device.attributes["a.io"].b)', ""),
        ("device.driver ==", "compilation failed: ERROR: <input>:1:17: Syntax error: "),
        ("", "compilation failed: ERROR: <input>:1:1: Syntax error: "),
        ('["a"].exists(x, x == device.driver)', ""),
        ("(" * 5000 + "true", "expression recursion limit exceeded: 250"),
        ("[1].all(x, " * 800 + "true", "expression recursion limit exceeded: 250"),
        ("1 + 1", "must evaluate to bool or the unknown type, not int"),
        (
            "true &&\n devise.driver == 'a'",
            "compilation failed: ERROR: <input>:2:2: undeclared reference to 'devise' (in container '')"
            "\n |  devise.driver == 'a'\n | .^",
        ),
    ],
)
def test_expressions(expression: str, problem: str) -> None:
    found = complaints(CLASSES, requests.selector(expression))
    assert bool(found) is bool(problem)
    if problem:
        path = "spec.selectors[0].cel.expression"
        assert found[0].startswith(f"{path}: Invalid value: ")
        assert problem in found[0]


def test_taint_rules() -> None:
    selector = {"driver": "_", "pool": "", "device": "A"}
    found = complaints("devicetaintrules", {"deviceSelector": selector, "taint": {"key": ""}})
    fields = [each.partition(": ")[0] for each in found]
    assert fields == [
        "spec.deviceSelector.driver",
        "spec.deviceSelector.pool",
        "spec.deviceSelector.device",
        "spec.taint.key",
        "spec.taint.key",
        "spec.taint.effect",
    ]
