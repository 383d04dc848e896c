"""Devices that DeviceTaintRules taint: the rule is named, and that the advice is true."""

from __future__ import annotations

import pytest

from explanation.test_claim_situations import BROKEN, GPU, N1, N2, used, wants
from explanation.test_situations import Row, check, full
from harness.claim_objects import DRIVER, gpus, request, resource_slice
from harness.objects import Raw

MAINTENANCE = {"key": "maintenance", "effect": "NoExecute"}


def rule(name: str, taint: Raw, **selector: str) -> Raw:
    spec: Raw = {"taint": taint}
    if selector:
        spec["deviceSelector"] = selector
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name, "uid": name},
        "spec": spec,
    }


def named(taint: str, name: str, selects: str) -> str:
    return f"the taint {taint} of devices comes from DeviceTaintRule {name}, which selects {selects}"


SITUATIONS: dict[str, Row] = {
    "a rule taints a pool": Row(
        [N1, GPU, resource_slice("n1", 2), rule("repair", BROKEN, driver=DRIVER, pool="n1"), *wants()],
        [
            "n1: of 2 devices for request r: 2 tainted broken=yes:NoSchedule",
            named("broken=yes:NoSchedule", "repair", f"driver {DRIVER}, pool n1"),
        ],
        ["Tolerate", "DeleteTaintRule"],
    ),
    "a rule without a selector": Row(
        [N1, GPU, resource_slice("n1", 1), rule("all", MAINTENANCE), *wants()],
        [named("maintenance:NoExecute", "all", "all devices")],
        ["Tolerate", "DeleteTaintRule"],
    ),
    "two rules on one device": Row(
        [
            N1,
            GPU,
            resource_slice("n1", 1),
            rule("a", BROKEN, device="gpu-0"),
            rule("b", MAINTENANCE, driver=DRIVER),
            *wants(),
        ],
        [
            named("broken=yes:NoSchedule", "a", "device gpu-0"),
            named("maintenance:NoExecute", "b", f"driver {DRIVER}"),
        ],
        ["Tolerate", "DeleteTaintRule"],
    ),
    "two rules with one taint": Row(
        [N1, GPU, resource_slice("n1", 1), rule("a", BROKEN), rule("b", BROKEN), *wants()],
        [named("broken=yes:NoSchedule", "b", "all devices")],
        ["Tolerate", "DeleteTaintRule"],
    ),
    "a rule, and the driver has published the taint too": Row(
        [N1, GPU, resource_slice("n1", gpus(1, taints=[BROKEN])), rule("a", BROKEN), *wants()],
        ["1 tainted broken=yes:NoSchedule"],
        ["Tolerate"],
    ),
    "a rule whose deletion frees too few devices": Row(
        [
            N1,
            GPU,
            resource_slice("n1", 2),
            rule("a", BROKEN, device="gpu-0"),
            *used("theirs", "n1", "gpu-1", by="x"),
            *wants(request("r", 2)),
        ],
        ["1 tainted broken=yes:NoSchedule, 1 in use by default/theirs"],
        ["Tolerate"],
    ),
    "a rule of another node's devices": Row(
        [
            N1,
            N2,
            GPU,
            resource_slice("n1", 1),
            resource_slice("n2", 1),
            rule("a", BROKEN, pool="n2"),
            full("x", "8", "n1"),
            *wants(),
        ],
        [named("broken=yes:NoSchedule", "a", "pool n2")],
        ["Tolerate", "DeleteTaintRule"],
    ),
    "a rule without effect": Row(
        [
            N1,
            GPU,
            resource_slice("n1", 1),
            rule("watch", {"key": "watch", "effect": "None"}),
            *used("theirs", "n1", "gpu-0", by="x"),
            *wants(),
        ],
        ["1 in use by default/theirs (pod x)"],
        ["EndPods"],
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    check(SITUATIONS[name])


@pytest.mark.parametrize(
    "name", ["a rule, and the driver has published the taint too", "a rule without effect"]
)
def test_a_rule_that_is_not_in_the_way_is_not_named(name: str) -> None:
    assert not any("DeviceTaintRule" in each for each in check(SITUATIONS[name]).details)


def test_what_is_advised() -> None:
    advice = check(SITUATIONS["two rules on one device"]).advice
    assert advice[-1].text == (
        "delete DeviceTaintRules a and b, once the devices that they taint may be used again; "
        "then it fits n1"
    )
    assert [each["operation"] for each in advice[-1].change["objects"]] == ["delete", "delete"]
