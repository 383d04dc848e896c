"""The static types of a selector, checked before it is evaluated.

Attributes of devices are `dyn`: what they are is known on the device only. Everything else has a type,
and an expression without a matching overload is refused in cel-go's words.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.machinery.schema.device_selectors.evaluation import TYPE_NAMES
from holdfast.machinery.schema.device_selectors.functions import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    FUNCTIONS,
    INT,
    NULL,
    QUANTITY,
    STRING,
    TYPE,
    UINT,
    Type,
    assignable,
    type_text,
)
from holdfast.machinery.schema.device_selectors.syntax import CelSyntaxError, Expression, Uint

DEVICE = "kubernetes.DRADevice"
FIELDS: Mapping[str, Type] = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": ("map", STRING, ("map", STRING, DYN)),
    "capacity": ("map", STRING, ("map", STRING, QUANTITY)),
}
_LITERALS: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
_CONDITION = "_?_:_"


class UnknownFunction(CelSyntaxError):
    """A function that is not one of ours; the CEL library may have it."""


class Checker:
    def __init__(self, text: str) -> None:
        self._text = text

    def type_of(self, node: Expression) -> Type:
        """The type of the expression; raises CelSyntaxError."""
        return self._check(node, {"device": DEVICE})

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
                return ("list", _common([self._check(child, scope) for child in node.children]))
            case "map":
                types = [self._check(child, scope) for child in node.children]
                return ("map", _common(types[::2]), _common(types[1::2]))
            case "bind":
                value = self._check(node.children[0], scope)
                return self._check(node.children[1], {**scope, node.variable: value})
            case "loop":
                return self._loop(node, scope)
            case _:
                return self._called(node, scope)

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
        if inner == DEVICE:
            if node.value not in FIELDS:
                raise self._problem(node, f"undefined field '{node.value}'")
            found: Type = FIELDS[node.value]
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
        bodies = [self._check(child, inner) for child in node.children[1:]]
        if node.value not in ("map", "optMap", "optFlatMap") and not assignable(BOOL, bodies[0]):
            raise self._no_overload(node, "_&&_", [BOOL, bodies[0]])
        match node.value:
            case "map":
                return ("list", bodies[-1])
            case "filter":
                return over if isinstance(over, tuple) and over[0] == "list" else ("list", DYN)
            case "optMap":
                return ("optional_type", bodies[0])
            case "optFlatMap":
                return bodies[0]
            case _:
                return BOOL

    def _called(self, node: Expression, scope: dict[str, Type]) -> Type:
        types = [self._check(child, scope) for child in node.children]
        name, method = node.value, node.method
        if method and name in ("or", "orValue") and len(types) == 2:
            if not assignable(("optional_type", DYN), types[0]):
                raise self._no_overload(node, name, types, method)
            held = types[0][1] if isinstance(types[0], tuple) else DYN
            return types[0] if name == "or" else held if held != DYN else types[1]
        overloads = FUNCTIONS.get(name)
        if overloads is None:
            why = f"undeclared reference to '{name}' (in container '')"
            raise UnknownFunction(self._text, node.at, why)
        if name in ("_==_", "_!=_") and not assignable(*types):
            raise self._no_overload(node, name, types)
        if name == "@in" and isinstance(types[1], tuple) and not assignable(types[1][1], types[0]):
            raise self._no_overload(node, name, types)
        results = [each.returns for each in overloads if each.fits(types, method)]
        if not results:
            raise self._no_overload(node, name, types, method)
        return results[0] if all(each == results[0] for each in results) else DYN


def _common(types: list[Type]) -> Type:
    return types[0] if types and all(each == types[0] for each in types) else DYN
