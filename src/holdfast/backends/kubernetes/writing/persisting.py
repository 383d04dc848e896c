"""A write that is made again while that may help; the core is told of one that never succeeds."""

from collections.abc import Awaitable, Callable, Container

from holdfast.backends.kubernetes.errors import ApiError, Deposed
from holdfast.backends.kubernetes.writing.queue import Job, Outcome
from holdfast.backends.kubernetes.writing.sender import Passing, Sender, wait_after

_ATTEMPTS = 8


def persistent(
    sender: Sender,
    send: Callable[[], Awaitable[object]],
    refused: Callable[[Exception], None],
    settled: Container[int] = (),
    final: Container[int] = (),
) -> Job:
    """Answers with a `settled` status leave nothing to be written; one with a `final` status is not
    argued with."""
    backoff = sender.backoff(0.2, 10.0)

    async def write() -> Outcome:
        try:
            await send()
        except Deposed:
            return None
        except Passing as error:
            status = error.status if isinstance(error, ApiError) else 0
            if status in settled:
                return None
            wait = wait_after(error, backoff)
            if wait is not None and status not in final and backoff.tries < _ATTEMPTS:
                return wait
            refused(error)
        return None

    return write
