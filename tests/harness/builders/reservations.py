"""Reservations."""

from __future__ import annotations

from typing import Any, Self

from harness.builders.metadata import Builder, Raw
from harness.builders.pods import PodBuilder
from holdfast.api import names
from holdfast.api.quantity import Quantity
from holdfast.api.reservation import Reservation


class ReservationBuilder(Builder[Reservation]):
    """Owned by pods labelled `app: <name>` until an owner is given."""

    api_version = names.RESERVATION_API
    kind = "Reservation"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        container: Raw = {"name": "c", "image": "pause"}
        self._spec["template"] = {"spec": {"containers": [container]}}
        self._spec["owners"] = [{"labelSelector": {"matchLabels": {"app": name}}}]
        self._default_owner = True

    def template(self, pod: PodBuilder) -> Self:
        """Reserve what this pod asks for, with its constraints."""
        raw = pod.raw()
        metadata = {k: v for k, v in raw["metadata"].items() if k in ("labels", "annotations")}
        return self._set("template", {"metadata": metadata, "spec": raw["spec"]})

    def requests(self, requests: dict[str, Quantity]) -> Self:
        container = self._spec["template"]["spec"]["containers"][0]
        container.setdefault("resources", {}).setdefault("requests", {}).update(requests)
        return self

    def cpu(self, quantity: Quantity) -> Self:
        return self.requests({"cpu": quantity})

    def memory(self, quantity: Quantity) -> Self:
        return self.requests({"memory": quantity})

    def node(self, name: str) -> Self:
        """Request this node; `available` sets where it is."""
        self._spec["template"]["spec"]["nodeName"] = name
        return self

    def owner(self, **owner: Any) -> Self:
        """One more owner, by the API's field names: object, controller, labelSelector."""
        if self._default_owner:
            self._spec["owners"] = []
            self._default_owner = False
        return self._append("owners", owner)

    def owner_labels(self, labels: dict[str, str]) -> Self:
        return self.owner(labelSelector={"matchLabels": labels})

    def once(self, value: bool = True) -> Self:
        return self._set("allocateOnce", value)

    def reusable(self) -> Self:
        return self.once(False)

    def policy(self, policy: str) -> Self:
        return self._set("allocatePolicy", policy)

    def ttl(self, ttl: str) -> Self:
        return self._set("ttl", ttl)

    def expires(self, time: str) -> Self:
        return self._set("expires", time)

    def pre_allocation(self, value: bool = True) -> Self:
        return self._set("preAllocation", value)

    def order(self, order: int) -> Self:
        return self.label(names.RESERVATION_ORDER, str(order))

    def available(
        self,
        node: str,
        allocatable: dict[str, Quantity] | None = None,
        allocated: dict[str, Quantity] | None = None,
    ) -> Self:
        """On a node; what it holds is what its first container requests unless given."""
        if allocatable is None:
            container = self._spec["template"]["spec"]["containers"][0]
            allocatable = container.get("resources", {}).get("requests", {})
        return self.status(
            phase="Available",
            nodeName=node,
            allocatable=dict(allocatable or {}),
            allocated=dict(allocated or {}),
        )

    def phase(self, phase: str) -> Self:
        return self.status(phase=phase)
