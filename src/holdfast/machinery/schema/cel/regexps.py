"""Functions of CEL with regular expressions: `matches`, `find` and `findAll`.

`find` returns the match that Go's regexp prefers: the leftmost, and of those the one whose alternatives
come first in the pattern. All ways through the pattern are followed at once, in the order of
preference, so the time is linear in the text.
"""

from __future__ import annotations

from functools import lru_cache

from holdfast.machinery.schema.cel.overloads import (
    BOOL,
    INT,
    STRING,
    STRINGS,
    Functions,
    failed,
    function,
    method,
)
from holdfast.machinery.schema.custom.regexp import (
    BadPattern,
    Program,
    Regexp,
    TooCostly,
    compiled,
    edge,
    holds,
)

_MAX_STEPS = 2_000_000
_TOO_COSTLY = "operation cancelled: actual cost limit exceeded"


class _Finder:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._steps = 0

    def find(self, text: str, begin: int) -> tuple[int, int] | None:
        """Where the preferred match at or after a position starts and ends."""
        threads: list[tuple[int, int]] = []
        found: tuple[int, int] | None = None
        for at in range(begin, len(text) + 1):
            if found is None:
                threads.append((0, at))
            elif not threads:
                break
            before = edge(text[at - 1]) if at else "start"
            after = edge(text[at]) if at < len(text) else "end"
            threads, match = self._advanced(threads, before, after, text[at : at + 1], at)
            found = match or found
        return found

    def _advanced(
        self, threads: list[tuple[int, int]], before: str, after: str, char: str, at: int
    ) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
        """The threads after a character, in order of preference, and a match that ends before it;
        threads that are less preferred than the match are dropped."""
        program, seen = self._program, set[int]()
        following: list[tuple[int, int]] = []
        for first, start in threads:
            todo = [first]
            while todo:
                place = todo.pop()
                if place in seen:
                    continue
                seen.add(place)
                self._steps += 1
                if self._steps > _MAX_STEPS:
                    raise failed(_TOO_COSTLY)
                if place == len(program):
                    return following, (start, at)
                kind, one, other = program[place]
                if kind == "char":
                    if char and one(char):
                        following.append((place + 1, start))
                elif kind == "split":
                    todo += (place + other, place + one)
                elif kind == "jump":
                    todo.append(place + one)
                elif holds(one, before, after):
                    todo.append(place + 1)
        return following, None


@lru_cache(maxsize=256)
def _pattern(text: str) -> Regexp:
    try:
        return compiled(text)
    except BadPattern as error:
        raise failed(f"Illegal regex: {error}") from None


def _matches(text: str, pattern: str) -> bool:
    try:
        return compiled(pattern).search(text)
    except BadPattern as error:
        raise failed(str(error)) from None
    except TooCostly:
        raise failed(_TOO_COSTLY) from None


def _find(text: str, pattern: str) -> str:
    match = _Finder(_pattern(pattern).program).find(text, 0)
    return "" if match is None else text[match[0] : match[1]]


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    finder, at, last = _Finder(_pattern(pattern).program), 0, -1
    found: list[str] = []
    while at <= len(text) and (most < 0 or len(found) < most):
        match = finder.find(text, at)
        if match is None:
            break
        start, end = match
        if start < end or start != last:  # an empty match does not follow another match
            found.append(text[start:end])
        at, last = (end if end > start else end + 1), end
    return found


REGEXPS: Functions = {
    "matches": [
        method((STRING, STRING), BOOL, _matches),
        function((STRING, STRING), BOOL, _matches),
    ],
    "find": [method((STRING, STRING), STRING, _find)],
    "findAll": [
        method((STRING, STRING), STRINGS, _find_all),
        method((STRING, STRING, INT), STRINGS, _find_all),
    ],
}
