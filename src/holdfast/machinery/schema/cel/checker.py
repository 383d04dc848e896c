"""The static types of an expression, checked before it is evaluated.

Variables may be `dyn`: what they are is known only when the expression is evaluated. Everything else
has a type, and an expression without a matching overload is refused in cel-go's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast.machinery.schema.cel.evaluation import TYPE_NAMES
from holdfast.machinery.schema.cel.functions import FUNCTIONS
from holdfast.machinery.schema.cel.overloads import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    TYPE,
    UINT,
    Type,
    assignable,
    type_text,
)
from holdfast.machinery.schema.cel.syntax import CelSyntaxError, Expression, Uint
from holdfast.machinery.schema.cel.times import duration, timestamp
from holdfast.machinery.schema.cel.values import CelRuntimeError
from holdfast.machinery.schema.custom.regexp import BadPattern, compiled

_LITERALS: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
_LITERAL_ARGUMENTS: Mapping[str, Callable[[str], object]] = {
    "duration": duration,
    "timestamp": timestamp,
    "matches": compiled,
}
_CONDITION = "_?_:_"
_NO_TESTS = frozenset(
    ("map", "optMap", "optFlatMap", "sortBy", "transformList", "transformMap", "transformMapEntry")
)
"""Macros whose only body is not a condition."""


class Checker:
    def __init__(
        self, text: str, variables: Mapping[str, Type], objects: Mapping[str, Mapping[str, Type]]
    ) -> None:
        """`objects` are the types of variables that have fields, by the name of the type."""
        self._text = text
        self._variables = variables
        self._objects = objects
        self._mixed = False
        """Whether lists may have items of several types: as arguments of `format`."""

    def type_of(self, node: Expression) -> Type:
        """The type of the expression; raises CelSyntaxError."""
        return self._check(node, dict(self._variables))

    def _problem(self, node: Expression, why: str) -> CelSyntaxError:
        return CelSyntaxError(self._text, node.at, why)

    def _no_overload(
        self, node: Expression, name: str, types: list[Type], method: bool = False
    ) -> CelSyntaxError:
        texts = [type_text(each) for each in types]
        given = f"{texts[0]}.({', '.join(texts[1:])})" if method else f"({', '.join(texts)})"
        return self._problem(node, f"found no matching overload for '{name}' applied to '{given}'")

    def _check(self, node: Expression, scope: dict[str, Type]) -> Type:
        match node.kind:
            case "literal":
                return _LITERALS[node.value.__class__]
            case "name":
                return self._named(node, scope)
            case "select" | "has":
                return self._selected(node, scope)
            case "index":
                return self._indexed(node, scope)
            case "and" | "or":
                types = [self._check(child, scope) for child in node.children]
                if not all(assignable(BOOL, each) for each in types):
                    sign = "_&&_" if node.kind == "and" else "_||_"
                    raise self._no_overload(node, sign, types)
                return BOOL
            case "if":
                test, yes, no = (self._check(child, scope) for child in node.children)
                if not assignable(BOOL, test) or not assignable(yes, no):
                    raise self._no_overload(node, _CONDITION, [test, yes, no])
                return no if yes == DYN else yes
            case "list":
                return ("list", self._common(node.children, scope))
            case "map":
                keys = self._common(node.children[::2], scope)
                return ("map", keys, self._common(node.children[1::2], scope))
            case "entry":
                return self._entry(node, scope)
            case "bind":
                value = self._check(node.children[0], scope)
                return self._check(node.children[1], {**scope, node.variable: value})
            case "loop":
                return self._loop(node, scope)
            case _:
                return self._called(node, scope)

    def _common(self, parts: tuple[Expression, ...], scope: dict[str, Type]) -> Type:
        """The type of the parts of a list or map, which must be of one type."""
        common: Type = None
        for part in parts:
            found = self._check(part, scope)
            if common is None or (common == DYN and found != DYN):
                common = found
            elif not assignable(common, found):
                if self._mixed:
                    return DYN
                why = f"expected type '{type_text(common)}' but found '{type_text(found)}'"
                raise self._problem(part, why)
        return DYN if common is None else common

    def _entry(self, node: Expression, scope: dict[str, Type]) -> Type:
        found = self._check(node.children[0], scope)
        if found == DYN:
            return DYN
        if not (isinstance(found, tuple) and found[0] == "optional_type"):
            wanted = f"optional_type({type_text(found)})"
            why = f"expected type '{wanted}' but found '{type_text(found)}'"
            raise self._problem(node, why)
        return found[1]

    def _named(self, node: Expression, scope: dict[str, Type]) -> Type:
        name = node.value
        if name in scope:
            return scope[name]
        if name in TYPE_NAMES:
            return TYPE
        raise self._problem(node, f"undeclared reference to '{name}' (in container '')")

    def _selected(self, node: Expression, scope: dict[str, Type]) -> Type:
        inner = self._check(node.children[0], scope)
        if isinstance(inner, tuple) and inner[0] == "optional_type":
            inner, wrapped = inner[1], True
        else:
            wrapped = node.optional
        if isinstance(inner, str) and inner in self._objects:
            fields = self._objects[inner]
            if node.value not in fields:
                raise self._problem(node, f"undefined field '{node.value}'")
            found: Type = fields[node.value]
        elif inner == DYN:
            found = DYN
        elif isinstance(inner, tuple) and inner[0] == "map":
            found = inner[2]
        else:
            raise self._problem(node, f"type '{type_text(inner)}' does not support field selection")
        if node.kind == "has":
            return BOOL
        return ("optional_type", found) if wrapped else found

    def _indexed(self, node: Expression, scope: dict[str, Type]) -> Type:
        inner, index = (self._check(child, scope) for child in node.children)
        wrapped = node.optional
        if isinstance(inner, tuple) and inner[0] == "optional_type":
            inner, wrapped = inner[1], True
        if inner == DYN:
            found: Type = DYN
        elif isinstance(inner, tuple) and assignable(inner[1] if inner[0] == "map" else INT, index):
            found = inner[-1]
        else:
            raise self._no_overload(node, "_[_]", [inner, index])
        return ("optional_type", found) if wrapped else found

    def _loop(self, node: Expression, scope: dict[str, Type]) -> Type:
        over = self._check(node.children[0], scope)
        kinds = ("optional_type",) if node.value.startswith("opt") else ("list", "map")
        if over != DYN and not (isinstance(over, tuple) and over[0] in kinds):
            raise self._problem(
                node,
                f"expression of type '{type_text(over)}' cannot be range of a comprehension "
                "(must be list, map, or dynamic)",
            )
        inner = {**scope, node.variable: DYN if over == DYN else over[1]}
        if node.second:
            inner[node.variable] = DYN if over == DYN else INT if over[0] == "list" else over[1]
            inner[node.second] = DYN if over == DYN else over[-1]
        bodies = [self._check(child, inner) for child in node.children[1:]]
        is_test = node.value not in _NO_TESTS or len(bodies) == 2
        if is_test and not assignable(BOOL, bodies[0]):
            raise self._no_overload(node, "_&&_", [BOOL, bodies[0]])
        match node.value:
            case "map" | "transformList":
                return ("list", bodies[-1])
            case "transformMap":
                return ("map", inner[node.variable], bodies[-1])
            case "transformMapEntry":
                return bodies[-1]
            case "sortBy":
                return over if isinstance(over, tuple) and over[0] == "list" else ("list", DYN)
            case "filter":
                return over if isinstance(over, tuple) and over[0] == "list" else ("list", DYN)
            case "optMap":
                return ("optional_type", bodies[0])
            case "optFlatMap":
                return bodies[0]
            case _:
                return BOOL

    def _check_literal(self, node: Expression) -> None:
        """Literals that can be checked before they are evaluated."""
        check = _LITERAL_ARGUMENTS.get(node.value)
        argument = node.children[-1] if node.children else None
        if check is None or argument is None or argument.kind != "literal":
            return
        try:
            if isinstance(argument.value, str):
                check(argument.value)
        except (CelRuntimeError, BadPattern):
            raise self._problem(argument, f"invalid {node.value} argument") from None

    def _called(self, node: Expression, scope: dict[str, Type]) -> Type:
        name, method = node.value, node.method
        mixed, self._mixed = self._mixed, self._mixed or name == "format"
        types = [self._check(child, scope) for child in node.children]
        self._mixed = mixed
        self._check_literal(node)
        if method and name in ("or", "orValue") and len(types) == 2:
            if not assignable(("optional_type", DYN), types[0]):
                raise self._no_overload(node, name, types, method)
            held = types[0][1] if isinstance(types[0], tuple) else DYN
            return types[0] if name == "or" else held if held != DYN else types[1]
        overloads = FUNCTIONS.get(name)
        if overloads is None:
            why = f"undeclared reference to '{name}' (in container '')"
            raise self._problem(node, why)
        if name in ("_==_", "_!=_") and not assignable(*types):
            raise self._no_overload(node, name, types)
        if name == "@in" and isinstance(types[1], tuple) and not assignable(types[1][1], types[0]):
            raise self._no_overload(node, name, types)
        results = [each.returns for each in overloads if each.fits(types, method)]
        if not results:
            raise self._no_overload(node, name, types, method)
        return results[0] if all(each == results[0] for each in results) else DYN
