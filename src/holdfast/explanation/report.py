"""The explanation of an object as data, and feasibility and ranking of nodes."""

from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.api.events import last_observed
from holdfast.kube.object_client import Raw


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
    node_score: int = 0
    """The part of the score that comes from the node."""
    reservation_score: int = 0
    """The part that comes from the reservation, which outweighs everything else."""


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
class Holder:
    """Who keeps capacity on a node from the object."""

    node: str
    kind: str
    """`Reservation`, `StarvationHold`, `PreemptionHold` or `VirtualReservation`."""
    name: str
    phase: str
    held_for: str
    """Its job or pod, or its owners."""
    amounts: dict[str, str]
    """What it keeps free for its owners, of the resources that the object requests."""
    expires: str = ""
    expected_start: str = ""
    """When its capacity is expected to be free for its owner, or when it starts if it is planned; empty
    if unknown."""
    since: str = ""
    """Of a hold, when it was created."""
    same_owners: bool = False
    """The object is a reservation for the same owners."""


END_PODS, ALLOW_PREEMPTION = "EndPods", "AllowPreemption"
"""The actions of changes that end pods of others, and of those by which a pod may do so."""


@dataclass(slots=True)
class Advice:
    """A change that makes the object schedulable; the scheduler was asked with the change made."""

    text: str
    change: dict[str, Any]
    nodes: list[str]
    """The nodes that are eligible then."""
    verified: bool = True

    @property
    def ends_pods(self) -> bool:
        """Whether pods of others have to end for it, and that is what it is about."""
        return not {END_PODS, ALLOW_PREEMPTION}.isdisjoint(self.change["actions"])


@dataclass(slots=True)
class PodsOfWorkload:
    """Pods of a workload that are in the same situation."""

    count: int
    state: str
    """`Pending`, or the phase of the pods."""
    reason: str
    pods: list[str]
    """Their names."""


@dataclass(slots=True)
class NodeCapacity:
    """The amounts of one resource on a node."""

    resource: str
    allocatable: str
    requested: str
    """By pods."""
    held: str
    """By reservations, of what their owners have not taken yet."""
    free: str
    limits: str
    """The sum of limits as a percentage of allocatable."""


@dataclass(slots=True)
class PodOnNode:
    name: str
    state: str
    """`Bound` or `Terminating`."""
    priority: int
    amounts: dict[str, str]
    """What it requests."""
    reservation: str = ""
    """The one that it uses."""
    expected_end: str = ""
    overdue: bool = False
    """It has run longer than its run-time estimate, so that its end is unknown."""


@dataclass(slots=True)
class ReservationOnNode:
    kind: str
    """`Reservation`, `StarvationHold`, `PreemptionHold` or `VirtualReservation`."""
    name: str
    phase: str
    """`Available`, `Waiting` or `Planned`."""
    held_for: str
    amounts: dict[str, str]
    """What it reserves."""
    left: dict[str, str]
    """What its owners have not taken yet."""
    start: str = ""
    """Of one that waits, when its capacity should be free; of one that is planned, when it starts."""
    end: str = ""


@dataclass(slots=True)
class QueueCapacity:
    """The amounts of one resource of a queue; empty where the queue has no such bound."""

    resource: str
    allocated: str
    requested: str
    """By its pending pods."""
    deserved: str
    """Its share, by weight or as its spec says, given what all queues request now."""
    guarantee: str
    capability: str


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
    details: list[str] = field(default_factory=list)
    """Facts behind the summary, with names and figures."""
    holders: list[Holder] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)
    """Cheapest first."""
    pods: list[PodsOfWorkload] = field(default_factory=list)
    """For a workload or a queue: its pods, grouped by reason; for a node: the pending ones."""
    node_capacity: list[NodeCapacity] = field(default_factory=list)
    placed: list[PodOnNode] = field(default_factory=list)
    """For a node: its pods."""
    held: list[ReservationOnNode] = field(default_factory=list)
    """For a node: its reservations and holds, and reservations that start there later."""
    queue_capacity: list[QueueCapacity] = field(default_factory=list)
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
        found["help"] = [*self.details, *(each.text for each in self.advice)]
        return _camel_keys(found)


def few(names: list[str], most: int = 8) -> str:
    """The first names, and the number of the others."""
    shown = ", ".join(names[:most])
    return f"{shown}, and {len(names) - most} more" if len(names) > most else shown


def _camel_keys(found: dict[str, Any]) -> dict[str, Any]:
    """Keys of ours in camel case; those inside changes are of Kubernetes objects, and amounts are of
    resources."""
    keep = ("change", "amounts", "left")
    return {
        _camel(key): value
        if key in keep
        else [_camel_keys(each) if isinstance(each, dict) else each for each in value]
        if isinstance(value, list)
        else value
        for key, value in found.items()
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
