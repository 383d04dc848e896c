"""A life that goes wrong, made small: what is not needed for the same kind of violation goes.

Whole documents first, in halves, quarters and so on (delta debugging), then single fields, then the
configuration.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from mixtures.life import Life
from mixtures.making import Raw
from mixtures.playing import Outcome, play_documents

T = TypeVar("T")

_HANG_SECONDS = 1.5
_ATTEMPTS = 1500
_NEEDED = ("apiVersion", "kind", "name", "namespace", "containers", "template", "owners")
"""Fields without which there is no such object; that is found out sooner here."""


@dataclass
class Small:
    documents: list[Raw]
    config: Raw
    until: int
    outcome: Outcome
    attempts: int


class _Shrinking:
    def __init__(self, life: Life, kind: str) -> None:
        self.documents = copy.deepcopy(life.documents)
        self.config = copy.deepcopy(life.config)
        self.until = life.until
        self.kind = kind
        self.attempts = 0

    def still(self, documents: list[Raw], config: Raw) -> bool:
        """Whether these go wrong in the same way."""
        if self.attempts >= _ATTEMPTS:
            return False
        self.attempts += 1
        try:
            played = play_documents(documents, config, self.until, cpu_seconds=_HANG_SECONDS)
        except Exception:  # a configuration that is none any more
            return False
        return played.kind == self.kind


def shrink(life: Life, outcome: Outcome) -> Small:
    work = _Shrinking(life, outcome.kind)
    effective = [each for i, each in enumerate(work.documents) if i not in outcome.refused]
    if work.still(effective, work.config):
        work.documents = effective
    work.documents = _fewer(work.documents, lambda kept: work.still(kept, work.config))
    for part in ("profiles", "actions", "dynamicReservation"):
        less = {key: value for key, value in work.config.items() if key != part}
        if part in work.config and work.still(work.documents, less):
            work.config = less
    _without_fields(work)
    work.documents = _fewer(work.documents, lambda kept: work.still(kept, work.config))
    last = play_documents(work.documents, work.config, work.until, cpu_seconds=_HANG_SECONDS)
    kept = [each for i, each in enumerate(work.documents) if i not in last.refused]
    return Small(kept, work.config, work.until, last, work.attempts)


def _fewer(items: list[T], still: Callable[[list[T]], bool]) -> list[T]:
    size = max(1, len(items) // 2)
    while True:
        start, removed = 0, False
        while start < len(items):
            kept = items[:start] + items[start + size :]
            if kept and still(kept):
                items, removed = kept, True
            else:
                start += size
        if size == 1 and not removed:
            return items
        if not removed or size > 1:
            size = max(1, size // 2)


def _without_fields(work: _Shrinking) -> None:
    """Takes away every field that can be taken away, outermost first."""
    for i in range(len(work.documents)):
        tried: set[tuple[Any, ...]] = set()
        while True:
            path = next(
                (path for path in _paths(work.documents[i]) if path not in tried and path), None
            )
            if path is None:
                break
            tried.add(path)
            less = copy.deepcopy(work.documents[i])
            _remove(less, path)
            documents = [*work.documents[:i], less, *work.documents[i + 1 :]]
            if work.still(documents, work.config):
                work.documents = documents


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = [
            (key, each) for key, each in value.items() if key not in _NEEDED or at[-1:] == ("labels",)
        ]
        inner = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value)) if len(value) > 1 else []
        inner = list(enumerate(value))
    else:
        return
    for key, _ in children:
        yield (*at, key)
    for key, each in inner:
        yield from _paths(each, (*at, key))


def _remove(value: Any, path: tuple[Any, ...]) -> None:
    for key in path[:-1]:
        value = value[key]
    del value[path[-1]]


def write(small: Small, folder: Path, name: str, about: str) -> Path:
    """A scenario file, with its configuration beside it and the command in its header."""
    folder.mkdir(parents=True, exist_ok=True)
    scenario, config = folder / f"{name}.yaml", folder / f"{name}.config.yaml"
    config.write_text(yaml.safe_dump(small.config, sort_keys=False))
    header = [
        about,
        *small.outcome.problems[-3:],
        f"holdfast simulate {scenario.name} --config {config.name} --until {small.until}s --audit",
    ]
    lines = [f"# {line}" for text in header for line in text.splitlines()]
    body = "---\n".join(
        yaml.safe_dump(each, sort_keys=False, width=160, default_flow_style=None)
        for each in small.documents
    )
    scenario.write_text("\n".join(lines) + "\n" + body)
    return scenario
