"""Decisions as they are written, where every backend writes them alike."""

from typing import Any

import msgspec

from holdfast.core.decisions import SpecifyMigration


def specification(decision: SpecifyMigration) -> dict[str, Any]:
    """What changes in the job's spec, as a merge patch."""
    changes: dict[str, Any] = {}
    if decision.pod is not None:
        changes["podRef"] = msgspec.to_builtins(decision.pod)
    if decision.reservation is not None:
        reference = msgspec.to_builtins(decision.reservation)
        changes["reservationOptions"] = {"reservationRef": reference}
    return changes
