"""Turns of the event loop."""

import asyncio

import pytest

from harness.apiserver import CONFIG_MAPS, LiveServer
from harness.objects import config_map
from holdfast.serving.limits import Turns


def test_work_due_at_once_is_spread_over_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> tuple[int, list[int]]:
        loop = asyncio.get_running_loop()
        now, turns, iteration = 0.0, Turns(), 0
        done_in: list[int] = []
        monkeypatch.setattr(loop, "time", lambda: now)

        async def work() -> None:
            nonlocal now
            await turns.take()
            now += 0.004  # a turn is over after 0.01
            done_in.append(iteration)

        tasks = [asyncio.create_task(work()) for _ in range(30)]
        while not all(task.done() for task in tasks):
            iteration += 1
            await asyncio.sleep(0)
        return iteration, done_in

    iterations, done_in = asyncio.run(go())
    assert iterations >= 9
    assert max(done_in.count(each) for each in done_in) <= 4


@pytest.mark.parametrize("path", ["", "/large"])
def test_a_large_answer_comes_whole(server: LiveServer, path: str) -> None:
    server.post(CONFIG_MAPS, {**config_map("large"), "data": {"x": "x" * 1_000_000}})
    answer = server.get(f"{CONFIG_MAPS}{path}")
    assert answer.code == 200
    assert "x" * 1_000_000 in answer.text
    assert answer.body
