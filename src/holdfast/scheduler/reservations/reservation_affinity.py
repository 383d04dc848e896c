"""The reservation affinity of a pod: which reservations it can or must be allocated from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from holdfast.api import names
from holdfast.api.affinity import Taint
from holdfast.api.annotations import ExactMatchReservation, ReservationAffinity
from holdfast.api.decode import decode_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import Struct
from holdfast.api.selectors import find_untolerated, match_node_selector_term, tolerated
from holdfast.machinery.schema.decoding import find_unknown
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import ReservationInfo

_CLOSED = Taint(key=names.TAINT_UNSCHEDULABLE, effect=names.NO_SCHEDULE)
_KEEPING_OUT = (names.NO_SCHEDULE, names.NO_EXECUTE)

OTHER_NAME = "didn't match the requested reservation name"
UNSCHEDULABLE = "is unschedulable"
AFFINITY = "didn't match affinity rules"
NOT_EXACT = "is not exact matched"


class RequiredReservation:
    """The reservation affinity of one pod class; `error` is why its annotations are invalid."""

    __slots__ = ("_amounts", "_exact", "_is_open", "_tolerations", "affinity", "error")

    def __init__(self, cls: PodClass, amounts: Mapping[str, int]) -> None:
        self.error = ""
        self.affinity: ReservationAffinity | None = None
        self._amounts = amounts
        self._exact: tuple[str, ...] = ()
        self._tolerations = cls.tolerations
        try:
            text = cls.annotations.get(names.RESERVATION_AFFINITY)
            if text is not None:
                self.affinity = _read(text, ReservationAffinity, names.RESERVATION_AFFINITY)
                self._tolerations = [*cls.tolerations, *self.affinity.tolerations]
            text = cls.annotations.get(names.EXACT_MATCH_RESERVATION)
            if text is not None:
                exact = _read(text, ExactMatchReservation, names.EXACT_MATCH_RESERVATION)
                self._exact = tuple(exact.resource_names)
        except InvalidObject as error:
            self.error = f"{error.field}: {error.message}"
        self._is_open = self.affinity is None and not self._exact
        """Whether it allows any reservation."""

    @property
    def required(self) -> bool:
        """Whether the pod must be allocated from a reservation."""
        return self.affinity is not None

    @property
    def by_name(self) -> str:
        return self.affinity.name if self.affinity is not None else ""

    def refusal(self, reservation: ReservationInfo, node_labels: Mapping[str, str]) -> str:
        """Why the pod cannot be allocated from the reservation; empty if it can."""
        if self._is_open and not reservation.taints and not reservation.closed:
            return ""
        if self.by_name:
            if reservation.name != self.by_name:
                return OTHER_NAME
            return "" if self._is_exact(reservation) else NOT_EXACT
        if closed := self.untolerated(reservation):
            return closed
        if self.affinity is not None and not self._is_near(self.affinity, reservation, node_labels):
            return AFFINITY
        return "" if self._is_exact(reservation) else NOT_EXACT

    def untolerated(self, reservation: ReservationInfo) -> str:
        """Why the reservation is closed to the pod: it is unschedulable or tainted, and the pod neither
        tolerates that nor names the reservation."""
        if self.by_name == reservation.name:
            return ""
        if reservation.closed and not tolerated(_CLOSED, self._tolerations):
            return UNSCHEDULABLE
        taints = [taint for taint in reservation.taints if taint.effect in _KEEPING_OUT]
        taint = find_untolerated(taints, self._tolerations) if taints else None
        return f"had untolerated taint {{{taint.key}: {taint.value}}}" if taint is not None else ""

    def _is_near(
        self,
        affinity: ReservationAffinity,
        reservation: ReservationInfo,
        node_labels: Mapping[str, str],
    ) -> bool:
        labels = reservation.object.metadata.labels
        if any(labels.get(key) != value for key, value in affinity.reservation_selector.items()):
            return False
        required = affinity.required_during_scheduling_ignored_during_execution
        if required is None:
            return True
        everything = {**node_labels, **labels}
        return any(
            match_node_selector_term(term, everything, reservation.name)
            for term in required.reservation_selector_terms
        )

    def takes_new(self, amounts: Mapping[str, int]) -> bool:
        """Whether the pod can be allocated from a reservation of these amounts that is created for it
        and has no labels."""
        affinity = self.affinity
        near = affinity is None or not (
            affinity.name
            or affinity.reservation_selector
            or affinity.required_during_scheduling_ignored_during_execution
        )
        return near and all(self._amounts.get(n, 0) == amounts.get(n, 0) for n in self._exact)

    def unequal(self, reservation: ReservationInfo) -> dict[str, tuple[int, int]]:
        """By resource whose amount must match exactly and does not, what the pod requests and what the
        reservation has."""
        there = reservation.amounts_by_name
        sizes = {name: (self._amounts.get(name, 0), there.get(name, 0)) for name in self._exact}
        return {name: (own, has) for name, (own, has) in sizes.items() if own != has}

    def _is_exact(self, reservation: ReservationInfo) -> bool:
        return not (self._exact and self.unequal(reservation))


T = TypeVar("T", bound=Struct)


def _read(text: str, type: type[T], annotation: str) -> T:
    """Decodes an annotation; an empty one counts as an empty object. A misspelt field is an error,
    since the pod would be scheduled as if it were not set; an unknown field that resembles none is
    ignored."""
    source, field = "{}" if text in ("", "null") else text, f"metadata.annotations[{annotation}]"
    read = decode_json(source, type, field=field)
    for error in find_unknown(msgspec.json.decode(source), type, mistakes_only=True):
        raise error.within(prefix=field)
    return read
