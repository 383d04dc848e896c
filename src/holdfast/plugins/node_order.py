"""nodeorder: which nodes hold room for starving jobs.

Nodes are ranked by how well what is idle there goes with the task. The best of them, as many as may
hold anything, get ten points, and so do those that hold something already; the others get none.
"""

import numpy as np
from numpy.typing import NDArray

from holdfast.core.changes import Change
from holdfast.core.classes import PodClass
from holdfast.framework.interface import Offer, Plugin
from holdfast.framework.resource_order import node_score

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
