"""Expressions with times and durations, evaluated by the package `common-expression-language`.

Devices have no attributes of these types, so hardly a selector uses them. The library knows neither
versions nor quantities; an expression that mixes them with times fails on every device. It is loaded
when the first such expression is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from holdfast.machinery.schema.custom.cel import scan
from holdfast.machinery.schema.device_selectors.functions import FUNCTIONS
from holdfast.machinery.schema.device_selectors.syntax import Expression
from holdfast.machinery.schema.device_selectors.values import (
    DomainMap,
    QuantityValue,
    SelectorRuntimeError,
    SemverValue,
)

TIMES = frozenset(
    """timestamp duration getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours
    getMinutes getSeconds getMilliseconds""".split()
)


def knows(tree: Expression) -> bool:
    """Whether all functions that are not ours are the library's."""
    return all(
        node.value in FUNCTIONS or node.value in TIMES for node in _nodes(tree) if node.kind == "call"
    )


def uses_times(tree: Expression) -> bool:
    return any(node.kind == "call" and node.value in TIMES for node in _nodes(tree))


def evaluated_by_library(text: str, tree: Expression) -> Callable[[dict[str, Any]], Any] | None:
    """A function of the variable `device`; None if the library cannot compile the expression."""
    if scan(text).problem:
        return None
    cel = import_module("cel")
    try:
        compiled = cel.compile(text)
    except ValueError:
        return None
    domains = {node.value for node in _nodes(tree) if node.kind == "literal" and _is_text(node)}

    empty: dict[str, Any] = {domain: {} for domain in domains}

    def run(device: dict[str, Any]) -> Any:
        given = {
            field: _plain({**empty, **value}) if _is_map(value) else value
            for field, value in device.items()
        }
        try:
            return compiled.execute({"device": given})
        except KeyError as error:
            raise SelectorRuntimeError(f"no such key: {error.args[0]}") from None
        except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
            raise SelectorRuntimeError(str(error)) from None

    return run


def _nodes(tree: Expression) -> Iterator[Expression]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children)


def _is_text(node: Expression) -> bool:
    return isinstance(node.value, str)


def _is_map(value: Any) -> bool:
    return isinstance(value, DomainMap)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return None if isinstance(value, QuantityValue | SemverValue) else value
