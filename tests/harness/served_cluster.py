"""The commands about a cluster, against a served one in this process.

The cluster's scheduler runs only in `settle`, which does everything that is due now.
"""

from __future__ import annotations

import asyncio
import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from harness.apiserver import LiveServer
from holdfast.api.crds import definitions
from holdfast.api.kinds import kind_info
from holdfast.cli.app import run
from holdfast.kube.client import path_of
from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.crd_registry import CrdRegistry
from holdfast.local.apiserver.system_objects import ensure_definition
from holdfast.local.cluster_loop import EmbeddedCluster
from holdfast.local.setup import SchedulerFactory
from holdfast.serving.health import Health

Raw = dict[str, Any]

RESERVATION = "scheduling.koordinator.sh/v1alpha1"


class Done(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def rows(self) -> list[list[str]]:
        """The cells of a table, its heading first."""
        return [line.split() for line in self.lines]


def call(*arguments: str, program: str = "holdfast", stdin: str | bytes = "") -> Done:
    """The command, as a shell would call it."""
    given = io.TextIOWrapper(io.BytesIO(stdin if isinstance(stdin, bytes) else stdin.encode()))
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", [program, *arguments]),
        patch.object(sys, "stdin", given),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            run()
        except SystemExit as exit_:
            status = int(exit_.code or 0)
    return Done(status, out.getvalue(), err.getvalue())


class ServedCluster:
    def __init__(
        self, folder: Path, nodes: int = 2, crds: bool = True, health: Health | None = None
    ) -> None:
        self._nodes = nodes
        self._crds = crds
        self._folder = folder
        self.server = LiveServer(setup=self._setup, health=health)

    def __enter__(self) -> ServedCluster:
        self.server.__enter__()
        self.kubeconfig = str(self.server.kubeconfig(self._folder / "kubeconfig"))
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.__exit__(*exc)

    def _setup(self, api: ApiState) -> None:
        if self._crds:
            registry = CrdRegistry(api)
            for definition in definitions():
                ensure_definition(api, definition)
            registry.stop()
        self.embedded = EmbeddedCluster(SchedulerFactory.of(), api.store)
        self.embedded.add_nodes(self._nodes)

    def create(self, *objects: Raw) -> ServedCluster:
        for raw in objects:
            info = kind_info(raw["apiVersion"], raw["kind"])
            namespace = raw["metadata"].get("namespace", "default") if info.namespaced else ""
            answer = self.server.post(path_of(info, namespace), raw)
            assert answer.code == 201, answer.text
        return self

    def merge(self, path: str, change: Raw) -> None:
        answer = self.server.patch(path, change)
        assert answer.code == 200, answer.text

    def settle(self) -> ServedCluster:
        turn = asyncio.run_coroutine_threadsafe(self.embedded.quiet(), self.server._loop)
        turn.result(20)
        return self

    def __call__(self, *arguments: str) -> Done:
        return call(*arguments, "--kubeconfig", self.kubeconfig)
