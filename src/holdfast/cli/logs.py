"""What a long-running command says while it runs: on stderr, a line of JSON for each thing that
happens; for people at a terminal, something to read. `HOLDFAST_LOG_LEVEL` says how much."""

import logging
import os
import sys
from typing import Any

from holdfast.cli.failing import Failure


def log_to_stderr() -> Any:
    """The logger of the process. Raises Failure."""
    import structlog  # costs more than most commands

    at_terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if at_terminal else [structlog.processors.format_exc_info]),
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
            if at_terminal
            else structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(_level()),
    )
    return structlog.get_logger()


def _level() -> int:
    text = os.environ.get("HOLDFAST_LOG_LEVEL", "info")
    level = logging.getLevelNamesMapping().get(text.upper())
    if level is None:
        raise Failure(1, [f"HOLDFAST_LOG_LEVEL: expected debug, info, warning or error, got {text!r}"])
    return level
