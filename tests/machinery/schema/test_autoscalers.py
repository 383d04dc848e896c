"""HorizontalPodAutoscalers of version v1, stored as v2."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.machinery.schema.autoscalers import BEHAVIOR, METRICS, to_v1, to_v2

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
BASE = {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 5}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
}


def _v2(*metrics: dict[str, Any], **spec: Any) -> dict[str, Any]:
    given = {"metrics": list(metrics)} if metrics else {}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": {**BASE, **given, **spec},
    }


def test_the_cpu_target_is_a_field() -> None:
    old = to_v1(_v2(CPU))
    assert old["apiVersion"] == "autoscaling/v1"
    assert old["spec"] == {**BASE, "targetCPUUtilizationPercentage": 70}
    assert "annotations" not in old["metadata"]


@pytest.mark.parametrize(
    "metric",
    [
        {
            "type": "Resource",
            "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
        },
        {
            "type": "ContainerResource",
            "containerResource": {
                "name": "cpu",
                "container": "app",
                "target": {"type": "Utilization", "averageUtilization": 0},
            },
        },
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": "packets", "selector": {"matchLabels": {"a": "b"}}},
                "target": {"type": "AverageValue", "averageValue": "1k"},
            },
        },
        {
            "type": "Object",
            "object": {
                "describedObject": TARGET,
                "metric": {"name": "requests"},
                "target": {"type": "Value", "value": "10k"},
            },
        },
        {
            "type": "External",
            "external": {
                "metric": {"name": "queue"},
                "target": {"type": "AverageValue", "averageValue": "30"},
            },
        },
    ],
    ids=lambda metric: metric["type"],
)
def test_what_version_v1_lacks_survives_in_annotations(metric: dict[str, Any]) -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    for stored in (_v2(CPU, metric), _v2(metric, behavior=behavior), _v2()):
        assert to_v2(to_v1(stored)) == stored


def test_the_annotations_have_the_fields_of_version_v1() -> None:
    metric = {
        "type": "Pods",
        "pods": {
            "metric": {"name": "packets"},
            "target": {"type": "AverageValue", "averageValue": "1k"},
        },
    }
    annotations = to_v1(_v2(metric))["metadata"]["annotations"]
    text = '[{"pods":{"metricName":"packets","targetAverageValue":"1k"},"type":"Pods"}]'
    assert annotations == {METRICS: text}


@pytest.mark.parametrize("text", ["{", "[1", "null", '"x"', "[" * 5000])
def test_annotations_that_are_not_readable_stay(text: str) -> None:
    old = {
        **to_v1(_v2(CPU)),
        "metadata": {"name": "web", "annotations": {METRICS: text, BEHAVIOR: text}},
    }
    stored = to_v2(old)
    assert stored["metadata"]["annotations"] == {METRICS: text, BEHAVIOR: text}
    assert stored["spec"] == _v2(CPU)["spec"]


def test_the_status() -> None:
    current = {"resource": {"name": "cpu", "current": {"averageUtilization": 40}}, "type": "Resource"}
    stored = {
        **_v2(CPU),
        "status": {"currentMetrics": [current], "conditions": [], "currentReplicas": 2},
    }
    assert to_v1(stored)["status"] == {
        "currentReplicas": 2,
        "desiredReplicas": 0,
        "currentCPUUtilizationPercentage": 40,
    }
    assert to_v2(to_v1(stored))["status"] == {"currentReplicas": 2, "desiredReplicas": 0}
