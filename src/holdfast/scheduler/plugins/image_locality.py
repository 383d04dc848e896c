"""ImageLocality: prefers nodes that have the images of the pod's containers and volumes. Large images
count more, and images that many nodes have count more, so that an image on a single node does not
attract every pod."""

from collections import Counter

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.interface import MAX_SCORE, Plugin, Scope, Score, Settled

_MB = 1024 * 1024
_LEAST = 23 * _MB
_MOST_PER_IMAGE = 1000 * _MB


class ImageLocality(Plugin):
    name = "ImageLocality"
    wakes_on = Change.NONE

    def score(self, cls: PodClass) -> Score:
        nodes = self.handle.nodes
        version = Settled(lambda: (nodes.images_version, nodes.images_version and len(nodes)))
        worth = [
            (int(float(image.size) * (float(image.nodes) / float(len(nodes)))) * count, image)
            for name, count in Counter(cls.images).items()
            if (image := nodes.image(name)) is not None and len(nodes)
        ]
        if not worth:
            return Score.same(0, version)
        most = _MOST_PER_IMAGE * len(cls.images)

        def score(view: View) -> Cells:
            total = 0
            for value, image in worth:
                total = total + value * view.take(image)
            capped = (total < _LEAST) * _LEAST + (total >= _LEAST) * (
                (total > most) * most + (total <= most) * total
            )
            return MAX_SCORE * (capped - _LEAST) // (most - _LEAST)

        return Score(score, Scope.NODE, version=version)
