"""Output of ReservationSchedules: when they start reservations, and which ones there are."""

from typing import Any

from holdfast.api.errors import TimeError
from holdfast.api.kinds import KINDS
from holdfast.api.names import HOLDFAST_API
from holdfast.api.times import parse_time
from holdfast.cli.client import ObjectLister, Raw
from holdfast.cli.kinds.kind import OutputColumn, PlainKind
from holdfast.cli.kinds.reservations import owner_text, requests, time_until
from holdfast.cli.printing import UNKNOWN, Description, age, events, pairs, since, some

_UTC = "UTC"


class ScheduleKind(PlainKind):
    infos = (KINDS[HOLDFAST_API, "ReservationSchedule"],)
    status = "NEXT"
    columns = (
        OutputColumn("NAME"),
        OutputColumn("SCHEDULE"),
        OutputColumn("TIME-ZONE"),
        OutputColumn("DURATION"),
        OutputColumn("SUSPEND"),
        OutputColumn("NEXT"),
        OutputColumn("LAST"),
        OutputColumn("RESERVATIONS"),
        OutputColumn("AGE"),
        OutputColumn("FOR", wide=True),
        OutputColumn("REQUESTS", wide=True),
    )

    def cells(self, raw: Raw, now: float) -> list[str]:
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        reservation = (spec.get("template") or {}).get("spec") or {}
        return [
            raw["metadata"]["name"],
            spec.get("schedule") or "",
            spec.get("timeZone") or _UTC,
            spec.get("duration") or "",
            "true" if spec.get("suspend") else "false",
            time_until(_time(status.get("nextStart")), now),
            _ago(status.get("lastStart"), now),
            some(status.get("active") or ()),
            age(raw, now),
            " | ".join(owner_text(owner) for owner in reservation.get("owners") or ()),
            pairs(requests(reservation.get("template"))),
        ]

    async def describe(self, server: ObjectLister, raw: Raw) -> str:
        now = server.now()
        text = Description()
        metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        reservation = (spec.get("template") or {}).get("spec") or {}
        text.field("Name", metadata["name"])
        text.field("Created", f"{metadata.get('creationTimestamp')} ({age(raw, now)} ago)")
        text.field("Schedule", spec.get("schedule"))
        text.field("Time Zone", spec.get("timeZone") or _UTC)
        text.field("Duration", spec.get("duration"))
        text.field("Lead", spec.get("lead") or "0")
        text.field("Before Start", spec.get("beforeStart") or "Backfill")
        text.field("At End", spec.get("atEnd") or "Keep")
        if spec.get("releaseIfUnusedAfter"):
            text.field("Release Unused", f"after {spec['releaseIfUnusedAfter']}")
        text.field("Concurrency Policy", spec.get("concurrencyPolicy") or "Allow")
        text.field("Suspend", "true" if spec.get("suspend") else "false")
        text.listed("For", [owner_text(owner) for owner in reservation.get("owners") or ()])
        text.field("Requests", pairs(requests(reservation.get("template"))))
        text.field(
            "Next", _dated(status.get("nextStart"), time_until(_time(status.get("nextStart")), now))
        )
        text.field("Last", _dated(status.get("lastStart"), _ago(status.get("lastStart"), now)))
        text.listed("Reservations", list(status.get("active") or ()))
        headers = ("Type", "Status", "Reason", "Since", "Message")
        keys = ("type", "status", "reason", "lastTransitionTime", "message")
        rows = [[str(each.get(key) or "") for key in keys] for each in status.get("conditions") or ()]
        text.table("Conditions", headers, rows)
        events(text, await server.events(raw), now)
        return text.text()


def _time(text: Any) -> float | None:
    try:
        return parse_time(str(text or ""))
    except TimeError:
        return None


def _ago(text: Any, now: float) -> str:
    found = since(text, now)
    return "" if found == UNKNOWN else f"{found} ago"


def _dated(time: Any, relative: str) -> str:
    return f"{time} ({relative})" if time and relative else str(time or "")
