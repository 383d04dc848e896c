"""A write carries the time left of the lease when it is sent, not when it was decided."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from faults.model import Model
from faults.network import Fate, Network, Sent
from faults.process import ProcessLoop, Timeline
from holdfast.kube.client import Client
from holdfast.kube.client_settings import Access
from holdfast.kube.errors import LeadershipLost, NoConnection, Unreachable
from holdfast.kube.leader_election import Fence
from holdfast.kube.writer.write_queue import ApiWriter

BINDING = "/api/v1/namespaces/default/pods/p/binding"


class Attempt:
    """A write over a connection that takes so long to be made; nothing answers."""

    def __init__(self, connecting: float) -> None:
        self.urls: list[str] = []
        self.sent_at = 0.0
        self._timeline = Timeline()
        network = Network(self._timeline, Model(lambda: ""), random.Random(0))
        network.connecting_takes = lambda _: connecting
        network.fate = self._lost
        self._loop = ProcessLoop(self._timeline, "a", network.connect, None)
        self._task: asyncio.Task[Any] = self._loop.start(self._write())
        self._timeline.run(60.0, self._task.done)
        self.error = self._task.exception()
        self.waited = self._timeline.now - self.sent_at

    def _lost(self, sent: Sent) -> Fate:
        self.urls.append(sent.url)
        self.sent_at = self._timeline.now
        return Fate("lost")

    async def _write(self) -> None:
        fence = Fence(self._loop.time)
        fence.open_until(10.0, exclusive_until=14.5)
        async with Client(Access("http://a.example:80")) as client:
            await ApiWriter(client, fence).write("POST", BINDING, {})


@pytest.mark.parametrize(
    ("connecting", "allowed", "waited"),
    [(0.0, 10, 10.0), (2.0, 9, 10.0), (6.0, 5, 8.0), (8.0, 3, 6.0), (9.5, 2, 5.0)],
)
def test_a_write_is_carried_out_while_no_other_process_can_lead(
    connecting: float, allowed: int, waited: float
) -> None:
    attempt = Attempt(connecting)
    assert attempt.urls == [f"{BINDING}?timeout={allowed}s"]
    assert isinstance(attempt.error, Unreachable) and attempt.error.sent
    assert attempt.waited == pytest.approx(waited)
    # Three seconds on the way, then it is carried out or given up.
    assert connecting + 3.0 + allowed <= 14.5


def test_a_connection_that_takes_too_long_is_not_used() -> None:
    attempt = Attempt(9.9999)
    assert len(attempt.urls) == 1
    late = Attempt(10.5)
    assert late.urls == []
    assert isinstance(late.error, LeadershipLost | NoConnection)
