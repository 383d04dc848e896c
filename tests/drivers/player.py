"""A scenario played on a stage: what users do, they do over HTTP; time is virtual.

Everything of one moment is sent before the cluster is given its turn, as in a simulation.
"""

from __future__ import annotations

import heapq
from typing import Any, Protocol

from holdfast.api import names
from holdfast.api.documents import Document
from holdfast.api.kinds import KINDS, KindInfo, kind_info
from holdfast.api.times import parse_duration as duration
from holdfast.local.clock import VirtualClock
from holdfast.local.cluster_parts import ClusterParts
from holdfast.local.store.objects import Raw, StoreChange
from holdfast.local.timeline import Timeline, TimelineEntry
from holdfast.sim.action_runner import with_allocatable
from holdfast.sim.expect import Expectation, failures
from holdfast.sim.scenario_actions import (
    Apply,
    Create,
    Delete,
    ExpectationCheck,
    Patch,
    Restart,
    Scenario,
    Target,
)

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
_MANAGER = "?fieldManager=scenario&force=true"
_NOT_FOUND = 404


class RefusedError(Exception):
    """The server refused a write of the scenario."""


class Stage(Protocol):
    """A cluster that is served, with a clock the player moves."""

    clock: VirtualClock

    @property
    def happened(self) -> list[TimelineEntry]:
        """The timeline."""

    @property
    def world(self) -> ClusterParts: ...

    async def request(
        self, method: str, path: str, body: Raw | None = None, content_type: str = JSON
    ) -> tuple[int, Raw]:
        """What a user sends; the status and what was answered."""

    async def quiet(self) -> None:
        """Returns when there is nothing to do at this moment."""

    async def restart_scheduler(self) -> None: ...


class Player:
    def __init__(self, scenario: Scenario, end: float, stage: Stage) -> None:
        self._scenario = scenario
        self._end = end
        self._stage = stage
        self._later: list[tuple[float, int, str]] = []
        self._made = 0
        self._unmet: list[str] = []

    async def play(self) -> list[str]:
        """What did not come out as the scenario expects."""
        actions = sorted(self._scenario.actions, key=lambda h: (h.t, h.order))
        looks: list[tuple[Document, Expectation]] = []
        while actions or self._later:
            now = min([h.t for h in actions[:1]] + [later[0] for later in self._later[:1]])
            await self._go_on_until(now)
            while self._later and self._later[0][0] <= now:
                await self._send("DELETE", heapq.heappop(self._later)[2], missing_is_fine=True)
            while actions and actions[0].t <= now:
                planned = actions.pop(0)
                if isinstance(planned.action, ExpectationCheck):
                    looks.append((planned.origin, planned.action.expectation))
                else:
                    await self._do(planned.action)
            await self._stage.quiet()
            for look in looks:
                self._look(*look)
            looks.clear()
        await self._go_on_until(self._end)
        await self._stage.quiet()
        for look in self._scenario.at_the_end:
            self._look(*look)
        return self._unmet

    async def _go_on_until(self, t: float) -> None:
        """Lets time pass, stopping wherever something is due on the way. What ends at that very
        moment ends before anything else happens then."""
        world, clock = self._stage.world, self._stage.clock
        while True:
            timer = world.scheduler.next_timer()
            dues = [world.timers.next_time(), None if timer is None else clock.since_start(timer)]
            due = min((each for each in dues if each is not None), default=None)
            if due is None or due >= t:
                break
            if timer is not None and clock.since_start(timer) == due:
                clock.advance_to_timer(timer)
            else:
                clock.advance(due)
            await self._stage.quiet()
        clock.advance(t)
        world.settle()

    # What users do

    async def _do(self, action: Any) -> None:
        if isinstance(action, Create | Apply):
            await self._apply(action.raw)
        elif isinstance(action, Delete):
            await self._send("DELETE", await self._find(action.target))
        elif isinstance(action, Patch):
            path = await self._find(action.target)
            merge = with_allocatable(action.target.kind, action.merge)
            await self._send("PATCH", path, merge, MERGE)
            if "status" in merge:
                await self._send("PATCH", f"{path}/status", {"status": merge["status"]}, MERGE)
        else:
            assert isinstance(action, Restart)
            await self._stage.restart_scheduler()

    async def _apply(self, raw: Raw) -> None:
        raw = await self._with_class(raw)
        metadata = raw["metadata"]
        info = kind_info(raw["apiVersion"], raw["kind"])
        path = _path(info, metadata.get("namespace") or names.DEFAULT_NAMESPACE)
        if not metadata.get("name"):
            made = await self._send("POST", path, raw)
            path = f"{path}/{made['metadata']['name']}"
        else:
            path = f"{path}/{metadata['name']}"
            body = {key: value for key, value in raw.items() if key != "status"}
            await self._send("PATCH", f"{path}{_MANAGER}", body, APPLY)
        if "status" in raw and info.has_status:
            await self._send("PATCH", f"{path}/status", {"status": raw["status"]}, MERGE)
        at = (metadata.get("annotations") or {}).get(names.SIM_DELETE_AT)
        if at is not None:
            self._made += 1
            heapq.heappush(self._later, (duration(at), self._made, path))

    async def _with_class(self, raw: Raw) -> Raw:
        """A server takes a pod's priority from its class alone."""
        spec = raw.get("spec") or {}
        if raw["kind"] != "Pod" or spec.get("priority") is None or spec.get("priorityClassName"):
            return raw
        value, policy = spec["priority"], spec.get("preemptionPolicy", "PreemptLowerPriority")
        name = f"scenario-{value}-{policy.lower()}".replace("--", "-minus-")
        made = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": policy,
        }
        path = f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}"
        await self._send("PATCH", f"{path}{_MANAGER}", made, APPLY)
        rest = {key: each for key, each in spec.items() if key != "priority"}
        return {**raw, "spec": {**rest, "priorityClassName": name}}

    async def _find(self, target: Target) -> str:
        for key in target.candidates():
            info = next(i for i in KINDS.values() if (i.group, i.kind) == key[:2])
            path = f"{_path(info, key.namespace or names.DEFAULT_NAMESPACE)}/{key.name}"
            status, _ = await self._stage.request("GET", path)
            if status == 200:
                return path
        raise RefusedError(f"{target} is not there")

    async def _send(
        self,
        method: str,
        path: str,
        body: Raw | None = None,
        content_type: str = JSON,
        missing_is_fine: bool = False,
    ) -> Raw:
        status, answer = await self._stage.request(method, path, body, content_type)
        if status == _NOT_FOUND and missing_is_fine:
            return {}
        if status >= 300:
            raise RefusedError(f"{method} {path}: {status} {answer.get('message')}")
        return answer

    def _look(self, origin: Document, expectation: Expectation) -> None:
        stage = self._stage
        found = failures(expectation, stage.world.objects, stage.happened)
        self._unmet.extend(f"{origin}: {each} (at {stage.clock.t:g}s)" for each in found)


class Deletions:
    """A simulation records the deletions it carries out; a server deletes by itself."""

    def __init__(self, timeline: Timeline, clock: VirtualClock) -> None:
        self._timeline = timeline
        self._clock = clock

    def changed(self, change: StoreChange) -> None:
        _, key, _, after = change
        latest = self._timeline.entries[-8:]
        already = any(
            e.object == str(key) and e.t == self._clock.t and e.event in ("Deleted", "Collected")
            for e in latest
        )
        if after is None and key.kind != "Event" and not already:
            self._timeline.record(key, "Deleted")


def _path(info: KindInfo, namespace: str) -> str:
    start = f"/apis/{info.api_version}" if info.group else f"/api/{info.api_version}"
    return (
        f"{start}/namespaces/{namespace}/{info.plural}" if info.namespaced else f"{start}/{info.plural}"
    )
