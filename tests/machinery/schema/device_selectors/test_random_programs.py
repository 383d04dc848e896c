"""Random expressions on random devices: the answers are those of the CEL library, one by one."""

from __future__ import annotations

from typing import Any

import cel
from hypothesis import given
from hypothesis import strategies as st

from harness.strategies import examples
from holdfast.api.resource_slices import DeviceAttribute
from holdfast.machinery.schema.cel.values import CelRuntimeError
from holdfast.machinery.schema.device_selectors import (
    DeviceValues,
    SelectorCompileError,
    compiled,
)

OF = 'device.attributes["d"]'
names = st.sampled_from(["a", "b", "c"])
texts = st.sampled_from(["", "x", "xy", "yx"])
numbers = st.integers(-3, 3)


def _joined(operands: Any, *signs: str) -> Any:
    return st.tuples(operands, st.sampled_from(signs), operands).map(
        lambda part: f"({part[0]} {part[1]} {part[2]})"
    )


attributes = names.map(lambda name: f"{OF}.{name}")
strings = st.one_of(texts.map(lambda text: f'"{text}"'), attributes, st.just("device.driver"))
integers = st.recursive(
    st.one_of(numbers.map(str), attributes), lambda inner: _joined(inner, "+", "-", "*"), max_leaves=3
)
atoms = st.one_of(
    st.sampled_from(
        ["true", "false", "device.allowMultipleAllocations", 'has(device.attributes["d"].a)']
    ),
    names.map(lambda name: f'("{name}" in {OF})'),
    attributes,
    _joined(strings, "==", "!="),
    _joined(integers, "==", "!=", "<", "<=", ">", ">="),
    st.tuples(attributes, st.sampled_from(["startsWith", "endsWith", "contains"]), texts).map(
        lambda part: f'{part[0]}.{part[1]}("{part[2]}")'
    ),
    st.tuples(attributes, st.lists(numbers, min_size=1, max_size=3)).map(
        lambda part: f"({part[0]} in {part[1]})"
    ),
    st.lists(numbers, max_size=3).map(lambda items: f"{items}.exists(i, i == {OF}.a)"),
)
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        _joined(inner, "&&", "||"),
        inner.map(lambda part: f"!{part}"),
        st.tuples(inner, inner, inner).map(lambda part: f"({part[0]} ? {part[1]} : {part[2]})"),
    ),
    max_leaves=5,
)
values = st.one_of(
    numbers.map(lambda value: DeviceAttribute(int_value=value)),
    texts.map(lambda value: DeviceAttribute(string_value=value)),
    st.booleans().map(lambda value: DeviceAttribute(bool_value=value)),
)
devices = st.builds(
    DeviceValues,
    st.sampled_from(["d", "e"]),
    st.dictionaries(names, values),
    st.just({}),
    st.booleans(),
)


def _by_library(text: str, device: DeviceValues) -> Any:
    attributes = {
        name: next(v for v in (a.int_value, a.bool_value, a.string_value) if v is not None)
        for name, a in device.attributes.items()
    }
    given = {
        "driver": device.driver,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": {"d": {}, device.driver: attributes},
    }
    try:
        found = cel.evaluate(text, {"device": given})
    except (ArithmeticError, KeyError, RuntimeError, TypeError, ValueError):
        return "fails"
    return found if isinstance(found, bool) else "fails"


@examples(150)
@given(expressions, st.lists(devices, min_size=1, max_size=4))
def test_random_selectors_match_as_in_the_library(text: str, given: list[DeviceValues]) -> None:
    try:
        program = compiled(text)
    except SelectorCompileError:
        # The library has no static types; whatever ours refuse cannot match by them.
        return
    known: dict[Any, Any] = {}
    for device in given:
        try:
            found: Any = program.matches(device)
        except CelRuntimeError:
            found = "fails"
        assert found == _by_library(text, device)
        assert known.setdefault(program.key(device), found) == found
