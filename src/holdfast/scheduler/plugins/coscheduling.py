"""Coscheduling: switches gang scheduling on for a profile.

`holdfast.scheduler.framework.gangs` does the work, for all members of a job at once rather than pod by
pod. If a configuration has it sort the queue, the order is that of PrioritySort, which keeps the pods
of a job together.
"""

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.framework.config.plugin_sets import COSCHEDULING
from holdfast.scheduler.plugins.priority_sort import PrioritySort


class Coscheduling(PrioritySort):
    name = COSCHEDULING
    wakes_on = Change.NONE
