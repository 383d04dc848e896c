"""What device selectors read, and the values that devices have there."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.explanation.report import few
from holdfast.machinery.schema.cel.values import CelRuntimeError
from holdfast.machinery.schema.device_selectors import DeviceValues, SelectorCompileError, compiled
from holdfast.scheduler.managers.claims.claims_request import RequestPart

_READ = re.compile(
    r"""device\.(?:
        (?P<driver>driver)
        | (?P<field>attributes|capacity)\[\s*["'](?P<domain>[^"']+)["']\s*\]
          (?:\.(?P<name>\w+) | \[\s*["'](?P<quoted>[^"']+)["']\s*\])
    )""",
    re.VERBOSE,
)
_OPERAND_END = re.compile(r"&&|\|\||device\.")
_LITERAL = re.compile(r""""[^"\\]*"|'[^'\\]*'|\b(?:true|false)\b|-?\b\d+\b""")
_SHOWN = 5


class Operand(NamedTuple):
    """A value of a device that an expression reads, and the literal that follows it."""

    field: str
    """`driver`, `attributes` or `capacity`."""
    domain: str
    name: str
    literal: str
    """Empty if none follows."""
    start: int
    """Where the literal is in the expression."""

    def value(self, device: DeviceValues) -> str | None:
        """What a device has there, as text; None if it has nothing."""
        if self.field == "driver":
            return device.driver
        values = device.attributes if self.field == "attributes" else device.capacity
        found = values.get(f"{self.domain}/{self.name}")
        if found is None and self.domain == device.driver:
            found = values.get(self.name)
        if found is None:
            return None
        given = (getattr(found, each) for each in found.__struct_fields__)
        text = next((each for each in given if each is not None), None)
        return str(text).lower() if isinstance(text, bool) else str(text)


def operands(expression: str) -> Iterator[Operand]:
    for read in _READ.finditer(expression):
        rest = expression[read.end() :]
        end = _OPERAND_END.search(rest)
        literal = _LITERAL.search(rest[: end.start()] if end else rest)
        field = read["driver"] or read["field"]
        name = read["name"] or read["quoted"] or field
        text, start = (literal[0], read.end() + literal.start()) if literal else ("", 0)
        yield Operand(field, read["domain"] or "", name, text, start)


def values_text(part: RequestPart, devices: Iterable[DeviceValues]) -> str:
    """`model is a100 or t4`: what the selectors read that do not match the devices."""
    found: dict[str, dict[str, None]] = {}
    for device in devices:
        for expression in (*part.class_selectors, *part.selectors):
            if is_matched(expression, device):
                continue
            for operand in operands(expression):
                if (value := operand.value(device)) is not None:
                    found.setdefault(operand.name, {})[value] = None
    texts = [f"{name} is {few(sorted(values), _SHOWN)}" for name, values in sorted(found.items())]
    return "; ".join(texts)


def is_matched(expression: str, device: DeviceValues) -> bool:
    """Whether the expression is true for a device; one that fails is not."""
    try:
        return compiled(expression).matches(device)
    except (SelectorCompileError, CelRuntimeError):
        return False
