"""A writer at its desk: with its server, and what it reported."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from harness.fake_api import FakeApi, Raw
from harness.fake_client import FakeClient
from harness.virtual_time import LoopClock
from holdfast.api.decode import decode
from holdfast.api.resource_claims import ResourceClaim
from holdfast.kube.flow_control import RateLimit
from holdfast.kube.leader_election import Fence
from holdfast.kube.writer.writer import Writer
from holdfast.scheduler.cluster.decisions import Decision, ObjectRef
from holdfast.scheduler.cluster.events import (
    Added,
    BindConfirmed,
    BindRefused,
    Deleted,
    Event,
    Updated,
    WriteRefused,
)

PODS = "/api/v1/pods"
CLAIMS = "/api/v1/persistentvolumeclaims"
BIND = "/binding"
FOREVER = float("inf")


class Desk:
    """A writer with its server, and what it reported."""

    def __init__(self, api: FakeApi, fence: Fence, limit: RateLimit | None) -> None:
        self.api = api
        self.fence = fence
        self.fed: list[Event] = []
        self.failed: list[str] = []
        self.claims: dict[tuple[str, str], Any] = {}
        self.resource_claims: dict[tuple[str, str], Any] = {}
        self.versions: dict[str, str] = {}
        """The resource versions that the watch has delivered, by uid."""
        self.writer = Writer(
            FakeClient(api),
            fence,
            self.fed.append,
            self.claims,
            lambda _: "holdfast-scheduler",
            LoopClock().wall,
            lambda error: self.failed.append(str(error)),
            limit,
            version=lambda about: self.versions.get(about.uid, ""),
            resource_claims=self.resource_claims,
        )

    def seen(self, raw: Raw) -> Raw:
        """The watch delivers the object."""
        self.versions[raw["metadata"]["uid"]] = raw["metadata"]["resourceVersion"]
        return raw

    async def do(self, *decisions: Decision) -> None:
        self.writer.carry_out(decisions)
        assert await self.writer.queue.drain(3600), "writes hang"

    def fed_events(self) -> list[str]:
        return [_described(event) for event in self.fed]

    def claim_changed(self, raw: Raw) -> None:
        obj = decode(raw)
        self.claims[obj.metadata.namespace, obj.metadata.name] = obj
        self.writer.saw(Updated(obj))


def _described(event: Event) -> str:
    name = type(event).__name__
    if isinstance(event, BindConfirmed):
        return name
    if isinstance(event, BindRefused | WriteRefused):
        return f"{name}: {event.message}"
    assert isinstance(event, Added | Updated | Deleted), event
    obj: Any = event.object
    if isinstance(obj, ResourceClaim):
        return f"{name} {obj.metadata.name}"
    return (
        f"{name} on {obj.spec.node_name}" if isinstance(event, Updated) and obj.spec.node_name else name
    )


@asynccontextmanager
async def desk(api: FakeApi | None = None, limit: RateLimit | None = None) -> AsyncIterator[Desk]:
    fence = Fence(LoopClock().elapsed)
    fence.open_until(math.inf)
    made = Desk(api or FakeApi(), fence, limit)
    try:
        yield made
    finally:
        await made.writer.queue.close()


def ref(raw: Raw) -> ObjectRef:
    meta = raw["metadata"]
    return ObjectRef(raw["kind"], meta.get("namespace", ""), meta["name"], meta["uid"])
