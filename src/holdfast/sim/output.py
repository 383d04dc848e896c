"""JSON output of a run: identical bytes for the same scenario, configuration and seed."""

from typing import Any

import msgspec

from holdfast.sim.simulation import Result


def as_mapping(result: Result) -> dict[str, Any]:
    return {
        "seed": result.seed,
        "end": result.end,
        "timeline": result.timeline,
        "objects": result.objects,
        "summary": result.summary,
    }


def to_json(results: list[tuple[str | None, Result]]) -> str:
    """One run as it is; several runs with the name of each configuration."""
    if len(results) == 1:
        content = as_mapping(results[0][1])
    else:
        content = {"runs": [{"config": name, **as_mapping(result)} for name, result in results]}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
