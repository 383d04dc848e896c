"""Functions of CEL on strings, `format` and `strings.quote` included."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from holdfast.machinery.schema.cel.overloads import (
    INT,
    LIST,
    STRING,
    STRINGS,
    Functions,
    failed,
    function,
    method,
)
from holdfast.machinery.schema.cel.syntax import Uint
from holdfast.machinery.schema.cel.times import duration_text, timestamp_text
from holdfast.machinery.schema.cel.values import (
    DurationValue,
    TimestampValue,
    TypeValue,
    type_name,
)

_BLANK = "\t\n\v\f\r \u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""White space in Go."""
_CLAUSE = re.compile(r"%(?:\.(\d+))?(.)?", re.DOTALL)
_QUOTED = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_MAX_PRECISION = 1000
_EXPONENT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def float_text(value: float) -> str:
    """A double as Go's `%g` has it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    digits, _, exponent = f"{value!r}".partition("e")
    shortest = repr(value)
    if "e" in shortest:
        power = int(exponent)
        digits = digits.removesuffix(".0")
    else:
        number = digits.lstrip("-")
        whole, _, fraction = number.partition(".")
        if whole != "0":
            power = len(whole) - 1
        else:
            power = -(len(fraction) - len(fraction.lstrip("0")) + 1) if fraction.strip("0") else 0
    if -4 <= power < 6:
        return f"{value:.17f}".rstrip("0").rstrip(".") if "e" in shortest else digits.removesuffix(".0")
    significant = digits.replace(".", "").lstrip("-0").rstrip("0") or "0"
    sign = "-" if value < 0 else ""
    mantissa = significant[0] + (f".{significant[1:]}" if significant[1:] else "")
    return f"{sign}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02}"


def quoted(text: str) -> str:
    """A string literal as Go writes it."""

    def shown(char: str) -> str:
        if char in _QUOTED:
            return _QUOTED[char]
        if char.isprintable() or char == " ":
            return char
        code = ord(char)
        return (
            f"\\x{code:02x}"
            if code < 0x80
            else f"\\u{code:04x}"
            if code < 0x10000
            else f"\\U{code:08x}"
        )

    return f'"{"".join(map(shown, text))}"'


# `format`


def text_of(value: Any) -> str:
    """A value as `%s` writes it."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case float():
            return float_text(value)
        case int():
            return str(int(value))
        case bytes():
            return value.decode(errors="replace")
        case TimestampValue():
            return timestamp_text(value)
        case DurationValue():
            return duration_text(value)
        case TypeValue():
            return value.name
        case list():
            return f"[{', '.join(map(_inside, value))}]"
        case dict():
            entries = sorted((_inside(key), _inside(each)) for key, each in value.items())
            return f"{{{', '.join(f'{key}:{each}' for key, each in entries)}}}"
        case _:
            raise failed(
                "error during formatting: string clause can only be used on strings, bools, bytes, "
                "ints, doubles, maps, lists, types, durations, and timestamps, was given "
                f"{type_name(value)}"
            )


def _inside(value: Any) -> str:
    """A value in a list or map, as a literal of CEL."""
    match value:
        case str():
            return quoted(value)
        case bytes():
            return f"b{quoted(value.decode(errors='replace'))}"
        case float():
            return f"{value:f}" if math.isfinite(value) else quoted(float_text(value))
        case TimestampValue():
            return f"timestamp({quoted(timestamp_text(value))})"
        case DurationValue():
            return f"duration({quoted(duration_text(value))})"
        case TypeValue():
            return f"type({value.name})"
        case _:
            return text_of(value)


def _decimal(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    raise _misused("decimal clause can only be used on integers", value)


def _misused(why: str, value: Any) -> Exception:
    return failed(f"error during formatting: {why}, was given {type_name(value)}")


def _floating(clause: str) -> Callable[[Any, int], str]:
    def run(value: Any, precision: int) -> str:
        if value in ("NaN", "Infinity", "-Infinity"):
            value = float(value)
        if not isinstance(value, float):
            raise _misused(f"{clause} clause can only be used on doubles", value)
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
        if clause == "fixed-point":
            return f"{value:,.{precision}f}"
        # Kubernetes passes the precision as a width, which has no effect.
        mantissa, _, exponent = f"{value:.6e}".partition("e")
        power = f"{'-' if int(exponent) < 0 else ''}{abs(int(exponent)):02}"
        return f"{mantissa}×10{power.translate(_EXPONENT)}"

    return run


def _based(base: str, clause: str) -> Callable[[Any], str]:
    def run(value: Any) -> str:
        if clause == "binary" and isinstance(value, bool):
            return "1" if value else "0"
        if clause == "hex" and isinstance(value, str | bytes):
            found = (value.encode() if isinstance(value, str) else value).hex()
            return found.upper() if base == "X" else found
        if isinstance(value, int) and not isinstance(value, bool):
            return format(int(value), base)
        kinds = {
            "binary": "integers and bools",
            "hex": "integers, byte buffers, and strings",
            "octal": "integers",
        }
        raise _misused(f"{clause} clause can only be used on {kinds[clause]}", value)

    return run


_PLAIN: dict[str, Callable[[Any], str]] = {
    "s": text_of,
    "d": _decimal,
    "b": _based("b", "binary"),
    "x": _based("x", "hex"),
    "X": _based("X", "hex"),
    "o": _based("o", "octal"),
}
_PRECISE = {"f": _floating("fixed-point"), "e": _floating("scientific")}


def _formatted(template: str, arguments: list[Any]) -> str:
    given = iter(enumerate(arguments))

    def clause(found: re.Match[str]) -> str:
        precision, verb = found[1], found[2]
        if verb == "%" and precision is None:
            return "%"
        if verb not in _PLAIN and verb not in _PRECISE:
            raise failed(
                f'could not parse formatting clause: unrecognized formatting clause "{verb or ""}"'
            )
        if precision is not None and int(precision) > _MAX_PRECISION:
            raise failed(f"precision of {precision} is too large")
        index, value = next(given, (len(arguments), None))
        if index == len(arguments):
            raise failed(f"index {index} out of range")
        if verb in _PRECISE:
            return _PRECISE[verb](value, 6 if precision is None else int(precision))
        return _PLAIN[verb](value)

    return _CLAUSE.sub(clause, template)


# The others


def _character(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise failed(f"index out of range: {at}")
    return text[at : at + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        if not 0 <= start <= len(text):
            raise failed(f"index out of range: {start}")
        return text[start:]
    if start > end:
        raise failed(f"invalid substring range. start: {start}, end: {end}")
    for at in (start, end):
        if not 0 <= at <= len(text):
            raise failed(f"index out of range: {at}")
    return text[start:end]


def _index(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise failed(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return text.find(part, start)


def _last_index(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if start < 0:
        raise failed(f"index out of range: {start}")
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _replaced(text: str, old: str, new: str, times: int = -1) -> str:
    return text.replace(old, new, times)


def _split(text: str, between: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not between:
        parts = list(text)
        return parts if limit < 0 else [*parts[: limit - 1], "".join(parts[limit - 1 :])]
    return text.split(between, limit - 1 if limit > 0 else -1)


def _lower(text: str) -> str:
    return "".join(chr(ord(sign) + 32) if "A" <= sign <= "Z" else sign for sign in text)


def _upper(text: str) -> str:
    return "".join(chr(ord(sign) - 32) if "a" <= sign <= "z" else sign for sign in text)


def to_int(text: str) -> int:
    """A decimal number, by the rules of Go."""
    if re.fullmatch(r"[-+]?\d+", text, re.ASCII) is None:
        raise failed("type conversion error from 'string' to 'int'")
    return int(text)


def to_uint(text: str) -> Uint:
    if re.fullmatch(r"\d+", text, re.ASCII) is None:
        raise failed("type conversion error from 'string' to 'uint'")
    return Uint(int(text))


STRING_FUNCTIONS: Functions = {
    "charAt": [method((STRING, INT), STRING, _character)],
    "indexOf": [
        method((STRING, STRING), INT, _index),
        method((STRING, STRING, INT), INT, _index),
    ],
    "lastIndexOf": [
        method((STRING, STRING), INT, _last_index),
        method((STRING, STRING, INT), INT, _last_index),
    ],
    "join": [
        method((STRINGS,), STRING, lambda items: "".join(items)),
        method((STRINGS, STRING), STRING, lambda items, between: between.join(items)),
    ],
    "lowerAscii": [method((STRING,), STRING, _lower)],
    "upperAscii": [method((STRING,), STRING, _upper)],
    "replace": [
        method((STRING, STRING, STRING), STRING, _replaced),
        method((STRING, STRING, STRING, INT), STRING, _replaced),
    ],
    "split": [
        method((STRING, STRING), STRINGS, _split),
        method((STRING, STRING, INT), STRINGS, _split),
    ],
    "substring": [
        method((STRING, INT), STRING, _substring),
        method((STRING, INT, INT), STRING, _substring),
    ],
    "trim": [method((STRING,), STRING, lambda text: text.strip(_BLANK))],
    "format": [method((STRING, LIST), STRING, _formatted)],
    "strings.quote": [function((STRING,), STRING, quoted)],
}
