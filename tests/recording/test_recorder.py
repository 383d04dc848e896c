"""The recorder against a server that ends, expires and refuses watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.api.kinds import KindInfo
from holdfast.kube import object_watch
from holdfast.kube.errors import ApiError, Unreachable
from holdfast.kube.object_client import Raw, Server
from holdfast.recording.recorder import ClusterRecorder
from holdfast.recording.segments import Recording


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class FakeServer(Server):
    """Lists `pods`, and watches as the script says: each step yields events or raises."""

    def __init__(self, script: list[Callable[[], list[tuple[str, Raw]]]]) -> None:
        self.pods: dict[str, Raw] = {}
        self._script = script
        self.idle = asyncio.Event()
        self.lists = 0
        self.refused: set[str] = set()

    async def listed(
        self, info: KindInfo, namespace: str = "", selector: str = "", fields: str = ""
    ) -> tuple[list[Raw], str]:
        if info.kind in self.refused:
            raise ApiError(403, "Forbidden", f"{info.plural} is forbidden")
        if info.kind != "Pod":
            return [], "1"
        self.lists += 1
        return list(self.pods.values()), "1"

    async def watch(
        self, info: KindInfo, version: str, namespace: str = "", selector: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[str, Raw]]:
        if info.kind == "Pod":
            await turns(200)  # until all kinds are listed
        if info.kind == "Pod" and self._script:
            for event, raw in self._script.pop(0)():
                yield event, raw
            return
        if info.kind == "Pod":
            self.idle.set()
        await asyncio.Event().wait()


def pod(name: str, version: str = "1", **spec: Any) -> Raw:
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def recorded(server: FakeServer, folder: Path) -> tuple[ClusterRecorder, list[str]]:
    warnings: list[str] = []
    time = iter(range(1000, 100_000))

    async def work() -> ClusterRecorder:
        recorder = ClusterRecorder(
            server, folder, 1 << 20, clock=lambda: float(next(time)), warn=warnings.append
        )
        task = asyncio.create_task(recorder.run())
        waiting = asyncio.create_task(server.idle.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        await turns(100)
        waiting.cancel()
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return recorder

    return asyncio.run(work()), warnings


def changes(folder: Path) -> list[tuple[str, str]]:
    return [(each.type, each.raw["metadata"]["name"]) for each in Recording(folder).changes()]


def test_what_is_listed_and_watched_is_recorded(tmp_path: Path) -> None:
    server = FakeServer(
        [
            lambda: [
                ("ADDED", pod("b")),
                ("MODIFIED", pod("b", "2", nodeName="n")),
                ("DELETED", pod("a")),
            ]
        ]
    )
    server.pods["a"] = pod("a")
    recorder, _ = recorded(server, tmp_path)
    assert changes(tmp_path) == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]
    assert recorder.figures.changes == 3 and recorder.figures.gaps == 0


def test_an_expired_watch_is_resumed_by_a_list_and_the_gap_is_recorded(tmp_path: Path) -> None:
    server = FakeServer([])

    def expire() -> list[tuple[str, Raw]]:
        server.pods = {"b": pod("b")}
        raise ApiError(410, "Expired", "too old resource version")

    server._script.append(expire)
    server.pods["a"] = pod("a")
    recorder, _ = recorded(server, tmp_path)
    assert changes(tmp_path) == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    assert recorder.figures.gaps == 1
    recording = Recording(tmp_path)
    list(recording.changes())
    ((since, until, kind),) = recording.gaps
    assert since < until and kind == "pods"


def test_a_lost_connection_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_watch, "_FIRST_PAUSE", 0.0)

    def lose() -> list[tuple[str, Raw]]:
        raise Unreachable("connection reset")

    recorder, warnings = recorded(FakeServer([lose]), tmp_path)
    assert warnings == ["lost the watch of pods (connection reset); retrying"]
    assert recorder.figures.gaps == 1


def test_kinds_that_may_not_be_read_are_left_out(tmp_path: Path) -> None:
    server = FakeServer([])
    server.refused.add("PersistentVolume")
    server.pods["a"] = pod("a")
    recorded(server, tmp_path)
    assert changes(tmp_path) == [("ADDED", "a")]


def test_without_pods_there_is_no_recording(tmp_path: Path) -> None:
    server = FakeServer([])
    server.refused.add("Pod")
    with pytest.raises(ApiError, match="forbidden"):
        recorded(server, tmp_path)
