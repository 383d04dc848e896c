"""Queues and PodGroups, of which a schema cannot say that one field contradicts another."""

from __future__ import annotations

from typing import Any

from holdfast.api.job_validation import group_contradictions, queue_contradictions
from holdfast.api.names import VOLCANO_API
from holdfast.server.schema.problems import INVALID, Problem, field_problem
from holdfast.server.schema.types import ResourceType

_GROUP = VOLCANO_API.partition("/")[0]


def check_job_kinds(type: ResourceType, raw: dict[str, Any]) -> list[Problem]:
    if type.group != _GROUP or type.kind not in ("Queue", "PodGroup"):
        return []
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return []
    if type.kind == "Queue":
        found = queue_contradictions((raw.get("metadata") or {}).get("name", ""), spec)
    else:
        found = group_contradictions(spec)
    return [field_problem(INVALID, ".".join(e.path), e.value, e.message) for e in found]
