"""`holdfast snapshot`, and the snapshot for a command that queries a scheduler."""

import gc
import os
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.completers import files
from holdfast.cli.options import Context, Failure, Kubeconfig, Where, optional

if TYPE_CHECKING:
    from holdfast.api.kinds import KindInfo
    from holdfast.kube.object_client import ObjectLister, Server
    from holdfast.local.setup import SchedulerFactory
    from holdfast.snapshot.cluster_snapshot import ClusterSnapshot
    from holdfast.snapshot.reader import Progress
    from holdfast.snapshot.snapshot_header import SnapshotHeader

_STDOUT = "-"


def snapshot(
    output: Annotated[
        str | None,
        optional(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write; compressed if its name ends with .gz; - for stdout (default: "
            "snapshot-TIME.json.gz).",
            complete=files,
        ),
    ] = None,
    anonymize: Annotated[
        bool,
        typer.Option(
            "--anonymize",
            help="Rename objects, namespaces, labels and images, so that scheduling decides as before.",
        ),
    ] = False,
    keep_annotation: Annotated[
        list[str] | None,
        optional(
            "--keep-annotation",
            metavar="KEY",
            help="Keep this annotation, for a plugin that reads it; may be repeated.",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Write the state that scheduling depends on to a file: nodes, pods, reservations and more.

    The file answers questions about the cluster without access to it: `simulate`, and the commands with
    --snapshot, read it. Only GET requests are sent, and no Secret, ConfigMap or Event is read.
    Environment variables, commands, arguments, probes and mounts of containers are removed, and
    annotations that scheduling does not read. What may not be listed is skipped and reported.

    Examples:
      # The cluster of the current context
      holdfast snapshot -o cluster.json.gz

      # What happens in the next hour, if nothing is added
      holdfast simulate cluster.json.gz --until 1h

      # To show to others: names are replaced
      holdfast snapshot --anonymize -o cluster.json.gz

      # As text, for another program
      holdfast snapshot -o - | jq '.items[].kind'
    """
    from holdfast.cli.client import ask
    from holdfast.snapshot.reader import ClusterReader
    from holdfast.snapshot.snapshot_file import AnonymousPages, SnapshotWriter
    from holdfast.snapshot.stripping import Stripper

    target = output or f"snapshot-{datetime.now(UTC):%Y%m%d-%H%M%S}.json.gz"
    if target != _STDOUT:
        _check_target(Path(target))
    compress = target.endswith(".gz")

    writer = SnapshotWriter(compress=compress)
    pages = AnonymousPages()

    async def work(server: "Server") -> "SnapshotHeader":
        began = time.time()
        reader = ClusterReader(server, Stripper(keep_annotation or ()), _progress())
        async for page in reader.pages():
            (pages if anonymize else writer).add(page)
        return await reader.header(began)

    gc.disable()  # pages of objects have no cycles, and looking for them takes half of the time
    try:
        header = ask(Where(kubeconfig, context), work)
        if anonymize:
            header = header.anonymous()
            for page in pages.renamed():
                writer.add(page)
    finally:
        gc.enable()
        _clear_progress()
    try:
        if target == _STDOUT:
            writer.write(sys.stdout.buffer, header)
            sys.stdout.buffer.flush()
        else:
            writer.save(Path(target), header)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(1, [f"{target}: {error.strerror or error}"]) from None
    for missing in header.not_permitted:
        typer.echo(f"warning: {missing}", err=True)
    if not header.resource_version:
        typer.echo("warning: the server could not list all kinds as of one moment", err=True)
    if target != _STDOUT:
        size = Path(target).stat().st_size
        typer.echo(f"{target}: {writer.summary()}, {_size(size)}", err=True)


def _check_target(path: Path) -> None:
    """Before the cluster is read, which may take long. Raises Failure."""
    if path.is_dir():
        raise Failure(1, [f"{path}: is a directory"])
    if not path.parent.is_dir():
        raise Failure(1, [f"{path}: no directory {path.parent}"])
    if not os.access(path.parent, os.W_OK):
        raise Failure(1, [f"{path}: cannot write to directory {path.parent}"])


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def _progress() -> "Progress | None":
    """A line that is replaced on a terminal; else nothing."""
    if not sys.stderr.isatty():
        return None

    def show(info: "KindInfo", count: int, left: int) -> None:
        of = f" of {count + left}" if left else ""
        sys.stderr.write(f"\r{info.resource}: {count}{of}\x1b[K")
        sys.stderr.flush()

    return show


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


async def warned_snapshot(
    lister: "ObjectLister",
    setup: "SchedulerFactory | None" = None,
    only: "Iterable[KindInfo] | None" = None,
) -> "ClusterSnapshot":
    """For a command that queries a scheduler; with warnings on stderr."""
    from holdfast.snapshot.reader import take_snapshot

    found = await take_snapshot(lister, setup, only)
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return found
