"""Read-only proxies of pod classes and pods for third-party plugins.

A third-party plugin is called with proxies, which read from the real record and raise when they are
written to: a plugin that writes fails by name, and the scheduler's state does not change. In-tree
plugins are called with the records themselves, which costs nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.read_only import read_only
from holdfast.scheduler.cluster.records import PodRecord

_set = object.__setattr__


class ReadOnlyClass(PodClass):
    """A proxy of a pod class. Its own slots are empty, so every attribute is read from the real one."""

    __slots__ = ("_real",)
    _real: PodClass

    def __init__(self, real: PodClass) -> None:
        _set(self, "_real", real)

    def __getattr__(self, name: str) -> Any:
        return read_only(getattr(self._real, name))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise TypeError(f"{name} cannot be set: a class of pods is read-only to plugins")

    def __delattr__(self, name: str) -> NoReturn:
        raise TypeError(f"{name} cannot be deleted: a class of pods is read-only to plugins")

    def __eq__(self, other: object) -> bool:
        return other is self._real or (isinstance(other, ReadOnlyClass) and other._real is self._real)

    def __hash__(self) -> int:
        return hash(self._real)


class ReadOnlyPod(PodRecord):
    """A proxy of a pod, made in the same way."""

    __slots__ = ("_real",)
    _real: PodRecord

    def __init__(self, real: PodRecord) -> None:
        _set(self, "_real", real)

    def __getattr__(self, name: str) -> Any:
        return shown(read_only(getattr(self._real, name)))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise TypeError(f"{name} cannot be set: a pod is read-only to plugins")

    def __delattr__(self, name: str) -> NoReturn:
        raise TypeError(f"{name} cannot be deleted: a pod is read-only to plugins")

    def __eq__(self, other: object) -> bool:
        return other is self._real or (isinstance(other, ReadOnlyPod) and other._real is self._real)

    def __hash__(self) -> int:
        return hash(self._real)


def shown(thing: Any) -> Any:
    """The proxy of a class or pod; other values as they are."""
    if isinstance(thing, PodClass):
        return thing if isinstance(thing, ReadOnlyClass) else ReadOnlyClass(thing)
    if isinstance(thing, PodRecord):
        return thing if isinstance(thing, ReadOnlyPod) else ReadOnlyPod(thing)
    return thing


def real(thing: Any) -> Any:
    """The record behind a proxy; other values as they are."""
    return thing._real if isinstance(thing, ReadOnlyClass | ReadOnlyPod) else thing


def shown_pods(pods: Iterable[PodRecord]) -> list[PodRecord]:
    return [shown(pod) for pod in pods]


class ReadOnlyDryRun:
    """A dry run that takes and returns proxies of pods."""

    def __init__(self, dry_run: Any) -> None:
        self._dry_run = dry_run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dry_run, name)

    def victims(self, row: int, pods: Iterable[Any], spared_first: Callable[[Any], Any]) -> Any:
        return _answered(self._dry_run.victims(row, _real_pods(pods), _ordered(spared_first)))

    def reservation_uid(self, row: int, victims: Iterable[Any]) -> Any:
        return self._dry_run.reservation_uid(row, _real_pods(victims))

    def reservations_to_go(
        self,
        row: int,
        reserving: Iterable[Any],
        gone: Iterable[Any],
        spared_first: Callable[[Any], Any],
    ) -> Any:
        order = _ordered(spared_first)
        found = self._dry_run.reservations_to_go(row, _real_pods(reserving), _real_pods(gone), order)
        return _answered(found)

    def of(self, pod: Any) -> tuple[int, Any]:
        row, dry_run = self._dry_run.of(real(pod))
        return row, ReadOnlyDryRun(dry_run)


def _real_pods(pods: Iterable[Any]) -> list[Any]:
    return [real(pod) for pod in pods]


def _ordered(order: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda pods: _real_pods(order(shown_pods(pods)))


def _answered(found: Any) -> Any:
    """Victims as proxies, or reasons as they are."""
    return shown_pods(found) if isinstance(found, list) else found


def call_with_read_only(plugin: Any, methods: Iterable[str]) -> None:
    """Wraps these methods of the plugin so that they are called with proxies."""
    for name in methods:
        setattr(plugin, name, _wrapped(getattr(plugin, name), name == "post_filter"))


def _wrapped(method: Callable[..., Any], proposes: bool) -> Callable[..., Any]:
    def called(about: Any, *more: Any) -> Any:
        if not proposes:
            return method(shown(about), *more)
        (dry_run,) = more
        return _proposed(method(shown(about), ReadOnlyDryRun(dry_run)))

    return called


def _proposed(nomination: Any) -> Any:
    """The nomination, with placements of the real pods. Other answers are returned as they are, and
    checked elsewhere."""
    placed = getattr(nomination, "reserve_pods", ())
    if not placed or not isinstance(placed, list | tuple):
        return nomination
    meant = (each._replace(pod=real(each.pod)) if hasattr(each, "pod") else each for each in placed)
    return nomination._replace(reserve_pods=tuple(meant))
