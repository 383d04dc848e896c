"""Groups of pods, and queues."""

from __future__ import annotations

from typing import Self

from harness.builders.metadata import Builder
from holdfast.api import names
from holdfast.api.jobs import PodGroup, Queue
from holdfast.api.quantity import Quantity


class PodGroupBuilder(Builder[PodGroup]):
    api_version = names.VOLCANO_API
    kind = "PodGroup"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._metadata["namespace"] = names.DEFAULT_NAMESPACE
        self._spec["minMember"] = 1

    def min_member(self, count: int) -> Self:
        return self._set("minMember", count)

    def queue(self, name: str) -> Self:
        return self._set("queue", name)


class QueueBuilder(Builder[Queue]):
    api_version = names.VOLCANO_API
    kind = "Queue"

    def weight(self, weight: int) -> Self:
        return self._set("weight", weight)

    def capability(self, **resources: Quantity) -> Self:
        return self._set("capability", resources)

    def deserved(self, **resources: Quantity) -> Self:
        return self._set("deserved", resources)

    def guarantee(self, **resources: Quantity) -> Self:
        return self._set("guarantee", {"resource": resources})
