"""Provisioners as processes of their own: Holdfast's, and the one in the docs."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import ClientSession
from aiohttp.test_utils import RawTestServer

from harness.objects import ERROR, ID, Raw, node, requesting, required
from holdfast.api.crds import definitions
from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.crd_registry import CrdRegistry
from holdfast.local.apiserver.server import ApiServer
from holdfast.local.apiserver.system_objects import bootstrap, ensure_definition
from holdfast.local.cluster_loop import EmbeddedCluster
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Store
from holdfast.local.store.objects import pod_key
from holdfast.scheduler.framework.config import API_VERSION, KIND

DOCS = Path(__file__).parents[2] / "docs" / "dynamic-reservations.md"
EXTERNAL = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "dynamicReservation": {"provisioner": "external"},
}
_PATIENCE = 40.0


def example(folder: Path) -> Path:
    [code] = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert len(code.splitlines()) <= 60
    script = folder / "provisioner.py"
    script.write_text(code)
    return script


def commands(folder: Path, server: str) -> dict[str, list[str]]:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    ours = ["-m", "holdfast", "provisioner", "--kubeconfig", str(path), "--health-address", ""]
    return {"holdfast": ours, "example": [str(example(folder)), server]}


class Served:
    """A cluster whose scheduler leaves provisioning to others, over HTTP."""

    def __init__(self) -> None:
        self.store = Store()
        self.cluster = EmbeddedCluster(SchedulerFactory.of(EXTERNAL), self.store)
        api = ApiState(self.store, self.cluster.clock, identity=self.cluster.identity)
        bootstrap(api)
        registry = CrdRegistry(api)
        for definition in definitions():
            ensure_definition(api, definition)
        registry.stop()
        self.server = RawTestServer(ApiServer(api).handle)
        self._changed = asyncio.Event()
        self.log = Path()
        self.store.observe(lambda change: self._changed.set())

    async def put(self, raw: Raw) -> None:
        metadata = {key: value for key, value in raw["metadata"].items() if key != "uid"}
        path = "/api/v1/nodes" if raw["kind"] == "Node" else "/api/v1/namespaces/default/pods"
        async with (
            ClientSession(self.server.make_url("/")) as session,
            session.post(path, json={**raw, "metadata": metadata}) as answer,
        ):
            assert answer.status == 201, await answer.text()

    def stored_pod(self, name: str) -> Any:
        return self.store.get(pod_key("default", name))

    def reservations(self) -> list[Raw]:
        return list(self.store.scan("scheduling.koordinator.sh", "Reservation"))

    async def until(self, condition: Any) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            found = [*self.store.scan("", "Pod"), *self.reservations()]
            raise AssertionError(yaml.safe_dump(found) + self.log.read_text()) from None


@pytest.mark.parametrize("which", ["holdfast", "example"])
def test_a_provisioner_makes_what_pods_ask_for(which: str, tmp_path: Path) -> None:
    async def play() -> None:
        served = Served()
        await served.server.start_server()
        running = asyncio.create_task(served.cluster.run())
        command = commands(tmp_path, f"http://127.0.0.1:{served.server.port}")[which]
        environment = {key: v for key, v in os.environ.items() if not key.lower().endswith("_proxy")}
        await served.put(node("n1"))
        await served.put(requesting("before", recommendedSize={"cpu": "4"}))
        served.log = tmp_path / "log"
        log = served.log.open("wb")
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=environment, stderr=log
        )
        try:
            await served.until(lambda: served.stored_pod("before")["spec"].get("nodeName"))
            await served.put(requesting("after", app="c"))
            # No label can be like that, so the server refuses the reservation.
            await served.put(requesting("wrong", app="b", requirement=required("not a label", cpu="1")))
            await served.until(lambda: served.stored_pod("after")["spec"].get("nodeName"))
            await served.until(lambda: len(_provision_error(served.stored_pod("wrong"))) > 0)
        finally:
            process.terminate()
            await process.wait()
            served.cluster.stop()
            await running
            await served.server.close()
            served.store.close()
            log.close()
        labels = [made["metadata"]["labels"][ID] for made in served.reservations()]
        assert len(labels) == len(set(labels)) == 2
        assert {made["status"]["phase"] for made in served.reservations()} == {"Available"}

    asyncio.run(play())


def _provision_error(pod: Raw) -> str:
    """The provisioning error of the pod, now or before: the scheduler requests again soon."""
    text = (pod["metadata"].get("annotations") or {}).get(ERROR, "")
    messages = [c.get("message", "") for c in pod["status"].get("conditions") or []]
    return str(text or next((m for m in messages if "was not created" in m), ""))
