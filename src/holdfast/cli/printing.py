"""Tables, YAML, JSON and names in kubectl's formats."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.api.documents import write_yaml
from holdfast.api.errors import TimeError
from holdfast.api.events import last_observed
from holdfast.api.kinds import KindInfo, kind_info
from holdfast.api.times import parse_time
from holdfast.kube.object_client import Raw
from holdfast.local.apiserver.tables.columns import human_duration

NONE = "<none>"
UNKNOWN = "<unknown>"
NEVER = "never"
_GAP = 3
_INDENT = 2


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], heading: bool = True) -> list[str]:
    """Lines with columns three blanks apart; empty cells are `<none>`."""
    lines = [[*headers]] if heading else []
    lines += [[*row] for row in rows]
    wide = widths((), lines)
    return [padded(line, wide) for line in lines]


def widths(first: Sequence[str], lines: Iterable[Sequence[str]]) -> list[int]:
    """The width of each column of these lines."""
    found: list[int] = [len(cell or NONE) for cell in first]
    for line in lines:
        found += [0] * (len(line) - len(found))
        for i, cell in enumerate(line):
            found[i] = max(found[i], len(cell or NONE))
    return found


def padded(line: Sequence[str], wide: Sequence[int]) -> str:
    cells = (cell or NONE for cell in line)
    return "".join(c.ljust(width + _GAP) for c, width in zip(cells, wide, strict=True)).rstrip()


def as_yaml(raw: Any) -> str:
    """Keys in alphabetical order, like kubectl."""
    return write_yaml(raw, sort_keys=True)


def as_manifest(raw: Raw) -> str:
    """Keys in the order written."""
    return write_yaml(raw)


def as_json(raw: Any) -> str:
    return json.dumps(raw, indent=4, sort_keys=True, ensure_ascii=False) + "\n"


def as_list(items: Sequence[Raw]) -> Raw:
    return {"apiVersion": "v1", "items": [*items], "kind": "List", "metadata": {"resourceVersion": ""}}


def resource_name(info: KindInfo, name: str) -> str:
    """`reservation.scheduling.koordinator.sh/peak`, as `-o name` has it."""
    group = f".{info.group}" if info.group else ""
    return f"{info.singular}{group}/{name}"


def object_title(raw: Raw) -> str:
    """The name of an object as `-o name` has it."""
    return resource_name(kind_info(raw["apiVersion"], raw["kind"]), raw["metadata"]["name"])


def age(raw: Raw, now: float) -> str:
    return since(raw["metadata"].get("creationTimestamp"), now)


def since(time: Any, now: float) -> str:
    try:
        return human_duration(now - parse_time(str(time or "")))
    except TimeError:
        return UNKNOWN


def pairs(mapping: Mapping[str, Any] | None, join: str = ",") -> str:
    """`a=1,b=2`"""
    return join.join(f"{key}={value}" for key, value in sorted((mapping or {}).items()))


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few of them."""
    shown = ",".join(names[:most])
    return f"{shown} + {len(names) - most} more..." if len(names) > most else shown


def taint_text(taint: Raw) -> str:
    """`key=value:effect`"""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


class Description:
    """The format of `kubectl describe`: names and aligned values, nested parts indented."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str, str | None]] = []
        self._depth = 0
        self._notes: list[str] = []

    def field(self, name: str, value: Any = None, lines: Iterable[str] = ()) -> None:
        text = "" if value is None else str(value)
        rest = list(lines)
        self._lines.append((self._depth, f"{name}:", text or (None if rest else NONE)))
        self._lines += [(self._depth + 1, line, None) for line in rest]

    def listed(self, name: str, values: Sequence[str]) -> None:
        """Several values of one name, below each other."""
        self._lines.append((self._depth, f"{name}:", values[0] if values else NONE))
        self._lines += [(self._depth, "", value) for value in values[1:]]

    def table(self, name: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if not rows:
            self.field(name)
            return
        rule = ["-" * len(header) for header in headers]
        self.field(name, lines=table(headers, [rule, *rows]))

    def note(self, text: str) -> None:
        """A line at the end that is no field."""
        self._notes.append(text)

    def text(self) -> str:
        width = max(
            (len(name) + _INDENT * depth for depth, name, value in self._lines if value), default=0
        )
        out = []
        for depth, name, value in self._lines:
            indent = " " * (_INDENT * depth)
            if value is None:
                out.append(indent + name)
            else:
                out.append((indent + name).ljust(width + 2) + value)
        out += ["", *self._notes] if self._notes else []
        return "\n".join(line.rstrip() for line in out) + "\n"


def events(description: Description, found: Sequence[Raw], now: float) -> None:
    headers = ("Type", "Reason", "Age", "From", "Message")
    description.table("Events", headers, [event_cells(event, now) for event in found])


def event_cells(event: Raw, now: float) -> list[str]:
    series = event.get("series") or {}
    times = int(series.get("count") or event.get("count") or 1)
    last = since(last_observed(event), now)
    first = event.get("firstTimestamp") or event.get("eventTime") or last_observed(event)
    how_long = f"{last} (x{times} over {since(first, now)})" if times > 1 else last
    source = event.get("source") or {}
    return [
        str(event.get("type") or ""),
        str(event.get("reason") or ""),
        how_long,
        str(event.get("reportingComponent") or source.get("component") or ""),
        str(event.get("message") or "").strip(),
    ]
