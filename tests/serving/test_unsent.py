"""Bytes that wait to be sent: how they are counted, and who waits or is cut when they are too many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from holdfast.serving import unsent
from holdfast.serving.limits import LAG_SECONDS, SENDING_RATE, WAIT_SECONDS
from holdfast.serving.unsent import ResponseBudget, UnsentBytes


class Now:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(unsent, "RESPONSES_BYTES", 1000)
    monkeypatch.setattr(unsent, "SWEEP_SECONDS", 0.0)
    yield


def nothing() -> None:
    pass


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_bytes_are_counted_once_for_all_who_hold_them() -> None:
    held = UnsentBytes()
    one, equal = bytes(bytearray(b"x" * 100)), bytes(bytearray(b"x" * 100))
    held.hold(one, "key")
    held.hold(one)
    assert held.total == 100
    held.hold(equal, "key")
    assert held.total == 200, "equal bytes in another place take memory of their own"
    assert held.find("key") is one
    held.release(equal)
    held.release(one)
    assert (held.total, held.find("key")) == (100, one)
    held.release(one)
    assert (held.total, held.find("key")) == (0, None)


def test_responses_wait_in_order_while_others_are_sent() -> None:
    async def go() -> list[int]:
        budget, admitted = ResponseBudget(), list[int]()
        done = [asyncio.Event() for _ in range(6)]

        async def respond(number: int) -> None:
            assert await budget.space()
            admitted.append(number)
            with budget.sending(bytes(bytearray(500)), nothing):
                await done[number].wait()

        tasks = [asyncio.create_task(respond(number)) for number in range(6)]
        await turns()
        assert (admitted, budget.unsent.total) == ([0, 1], 1000)
        tasks[2].cancel()
        done[1].set()
        await turns()
        assert (admitted, budget.unsent.total) == ([0, 1, 3], 1000)
        for each in done:
            each.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert budget.unsent.total == 0 and not budget.crowded
        return admitted

    assert asyncio.run(go()) == [0, 1, 3, 4, 5]


def test_responses_that_waited_are_encoded_in_different_iterations() -> None:
    async def go() -> list[int]:
        budget, iteration, admitted_in = ResponseBudget(), 0, list[int]()

        async def respond() -> None:
            assert await budget.space()
            admitted_in.append(iteration)
            with budget.sending(bytes(bytearray(10)), nothing):
                await asyncio.sleep(0)

        with ExitStack() as stack:
            for _ in range(10):
                stack.enter_context(budget.sending(bytes(bytearray(100)), nothing))
            tasks = [asyncio.create_task(respond()) for _ in range(10)]
            tasks.append(asyncio.create_task(respond()))
            await turns()
            tasks.pop(3).cancel()
        while not all(task.done() for task in tasks):
            iteration += 1
            await asyncio.sleep(0)
        return admitted_in

    admitted_in = asyncio.run(go())
    assert len(set(admitted_in)) == len(admitted_in) == 10


def test_a_response_does_not_wait_for_ever() -> None:
    async def go() -> None:
        now = Now()
        budget = ResponseBudget(now)
        with budget.sending(bytes(1000), nothing):
            waiting = asyncio.create_task(budget.space())
            await turns()
            assert not waiting.done()
            now.seconds += WAIT_SECONDS
            assert await waiting is False
        assert not budget.crowded

    asyncio.run(go())


def test_those_who_do_not_read_are_cut_for_those_who_wait() -> None:
    async def go() -> None:
        now, cut = Now(), list[str]()
        budget = ResponseBudget(now)
        with ExitStack() as stack:

            def sending(name: str) -> unsent.Sending:
                body = bytes(bytearray(400))
                return stack.enter_context(budget.sending(body, lambda: cut.append(name)))

            fast, trickling, stalled = sending("fast"), sending("trickling"), sending("stalled")
            stack.enter_context(stalled.piece(100))
            for _ in range(int(LAG_SECONDS) + 1):
                with fast.piece(2 * SENDING_RATE), trickling.piece(SENDING_RATE // 100):
                    now.seconds += 1.0
            assert cut == [], "no client waits"
            waiting = asyncio.create_task(budget.space())
            await turns()
            assert sorted(cut) == ["stalled", "trickling"]
            waiting.cancel()

    asyncio.run(go())


def test_for_a_response_that_cannot_wait_the_slowest_is_cut() -> None:
    now, cut = Now(), list[str]()
    budget = ResponseBudget(now)
    with ExitStack() as stack:

        def sending(name: str, size: int) -> unsent.Sending:
            body = bytes(bytearray(size))
            return stack.enter_context(budget.sending(body, lambda: cut.append(name)))

        for name, size in (("slowest", 400), ("slow", 300)):
            stack.enter_context(sending(name, size).piece(100))
            now.seconds += 1.0
        fast = sending("fast", 200)
        with fast.piece(2 * SENDING_RATE):
            now.seconds += 1.0
        budget.make_space()
        assert cut == [], "there is space"
        sending("new", 200)
        budget.make_space()
        assert cut == ["slowest"]
