"""`holdfast mcp`: answers questions about a cluster for agents, over the Model Context Protocol.

A tool runs the command of the same name and returns its JSON. Which cluster or snapshot is asked about
is set when the server starts, not by the agent. Nothing is ever written to the cluster.
"""

import io
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import __version__
from holdfast.cli.options import Config, Context, Failure, Kubeconfig, Namespace, Snapshot

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

_NOT_INSTALLED = "the package mcp is not installed: pip install 'holdfast[mcp]'"
_INSTRUCTIONS = (
    "Questions about scheduling on one Kubernetes cluster. Nothing is changed on the cluster. "
    "`explain`: why a pod is pending. `when`: when it starts. `what_if`: what would happen after "
    "changes. `check`: whether manifests would fit. `advise`: when capacity can be reserved. "
    "`get`: lists objects."
)
_lock = threading.Lock()
"""The output of one command at a time is captured."""


def mcp(
    config: Config = None,
    snapshot: Snapshot = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Answer questions of agents over the Model Context Protocol, on stdin and stdout.

    The tools explain, when, what_if, check, advise and get only read the cluster, or the snapshot.
    Needs the extra `mcp`: pip install 'holdfast[mcp]'.

    Examples:
      # For the cluster of the current context
      holdfast mcp

      # For a snapshot
      holdfast mcp --snapshot cluster.json.gz
    """
    options = [
        word
        for name, value in (("--kubeconfig", kubeconfig), ("--context", context))
        if value is not None
        for word in (name, value)
    ]
    options += [word for path in snapshot or () for word in ("--snapshot", path)]
    configured = ["--config", config] if config is not None else []
    new_server(McpDefaults(tuple(options), tuple(configured), namespace)).run("stdio")


class McpDefaults(NamedTuple):
    """What every command is called with."""

    cluster: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    namespace: str | None = None

    def words(self, namespace: str = "", *, configured: bool = True) -> list[str]:
        found = [*self.cluster, *(self.config if configured else ())]
        place = namespace or self.namespace
        return [*found, "-n", place] if place else found


def new_server(defaults: McpDefaults) -> "MCPServer":
    """Raises Failure if the package mcp is not installed."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp_types import ToolAnnotations
    except ImportError:
        raise Failure(1, [_NOT_INSTALLED]) from None
    server = MCPServer("holdfast", version=__version__, instructions=_INSTRUCTIONS)
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)

    @server.tool(annotations=reads)
    async def explain(kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        """Why an object is pending, or why it is on its node, and what would help. `kind` is pod,
        reservation, podgroup, deployment, statefulset, daemonset, replicaset, job, cronjob,
        persistentvolumeclaim, resourceclaim, podmigrationjob or reservationschedule; or node, for what
        is on it and what would fit; or queue, for its limits and what waits in it."""
        return await _answer(["explain", kind, name, *defaults.words(namespace), "-o", "json"])

    @server.tool(annotations=reads)
    async def when(
        kind: str, name: str = "", namespace: str = "", within: str = "7d"
    ) -> dict[str, Any]:
        """When a pending object starts, as a range, and what it waits for. `kind` is pod, podgroup,
        job, deployment, statefulset, daemonset, replicaset or reservation; without a name, everything
        of the kind that is pending."""
        words = ["when", kind, *([name] if name else []), "--within", within]
        return await _answer([*words, *defaults.words(namespace), "-o", "json"], (0, 3, 4))

    @server.tool(annotations=reads)
    async def get(kind: str, name: str = "", namespace: str = "") -> dict[str, Any]:
        """Objects as the scheduler sees them, with what a snapshot has: no environment, commands or
        arguments. `kind` is nodes, pods, pending, reservations, holds or queues. Without a namespace,
        of all namespaces."""
        words = ["get", kind, *([name] if name else [])]
        place = defaults.words(namespace, configured=False)
        if not namespace and "-n" not in place and not name:
            place.append("-A")
        return _stripped(await _answer([*words, *place, "-o", "json"]))

    @server.tool(annotations=reads)
    async def what_if(
        manifests: str = "",
        scale: list[str] | None = None,
        nodes: list[str] | None = None,
        drain: list[str] | None = None,
        remove: list[str] | None = None,
        plan: str = "",
        namespace: str = "",
    ) -> dict[str, Any]:
        """What would happen after changes: what is placed where, displaced, preempted and pending, and
        capacity before and after. `manifests` is YAML to apply; `scale` as in deployment/web=10;
        `nodes` as in +4xnode-7 or +2xcpu=8,memory=32Gi; `drain` and `remove` take node names or labels
        as in pool=old; `plan` finds the smallest number of nodes of a shape, as in
        cpu=8,memory=32Gi, with which everything fits."""
        words = ["what-if", *defaults.words(namespace), "-o", "json"]
        for flag, values in (
            ("--scale", scale),
            ("--nodes", nodes),
            ("--drain", drain),
            ("--remove", remove),
            ("--plan", [plan] if plan else None),
        ):
            words += [word for value in values or () for word in (flag, value)]
        with _written(manifests) as written:
            return await _answer([*words, *written])

    @server.tool(annotations=reads)
    async def check(manifests: str, namespace: str = "", empty: bool = False) -> dict[str, Any]:
        """Whether the objects of YAML text would fit, each workload as a whole, and if not why. With
        `empty`, on the same nodes without any pods."""
        words = ["check", *defaults.words(namespace), "-o", "json", *(["--empty"] if empty else [])]
        with _written(manifests) as written:
            return await _answer([*words, *written], (0, 1, 3))

    @server.tool(annotations=reads)
    async def advise(
        resources: dict[str, str],
        duration: str,
        within: str = "3d",
        count: int = 1,
        max_evictions: int | None = None,
        priority: int | None = None,
        namespace: str = "",
    ) -> dict[str, Any]:
        """Windows in which capacity can be reserved, with the fewest evictions first, then the
        earliest, and the command that reserves each. `resources` are amounts by name, as in
        {"cpu": "8", "nvidia.com/gpu": "4"}, of each of `count` reservations; `duration` as in 4h.
        Windows start `within` this time, as in 3d. Only pods of lower `priority` are evicted."""
        words = ["advise", "--for", duration, "--within", within, "--count", str(count)]
        for name, value in resources.items():
            words += ["--resource", f"{name}={value}"]
        for flag, number in (("--max-evictions", max_evictions), ("--priority", priority)):
            words += [flag, str(number)] if number is not None else []
        return await _answer([*words, *defaults.words(namespace), "-o", "json"], (0, 3, 4))

    return server


@contextmanager
def _written(manifests: str) -> Iterator[list[str]]:
    """The text as an option that names a file."""
    if not manifests.strip():
        yield []
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "manifests.yaml"
        path.write_text(manifests, encoding="utf-8")
        yield ["-f", str(path)]


async def _answer(words: Sequence[str], statuses: Sequence[int] = (0,)) -> dict[str, Any]:
    """Runs a command in a thread, as it may take seconds. Raises ToolError with its error lines."""
    from anyio.to_thread import run_sync
    from mcp.server.mcpserver.exceptions import ToolError

    status, out, err = await run_sync(partial(_call, [*words]))
    if status not in statuses or not out:
        folder = tempfile.gettempdir()
        lines = [line.removeprefix("error: ") for line in err.splitlines()]
        text = "\n".join(line for line in lines if line) or f"exit status {status}"
        raise ToolError(_without_paths(text, folder))
    found = json.loads(out)
    return found if isinstance(found, dict) else {"items": found}


def _stripped(found: dict[str, Any]) -> dict[str, Any]:
    """An object, or those of a list, without what a snapshot does not have either."""
    from holdfast.snapshot.stripping import Stripper

    stripper = Stripper()
    if "items" in found:
        return {**found, "items": [stripper.strip(each) for each in found["items"]]}
    return stripper.strip(found)


def _without_paths(text: str, folder: str) -> str:
    """Names the manifests as the agent knows them."""
    parts = text.split(f"{folder}{os.sep}")
    return parts[0] + "".join(part.partition(os.sep)[2] or part for part in parts[1:])


def _call(words: list[str]) -> tuple[int, str, str]:
    from holdfast.cli.app import call

    out, err = io.StringIO(), io.StringIO()
    with _lock, redirect_stdout(out), redirect_stderr(err):
        status = call(words)
    return status, out.getvalue(), err.getvalue()
