"""The calendar annotations of a Reservation: when it starts, what happens before, and how it ends.

Koordinator ignores annotations it does not know, so a Reservation that has them stays compatible.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from holdfast.api import names
from holdfast.api.errors import DurationError, InvalidObject, TimeError
from holdfast.api.similar_names import any_of, nearest
from holdfast.api.times import parse_duration, parse_time


class BeforeStart(StrEnum):
    """What may run on the planned node before a reservation starts."""

    BACKFILL = "Backfill"
    """Only what ends by the start, or fits beside the reservation, may start there. Evicts no pod."""
    DRAIN = "Drain"
    """The same, but only from `start - lead` on; before that, anything may start there."""
    PREEMPT = "Preempt"
    """As Drain; and from `start - lead` on, pods of lower priority that are in the way are evicted."""


class AtEnd(StrEnum):
    """What happens to the owners when a reservation expires."""

    KEEP = "Keep"
    EVICT = "Evict"


class CalendarTerms(NamedTuple):
    """The calendar annotations of one Reservation."""

    start: float | None
    """When it starts, in seconds since the epoch; None: at once."""
    lead: float = 0.0
    """How long before the start draining begins, in seconds."""
    before: str = BeforeStart.BACKFILL
    release_after: float | None = None
    """It expires if it was not used for so long after it became Available; None: not for that."""
    at_end: str = AtEnd.KEEP

    @property
    def drains_at(self) -> float:
        """When draining begins; minus infinity for a reservation without a start."""
        return float("-inf") if self.start is None else self.start - self.lead


NO_TERMS = CalendarTerms(None)
_KEYS = (
    names.STARTS_AT,
    names.LEAD,
    names.BEFORE_START,
    names.RELEASE_IF_UNUSED_AFTER,
    names.AT_END,
)


_DOMAIN = "holdfast.io/"
_OTHERS = frozenset(
    each
    for each in vars(names).values()
    if isinstance(each, str) and each.startswith(_DOMAIN) and each not in _KEYS
)
"""Other annotations and labels of the domain, which are not misspelt."""


def misspelt_terms(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Annotations of a Reservation that look like misspelt calendar annotations, each with what is
    wrong. They are legal, and ignored."""
    known = {key.removeprefix(_DOMAIN): key for key in _KEYS if key not in annotations}
    found = []
    for key in annotations:
        if not key.startswith(_DOMAIN) or key in _KEYS or key in _OTHERS:
            continue
        near = nearest(key.removeprefix(_DOMAIN), known)
        if near:
            found.append((key, f"unknown annotation; did you mean {any_of([known[n] for n in near])}?"))
    return found


def calendar_terms(annotations: Mapping[str, str]) -> CalendarTerms:
    """The calendar terms of a Reservation with these annotations. Raises InvalidObject, with the
    annotation as its field."""
    terms, errors = checked_terms(annotations)
    if errors:
        raise errors[0]
    return terms


def checked_terms(annotations: Mapping[str, str]) -> tuple[CalendarTerms, list[InvalidObject]]:
    """The calendar terms of a Reservation with these annotations, and all errors of them, each with the
    annotation as its field. An invalid annotation counts as not given."""
    if not any(key in annotations for key in _KEYS):
        return NO_TERMS, []
    given = _GivenTerms(annotations)
    terms = CalendarTerms(
        given.time(names.STARTS_AT),
        given.duration(names.LEAD) or 0.0,
        given.choice(names.BEFORE_START, BeforeStart, BeforeStart.BACKFILL),
        given.duration(names.RELEASE_IF_UNUSED_AFTER),
        given.choice(names.AT_END, AtEnd, AtEnd.KEEP),
    )
    if names.STARTS_AT not in annotations:
        for key in (names.LEAD, names.BEFORE_START):
            if key in annotations:
                given.refuse(key, f"needs {names.STARTS_AT}")
    return terms, given.errors


class _GivenTerms:
    """Reads calendar annotations, and collects their errors."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self._annotations = annotations
        self.errors: list[InvalidObject] = []

    def time(self, key: str) -> float | None:
        text = self._annotations.get(key)
        try:
            return None if text is None else parse_time(text)
        except TimeError as error:
            self.refuse(key, str(error))
            return None

    def duration(self, key: str) -> float | None:
        text = self._annotations.get(key)
        try:
            seconds = None if text is None else parse_duration(text)
        except DurationError as error:
            self.refuse(key, str(error))
            return None
        if seconds is not None and seconds < 0:
            self.refuse(key, f"must not be negative: {text!r}")
            return None
        return seconds

    def choice(self, key: str, known: type[StrEnum], default: StrEnum) -> str:
        value = self._annotations.get(key)
        if value is None or value in list(known):
            return default if value is None else value
        self.refuse(key, f"unknown value {value!r}; known: {', '.join(known)}")
        return default

    def refuse(self, key: str, message: str) -> None:
        self.errors.append(InvalidObject("", f"metadata.annotations[{key}]", message))
