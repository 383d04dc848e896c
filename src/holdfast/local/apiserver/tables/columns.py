"""A column, and the words most columns are written in."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.api.errors import TimeError
from holdfast.api.times import parse_time
from holdfast.local.store import Raw

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"


class TableColumn(NamedTuple):
    """A priority above 0 is shown in wide output only."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def definition(self) -> Raw:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


Cells = Callable[[Raw, float], list[Any]]
"""The cells of an object at a time; as many as there are columns."""


class Printer(NamedTuple):
    columns: tuple[TableColumn, ...]
    cells: Cells


NAME = TableColumn(
    "Name", format="name", description="The object's name, unique within its kind and namespace."
)
AGE = TableColumn("Age", description="How long ago the object was created.")


def wide(name: str, type: str = "string", description: str = "") -> TableColumn:
    return TableColumn(name, type, description=description, priority=1)


def age(raw: Raw, now: float) -> str:
    return since(raw["metadata"].get("creationTimestamp"), now)


def since(time: str | None, now: float) -> str:
    if not time:
        return UNKNOWN
    try:
        return human_duration(now - parse_time(time))
    except TimeError:
        return UNKNOWN


def human_duration(seconds: float) -> str:
    """Two units at most, and fewer the longer it is, as kubectl writes ages."""
    s = int(seconds)
    if s < -1:
        return "<invalid>"
    if s < 120:
        return f"{max(s, 0)}s"
    minutes, hours = s // 60, s // 3600
    if minutes < 10:
        return _two(minutes, "m", s % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def labels_text(labels: Mapping[str, str] | None) -> str:
    if not labels:
        return NONE
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def selector_text(selector: Raw | None) -> str:
    """A label selector as it is typed after `-l`."""
    if selector is None:
        return NONE
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for each in selector.get("matchExpressions") or []:
        key, operator = each.get("key", ""), each.get("operator", "")
        values = ",".join(sorted(each.get("values") or []))
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }.get(operator, key)
        )
    return ",".join(parts) or NONE


def names_and_images(containers: Iterable[Raw]) -> tuple[str, str]:
    containers = list(containers)
    return (
        ",".join(each.get("name", "") for each in containers),
        ",".join(each.get("image", "") for each in containers),
    )


def condition(raw: Raw, type: str) -> Raw | None:
    conditions = (raw.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == type), None)


def is_true(raw: Raw, type: str) -> bool:
    found = condition(raw, type)
    return found is not None and found.get("status") == "True"
