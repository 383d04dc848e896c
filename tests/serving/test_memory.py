"""Free memory is returned to the system while a process serves."""

import asyncio
import ctypes
from pathlib import Path

import pytest

from harness.virtual_time import run
from holdfast.serving.memory import returning_memory


def test_memory_is_returned_every_minute_until_the_process_stops() -> None:
    times: list[float] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        async with returning_memory(lambda: times.append(loop.time())):
            await asyncio.sleep(190)
        await asyncio.sleep(600)

    run(serve())
    assert times == [60, 120, 180]


def test_pages_between_objects_are_returned() -> None:
    statm = Path("/proc/self/statm")
    if not (statm.exists() and hasattr(ctypes.CDLL(None), "malloc_trim")):
        pytest.skip("needs /proc, which tells how much memory a process has, and glibc")

    async def serve() -> tuple[int, int]:
        objects = [bytes(600) for _ in range(100_000)]  # more than 512 bytes: the heap of the C library
        kept = objects[::20]
        del objects
        async with returning_memory():
            before = int(statm.read_text().split()[1])
            await asyncio.sleep(61)
            after = int(statm.read_text().split()[1])
        assert len(kept) == 5000
        return before, after

    before, after = run(serve())
    assert before - after > 5000, "pages of 4 KiB"
