"""The dashboards of `holdfast up` and `holdfast run`: what they show, and where they are served."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.cli.options import Failure

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.kube.runner import Runner
    from holdfast.local.store.objects import StoreChange
    from holdfast.local.up import Up
    from holdfast.serving.listener import Handler
    from holdfast.web.dashboard import ServedDashboard

RUN_PATH = "/dashboard"
"""Where `holdfast run` serves it, on the port of its metrics."""


async def serve_local(running: Up, port: int, kubeconfig: Path, config: str | None) -> ServedDashboard:
    """The dashboard of a local cluster, on a port of this machine. Raises Failure."""
    from holdfast.web.dashboard import HOST, serve_dashboard
    from holdfast.web.explainer import Explainer
    from holdfast.web.live_view import WatchedScheduler

    cluster, store = running.cluster, running.store
    watched = WatchedScheduler("local cluster", cluster.clock.epoch, takes_decisions=False)
    watched.attach(cluster.world.scheduler)
    watched.events.load(store.scan("", "Event"))

    def changed(change: StoreChange) -> None:
        if change.key.kind == "Event" and change.after is not None:
            watched.events.stored(change.after)

    store.observe(changed)
    options = ["--kubeconfig", str(kubeconfig), *(["--config", config] if config else [])]
    try:
        return await serve_dashboard(watched, Explainer(options), port)
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno else str(error)
        raise Failure(1, [f"--dashboard-port: cannot listen on {HOST}:{port}: {why}"]) from None


class RunnerDashboard:
    """The dashboard of `holdfast run`; shows the current runner's scheduler."""

    def __init__(self, server: str, kubeconfig: str | None, config: str | None) -> None:
        from holdfast.web.dashboard import Dashboard
        from holdfast.web.explainer import Explainer
        from holdfast.web.live_view import WatchedScheduler

        self._runner: Runner | None = None
        self._watched = WatchedScheduler(server, role=self._role)
        options = []
        for flag, value in (("--kubeconfig", kubeconfig), ("--config", config)):
            options += [flag, value] if value else []
        self._dashboard = Dashboard(self._watched, Explainer(options), f"{RUN_PATH}/")

    def pages(self) -> dict[str, Handler]:
        """What to serve, by path."""
        return {RUN_PATH: self._dashboard.handle}

    def runner_changed(self, runner: Runner | None) -> None:
        self._runner = runner
        self._watched.attach(runner.scheduler if runner is not None else None)

    def _role(self) -> str:
        if self._runner is None:
            return ""
        return "leading" if self._runner.fence.is_open else "standby"
