"""Holds: the reservations the scheduler makes for the tasks of jobs that starve."""

from holdfast.api.names import HOLD_EXPECTED_START, HOLD_JOB, HOLD_LABEL
from holdfast.cli.asking.printing import age, pairs
from holdfast.cli.asking.server import Raw
from holdfast.cli.kinds.kind import Column
from holdfast.cli.kinds.reservations import Reservations, message, phase, requests


class Holds(Reservations):
    selector = HOLD_LABEL
    columns = (
        Column("NAME"),
        Column("JOB"),
        Column("PHASE"),
        Column("NODE"),
        Column("HOLDS"),
        Column("EXPECTED-START"),
        Column("AGE"),
        Column("MESSAGE", wide=True),
    )

    def cells(self, raw: Raw, now: float) -> list[str]:
        metadata, status = raw["metadata"], raw.get("status") or {}
        said = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
        amounts = status.get("allocatable") or requests((raw.get("spec") or {}).get("template"))
        return [
            metadata["name"],
            said.get(HOLD_JOB, ""),
            phase(raw),
            status.get("nodeName") or "",
            pairs(amounts),
            said.get(HOLD_EXPECTED_START, ""),
            age(raw, now),
            message(raw),
        ]
