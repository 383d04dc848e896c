"""What `holdfast run` and `holdfast provisioner` share: a lease to work under, health, and an end.

    start ─► follow (reflectors are kept warm) ─► lead ─► stop: finish writes, let go of the lease
                                                    └──► the lease was lost: end at once, with an error

One that has lost its lease ends like kube-scheduler does, and is started anew by whoever started it:
what it believed about writes it was not allowed to make is best forgotten.
"""

import asyncio
import math
import signal
import socket
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from holdfast.backends.kubernetes.clock import Clock
from holdfast.backends.kubernetes.election import Election
from holdfast.backends.kubernetes.errors import KubernetesError
from holdfast.backends.kubernetes.fence import Fence
from holdfast.backends.kubernetes.http.client import Client
from holdfast.framework.config import LeaderElection
from holdfast.server.health import OPEN_PATHS, Check, Endpoints, ping, start_health

_STALE_AFTER = 20.0
"""How much longer than its duration a lease may go without renewal before we are called dead."""
_LAST_WRITES = 20.0
"""How long writes on their way are waited for when we stop, in seconds."""
_LAST_ANSWERS = 2.0
"""How long requests for health are waited for when we stop, in seconds."""
_LEVELS = {"failed": "warning", "lost": "warning", "not released": "warning"}

Log = Callable[..., None]


class LeaseLost(KubernetesError):
    """Somebody else may lead by now."""


class Runner(Protocol):
    async def run(self) -> None:
        """Until cancelled."""

    async def stop(self, patience: float) -> bool:
        """Decides nothing more; waits for what is on its way. False if that took too long."""

    async def close(self) -> None: ...

    def wake(self) -> None:
        """Something outside changed: who leads, say."""

    def unsynced(self) -> list[str]:
        """The kinds that have not been read yet, with what stands in the way."""


class Answers(NamedTuple):
    """What is told on the health port, beside whether all is well."""

    where: tuple[str, int] | None
    metrics: Callable[[], bytes]
    configz: Callable[[], Mapping[str, Any]]
    more: Mapping[str, Callable[[], Awaitable[Any]]] = {}
    open_paths: Collection[str] = OPEN_PATHS
    """What callers on other machines may ask for."""


class Service:
    """`fence` and `clock` are for the runner."""

    def __init__(self, client: Client, lease: LeaderElection, elect: bool, log: Log) -> None:
        self.clock = Clock()
        self.fence = Fence(self.clock.elapsed)
        self._elect = elect
        self._log = log
        self._stop = asyncio.Event()
        self._election = Election(
            client,
            lease,
            f"{socket.gethostname()}_{uuid.uuid4()}",
            self.fence,
            self.clock,
            lambda what, detail: log(
                f"election {what}", level=_LEVELS.get(what, "info"), detail=detail
            ),
        )

    def heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)

    async def run(self, runner: Runner, answers: Answers) -> None:
        """Until a signal says so. Raises KubernetesError, LeaseLost among them."""
        close_health = await self._start_health(runner, answers)
        stopping = asyncio.create_task(self._stop.wait())
        tasks = (
            stopping,
            asyncio.create_task(runner.run()),
            asyncio.create_task(self._lead(runner)),
        )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if stopping in done:
                self._log("stopping")
                if not await runner.stop(_LAST_WRITES):
                    self._log("some writes were not finished", level="warning")
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await runner.close()
            if self._elect:
                await self._election.release()
            await close_health()
            self._log("stopped")

    async def _lead(self, runner: Runner) -> None:
        if not self._elect:
            self.fence.open_until(math.inf)
            runner.wake()
            await asyncio.Event().wait()
        await self._election.acquire()
        self._log("leading", identity=self._election.identity)
        runner.wake()
        await self._election.hold()
        raise LeaseLost("the lease was lost; another may lead by now")

    async def _start_health(self, runner: Runner, answers: Answers) -> Callable[[], Awaitable[None]]:
        if answers.where is None:
            return _nothing
        checks = [
            ping(),
            Check("leaderElection", self._stale_lease),
            Check("informer-sync", lambda: "; ".join(runner.unsynced()), live=False),
            Check("shutdown", lambda: "stopping" if self._stop.is_set() else "", live=False),
        ]
        endpoints = Endpoints(checks, answers.metrics, answers.configz, answers.more)
        host, port = answers.where
        listener, port = await start_health(endpoints, host, port, answers.open_paths)
        self._log("serving", host=host, port=port)

        async def close() -> None:
            await listener.close(_LAST_ANSWERS)

        return close

    def _stale_lease(self) -> str:
        if self._elect and self._election.is_stale(_STALE_AFTER):
            return "failed election to renew leadership on lease"
        return ""


async def _nothing() -> None:
    pass
