"""HorizontalPodAutoscalers in version v1, which are stored as v2.

Version v1 has a field for the CPU target only. Other metrics and the behavior are in annotations there,
as with the API server, so that a v1 client which writes back what it read loses nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.api.raw_objects import Raw

V1, V2 = "autoscaling/v1", "autoscaling/v2"
METRICS = "autoscaling.alpha.kubernetes.io/metrics"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"

_TARGET, _CPU_TARGET = "target", "targetCPUUtilizationPercentage"
_CURRENT_CPU = "currentCPUUtilizationPercentage"
_V2_STATUS = ("currentMetrics", "conditions")

_SOURCES: dict[str, tuple[tuple[str, str], ...]] = {
    "resource": (
        ("name", "name"),
        ("targetAverageUtilization", "target.averageUtilization"),
        ("targetAverageValue", "target.averageValue"),
    ),
    "containerResource": (
        ("name", "name"),
        ("container", "container"),
        ("targetAverageUtilization", "target.averageUtilization"),
        ("targetAverageValue", "target.averageValue"),
    ),
    "pods": (
        ("metricName", "metric.name"),
        ("selector", "metric.selector"),
        ("targetAverageValue", "target.averageValue"),
    ),
    "object": (
        ("target", "describedObject"),
        ("metricName", "metric.name"),
        ("selector", "metric.selector"),
        ("targetValue", "target.value"),
        ("averageValue", "target.averageValue"),
    ),
    "external": (
        ("metricName", "metric.name"),
        ("metricSelector", "metric.selector"),
        ("targetValue", "target.value"),
        ("targetAverageValue", "target.averageValue"),
    ),
}
"""By source of a metric: each field of v1, and the path of the same value in v2."""
_TYPES = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}


def to_v1(raw: Raw) -> Raw:
    """A stored autoscaler in version v1."""
    spec = dict(raw.get("spec") or {})
    metrics, behavior = spec.pop("metrics", None) or (), spec.pop("behavior", None)
    others = []
    for metric in metrics:
        if _is_cpu(metric):
            spec[_CPU_TARGET] = metric["resource"][_TARGET]["averageUtilization"]
        else:
            others.append(_metric_to_v1(metric))
    added: Raw = {}
    if others:
        added[METRICS] = _text(others)
    if behavior:
        added[BEHAVIOR] = _text(behavior)
    converted = {**raw, "apiVersion": V1, "spec": spec}
    if added:
        metadata = raw.get("metadata") or {}
        annotations = {**(metadata.get("annotations") or {}), **added}
        converted["metadata"] = {**metadata, "annotations": annotations}
    if "status" in raw:
        converted["status"] = _status_to_v1(raw["status"])
    return converted


def to_v2(raw: Raw) -> Raw:
    """An autoscaler of version v1 as it is stored."""
    metadata = dict(raw.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    spec = dict(raw.get("spec") or {})
    percent = spec.pop(_CPU_TARGET, None)
    metrics: list[Raw] = []
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", _TARGET: target}})
    others = _parsed(annotations, METRICS, list)
    metrics += [_metric_to_v2(each) for each in others if isinstance(each, dict)]
    if metrics:
        spec["metrics"] = metrics
    behavior = _parsed(annotations, BEHAVIOR, dict)
    if behavior:
        spec["behavior"] = behavior
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
    converted = {**raw, "apiVersion": V2, "metadata": metadata, "spec": spec}
    if "status" in raw:
        status = raw["status"] or {}
        converted["status"] = {name: value for name, value in status.items() if name != _CURRENT_CPU}
    return converted


def _is_cpu(metric: Raw) -> bool:
    resource = metric.get("resource") or {}
    return resource.get("name") == "cpu" and "averageUtilization" in (resource.get(_TARGET) or {})


def _metric_to_v1(metric: Raw) -> Raw:
    converted: Raw = {"type": metric.get("type", "")}
    for source, fields in _SOURCES.items():
        if source in metric:
            pairs = ((name, _at(metric[source], path)) for name, path in fields)
            converted[source] = {name: value for name, value in pairs if value is not None}
    return converted


def _metric_to_v2(metric: Raw) -> Raw:
    converted: Raw = {"type": metric.get("type", "")}
    for source, fields in _SOURCES.items():
        given = metric.get(source)
        if not isinstance(given, dict):
            continue
        built: Raw = {}
        for name, path in fields:
            if name in given:
                outer, _, inner = path.rpartition(".")
                (built.setdefault(outer, {}) if outer else built)[inner] = given[name]
        target = built.get(_TARGET) or {}
        kinds = [_TYPES[name] for name in _TYPES if name in target]
        built[_TARGET] = {"type": kinds[0] if kinds else "", **target}
        converted[source] = built
    return converted


def _status_to_v1(status: Raw | None) -> Raw:
    converted = {"currentReplicas": 0, "desiredReplicas": 0, **(status or {})}
    converted = {name: value for name, value in converted.items() if name not in _V2_STATUS}
    for metric in (status or {}).get("currentMetrics") or ():
        percent = _at(metric, "resource.current.averageUtilization")
        if percent is not None and _at(metric, "resource.name") == "cpu":
            converted[_CURRENT_CPU] = percent
    return converted


def _parsed(annotations: Raw, name: str, kind: type[Any]) -> Any:
    """The value of an annotation, which is removed; what is not JSON of that kind stays."""
    try:
        value = msgspec.json.decode(annotations.get(name) or "null")
    except (msgspec.DecodeError, RecursionError):
        return kind()
    if not isinstance(value, kind):
        return kind()
    del annotations[name]
    return value


def _at(raw: Any, path: str) -> Any:
    for step in path.split("."):
        if not isinstance(raw, dict):
            return None
        raw = raw.get(step)
    return raw


def _text(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
