"""Kinds of which there is little to say: namespaces, events, configuration, leases, classes."""

from typing import Any

from holdfast.server.api.tables.columns import AGE, NAME, UNKNOWN, Column, Printer, age, since, wide
from holdfast.store import Raw


def _namespace(raw: Raw, now: float) -> list[Any]:
    phase = (raw.get("status") or {}).get("phase", "")
    return [raw["metadata"]["name"], phase, age(raw, now)]


def _name_and_age(raw: Raw, now: float) -> list[Any]:
    return [raw["metadata"]["name"], age(raw, now)]


def _secret(raw: Raw, now: float) -> list[Any]:
    return [raw["metadata"]["name"], raw.get("type", ""), len(raw.get("data") or {}), age(raw, now)]


def _config_map(raw: Raw, now: float) -> list[Any]:
    count = len(raw.get("data") or {}) + len(raw.get("binaryData") or {})
    return [raw["metadata"]["name"], str(count), age(raw, now)]


def _lease(raw: Raw, now: float) -> list[Any]:
    holder = (raw.get("spec") or {}).get("holderIdentity") or ""
    return [raw["metadata"]["name"], holder, age(raw, now)]


def _priority_class(raw: Raw, now: float) -> list[Any]:
    return [
        raw["metadata"]["name"],
        raw.get("value", 0),
        bool(raw.get("globalDefault")),
        age(raw, now),
        raw.get("preemptionPolicy") or "",
    ]


def _definition(raw: Raw, now: float) -> list[Any]:
    return [raw["metadata"]["name"], raw["metadata"].get("creationTimestamp")]


def _event(raw: Raw, now: float) -> list[Any]:
    """Both forms of events: with first and last times and a count, or with one time and a series."""
    about = raw.get("involvedObject") or raw.get("regarding") or {}
    source = raw.get("source") or raw.get("deprecatedSource") or {}
    first = since(_time(raw, "First") or raw.get("eventTime"), now)
    last = _time(raw, "Last")
    count = raw.get("count") or raw.get("deprecatedCount") or 1
    shown = since(last, now) if last else first
    series = raw.get("series")
    if series:
        shown, count = since(series.get("lastObservedTime"), now), series.get("count", 1)
    kind = about.get("kind", "").lower()
    component = source.get("component") or _reporter(raw, "Component", "Controller")
    host = source.get("host") or raw.get("reportingInstance") or ""
    return [
        shown,
        raw.get("type", ""),
        raw.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (raw.get("message") or raw.get("note") or "").strip(),
        first if first != UNKNOWN else shown,
        count,
        raw["metadata"]["name"],
    ]


def _time(raw: Raw, which: str) -> str | None:
    return raw.get(f"{which.lower()}Timestamp") or raw.get(f"deprecated{which}Timestamp")


def _reporter(raw: Raw, *names: str) -> str:
    return next((raw[f"reporting{name}"] for name in names if raw.get(f"reporting{name}")), "")


_EVENT = Printer(
    (
        Column("Last Seen", description="When it happened last."),
        Column("Type", description="Normal, or Warning."),
        Column("Reason", description="Why, in a word."),
        Column("Object", description="The object it happened to."),
        wide("Subobject"),
        wide("Source"),
        Column("Message", description="What happened."),
        wide("First Seen"),
        wide("Count"),
        Column("Name", format="name", priority=1),
    ),
    _event,
)

PLAIN = {
    ("", "Namespace"): Printer((NAME, Column("Status"), AGE), _namespace),
    ("", "Secret"): Printer((NAME, Column("Type"), Column("Data"), AGE), _secret),
    ("", "ConfigMap"): Printer((NAME, Column("Data"), AGE), _config_map),
    ("", "ServiceAccount"): Printer((NAME, AGE), _name_and_age),
    ("coordination.k8s.io", "Lease"): Printer((NAME, Column("Holder"), AGE), _lease),
    ("scheduling.k8s.io", "PriorityClass"): Printer(
        (
            NAME,
            Column("Value", "integer"),
            Column("Global-Default", "boolean"),
            AGE,
            Column("PreemptionPolicy"),
        ),
        _priority_class,
    ),
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): _EVENT,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Printer(
        (NAME, Column("Created At", "date", description="When it was created.")), _definition
    ),
}

DEFAULT = Printer((NAME, AGE), _name_and_age)
