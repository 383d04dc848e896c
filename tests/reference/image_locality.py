from __future__ import annotations

from holdfast.api.node import Node
from holdfast.api.pod import Pod
from reference.plugin import ReferencePlugin
from reference.state import ReferenceState

_MB = 2**20


class ImageLocality(ReferencePlugin):
    name = "ImageLocality"

    def score(self, pod: Pod, node: Node, world: ReferenceState) -> int:
        present = {name for image in node.status.images for name in image.names}
        names = [each.image for each in (*pod.spec.init_containers, *pod.spec.containers)]
        names += [each.image.reference for each in pod.spec.volumes if each.image is not None]
        total = 0
        for name in names:
            if ":" not in name.split("/")[-1]:
                name += ":latest"
            if name in present:
                size, holders = world.image_size_and_spread(name)
                total += int(float(size) * (float(holders) / float(len(world.nodes))))
        least, most = 23 * _MB, 1000 * _MB * len(names)
        if total <= least:
            return 0
        return 100 * (min(total, most) - least) // (most - least)
