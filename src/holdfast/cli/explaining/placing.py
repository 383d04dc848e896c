"""What stands against each node, and how the nodes that will do rank."""

from typing import NamedTuple

import numpy as np

from holdfast.actions.scheduler import Scheduler
from holdfast.cli.explaining.report import Ranked, Reason
from holdfast.core.pods import PodRecord
from holdfast.framework.column import Column
from holdfast.framework.diagnosis import NO_NODES, Blame
from holdfast.framework.profile import Profile
from holdfast.framework.rows import INFEASIBLE

_BEST = 5


class Placing(NamedTuple):
    """Of one pod, or reserve pod, as things are now."""

    profile: Profile
    column: Column
    message: str
    """What it would be told; empty if a node will do."""
    blames: dict[str, Blame]
    """Of every node, by its name."""

    @property
    def reasons(self) -> list[Reason]:
        found: dict[tuple[str, str], Reason] = {}
        for node, blame in sorted(self.blames.items()):
            for text in blame.texts:
                reason = found.setdefault(
                    (text, blame.plugin), Reason(text, blame.plugin, [], blame.resolvable)
                )
                reason.nodes.append(node)
        return sorted(found.values(), key=lambda each: (-len(each.nodes), each.reason))


def place(scheduler: Scheduler, pod: PodRecord) -> Placing:
    """Where the pod could go. A pod that has a node already must have been taken off it before."""
    cluster, cycle = scheduler.cluster, scheduler.cycle
    profile = scheduler.profile_of(pod.scheduler) or scheduler.profiles[0]
    column = cycle.column(profile, pod.cls)
    blames = cycle.blames(profile, pod, column)
    if not cluster.nodes.count:
        return Placing(profile, column, NO_NODES, blames)
    if cycle.find_row(profile, pod, column) >= 0:
        return Placing(profile, column, "", blames)
    why = cycle.verdict(profile, pod, column)
    more = "" if why.error else cycle.post_filter(profile, pod, column).message
    return Placing(profile, column, why.message(cluster.nodes.count, more), blames)


def rank(scheduler: Scheduler, placing: Placing) -> list[Ranked]:
    """The best nodes of those nothing stands against."""
    cluster, column = scheduler.cluster, placing.column
    if column.rejected is not None or not cluster.nodes.count:
        return []
    totals = column.totals()
    known = cluster.promises.known
    found: list[Ranked] = []
    for row in np.argsort(-totals, kind="stable").tolist():
        name = cluster.nodes.name(row)
        if totals.item(row) <= INFEASIBLE // 2 or len(found) == _BEST:
            break
        if placing.blames.get(name) is None or placing.blames[name].texts:
            continue
        drawn = known.get(column.draws_on(row))
        score = totals.item(row) + column.constant
        found.append(Ranked(name, score, drawn.name if drawn is not None else ""))
    return found
