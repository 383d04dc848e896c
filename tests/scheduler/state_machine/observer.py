"""The schedulers whose life is watched, and the plugin that watches."""

from __future__ import annotations

from typing import ClassVar

from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.interface import FINE, Outcome, Plugin
from reference.resource_scores import Strategy
from reference.setup import Setup

SETUPS = (
    Setup("default-scheduler", extra=("Witness",), preempts=True),
    Setup(
        "packing",
        Strategy("MostAllocated"),
        weights={"NodeResourcesFit": 5},
        extra=("Witness",),
        preempts=True,
    ),
)
OURS = {setup.name: setup for setup in SETUPS}
FORBIDDEN = "not now"


class Witness(Plugin):
    """Sees every claim and every one given back, in order; makes pods labelled `patient` wait."""

    name = "Witness"
    log: ClassVar[list[tuple[str, str, int | str]]] = []
    allowed: ClassVar[set[str]] = set()
    refused: ClassVar[set[str]] = set()

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self.log.append(("reserve", pod.uid, row))
        return FINE

    def unreserve(self, pod: PodRecord, row: int) -> None:
        self.log.append(("unreserve", pod.uid, row))

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        if pod.uid in self.refused:
            return Outcome(FORBIDDEN)
        if "patient" in pod.cls.labels and pod.uid not in self.allowed:
            return Outcome(wait=5.0)
        return FINE
