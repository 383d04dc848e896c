"""DefaultBinder: binds a pod by a Binding object."""

from holdfast.scheduler.cluster.decisions import Bind, Decision
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.interface import Plugin


class DefaultBinder(Plugin):
    name = "DefaultBinder"
    wakes_on = Change.NONE

    def bind(self, pod: PodRecord, row: int) -> list[Decision]:
        return [Bind(pod.ref, self.handle.nodes.name(row))]
