"""ImageLocality: prefers nodes that have the pod's images, the more so the larger they are and the
more nodes have them already (an image on a single node must not draw every pod there)."""

from collections import Counter

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.cluster_plugin import ClusterPlugin
from holdfast.scheduler.framework.interface import MAX_SCORE, Scope, Score, Settled

_MB = 1024 * 1024
_LEAST = 23 * _MB
_MOST_PER_CONTAINER = 1000 * _MB


class ImageLocality(ClusterPlugin):
    name = "ImageLocality"
    wakes_on = Change.NONE

    def score(self, cls: PodClass) -> Score:
        nodes = self.cluster.nodes

        version = Settled(lambda: (nodes.images.version, nodes.count if len(nodes.images) else 0))
        worth = [
            (int(float(image.size) * (float(image.nodes) / float(nodes.count))) * count, name)
            for name, count in Counter(cls.images).items()
            if (image := nodes.images.get(name)) is not None and nodes.count
        ]
        if not worth:
            return Score.same(0, version)
        most = _MOST_PER_CONTAINER * cls.container_count

        def score(view: View) -> Cells:
            total = 0
            for value, name in worth:
                image = nodes.images.get(name)
                assert image is not None
                total = total + value * view.take(image.present)
            capped = (total < _LEAST) * _LEAST + (total >= _LEAST) * (
                (total > most) * most + (total <= most) * total
            )
            return MAX_SCORE * (capped - _LEAST) // (most - _LEAST)

        return Score(score, Scope.NODE, version=version)
