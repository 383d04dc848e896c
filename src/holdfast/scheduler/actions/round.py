"""The protocol of an action, and the round it works on."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.scheduler.actions.hold_reconciler import HoldReconciler
from holdfast.scheduler.cluster.decisions import Decision
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.failure_handler import FailureHandler
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore, NodeSearch
from holdfast.scheduler.framework.gang_failures import GangFailureHandler
from holdfast.scheduler.framework.gangs import Gangs
from holdfast.scheduler.framework.hold_planner import HoldPlanner
from holdfast.scheduler.framework.preemption import Preemption
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_cycle import SchedulingCycle
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue
from holdfast.scheduler.state.cluster import Cluster


@dataclass(slots=True)
class Round:
    """One run of all configured actions, with the parts of the scheduler they use."""

    cluster: Cluster
    queue: SchedulingQueue
    columns: ColumnStore
    search: NodeSearch
    failures: FailureHandler
    cycle: SchedulingCycle
    preemption: Preemption
    gangs: Gangs
    gang_failures: GangFailureHandler
    hold_planner: HoldPlanner
    hold_reconciler: HoldReconciler
    profiles: Mapping[str, Profile]
    """By scheduler name."""
    decisions: list[Decision]
    """What actions decided so far."""
    now: float
    pods_left: float = math.inf
    """The number of pods that may still be tried before the round, or this part of it, ends."""
    enough: Callable[[], bool] | None = None
    """Whether this part of the round has lasted long enough; None if it has no time limit."""
    not_admitted: list[PodRecord] = field(default_factory=list)
    """Pods outside gangs that their queue did not admit, in the order in which they were tried."""

    def tried(self, pods: int) -> None:
        """Counts pods that were tried. The time limit is checked only here, so that every part of a
        round tries at least one pod."""
        self.pods_left -= pods
        if self.enough is not None and self.pods_left > 0 and self.enough():
            self.pods_left = 0


class Action(ABC):
    """One step of a round. Made once, with its configured arguments; run in every round."""

    name: ClassVar[str]
    retries: ClassVar[bool] = False
    """Whether its timer is for what was refused before."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = arguments

    def next_timer(self) -> float | None:
        """When the action has to run even if nothing changes; None if never."""
        return None

    @abstractmethod
    def run(self, round_: Round) -> None:
        """Runs the action; decisions go to `round_.decisions`."""
