"""Regular expressions as Go has them, matched in time linear in the text.

Schemas are written for Go's `regexp`: RE2 syntax, without backreferences and lookaround. Python's `re`
has other syntax and, for expressions such as `(a+)+$`, takes time exponential in the text. So the
syntax is parsed here, refused in Go's words, and matched as an automaton whose states are made when
first reached:

    text ─► Parser ─► program (instructions with relative targets) ─► Automaton ─► does it match?

A program is a list, so that `x{3}` is three times the list of `x`. Nothing here recurses.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from holdfast.api.errors import HoldfastError

MAX_REPEAT = 1_000
MAX_NESTING = 1_000
MAX_PROGRAM = 20_000
_MAX_STEPS = 2_000_000
_MAX_KEPT = 20_000
"""Transitions remembered; then the automaton is built again."""

Test = Callable[[str], bool]
Instruction = tuple[str, Any, int]
"""`char` with a test, `assert` with its name, `split` and `jump` with targets relative to their own."""
Program = list[Instruction]

_WORD = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")
_PERL = {"d": "0-9", "s": "\t\n\f\r ", "w": "0-9A-Za-z_"}
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\x00-\x7f",
    "blank": "\t ",
    "cntrl": "\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@[-`{-~",
    "space": "\t-\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_CATEGORY = re.compile(r"C[cfnos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
_SCRIPTS = {
    "Arabic": "ARABIC ",
    "Armenian": "ARMENIAN ",
    "Cyrillic": "CYRILLIC ",
    "Devanagari": "DEVANAGARI ",
    "Georgian": "GEORGIAN ",
    "Greek": "GREEK ",
    "Han": "CJK ",
    "Hangul": "HANGUL ",
    "Hebrew": "HEBREW ",
    "Hiragana": "HIRAGANA ",
    "Katakana": "KATAKANA ",
    "Latin": "LATIN ",
    "Thai": "THAI ",
}
_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REPEAT = re.compile(r"\{(\d+)(,(\d*))?\}", re.ASCII)
_GROUP_NAME = re.compile(r"\(\?P?<\w+>", re.ASCII)
_FLAGS = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])", re.ASCII)


class BadPattern(HoldfastError, ValueError):
    """An invalid pattern, with Go's message."""

    def __init__(self, why: str, part: str = "") -> None:
        super().__init__(f"error parsing regexp: {why}" + (f": `{part}`" if part else ""))


class TooCostly(HoldfastError):
    """Matching takes more steps than a request may."""


class Chars:
    """A set of characters: ranges and properties."""

    def __init__(self, negated: bool = False) -> None:
        self.negated = negated
        self._ranges: list[tuple[str, str]] = []
        self._tests: list[Test] = []

    def add(self, first: str, last: str) -> None:
        self._ranges.append((first, last))

    def add_all(self, text: str) -> None:
        """`a-z_`, without signs to be escaped."""
        i = 0
        while i < len(text):
            if text[i + 1 : i + 2] == "-" and i + 2 < len(text):
                self.add(text[i], text[i + 2])
                i += 3
            else:
                self.add(text[i], text[i])
                i += 1

    def add_test(self, test: Test) -> None:
        self._tests.append(test)

    def test(self, fold: bool) -> Test:
        ranges, tests, negated = tuple(self._ranges), tuple(self._tests), self.negated

        def has(char: str) -> bool:
            for first, last in ranges:
                if first <= char <= last:
                    return True
            return any(test(char) for test in tests)

        def holds(char: str) -> bool:
            found = has(char)
            if fold and not found:
                found = any(len(other) == 1 and has(other) for other in (char.lower(), char.upper()))
            return found != negated

        return holds


class _Group(NamedTuple):
    """The state before an open parenthesis."""

    start: int
    flags: frozenset[str]
    branches: list[Program]
    parts: list[Program]
    repeats: list[int]


def _alternatives(branches: list[Program]) -> Program:
    program: Program = []
    left = sum(len(branch) + 2 for branch in branches) - 2
    for branch in branches[:-1]:
        left -= len(branch) + 2
        program += [("split", 1, len(branch) + 2), *branch, ("jump", left + 1, 0)]
    return program + branches[-1]


def _repeated(program: Program, least: int, most: int | None, lazy: bool) -> Program:
    """The first target of a `split` is the one that is preferred: to go on, or to stop if `lazy`."""
    once = len(program)
    result = program * least
    if most is None:
        targets = (once + 2, 1) if lazy else (1, once + 2)
        return [*result, ("split", *targets), *program, ("jump", -(once + 1), 0)]
    # To stop is to leave out all that are left.
    for left in range(most - least, 0, -1):
        rest = left * (once + 1)
        result += [("split", *((rest, 1) if lazy else (1, rest))), *program]
    return result


class Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        self._groups: list[_Group] = []
        self._branches: list[Program] = []
        self._parts: list[Program] = []
        """Of the branch being read, each the program of one item."""
        self._repeats: list[int] = []
        """How often the item is repeated within itself, which repetitions multiply."""
        self._size = 0

    def program(self) -> Program:
        text = self._text
        while self._at < len(text):
            self._item(text[self._at])
        if self._groups:
            raise BadPattern("missing closing )", text)
        program, _ = self._joined()
        return program

    def _item(self, char: str) -> None:
        text, at = self._text, self._at
        if char == "(":
            self._open()
        elif char == ")":
            self._close()
        elif char == "|":
            self._at += 1
            self._branches.append([one for part in self._parts for one in part])
            self._parts = []
            self._repeats.append(1)
        elif char in "*+?" or (char == "{" and _REPEAT.match(text, at)):
            self._repetition(char)
        elif char == "[":
            self._put(self._class())
        elif char == "\\":
            self._escape()
        else:
            self._at += 1
            if char == ".":
                any_char = "s" in self._flags
                self._put(lambda each: any_char or each != "\n")
            elif char == "^":
                self._assert("line start" if "m" in self._flags else "text start")
            elif char == "$":
                self._assert("line end" if "m" in self._flags else "text end")
            else:
                self._literal(char)

    # Groups

    def _open(self) -> None:
        text, at = self._text, self._at
        if len(self._groups) >= MAX_NESTING:
            raise BadPattern("expression nests too deeply", text)
        flags = self._flags
        if text.startswith("(?", at):
            name = _GROUP_NAME.match(text, at)
            if name is not None:
                self._at = name.end()
            else:
                match = _FLAGS.match(text, at)
                if match is None or (match[1] == match[2] == "" and match[3] == ")"):
                    raise self._perl(at)
                flags = (flags | set(match[1])) - set((match[2] or "")[1:])
                self._at = match.end()
                if match[3] == ")":
                    self._flags = flags
                    return
        else:
            self._at += 1
        self._groups.append(_Group(at, self._flags, self._branches, self._parts, self._repeats))
        self._flags, self._branches, self._parts, self._repeats = flags, [], [], []

    def _perl(self, at: int) -> BadPattern:
        text = self._text
        if text.startswith(("(?P<", "(?<"), at):
            end = text.find(">", at) + 1
            return BadPattern("invalid named capture", text[at:end] if end else text[at:])
        end = at + 2
        while end < len(text) and text[end] in "imsU-":
            end += 1
        if end >= len(text):
            return BadPattern("missing closing )", text)
        return BadPattern("invalid or unsupported Perl syntax", text[at : end + 1])

    def _close(self) -> None:
        if not self._groups:
            raise BadPattern("unexpected )", self._text)
        self._at += 1
        program, repeats = self._joined()
        group = self._groups.pop()
        self._flags, self._branches = group.flags, group.branches
        self._parts, self._repeats = group.parts, group.repeats
        self._parts.append(program)
        self._repeats.append(repeats)

    def _joined(self) -> tuple[Program, int]:
        branches = [*self._branches, [one for part in self._parts for one in part]]
        program = _alternatives(branches)
        self._grown(2 * len(branches))
        return program, max(self._repeats, default=1)

    # Repetition

    def _repetition(self, char: str) -> None:
        text, at = self._text, self._at
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(char, (0, None))
        end, counts = at + 1, 1
        if char == "{":
            match = _REPEAT.match(text, at)
            assert match is not None
            end = match.end()
            least = int(match[1][:5])
            most = least if match[2] is None else int(match[3][:5]) if match[3] else None
            counts = max(least, most or 0, 1)
            if counts > MAX_REPEAT or (most is not None and most < least):
                raise BadPattern("invalid repeat count", match[0])
        lazy = text[end : end + 1] == "?"
        end += lazy
        operator = text[at:end]
        if not self._parts:
            raise BadPattern("missing argument to repetition operator", operator)
        if self._last_operator == at:
            raise BadPattern("invalid nested repetition operator", f"{self._operator}{operator}")
        program = self._parts[-1]
        repeats = self._repeats[-1] * counts
        if repeats > MAX_REPEAT:
            raise BadPattern("invalid repeat count", operator)
        self._grown((len(program) + 1) * counts)
        self._parts[-1] = _repeated(program, least, most, lazy != ("U" in self._flags))
        self._repeats[-1] = repeats
        self._at = self._last_operator = end
        self._operator = operator

    _last_operator = -1
    _operator = ""

    # Single characters

    def _put(self, test: Test) -> None:
        self._part([("char", test, 0)])

    def _assert(self, name: str) -> None:
        self._part([("assert", name, 0)])

    def _part(self, program: Program) -> None:
        self._grown(len(program))
        self._parts.append(program)
        self._repeats.append(1)

    def _grown(self, by: int) -> None:
        self._size += by
        if self._size > MAX_PROGRAM:
            raise BadPattern("expression too large", self._text[:256])

    def _literal(self, char: str) -> None:
        if "i" in self._flags:
            chars = Chars()
            for each in (char, char.lower(), char.upper()):
                if len(each) == 1:
                    chars.add(each, each)
            self._put(chars.test(fold=True))
        else:
            self._put(lambda each: each == char)

    def _escape(self) -> None:
        text, at = self._text, self._at
        kind = text[at + 1 : at + 2]
        if kind == "A" or kind == "z":
            self._at += 2
            self._assert("text start" if kind == "A" else "text end")
        elif kind in ("b", "B"):
            self._at += 2
            self._assert("word edge" if kind == "b" else "no word edge")
        elif kind == "Q":
            quoted, _, _ = text[at + 2 :].partition("\\E")
            self._at = min(at + 4 + len(quoted), len(text))
            for char in quoted:
                self._literal(char)
        else:
            chars = Chars()
            if self._property(chars):
                self._put(chars.test("i" in self._flags))
            else:
                self._literal(self._escaped())

    def _property(self, chars: Chars) -> bool:
        """Takes a class that an escape stands for, if one is next: `\\d`, `\\PL`, `\\p{Greek}`."""
        text, at = self._text, self._at
        kind = text[at + 1 : at + 2]
        if kind.lower() in _PERL and kind:
            self._at += 2
            if kind.islower():
                chars.add_all(_PERL[kind])
            else:
                inner = Chars(negated=True)
                inner.add_all(_PERL[kind.lower()])
                chars.add_test(inner.test(fold=False))
            return True
        if kind not in ("p", "P"):
            return False
        if text[at + 2 : at + 3] == "{":
            end = text.find("}", at)
            if end < 0:
                raise BadPattern("invalid character class range", text[at:])
            name, end = text[at + 3 : end], end + 1
        else:
            name, end = text[at + 2 : at + 3], at + 3
        negated = (kind == "P") != name.startswith("^")
        test = _property(name.removeprefix("^"))
        if test is None:
            raise BadPattern("invalid character class range", text[at:end])
        self._at = end
        chars.add_test((lambda char: not test(char)) if negated else test)
        return True

    def _escaped(self) -> str:
        """The character an escape stands for."""
        text, at = self._text, self._at
        if at + 1 >= len(text):
            raise BadPattern("trailing backslash at end of expression")
        kind = text[at + 1]
        self._at += 2
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        octal = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}").match(text, at + 1)
        if octal is not None:
            self._at = octal.end()
            return chr(int(octal[0], 8))
        if kind == "x":
            code = re.compile(r"([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\}").match(text, at + 2)
            number = int((code[1] or code[2])[:8], 16) if code is not None else 0x110000
            if code is None or number > 0x10FFFF:
                raise BadPattern("invalid escape sequence", text[at : code.end() if code else at + 3])
            self._at = code.end()
            return chr(number)
        if not kind.isascii() or kind.isalnum() or kind == "_":
            raise BadPattern("invalid escape sequence", text[at : at + 2])
        return kind

    # Classes

    def _class(self) -> Test:
        text, start = self._text, self._at
        self._at += 1
        chars = Chars(negated=text.startswith("^", self._at))
        self._at += chars.negated
        first = True
        while first or not text.startswith("]", self._at):
            if self._at >= len(text):
                raise BadPattern("missing closing ]", text[start:])
            self._range(chars, start, first)
            first = False
        self._at += 1
        return chars.test("i" in self._flags)

    def _range(self, chars: Chars, start: int, first: bool) -> None:
        text, at = self._text, self._at
        if text.startswith("-", at) and not first and text[at + 1 : at + 2] not in ("]", ""):
            raise BadPattern("invalid character class range", text[at : at + 2])
        if text.startswith("[:", at):
            end = text.find(":]", at + 2)
            if end >= 0:
                name = text[at + 2 : end]
                members = _POSIX.get(name.removeprefix("^"))
                if members is None:
                    raise BadPattern("invalid character class range", text[at : end + 2])
                inner = Chars(negated=name.startswith("^"))
                inner.add_all(members)
                chars.add_test(inner.test(fold=False))
                self._at = end + 2
                return
        if text.startswith("\\", at) and self._property(chars):
            return
        low = high = self._member(start)
        if text.startswith("-", self._at) and text[self._at + 1 : self._at + 2] not in ("]", ""):
            self._at += 1
            high = self._member(start)
            if high < low:
                raise BadPattern("invalid character class range", text[at : self._at])
        chars.add(low, high)

    def _member(self, start: int) -> str:
        text = self._text
        if self._at >= len(text):
            raise BadPattern("missing closing ]", text[start:])
        if text[self._at] == "\\":
            return self._escaped()
        self._at += 1
        return text[self._at - 1]


def _property(name: str) -> Test | None:
    if name == "Any":
        return lambda char: True
    if _CATEGORY.fullmatch(name):
        return lambda char: unicodedata.category(char).startswith(name)
    begins = _SCRIPTS.get(name)
    if begins is None:
        return None
    return lambda char: unicodedata.name(char, "").startswith(begins)


class _State:
    """A state of the automaton: the next instructions, and the previous character."""

    __slots__ = ("before", "ends", "next", "starts")

    def __init__(self, starts: tuple[int, ...], before: str) -> None:
        self.starts = starts
        self.before = before
        self.next: dict[str, _State | None] = {}
        """By character; None is a match."""
        self.ends: bool | None = None
        """Whether the text may end here."""


_MATCHED: Any = None
_UNKNOWN: Any = object()


class Regexp:
    """One expression. `size` is the length of its program, which each character may cost."""

    def __init__(self, text: str) -> None:
        self.program = Parser(text).program()
        self.size = len(self.program)
        self._known: dict[tuple[tuple[int, ...], str], _State] = {}
        self._kept = 0

    def search(self, text: str) -> bool:
        """Whether any part of the text matches. Raises TooCostly."""
        budget = _MAX_STEPS
        state = self._state((0,), "start")
        for char in text:
            following = state.next.get(char, _UNKNOWN)
            if following is _UNKNOWN:
                following, cost = self._step(state, char)
                budget -= cost
                if budget < 0:
                    raise TooCostly
                state.next[char] = following
            if following is _MATCHED:
                return True
            state = following
        if state.ends is None:
            _, state.ends, _ = self._closure(state, "end")
        return state.ends

    def _state(self, starts: tuple[int, ...], before: str) -> _State:
        key = (starts, before)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _State(starts, before)
        return found

    def _step(self, state: _State, char: str) -> tuple[_State | None, int]:
        """The state after a character, None for a match; and what it cost to find."""
        waiting, matched, cost = self._closure(state, edge(char))
        if matched:
            return _MATCHED, cost
        self._kept += 1
        if self._kept > _MAX_KEPT:
            self._known.clear()
            self._kept = 0
        program = self.program
        after = {at + 1 for at in waiting if program[at][1](char)}
        after.add(0)  # a match may begin anywhere
        return self._state(tuple(sorted(after)), edge(char)), cost

    def _closure(self, state: _State, after: str) -> tuple[list[int], bool, int]:
        """The characters waited for next, whether the end of the program is reached, and how many
        instructions that took."""
        program = self.program
        seen: set[int] = set()
        waiting: list[int] = []
        todo = list(state.starts)
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            if at == len(program):
                return waiting, True, len(seen)
            kind, first, second = program[at]
            if kind == "char":
                waiting.append(at)
            elif kind == "split":
                todo += (at + first, at + second)
            elif kind == "jump":
                todo.append(at + first)
            elif holds(first, state.before, after):
                todo.append(at + 1)
        return waiting, False, len(seen)


def edge(char: str) -> str:
    return "line" if char == "\n" else "word" if char in _WORD else "other"


def holds(name: str, before: str, after: str) -> bool:
    match name:
        case "text start":
            return before == "start"
        case "text end":
            return after == "end"
        case "line start":
            return before in ("start", "line")
        case "line end":
            return after in ("end", "line")
        case _:
            return ((before == "word") != (after == "word")) == (name == "word edge")


@lru_cache(maxsize=512)
def compiled(text: str) -> Regexp:
    """Raises BadPattern."""
    return Regexp(text)
