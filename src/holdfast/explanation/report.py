"""The explanation of an object as data, and feasibility and ranking of nodes."""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from holdfast.api.events import last_observed
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.diagnosis import NO_NODES, NodeRejection
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.rows import INFEASIBLE
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.scheduler import Scheduler


@dataclass(slots=True)
class ExplainedReason:
    """Why some nodes are infeasible."""

    reason: str
    plugin: str
    nodes: list[str]
    resolvable: bool
    """Whether pods that leave could change it."""


@dataclass(slots=True)
class Ranked:
    """A feasible node."""

    node: str
    score: int
    reservation: str = ""
    """The one that would be used there."""


@dataclass(slots=True)
class MatchingReservation:
    """A reservation that the pod matches."""

    name: str
    phase: str
    node: str
    usable: bool
    why: str
    left: str = ""


@dataclass(slots=True)
class Report:
    object: str
    phase: str
    summary: str
    node: str = ""
    reservation: str = ""
    told: str = ""
    """The message of the object's condition."""
    would_say: str = ""
    """The message that scheduling now would give."""
    nodes: list[ExplainedReason] = field(default_factory=list)
    ranked: list[Ranked] = field(default_factory=list)
    reservations: list[MatchingReservation] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    """For a reservation: pods that use it, and pending pods that could."""
    members: list[str] = field(default_factory=list)
    """For a group: its pods."""
    help: list[str] = field(default_factory=list)
    events: list[Raw] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        found = asdict(self)
        found["events"] = [
            {
                "time": last_observed(each),
                "type": each.get("type", ""),
                "reason": each.get("reason", ""),
                "message": each.get("message", ""),
            }
            for each in self.events
        ]
        return {_camel(key): value for key, value in found.items()}


def few(names: list[str], most: int = 8) -> str:
    """The first names, and the number of the others."""
    shown = ", ".join(names[:most])
    return f"{shown}, and {len(names) - most} more" if len(names) > most else shown


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# Feasible and infeasible nodes


_BEST = 5


class NodeVerdicts(NamedTuple):
    """The verdicts for one pod, or reserve pod, at the moment."""

    profile: Profile
    column: ClassColumn
    message: str
    """The message of the condition; empty if a node is feasible."""
    rejections: dict[str, NodeRejection]
    """By node name."""

    @property
    def reasons(self) -> list[ExplainedReason]:
        found: dict[tuple[str, str], ExplainedReason] = {}
        for node, rejection in sorted(self.rejections.items()):
            for text in rejection.texts:
                reason = found.setdefault(
                    (text, rejection.plugin),
                    ExplainedReason(text, rejection.plugin, [], rejection.resolvable),
                )
                reason.nodes.append(node)
        return sorted(found.values(), key=lambda each: (-len(each.nodes), each.reason))


def place(scheduler: Scheduler, pod: PodRecord) -> NodeVerdicts:
    """Filters the nodes for the pod. A bound pod must have been removed from its node before."""
    cluster = scheduler.cluster
    profile = scheduler.profile_of(pod.scheduler) or scheduler.profiles[0]
    column = scheduler.columns.column(profile, pod.cls)
    rejections = scheduler.search.rejections(profile, pod, column)
    if not cluster.nodes.count:
        return NodeVerdicts(profile, column, NO_NODES, rejections)
    if scheduler.search.find_row(profile, pod, column) >= 0:
        return NodeVerdicts(profile, column, "", rejections)
    why = scheduler.failures.verdict(profile, pod, column)
    more = "" if why.error else scheduler.preemption.post_filter(profile, pod, column).message
    return NodeVerdicts(profile, column, why.message(cluster.nodes.count, more), rejections)


def rank(scheduler: Scheduler, placing: NodeVerdicts) -> list[Ranked]:
    """The best feasible nodes."""
    cluster, column = scheduler.cluster, placing.column
    if column.rejected is not None or not cluster.nodes.count:
        return []
    totals = column.totals()
    known = cluster.reservations.known
    found: list[Ranked] = []
    for row in np.argsort(-totals, kind="stable").tolist():
        name = cluster.nodes.name(row)
        if totals.item(row) <= INFEASIBLE // 2 or len(found) == _BEST:
            break
        if placing.rejections.get(name) is None or placing.rejections[name].texts:
            continue
        reservation = known.get(column.reservation_uid(row))
        score = totals.item(row) + column.constant
        found.append(Ranked(name, score, reservation.name if reservation is not None else ""))
    return found
