"""DefaultBinder: binds a pod by a Binding object."""

from holdfast.scheduler.cluster.decisions import Bind, Decision
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pods import PodRecord
from holdfast.scheduler.framework.cluster_plugin import ClusterPlugin


class DefaultBinder(ClusterPlugin):
    name = "DefaultBinder"
    wakes_on = Change.NONE

    def bind(self, pod: PodRecord, row: int) -> list[Decision]:
        told = self.cluster.managers.annotations_for(pod, row)
        return [Bind(pod.ref, self.cluster.nodes.name(row), told)]
