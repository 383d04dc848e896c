"""A log that clients cannot fill: of each kind of line so many a minute, the rest counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

from holdfast.server.limits import LOG_LINES_PER_MINUTE


class RareLog:
    def __init__(
        self,
        logger: Any = None,
        clock: Callable[[], float] = time.monotonic,
        per_minute: int = LOG_LINES_PER_MINUTE,
    ) -> None:
        self._logger = logger if logger is not None else structlog.get_logger()
        self._clock = clock
        self._per_minute = per_minute
        self._minutes: dict[str, tuple[int, int, int]] = {}
        """By kind of line: which minute it is, lines written in it, lines left out since."""

    def warning(self, event: str, **particulars: Any) -> None:
        left_out = self._may(event)
        if left_out is not None:
            self._logger.warning(event, **particulars, **left_out)

    def exception(self, event: str, error: Any, **particulars: Any) -> None:
        """With its traceback."""
        left_out = self._may(event)
        if left_out is not None:
            self._logger.error(event, exc_info=error, **particulars, **left_out)

    def _may(self, event: str) -> dict[str, int] | None:
        """What to say besides, or None to say nothing."""
        minute = int(self._clock() // 60)
        then, written, left_out = self._minutes.get(event, (minute, 0, 0))
        if then != minute:
            written = 0
        if written >= self._per_minute:
            self._minutes[event] = (minute, written, left_out + 1)
            return None
        self._minutes[event] = (minute, written + 1, 0)
        return {"left_out": left_out} if left_out else {}
