"""Evaluation of an expression's tree.

A tree becomes a tree of Python functions once; each takes the state of one evaluation. `&&`, `||`,
`all` and `exists` ignore an error where the other operands decide, as CEL has it. What an evaluation
costs is counted about as cel-go does and limited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.machinery.schema.cel.functions import FUNCTIONS
from holdfast.machinery.schema.cel.lists import ordered
from holdfast.machinery.schema.cel.overloads import type_of
from holdfast.machinery.schema.cel.syntax import Expression
from holdfast.machinery.schema.cel.values import (
    NO_OVERLOAD,
    NOTHING,
    CelRuntimeError,
    DomainMap,
    OptionalValue,
    TypeValue,
    type_name,
)

MAX_COST = 1_000_000
_LIST_COST, _MAP_COST, _BIND_COST = 10, 30, 10
_CHARACTERS = 10
"""Characters of a text that cost as much as one step."""
_MISSING: Any = object()
_GO_TYPES = {
    "bool": "types.Bool",
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "string": "types.String",
    "bytes": "types.Bytes",
    "null_type": "types.Null",
    "kubernetes.Semver": "cel.Semver",
    "kubernetes.Quantity": "cel.Quantity",
}
TYPE_NAMES = frozenset(
    ("bool", "int", "uint", "double", "string", "bytes", "null_type", "list", "map", "type")
)


class State:
    """One evaluation: the variables, and what it has cost so far."""

    __slots__ = ("cost", "variables")

    def __init__(self, variables: dict[str, Any]) -> None:
        self.variables = variables
        self.cost = 0

    def spend(self, cost: int) -> None:
        self.cost += cost
        if self.cost > MAX_COST:
            raise CelRuntimeError("operation cancelled: actual cost limit exceeded")


Evaluator = Callable[[State], Any]


def evaluator(node: Expression) -> Evaluator:
    return _MAKERS[node.kind](node)


def _literal(node: Expression) -> Evaluator:
    value = node.value
    return lambda state: value


def _name(node: Expression) -> Evaluator:
    name = node.value

    def run(state: State) -> Any:
        state.spend(1)
        found = state.variables.get(name, _MISSING)
        return TypeValue(name) if found is _MISSING else found

    return run


def _find(container: Any, key: Any) -> Any:
    """The value of a key or index, `_MISSING` without one."""
    if isinstance(container, DomainMap):
        return container.get(key, {}) if isinstance(key, str) else _MISSING
    if isinstance(container, dict):
        if isinstance(key, float) and key.is_integer():
            key = int(key)
        try:
            return container.get(key, _MISSING)
        except TypeError:
            raise CelRuntimeError(NO_OVERLOAD) from None
    if isinstance(container, list) and isinstance(key, int | float) and not isinstance(key, bool):
        at = int(key)
        return container[at] if at == key and 0 <= at < len(container) else _MISSING
    raise CelRuntimeError(NO_OVERLOAD)


def _found(container: Any, key: Any, optional: bool) -> Any:
    if isinstance(container, OptionalValue):
        if not container.present:
            return NOTHING
        container, optional = container.value, True
    found = _find(container, key)
    if optional:
        return NOTHING if found is _MISSING else OptionalValue(True, found)
    if found is _MISSING:
        if isinstance(container, list):
            raise CelRuntimeError(f"index out of bounds: {key}")
        raise CelRuntimeError(f"no such key: {key}")
    return found


def _select(node: Expression) -> Evaluator:
    inner, field, optional = evaluator(node.children[0]), node.value, node.optional

    def run(state: State) -> Any:
        state.spend(1)
        return _found(inner(state), field, optional)

    return run


def _has(node: Expression) -> Evaluator:
    inner, field = evaluator(node.children[0]), node.value

    def run(state: State) -> bool:
        state.spend(1)
        container = inner(state)
        if isinstance(container, OptionalValue):
            if not container.present:
                return False
            container = container.value
        return _find(container, field) is not _MISSING

    return run


def _index(node: Expression) -> Evaluator:
    inner, index, optional = evaluator(node.children[0]), evaluator(node.children[1]), node.optional

    def run(state: State) -> Any:
        state.spend(1)
        return _found(inner(state), index(state), optional)

    return run


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value) // _CHARACTERS
    return len(value) if isinstance(value, list) else 0


def _call(node: Expression) -> Evaluator:
    if node.method and node.value in ("or", "orValue"):
        return _alternative(node)
    parts = [evaluator(child) for child in node.children]
    overloads, method = FUNCTIONS[node.value], node.method
    only = overloads[0].run if node.value in ("_==_", "_!=_") else None

    def run(state: State) -> Any:
        values = [part(state) for part in parts]
        state.spend(1 + sum(map(_size, values)))
        if only is not None:
            return only(*values)
        types = [type_of(value) for value in values]
        for overload in overloads:
            if overload.fits(types, method):
                return overload.run(*values)
        raise CelRuntimeError(NO_OVERLOAD)

    return run


def _alternative(node: Expression) -> Evaluator:
    """`or` and `orValue` of an optional value."""
    inner, other = (evaluator(child) for child in node.children)
    unwrapped = node.value == "orValue"

    def run(state: State) -> Any:
        state.spend(1)
        value = inner(state)
        if not isinstance(value, OptionalValue):
            raise CelRuntimeError(NO_OVERLOAD)
        if value.present:
            return value.value if unwrapped else value
        return other(state)

    return run


def _logic(node: Expression) -> Evaluator:
    """`&&` and `||`: an operand that decides wins over an error of another."""
    parts = [evaluator(child) for child in node.children]
    decides = node.kind == "or"

    def run(state: State) -> bool:
        problem: CelRuntimeError | None = None
        for part in parts:
            try:
                value = part(state)
                if _truth(value) is decides:
                    return decides
            except CelRuntimeError as error:
                if state.cost > MAX_COST:
                    raise
                problem = problem or error
        if problem is not None:
            raise problem
        return not decides

    return run


def _condition(node: Expression) -> Evaluator:
    test, yes, no = (evaluator(child) for child in node.children)

    def run(state: State) -> Any:
        value = test(state)
        if not isinstance(value, bool):
            raise CelRuntimeError(NO_OVERLOAD)
        return yes(state) if value else no(state)

    return run


def _list(node: Expression) -> Evaluator:
    parts = [(evaluator(child), child.kind == "entry") for child in node.children]

    def run(state: State) -> list[Any]:
        state.spend(_LIST_COST)
        found = []
        for part, optional in parts:
            value = part(state)
            if not optional:
                found.append(value)
            elif value.present:
                found.append(value.value)
        return found

    return run


def _entry(node: Expression) -> Evaluator:
    """An optional value in a list or map."""
    inner = evaluator(node.children[0])

    def run(state: State) -> OptionalValue:
        value = inner(state)
        if not isinstance(value, OptionalValue):
            raise CelRuntimeError(
                f"cannot initialize optional list element from non-optional value {value}"
            )
        return value

    return run


def _map(node: Expression) -> Evaluator:
    keys = [evaluator(child) for child in node.children[::2]]
    values = [(evaluator(child), child.kind == "entry") for child in node.children[1::2]]

    def run(state: State) -> dict[Any, Any]:
        state.spend(_MAP_COST)
        made: dict[Any, Any] = {}
        for key, (value, optional) in zip(keys, values, strict=True):
            at = key(state)
            if not isinstance(at, int | str):
                raise CelRuntimeError(f"unsupported key type: {type_name(at)}")
            if at in made:
                raise CelRuntimeError(f"duplicate map key: {at}")
            given = value(state)
            if not optional:
                made[at] = given
            elif given.present:
                made[at] = given.value
        return made

    return run


def _bind(node: Expression) -> Evaluator:
    value, body = (evaluator(child) for child in node.children)
    scoped = _with_variable(node.variable, body)

    def run(state: State) -> Any:
        state.spend(_BIND_COST)
        return scoped(state, value(state))

    return run


def _with_variable(name: str, body: Evaluator) -> Callable[[State, Any], Any]:
    def run(state: State, value: Any) -> Any:
        before = state.variables.get(name, _MISSING)
        state.variables[name] = value
        try:
            return body(state)
        finally:
            if before is _MISSING:
                del state.variables[name]
            else:
                state.variables[name] = before

    return run


def _with_variables(first: str, second: str, body: Evaluator) -> Callable[[State, Any], Any]:
    """As `_with_variable`, with a pair of values."""
    outer = _with_variable(second, body)

    def run(state: State, pair: Any) -> Any:
        inner = _with_variable(first, lambda state: outer(state, pair[1]))
        return inner(state, pair[0])

    return run


def _loop(node: Expression) -> Evaluator:
    over = evaluator(node.children[0])
    inner = [evaluator(child) for child in node.children[1:]]
    if node.second:
        return _two_variables(node, over, inner)
    bodies = [_with_variable(node.variable, each) for each in inner]
    if node.value in ("optMap", "optFlatMap"):
        return _optional_loop(over, bodies[0], node.value == "optMap")
    fold = _FOLDS[node.value]

    def run(state: State) -> Any:
        state.spend(1)
        items = over(state)
        if not isinstance(items, list | dict):
            name = type_name(items)
            raise CelRuntimeError(f"got '{_GO_TYPES.get(name, name)}', expected iterable type")
        return fold(state, list(items), bodies)

    return run


def _two_variables(node: Expression, over: Evaluator, inner: list[Evaluator]) -> Evaluator:
    """A macro with an index and an item, or with a key and a value."""
    bodies = [_with_variables(node.variable, node.second, each) for each in inner]
    fold = _FOLDS[node.value]

    def run(state: State) -> Any:
        state.spend(1)
        items = over(state)
        if not isinstance(items, list | dict):
            name = type_name(items)
            raise CelRuntimeError(f"got '{_GO_TYPES.get(name, name)}', expected iterable type")
        pairs = [*enumerate(items)] if isinstance(items, list) else [*items.items()]
        return fold(state, pairs, bodies)

    return run


def _optional_loop(over: Evaluator, body: Any, wrapped: bool) -> Evaluator:
    def run(state: State) -> Any:
        state.spend(1)
        value = over(state)
        if not isinstance(value, OptionalValue):
            raise CelRuntimeError(NO_OVERLOAD)
        if not value.present:
            return NOTHING
        made = body(state, value.value)
        return OptionalValue(True, made) if wrapped else made

    return run


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelRuntimeError(NO_OVERLOAD)
    return value


def _decided(state: State, items: list[Any], bodies: list[Any], decides: bool) -> bool:
    problem: CelRuntimeError | None = None
    for item in items:
        state.spend(3)
        try:
            if _truth(bodies[0](state, item)) is decides:
                return decides
        except CelRuntimeError as error:
            if state.cost > MAX_COST:
                raise
            problem = problem or error
    if problem is not None:
        raise problem
    return not decides


def _exists_one(state: State, items: list[Any], bodies: list[Any]) -> bool:
    state.spend(4 * len(items))
    return sum(_truth(bodies[0](state, item)) for item in items) == 1


def _filtered(state: State, items: list[Any], bodies: list[Any]) -> list[Any]:
    state.spend((4 + _LIST_COST) * len(items))
    return [item for item in items if _truth(bodies[0](state, item))]


def _mapped(state: State, items: list[Any], bodies: list[Any]) -> list[Any]:
    state.spend((4 + _LIST_COST) * len(items))
    if len(bodies) == 1:
        return [bodies[0](state, item) for item in items]
    return [bodies[1](state, item) for item in items if _truth(bodies[0](state, item))]


def _sorted(state: State, items: list[Any], bodies: list[Any]) -> list[Any]:
    return ordered(items, _mapped(state, items, bodies))


def _map_of(state: State, pairs: list[Any], bodies: list[Any]) -> dict[Any, Any]:
    """`transformMap`: the same keys with other values."""
    state.spend((4 + _MAP_COST) * len(pairs))
    chosen = [pair for pair in pairs if len(bodies) == 1 or _truth(bodies[0](state, pair))]
    return {pair[0]: bodies[-1](state, pair) for pair in chosen}


def _entries(state: State, pairs: list[Any], bodies: list[Any]) -> dict[Any, Any]:
    """`transformMapEntry`: maps put together."""
    found: dict[Any, Any] = {}
    for made in _mapped(state, pairs, bodies):
        if not isinstance(made, dict):
            raise CelRuntimeError(NO_OVERLOAD)
        for key, value in made.items():
            if key in found:
                raise CelRuntimeError(f"insert failed: key {key} already exists")
            found[key] = value
    return found


_FOLDS: dict[str, Callable[[State, list[Any], list[Any]], Any]] = {
    "sortBy": _sorted,
    "transformList": lambda state, items, bodies: _mapped(state, items, bodies),
    "transformMap": _map_of,
    "transformMapEntry": _entries,
    "all": lambda state, items, bodies: _decided(state, items, bodies, False),
    "exists": lambda state, items, bodies: _decided(state, items, bodies, True),
    "exists_one": _exists_one,
    "filter": _filtered,
    "map": _mapped,
}
_MAKERS: dict[str, Callable[[Expression], Evaluator]] = {
    "literal": _literal,
    "name": _name,
    "select": _select,
    "has": _has,
    "index": _index,
    "call": _call,
    "and": _logic,
    "or": _logic,
    "if": _condition,
    "list": _list,
    "entry": _entry,
    "map": _map,
    "loop": _loop,
    "bind": _bind,
}
