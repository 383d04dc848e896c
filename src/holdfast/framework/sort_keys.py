"""Sort keys, which are worked out without fail; those of plugins from outside are compared so, too.

The queue is sorted by keys all the time, and in no order at all if one of them cannot be worked out or
compared. Where that is so, pods stand as they came.
"""

from collections.abc import Callable
from functools import total_ordering
from typing import Any

from holdfast.core.plugin_errors import RAISED, PluginErrors
from holdfast.core.pods import PodRecord
from holdfast.framework.interface import Plugin

SortKey = Callable[[PodRecord], tuple[Any, ...]]


@total_ordering
class _Key:
    __slots__ = ("_key", "_note", "_since")

    def __init__(self, key: Any, since: float, note: Callable[[BaseException], object]) -> None:
        self._key = key
        self._since = since
        self._note = note

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and not self < other and not other < self

    def __lt__(self, other: "_Key") -> bool:
        if self._key is not None and other._key is not None:
            try:
                return bool(self._key < other._key)
            except RAISED as error:
                self._note(error)
        return self._since < other._since


def checked_sort_key(plugin: Plugin, errors: PluginErrors) -> SortKey:
    def note(error: BaseException) -> None:
        errors.note(plugin.name, "QueueSort", error)

    def sort_key(pod: PodRecord) -> tuple[Any, ...]:
        try:
            key = tuple(plugin.sort_key(pod))
        except RAISED as error:
            note(error)
            key = None
        return (_Key(key, pod.first_seen, note),)

    return sort_key


def guarded_sort_key(plugin: Plugin, errors: PluginErrors) -> SortKey:
    """That of one of Holdfast's own plugins, whose keys can be compared."""

    def sort_key(pod: PodRecord) -> tuple[Any, ...]:
        try:
            return plugin.sort_key(pod)
        except RAISED as error:
            errors.note(plugin.name, "QueueSort", error)
            return (-pod.cls.priority, pod.first_seen, pod.namespace, pod.name)

    return sort_key
