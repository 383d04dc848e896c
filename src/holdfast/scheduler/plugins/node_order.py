"""nodeorder: which nodes are held for starving jobs.

Nodes are ranked by how well their idle capacity fits the task. The best ones, as many as may still come
to be held, get ten points, and so do nodes with a hold; the others get none.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.framework.hold_planner import node_score
from holdfast.scheduler.framework.interface import Offer, Plugin

POINTS = 10.0


class NodeOrder(Plugin):
    name = "nodeorder"
    wakes_on = Change.NONE

    def node_order_on_resource(self, cls: PodClass, offer: Offer) -> NDArray[np.float64]:
        ranks = node_score(cls, offer.idle, len(offer.rows))
        points = np.where(offer.held, POINTS, 0.0)
        order = np.lexsort((np.array(offer.names), -ranks))
        points[order[~offer.held[order]][: offer.more]] = POINTS
        return points
