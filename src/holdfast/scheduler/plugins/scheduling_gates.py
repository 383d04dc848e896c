"""SchedulingGates: keeps a pod with scheduling gates out of the queue until all are removed."""

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.interface import Plugin


class SchedulingGates(Plugin):
    name = "SchedulingGates"
    wakes_on = Change.NONE

    def pre_enqueue(self, pod: PodRecord) -> str:
        return f"waiting for scheduling gates: [{' '.join(pod.gates)}]" if pod.gates else ""
