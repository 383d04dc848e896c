"""A CEL selector of devices, compiled: what it reads of a device, and whether a device matches.

    program = compiled("device.attributes['gpu.example.com'].model == 'a100'")
    program.reads                  what decides: ('attributes', 'gpu.example.com', 'model')
    program.matches(values)        True, False, or CelRuntimeError

Devices that agree in what a program reads have the same answer, so callers evaluate once for all of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from holdfast.api.errors import HoldfastError
from holdfast.api.quantity import Quantity, QuantityError
from holdfast.api.quantity import parse_exact as parse_quantity
from holdfast.api.resource_slices import DeviceAttribute, DeviceCapacity
from holdfast.machinery.schema.cel.overloads import BOOL, DYN, QUANTITY, STRING, Type, type_text
from holdfast.machinery.schema.cel.program import CelProgram
from holdfast.machinery.schema.cel.syntax import CelSyntaxError, Expression
from holdfast.machinery.schema.cel.values import (
    CelRuntimeError,
    DomainMap,
    QuantityValue,
    semver,
    type_name,
)

MAX_LENGTH = 10 * 1024
_KEPT = 1024
_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)
Read = tuple[str, str, str]
"""`attributes` or `capacity`, a domain and a name; or `driver` or `allowMultipleAllocations`."""


_DEVICE = "kubernetes.DRADevice"
_FIELDS: Mapping[str, Type] = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": ("map", STRING, ("map", STRING, DYN)),
    "capacity": ("map", STRING, ("map", STRING, QUANTITY)),
}
"""What a device is to an expression. Attributes are `dyn`: of what type is known on the device only."""


class SelectorCompileError(HoldfastError):
    """An expression that is no device selector."""


class DeviceValues(NamedTuple):
    """What selectors can read of a device."""

    driver: str
    attributes: Mapping[str, DeviceAttribute]
    capacity: Mapping[str, DeviceCapacity]
    allow_multiple_allocations: bool


class SelectorProgram:
    """One compiled expression. `reads` is None if it can depend on anything a device has."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._program = CelProgram(text, {"device": _DEVICE}, {_DEVICE: _FIELDS})
        except CelSyntaxError as error:
            raise SelectorCompileError(f"compilation failed: {error}") from None
        type = self._program.type
        if type not in (BOOL, DYN):
            raise SelectorCompileError(
                f"must evaluate to bool or the unknown type, not {type_text(type)}"
            )
        self.reads = _reads(self._program.tree)

    def matches(self, device: DeviceValues) -> bool:
        """Whether the device matches; raises CelRuntimeError."""
        result = self._program.run({"device": _variables(device)})
        if isinstance(result, bool):
            return result
        name = type_name(result)
        raise CelRuntimeError(
            f"CEL result of type {name} could not be converted to bool: "
            f"unsupported type conversion from '{name}' to bool"
        )

    def key(self, device: DeviceValues) -> Any:
        """Equal for devices that the program cannot tell apart; None where only equal devices are."""
        if self.reads is None:
            return None
        return tuple(_read(device, read) for read in self.reads)


@lru_cache(maxsize=_KEPT)
def compiled(text: str) -> SelectorProgram:
    """The program of an expression; raises SelectorCompileError."""
    if len(text.encode()) > MAX_LENGTH:
        raise SelectorCompileError(f"must be no longer than {MAX_LENGTH} bytes")
    return SelectorProgram(text)


def with_hint(error: CelRuntimeError) -> str:
    """The message of an error, with advice for a missing attribute."""
    text = str(error)
    return text + _HINT if "no such key:" in text else text


def attribute_value(attribute: DeviceAttribute) -> Any:
    """The attribute as a CEL value; None without one, which is not a value of attributes."""
    for values in (attribute.int_values, attribute.bool_values, attribute.string_values):
        if values is not None:
            return list(values)
    if attribute.version_values is not None:
        versions = [semver(each) for each in attribute.version_values]
        return None if None in versions else versions
    if attribute.version_value is not None:
        return semver(attribute.version_value)
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    return attribute.string_value


def _variables(device: DeviceValues) -> dict[str, Any]:
    attributes, capacity = DomainMap(), DomainMap()
    for name, attribute in device.attributes.items():
        value = attribute_value(attribute)
        if value is None:
            why = (
                "unsupported attribute value"
                if attribute.version_value is None
                else f"parse semantic version: invalid version {attribute.version_value!r}"
            )
            raise CelRuntimeError(f"attribute {name}: {why}")
        domain, id = qualified(name, device.driver)
        attributes.setdefault(domain, {})[id] = value
    for name, each in device.capacity.items():
        domain, id = qualified(name, device.driver)
        capacity.setdefault(domain, {})[id] = QuantityValue(_nano(each.value))
    return {
        "driver": device.driver,
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "attributes": attributes,
        "capacity": capacity,
    }


def _nano(quantity: Quantity) -> int:
    try:
        return parse_quantity(quantity)
    except QuantityError as error:
        raise CelRuntimeError(str(error)) from None


def qualified(name: str, driver: str) -> tuple[str, str]:
    """The domain and name of an attribute or capacity; the domain is the driver by default."""
    domain, slash, id = name.partition("/")
    return (domain, id) if slash else (driver, name)


def _read(device: DeviceValues, read: Read) -> Any:
    kind, domain, id = read
    match kind:
        case "driver":
            return device.driver
        case "allowMultipleAllocations":
            return device.allow_multiple_allocations
    among: Mapping[str, Any] = device.attributes if kind == "attributes" else device.capacity
    found = among.get(f"{domain}/{id}")
    if found is None and domain == device.driver:
        found = among.get(id)
    if found is None:
        return None
    return found.value if kind == "capacity" else found


Path = tuple[str, ...]


def _reads(tree: Expression) -> tuple[Read, ...] | None:
    """What an expression reads of the device, None if that cannot be told from its text."""
    found: set[Read] = set()
    if not _collect(tree, {"device": ()}, found):
        return None
    return tuple(sorted(found))


def _collect(node: Expression, paths: dict[str, Path | None], found: set[Read]) -> bool:
    """Adds what a node reads; False if it uses the device, or a part of it, as a whole."""
    path = _path(node, paths)
    if path is not None:
        match path:
            case ("attributes" | "capacity", domain, id):
                found.add((path[0], domain, id))
            case ("driver" | "allowMultipleAllocations",):
                found.add((path[0], "", ""))
            case _:
                return False
        return True
    match node.kind:
        case "call" if node.value == "@in" and node.children[0].kind == "literal":
            container = _path(node.children[1], paths)
            if (
                container is not None
                and len(container) == 2
                and isinstance(node.children[0].value, str)
            ):
                found.add((container[0], container[1], node.children[0].value))
                return True
        case "bind":
            bound = _path(node.children[0], paths)
            if (bound is None or len(bound) == 3) and not _collect(node.children[0], paths, found):
                return False
            return _collect(node.children[1], {**paths, node.variable: bound}, found)
        case "loop":
            names = (node.variable, node.second) if node.second else (node.variable,)
            inner: dict[str, Path | None] = {**paths, **dict.fromkeys(names)}
            return _collect(node.children[0], paths, found) and all(
                _collect(child, inner, found) for child in node.children[1:]
            )
        case "select" | "index" | "has":
            # Of a value that was read, not of the device itself.
            pass
    return all(_collect(child, paths, found) for child in node.children)


def _path(node: Expression, paths: dict[str, Path | None]) -> Path | None:
    """The fields that lead from the device to this value; None if it is something else."""
    if node.kind == "name":
        return paths.get(node.value)
    if node.kind in ("select", "has"):
        step = node.value
    elif node.kind == "index" and node.children[1].kind == "literal":
        step = node.children[1].value
    else:
        return None
    start = _path(node.children[0], paths)
    if start is None or len(start) >= 3 or not isinstance(step, str):
        return None
    if len(start) == 1 and start[0] not in ("attributes", "capacity"):
        return None
    return (*start, step)
