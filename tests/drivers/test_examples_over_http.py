"""Every example comes out on a served cluster as it does in a simulation."""

import asyncio
from pathlib import Path

from drivers.http_driver import EmbeddedStage
from drivers.scenarios import Simulated, every_example, placements


@every_example
def test_example(file: Path) -> None:
    simulated = Simulated.of(file)

    async def play() -> EmbeddedStage:
        stage = EmbeddedStage()
        async with stage.opened():
            assert await simulated.play(stage) == []
        return stage

    stage = asyncio.run(play())
    assert placements(stage.happened) == simulated.placed
