"""Objects that need only a line."""

from __future__ import annotations

from typing import Any

from harness.builders.metadata import CREATED, Raw
from holdfast.api.decode import decode
from holdfast.api.meta import Object


def make_namespace(name: str, labels: dict[str, str] | None = None) -> Object:
    return _other("v1", "Namespace", name, "", labels=labels)


def make_service(name: str, selector: dict[str, str] | None, namespace: str = "default") -> Object:
    return _other("v1", "Service", name, namespace, {"selector": selector})


def make_controller(
    kind: str, name: str, selector: dict[str, Any] | None, namespace: str = "default"
) -> Object:
    """A ReplicationController with a map of labels, or anything of apps/v1 with a selector."""
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    return _other(version, kind, name, namespace, {"selector": selector})


def make_budget(
    name: str,
    match_labels: dict[str, str],
    allowed: int = 0,
    *,
    namespace: str = "default",
    disrupted: list[str] | None = None,
    **spec: Any,
) -> Object:
    """A PodDisruptionBudget that allows so many disruptions now."""
    status: Raw = {"disruptionsAllowed": allowed}
    if disrupted:
        status["disruptedPods"] = dict.fromkeys(disrupted, CREATED)
    selector = {"selector": {"matchLabels": match_labels}}
    return _other("policy/v1", "PodDisruptionBudget", name, namespace, {**selector, **spec}, status)


def _other(
    api_version: str,
    kind: str,
    name: str,
    namespace: str,
    spec: Raw | None = None,
    status: Raw | None = None,
    labels: dict[str, str] | None = None,
) -> Object:
    metadata: Raw = {"name": name, "uid": f"uid-{name}", "labels": labels or {}}
    if namespace:
        metadata["namespace"] = namespace
    raw: Raw = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    if spec is not None:
        raw["spec"] = spec
    if status is not None:
        raw["status"] = status
    return decode(raw)
