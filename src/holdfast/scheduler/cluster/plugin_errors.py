"""Errors of plugins: exceptions they raise, and invalid answers.

An exception of a plugin never ends a round. The caller of the plugin notes it here and continues by the
rule of the extension point; for most extension points the pod is rejected with kube-scheduler's
message. Errors are counted for the metric, and logged once a round.
"""

import traceback
from collections import Counter
from typing import NamedTuple

from holdfast.api.errors import HoldfastError

RAISED = (Exception, SystemExit)
"""The exceptions that count as errors of the plugin; KeyboardInterrupt does not."""

_MAX_REPORTS = 100
"""The number of different errors that are logged per round; all errors are counted."""

_MESSAGES = {
    "Filter": 'running "{plugin}" filter plugin: {error}',
    "Score": 'running Score plugins: plugin "{plugin}" failed with: {error}',
    "NormalizeScore": 'running Normalize on Score plugins: plugin "{plugin}" failed with: {error}',
}
_USUAL = 'running {point} plugin "{plugin}": {error}'


class InvalidScore(HoldfastError):
    """A plugin returned a score outside the valid range."""

    def __init__(self, plugin: str, score: object, most: int) -> None:
        super().__init__(
            f'applying score defaultWeights on Score plugins: plugin "{plugin}" returns an invalid '
            f"score {score}, it should in the range of [0, {most}] after normalizing"
        )


class PluginReport(NamedTuple):
    """An error of a plugin, for the log."""

    plugin: str
    point: str
    message: str
    trace: str
    """The Python traceback."""


class PluginErrors:
    """The errors of all plugins, counted, and those not logged yet."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """How many errors a plugin had at an extension point."""
        self.round = 0
        """The number of the round: a plugin that failed in one is called again in the next."""
        self._reports: dict[tuple[str, str, str], PluginReport] = {}

    def note(self, plugin: str, point: str, error: BaseException) -> str:
        """Counts an error; returns the message for the pod's condition."""
        self.counts[plugin, point] += 1
        message = error_message(plugin, point, error)
        key = plugin, point, message
        if key not in self._reports and len(self._reports) < _MAX_REPORTS:
            trace = _printable("".join(traceback.format_exception(error)))
            self._reports[key] = PluginReport(plugin, point, message, trace)
        return message

    def take_reports(self) -> list[PluginReport]:
        """The errors to be logged since the last call, each different one once."""
        reports, self._reports = list(self._reports.values()), {}
        return reports


def error_message(plugin: str, point: str, error: BaseException) -> str:
    """The message kube-scheduler gives for an error of a plugin."""
    if isinstance(error, InvalidScore):
        return str(error)
    text = text_of(error).removeprefix(f"plugin {plugin} ")  # which the message names already
    return _MESSAGES.get(point, _USUAL).format(plugin=plugin, point=point, error=text)


def text_of(error: BaseException) -> str:
    """The text of an error, with its type unless it is Holdfast's own. Never raises, even if the
    error's own `__str__` does, and can be encoded as UTF-8."""
    text = words_of(error)
    return text if isinstance(error, HoldfastError) else f"{type(error).__name__}: {text}"


def words_of(error: BaseException) -> str:
    """The text of an error, without its type."""
    try:
        return _printable(str(error))
    except RAISED as another:
        return f"its text cannot be shown ({type(another).__name__})"


def _printable(text: str) -> str:
    """The text with lone surrogates escaped, which cannot be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()
