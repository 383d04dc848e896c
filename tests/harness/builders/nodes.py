"""Nodes."""

from __future__ import annotations

from typing import Self

from harness.builders.metadata import Builder
from holdfast.api import names
from holdfast.api.node import Node
from holdfast.api.quantity import Quantity


class NodeBuilder(Builder[Node]):
    """Labelled with its hostname, as a kubelet does; 110 pods by default."""

    api_version = "v1"
    kind = "Node"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.label(names.HOSTNAME_LABEL, name)
        self._status["allocatable"] = {"pods": "110"}
        self._status["capacity"] = {"pods": "110"}

    def allocatable(self, resources: dict[str, Quantity] | None = None, /, **more: Quantity) -> Self:
        """By keyword, or as a dict where the name is no Python name (`nvidia.com/gpu`)."""
        amounts = {**(resources or {}), **more}
        self._status["allocatable"].update(amounts)
        self._status["capacity"].update(amounts)
        return self

    capacity = allocatable

    def zone(self, zone: str) -> Self:
        return self.label(names.ZONE_LABEL, zone)

    def region(self, region: str) -> Self:
        return self.label(names.REGION_LABEL, region)

    def taint(self, key: str, value: str = "", effect: str = names.NO_SCHEDULE) -> Self:
        return self._append("taints", {"key": key, "value": value, "effect": effect})

    def unschedulable(self, value: bool = True) -> Self:
        return self._set("unschedulable", value)

    def declares(self, *features: str) -> Self:
        self._status["declaredFeatures"] = sorted(features)
        return self

    def image(self, name: str, size_bytes: int = 100 * 1024**2) -> Self:
        self._status.setdefault("images", []).append({"names": [name], "sizeBytes": size_bytes})
        return self
