"""Collecting complaints, so that a user sees all of them at once and not one per try."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from holdfast.api.errors import InvalidObject, MalformedText


class ErrorList:
    """Complaints about one object, in the order they were found."""

    def __init__(self, object: str) -> None:
        self.object = object
        self.errors: list[InvalidObject] = []

    def add(self, path: str, message: str) -> None:
        self.errors.append(InvalidObject(self.object, path, message))

    def check(self, path: str, problem: str) -> None:
        """Record what a checker of `syntax` answers, unless it answers "nothing"."""
        if problem:
            self.add(path, problem)

    def one_of(self, path: str, value: str, allowed: Collection[str]) -> None:
        if value not in allowed:
            self.add(path, f"unknown value {value!r}; known: {', '.join(filter(None, allowed))}")

    def within(self, path: str, value: int | None, low: int, high: int) -> None:
        if value is not None and not low <= value <= high:
            self.add(path, f"must be between {low} and {high}, not {value}")

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Turn errors raised inside into findings at this path."""
        try:
            yield
        except MalformedText as error:
            self.add(path, str(error))
        except InvalidObject as error:
            self.errors.append(error.within(self.object, path))
