"""The objects of docs/production/multi-tenancy.md: Kubernetes accepts them, and the policy works.

The expressions are evaluated by the CEL library. `quantity` and `compareTo`, which the API server adds
to CEL, are given to it here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import cel
import kubernetes_validate
import pytest
import yaml

from deploy.chart import ROOT
from holdfast.api.quantity import parse

Raw = dict[str, Any]

PAGE = ROOT / "docs" / "production" / "multi-tenancy.md"


@cache
def objects() -> list[Raw]:
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [document for block in blocks for document in yaml.safe_load_all(block)]


def of_kind(kind: str) -> Raw:
    return next(each for each in objects() if each["kind"] == kind)


@pytest.mark.parametrize(
    "each", objects(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_kubernetes_accepts_it(each: Raw) -> None:
    kubernetes_validate.validate(each, "1.35", strict=True)


def reservation(**changes: Any) -> Raw:
    container = {"name": "main", "resources": {"requests": {"cpu": changes.pop("cpu", "4")}}}
    owner = {"controller": {"kind": "Job", "name": "train", "namespace": "research"}}
    spec = {
        "template": {
            "spec": {
                "containers": [container] * changes.pop("containers", 1),
                **changes.pop("pod", {}),
            }
        },
        "owners": [changes.pop("owner", owner)],
        "ttl": changes.pop("ttl", "8h"),
    }
    metadata = {"name": changes.pop("name", "research-friday"), **changes}
    return {"metadata": metadata, "spec": spec}


def rejections(item: Raw) -> list[str]:
    context = cel.Context({"object": item})
    context.add_function("quantity", lambda text: parse(text))
    context.add_function("compareTo", lambda one, other: (one > other) - (one < other))
    validations = of_kind("ValidatingAdmissionPolicy")["spec"]["validations"]
    return [
        each["message"] for each in validations if cel.evaluate(each["expression"], context) is not True
    ]


@pytest.mark.parametrize(
    "allowed",
    [
        {},
        {"cpu": "32"},
        {"cpu": "500m"},
        {"ttl": "24h"},
        {"ttl": "90m"},
        {"pod": {"initContainers": []}},
        {"pod": {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "32"}}}]}},
        {"pod": {"nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]}},
    ],
)
def test_the_policy_allows(allowed: Raw) -> None:
    assert not rejections(reservation(**allowed))


BIG: Raw = {"requests": {"cpu": "60"}}
SMALL: Raw = {"requests": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"pod": {"initContainers": [{"name": "i", "resources": BIG}]}}, "init containers included"),
        ({"pod": {"initContainers": [{"name": "i"}]}}, "init containers included"),
        (
            {"pod": {"initContainers": [{"name": "i", "resources": {"limits": {"cpu": "60"}}}]}},
            "init containers included",
        ),
        (
            {"pod": {"initContainers": [{"name": "i", "restartPolicy": "Always", "resources": SMALL}]}},
            "no sidecars",
        ),
        ({"pod": {"overhead": {"cpu": "60"}}}, "no overhead"),
        ({"pod": {"overhead": {}}}, "no overhead"),
        ({"pod": {"resources": BIG}}, "no pod-level resources"),
        ({"pod": {"resources": {"limits": {"cpu": "60"}}}}, "no pod-level resources"),
        ({"name": "friday"}, "the name must begin with research-"),
        ({"cpu": "33"}, "at most 32"),
        ({"containers": 2}, "exactly one container"),
        ({"ttl": "48h"}, "at most 24h"),
        ({"ttl": "0"}, "at most 24h"),
        ({"ttl": "0h"}, "at most 24h"),
        ({"owner": {"labelSelector": {"matchLabels": {"app": "web"}}}}, "every owner"),
        ({"owner": {"controller": {"kind": "Job", "name": "x", "namespace": "web"}}}, "every owner"),
        ({"owner": {"controller": {"kind": "Job", "name": "x"}}}, "every owner"),
        ({"labels": {"scheduling.koordinator.sh/can-preempt": "true"}}, "do not preempt"),
        ({"labels": {"holdfast.io/hold": "starvation"}}, "are the scheduler's"),
        ({"labels": {"holdfast.io/preemptor-uid": "u"}}, "are the scheduler's"),
    ],
    ids=str,
)
def test_the_policy_denies(item: Raw, message: str) -> None:
    [found] = rejections(reservation(**item))
    assert message in found


def test_the_binding_denies_with_this_policy() -> None:
    binding = of_kind("ValidatingAdmissionPolicyBinding")["spec"]
    assert binding["policyName"] == of_kind("ValidatingAdmissionPolicy")["metadata"]["name"]
    assert binding["validationActions"] == ["Deny"]
