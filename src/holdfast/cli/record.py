"""`holdfast record`"""

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.completers import files
from holdfast.cli.options import Context, Failure, Kubeconfig, Where, optional

if TYPE_CHECKING:
    from holdfast.kube.object_client import Server
    from holdfast.recording.recorder import RecordedFigures

_LEAST_SIZE = 64 * 1024


def record(
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Directory to write to; a recording in it is continued.",
            autocompletion=files,
            show_default=False,
        ),
    ],
    for_: Annotated[
        str | None,
        optional(
            "--for", metavar="D", help="How long, such as 8h or 2d (default: until it is interrupted)."
        ),
    ] = None,
    max_size: Annotated[
        str,
        typer.Option(
            "--max-size",
            metavar="SIZE",
            help="Size on disk after which the oldest part of the recording is deleted.",
        ),
    ] = "2GiB",
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
    """Record what scheduling reads of a cluster, as it changes, to be replayed.

    Lists and watches nodes, pods, reservations, workloads, volumes and more, and writes compressed
    files of what a snapshot has: no Secrets, and of pods no environment, commands or arguments. Only
    GET requests are sent. If a watch is lost or expires, it is resumed, and the gap is noted. After a
    crash, all but the last seconds can be read.

    `holdfast simulate DIR` replays the recording under any configuration, and
    `holdfast when --history DIR` learns from it how long pods run.

    Examples:
      # A working day
      holdfast record -o monday --for 8h

      # Replay it under two configurations
      holdfast simulate monday --config a.yaml --config b.yaml
    """
    from holdfast.api.times import format_duration
    from holdfast.cli.client import ask
    from holdfast.recording.segments import RecordingError

    seconds, size = _duration(for_), _size(max_size)
    began = time.monotonic()

    async def work(server: "Server") -> "RecordedFigures":
        from holdfast.recording.recorder import ClusterRecorder

        recorder = ClusterRecorder(server, Path(output), size, tuple(keep_annotation or ()), warn=_warn)
        task = asyncio.ensure_future(recorder.run(seconds, _progress(output)))
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
        finally:
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(each)
        return recorder.figures

    try:
        found = ask(Where(kubeconfig, context), work)
    except RecordingError as error:
        raise Failure(1, [str(error)]) from None
    except OSError as error:
        raise Failure(1, [f"{error.filename or output}: {error.strerror or error}"]) from None
    finally:
        _clear_progress()
    if not found.began:
        raise Failure(1, ["interrupted before all kinds were listed; nothing was recorded"])
    lasted = format_duration(round(time.monotonic() - began))
    typer.echo(f"{output}: {_text(found)}, in {lasted}", err=True)


def _text(figures: "RecordedFigures") -> str:
    parts = [
        f"{figures.objects.total()} objects",
        f"{figures.changes} changes",
        f"{figures.size / 1e6:.1f} MB",
    ]
    if figures.gaps:
        parts.append(f"{figures.gaps} gaps")
    if figures.dropped:
        parts.append(f"{figures.dropped} old files deleted to stay within --max-size")
    return ", ".join(parts)


def _duration(text: str | None) -> float | None:
    from holdfast.api.errors import DurationError
    from holdfast.cli.options import days_or_duration

    if text is None:
        return None
    try:
        seconds = days_or_duration(text)
    except DurationError as error:
        raise Failure(1, [f"--for: {error}"]) from None
    if seconds <= 0:
        raise Failure(1, [f"--for: must be more than 0: {text}"])
    return seconds


def _size(text: str) -> int:
    from holdfast.api.errors import QuantityError
    from holdfast.api.quantity import whole

    try:
        found = whole(text.removesuffix("B"))
    except QuantityError:
        raise Failure(1, [f"--max-size: not a size: {text!r} (write it as 500MiB or 2GiB)"]) from None
    if found < _LEAST_SIZE:
        raise Failure(1, [f"--max-size: must be at least {_LEAST_SIZE // 1024}KiB"])
    return found


def _warn(text: str) -> None:
    _clear_progress()
    typer.echo(f"warning: {text}", err=True)


def _progress(output: str) -> "Callable[[RecordedFigures], None]":
    """A line that is replaced on a terminal; else one when the recording has begun."""
    has_begun = False

    def begun(figures: "RecordedFigures") -> None:
        nonlocal has_begun
        if figures.began and not has_begun:
            has_begun = True
            typer.echo(f"{output}: recording; {figures.objects.total()} objects listed", err=True)

    if not sys.stderr.isatty():
        return begun

    def show(figures: "RecordedFigures") -> None:
        sys.stderr.write(f"\r{_text(figures)}\x1b[K")
        sys.stderr.flush()

    return show


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
