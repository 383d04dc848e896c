"""What plugins got wrong: exceptions they raised, and answers that are none.

Nothing a plugin raises ends a round. Whoever calls it notes the error here and goes on by the rule of
the extension point, which for most of them is that the pod is rejected with the message that
kube-scheduler would give it. Errors are counted for the metric, and reported once a round for the log.
"""

import traceback
from collections import Counter
from typing import NamedTuple

from holdfast.api.errors import HoldfastError

RAISED = (Exception, SystemExit)
"""What counts as an error of the plugin that raised it. An interrupt from the keyboard does not."""

_MOST_REPORTS = 100
"""So many different errors are reported at a time; all of them count."""

_SAID = {
    "Filter": 'running "{plugin}" filter plugin: {error}',
    "Score": 'running Score plugins: plugin "{plugin}" failed with: {error}',
    "NormalizeScore": 'running Normalize on Score plugins: plugin "{plugin}" failed with: {error}',
}
_USUAL = 'running {point} plugin "{plugin}": {error}'


class InvalidScore(HoldfastError):
    """A score outside the range that scores must be in."""

    def __init__(self, plugin: str, score: object, most: int) -> None:
        super().__init__(
            f'applying score defaultWeights on Score plugins: plugin "{plugin}" returns an invalid '
            f"score {score}, it should in the range of [0, {most}] after normalizing"
        )


class PluginReport(NamedTuple):
    plugin: str
    point: str
    message: str
    trace: str
    """As Python shows it."""


class PluginErrors:
    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """How often a plugin failed at an extension point."""
        self.round = 0
        """Moves with every round: what failed in one is tried again in the next."""
        self._reports: dict[tuple[str, str, str], PluginReport] = {}

    def note(self, plugin: str, point: str, error: BaseException) -> str:
        """Takes note of an error; the message for whom it concerns."""
        self.counts[plugin, point] += 1
        message = said(plugin, point, error)
        key = plugin, point, message
        if key not in self._reports and len(self._reports) < _MOST_REPORTS:
            trace = _printable("".join(traceback.format_exception(error)))
            self._reports[key] = PluginReport(plugin, point, message, trace)
        return message

    def take_reports(self) -> list[PluginReport]:
        """What there is for the log since last asked, each different error once."""
        reports, self._reports = list(self._reports.values()), {}
        return reports


def said(plugin: str, point: str, error: BaseException) -> str:
    """The message in kube-scheduler's words."""
    if isinstance(error, InvalidScore):
        return str(error)
    return _SAID.get(point, _USUAL).format(plugin=plugin, point=point, error=text_of(error))


def text_of(error: BaseException) -> str:
    """What an error says, whoever wrote it: it can be written, and asking for it never raises."""
    text = words_of(error)
    return text if isinstance(error, HoldfastError) else f"{type(error).__name__}: {text}"


def words_of(error: BaseException) -> str:
    """The same without its type."""
    try:
        return _printable(str(error))
    except RAISED as another:
        return f"its text cannot be shown ({type(another).__name__})"


def _printable(text: str) -> str:
    """The same text, with what is no character (half of a pair) in the way of Python's source."""
    return text.encode("utf-8", "backslashreplace").decode()
