"""What an action works on, and what an action is."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.scheduler.actions.hold_reconciler import HoldReconciler
from holdfast.scheduler.cluster.cluster import Cluster
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.framework.gangs import Gangs
from holdfast.scheduler.framework.hold_planner import HoldPlanner
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.framework.scheduling_cycle import Cycle
from holdfast.scheduler.framework.scheduling_queue import SchedulingQueue


@dataclass(slots=True)
class Round:
    cluster: Cluster
    queue: SchedulingQueue
    cycle: Cycle
    gangs: Gangs
    hold_planner: HoldPlanner
    hold_reconciler: HoldReconciler
    profiles: Mapping[str, Profile]
    """By scheduler name."""
    now: float
    pods_left: float = math.inf
    """How many more pods may be tried before the round, or this part of it, ends."""
    enough: Callable[[], bool] | None = None
    """Whether this part of it has lasted long enough; None if it may last as long as it takes."""
    turned_away: list[PodRecord] = field(default_factory=list)
    """Pods that are jobs of their own and that their queue would not have, as they were tried."""

    def tried(self, pods: int) -> None:
        """So many pods were; the first always are, however little time there is."""
        self.pods_left -= pods
        if self.enough is not None and self.pods_left > 0 and self.enough():
            self.pods_left = 0


class Action(ABC):
    """One step of a round. Made once, with its configured arguments; run in every round."""

    name: ClassVar[str]

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = arguments

    def next_timer(self) -> float | None:
        """When it is to be run even if nothing happens."""
        return None

    @abstractmethod
    def run(self, round_: Round) -> None:
        """Decides what there is to decide."""
