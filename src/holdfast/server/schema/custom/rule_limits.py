"""Limits on rules in the Common Expression Language, checked before the library sees a rule.

The library parses and evaluates by recursion in native code: an expression that is too deep ends the
process rather than the request. So the text is scanned first, without recursion, for a bound on its
depth, and for how deep its macros over lists and maps are nested, which bounds what evaluating costs.
Limits and words are those of cel-go and of the API server, which have the same two.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

MAX_CODE_POINTS = 100_000
MAX_DEPTH = 250
MAX_LINKS = 1_000
"""Of `&&` and `||` in a row. cel-go balances such chains; the library descends along them."""
MAX_OPERATORS = 4_000
"""In all, wherever they are: a bound that holds however the library reads a text."""
MAX_RULES = 2_000
"""In one schema: each is compiled, and evaluated on every write."""
CALL_BUDGET = 250_000
"""Iterations of macros one evaluation may take: a few tenths of a second."""
BUDGET = 10 * CALL_BUDGET
"""Iterations all evaluations on one object may take."""
_COPY = 64
"""`map` and `filter` copy what they have so far in every iteration: so many items cost as one more."""
_TEXT = 1_024
"""So many characters cost as one more iteration."""

_TOKEN = re.compile(
    r"""
    \s+ | //[^\n]*
  | (?P<raw>[bB]?[rR][bB]?(?:\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|"[^"\n]*"?|'[^'\n]*'?))
  | (?P<text>[bB]?(?:\"{3}(?:[^\\]|\\.)*?(?:\"{3}|\Z)|'{3}(?:[^\\]|\\.)*?(?:'{3}|\Z)
        |"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?))
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[uU]?)
  | (?P<sign>&&|\|\||==|!=|<=|>=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_RELATIONS = frozenset(("==", "!=", "<", "<=", ">", ">=", "in"))
_SUMS = frozenset("+-*/%")
_BEFORE_OPERAND = (
    _RELATIONS | _SUMS | frozenset(("", "(", "[", "{", ",", "?", ":", "&&", "||", "!", "."))
)
_OPERATOR = re.compile(r"[-+*/%.<>=!&|?:(\[{]")
_LOOPS = frozenset(("all", "exists", "exists_one", "existsOne"))
_COPIES = frozenset(("map", "filter", "transformList", "transformMap"))


_FAILED = "compilation failed: ERROR: <input>:-1:0: "
_TOO_DEEP = f"{_FAILED}expression recursion limit exceeded: {MAX_DEPTH}"


class Nesting(NamedTuple):
    """How many macros enclose each other at most."""

    loops: int = 0
    copies: int = 0

    @property
    def order(self) -> int:
        return self.loops + 2 * self.copies


class Scan(NamedTuple):
    problem: str
    """Why the library must not see the text; empty if it may."""
    nesting: Nesting


class _Frame:
    """What is open in one pair of brackets: how long each chain is that leads to where we are."""

    __slots__ = ("calc", "choices", "links", "member", "nesting", "relations")

    def __init__(self, nesting: Nesting) -> None:
        self.nesting = nesting
        self.links = self.choices = self.relations = self.calc = self.member = 0

    @property
    def depth(self) -> int:
        return 1 + self.choices + self.relations + self.calc + self.member


@lru_cache(maxsize=2048)
def scan(text: str) -> Scan:
    """What is known of a rule from its text alone."""
    if len(text) > MAX_CODE_POINTS:
        why = f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_CODE_POINTS}"
        return Scan(f"{_FAILED}{why}", Nesting())
    if len(_OPERATOR.findall(text)) > MAX_OPERATORS:
        return Scan(_TOO_DEEP, Nesting())
    frames = [_Frame(Nesting())]
    outer_depth = outer_links = 0
    worst = Nesting()
    before = last = ""
    for token in _TOKEN.finditer(text):
        if token.lastgroup is None:
            continue
        word = token[0]
        top = frames[-1]
        after_operand = last not in _BEFORE_OPERAND
        if token.lastgroup != "sign" and word != "in":
            pass
        elif word in "([{":
            nesting = top.nesting
            if word == "(" and before == "." and last in _LOOPS:
                nesting = nesting._replace(loops=nesting.loops + 1)
            elif word == "(" and before == "." and last in _COPIES:
                nesting = nesting._replace(copies=nesting.copies + 1)
            worst = max(worst, nesting, key=_order)
            top.member += after_operand
            outer_depth += top.depth
            outer_links += top.links
            frames.append(_Frame(nesting))
        elif word in ")]}":
            if len(frames) > 1:
                frames.pop()
                outer_depth -= frames[-1].depth
                outer_links -= frames[-1].links
        elif word == ",":
            frames[-1] = _Frame(top.nesting)
        elif word == ".":
            top.member += 1
        elif word in ("&&", "||"):
            top.links += 1
            top.relations = top.calc = top.member = 0
        elif word in "?:":
            top.choices += 1
            top.relations = top.calc = top.member = 0
        elif word in _RELATIONS:
            top.relations += 1
            top.calc = top.member = 0
        elif word in _SUMS and after_operand:
            top.calc += 1
            top.member = 0
        elif word in "!-":
            top.member += 1
        top = frames[-1]
        if outer_depth + top.depth > MAX_DEPTH or outer_links + top.links > MAX_LINKS:
            return Scan(_TOO_DEEP, worst)
        before, last = last, word
    return Scan("", worst)


def _order(nesting: Nesting) -> int:
    return nesting.order


def cost(nesting: Nesting, variables: dict[str, Any]) -> float:
    """How many iterations evaluating a rule on these values may take."""
    if not nesting.order:
        return 0.0
    items, longest = _extent(variables)
    copy = items * (1 + items / _COPY)
    iterations = float(items) ** nesting.loops * copy**nesting.copies
    return iterations * (1 + longest / _TEXT)


def _extent(value: Any) -> tuple[int, int]:
    """The size of the largest list or map in a value, and the length of the longest text."""
    items = longest = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if one.__class__ is str:
            longest = max(longest, len(one))
        elif one.__class__ is dict:
            items = max(items, len(one))
            waiting.extend(one.values())
        elif one.__class__ is list:
            items = max(items, len(one))
            waiting.extend(one)
    return items, longest
