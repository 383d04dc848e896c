"""The syntax of CEL: text to a tree.

Numbers, operators and macros are those of cel-go with optional values and `cel.bind`. The parser
descends recursively, so it limits the depth of an expression; chains of `&&` and `||` are one node of
any length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.api.errors import MalformedText

MAX_DEPTH = 50
"""How deep brackets, conditions and calls may enclose each other. cel-go allows 250, for which Python's
stack does not suffice."""
MAX_LINKS = 150
"""How many operators of a chain of sums, products or comparisons may follow each other."""
MAX_INT, MIN_INT = 2**63 - 1, -(2**63)
MAX_UINT = 2**64 - 1
_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">=", "in"))
_RESERVED = frozenset(
    """as break const continue else for function if import let loop package namespace return var void
    while""".split()
)
_LOOPS = {
    "all": (1, 2),
    "exists": (1, 2),
    "exists_one": (1, 2),
    "existsOne": (1, 2),
    "map": (1,),
    "filter": (1,),
    "sortBy": (1,),
    "optMap": (1,),
    "optFlatMap": (1,),
    "transformList": (2,),
    "transformMap": (2,),
    "transformMapEntry": (2,),
}
"""Macros with the numbers of variables that they can have."""
_FILTERED = frozenset(("map", "transformList", "transformMap", "transformMapEntry"))
"""Macros that may have a condition before the last argument."""
QUALIFIED = frozenset(
    """optional.of optional.none optional.ofNonZeroValue optional.unwrap sets.contains sets.intersects
    sets.equivalent strings.quote lists.range ip.isCanonical format.named format.dns1123Label
    format.dns1123Subdomain format.dns1035Label format.qualifiedName format.dns1123LabelPrefix
    format.dns1123SubdomainPrefix format.dns1035LabelPrefix format.labelValue format.uri format.uuid
    format.byte format.date format.datetime""".split()
)
"""Functions whose names have a dot."""

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*)
  | (?P<text>[bB]?[rR]?[bB]?(?:\"{3}|'{3}|["']))
  | (?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][-+]?\d+)?[uU]?)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{sign: sign for sign in "\\?\"'`"},
}
_ESCAPED = re.compile(
    r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)


class CelSyntaxError(MalformedText):
    """An expression that is no CEL, with the place of the problem."""

    def __init__(self, text: str, at: int, why: str) -> None:
        line = text.count("\n", 0, at) + 1
        start = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        source = text[start : len(text) if end < 0 else end]
        super().__init__(
            f"ERROR: <input>:{line}:{at - start + 1}: {why}\n | {source}\n | {'.' * (at - start)}^"
        )


class Uint(int):
    """An unsigned integer of CEL."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A part of an expression. `kind` says what the other fields are:

    literal    value
    name       value, the identifier
    select     children[0].value; `optional` for `.?`
    has        the same, as a test
    index      children[0][children[1]]; `optional` for `[?…]`
    call       function `value` of children; with `method` the first child is the receiver
    and, or    children
    if         children: condition, then, else
    list, map  children; those of a map are keys and values in turn
    entry      children[0], an optional value in a list or map, which is left out without a value
    loop       macro `value` over children[0] with variable `variable`, and perhaps `second` for the
               value at it; children[1:] its body
    bind       variable `variable` is children[0] in children[1]
    """

    kind: str
    at: int
    value: Any = None
    children: tuple[Expression, ...] = ()
    variable: str = ""
    second: str = ""
    method: bool = False
    optional: bool = False
    depth: int = 1


@dataclass(slots=True)
class _Token:
    kind: str
    text: str
    at: int
    value: Any = None


def parse(text: str) -> Expression:
    """The tree of an expression; raises CelSyntaxError."""
    parser = _Parser(text)
    node = parser.expression()
    parser.expect("end")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0
        self._nesting = 0

    # Tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _is(self, *signs: str) -> bool:
        token = self._token
        return token.kind == "sign" and token.text in signs

    def _take(self) -> _Token:
        token = self._token
        self._next += 1
        return token

    def _skip(self, sign: str) -> bool:
        if self._is(sign):
            self._next += 1
            return True
        return False

    def expect(self, what: str) -> _Token:
        token = self._token
        if token.kind == what or (token.kind == "sign" and token.text == what):
            self._next += token.kind != "end"
            return token
        found = "<EOF>" if token.kind == "end" else token.text
        raise self._problem(token.at, f"Syntax error: mismatched input '{found}' expecting '{what}'")

    def _problem(self, at: int, why: str) -> CelSyntaxError:
        return CelSyntaxError(self._text, at, why)

    def _node(self, kind: str, at: int, **fields: Any) -> Expression:
        children = fields.get("children", ())
        depth = 1 + max((child.depth for child in children), default=0)
        if depth > MAX_LINKS:
            raise self._problem(at, f"expression recursion limit exceeded: {MAX_LINKS}")
        return Expression(kind, at, depth=depth, **fields)

    def _call(self, at: int, function: str, *children: Expression, method: bool = False) -> Expression:
        return self._node("call", at, value=function, children=children, method=method)

    # Grammar, loosest first

    def expression(self) -> Expression:
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            raise self._problem(self._token.at, f"expression recursion limit exceeded: {MAX_DEPTH}")
        node = self._chain("||", "or")
        if self._is("?"):
            at = self._take().at
            yes = self._chain("||", "or")
            self.expect(":")
            node = self._node("if", at, children=(node, yes, self.expression()))
        self._nesting -= 1
        return node

    def _chain(self, sign: str, kind: str) -> Expression:
        def part() -> Expression:
            return self._chain("&&", "and") if kind == "or" else self._comparison()

        at = self._token.at
        parts = [part()]
        while self._skip(sign):
            parts.append(part())
        return parts[0] if len(parts) == 1 else self._node(kind, at, children=tuple(parts))

    def _comparison(self) -> Expression:
        node = self._sum()
        while self._is(*_COMPARISONS) or (self._token.text == "in" and self._token.kind == "name"):
            token = self._take()
            node = self._call(
                token.at, f"_{token.text}_" if token.text != "in" else "@in", node, self._sum()
            )
        return node

    def _sum(self) -> Expression:
        node = self._product()
        while self._is("+", "-"):
            token = self._take()
            node = self._call(token.at, f"_{token.text}_", node, self._product())
        return node

    def _product(self) -> Expression:
        node = self._unary()
        while self._is("*", "/", "%"):
            token = self._take()
            node = self._call(token.at, f"_{token.text}_", node, self._unary())
        return node

    def _unary(self) -> Expression:
        signs: list[_Token] = []
        while self._is("!", "-") and (not signs or signs[0].text == self._token.text):
            signs.append(self._take())
        if len(signs) % 2 == 0:
            return self._member()
        number = self._token
        if signs[0].text == "-" and number.kind == "number" and not isinstance(number.value, Uint):
            number.value = -number.value
            return self._member()
        return self._call(signs[0].at, f"{signs[0].text}_", self._member())

    def _member(self) -> Expression:
        node = self._primary()
        while True:
            if self._is("."):
                at = self._take().at
                optional = self._skip("?")
                name = self._name()
                if self._is("(") and not optional:
                    node = self._method(node, name)
                else:
                    node = self._node(
                        "select", at, value=name.text, children=(node,), optional=optional
                    )
            elif self._is("["):
                at = self._take().at
                optional = self._skip("?")
                index = self.expression()
                self.expect("]")
                node = self._node("index", at, children=(node, index), optional=optional)
            else:
                return node

    def _name(self) -> _Token:
        token = self._take()
        if token.kind != "name" or token.text == "in":
            raise self._problem(
                token.at, f"Syntax error: no viable alternative at input '{token.text}'"
            )
        return token

    def _primary(self) -> Expression:
        token = self._take()
        match token.kind, token.text:
            case (("number" | "text"), _):
                if token.kind == "number":
                    self._check_range(token)
                return self._node("literal", token.at, value=token.value)
            case "name", ("true" | "false" | "null") as word:
                value = {"true": True, "false": False, "null": None}[word]
                return self._node("literal", token.at, value=value)
            case "name", word if word != "in":
                if word in _RESERVED:
                    raise self._problem(token.at, f"reserved identifier: {word}")
                return self._function(token) if self._is("(") else self._named(token)
            case "sign", "(":
                node = self.expression()
                self.expect(")")
                return node
            case "sign", "[":
                items = self._list("]", entries=True)
                return self._node("list", token.at, children=items)
            case "sign", "{":
                return self._map(token)
            case "sign", ".":
                name = self._name()
                return self._function(name) if self._is("(") else self._named(name)
        found = "<EOF>" if token.kind == "end" else token.text
        raise self._problem(token.at, f"Syntax error: mismatched input '{found}'")

    def _named(self, token: _Token) -> Expression:
        return self._node("name", token.at, value=token.text)

    def _check_range(self, token: _Token) -> None:
        value = token.value
        if isinstance(value, Uint):
            if value > MAX_UINT:
                raise self._problem(token.at, "invalid uint literal")
        elif isinstance(value, int) and not MIN_INT <= value <= MAX_INT:
            raise self._problem(token.at, "invalid int literal")

    def _list(self, end: str, entries: bool = False) -> tuple[Expression, ...]:
        items = []
        while not self._is(end):
            optional = entries and self._skip("?")
            items.append(self._entry(optional))
            if not self._skip(","):
                break
        self.expect(end)
        return tuple(items)

    def _entry(self, optional: bool) -> Expression:
        node = self.expression()
        return self._node("entry", node.at, children=(node,)) if optional else node

    def _map(self, token: _Token) -> Expression:
        entries = []
        while not self._is("}"):
            optional = self._skip("?")
            entries.append(self.expression())
            self.expect(":")
            entries.append(self._entry(optional))
            if not self._skip(","):
                break
        self.expect("}")
        return self._node("map", token.at, children=tuple(entries))

    def _function(self, name: _Token) -> Expression:
        at = self.expect("(").at
        arguments = self._list(")")
        if name.text == "has":
            if len(arguments) == 1 and arguments[0].kind == "select":
                tested = arguments[0]
                return self._node("has", name.at, value=tested.value, children=tested.children)
            raise self._problem(name.at, "invalid argument to has() macro")
        return self._call(at, name.text, *arguments)

    def _method(self, receiver: Expression, name: _Token) -> Expression:
        at = self.expect("(").at
        arguments = self._list(")")
        called = name.text
        if receiver.kind == "name" and receiver.value == "cel" and called == "bind":
            if len(arguments) != 3 or arguments[0].kind != "name":
                raise self._problem(name.at, "cel.bind() variable names must be simple identifiers")
            return self._node(
                "bind", at, variable=arguments[0].value, children=arguments[1:], value="bind"
            )
        if receiver.kind == "name" and f"{receiver.value}.{called}" in QUALIFIED:
            return self._call(at, f"{receiver.value}.{called}", *arguments)
        for variables in _LOOPS.get(called, ()):
            bodies = len(arguments) - variables
            if bodies == 1 or (bodies == 2 and called in _FILTERED):
                return self._loop(at, called, receiver, arguments, variables)
        return self._call(at, called, receiver, *arguments, method=True)

    def _loop(
        self,
        at: int,
        macro: str,
        over: Expression,
        arguments: tuple[Expression, ...],
        variables: int,
    ) -> Expression:
        for name in arguments[:variables]:
            if name.kind != "name":
                raise self._problem(name.at, "argument must be a simple name")
        if variables == 2 and arguments[0].value == arguments[1].value:
            raise self._problem(
                arguments[1].at,
                f"duplicate variable name: {arguments[0].value}",
            )
        return self._node(
            "loop",
            at,
            value="exists_one" if macro == "existsOne" else macro,
            variable=arguments[0].value,
            second=arguments[1].value if variables == 2 else "",
            children=(over, *arguments[variables:]),
        )


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise CelSyntaxError(text, at, f"Syntax error: token recognition error at: '{text[at]}'")
        kind = found.lastgroup or ""
        if kind == "text":
            token, at = _text_token(text, at, found[0])
            yield token
            continue
        if kind == "number":
            yield _Token(kind, found[0], at, _number(found[0]))
        elif kind != "skip":
            yield _Token(kind, found[0], at)
        at = found.end()
    yield _Token("end", "", at)


def _number(text: str) -> int | float:
    unsigned = text[-1] in "uU"
    digits = text[:-1] if unsigned else text
    if digits[:2] in ("0x", "0X"):
        whole = int(digits, 16)
    elif "." in digits or "e" in digits or "E" in digits:
        return float(digits)
    else:
        whole = int(digits)
    return Uint(whole) if unsigned else whole


def _text_token(text: str, at: int, opening: str) -> tuple[_Token, int]:
    """The string or bytes literal that starts here, and where it ends."""
    prefix = opening.rstrip("\"'").lower()
    quote = opening[len(prefix) :]
    raw, start = "r" in prefix, at + len(opening)
    end = start
    while True:
        if end >= len(text) or (len(quote) == 1 and text[end] == "\n"):
            raise CelSyntaxError(text, at, f"Syntax error: token recognition error at: '{opening}'")
        if text.startswith(quote, end):
            break
        end += 1 if raw or text[end] != "\\" else 2
    body = text[start:end]
    value = body if raw else _ESCAPED.sub(lambda found: _unescaped(text, at, found), body)
    after = end + len(quote)
    is_bytes = "b" in prefix
    return _Token("text", text[at:after], at, value.encode() if is_bytes else value), after


def _unescaped(text: str, at: int, found: re.Match[str]) -> str:
    byte, short, long, octal, sign = found.groups()
    if sign is not None:
        if sign not in _ESCAPES:
            raise CelSyntaxError(text, at, "Syntax error: token recognition error at: '\\'")
        return _ESCAPES[sign]
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise CelSyntaxError(text, at, "invalid unicode code point")
    return chr(code)
