"""Nodes held for starving jobs take nothing new, if the reserve action says so.

It is judged just before room is, so that this is the reason given. Pods that ask for nothing pass, and
so does the pod a node is held for. Where nothing is held there is nothing to check.
"""

from holdfast.core.classes import PodClass
from holdfast.core.cluster import Cluster
from holdfast.core.jobs.holds import is_hold
from holdfast.core.view import Cells, One, View
from holdfast.framework.interface import Filter, Reason, Scope, Settled, Version
from holdfast.framework.points import BARRIER
from holdfast.framework.profile import Profile

RESERVED = "node(s) resource was(were) reserved"


def add_barrier(
    cluster: Cluster, profile: Profile, cls: PodClass, filters: list[tuple[str, Filter]]
) -> list[Version]:
    """Puts the barrier among a class's filters; what its being there depends on."""
    holds = cluster.jobs.holds
    if not holds.bars_nodes or not cls.requests or is_hold(cls):
        return []
    if holds:

        def barred(view: View) -> Cells:
            if isinstance(view, One):
                return holds.bars(cls, view.rows)
            return view.take(holds.barred_to(cls))

        def passes(view: View) -> Cells:
            return view.negate(barred(view))

        def reasons(view: View) -> list[Reason]:
            return [Reason(RESERVED, barred(view), resolvable=False)]

        order = profile.filter_order
        place = sum(order.get(name, -1) < order[BARRIER] for name, _ in filters)
        filters.insert(place, (BARRIER, Filter(passes, reasons, Scope.USAGE)))
    return [Settled(lambda: bool(holds))]
