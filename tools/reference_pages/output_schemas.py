"""The JSON Schemas of what commands print with `-o json`."""

import json
from collections.abc import Callable
from typing import Any

from holdfast.sim.forecast.answers import schema as when_schema
from holdfast.sim.windows.window_answers import schema as advise_schema

_SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "advise.schema.json": advise_schema,
    "when.schema.json": when_schema,
}


def files() -> dict[str, str]:
    """File name to text."""
    return {name: json.dumps(make(), indent=2) + "\n" for name, make in _SCHEMAS.items()}
