"""A scenario played on a served cluster: what users do, they do over HTTP; time is virtual.

Everything of one moment is sent before the cluster is given its turn, as in a simulation.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from holdfast.api import names
from holdfast.api.crds import definitions
from holdfast.api.duration import parse_duration as duration
from holdfast.api.kinds import KINDS, KindInfo, kind_info
from holdfast.backends.embedded.cluster import EmbeddedCluster
from holdfast.backends.embedded.setup import Setup
from holdfast.server.api.bootstrap import bootstrap, ensure_definition
from holdfast.server.api.cluster import Cluster
from holdfast.server.api.definitions import DefinitionKeeper
from holdfast.server.api.server import application
from holdfast.sim.clock import VirtualClock, since_start
from holdfast.sim.expect import failures
from holdfast.sim.happenings import Apply, Check, Create, Delete, Patch, Restart, Scenario, Target
from holdfast.sim.timeline import Timeline
from holdfast.store import Change, Store

Raw = dict[str, Any]

APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}
_MANAGER = {"fieldManager": "scenario", "force": "true"}


class RefusedError(Exception):
    pass


class HttpDriver:
    def __init__(self, scenario: Scenario, end: float) -> None:
        self._scenario = scenario
        self._end = end
        self._clock = VirtualClock()
        self._timeline = Timeline(self._clock)
        self._later: list[tuple[float, int, str]] = []
        self._made = 0
        self.unmet: list[str] = []

    @property
    def placed(self) -> set[tuple[float, str, str, str]]:
        """Which pod was bound when, where and through what."""
        bound = [entry for entry in self._timeline.entries if entry.event == "Bound"]
        return {(entry.t, entry.object, entry.node, called(entry.reservation)) for entry in bound}

    async def play(self) -> list[str]:
        """What did not come out as the scenario expects."""
        store = Store()
        self.cluster = EmbeddedCluster(Setup.of(), store, self._clock, self._timeline.tell)
        store.observe(self._deleted)
        api = Cluster(store, self._clock, identity=self.cluster.identity)
        bootstrap(api)
        keeper = DefinitionKeeper(api)
        for definition in definitions():
            ensure_definition(api, definition)
        keeper.stop()
        async with TestClient(TestServer(application(api))) as self._client:
            await self.cluster.quiet()
            self._timeline.entries.clear()
            await self._play()
        store.close()
        return self.unmet

    async def _play(self) -> None:
        happenings = sorted(self._scenario.happenings, key=lambda h: (h.t, h.order))
        looks: list[Any] = []
        while happenings or self._later:
            now = min([h.t for h in happenings[:1]] + [later[0] for later in self._later[:1]])
            await self._go_on_until(now)
            while self._later and self._later[0][0] <= now:
                await self._send("DELETE", heapq.heappop(self._later)[2], missing_is_fine=True)
            while happenings and happenings[0].t <= now:
                happening = happenings.pop(0)
                if isinstance(happening.action, Check):
                    looks.append((happening.origin, happening.action.expectation))
                else:
                    await self._do(happening.action)
            await self.cluster.quiet()
            for origin, expectation in looks:
                await self._look(origin, expectation)
            looks.clear()
        await self._go_on_until(self._end)
        await self.cluster.quiet()
        for origin, expectation in self._scenario.at_the_end:
            await self._look(origin, expectation)

    async def _go_on_until(self, t: float) -> None:
        """Lets time pass, stopping wherever something is due on the way. What ends at that very
        moment ends before anything else happens then."""
        world = self.cluster.world
        while True:
            timer = world.scheduler.next_timer()
            dues = [world.agenda.next_time(), None if timer is None else since_start(timer)]
            due = min((each for each in dues if each is not None), default=None)
            if due is None or due >= t:
                break
            if timer is not None and since_start(timer) == due:
                self._clock.advance_to_timer(timer)
            else:
                self._clock.advance(due)
            await self.cluster.quiet()
        self._clock.advance(t)
        world.settle()

    def _deleted(self, change: Change) -> None:
        """A simulation tells of deletions it carries out; a server deletes by itself."""
        _, key, _, after = change
        told = self._timeline.entries[-8:]
        already = any(
            e.object == str(key) and e.t == self._clock.t and e.event in ("Deleted", "Collected")
            for e in told
        )
        if after is None and key.kind != "Event" and not already:
            self._timeline.tell(key, "Deleted")

    # What users do

    async def _do(self, action: Any) -> None:
        if isinstance(action, Create | Apply):
            await self._apply(action.raw)
        elif isinstance(action, Delete):
            await self._send("DELETE", await self._find(action.target))
        elif isinstance(action, Patch):
            path = await self._find(action.target)
            await self._send("PATCH", path, action.merge, MERGE)
            if "status" in action.merge:
                status = {"status": action.merge["status"]}
                await self._send("PATCH", f"{path}/status", status, MERGE)
        else:
            assert isinstance(action, Restart)
            self.cluster.world.restart_scheduler()

    async def _apply(self, raw: Raw) -> None:
        raw = await self._with_class(_with_images(raw))
        metadata = raw["metadata"]
        info = kind_info(raw["apiVersion"], raw["kind"])
        path = _path(info, metadata.get("namespace") or names.DEFAULT_NAMESPACE)
        if not metadata.get("name"):
            made = await self._send("POST", path, raw)
            path = f"{path}/{made['metadata']['name']}"
        else:
            path = f"{path}/{metadata['name']}"
            body = {key: value for key, value in raw.items() if key != "status"}
            await self._send("PATCH", path, body, APPLY, _MANAGER)
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
        await self._send("PATCH", path, made, APPLY, _MANAGER)
        rest = {key: each for key, each in spec.items() if key != "priority"}
        return {**raw, "spec": {**rest, "priorityClassName": name}}

    async def _find(self, target: Target) -> str:
        for key in target.candidates():
            info = next(i for i in KINDS.values() if (i.group, i.kind) == key[:2])
            path = f"{_path(info, key.namespace or names.DEFAULT_NAMESPACE)}/{key.name}"
            async with self._client.get(path) as answer:
                if answer.status == 200:
                    return path
        raise RefusedError(f"{target} is not there")

    async def _send(
        self,
        method: str,
        path: str,
        body: Raw | None = None,
        headers: dict[str, str] | None = None,
        params: dict[str, str] | None = None,
        missing_is_fine: bool = False,
    ) -> Raw:
        async with self._client.request(
            method, path, json=body, headers=headers, params=params
        ) as answer:
            said: Raw = await answer.json()
            if answer.status == 404 and missing_is_fine:
                return {}
            if answer.status >= 300:
                raise RefusedError(f"{method} {path}: {answer.status} {said.get('message')}")
            return said

    async def _look(self, origin: Any, expectation: Any) -> None:
        await asyncio.sleep(0)
        found = failures(expectation, self.cluster.world.objects, self._timeline.entries)
        self.unmet.extend(f"{origin}: {each} (at {self._clock.t:g}s)" for each in found)


def called(reservation: str) -> str:
    """What is made on demand goes by the uid of its pod, which is another one every time."""
    return "made on demand" if reservation.startswith("drp-") else reservation


def _with_images(raw: Raw) -> Raw:
    """Scenarios need not say what runs."""
    if raw["kind"] != "Pod":
        return raw
    spec = dict(raw["spec"])
    for part in ("containers", "initContainers"):
        if part in spec:
            spec[part] = [{"image": "pause", **container} for container in spec[part]]
    return {**raw, "spec": spec}


def _path(info: KindInfo, namespace: str) -> str:
    start = f"/apis/{info.api_version}" if info.group else f"/api/{info.api_version}"
    return (
        f"{start}/namespaces/{namespace}/{info.plural}" if info.namespaced else f"{start}/{info.plural}"
    )
