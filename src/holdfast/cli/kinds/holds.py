"""Output of starvation holds: the reservations the scheduler makes for the tasks of starving jobs."""

from holdfast.api.names import HOLD_EXPECTED_START, HOLD_JOB, HOLD_LABEL
from holdfast.cli.client import Raw
from holdfast.cli.kinds.kind import OutputColumn
from holdfast.cli.kinds.reservations import ReservationKind, message, phase, requests
from holdfast.cli.printing import age, pairs


class HoldKind(ReservationKind):
    selector = HOLD_LABEL
    columns = (
        OutputColumn("NAME"),
        OutputColumn("JOB"),
        OutputColumn("PHASE"),
        OutputColumn("NODE"),
        OutputColumn("HOLDS"),
        OutputColumn("EXPECTED-START"),
        OutputColumn("AGE"),
        OutputColumn("MESSAGE", wide=True),
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
