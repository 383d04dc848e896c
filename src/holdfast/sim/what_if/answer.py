"""The answer to a question: what is placed, displaced, pending and blocked, as data.

`schemas/what_if.schema.json` describes what `data` returns.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.api.times import format_time
from holdfast.scheduler.framework.diagnosis import reasons_in
from holdfast.sim.what_if.capacity import ClusterCapacity
from holdfast.sim.what_if.drain import BlockedEviction
from holdfast.sim.what_if.node_plan import NodePlan

SCHEMA = "https://holdfast.io/schemas/what-if/v1"

NODE_PODS = "pods without DaemonSets"
"""How tables name the number of pods on a node; static pods are not counted either."""
NEW, PENDING, DISPLACED = "new", "pending", "displaced"
"""What an object was before: not there, pending, or on a node that it had to leave."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod or reservation that gets a node."""

    object: str
    workload: str
    node: str
    was: str
    reservation: str = ""
    """The one that the pod is allocated from."""

    def data(self) -> dict[str, Any]:
        return {
            "object": self.object,
            "workload": self.workload,
            "node": self.node,
            "was": self.was,
            "reservation": self.reservation,
        }


@dataclass(slots=True)
class Displaced:
    """A pod that had a node and has to leave it."""

    object: str
    workload: str
    node: str
    reason: str
    """`Preempted`, `Reclaimed`, `Drained`, `NodeRemoved`, `Evicted` or `Deleted`."""
    by: str = ""
    """The preemptor, or for whom it was reclaimed."""
    replaced_by: str = ""
    """The pod in its place; empty if nothing makes one."""
    to: str = ""
    """The node of that pod; empty if it is pending."""

    def data(self) -> dict[str, Any]:
        return {
            "object": self.object,
            "workload": self.workload,
            "node": self.node,
            "reason": self.reason,
            "by": self.by,
            "replacedBy": self.replaced_by,
            "to": self.to,
        }


@dataclass(frozen=True, slots=True)
class LostReservation:
    """A reservation that had capacity on a node and does not get it again."""

    object: str
    node: str
    reason: str
    """As of a displaced pod."""
    by: str = ""
    """The preemptor."""

    def data(self) -> dict[str, Any]:
        return {"object": self.object, "node": self.node, "reason": self.reason, "by": self.by}


@dataclass(frozen=True, slots=True)
class StillPending:
    """A pod or reservation without a node."""

    object: str
    workload: str
    was: str
    message: str
    waits_for: str = "node"
    """`node`; `gate` if it has scheduling gates; `scheduler` if no profile has its scheduler's name."""
    scheduler: str = ""

    @property
    def is_reservation(self) -> bool:
        return self.object.startswith("Reservation/")

    @property
    def reasons(self) -> list[str]:
        return reasons_in(self.message)

    def data(self) -> dict[str, Any]:
        return {
            "object": self.object,
            "workload": self.workload,
            "was": self.was,
            "waitsFor": self.waits_for,
            "message": self.message,
            "reasons": self.reasons,
        }


@dataclass(frozen=True, slots=True)
class ChangedNode:
    name: str
    change: str
    """`Added`, `Drained` or `Removed`."""
    pods: int
    """Pods that are on it afterwards, without those of DaemonSets."""

    def data(self) -> dict[str, Any]:
        return {"name": self.name, "change": self.change, "pods": self.pods}


@dataclass(slots=True)
class WhatIfAnswer:
    time: float
    """Of the objects, in seconds since the epoch."""
    changes: list[str]
    before: ClusterCapacity
    after: ClusterCapacity
    placed: list[Placed] = field(default_factory=list)
    displaced: list[Displaced] = field(default_factory=list)
    lost_reservations: list[LostReservation] = field(default_factory=list)
    pending: list[StillPending] = field(default_factory=list)
    blocked: list[BlockedEviction] = field(default_factory=list)
    nodes: list[ChangedNode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    plan: NodePlan | None = None

    @property
    def capacity_note(self) -> str:
        """Why requested, reserved and free are less than allocatable; empty if no node is cordoned."""
        before, after = self.before.cordoned_nodes, self.after.cordoned_nodes
        if not before and not after:
            return ""
        nodes = f"{before} before, {after} after" if before != after else str(after)
        return f"allocatable includes cordoned nodes ({nodes}), on which nothing is free"

    @property
    def newly_pending(self) -> list[StillPending]:
        return [each for each in self.pending if each.was != PENDING]

    @property
    def lost(self) -> list[Displaced]:
        """Pods that nothing replaces, those that a controller deleted excepted."""
        return [each for each in self.displaced if not each.replaced_by and each.reason != "Deleted"]

    def counts(self) -> dict[str, int]:
        was = Counter(each.was for each in self.placed)
        return {
            "placed": len(self.placed),
            "placedThatWerePending": was[PENDING],
            "preempted": sum(each.reason == "Preempted" for each in self.displaced),
            "displaced": len(self.displaced),
            "lost": len(self.lost),
            "lostReservations": len(self.lost_reservations),
            "pending": len(self.pending),
            "newlyPending": len(self.newly_pending),
            "blockedEvictions": len(self.blocked),
        }

    def data(self) -> dict[str, Any]:
        return {
            "$schema": SCHEMA,
            "kind": "WhatIf",
            "time": format_time(self.time),
            "changes": self.changes,
            "summary": self.counts(),
            "placed": [each.data() for each in self.placed],
            "displaced": [each.data() for each in self.displaced],
            "lostReservations": [each.data() for each in self.lost_reservations],
            "pending": [each.data() for each in self.pending],
            "blockedEvictions": [_blocked(each) for each in self.blocked],
            "nodes": [each.data() for each in self.nodes],
            "before": self.before.data(),
            "after": self.after.data(),
            "plan": self.plan.data() if self.plan is not None else None,
            "notes": self.notes,
        }


def _blocked(each: BlockedEviction) -> dict[str, Any]:
    return {
        "object": str(each.pod),
        "node": each.node,
        "budget": each.budget,
        "message": each.message,
    }


def by_workload(pods: Sequence[Placed]) -> dict[tuple[str, str], list[Placed]]:
    """Placed objects by workload and by what they were, in order."""
    found: dict[tuple[str, str], list[Placed]] = {}
    for each in pods:
        found.setdefault((each.workload or each.object, each.was), []).append(each)
    return found


def pending_groups(pending: Sequence[StillPending]) -> dict[tuple[str, str, str], list[StillPending]]:
    """Pending objects by workload, by what they were, and by message, in order."""
    found: dict[tuple[str, str, str], list[StillPending]] = {}
    for each in pending:
        found.setdefault((each.workload or each.object, each.was, each.message), []).append(each)
    return found
