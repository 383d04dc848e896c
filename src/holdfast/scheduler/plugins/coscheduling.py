"""Coscheduling: the pods of a job are placed together or not at all.

The work is done in `holdfast.scheduler.framework.gangs`, for all members at once rather than pod by
pod; the plugin says for which profiles. Where a file lets it sort the queue, the order is that of
PrioritySort, which keeps jobs together as it is.
"""

from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.framework.plugin_names import COSCHEDULING
from holdfast.scheduler.plugins.priority_sort import PrioritySort


class Coscheduling(PrioritySort):
    name = COSCHEDULING
    wakes_on = Change.NONE
